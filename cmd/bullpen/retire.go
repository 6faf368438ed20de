package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/bullpen-ci/bullpen/api/adminapi"
	"github.com/bullpen-ci/bullpen/internal/cli"
)

func newRetireCommand() *cobra.Command {
	conn, format, namespace, reason := connection(), cli.FormatTable, "", ""
	cmd := &cobra.Command{
		Use:   "retire POD",
		Short: "Replace an idle runner (busy runners are not affected)",
		Long: `Remove an idle runner from its pool: it gets no job, its pod is deleted, and the controller creates another one if the pool needs it.
A busy runner, or one that was chosen for a job, is left running: the command fails, and the job is not affected. Repeating the
command changes nothing.

It needs the right retire on runnerpods.bullpen.dev (the role bullpen-admin), and is recorded in bullpen audit.

Exit codes: 0 the runner is being removed, 1 it is busy, was not found, or the server cannot be reached.`,
		Example: "  bullpen retire linux-x7k2m9qa --reason 'its disk is slow'\n  bullpen retire linux-x7k2m9qa -n bullpen-runners -o json",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			client, err := conn.Client()
			if err != nil {
				return err
			}
			retired, err := client.Retire(cmd.Context(), namespace, args[0], reason)
			if err != nil {
				return err
			}
			if !retired.Changed {
				fmt.Fprintf(cmd.ErrOrStderr(), "runner %s is already being removed; nothing was changed.\n", retired.Name)
			}
			return cli.Print(cmd.OutOrStdout(), format, retired, cli.RetiredTable([]adminapi.RetiredRunner{retired}))
		},
	}
	conn.Flags(cmd.Flags())
	cli.OutputFlag(cmd.Flags(), &format)
	cmd.Flags().StringVarP(&namespace, "namespace", "n", "bullpen-runners", "namespace of the runner")
	cmd.Flags().StringVar(&reason, "reason", "", "reason, for the audit log")
	return cmd
}
