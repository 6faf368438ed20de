package load

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/bullpen-ci/bullpen/api/adminapi"
)

// Forge is where workflows are submitted to.
type Forge interface {
	// Submit starts one run and returns the ids of its jobs.
	Submit(ctx context.Context, repository, workflow string) ([]int64, error)
}

// Ledger is where it is read what became of jobs. Run calls it from one goroutine.
type Ledger interface {
	// Live returns the jobs that have not ended, those of others included.
	Live(ctx context.Context) ([]adminapi.Job, error)
	// Job returns one job with its timeline; false: it is not known yet.
	Job(ctx context.Context, id int64) (adminapi.Job, bool, error)
	// Why says what keeps a job.
	Why(ctx context.Context, id int64) (adminapi.Why, error)
}

// Clock tells the time and when some of it has passed.
type Clock interface {
	Now() time.Time
	After(d time.Duration) <-chan time.Time
}

// Options of Run. All are required but Progress.
type Options struct {
	Plan   Plan
	Mix    Mix
	Forge  Forge
	Ledger Ledger
	Clock  Clock
	// MaxWaiting is how many jobs may have not ended: beyond that, submitting is held back.
	MaxWaiting int
	// Patience is how long after the last submission jobs are waited for.
	Patience time.Duration
	// Progress, if set, is called after each reading of the jobs, from Run's goroutine.
	Progress func(Progress)
}

const (
	// pollEvery is the time between two readings of the jobs; one that took long is followed by idlePolls times as much
	// rest.
	pollEvery = time.Second
	idlePolls = 4
	// mostAsked bounds how many jobs one reading requests individually.
	mostAsked = 250
	// mostStuck bounds how many jobs are explained.
	mostStuck = 10
	// explaining bounds the time for that, and for the last reading: the server may be what is wrong.
	explaining = 30 * time.Second
	// submitting bounds one submission.
	submitting = 30 * time.Second
	// grace is how much later than at its end a plan's last runs may be submitted.
	grace = time.Second
	// ahead is how many submissions may be under way to the goroutine that counts them, while that one reads the
	// jobs.
	ahead = 1024
)

// batch is what was submitted of one arrival.
type batch struct {
	repository string
	jobs       []int64
	late       time.Duration
	at         time.Duration
	held       bool
	err        error
}

// run is one run of the generator. Its fields belong to the goroutine of Run; what it gives to the one that submits goes
// through channels.
type run struct {
	Options
	schedule []Arrival
	began    time.Time
	tracker  *tracker
	result   Result
}

// Run submits by the plan, waits until all jobs have ended, and returns the result. When ctx ends nothing more is
// submitted, and Result says what is known by then; that is no error. An error comes with what is known, too: the first
// submission that failed, or the jobs that could not be read. Nothing is submitted when they cannot be read to begin with.
func Run(ctx context.Context, opts Options) (Result, error) {
	schedule, err := Schedule(opts.Plan, opts.Mix)
	if err != nil {
		return Result{}, err
	}
	r := &run{Options: opts, schedule: schedule, tracker: newTracker(), result: Result{Shape: opts.Plan.Shape, Seed: opts.Plan.Seed}}
	for _, a := range schedule {
		r.result.PlannedJobs += a.Jobs
		if a.Jobs > opts.MaxWaiting {
			return Result{}, fmt.Errorf("one run has %d jobs, and no more than %d may wait: allow as many as the largest run has", a.Jobs, opts.MaxWaiting)
		}
	}
	if _, err := opts.Ledger.Live(ctx); err != nil {
		return Result{}, fmt.Errorf("reading jobs before any is submitted: %w", err)
	}
	r.began = opts.Clock.Now()
	err = r.follow(ctx)
	r.conclude(ctx)
	return r.result, err
}

// submitter submits by the schedule until it is complete, fails, or ctx ends. freed receives the number of ended jobs.
func (r *run) submitter(ctx context.Context, batches chan<- batch, freed <-chan int) {
	defer close(batches)
	unended, over := 0, r.Clock.After(r.Plan.For+grace)
	for _, arrival := range r.schedule {
		due := r.Clock.After(r.began.Add(arrival.At).Sub(r.Clock.Now()))
		held := false
		for waiting := true; waiting || unended+arrival.Jobs > r.MaxWaiting; {
			held = held || !waiting
			select {
			case <-due:
				waiting, due = false, nil
			case n := <-freed:
				unended -= n
			case <-over: // jobs that never end must not hold it forever
				return
			case <-ctx.Done():
				return
			}
		}
		if ctx.Err() != nil || r.Clock.Now().Sub(r.began) > r.Plan.For+grace { // select may have taken an arrival that was due as well
			return
		}
		jobs, err := r.submit(ctx, arrival)
		at := r.Clock.Now().Sub(r.began)
		unended += len(jobs)
		batches <- batch{repository: r.Mix.Runs[arrival.Kind].Repository, jobs: jobs, late: at - arrival.At, at: at, held: held, err: err} // always taken
		if err != nil {
			return
		}
	}
}

// submit continues for a while when ctx ends: a run that was begun counts.
func (r *run) submit(ctx context.Context, arrival Arrival) ([]int64, error) {
	bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), submitting)
	defer cancel()
	kind := r.Mix.Runs[arrival.Kind]
	return r.Forge.Submit(bounded, kind.Repository, kind.Workflow(arrival.Jobs))
}

// follow polls the jobs until all have completed, patience ends, or ctx does.
func (r *run) follow(ctx context.Context) error {
	until, stop := context.WithCancel(ctx)
	batches, freed := make(chan batch, ahead), make(chan int, 1)
	go r.submitter(until, batches, freed)
	var submitErr, readErr error
	var patience <-chan time.Time
	defer func() {
		stop()
		for b := range channelOf(batches) { // what was under way counts
			_ = r.took(b) // after the end of ctx, which is what is reported
		}
	}()
	look, reported := r.Clock.After(0), 0
	for {
		var free chan int
		if ended := len(r.tracker.ended); batches != nil && ended > reported {
			free = freed
		}
		select {
		case <-ctx.Done():
			return nil
		case <-patience:
			if len(r.tracker.pending) > 0 {
				readErr = r.lookAgain(ctx)
			}
			return errors.Join(submitErr, readErr)
		case free <- len(r.tracker.ended) - reported:
			reported = len(r.tracker.ended)
		case b, open := <-batches:
			if !open {
				batches, patience = nil, r.Clock.After(r.Patience)
				break
			}
			if err := r.took(b); err != nil {
				submitErr = err
			}
		case <-look:
			began := r.Clock.Now()
			readErr = r.look(ctx, mostAsked)
			look = r.Clock.After(max(pollEvery, idlePolls*r.Clock.Now().Sub(began)))
		}
		if batches == nil && len(r.tracker.pending) == 0 {
			return submitErr
		}
	}
}

// channelOf is the channel, or one that is closed already: ranging over nil would never end.
func channelOf(batches chan batch) <-chan batch {
	if batches != nil {
		return batches
	}
	closed := make(chan batch)
	close(closed)
	return closed
}

// took keeps what was submitted.
func (r *run) took(b batch) error {
	if b.err != nil {
		return fmt.Errorf("submitting to %s: %w", b.repository, b.err)
	}
	r.tracker.submitted(b.repository, b.jobs)
	r.result.SubmitSeconds = b.at.Seconds()
	r.result.LateSeconds = max(r.result.LateSeconds, b.late.Seconds())
	if b.held {
		r.result.HeldBack++
	}
	return nil
}

// look reads once what became of the jobs. The server may be unavailable for a while; the error is of this
// reading.
func (r *run) look(ctx context.Context, most int) error {
	err := r.read(ctx, most)
	if err != nil {
		err = fmt.Errorf("reading jobs: %w", err)
	}
	if r.Progress != nil && ctx.Err() == nil {
		p := r.tracker.progress(r.result.PlannedJobs, r.Clock.Now().Sub(r.began))
		p.Trouble = err
		r.Progress(p)
	}
	return err
}

// lookAgain is the last reading, of all jobs: none that has completed since the one before may be reported as
// incomplete.
func (r *run) lookAgain(ctx context.Context) error {
	bounded, cancel := context.WithTimeout(ctx, explaining)
	defer cancel()
	return r.look(bounded, len(r.tracker.pending))
}

func (r *run) read(ctx context.Context, most int) error {
	if len(r.tracker.pending) == 0 {
		return nil
	}
	live, err := r.Ledger.Live(ctx)
	if err != nil {
		return err
	}
	for _, id := range r.tracker.live(live, most) {
		job, known, err := r.Ledger.Job(ctx, id)
		if err != nil {
			return err
		}
		if known {
			r.tracker.read(job)
		}
	}
	return nil
}

// conclude counts, and asks why jobs did not end, unless it was the end of ctx that kept from waiting for them.
func (r *run) conclude(ctx context.Context) {
	t, result := r.tracker, &r.result
	result.LastedSeconds = r.Clock.Now().Sub(r.began).Seconds()
	result.SubmittedRuns, result.SubmittedJobs, result.Ended = t.runs, t.jobs, len(t.ended)
	result.Interrupted = ctx.Err() != nil
	result.Conclusions = map[string]int{}
	for _, job := range t.ended {
		conclusion := job.Conclusion
		if conclusion == "" {
			conclusion = job.State
		}
		result.Conclusions[conclusion]++
	}
	result.Stages, result.Series, result.Stuck = Stages(t.ended), Series(t.ended), []Stuck{}
	left := t.left()
	result.Unended = len(left)
	if result.Interrupted {
		return
	}
	asking, cancel := context.WithTimeout(ctx, explaining)
	defer cancel()
	for _, id := range left[:min(len(left), mostStuck)] {
		result.Stuck = append(result.Stuck, r.explain(asking, id))
	}
}

func (r *run) explain(ctx context.Context, id int64) Stuck {
	stuck := Stuck{ID: id, Repository: r.tracker.pending[id].repository}
	why, err := r.Ledger.Why(ctx, id)
	if err != nil {
		stuck.Sentence = fmt.Sprintf("Why could not be read: %v.", err)
		return stuck
	}
	if why.Job != nil {
		stuck.Name, stuck.State = why.Job.Name, why.Job.State
	}
	if len(why.Reasons) > 0 {
		stuck.Code, stuck.Sentence, stuck.Remedy = why.Reasons[0].Code, why.Reasons[0].Sentence, why.Reasons[0].Remedy
	}
	return stuck
}
