package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/bullpen-ci/bullpen/internal/cli"
)

// localGitHub is the stand-in for GitHub of a `bullpen up` of this machine.
type localGitHub interface {
	// CancelJob and CancelRun return what to print.
	CancelJob(ctx context.Context, id int64) (string, error)
	CancelRun(ctx context.Context, id int64) (string, error)
	JobLog(ctx context.Context, id int64, follow bool, out, notes io.Writer) error
}

// findLocal connects to the stand-in that the server works with; nil if the server works with the real GitHub.
func findLocal(conn *cli.Connection) (localGitHub, error) {
	site, err := conn.Local()
	var elsewhere *cli.NotLocalError
	switch {
	case errors.As(err, &elsewhere), err == nil && localGitHubOf == nil:
		return nil, nil //nolint:nilnil // there is none
	case err != nil:
		return nil, err
	}
	return localGitHubOf(site)
}

func newCancelCommand() *cobra.Command {
	conn, run := connection(), ""
	cmd := &cobra.Command{
		Use:   "cancel [JOB]",
		Short: "Cancel a job or a run (one-machine mode); elsewhere, say how to",
		Long: `Cancel a job, or with --run all jobs of a run, at the GitHub stand-in of a ` + "`bullpen up`" + `. Queued jobs are cancelled at once. A running job is
stopped by its runner, which still runs steps with always() or cancelled(). JOB and --run take an ID, or a URL at GitHub.

In a cluster, cancel runs at GitHub: the command prints the link and the gh command.

Exit codes: 0 cancelled, 1 nothing was cancelled.`,
		Example: `  bullpen cancel 31415926535
  bullpen cancel --run 27182818284`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case run == "" && len(args) == 0:
				return errors.New("missing argument JOB: write `bullpen cancel JOB`, or `bullpen cancel --run RUN`. `bullpen jobs -o wide` lists job and run IDs")
			case run != "" && len(args) > 0:
				return errors.New("JOB and --run exclude each other: give one of them")
			case run != "":
				return cancelRun(cmd, conn, run)
			}
			return cancelJob(cmd, conn, args[0])
		},
	}
	conn.Flags(cmd.Flags())
	cmd.Flags().StringVar(&run, "run", "", "ID or URL of a run: cancel all its jobs")
	return cmd
}

func cancelJob(cmd *cobra.Command, conn *cli.Connection, text string) error {
	id, err := cli.ParseJob(text)
	if err != nil {
		return err
	}
	github, err := findLocal(conn)
	if err != nil {
		return err
	}
	if github != nil {
		return say(cmd, func() (string, error) { return github.CancelJob(cmd.Context(), id) })
	}
	job, err := readJob(cmd, conn, id)
	if err != nil {
		return err
	}
	return cli.CancelJobAtGitHub(job)
}

func cancelRun(cmd *cobra.Command, conn *cli.Connection, text string) error {
	id, repository, err := cli.ParseRun(text)
	if err != nil {
		return err
	}
	github, err := findLocal(conn)
	if err != nil {
		return err
	}
	if github != nil {
		return say(cmd, func() (string, error) { return github.CancelRun(cmd.Context(), id) })
	}
	link := ""
	if strings.Contains(text, "/") {
		link = text
	}
	return cli.CancelRunAtGitHub(id, link, repository)
}

func say(cmd *cobra.Command, do func() (string, error)) error {
	text, err := do()
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(cmd.OutOrStdout(), text)
	return err
}

// showJobLog prints the log of a job at a stand-in, or says where GitHub has it.
func showJobLog(cmd *cobra.Command, conn *cli.Connection, id int64, follow bool) error {
	github, err := findLocal(conn)
	if err != nil {
		return err
	}
	if github != nil {
		return github.JobLog(cmd.Context(), id, follow, cmd.OutOrStdout(), cmd.ErrOrStderr())
	}
	job, err := readJob(cmd, conn, id)
	if err != nil {
		return err
	}
	return cli.LogAtGitHub(job)
}
