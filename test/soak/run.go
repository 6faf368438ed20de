package soak

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/bullpen-ci/bullpen/test/soak/check"
	"github.com/bullpen-ci/bullpen/test/soak/schedule"
)

// Options of Run. The zero value of an optional field takes its default.
type Options struct {
	// Dir is the state directory. Required.
	Dir string
	// Binary is the product. Required.
	Binary string
	// Agent is bullpen-agent. Default: the file of that name beside Binary.
	Agent string
	// Self is the executable that calls Child. Default: this one.
	Self string
	// Rounds are carried out one after another in one system. Required.
	Rounds []schedule.Schedule
	// Resume continues with the first round that has no report.
	Resume bool
	// Runners is the size of the large pool, RealRunners of the one whose runners are processes. Defaults: 12 and 0.
	Runners, RealRunners int
	// Backlog is how many jobs may be open before no more are submitted. Default: five for each runner.
	Backlog int
	// Patience bounds how long objects may take to disappear at the end of a round: the sum of the bounds that the guide derives. Default:
	// three minutes.
	Patience time.Duration
	// LostAfter is how long GitHub waits for a sign of a runner before it fails its job. Default: 45 s.
	LostAfter time.Duration
	// RecoveryPatience is how long a thing must look wrong before the servers' recovery acts, RecoveryEvery how often it looks.
	// Defaults: 5 s and 1 s, so that its bounds are reached within a soak.
	RecoveryPatience, RecoveryEvery time.Duration
	// CatchUpEvery is how often the servers look for what GitHub did not tell. Default: 2 s.
	CatchUpEvery time.Duration
	// Disk gives the database a disk of its own, which can be filled. It takes Linux and root; and what is on it does not
	// survive the machine, so that a soak can be resumed only if it was stopped.
	Disk bool
	// TwoControllers has two, of which a lease lets one work at a time.
	TwoControllers bool
	// Requests has the API server write down every request of the product's parts, and not only changes to runners.
	Requests bool
	// ServerArgs and ControllerArgs are added to the command lines.
	ServerArgs, ControllerArgs []string
	// Then is called when a round's jobs and faults are over, before the remaining objects are awaited. An error ends the soak.
	Then func(context.Context, *System) error
	// Out gets the progress. Default: discarded.
	Out io.Writer
	// Log gets the system's own starts and stops. Default: discarded.
	Log *slog.Logger
}

func (o Options) withDefaults() (Options, error) {
	if o.Dir == "" || o.Binary == "" || len(o.Rounds) == 0 {
		return o, errors.New("a soak needs a state folder, the product's executable and at least one round")
	}
	var err error
	if o.Dir, err = filepath.Abs(o.Dir); err != nil {
		return o, fmt.Errorf("resolving the state folder: %w", err)
	}
	if o.Binary, err = filepath.Abs(o.Binary); err != nil {
		return o, fmt.Errorf("resolving the product's path: %w", err)
	}
	if o.Agent == "" {
		o.Agent = filepath.Join(filepath.Dir(o.Binary), "bullpen-agent")
	}
	if o.Agent, err = filepath.Abs(o.Agent); err != nil {
		return o, fmt.Errorf("resolving the agent's path: %w", err)
	}
	if o.Self == "" {
		if o.Self, err = os.Executable(); err != nil {
			return o, fmt.Errorf("finding this executable: %w", err)
		}
	}
	if o.Runners == 0 {
		o.Runners = 12
	}
	if o.Backlog == 0 {
		o.Backlog = 5 * o.Runners
	}
	if o.Patience == 0 {
		o.Patience = 3 * time.Minute
	}
	if o.RecoveryPatience == 0 {
		o.RecoveryPatience = 5 * time.Second
	}
	if o.RecoveryEvery == 0 {
		o.RecoveryEvery = time.Second
	}
	if o.CatchUpEvery == 0 {
		o.CatchUpEvery = 2 * time.Second
	}
	if o.LostAfter == 0 {
		o.LostAfter = 45 * time.Second
	}
	if o.Out == nil {
		o.Out = io.Discard
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return o, nil
}

var saying sync.Mutex

func (s *System) say(format string, args ...any) {
	saying.Lock()
	defer saying.Unlock()
	fmt.Fprintf(s.opts.Out, time.Now().UTC().Format("15:04:05 ")+format+"\n", args...)
}

// Run carries out the rounds and returns the last report: each round's report covers everything so far. The first round
// that fails is the last one. An error means that the soak itself could not be carried out.
func Run(ctx context.Context, opts Options) (*check.Report, error) {
	opts, err := opts.withDefaults()
	if err != nil {
		return nil, err
	}
	first := 0
	if opts.Resume {
		if first, err = opts.done(); err != nil {
			return nil, err
		}
		if first == len(opts.Rounds) {
			return readReport(opts.Dir, first-1)
		}
	} else if entries, err := os.ReadDir(opts.Dir); err == nil && len(entries) > 0 {
		return nil, fmt.Errorf("%s is not empty: add -resume to go on with the soak in it, or name another folder", opts.Dir)
	}
	for _, round := range opts.Rounds {
		if !opts.Disk && slices.ContainsFunc(round.Steps, func(step schedule.Step) bool { return step.Kind == schedule.PostgresFull }) {
			return nil, errors.New("the schedule fills the database's disk, and it has none of its own: add -disk, or leave " + schedule.PostgresFull + " out")
		}
	}
	began := time.Now().UTC()
	s, err := Start(ctx, opts)
	if err != nil {
		return nil, err
	}
	if err := writeJSON(s.path("soak.json"), opts.Rounds); err != nil {
		return nil, errors.Join(err, s.Stop(), s.unmount())
	}
	// Runners on the machines of an interrupted soak ended with them.
	for _, node := range []string{schedule.Node1, schedule.Node2} {
		s.noteDeed(check.Deed{At: began, Until: time.Now().UTC(), Round: first, Kind: check.DeedStart, Target: node, Machine: node})
	}
	report, err := s.rounds(ctx, first)
	return report, errors.Join(err, s.Stop(), s.unmount())
}

// done is how many rounds have a report.
func (o Options) done() (int, error) {
	for n := range o.Rounds {
		report, err := readReport(o.Dir, n)
		if errors.Is(err, os.ErrNotExist) {
			return n, nil
		}
		if err != nil {
			return 0, err
		}
		if report.Failed() {
			return 0, fmt.Errorf("round %d has failed already: read %s", n, filepath.Join(o.Dir, "rounds", strconv.Itoa(n), "report.txt"))
		}
	}
	return len(o.Rounds), nil
}

func readReport(dir string, round int) (*check.Report, error) {
	data, err := os.ReadFile(filepath.Join(dir, "rounds", strconv.Itoa(round), "report.json"))
	if err != nil {
		return nil, err
	}
	var report check.Report
	if err := json.Unmarshal(data, &report); err != nil {
		return nil, fmt.Errorf("reading the report of round %d: %w", round, err)
	}
	return &report, nil
}

func (s *System) rounds(ctx context.Context, first int) (*check.Report, error) {
	for n := first; ; n++ {
		last := n == len(s.opts.Rounds)-1
		report, err := s.round(ctx, n, last)
		if err != nil || report.Failed() || last {
			return report, err
		}
		again, cancel := context.WithTimeout(ctx, startTimeout)
		err = s.applyPools(again)
		cancel()
		if err != nil {
			return report, err
		}
	}
}

// round lets jobs run under faults, waits until all have ended, and checks the result. After the last round everything is stopped before
// the check, so that processes count, too.
func (s *System) round(ctx context.Context, n int, last bool) (*check.Report, error) {
	plan := s.opts.Rounds[n]
	dir := s.path("rounds", strconv.Itoa(n))
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("making the round's directory: %w", err)
	}
	if err := writeJSON(filepath.Join(dir, "schedule.json"), plan); err != nil {
		return nil, err
	}
	o := plan.Options
	s.changes = newFleetChanges()
	s.say("round %d of seed %d: %d jobs and %d faults over %s", o.Round, o.Seed, o.Jobs, o.Faults, time.Duration(o.Length))
	if err := s.play(ctx, plan, n); err != nil {
		return nil, err
	}
	if err := s.settle(ctx, last); err != nil {
		return nil, err
	}
	evidence, err := check.Load(s.evidenceDir(), s.path("logs", "*.log"), s.path("control-plane", "log", "*.log"), s.path("postgres", "postgres.log*"))
	if err != nil {
		return nil, err
	}
	bounds := check.Bounds{Pod: s.opts.Patience}
	if plan.Keep != nil {
		bounds.Wait = time.Duration(plan.Keep.Bound)
	}
	report, err := check.Examine(evidence, bounds)
	if err != nil {
		return nil, err
	}
	return report, s.publish(dir, report)
}

func (s *System) publish(dir string, report *check.Report) error {
	report.Print(s.opts.Out)
	text, err := os.Create(filepath.Join(dir, "report.txt"))
	if err != nil {
		return fmt.Errorf("writing the report: %w", err)
	}
	defer text.Close()
	report.Print(text)
	return writeJSON(filepath.Join(dir, "report.json"), report)
}

// play submits the jobs and carries out the steps, each at its moment.
func (s *System) play(ctx context.Context, plan schedule.Schedule, n int) error {
	restored := func(step schedule.Step) bool { return step.Kind == schedule.PostgresRestore }
	if slices.ContainsFunc(plan.Steps, restored) {
		if err := s.database.backup(ctx); err != nil {
			return err
		}
	}
	began, o := time.Now(), plan.Options
	at := func(moment schedule.Duration) bool { return pause(ctx, time.Until(began.Add(time.Duration(moment)))) }
	faults := newBreaker(s, n)
	var submitting sync.WaitGroup
	var failed error
	submitting.Go(func() {
		for _, batch := range plan.Load {
			if !at(batch.At) {
				return
			}
			for s.open() >= s.opts.Backlog {
				if !pause(ctx, 200*time.Millisecond) {
					return
				}
			}
			if failed = s.submit(batch); failed != nil {
				return
			}
		}
	})
	if plan.Keep != nil {
		submitting.Go(func() { failed = s.saturate(ctx, *plan.Keep, began.Add(time.Duration(o.Length))) })
	}
	for _, step := range plan.Steps {
		if !at(step.At) {
			break
		}
		faults.do(ctx, step)
	}
	faults.wait()
	submitting.Wait()
	s.github.server.RemoveFault(0)
	if s.opts.Then != nil {
		failed = errors.Join(failed, s.opts.Then(ctx, s))
	}
	return errors.Join(failed, ctx.Err())
}

// settle waits, at most for the patience, until GitHub has no open job; deletes the pools; waits again until nothing is
// left; and collects what the witnesses have recorded. Anything that is still there then is for the checker to find.
func (s *System) settle(ctx context.Context, last bool) error {
	s.say("no more faults and jobs; %d jobs are open", s.open())
	began := time.Now()
	if err := s.within(ctx, func(context.Context) bool { return s.open() == 0 }); err != nil {
		return err
	}
	s.say("%d jobs are open after %s; deleting the pools", s.open(), time.Since(began).Round(time.Second))
	began = time.Now()
	if err := s.deletePools(ctx); err != nil {
		return err
	}
	var final check.Final
	if err := s.within(ctx, func(ctx context.Context) bool {
		now, err := s.remaining(ctx)
		if err != nil {
			return false
		}
		final = now
		return len(now.Pods)+len(now.ServiceAccounts)+len(now.Pools) == 0 && s.quiet(ctx)
	}); err != nil {
		return err
	}
	s.say("%d pods and %d registrations are left after %s", len(final.Pods), len(s.github.server.Runners()), time.Since(began).Round(time.Second))
	if err := errors.Join(s.writeGitHub(), s.writeRows(ctx)); err != nil {
		return err
	}
	if last {
		if err := s.Stop(); err != nil {
			return err
		}
		final.Processes = processesLeft(s.dir)
	}
	return writeJSON(s.evidence(check.FileFinal), final)
}

// within waits for a condition, at most for the patience; that it does not come is no error.
func (s *System) within(ctx context.Context, holds func(context.Context) bool) error {
	limit := time.Now().Add(s.opts.Patience)
	for !holds(ctx) && time.Now().Before(limit) {
		if !pause(ctx, 250*time.Millisecond) {
			return ctx.Err()
		}
	}
	return nil
}

// quiet reports whether nothing is in progress: no registration, no live claim, no job that is open in the ledger alone.
func (s *System) quiet(ctx context.Context) bool {
	if len(s.github.server.Runners()) > 0 {
		return false
	}
	open := -1
	err := s.database.row(ctx, &open, `SELECT
		(SELECT count(*) FROM runner_claims WHERE state IN ('claimed', 'minted', 'executing')) +
		(SELECT count(*) FROM workflow_jobs WHERE state NOT IN ('completed', 'cancelled', 'stale')) +
		(SELECT coalesce(sum(running), 0) FROM job_lanes)`)
	return err == nil && open == 0
}
