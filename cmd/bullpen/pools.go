package main

import (
	"context"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/bullpen-ci/bullpen/api/adminapi"
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

The numbers are those that the controller reported last, about two seconds ago; bullpen runners reads the pods themselves.

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
	cmd := newPoolListCommand("pools [POOL]", "  bullpen pools", " With POOL, show that one, as bullpen pool get does.")
	cmd.Short = "List pools with their runners and queued jobs"
	cmd.Args = cobra.MaximumNArgs(1)
	return cmd
}

// newPoolListCommand lists pools: it is `pools`, which also takes a pool, and `pool list`.
func newPoolListCommand(use, called, more string) *cobra.Command {
	conn, output, watch, namespace, selector := connection(), cli.OutputOf[adminapi.Pool](), cli.Watch{}, "", cli.LabelSelector{}
	cmd := &cobra.Command{
		Use:   use,
		Short: "List pools, as bullpen pools does",
		Long: `List pools with their runners and jobs. QUEUED jobs wait for a runner only. BLOCKED jobs are held back by an account's limit, a
suspension or GitHub; -o json has the number by reason, and the sentence of each problem.` + more,
		Example: called + "\n" + called + " -o wide\n" + called + " -l 'linux,!gpu' --sort-by .demand.queued\n" + called + " -q\n" + called + ` -o custom-columns=POOL:.name,IDLE:.idle,QUEUED:.demand.queued
` + called + ` -o jsonpath='{range .items[*]}{.name}{"\t"}{.labels[0]}{"\n"}{end}'
` + called + ` -o json | jq '.[] | select(.problems != [])'`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			client, err := conn.Client()
			if err != nil {
				return err
			}
			return watch.Run(cmd.Context(), cmd.OutOrStdout(), func(ctx context.Context, out io.Writer) error {
				if len(args) > 0 {
					return printPool(ctx, out, client, &output, namespace, args[0])
				}
				list, err := client.Pools(ctx)
				if err != nil {
					return err
				}
				return cli.PoolRows(time.Now()).Print(out, &output, cli.PoolsIn(namespace, &selector, list.Pools))
			})
		},
	}
	conn.Flags(cmd.Flags())
	cmd.Flags().StringVarP(&namespace, "namespace", "n", "", "only this namespace (default: all)")
	selector.Flags(cmd.Flags(), "only pools with these labels of runs-on, and without those after !, separated by commas")
	watch.Flags(cmd.Flags())
	listOutput(cmd, &output)
	return cmd
}

func newPoolGetCommand() *cobra.Command {
	conn, output, watch, namespace := connection(), cli.OutputOf[adminapi.Pool](), cli.Watch{}, ""
	cmd := &cobra.Command{
		Use:   "get POOL",
		Short: "Show one pool with its runners and queued jobs",
		Long: `Show one pool, as bullpen pools does, and the sentence of each of its problems. POOL is a name, or namespace/name. bullpen pool set
changes its size; kubectl get runnerpool POOL -o yaml shows the whole specification.`,
		Example: "  bullpen pool get linux-4cpu\n  bullpen pool get bullpen-runners/linux-4cpu -o yaml\n  bullpen pool get linux-4cpu -o jsonpath='{.idle}'",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			client, err := conn.Client()
			if err != nil {
				return err
			}
			return watch.Run(cmd.Context(), cmd.OutOrStdout(), func(ctx context.Context, out io.Writer) error {
				return printPool(ctx, out, client, &output, namespace, args[0])
			})
		},
	}
	conn.Flags(cmd.Flags())
	cmd.Flags().StringVarP(&namespace, "namespace", "n", "", "namespace of the pool (default: the one that has it)")
	watch.Flags(cmd.Flags())
	getOutput(cmd, &output)
	return cmd
}

func printPool(ctx context.Context, out io.Writer, client *cli.Client, output *cli.Output, namespace, name string) error {
	pool, err := client.Pool(ctx, namespace, name)
	if err != nil {
		return err
	}
	return cli.PrintPool(out, output, pool, time.Now())
}

func newRunnersCommand() *cobra.Command {
	conn, output, filter, watch := connection(), cli.OutputOf[adminapi.Runner](), cli.RunnerFilter{}, cli.Watch{}
	cmd := &cobra.Command{
		Use:     "runners",
		Aliases: []string{"runner"},
		Short:   "List the runners of pools with their jobs",
		Long: `List the runner pods of pools by name. STAGE is starting, idle, assigned (chosen for a job), registered (at GitHub, for that job), busy,
terminating or finished. SINCE is the time since it was chosen. bullpen runners logs POD shows its log.`,
		Example: `  bullpen runners
  bullpen runners --pool linux-4cpu --stage busy
  bullpen runners -l 'linux,!gpu' --sort-by createdAt
  bullpen runners -o custom-columns=RUNNER:.name,NODE:.node,JOB:.jobId
  bullpen runners --stage idle -q | xargs -n 1 bullpen retire
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
				return cli.RunnerRows(time.Now()).Print(out, &output, runners)
			})
		},
	}
	conn.Flags(cmd.Flags())
	watch.Flags(cmd.Flags())
	listOutput(cmd, &output)
	flags := cmd.Flags()
	flags.StringVarP(&filter.Namespace, "namespace", "n", "", "only this namespace (default: all)")
	filter.Labels.Flags(flags, "only runners of pools with these labels of runs-on, and without those after !, separated by commas")
	flags.StringVar(&filter.Pool, "pool", "", "only this pool, by name or namespace/name")
	flags.Var(&filter.Stages, "stage", "only these stages, separated by commas: "+strings.Join(adminapi.RunnerStages(), ", "))
	commandline.AtLeast(flags, &filter.Most, "limit", 1, 1000, "maximum number of runners to show")
	cmd.AddCommand(newRunnersGetCommand(), newRunnersLogsCommand())
	return cmd
}

func newRunnersGetCommand() *cobra.Command {
	conn, output, namespace := connection(), cli.OutputOf[adminapi.Runner](), ""
	cmd := &cobra.Command{
		Use:     "get POD",
		Short:   "Show one runner with its job",
		Long:    `Show one runner by the name of its pod, as bullpen runners does.`,
		Example: "  bullpen runners get linux-x7k2m9qa\n  bullpen runners get linux-x7k2m9qa -o jsonpath='{.jobId}'",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			client, err := conn.Client()
			if err != nil {
				return err
			}
			runner, err := client.Runner(cmd.Context(), namespace, args[0])
			if err != nil {
				return err
			}
			return cli.RunnerRows(time.Now()).PrintOne(cmd.OutOrStdout(), &output, runner)
		},
	}
	conn.Flags(cmd.Flags())
	cmd.Flags().StringVarP(&namespace, "namespace", "n", "bullpen-runners", "namespace of the runner")
	getOutput(cmd, &output)
	return cmd
}
