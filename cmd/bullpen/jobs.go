package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/bullpen-ci/bullpen/api/adminapi"
	"github.com/bullpen-ci/bullpen/internal/cli"
)

func newJobsCommand() *cobra.Command {
	conn, format := connection(), cli.FormatTable
	filter, watch := cli.JobFilter{}, cli.Watch{}
	cmd := &cobra.Command{
		Use:   "jobs",
		Short: "List workflow jobs, the latest first",
		Long: `Lists workflow jobs that GitHub has told of, the latest first: those that wait or run, or with --ended those that have
ended too. How long records of ended jobs are kept is a setting of the server (--keep-jobs).`,
		Example: `  bullpen jobs
  bullpen jobs --state queued --account acme
  bullpen jobs --watch
  bullpen jobs --ended --repository acme/app -o wide
  bullpen jobs --conclusion failure --repository app --name test
  bullpen jobs -o json | jq 'group_by(.state) | map({(.[0].state): length}) | add'`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if filter.Most < 1 {
				return errors.New("--limit is a number of jobs, at least 1")
			}
			client, err := conn.Client()
			if err != nil {
				return err
			}
			return watch.Run(cmd.Context(), cmd.OutOrStdout(), func(ctx context.Context, out io.Writer) error {
				jobs, err := client.Jobs(ctx, filter)
				if err != nil {
					return err
				}
				return cli.Print(out, format, jobs, cli.JobTable(jobs, time.Now()))
			})
		},
	}
	conn.Flags(cmd.Flags())
	watch.Flags(cmd.Flags())
	cli.OutputFlag(cmd.Flags(), &format)
	flags := cmd.Flags()
	flags.StringVar(&filter.Account, "account", "", "only of this account, by login or @id")
	flags.StringVar(&filter.Repository, "repository", "", "only of this repository, as owner/name, or of those whose name contains this")
	flags.StringVar(&filter.Name, "name", "", "only jobs whose name contains this")
	flags.StringSliceVar(&filter.Conclusions, "conclusion", nil, "only completed jobs with these conclusions: "+strings.Join(adminapi.Conclusions(), ", "))
	flags.StringSliceVar(&filter.States, "state", nil, "only in these states: waiting, queued, claimed, minted, executing, completed, cancelled, stale")
	flags.BoolVar(&filter.Ended, "ended", false, "show jobs that have ended, too")
	flags.IntVar(&filter.Most, "limit", 100, "most jobs to show")
	return cmd
}

// oneJob reads the job that a command is about.
func oneJob(cmd *cobra.Command, args []string) (int64, error) {
	if len(args) != 1 {
		return 0, fmt.Errorf("name one job: `%s ID`, or its address at GitHub; `bullpen jobs` shows ids", cmd.CommandPath())
	}
	return cli.ParseJob(args[0])
}

func newJobCommand() *cobra.Command {
	conn, format := connection(), cli.FormatTable
	cmd := &cobra.Command{
		Use:   "job JOB",
		Short: "Show one workflow job, and where its time went",
		Long: `Shows one workflow job: what became of it, when each step of its life was taken, and what the time in between was spent on.
JOB is its id at GitHub, or its address there.`,
		Example: `  bullpen job 31415926535
  bullpen job https://github.com/acme/app/actions/runs/27182818284/job/31415926535 -o yaml
  bullpen job 31415926535 -o json | jq .timeline.split`,
		RunE: func(cmd *cobra.Command, args []string) error {
			id, err := oneJob(cmd, args)
			if err != nil {
				return err
			}
			client, err := conn.Client()
			if err != nil {
				return err
			}
			job, err := client.Job(cmd.Context(), id)
			if err != nil {
				return err
			}
			return cli.PrintJob(cmd.OutOrStdout(), format, job, time.Now())
		},
	}
	conn.Flags(cmd.Flags())
	cli.OutputFlag(cmd.Flags(), &format)
	return cmd
}

func newWhyCommand() *cobra.Command {
	conn, format := connection(), cli.FormatTable
	cmd := &cobra.Command{
		Use:   "why JOB",
		Short: "Say why a job has no runner yet, or what became of it",
		Long: `Says why a job has no runner yet, or what became of it, from what dispatch itself goes by. What has to change first comes
first. JOB is its id at GitHub, or its address there. The codes of -o json are stable.`,
		Example: `  bullpen why 31415926535
  bullpen why https://github.com/acme/app/actions/runs/27182818284/job/31415926535
  bullpen why 31415926535 -o json | jq -r '.reasons[0].code'`,
		RunE: func(cmd *cobra.Command, args []string) error {
			id, err := oneJob(cmd, args)
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
