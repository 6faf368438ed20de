package main

import (
	"errors"

	"github.com/spf13/cobra"

	"github.com/bullpen-ci/bullpen/api/adminapi"
	"github.com/bullpen-ci/bullpen/internal/cli"
)

func newAuditCommand() *cobra.Command {
	conn, format, account, most := connection(), cli.FormatTable, "", 50
	cmd := &cobra.Command{
		Use:   "audit",
		Short: "Show who changed what, the latest first",
		Long: `Shows every change of an account by an operator, every runner that one retired, and what GitHub said of installations. Each was written in the
same transaction as the change itself.`,
		Example: "  bullpen audit\n  bullpen audit --account acme --limit 200 -o wide\n  bullpen audit -o json | jq '.[] | select(.actor != \"github\")'",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if most < 1 {
				return errors.New("--limit is a number of events, at least 1")
			}
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
	cmd.Flags().StringVar(&account, "account", "", "only of this account, by login or @id")
	cmd.Flags().IntVar(&most, "limit", 50, "most events to show")
	return cmd
}
