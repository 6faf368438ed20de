//go:build !production

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/term"

	"github.com/bullpen-ci/bullpen/api/adminapi"
	"github.com/bullpen-ci/bullpen/internal/cli"
	"github.com/bullpen-ci/bullpen/internal/dev/load"
)

// Exit codes of `bullpen dev load` beside 0 and 1.
const (
	exitLoadUnended     = 2
	exitLoadInterrupted = 130
)

// loadError is a run whose result was printed and is not what was asked for.
type loadError struct {
	code int
	text string
}

// Error says what is wrong with it.
func (e loadError) Error() string { return e.text }

// ExitCode is the exit code for scripts.
func (e loadError) ExitCode() int { return e.code }

// loadFlags are the command line of bullpen dev load.
type loadFlags struct {
	arrivals          string
	rate              float64
	burst             int
	within            time.Duration
	mix, plot         string
	kind              load.Kind
	github, tokenFile string
	seed              uint64
	jobs, maxWaiting  int
	lasting, patience time.Duration
}

func newDevLoadCommand() *cobra.Command {
	conn, f, format := connection(), loadFlags{}, cli.FormatTable
	cmd := &cobra.Command{
		Use:   "load",
		Short: "Submit jobs at a rate or in a burst, and measure their queue time by phase",
		Long: `Submit workflows to a stand-in for GitHub, at a rate or in a burst, wait until their jobs have completed, and measure the phases of
their queue time: hook (webhook delivery), claim (choice of a pod), mint (registration of the runner at GitHub), handover (delivery
of its configuration), start (assignment of the job by GitHub), and wait, the total.

It uses the ` + "`bullpen up`" + ` of this machine, or the stand-in of --github and the server of --server. The real GitHub is not supported:
it would need a repository of yours. Jobs only sleep; each needs a runner, as any job does. Missing accounts and repositories are
added to the stand-in.

The mix is one kind of run, or a file with --mix: docs/internals/load.md explains it, and the results.

Exit codes: 0 all jobs were submitted and succeeded; 1 it failed; 2 jobs were not submitted in time, did not complete (they are
named, with the reason), or did not succeed; 130 interrupted, with the results so far.`,
		Example: `  bullpen dev load --rate 5 --for 1m
  bullpen dev load --burst 500 --within 10s --matrix 4 --plot latency.svg
  bullpen dev load --rate 50 --arrivals even --mix mix.yaml --jobs 20000
  bullpen dev load --github http://127.0.0.1:8090 --server http://127.0.0.1:8082 --rate 1 --jobs 100
  bullpen dev load --rate 5 --jobs 100 -o json | jq '.stages[] | {name, p50, p99}'`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return f.run(cmd.Context(), conn, format, cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	conn.Flags(cmd.Flags())
	cli.OutputFlag(cmd.Flags(), &format)
	f.flags(cmd.Flags())
	cmd.MarkFlagsMutuallyExclusive("rate", "burst")
	cmd.MarkFlagsOneRequired("rate", "burst")
	for _, flag := range []string{"matrix", "label", "repository", "seconds"} {
		cmd.MarkFlagsMutuallyExclusive("mix", flag)
	}
	return cmd
}

func (f *loadFlags) flags(flags *pflag.FlagSet) {
	usual := load.DefaultMix().Runs[0]
	flags.Float64Var(&f.rate, "rate", 0, "average number of jobs per second")
	flags.StringVar(&f.arrivals, "arrivals", string(load.Poisson), "distribution of --rate: poisson (independent arrivals) or even (equal intervals)")
	flags.IntVar(&f.burst, "burst", 0, "number of runs to submit within --within")
	flags.DurationVar(&f.within, "within", 10*time.Second, "duration of --burst")
	flags.StringVar(&f.mix, "mix", "", "YAML file of the kinds of runs: accounts, labels, sizes")
	flags.IntVar(&f.kind.Jobs, "matrix", usual.Jobs, "jobs of each run, up to GitHub's limit of 256")
	flags.StringSliceVar(&f.kind.Labels, "label", usual.Labels, "label of the jobs (can be repeated)")
	flags.StringVar(&f.kind.Repository, "repository", usual.Repository, "repository of the runs, as owner/name")
	flags.IntVar(&f.kind.Seconds, "seconds", 0, "duration of each job")
	flags.IntVar(&f.jobs, "jobs", 10_000, "maximum number of jobs to submit")
	flags.DurationVar(&f.lasting, "for", 10*time.Minute, "maximum duration of submitting")
	flags.IntVar(&f.maxWaiting, "max-waiting", 5_000, "maximum number of incomplete jobs; submitting pauses above it")
	flags.DurationVar(&f.patience, "patience", 10*time.Minute, "timeout for the jobs to complete after the last submission")
	flags.Uint64Var(&f.seed, "seed", 1, "random seed: the same seed submits the same runs at the same times")
	flags.StringVar(&f.github, "github", "", "URL of the stand-in (default: that of the bullpen up of this machine)")
	flags.StringVar(&f.tokenFile, "github-admin-token-file", "", "file with the token of the stand-in's admin API")
	flags.StringVar(&f.plot, "plot", "", "plot the queue times to this file, as SVG")
}

// plan reads what flags cannot check by themselves.
func (f *loadFlags) plan() (load.Plan, load.Mix, error) {
	plan := load.Plan{Shape: load.Shape(f.arrivals), Rate: f.rate, Jobs: f.jobs, For: f.lasting, Seed: f.seed}
	if plan.Shape == load.Burst {
		return plan, load.Mix{}, errors.New("--arrivals must be poisson or even. For a burst use --burst")
	}
	if f.burst != 0 {
		plan.Shape, plan.Runs, plan.Within = load.Burst, f.burst, f.within
	}
	if f.maxWaiting < 1 || f.patience <= 0 {
		return plan, load.Mix{}, errors.New("--max-waiting must be 1 or more, and --patience more than 0")
	}
	if f.mix == "" {
		mix, err := load.OneKind(f.kind)
		return plan, mix, err
	}
	text, err := os.ReadFile(f.mix)
	if err != nil {
		return plan, load.Mix{}, fmt.Errorf("reading --mix: %w", err)
	}
	mix, err := load.ParseMix(text)
	if err != nil {
		err = fmt.Errorf("%s: %w", f.mix, err)
	}
	return plan, mix, err
}

func (f *loadFlags) run(ctx context.Context, conn *cli.Connection, format cli.Format, out, progress io.Writer) (err error) {
	plan, mix, err := f.plan()
	if err != nil {
		return err
	}
	if _, err := load.Schedule(plan, mix); err != nil { // before anything is made
		return err
	}
	client, err := conn.Client()
	if err != nil {
		return err
	}
	forge, err := f.standIn(conn)
	if err != nil {
		return err
	}
	plot, err := openPlot(f.plot)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, plot.close()) }()
	if err := forge.prepare(ctx, mix); err != nil {
		return err
	}
	shown := newProgressLine(progress)
	result, failed := load.Run(ctx, load.Options{
		Plan: plan, Mix: mix, Forge: forge, Ledger: loadLedger{client}, Clock: loadClock{}, MaxWaiting: f.maxWaiting, Patience: f.patience,
		Progress: shown.show,
	})
	shown.end()
	if failed != nil && result.SubmittedJobs == 0 {
		return failed
	}
	if err := printLoad(out, format, result); err != nil {
		return err
	}
	if err := plot.draw(result); err != nil {
		return err
	}
	if failed != nil {
		return failed
	}
	return verdictOfLoad(result)
}

func printLoad(out io.Writer, format cli.Format, result load.Result) error {
	if format == cli.FormatJSON || format == cli.FormatYAML {
		return cli.Print(out, format, result, cli.Table{})
	}
	style := load.Style{Width: 80}
	if width, is := terminalWidth(out); is {
		style = load.Style{Width: min(width, 120), Blocks: true}
	}
	return load.Text(out, result, style)
}

// verdictOfLoad is nil when all is as it was asked for.
func verdictOfLoad(r load.Result) error {
	switch {
	case r.Interrupted:
		return loadError{exitLoadInterrupted, fmt.Sprintf("interrupted; %d submitted jobs are incomplete, and continue", r.Unended)}
	case r.Unended > 0:
		return loadError{exitLoadUnended, fmt.Sprintf("%d of %d jobs did not complete", r.Unended, r.SubmittedJobs)}
	case r.SubmittedJobs < r.PlannedJobs:
		return loadError{exitLoadUnended, fmt.Sprintf("%d of %d jobs were not submitted in time. Raise --for or --max-waiting, or lower the rate", r.PlannedJobs-r.SubmittedJobs, r.PlannedJobs)}
	case !r.Good():
		return loadError{exitLoadUnended, fmt.Sprintf("%d of %d jobs did not succeed", r.SubmittedJobs-r.Conclusions["success"], r.SubmittedJobs)}
	}
	return nil
}

// loadClock is the machine's.
type loadClock struct{}

func (loadClock) Now() time.Time                         { return time.Now() }
func (loadClock) After(d time.Duration) <-chan time.Time { return time.After(d) }

// mostLive bounds how many jobs are read in one look; those beyond are asked for alone.
const mostLive = 200_000

// loadLedger reads by the administrators' API.
type loadLedger struct{ *cli.Client }

func (l loadLedger) Live(ctx context.Context) ([]adminapi.Job, error) {
	return l.Jobs(ctx, cli.JobFilter{Most: mostLive})
}

func (l loadLedger) Job(ctx context.Context, id int64) (adminapi.Job, bool, error) {
	job, err := l.Client.Job(ctx, id)
	var refused *cli.APIError
	if errors.As(err, &refused) && refused.Status == http.StatusNotFound {
		return job, false, nil
	}
	return job, err == nil, err
}

// terminalWidth is that of a terminal; false: it is none.
func terminalWidth(w io.Writer) (int, bool) {
	file, is := w.(*os.File)
	if !is || !term.IsTerminal(int(file.Fd())) || os.Getenv("TERM") == "dumb" {
		return 0, false
	}
	width, _, err := term.GetSize(int(file.Fd()))
	if err != nil || width <= 0 {
		width = 80
	}
	return width, true
}
