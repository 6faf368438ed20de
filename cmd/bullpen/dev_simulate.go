//go:build !production

package main

import (
	"bufio"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/bullpen-ci/bullpen/api/adminapi"
	"github.com/bullpen-ci/bullpen/internal/cli"
	"github.com/bullpen-ci/bullpen/internal/cli/commandline"
	"github.com/bullpen-ci/bullpen/internal/dev/simulate"
)

// simulateFlags are what `bullpen dev simulate` is given.
type simulateFlags struct {
	trace, policies, series string
	boot, mint, connect     string
	options                 simulate.Options
}

func newDevSimulateCommand() *cobra.Command {
	f, format := simulateFlags{}, cli.FormatTable
	cmd := &cobra.Command{
		Use:   "simulate --trace FILE --policies FILE",
		Short: "Simulate a trace of jobs with a virtual clock, and compare policies",
		Long: `Simulate a trace of jobs on one or more sets of pools with a virtual clock, and report queue times and cost. It uses a fleet's own
planners and rules: scaling, the life cycle of runners, accounts' limits, FIFO and FairShare, the registration limit at GitHub.
A day of jobs takes seconds, and the same input gives the same output.

A trace is CSV: queued_at (RFC 3339 or seconds), account, labels (separated by spaces) or pool, duration_seconds, and optionally
repository. "traces" generates one of a given distribution, "record" one of the jobs of a server.

Policies are YAML: a list of names and pools, each with a RunnerPool's name and spec, and accounts' limits.
docs/internals/simulate.md explains both, the results, and what is not simulated.

Nodes have unlimited capacity, and every job completes. Exit codes: 0 done, 1 the input cannot be read.`,
		Example: `  bullpen dev simulate traces office-day > day.csv
  bullpen dev simulate --trace day.csv --policies policies.yaml
  bullpen dev simulate --trace day.csv --policies policies.yaml --boot lognormal:40s,0.4 --price 0.24 --series lengths.csv
  bullpen dev simulate --trace day.csv --policies policies.yaml -o json | jq '.[] | {policy, p99: .waitSeconds.p99, cost}'`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			results, err := f.run(cmd.InOrStdin())
			if err != nil {
				return err
			}
			return cli.Print(cmd.OutOrStdout(), format, results, simulateTable(results))
		},
	}
	cmd.AddCommand(newDevSimulateTracesCommand(), newDevSimulateRecordCommand())
	cli.OutputFlag(cmd.Flags(), &format)
	f.flags(cmd.Flags())
	return cmd
}

func (f *simulateFlags) flags(flags *pflag.FlagSet) {
	o := &f.options
	flags.StringVar(&f.trace, "trace", "", "file with the trace; - for standard input")
	flags.StringVar(&f.policies, "policies", "", "file with the policies")
	flags.StringVar(&f.series, "series", "", "write queue and fleet sizes over time to this file, as CSV")
	flags.DurationVar(&o.SampleEvery, "series-every", time.Minute, "interval of --series")
	flags.StringVar(&f.boot, "boot", "20s", "duration from a pod's creation until it is idle: a duration, or exponential:20s, uniform:10s,30s, lognormal:20s,0.5 (median, sigma)")
	flags.StringVar(&f.mint, "mint", "300ms", "duration from a claim to the registration at GitHub; as --boot")
	flags.StringVar(&f.connect, "connect", "2s", "duration from the registration to the job's first step; as --boot")
	flags.IntVar(&o.MintsPerMinute, "mints-per-minute", 180, "registrations per minute that GitHub allows the App; 0: unlimited")
	flags.Uint64Var(&o.Seed, "seed", 1, "random seed")
	flags.DurationVar(&o.SLO, "slo", time.Minute, "queue time objective")
	flags.Float64Var(&o.Price, "price", 0, "price of one runner per hour")
	flags.DurationVar(&o.WarmUp, "warm-up", 15*time.Minute, "how long the pools run before the first job; not included in the cost")
	flags.DurationVar(&o.Drain, "drain", 24*time.Hour, "maximum time to simulate after the last job was queued")
	flags.DurationVar(&o.For, "for", 0, "time to simulate from the first job on; 0: until the last job has completed")
}

// check reads what flags cannot check by themselves.
func (f *simulateFlags) check() error {
	if f.trace == "" || f.policies == "" {
		return errors.New("missing flag: give --trace and --policies. `bullpen dev simulate traces office-day` generates a trace")
	}
	for flag, d := range map[string]struct {
		text string
		into *simulate.Distribution
	}{"boot": {f.boot, &f.options.Boot}, "mint": {f.mint, &f.options.Mint}, "connect": {f.connect, &f.options.Connect}} {
		parsed, err := simulate.ParseDistribution(d.text)
		if err != nil {
			return fmt.Errorf("--%s: %w", flag, err)
		}
		*d.into = parsed
	}
	o := f.options
	if o.SampleEvery <= 0 || o.MintsPerMinute < 0 || o.Price < 0 || min(o.SLO, o.WarmUp, o.Drain, o.For) < 0 {
		return errors.New("--series-every must be more than 0, and all other numbers 0 or more")
	}
	return nil
}

func (f *simulateFlags) run(stdin io.Reader) (_ []simulate.Result, err error) {
	if err := f.check(); err != nil {
		return nil, err
	}
	text, err := os.ReadFile(f.policies)
	if err != nil {
		return nil, fmt.Errorf("reading policies: %w", err)
	}
	policies, err := simulate.ParsePolicies(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", f.policies, err)
	}
	trace, err := f.readTrace(stdin)
	if err != nil {
		return nil, err
	}
	if f.series != "" {
		file, err := os.Create(f.series)
		if err != nil {
			return nil, fmt.Errorf("writing the series: %w", err)
		}
		defer file.Close()
		series := csv.NewWriter(file)
		if err := series.Write([]string{"policy", "pool", "seconds", "queued", "busy", "idle", "starting", "desired"}); err != nil {
			return nil, fmt.Errorf("writing the series: %w", err)
		}
		f.options.Sample = func(s simulate.Sample) { writeSample(series, s) }
		defer func() {
			if series.Flush(); err == nil && series.Error() != nil {
				err = fmt.Errorf("writing the series: %w", series.Error())
			}
		}()
	}
	results := make([]simulate.Result, 0, len(policies))
	for _, policy := range policies {
		result, err := simulate.Run(trace, policy, f.options)
		if err != nil {
			return nil, fmt.Errorf("policy %s: %w", policy.Name, err)
		}
		results = append(results, result)
	}
	return results, nil
}

func (f *simulateFlags) readTrace(stdin io.Reader) (simulate.Trace, error) {
	from := stdin
	if f.trace != "-" {
		file, err := os.Open(f.trace)
		if err != nil {
			return nil, fmt.Errorf("reading the trace: %w", err)
		}
		defer file.Close()
		from = file
	}
	trace, err := simulate.ParseTrace(bufio.NewReader(from))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", f.trace, err)
	}
	return trace, nil
}

// writeSample writes one line; an error stays with the writer until its end.
func writeSample(w *csv.Writer, s simulate.Sample) {
	row := []string{s.Policy, s.Pool, strconv.FormatFloat(s.After.Seconds(), 'f', -1, 64)}
	for _, n := range []int{s.Queued, s.Busy, s.Idle, s.Starting, s.Wanted} {
		row = append(row, strconv.Itoa(n))
	}
	_ = w.Write(row) // kept by the writer, and asked for at the end
}

func simulateTable(results []simulate.Result) cli.Table {
	table := cli.Table{
		Columns: []string{"POLICY", "JOBS", "WAITING", "P50", "P90", "P99", "OVER SLO", "UTILIZATION", "RUNNER MIN", "COST", "PODS"},
		Wide:    []string{"ENDED", "RUNNING", "MEAN", "MAX", "LASTED"},
		Empty:   "No policies.",
	}
	for _, r := range results {
		table.Rows = append(table.Rows, []string{
			r.Policy, strconv.Itoa(r.Jobs), strconv.Itoa(r.Waiting), simulate.Seconds(r.Wait.P50), simulate.Seconds(r.Wait.P90),
			simulate.Seconds(r.Wait.P99), strconv.Itoa(r.Late), fmt.Sprintf("%.1f%%", 100*r.Utilization),
			fmt.Sprintf("%.0f", r.RunnerMinutes), fmt.Sprintf("%.2f", r.Cost), strconv.Itoa(r.PodsStarted),
			strconv.Itoa(r.Ended), strconv.Itoa(r.Running), simulate.Seconds(r.Wait.Mean), simulate.Seconds(r.Wait.Max),
			simulate.Seconds(r.Lasted),
		})
	}
	return table
}

func newDevSimulateTracesCommand() *cobra.Command {
	var seed uint64
	var names, list []string
	for _, shape := range simulate.Shapes() {
		names = append(names, shape.Name)
		list = append(list, fmt.Sprintf("  %-11s %s", shape.Name, shape.Summary))
	}
	cmd := &cobra.Command{
		Use:   "traces NAME",
		Short: "Generate a trace of a given distribution",
		Long: `Write a trace as CSV, the same for the same seed:

` + strings.Join(list, "\n") + `

docs/internals/simulate.md has their distributions.`,
		Example: `  bullpen dev simulate traces office-day > day.csv
  bullpen dev simulate traces monorepo --seed 7 | bullpen dev simulate --trace - --policies policies.yaml`,
		ValidArgs: names,
		Args:      cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			trace, err := simulate.MakeTrace(args[0], seed)
			if err != nil {
				return err
			}
			return simulate.WriteTrace(cmd.OutOrStdout(), trace)
		},
	}
	cmd.Flags().Uint64Var(&seed, "seed", 1, "random seed")
	return cmd
}

func newDevSimulateRecordCommand() *cobra.Command {
	conn, filter := connection(), cli.JobFilter{Ended: true}
	cmd := &cobra.Command{
		Use:   "record",
		Short: "Generate a trace of a server's completed jobs",
		Long: `Read completed jobs from the server and write them as a trace: the time when each was queued, its account, labels and duration. Jobs
that never ran are left out. The server's --keep-jobs sets how long it keeps them. It needs the right to list jobs, as
` + "`bullpen jobs`" + ` does.`,
		Example: `  bullpen dev simulate record --limit 50000 > last-week.csv
  bullpen dev simulate record --account acme > acme.csv`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			client, err := conn.Client()
			if err != nil {
				return err
			}
			jobs, err := client.Jobs(cmd.Context(), filter)
			if err != nil {
				return err
			}
			trace := recorded(jobs)
			fmt.Fprintf(cmd.ErrOrStderr(), "%d of %d jobs ran and completed\n", len(trace), len(jobs))
			return simulate.WriteTrace(cmd.OutOrStdout(), trace)
		},
	}
	conn.Flags(cmd.Flags())
	cmd.Flags().StringVar(&filter.Account, "account", "", "only this account, by login or @ID")
	cmd.Flags().StringVar(&filter.Repository, "repository", "", "only this repository, as owner/name")
	commandline.AtLeast(cmd.Flags(), &filter.Most, "limit", 1, 10_000, "maximum number of jobs to read, newest first")
	return cmd
}

// recorded is the trace of the jobs that have run: one that waited for an approval was queued when that was given.
func recorded(jobs []adminapi.Job) simulate.Trace {
	var trace simulate.Trace
	for _, j := range jobs {
		if j.StartedAt == nil || j.CompletedAt == nil || j.CompletedAt.Before(*j.StartedAt) || len(j.Labels) == 0 {
			continue
		}
		queued := j.QueuedAt
		if j.ApprovedAt != nil && j.ApprovedAt.After(queued) {
			queued = *j.ApprovedAt
		}
		trace = append(trace, simulate.Job{
			QueuedAt: queued, Account: j.Account, Labels: j.Labels, Repository: j.Repository, Duration: j.CompletedAt.Sub(*j.StartedAt),
		})
	}
	slices.SortStableFunc(trace, func(a, b simulate.Job) int { return a.QueuedAt.Compare(b.QueuedAt) })
	return trace
}
