package selfregistering

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Evidence is what is known of the jobs that the owner's runners can take.
type Evidence struct {
	Server Server
	// Queues of repositories, as GitHub itself lists them.
	Queues []Queue
}

// Job is one job at GitHub.
type Job struct {
	ID         int64
	Repository string // owner/name
	// Running: a runner has it, whose name is Runner where that is known.
	Running bool
	Runner  string
	// Since is when the source learnt that it is so; zero where it does not say.
	Since time.Time
}

// Server is what the server's ledger says, which has GitHub's messages.
type Server struct {
	// Problem says why it could not be asked just now, in a sentence; what it said last is in the other fields.
	Problem string
	// Sees: GitHub sends it the messages of the owner's target.
	Sees bool
	Jobs []Job
	// More: more jobs wait than are named.
	More bool
	// Settled are jobs of GitHub's queues that need none of these runners: they have ended, or a pool serves them.
	Settled []int64
}

// Queue is what GitHub lists for one repository.
type Queue struct {
	Repository string
	// Problem says why it could not be read the last time, in a sentence.
	Problem string
	// Readings that succeeded, newest first; two are enough. None and no Problem: it has not been read yet.
	Readings []Reading
}

// Reading is one reading of a queue.
type Reading struct {
	// Begun is when the look began.
	Begun time.Time
	Jobs  []Job
	// Partial: the queue was not read to its end, so that absence from it proves nothing.
	Partial bool
	// Enough: only because the queued jobs in it are more than can be served.
	Enough bool
}

// clockSkew is how much the clocks of two sources may differ.
const clockSkew = time.Minute

// Demand is one set of jobs, each counted once, by its id.
type Demand struct {
	Queued, Running []Job // sorted by id
	// Problems keep the demand from being known in full, in sentences. Unread: a source was not read yet, or not to its
	// end, which is no problem.
	Problems []string
	Unread   bool
}

// Blind reports whether there may be more jobs than are known.
func (d Demand) Blind() bool { return d.Unread || len(d.Problems) > 0 }

// Gather makes one set of jobs out of what the sources report (6.6, 6.7): a repeated message adds nothing, the other
// source makes up for a lost one, and the end of a job frees that job alone. ours reports whether a runner is the owner's: a
// job of another owner's runner does not count.
func Gather(e Evidence, ours func(runner string) bool) Demand {
	var d Demand
	if e.Server.Problem != "" {
		d.Problems = append(d.Problems, e.Server.Problem)
	}
	d.Unread = e.Server.More
	settled := make(map[int64]bool, len(e.Server.Settled))
	for _, id := range e.Server.Settled {
		settled[id] = true
	}
	jobs := map[int64]Job{}
	for _, job := range e.Server.Jobs {
		if !lapsed(job, e.Queues) {
			jobs[job.ID] = merge(jobs[job.ID], job)
		}
	}
	for _, queue := range e.Queues {
		if queue.Problem != "" {
			d.Problems = append(d.Problems, fmt.Sprintf("GitHub's queue of %s cannot be read: %s", queue.Repository, queue.Problem))
		}
		if len(queue.Readings) == 0 {
			d.Unread = true
			continue
		}
		switch last := queue.Readings[0]; { // POOL-8: more may wait in it
		case last.Enough:
			d.Unread = true
		case last.Partial:
			d.Problems = append(d.Problems, fmt.Sprintf("GitHub's queue of %s is too long to be read completely", queue.Repository))
		}
		for _, job := range queue.Readings[0].Jobs {
			if !settled[job.ID] {
				jobs[job.ID] = merge(jobs[job.ID], job)
			}
		}
	}
	if e.Server.Problem == "" && !e.Server.Sees && len(e.Queues) == 0 {
		d.Problems = append(d.Problems, "no source of job data: the GitHub App is not installed there, and jobs.repositories is empty. Install the App, or list repositories.")
	}
	for _, job := range jobs {
		switch {
		case !job.Running:
			d.Queued = append(d.Queued, job)
		case job.Runner == "" || ours(job.Runner):
			d.Running = append(d.Running, job)
		}
	}
	byID := func(a, b Job) int { return cmp.Compare(a.ID, b.ID) }
	slices.SortFunc(d.Queued, byID)
	slices.SortFunc(d.Running, byID)
	return d
}

// merge combines the reports of two sources about one job: it changes from queued to running and never back, so the source that reports
// running is newer.
func merge(a, b Job) Job {
	switch {
	case a.Running == b.Running && (b.Runner == "" || a.Runner != "" && a.Runner < b.Runner):
		b.Runner = a.Runner // in whatever order they are asked
	case a.Running && !b.Running:
		return a
	}
	return b
}

// lapsed reports whether a job that the server counts is over by GitHub's queue, so that its end was not reported. Two whole
// readings in a row must lack it that both began after the server learnt of it: one alone may have missed a job that moved
// between two pages.
func lapsed(job Job, queues []Queue) bool {
	for _, queue := range queues {
		if !strings.EqualFold(queue.Repository, job.Repository) || len(queue.Readings) < 2 {
			continue
		}
		return !slices.ContainsFunc(queue.Readings[:2], func(r Reading) bool {
			return r.Partial || r.Begun.Before(job.Since.Add(clockSkew)) ||
				slices.ContainsFunc(r.Jobs, func(listed Job) bool { return listed.ID == job.ID })
		})
	}
	return false
}

// owns reports whether a runner of that name is the owner's.
func (s Spec) owns(runner string) bool {
	if !strings.HasPrefix(runner, s.Owner+"-") {
		return false
	}
	return !slices.ContainsFunc(s.Rivals, func(rival string) bool {
		return len(rival) > len(s.Owner) && strings.HasPrefix(runner, rival+"-")
	})
}
