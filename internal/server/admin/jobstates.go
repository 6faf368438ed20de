package admin

import (
	"context"
	"slices"
	"strings"

	"github.com/bullpen-ci/bullpen/api/adminapi"
	"github.com/bullpen-ci/bullpen/internal/fleet"
	"github.com/bullpen-ci/bullpen/internal/server/dispatch"
)

// maxScannedPages bounds how many pages of the store are read for one page of queued, blocked or unserved jobs, which no index tells apart.
const maxScannedPages = 10

// jobSelector selects jobs by one value of the parameter state.
type jobSelector struct {
	states []fleet.JobState
	shown  string // the API's state, of jobs that the ledger has as queued; empty: any
}

// jobSelectors are the accepted values: the API's states, GitHub's in_progress, and the ledger's states, which the API had before.
var jobSelectors = func() map[string]jobSelector {
	selectors := map[string]jobSelector{
		adminapi.JobPendingApproval: {states: []fleet.JobState{fleet.JobWaiting}},
		adminapi.JobBlocked:         {states: []fleet.JobState{fleet.JobQueued}, shown: adminapi.JobBlocked},
		adminapi.JobNoPool:          {states: []fleet.JobState{fleet.JobQueued}, shown: adminapi.JobNoPool},
		adminapi.JobElsewhere:       {states: []fleet.JobState{fleet.JobQueued}, shown: adminapi.JobElsewhere},
		adminapi.JobAssigned:        {states: []fleet.JobState{fleet.JobClaimed, fleet.JobMinted}},
		adminapi.JobRunning:         {states: []fleet.JobState{fleet.JobExecuting}},
		"in_progress":               {states: []fleet.JobState{fleet.JobExecuting}},
	}
	for _, state := range fleet.JobStates() {
		if state != fleet.JobAbsent {
			selectors[string(state)] = jobSelector{states: []fleet.JobState{state}}
		}
	}
	selectors[adminapi.JobQueued] = jobSelector{states: []fleet.JobState{fleet.JobQueued}, shown: adminapi.JobQueued}
	selectors[adminapi.JobCompleted] = jobSelector{states: []fleet.JobState{fleet.JobCompleted, fleet.JobCancelled, fleet.JobStale}}
	return selectors
}()

// selectJobs reads the parameter state: the ledger's states to ask for, and what to keep of them, by the ledger's state and the API's; nil: all.
func selectJobs(values []string) (states []string, keep keepJob, err error) {
	var selected []jobSelector
	filters := false
	for _, value := range values {
		selector, ok := jobSelectors[value]
		if !ok {
			names := adminapi.JobStates()
			last := len(names) - 1
			return nil, nil, &InvalidError{"state must be one of " + strings.Join(names[:last], ", ") + " and " + names[last]}
		}
		selected, filters = append(selected, selector), filters || selector.shown != ""
		for _, state := range selector.states {
			if !slices.Contains(states, string(state)) {
				states = append(states, string(state))
			}
		}
	}
	if !filters {
		return states, nil, nil
	}
	return states, func(stored, shown string) bool {
		return slices.ContainsFunc(selected, func(s jobSelector) bool {
			return slices.Contains(s.states, fleet.JobState(stored)) && (s.shown == "" || s.shown == shown)
		})
	}, nil
}

// keepJob selects jobs by the ledger's state and the API's.
type keepJob func(stored, shown string) bool

// pageOfJobs reads a page of the jobs that keep keeps, as they are shown, and where the next one begins; 0: this is the last.
func pageOfJobs(ctx context.Context, store JobStore, q JobQuery, show func(StoredJob) adminapi.Job, keep keepJob) (jobs []adminapi.Job, next int64, err error) {
	jobs = []adminapi.Job{}
	most := q.Most
	if keep == nil {
		page, next, err := storedPage(ctx, store, q)
		for _, job := range page {
			jobs = append(jobs, show(job))
		}
		return jobs, next, err
	}
	q.Most = adminapi.MaxPage
	pages := maxScannedPages
	if q.Searches() {
		pages = 1 // each reads thousands of jobs by itself
	}
	for range pages {
		page, next, err := storedPage(ctx, store, q)
		if err != nil {
			return nil, 0, err
		}
		for _, stored := range page {
			job := show(stored)
			if !keep(stored.State, job.State) {
				continue
			}
			if jobs = append(jobs, job); len(jobs) == most {
				return jobs, job.ID, nil
			}
		}
		if next == 0 {
			return jobs, 0, nil
		}
		q.Before = next
	}
	return jobs, q.Before, nil
}

// storedPage reads one page of the store, and where the next one begins; 0: this is the last.
func storedPage(ctx context.Context, store JobStore, q JobQuery) (jobs []StoredJob, next int64, err error) {
	if q.Searches() {
		return store.SearchJobs(ctx, q)
	}
	if jobs, err = store.Jobs(ctx, q); len(jobs) == q.Most {
		next = jobs[q.Most-1].ID
	}
	return jobs, next, err
}

// queue is what decides whether a job may start.
type queue struct {
	lanes map[dispatch.LaneRef]dispatch.LaneDemand // nil: unknown, and then only what the ledger has set aside is blocked
	pools []dispatch.Pool
	// outside says which runners outside of RunnerPools have those labels.
	outside func(labels []string) fleet.Outside
}

// queue reads it. While the ledger is frozen or cannot be read, no job starts, and the server says so elsewhere.
func (a *API) queue(ctx context.Context) queue {
	lanes, err := a.opt.Fleet.Lanes(ctx)
	if err != nil {
		a.opt.Log.DebugContext(ctx, "reading which jobs may start", "error", err)
	}
	return queue{lanes: lanes, pools: a.opt.Fleet.Pools(), outside: a.opt.Fleet.Outside}
}

// place says in which state a job is that the ledger has as queued, and what blocks it.
func (q queue) place(job StoredJob) (state, blockedBy string) {
	if job.BlockedBy != "" {
		return adminapi.JobBlocked, job.BlockedBy
	}
	lane, served := q.lanes[job.Lane]
	if !served && dispatch.Unroutable(q.pools, job.Labels) {
		if dispatch.Elsewhere(q.pools, q.outside(job.Labels), job.Labels) != fleet.OutsideNone { // CLAIM-21
			return adminapi.JobElsewhere, ""
		}
		return adminapi.JobNoPool, ""
	}
	if reason := lane.BlockedBy(job.Place); reason != "" {
		return adminapi.JobBlocked, string(reason)
	}
	return adminapi.JobQueued, ""
}

// shown is a job of the store in the words of the API.
func (q queue) shown(stored StoredJob) adminapi.Job {
	job := stored.Job
	switch state := fleet.JobState(job.State); state {
	case fleet.JobWaiting:
		job.State = adminapi.JobPendingApproval
	case fleet.JobQueued:
		job.State, job.BlockedBy = q.place(stored)
	case fleet.JobClaimed, fleet.JobMinted:
		job.State = adminapi.JobAssigned
	case fleet.JobExecuting:
		job.State = adminapi.JobRunning
	case fleet.JobStale:
		job.State, job.Conclusion = adminapi.JobCompleted, adminapi.ConclusionStale
	case fleet.JobCancelled:
		job.State = adminapi.JobCompleted
		if job.Conclusion == "" {
			job.Conclusion = adminapi.ConclusionCancelled
		}
	case fleet.JobAbsent, fleet.JobCompleted:
	}
	return job
}
