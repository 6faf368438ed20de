package main

import (
	"errors"

	"github.com/spf13/cobra"

	"github.com/bullpen-ci/bullpen/api/adminapi"
	"github.com/bullpen-ci/bullpen/internal/cli"
	"github.com/bullpen-ci/bullpen/internal/cli/commandline"
)

func newAuditCommand() *cobra.Command {
	conn, output, filter := connection(), cli.OutputOf[adminapi.AuditEvent](), cli.AuditFilter{}
	cmd := &cobra.Command{
		Use:   "audit",
		Short: "List changes with their author, newest first",
		Long: `List every change of an account by an administrator, every retired runner, every change of an installation at GitHub, and every change
of a RunnerPool's spec by any client: pool_pause, pool_drain, pool_resume, pool_scale, pool_set.

AUTHOR is the user whom the cluster verified. A name that only the client stated is marked. Changes of pools without a name show the field
manager, such as kubectl-edit, if the API server recorded one; the cluster's audit log has the user. -o wide shows the ServiceAccount whose
token was used (ACTOR), and the token's ID. CHANGE has the fields that changed; -o json has all values before and after.`,
		Example: `  bullpen audit
  bullpen audit --account acme --limit 200 -o wide
  bullpen audit --pool linux-4cpu --since 24h
  bullpen audit --since 2026-11-01 --until 2026-12-01 -o json
  bullpen audit -o custom-columns=TIME:.at,AUTHOR:.author,ACTION:.action
  bullpen audit -o json | jq '.[] | select(.actor != "github")'`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if filter.Account != "" && filter.Pool != "" {
				return errors.New("--account and --pool exclude each other: changes of pools have no account. Use one of them")
			}
			client, err := conn.Client()
			if err != nil {
				return err
			}
			events, err := client.Audit(cmd.Context(), filter)
			if err != nil {
				return err
			}
			return cli.AuditRows().Print(cmd.OutOrStdout(), &output, events)
		},
	}
	conn.Flags(cmd.Flags())
	listOutput(cmd, &output)
	cmd.Flags().StringVar(&filter.Account, "account", "", "only this account, by login or @ID")
	cmd.Flags().StringVar(&filter.Pool, "pool", "", "only changes of this pool and retired runners of it, by name or namespace/name")
	cmd.Flags().Var(&filter.Since, "since", "only changes since then: a duration such as 24h or 7d, a date, or a time")
	cmd.Flags().Var(&filter.Until, "until", "only changes before then, in the same forms")
	commandline.AtLeast(cmd.Flags(), &filter.Most, "limit", 1, 50, "maximum number of changes to show")
	return cmd
}
