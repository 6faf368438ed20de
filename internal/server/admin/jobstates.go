package admin

import (
	"context"
	"slices"
	"strings"

	"github.com/bullpen-ci/bullpen/api/adminapi"
	"github.com/bullpen-ci/bullpen/internal/fleet"
)

// maxScannedPages bounds how many pages of the store are read for one page of blocked or not blocked jobs, which no index tells apart.
const maxScannedPages = 10

// jobSelector selects jobs by one value of the parameter state.
type jobSelector struct {
	states  []fleet.JobState
	blocked *bool // nil: blocked or not
}

// jobSelectors are the accepted values: the API's states, GitHub's in_progress, and the ledger's states, which the API had before.
var jobSelectors = func() map[string]jobSelector {
	yes, no := true, false
	selectors := map[string]jobSelector{
		adminapi.JobPendingApproval: {states: []fleet.JobState{fleet.JobWaiting}},
		adminapi.JobBlocked:         {states: []fleet.JobState{fleet.JobQueued}, blocked: &yes},
		adminapi.JobAssigned:        {states: []fleet.JobState{fleet.JobClaimed, fleet.JobMinted}},
		adminapi.JobRunning:         {states: []fleet.JobState{fleet.JobExecuting}},
		"in_progress":               {states: []fleet.JobState{fleet.JobExecuting}},
	}
	for _, state := range fleet.JobStates() {
		if state != fleet.JobAbsent {
			selectors[string(state)] = jobSelector{states: []fleet.JobState{state}}
		}
	}
	selectors[adminapi.JobQueued] = jobSelector{states: []fleet.JobState{fleet.JobQueued}, blocked: &no}
	selectors[adminapi.JobCompleted] = jobSelector{states: []fleet.JobState{fleet.JobCompleted, fleet.JobCancelled, fleet.JobStale}}
	return selectors
}()

// selectJobs reads the parameter state: the ledger's states to ask for, and what to keep of them; nil: all.
func selectJobs(values []string) (states []string, keep func(adminapi.Job) bool, err error) {
	var selected []jobSelector
	filters := false
	for _, value := range values {
		selector, ok := jobSelectors[value]
		if !ok {
			names := adminapi.JobStates()
			last := len(names) - 1
			return nil, nil, &InvalidError{"state must be one of " + strings.Join(names[:last], ", ") + " and " + names[last]}
		}
		selected, filters = append(selected, selector), filters || selector.blocked != nil
		for _, state := range selector.states {
			if !slices.Contains(states, string(state)) {
				states = append(states, string(state))
			}
		}
	}
	if !filters {
		return states, nil, nil
	}
	return states, func(job adminapi.Job) bool {
		return slices.ContainsFunc(selected, func(s jobSelector) bool {
			return slices.Contains(s.states, fleet.JobState(job.State)) && (s.blocked == nil || *s.blocked == (job.BlockedBy != ""))
		})
	}, nil
}

// pageOfJobs reads a page of the jobs that keep keeps, and where the next one begins; 0: this is the last.
func pageOfJobs(ctx context.Context, store JobStore, q JobQuery, keep func(adminapi.Job) bool) (jobs []adminapi.Job, next int64, err error) {
	jobs = []adminapi.Job{}
	most := q.Most
	if keep == nil {
		page, next, err := storedPage(ctx, store, q)
		return append(jobs, page...), next, err
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
		for _, job := range page {
			if !keep(job) {
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
func storedPage(ctx context.Context, store JobStore, q JobQuery) (jobs []adminapi.Job, next int64, err error) {
	if q.Searches() {
		return store.SearchJobs(ctx, q)
	}
	if jobs, err = store.Jobs(ctx, q); len(jobs) == q.Most {
		next = jobs[q.Most-1].ID
	}
	return jobs, next, err
}

// shown is a job of the store in the words of the API.
func shown(job adminapi.Job) adminapi.Job {
	switch state := fleet.JobState(job.State); {
	case state == fleet.JobWaiting:
		job.State = adminapi.JobPendingApproval
	case state == fleet.JobQueued && job.BlockedBy != "":
		job.State = adminapi.JobBlocked
	case state == fleet.JobClaimed, state == fleet.JobMinted:
		job.State = adminapi.JobAssigned
	case state == fleet.JobExecuting:
		job.State = adminapi.JobRunning
	case state == fleet.JobStale:
		job.State, job.Conclusion = adminapi.JobCompleted, adminapi.ConclusionStale
	case state == fleet.JobCancelled:
		job.State = adminapi.JobCompleted
		if job.Conclusion == "" {
			job.Conclusion = adminapi.ConclusionCancelled
		}
	}
	return job
}
