package main

import (
	"github.com/spf13/cobra"

	"github.com/bullpen-ci/bullpen/api/adminapi"
	"github.com/bullpen-ci/bullpen/internal/cli"
	"github.com/bullpen-ci/bullpen/internal/cli/commandline"
)

func newAuditCommand() *cobra.Command {
	conn, format, account, most := connection(), cli.FormatTable, "", 50
	cmd := &cobra.Command{
		Use:   "audit",
		Short: "List changes with their author, newest first",
		Long: `List every change of an account by an administrator, every retired runner, and every change of an installation at GitHub. Each entry is
written in the transaction of the change itself.`,
		Example: "  bullpen audit\n  bullpen audit --account acme --limit 200 -o wide\n  bullpen audit -o json | jq '.[] | select(.actor != \"github\")'",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			client, err := conn.Client()
			if err != nil {
				return err
			}
			events, err := client.Audit(cmd.Context(), account, most)
			if err != nil {
				return err
			}
			if events == nil {
				events = []adminapi.AuditEvent{}
			}
			return cli.Print(cmd.OutOrStdout(), format, events, cli.AuditTable(events))
		},
	}
	conn.Flags(cmd.Flags())
	cli.OutputFlag(cmd.Flags(), &format)
	cmd.Flags().StringVar(&account, "account", "", "only this account, by login or @ID")
	commandline.AtLeast(cmd.Flags(), &most, "limit", 1, 50, "maximum number of changes to show")
	return cmd
}
