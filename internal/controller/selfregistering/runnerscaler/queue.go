package runnerscaler

import (
	"context"
	"errors"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/bullpen-ci/bullpen/internal/controller/selfregistering/registration"
	"github.com/bullpen-ci/bullpen/internal/fleet"
	"github.com/bullpen-ci/bullpen/internal/github"
	"github.com/bullpen-ci/bullpen/internal/plan/scaling/selfregistering"
)

// Bounds of one reading: the rest is left for the next, and absence proves nothing.
const (
	mostRuns   = 200 // each costs a call with the credentials that runners register with
	mostQueued = 2000
	// readersEach is how many of an owner's repositories are read at a time, readersShared how many with one set of credentials: the
	// greater part of what may be under way with them is for runners that come and go.
	readersEach   = 2
	readersShared = 8
	// crowdedFor is how long one waits whose credentials have too much under way.
	crowdedFor = 5 * time.Second
	// retryAfter is the longest time between two tries to read a queue that cannot be read.
	retryAfter = time.Minute
)

// place names one queue that is read for one owner. An owner with other credentials, or another target, starts without history.
type place struct {
	owner       types.UID
	repository  string
	credentials registration.Credentials
	target      registration.Target
}

// listed is a job as GitHub lists it.
type listed struct {
	selfregistering.Job
	labels []string
}

// reading is what is known of one queue.
type reading struct {
	busy    bool // it is being read
	next    time.Time
	problem string
	looks   []look // that succeeded, newest first, two at most
}

type look struct {
	begun   time.Time
	jobs    []listed
	partial bool
	enough  bool // it is partial only because the jobs that were read are more than can be served
}

// readings reads queues beside the passes. Each owner has workers of its own, and each queue a deadline: one that hangs delays no other
// owner (6.8).
type readings struct {
	options Options
	metrics *metrics

	mu      sync.Mutex
	of      map[place]*reading
	shares  map[registration.Credentials]chan struct{}
	workers sync.WaitGroup
}

func newReadings(options Options, m *metrics) *readings {
	return &readings{options: options, metrics: m, of: map[place]*reading{}, shares: map[registration.Credentials]chan struct{}{}}
}

func (r *readings) wait() { r.workers.Wait() }

func placesOf(o *owner) []place {
	credentials, target := o.place()
	var places []place
	for _, repository := range o.repositories() {
		places = append(places, place{o.uid, repository, credentials, target})
	}
	return places
}

// begin starts to read what is due, and drops queues that no owner needs any more. It does not block.
func (r *readings) begin(ctx context.Context, now time.Time, owners []owner) {
	r.mu.Lock()
	defer r.mu.Unlock()
	wanted, shares := map[place]*reading{}, map[registration.Credentials]chan struct{}{}
	for i := range owners {
		o := &owners[i]
		var due []place
		for _, p := range placesOf(o) {
			known := r.of[p]
			if known == nil {
				known = &reading{}
			}
			wanted[p] = known
			if shares[p.credentials] = r.shares[p.credentials]; shares[p.credentials] == nil {
				shares[p.credentials] = make(chan struct{}, readersShared)
				r.shares[p.credentials] = shares[p.credentials]
			}
			if !known.busy && !now.Before(known.next) {
				known.busy = true
				due = append(due, p)
			}
		}
		if len(due) > 0 {
			r.read(ctx, due, shares[due[0].credentials], o.readEvery(), o.enough())
		}
	}
	r.of, r.shares = wanted, shares
}

// read has an owner's queues read.
func (r *readings) read(ctx context.Context, due []place, share chan struct{}, every time.Duration, enough func([]listed) bool) {
	queue := make(chan place, len(due))
	for _, p := range due {
		queue <- p
	}
	close(queue)
	for range min(len(due), readersEach) {
		r.workers.Go(func() {
			for p := range queue {
				select {
				case share <- struct{}{}:
				case <-ctx.Done():
					return
				}
				begun := r.options.Now()
				jobs, partial, err := r.look(ctx, p, enough)
				<-share
				r.note(ctx, p, look{begun, jobs, partial, partial && enough(jobs)}, err, every)
			}
		})
	}
}

func (r *readings) note(ctx context.Context, p place, l look, err error, every time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	known := r.of[p]
	if known == nil {
		return // no owner needs it any more
	}
	known.busy = false
	if ctx.Err() != nil {
		return
	}
	now := r.options.Now()
	if errors.Is(err, registration.ErrBusy) { // nothing was asked, and nothing is wrong
		known.next = now.Add(crowdedFor)
	} else if err != nil {
		if problem := sentence(err); problem != known.problem {
			r.options.Log.Warn("cannot read GitHub's queue of a repository", "repository", p.repository, "credentials", p.credentials.Secret, "error", err)
			known.problem = problem
		}
		known.next = now.Add(min(every, retryAfter))
		var limited *fleet.RateLimitedError
		if errors.As(err, &limited) && limited.Until.After(known.next) {
			known.next = limited.Until
		}
		r.metrics.readings.WithLabelValues("failed").Inc()
	} else {
		known.problem, known.next = "", l.begun.Add(every)
		known.looks = append([]look{l}, known.looks[:min(1, len(known.looks))]...)
		r.metrics.readings.WithLabelValues("read").Inc()
	}
}

// sentence says why a queue cannot be read, in words that do not change from one try to the next.
func sentence(err error) string {
	var limited *fleet.RateLimitedError
	switch {
	case errors.Is(err, registration.ErrCredentials), errors.Is(err, registration.ErrTarget):
		return short(err.Error())
	case errors.As(err, &limited):
		return "GitHub's request quota is exhausted"
	case errors.Is(err, fleet.ErrForbidden):
		return "GitHub denies access: the credentials need permission to read actions"
	case errors.Is(err, fleet.ErrNotFound):
		return "GitHub returns not found: it does not exist, or these credentials have no access"
	default:
		return "GitHub returned no usable response"
	}
}

// short keeps what others have written within what an Event may hold.
func short(text string) string {
	const most = 250
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most], "") + "…"
}

// enough reports whether the queued jobs for the owner's runners are more than can be served.
func (o *owner) enough() func([]listed) bool {
	labels, most := o.registration.Labels, int(o.scaling.MaxReplicas)
	return func(jobs []listed) bool {
		waiting := 0
		for _, job := range jobs {
			if !job.Running && fleet.RunnerTakes(labels, job.labels, o.registration.NoDefaultLabels) {
				waiting++
			}
		}
		return waiting >= most
	}
}

// look reads one queue: first the runs that wait, then those that have begun, so that one which moves meanwhile is seen at least
// once. A queue that is too long for the time there is counts as far as it was read: those that wait in it must not wait for ever.
func (r *readings) look(ctx context.Context, p place, enough func([]listed) bool) (jobs []listed, partial bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, r.options.ReadTimeout)
	defer cancel()
	defer func() {
		if err != nil && len(jobs) > 0 && errors.Is(ctx.Err(), context.DeadlineExceeded) {
			partial, err = true, nil
		}
	}()
	seen := map[int64]bool{}
	for _, status := range []string{github.RunQueued, github.RunInProgress} {
		for page := 1; page != 0; {
			var runs []github.Run
			if runs, page, err = r.options.Queue.Runs(ctx, p.credentials, p.target, p.repository, status, page); err != nil {
				return jobs, false, err
			}
			for _, run := range runs {
				if seen[run.ID] {
					continue
				}
				seen[run.ID] = true
				if len(seen) > mostRuns || len(jobs) > mostQueued || enough(jobs) {
					return jobs, true, nil
				}
				of, err := r.run(ctx, p, run.ID)
				if err != nil {
					return jobs, false, err
				}
				jobs = append(jobs, of...)
			}
		}
	}
	return jobs, false, nil
}

func (r *readings) run(ctx context.Context, p place, id int64) (jobs []listed, err error) {
	for page := 1; page != 0; {
		var of []github.WorkflowJob
		if of, page, err = r.options.Queue.RunJobs(ctx, p.credentials, p.target, p.repository, id, page); err != nil {
			return nil, err
		}
		for _, job := range of {
			if job.Status != github.JobQueued && job.Status != github.JobInProgress {
				continue
			}
			running := job.Status == github.JobInProgress
			one := listed{selfregistering.Job{ID: job.ID, Repository: p.repository, Running: running}, job.Labels}
			if running {
				one.Runner = job.RunnerName
			}
			jobs = append(jobs, one)
		}
	}
	return jobs, nil
}

// queues are the owner's, as far as they have been read, with the jobs that its runners can take.
func (r *readings) queues(o *owner) []selfregistering.Queue {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []selfregistering.Queue
	for _, p := range placesOf(o) {
		queue := selfregistering.Queue{Repository: p.repository}
		if known := r.of[p]; known != nil {
			queue.Problem = known.problem
			for _, l := range known.looks {
				queue.Readings = append(queue.Readings, selfregistering.Reading{Begun: l.begun, Jobs: takes(o, l.jobs), Partial: l.partial, Enough: l.enough})
			}
		}
		out = append(out, queue)
	}
	return out
}

func takes(o *owner, jobs []listed) (can []selfregistering.Job) {
	for _, job := range jobs {
		if fleet.RunnerTakes(o.registration.Labels, job.labels, o.registration.NoDefaultLabels) {
			can = append(can, job.Job)
		}
	}
	return can
}

// seen are the jobs that GitHub listed last, up to most: the server is asked for their state.
func (r *readings) seen(o *owner, most int) (ids []int64) {
	for _, queue := range r.queues(o) {
		for _, look := range queue.Readings[:min(1, len(queue.Readings))] {
			for _, job := range look.Jobs {
				if len(ids) < most {
					ids = append(ids, job.ID)
				}
			}
		}
	}
	return ids
}
