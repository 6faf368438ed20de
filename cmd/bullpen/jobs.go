package main

import (
	"context"
	"errors"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/bullpen-ci/bullpen/api/adminapi"
	"github.com/bullpen-ci/bullpen/internal/cli"
	"github.com/bullpen-ci/bullpen/internal/cli/commandline"
)

func newJobsCommand() *cobra.Command {
	conn, output := connection(), cli.OutputOf[adminapi.Job]()
	filter, states, watch := cli.JobFilter{}, cli.JobStates{}, cli.Watch{}
	cmd := &cobra.Command{
		Use:   "jobs",
		Short: "List workflow jobs, newest first",
		Long: `List workflow jobs, newest first: queued and running ones, and with --completed also completed ones. STATE of a completed job is its
conclusion. The server's --keep-jobs sets how long completed jobs are kept.

  pending approval  waits at GitHub for an approval or a concurrency group
  queued            waits for a runner
  blocked           a limit, a suspension, a paused pool or GitHub holds it back; -o wide and bullpen why JOB name it
  no pool           no pool serves its labels
  elsewhere         it is for GitHub's own runners, or for another fleet
  assigned          a runner was chosen, and is being registered for it
  running           in progress
  completed         finished; STATE shows its conclusion`,
		Example: `  bullpen jobs
  bullpen jobs --state queued --account acme
  bullpen jobs --watch
  bullpen jobs --state running,blocked
  bullpen jobs --completed --repository acme/app -o wide
  bullpen jobs --conclusion failure --repository app --name test
  bullpen jobs --completed --sort-by startedAt -o custom-columns=ID:.id,RUNNER:.pod,CONCLUSION:.conclusion
  bullpen jobs --state queued,blocked,no-pool -q | xargs -n 1 bullpen why
  bullpen jobs -o json | jq 'group_by(.state) | map({(.[0].state): length}) | add'`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			states.Filter(&filter)
			client, err := conn.Client()
			if err != nil {
				return err
			}
			return watch.Run(cmd.Context(), cmd.OutOrStdout(), func(ctx context.Context, out io.Writer) error {
				jobs, err := client.Jobs(ctx, filter)
				if err != nil {
					return err
				}
				return cli.JobRows(time.Now()).Print(out, &output, jobs)
			})
		},
	}
	conn.Flags(cmd.Flags())
	watch.Flags(cmd.Flags())
	listOutput(cmd, &output)
	flags := cmd.Flags()
	flags.StringVar(&filter.Account, "account", "", "only this account, by login or @ID")
	flags.StringVar(&filter.Repository, "repository", "", "only this repository, as owner/name, or those whose name contains this")
	flags.StringVar(&filter.Name, "name", "", "only jobs whose name contains this")
	flags.Var(&states, "state", "only these states, separated by commas: "+strings.Join(cli.JobStateNames(), ", "))
	flags.StringSliceVar(&filter.Conclusions, "conclusion", nil, "only completed jobs with these conclusions: "+strings.Join(adminapi.Conclusions(), ", "))
	flags.BoolVar(&filter.Ended, "completed", false, "include completed jobs")
	flags.BoolVar(&filter.Ended, "ended", false, "the former name of --completed")
	cobra.CheckErr(flags.MarkHidden("ended"))
	commandline.AtLeast(flags, &filter.Most, "limit", 1, 100, "maximum number of jobs to show")
	return cmd
}

func newJobCommand() *cobra.Command {
	conn, output := connection(), cli.OutputOf[adminapi.Job]()
	var log, follow bool
	cmd := &cobra.Command{
		Use:   "job JOB",
		Short: "Show one workflow job and the duration of its phases, or its log",
		Long: `Show one workflow job: its state, the time and duration of each phase, and how its runner exited. JOB is its ID or URL at GitHub.

With --log, print the job's log by its steps, also while it runs, in the one-machine mode. In a cluster GitHub has the log: the command
prints the link and the gh command, and fails.`,
		Example: `  bullpen job 31415926535
  bullpen job https://github.com/acme/app/actions/runs/27182818284/job/31415926535 -o yaml
  bullpen job 31415926535 -o json | jq .timeline.split
  bullpen job 31415926535 -o jsonpath='{.url}'
  bullpen job 31415926535 --log --follow`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if follow && !log {
				return errors.New("--follow needs --log")
			}
			id, err := cli.ParseJob(args[0])
			if err != nil {
				return err
			}
			if log {
				return showJobLog(cmd, conn, id, follow)
			}
			job, err := readJob(cmd, conn, id)
			if err != nil {
				return err
			}
			return cli.PrintJob(cmd.OutOrStdout(), &output, job, time.Now(), conn.Again())
		},
	}
	conn.Flags(cmd.Flags())
	getOutput(cmd, &output)
	cmd.Flags().BoolVar(&log, "log", false, "print the job's log (one-machine mode)")
	cmd.Flags().BoolVarP(&follow, "follow", "f", false, "with --log: wait for the job to start, and print its log until it completes")
	cmd.MarkFlagsMutuallyExclusive("log", "output")
	return cmd
}

func readJob(cmd *cobra.Command, conn *cli.Connection, id int64) (adminapi.Job, error) {
	client, err := conn.Client()
	if err != nil {
		return adminapi.Job{}, err
	}
	return client.Job(cmd.Context(), id)
}

func newWhyCommand() *cobra.Command {
	conn, format := connection(), cli.FormatTable
	cmd := &cobra.Command{
		Use:   "why JOB",
		Short: "Explain why a job is queued, or how it completed",
		Long: `Explain why a job has no runner yet, or how it completed, from the data that the dispatcher uses. The most important reason comes
first. JOB is its ID or URL at GitHub. The codes of -o json are stable.`,
		Example: `  bullpen why 31415926535
  bullpen why https://github.com/acme/app/actions/runs/27182818284/job/31415926535
  bullpen why 31415926535 -o json | jq -r '.reasons[0].code'`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			id, err := cli.ParseJob(args[0])
			if err != nil {
				return err
			}
			client, err := conn.Client()
			if err != nil {
				return err
			}
			answer, err := client.Why(cmd.Context(), id)
			if err != nil {
				return err
			}
			if format == cli.FormatJSON || format == cli.FormatYAML {
				return cli.Print(cmd.OutOrStdout(), format, answer, cli.Table{})
			}
			return cli.PrintWhy(cmd.OutOrStdout(), answer, time.Now())
		},
	}
	conn.Flags(cmd.Flags())
	cli.OutputFlag(cmd.Flags(), &format)
	return cmd
}
