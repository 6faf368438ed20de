package periodic

import (
	"context"
	"crypto/rand"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivertype"
)

// Schema is where River's tables are. Package postgres makes it.
const Schema = "river"

const (
	passQueue  = "passes"
	checkQueue = "checks"
	checkKind  = "check_pod"
	kindPrefix = "pass_"

	checkTimeout = time.Minute
	checkWorkers = 8
	passWorkers  = 4 // at most; fewer when the pool is small
	// River and the looking need that many connections beside one for each running pass.
	otherConns = 3
)

// passArgs asks for the run of a pass that follows a given one. It has a kind for each pass, so that a replica takes only
// what it knows.
type passArgs struct {
	kind  string
	After int64 `json:"after"`
	// Slot of the database's time: a row left behind by a worker that died before its run began blocks the pass for no
	// longer than pace.slot. It does no harm that two rows ask for one run: it begins once.
	Slot int64 `json:"slot"`
}

func (a passArgs) Kind() string { return a.kind }

// InsertOpts: a run is queued once, however many replicas find it due.
func (a passArgs) InsertOpts() river.InsertOpts {
	return river.InsertOpts{Queue: passQueue, MaxAttempts: 1, UniqueOpts: river.UniqueOpts{ByArgs: true, ByState: unfinished}}
}

var unfinished = []rivertype.JobState{
	rivertype.JobStateAvailable, rivertype.JobStatePending, rivertype.JobStateRunning, rivertype.JobStateScheduled,
}

type passWorker struct {
	river.WorkerDefaults[passArgs]
	runner *Runner
	pass   Pass
}

// Work always succeeds, in River's eyes: run has dealt with what went wrong.
func (w *passWorker) Work(ctx context.Context, job *river.Job[passArgs]) error {
	w.runner.run(ctx, w.pass, job.Args.After)
	return nil
}

// Timeout is River's, behind the pass's own.
func (w *passWorker) Timeout(*river.Job[passArgs]) time.Duration {
	return w.pass.Timeout + 30*time.Second
}

// newClient makes a client that works the queues, or, without workers, one that only fills them.
func (r *Runner) newClient(workers *river.Workers) (*river.Client[pgx.Tx], error) {
	cfg := &river.Config{
		ID: "bullpen-" + rand.Text(), Schema: Schema, Logger: r.log, Workers: workers,
		// A replica of another version, or with another list, leaves alone what it does not know.
		FetchOnlyKnownKinds: true,
		// Kept for the analysis of failures.
		CompletedJobRetentionPeriod: 10 * time.Minute,
		CancelledJobRetentionPeriod: time.Hour,
		DiscardedJobRetentionPeriod: time.Hour,
		// Jobs whose worker died: checks are retried, passes by their own means and sooner.
		RescueStuckJobsAfter: checkTimeout + 30*time.Second,
		JobTimeout:           checkTimeout,
	}
	if workers != nil {
		running := min(passWorkers, int(r.opts.Pool.Config().MaxConns)-otherConns)
		cfg.Queues = map[string]river.QueueConfig{passQueue: {MaxWorkers: running}, checkQueue: {MaxWorkers: checkWorkers}}
	}
	client, err := river.NewClient(riverpgxv5.New(r.opts.Pool), cfg)
	if err != nil {
		return nil, fmt.Errorf("setting up the job queue: %w", err)
	}
	return client, nil
}

func (r *Runner) workers() *river.Workers {
	workers := river.NewWorkers()
	for name, pass := range r.passes {
		river.AddWorkerArgs(workers, passArgs{kind: kindPrefix + name}, &passWorker{runner: r, pass: pass})
	}
	if r.opts.Check != nil {
		river.AddWorker(workers, &checkWorker{runner: r})
	}
	return workers
}
