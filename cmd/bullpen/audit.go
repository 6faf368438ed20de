package main

import (
	"github.com/spf13/cobra"

	"github.com/bullpen-ci/bullpen/api/adminapi"
	"github.com/bullpen-ci/bullpen/internal/cli"
	"github.com/bullpen-ci/bullpen/internal/cli/commandline"
)

func newAuditCommand() *cobra.Command {
	conn, output, account, most := connection(), cli.OutputOf[adminapi.AuditEvent](), "", 50
	cmd := &cobra.Command{
		Use:   "audit",
		Short: "List changes with their author, newest first",
		Long: `List every change of an account by an administrator, every retired runner, and every change of an installation at GitHub. Each entry is
written in the transaction of the change itself.`,
		Example: `  bullpen audit
  bullpen audit --account acme --limit 200 -o wide
  bullpen audit -o custom-columns=TIME:.at,ACTOR:.actor,ACTION:.action
  bullpen audit -o json | jq '.[] | select(.actor != "github")'`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			client, err := conn.Client()
			if err != nil {
				return err
			}
			events, err := client.Audit(cmd.Context(), account, most)
			if err != nil {
				return err
			}
			return cli.AuditRows().Print(cmd.OutOrStdout(), &output, events)
		},
	}
	conn.Flags(cmd.Flags())
	listOutput(cmd, &output)
	cmd.Flags().StringVar(&account, "account", "", "only this account, by login or @ID")
	commandline.AtLeast(cmd.Flags(), &most, "limit", 1, 50, "maximum number of changes to show")
	return cmd
}
