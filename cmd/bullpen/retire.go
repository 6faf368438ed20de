package main

import (
	"github.com/spf13/cobra"

	"github.com/bullpen-ci/bullpen/api/adminapi"
	"github.com/bullpen-ci/bullpen/internal/cli"
)

func newRetireCommand() *cobra.Command {
	conn, format, namespace, reason := connection(), cli.FormatTable, "", ""
	cmd := &cobra.Command{
		Use:   "retire POD",
		Short: "Have an idle runner replaced; one that works is left alone",
		Long: `Takes a runner that waits for work out of its pool: it gets no job any more, its pod ends, and the controller puts another in its
place if the pool still wants one. A runner that works, or has been chosen for a job, is refused and goes on: nothing ends a job.
To retire a runner twice changes nothing.

You need the right retire on runnerpods.bullpen.dev (the role bullpen-operator). Who retired which is in bullpen audit. It exits with
0 when the runner is on its way, and with 1 when it works, is not there, or could not be asked for.`,
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
			return cli.Print(cmd.OutOrStdout(), format, retired, cli.RetiredTable([]adminapi.RetiredRunner{retired}))
		},
	}
	conn.Flags(cmd.Flags())
	cli.OutputFlag(cmd.Flags(), &format)
	cmd.Flags().StringVarP(&namespace, "namespace", "n", "bullpen-runners", "namespace of the runner")
	cmd.Flags().StringVar(&reason, "reason", "", "why, for the audit log")
	return cmd
}
