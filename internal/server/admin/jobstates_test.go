package admin

import (
	"context"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/api/adminapi"
	"github.com/bullpen-ci/bullpen/internal/fleet"
)

// shelf is a store of jobs, newest first.
type shelf struct {
	JobStore
	jobs            []adminapi.Job
	reads, searches int
}

func (s *shelf) Jobs(_ context.Context, q JobQuery) ([]adminapi.Job, error) {
	s.reads++
	return s.page(q), nil
}

// SearchJobs finds every job: a page of them, and where the next one begins.
func (s *shelf) SearchJobs(_ context.Context, q JobQuery) ([]adminapi.Job, int64, error) {
	s.searches++
	page := s.page(q)
	if len(page) < q.Most {
		return page, 0, nil
	}
	return page, page[len(page)-1].ID, nil
}

func (s *shelf) page(q JobQuery) (page []adminapi.Job) {
	for _, job := range s.jobs {
		if (q.Before == 0 || job.ID < q.Before) && len(page) < q.Most && (len(q.States) == 0 || slices.Contains(q.States, job.State)) {
			page = append(page, job)
		}
	}
	return page
}

// Users see GitHub's words; the ledger keeps its own.
func TestShown_TheStatesOfTheLedgerInTheWordsOfTheAPI(t *testing.T) {
	for _, c := range []struct {
		state             fleet.JobState
		blockedBy         string
		given             string
		shown, conclusion string
	}{
		{state: fleet.JobWaiting, shown: "pending_approval"},
		{state: fleet.JobQueued, shown: "queued"},
		{state: fleet.JobQueued, blockedBy: "repository_limit", shown: "blocked"},
		{state: fleet.JobClaimed, shown: "assigned"},
		{state: fleet.JobMinted, shown: "assigned"},
		{state: fleet.JobExecuting, shown: "running"},
		{state: fleet.JobCompleted, given: "failure", shown: "completed", conclusion: "failure"},
		{state: fleet.JobCancelled, shown: "completed", conclusion: "cancelled"},
		{state: fleet.JobCancelled, given: "skipped", shown: "completed", conclusion: "skipped"},
		{state: fleet.JobStale, shown: "completed", conclusion: "stale"},
	} {
		got := shown(adminapi.Job{State: string(c.state), BlockedBy: c.blockedBy, Conclusion: c.given})
		require.Equal(t, []string{c.shown, c.conclusion}, []string{got.State, got.Conclusion}, c.state)
		require.Contains(t, adminapi.JobStates(), got.State)
	}
}

func TestSelectJobs_NewAndFormerNames(t *testing.T) {
	for value, c := range map[string]struct {
		states []string
		keeps  []string // of a queued job: "free", "blocked"; nil: no filter
	}{
		"pending_approval": {[]string{"waiting"}, nil},
		"queued":           {[]string{"queued"}, []string{"free"}},
		"blocked":          {[]string{"queued"}, []string{"blocked"}},
		"assigned":         {[]string{"claimed", "minted"}, nil},
		"running":          {[]string{"executing"}, nil},
		"in_progress":      {[]string{"executing"}, nil},
		"completed":        {[]string{"completed", "cancelled", "stale"}, nil},
		"waiting":          {[]string{"waiting"}, nil},
		"claimed":          {[]string{"claimed"}, nil},
		"minted":           {[]string{"minted"}, nil},
		"executing":        {[]string{"executing"}, nil},
		"cancelled":        {[]string{"cancelled"}, nil},
		"stale":            {[]string{"stale"}, nil},
	} {
		states, keep, err := selectJobs([]string{value})
		require.NoError(t, err, value)
		require.Equal(t, c.states, states, value)
		var kept []string
		if keep != nil {
			for name, job := range map[string]adminapi.Job{"free": {State: "queued"}, "blocked": {State: "queued", BlockedBy: "refused"}} {
				if keep(job) {
					kept = append(kept, name)
				}
			}
		}
		require.Equal(t, c.keeps, kept, value)
	}
	states, keep, err := selectJobs([]string{"blocked", "running"})
	require.NoError(t, err)
	require.Equal(t, []string{"queued", "executing"}, states)
	require.True(t, keep(adminapi.Job{State: "executing"}))
	require.False(t, keep(adminapi.Job{State: "queued"}))

	for _, value := range []string{"", "lost", "Queued"} {
		_, _, err := selectJobs([]string{value})
		require.ErrorContains(t, err, "state must be one of pending_approval, queued, blocked, assigned, running and completed", value)
	}
}

// Blocked jobs are found behind others, page after page, and a request reads a bounded number of jobs.
func TestPageOfJobs_BlockedOnesAreFoundBehindOthers(t *testing.T) {
	store := &shelf{}
	const total = (maxScannedPages + 1) * adminapi.MaxPage
	for id := int64(total); id > 0; id-- {
		job := adminapi.Job{ID: id, State: string(fleet.JobQueued)}
		if id == total-adminapi.MaxPage || id == 5 {
			job.BlockedBy = "label_sets"
		}
		store.jobs = append(store.jobs, job)
	}
	states, keep, err := selectJobs([]string{adminapi.JobBlocked})
	require.NoError(t, err)
	q := JobQuery{States: states, Most: 2}
	jobs, next, err := pageOfJobs(t.Context(), store, q, keep)
	require.NoError(t, err)
	require.Len(t, jobs, 1)
	require.Equal(t, int64(total-adminapi.MaxPage), jobs[0].ID)
	require.Equal(t, maxScannedPages, store.reads)
	require.NotZero(t, next, "the rest is on the next page")

	q.Before = next
	jobs, next, err = pageOfJobs(t.Context(), store, q, keep)
	require.NoError(t, err)
	require.Len(t, jobs, 1)
	require.Equal(t, int64(5), jobs[0].ID)
	require.Zero(t, next)

	q.Before, q.Most = 0, 1
	jobs, next, err = pageOfJobs(t.Context(), store, q, keep)
	require.NoError(t, err)
	require.Equal(t, jobs[0].ID, next, "a full page ends with its last job")
}

// A search among blocked jobs reads one page of the search, keeps the blocked jobs of it, and says where the next one begins.
func TestPageOfJobs_ASearchReadsOnePage(t *testing.T) {
	store := &shelf{}
	for id := int64(3 * adminapi.MaxPage); id > 0; id-- {
		job := adminapi.Job{ID: id, State: string(fleet.JobQueued)}
		if id%adminapi.MaxPage == 0 {
			job.BlockedBy = "label_sets"
		}
		store.jobs = append(store.jobs, job)
	}
	states, keep, err := selectJobs([]string{adminapi.JobBlocked})
	require.NoError(t, err)
	jobs, next, err := pageOfJobs(t.Context(), store, JobQuery{States: states, Name: "build", Most: 2}, keep)
	require.NoError(t, err)
	require.Equal(t, 1, store.searches)
	require.Zero(t, store.reads)
	require.Len(t, jobs, 1)
	require.Equal(t, int64(3*adminapi.MaxPage), jobs[0].ID)
	require.Equal(t, int64(2*adminapi.MaxPage+1), next)
}
