package workflow

import (
	"errors"
	"fmt"
	"slices"
	"time"
)

// Conclusion is how a job or a run ended, in GitHub's words; "" while it has not.
type Conclusion string

// The conclusions a job can reach here.
const (
	Success   Conclusion = "success"
	Failure   Conclusion = "failure"
	Cancelled Conclusion = "cancelled"
	Skipped   Conclusion = "skipped"
)

// Status is how far a job has come.
type Status string

// Waiting jobs wait for others; Queued ones were handed out by [Run.Next]; Completed ones have a conclusion.
const (
	Waiting   Status = "waiting"
	Queued    Status = "queued"
	Completed Status = "completed"
)

// ErrJobState is returned for a key that is unknown, not handed out yet, or complete already.
var ErrJobState = errors.New("the job is not running")

// Job is a job that is ready for a runner.
type Job struct {
	// Key names the job within its run permanently: the id, and "/index" behind it in a matrix.
	Key string
	// ID is the job's id in the file.
	ID string
	// Name is what GitHub displays, "build (3, linux)".
	Name string
	// Labels and Group are `runs-on`, evaluated.
	Labels []string
	Group  string
	// Timeout is `timeout-minutes`, six hours by default.
	Timeout time.Duration
	// ContinueOnError indicates that a failure of this job fails neither its run nor the jobs behind it.
	ContinueOnError bool
	// Def is the job as written; its steps are evaluated by the runner.
	Def *JobDef
	// Contexts holds github, needs, matrix, strategy, inputs and vars for this job.
	Contexts *Object
}

// Concluded is a job that ended without a runner, and why.
type Concluded struct {
	Key, ID, Name string
	Conclusion    Conclusion
	Reason        string
}

// JobState is one line of a display of the run.
type JobState struct {
	Key, ID, Name string
	Status        Status
	Conclusion    Conclusion
}

// Run is one run of a workflow as a state machine. After each change (Complete, Cancel) call Next, which
// moves it on, and Concluded. It is not safe for concurrent use.
type Run struct {
	workflow  *Workflow
	github    *Object
	inputs    *Object
	vars      *Object
	event     string
	jobs      []*jobRun
	instances map[string]*instance
	concluded []Concluded
	cancelled bool
}

// jobRun is a job of the file; instance is one of the jobs that its matrix makes (one, without a matrix).
type jobRun struct {
	def         *JobDef
	needs       []*jobRun
	ancestors   []*jobRun
	expanded    bool
	failFast    bool
	maxParallel int
	instances   []*instance
	result      Conclusion // "" until every instance is complete
	outputs     map[string]string
}

type instance struct {
	job        Job
	of         *jobRun
	status     Status
	conclusion Conclusion
	cancelling bool // its cancellation has been asked for
}

// Next moves the run on and returns the jobs that became ready, in file and matrix order. Each job is
// returned once.
func (r *Run) Next() []Job {
	var ready []Job
	for moved := true; moved; {
		moved = false
		for _, j := range r.jobs {
			if j.result != "" {
				continue
			}
			if !j.expanded && settled(j.needs) {
				r.expand(j)
				moved = true
			}
			ready = append(ready, j.start()...)
			if j.expanded && j.complete() {
				j.result = j.combined()
				moved = true
			}
		}
	}
	return ready
}

func settled(jobs []*jobRun) bool {
	return !slices.ContainsFunc(jobs, func(j *jobRun) bool { return j.result == "" })
}

// start hands out waiting instances as far as max-parallel allows.
func (j *jobRun) start() []Job {
	var ready []Job
	running := 0
	for _, in := range j.instances {
		if in.status == Queued {
			running++
		}
	}
	for _, in := range j.instances {
		if in.status == Waiting && (j.maxParallel == 0 || running < j.maxParallel) {
			in.status = Queued
			running++
			ready = append(ready, in.job)
		}
	}
	return ready
}

func (j *jobRun) complete() bool {
	return !slices.ContainsFunc(j.instances, func(in *instance) bool { return in.status != Completed })
}

// combined is the result that other jobs see in `needs`: the worst of the instances.
func (j *jobRun) combined() Conclusion {
	worst := Skipped
	rank := map[Conclusion]int{Skipped: 0, Success: 1, Cancelled: 2, Failure: 3}
	for _, in := range j.instances {
		if c := in.effective(); rank[c] > rank[worst] {
			worst = c
		}
	}
	return worst
}

// effective is the conclusion that counts for others.
func (in *instance) effective() Conclusion {
	if in.conclusion == Failure && in.job.ContinueOnError {
		return Success
	}
	return in.conclusion
}

// Complete records the end of a job that Next handed out. cancel lists siblings in the same matrix that
// fail-fast stops: they still have to be completed, as Cancelled or with the conclusion they reached in
// between.
func (r *Run) Complete(key string, c Conclusion, outputs map[string]string) (cancel []string, err error) {
	in, ok := r.instances[key]
	if !ok {
		return nil, fmt.Errorf("completing job %q: %w: no such job in this run", key, ErrJobState)
	}
	if in.status != Queued {
		return nil, fmt.Errorf("completing job %q: %w: it is %s", key, ErrJobState, in.status)
	}
	switch c {
	case Success, Failure, Cancelled, Skipped:
	default:
		return nil, fmt.Errorf("completing job %q: unknown conclusion %q", key, c)
	}
	in.status, in.conclusion = Completed, c
	if in.of.outputs == nil {
		in.of.outputs = map[string]string{}
	}
	for name, value := range outputs {
		in.of.outputs[name] = value
	}
	if in.effective() != Failure || !in.of.failFast {
		return nil, nil
	}
	return r.stop(in.of, "a job of the same matrix failed (fail-fast)"), nil
}

// stop cancels what is left of a job: instances that wait end at once, running ones are returned to be
// cancelled, each only once.
func (r *Run) stop(j *jobRun, reason string) []string {
	var cancel []string
	for _, in := range j.instances {
		switch {
		case in.status == Waiting:
			r.conclude(in, Cancelled, reason)
		case in.status == Queued && !in.cancelling:
			in.cancelling = true
			cancel = append(cancel, in.job.Key)
		}
	}
	return cancel
}

func (r *Run) conclude(in *instance, c Conclusion, reason string) {
	in.status, in.conclusion = Completed, c
	r.concluded = append(r.concluded, Concluded{in.job.Key, in.job.ID, in.job.Name, c, reason})
}

// Cancel cancels the run. It returns the keys of running jobs to cancel; a job whose `if` still holds for a
// cancelled run (always(), cancelled()) runs on, and such jobs behind it still start.
func (r *Run) Cancel() (cancel []string) {
	if r.cancelled {
		return nil
	}
	r.cancelled = true
	for _, j := range r.jobs {
		if j.result != "" || !j.expanded {
			continue
		}
		if run, err := r.scope(j).Condition(j.def.If); err == nil && run {
			continue
		}
		cancel = append(cancel, r.stop(j, "the run was cancelled")...)
	}
	return cancel
}

// Concluded returns the jobs that ended without a runner since the last call: skipped ones, those that
// fail-fast or Cancel stopped before they started, those whose expressions failed.
func (r *Run) Concluded() []Concluded {
	out := r.concluded
	r.concluded = nil
	return out
}

// Done reports whether every job has ended.
func (r *Run) Done() bool { return settled(r.jobs) }

// Conclusion is "" until the run is done.
func (r *Run) Conclusion() Conclusion {
	if !r.Done() {
		return ""
	}
	any := func(c Conclusion) bool {
		return slices.ContainsFunc(r.jobs, func(j *jobRun) bool { return j.result == c })
	}
	switch {
	case any(Failure):
		return Failure
	case any(Cancelled) || r.cancelled:
		return Cancelled
	case any(Success):
		return Success
	}
	return Skipped
}

// Jobs lists every job known so far, in file and matrix order. Before a matrix is expanded it is one line.
func (r *Run) Jobs() []JobState {
	var out []JobState
	for _, j := range r.jobs {
		for _, in := range j.instances {
			out = append(out, JobState{in.job.Key, in.job.ID, in.job.Name, in.status, in.conclusion})
		}
		if !j.expanded {
			out = append(out, JobState{Key: j.def.ID, ID: j.def.ID, Name: j.def.displayName(), Status: Waiting})
		}
	}
	return out
}
