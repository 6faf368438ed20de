package main

import (
	"context"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/bullpen-ci/bullpen/internal/cli"
	"github.com/bullpen-ci/bullpen/internal/cli/commandline"
)

func newStatusCommand() *cobra.Command {
	conn, format, watch := connection(), cli.FormatTable, cli.Watch{}
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show problems, jobs and runners of the fleet",
		Long: `Show the fleet at a glance: problems, queued and blocked jobs, and the runners of each pool. See bullpen doctor for problems of the
installation, and bullpen why JOB for one job.

The numbers are those that the controller reported last, a few seconds ago; bullpen runners reads the pods themselves.

Exit codes: 0 done, also if there are problems, 1 the server cannot be read.`,
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
		Short: "List pools with their runners and queued jobs",
		Long: `List pools with their runners and jobs. QUEUED jobs wait for a runner only. BLOCKED jobs are held back by an account's limit, a
suspension or GitHub; -o json has the number by reason, and the sentence of each problem.`,
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
	cmd.Flags().StringVarP(&namespace, "namespace", "n", "", "only this namespace (default: all)")
	watch.Flags(cmd.Flags())
	cli.OutputFlag(cmd.Flags(), &format)
	return cmd
}

func newRunnersCommand() *cobra.Command {
	conn, format, filter, watch := connection(), cli.FormatTable, cli.RunnerFilter{}, cli.Watch{}
	cmd := &cobra.Command{
		Use:     "runners",
		Aliases: []string{"runner"},
		Short:   "List the runners of pools with their jobs",
		Long: `List the runner pods of pools by name. STAGE is starting, idle, assigned (chosen for a job), registered (at GitHub, for that job), busy,
terminating or exited. SINCE is the time since it was chosen. bullpen runners logs POD shows its log.`,
		Example: `  bullpen runners
  bullpen runners --pool linux-4 --stage busy
  bullpen runners --stage idle -o json | jq length`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
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
	flags.StringVarP(&filter.Namespace, "namespace", "n", "", "only this namespace (default: all)")
	flags.StringVar(&filter.Pool, "pool", "", "only this pool, by name or namespace/name")
	flags.Var(&filter.Stages, "stage", "only these stages, separated by commas: "+strings.Join(cli.RunnerStageNames(), ", "))
	commandline.AtLeast(flags, &filter.Most, "limit", 1, 1000, "maximum number of runners to show")
	cmd.AddCommand(newRunnersLogsCommand())
	return cmd
}
