package main

import (
	"context"
	"errors"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/bullpen-ci/bullpen/internal/cli"
)

func newStatusCommand() *cobra.Command {
	conn, format, watch := connection(), cli.FormatTable, cli.Watch{}
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show the fleet at a glance: is anything wrong?",
		Long: `Shows the fleet at a glance: what somebody should look at, what waits and for what, and what each pool has. It exits with 0 whatever
it finds; bullpen doctor looks for what is wrong with a set-up, and bullpen why JOB says why one job waits.`,
		Example: "  bullpen status\n  bullpen status --watch\n  bullpen status -o json | jq -e '.problems == []'",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			client, err := conn.Client()
			if err != nil {
				return err
			}
			return watch.Run(cmd.Context(), cmd.OutOrStdout(), func(ctx context.Context, out io.Writer) error {
				pools, err := client.Pools(ctx)
				if err != nil {
					return err
				}
				accounts, err := client.Accounts(ctx, false)
				if err != nil {
					return err
				}
				return cli.PrintStatus(out, format, cli.Sum(pools, accounts), time.Now())
			})
		},
	}
	conn.Flags(cmd.Flags())
	watch.Flags(cmd.Flags())
	cli.OutputFlag(cmd.Flags(), &format)
	return cmd
}

func newPoolsCommand() *cobra.Command {
	conn, format, watch, namespace := connection(), cli.FormatTable, cli.Watch{}, ""
	cmd := &cobra.Command{
		Use:   "pools",
		Short: "List pools: what they have, and what waits for them",
		Long: `Lists pools with the runners they have and the jobs that wait for them. QUEUED jobs would begin at once if there were runners; WITHHELD
ones wait for something else: an account's limit, a suspension, GitHub. -o json says for what, and what each problem is.`,
		Example: "  bullpen pools\n  bullpen pools -o wide\n  bullpen pools -o json | jq '.[] | select(.problems != [])'",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			client, err := conn.Client()
			if err != nil {
				return err
			}
			return watch.Run(cmd.Context(), cmd.OutOrStdout(), func(ctx context.Context, out io.Writer) error {
				list, err := client.Pools(ctx)
				if err != nil {
					return err
				}
				if namespace != "" {
					list.Pools = cli.PoolsIn(namespace, list.Pools)
				}
				return cli.Print(out, format, list.Pools, cli.PoolTable(list.Pools, time.Now()))
			})
		},
	}
	conn.Flags(cmd.Flags())
	cmd.Flags().StringVarP(&namespace, "namespace", "n", "", "only in this namespace (default: all)")
	watch.Flags(cmd.Flags())
	cli.OutputFlag(cmd.Flags(), &format)
	return cmd
}

func newRunnersCommand() *cobra.Command {
	conn, format, filter, watch := connection(), cli.FormatTable, cli.RunnerFilter{}, cli.Watch{}
	cmd := &cobra.Command{
		Use:     "runners",
		Aliases: []string{"runner"},
		Short:   "List the runners of pools, and which job each has",
		Long: `Lists the runner pods of pools by name. A runner is booting, idle, claimed (chosen for a job), minted (registered for it), busy, leaving or
finished; SINCE is when it was chosen. bullpen runners logs RUNNER shows its log.`,
		Example: `  bullpen runners
  bullpen runners --pool linux-4 --stage busy
  bullpen runners --stage idle -o json | jq length`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if filter.Most < 1 {
				return errors.New("--limit is a number of runners, at least 1")
			}
			client, err := conn.Client()
			if err != nil {
				return err
			}
			return watch.Run(cmd.Context(), cmd.OutOrStdout(), func(ctx context.Context, out io.Writer) error {
				runners, err := client.Runners(ctx, filter)
				if err != nil {
					return err
				}
				return cli.Print(out, format, runners, cli.RunnerTable(runners, time.Now()))
			})
		},
	}
	conn.Flags(cmd.Flags())
	watch.Flags(cmd.Flags())
	cli.OutputFlag(cmd.Flags(), &format)
	flags := cmd.Flags()
	flags.StringVarP(&filter.Namespace, "namespace", "n", "", "only in this namespace (default: all)")
	flags.StringVar(&filter.Pool, "pool", "", "only of this pool, by name or namespace/name")
	flags.StringArrayVar(&filter.Stages, "stage", nil, "only in this stage; may be repeated")
	flags.IntVar(&filter.Most, "limit", 1000, "most runners to show")
	cmd.AddCommand(newRunnersLogsCommand())
	return cmd
}
