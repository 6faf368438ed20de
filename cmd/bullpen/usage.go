package main

import (
	"errors"

	"github.com/spf13/cobra"

	"github.com/bullpen-ci/bullpen/api/adminapi"
	"github.com/bullpen-ci/bullpen/internal/cli"
)

func newUsageCommand() *cobra.Command {
	conn, filter, month := connection(), cli.UsageFilter{}, ""
	output := cli.OutputOf[adminapi.MonthUsage]()
	output.CSV, output.Nameless = true, true
	cmd := &cobra.Command{
		Use:   "usage",
		Short: "Show the usage of accounts, by month and pool",
		Long: `Show the usage of accounts, by month (UTC) and pool. A session is one runner, from its registration until its pod stops; it is what counts
against an account's limits. Its seconds are counted in the months in which they passed, the session and its job in the month in which
they started. A running session is counted up to now. The server's --keep-sessions sets how long sessions are kept. Self-registering
runners are not included.`,
		Example: `  bullpen usage
  bullpen usage --month 2026-10 --account acme
  bullpen usage --from 2026-01 --to 2026-12 -o csv > usage.csv
  bullpen usage --sort-by jobSeconds -o custom-columns=ACCOUNT:.account,POOL:.pool,SECONDS:.jobSeconds
  bullpen usage -o json | jq 'map(.jobSeconds) | add / 3600'`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if month != "" {
				if filter.From != "" || filter.To != "" {
					return errors.New("--month excludes --from and --to: give one or the other")
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
			return cli.PrintUsage(cmd.OutOrStdout(), &output, usage)
		},
	}
	conn.Flags(cmd.Flags())
	listOutput(cmd, &output)
	cmd.Flags().StringVar(&month, "month", "", "this month, such as 2026-11 (default: the current one)")
	cmd.Flags().StringVar(&filter.From, "from", "", "first month, such as 2026-01")
	cmd.Flags().StringVar(&filter.To, "to", "", "last month, such as 2026-12")
	cmd.Flags().StringVar(&filter.Account, "account", "", "only this account, by login or @ID")
	return cmd
}
