package main

import (
	"errors"

	"github.com/spf13/cobra"

	"github.com/bullpen-ci/bullpen/internal/cli"
)

func newUsageCommand() *cobra.Command {
	conn, filter, month := connection(), cli.UsageFilter{}, ""
	format := cli.UsageFormat{Format: cli.FormatTable}
	cmd := &cobra.Command{
		Use:   "usage",
		Short: "Show what accounts have used, by month and pool",
		Long: `Shows what accounts have used, by month (UTC) and pool. A session is one runner, from its registration to the end of its pod: what an
account is charged with against its limits. Its seconds belong to the months in which they passed; itself and its job to the one in
which they began. Nothing is counted twice, whatever was put right meanwhile, and a session that goes on is counted up to now. How
long sessions are kept is a setting of the server (--keep-sessions). Runners that register themselves are not in it.`,
		Example: `  bullpen usage
  bullpen usage --month 2026-10 --account acme
  bullpen usage --from 2026-01 --to 2026-12 -o csv > usage.csv
  bullpen usage -o json | jq 'map(.jobSeconds) | add / 3600'`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if month != "" {
				if filter.From != "" || filter.To != "" {
					return errors.New("give --month, or --from and --to")
				}
				filter.From, filter.To = month, month
			}
			client, err := conn.Client()
			if err != nil {
				return err
			}
			usage, err := client.Usage(cmd.Context(), filter)
			if err != nil {
				return err
			}
			return cli.PrintUsage(cmd.OutOrStdout(), format.Format, usage)
		},
	}
	conn.Flags(cmd.Flags())
	cmd.Flags().VarP(&format, "output", "o", "table, wide, json, yaml or csv")
	cmd.Flags().StringVar(&month, "month", "", "of this month, like 2026-11 (default the present one)")
	cmd.Flags().StringVar(&filter.From, "from", "", "from this month on, like 2026-01")
	cmd.Flags().StringVar(&filter.To, "to", "", "up to and with this month, like 2026-12")
	cmd.Flags().StringVar(&filter.Account, "account", "", "only of this account, by login or @id")
	return cmd
}
