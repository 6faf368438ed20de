package admin

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/api/adminapi"
	"github.com/bullpen-ci/bullpen/api/runnerapi"
	"github.com/bullpen-ci/bullpen/internal/fleet"
	"github.com/bullpen-ci/bullpen/internal/server/dispatch"
)

// shelf is a store of jobs, newest first.
type shelf struct {
	JobStore
	jobs            []StoredJob
	reads, searches int
}

func (s *shelf) Jobs(_ context.Context, q JobQuery) ([]StoredJob, error) {
	s.reads++
	return s.page(q), nil
}

// SearchJobs finds every job: a page of them, and where the next one begins.
func (s *shelf) SearchJobs(_ context.Context, q JobQuery) ([]StoredJob, int64, error) {
	s.searches++
	page := s.page(q)
	if len(page) < q.Most {
		return page, 0, nil
	}
	return page, page[len(page)-1].ID, nil
}

func (s *shelf) page(q JobQuery) (page []StoredJob) {
	for _, job := range s.jobs {
		if (q.Before == 0 || job.ID < q.Before) && len(page) < q.Most && (len(q.States) == 0 || slices.Contains(q.States, job.State)) {
			page = append(page, job)
		}
	}
	return page
}

// served is a queue of which nothing is read, with one pool.
var served = queue{pools: []dispatch.Pool{{Name: "linux", Labels: []string{"linux"}}}, outside: fleet.OutsideRunners{GitHub: fleet.GitHubHosted()}.Of}

// A list of jobs shows what the numbers of pools and accounts count: jobs that may start, jobs that are blocked with the reason, and jobs that no pool
// serves.
func TestShown_QueuedJobsByTheDemand(t *testing.T) {
	at := time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC)
	lane := func(account int64) dispatch.LaneRef {
		return dispatch.LaneRef{LabelKey: `["linux"]`, AccountID: account}
	}
	q := queue{pools: served.pools, outside: served.outside, lanes: map[dispatch.LaneRef]dispatch.LaneDemand{
		lane(1): {Queued: 2, Last: dispatch.JobAge{ID: 2, QueuedAt: at}, Behind: runnerapi.BlockedLimit, Crowded: map[int64]bool{1: true}},
		lane(2): {Whole: runnerapi.BlockedSuspended},
	}}
	for _, c := range []struct {
		id, account      int64
		at               time.Time
		label, held      string
		state, blockedBy string
	}{
		{id: 2, account: 1, at: at, label: "linux", state: "queued"},
		{id: 1, account: 1, at: at, label: "linux", state: "blocked", blockedBy: "repository_limit"},
		{id: 3, account: 1, at: at, label: "linux", state: "blocked", blockedBy: "account_limit"},
		{id: 3, account: 1, at: at.Add(-time.Second), label: "linux", state: "queued"},
		{id: 1, account: 1, at: at.Add(time.Second), label: "linux", held: "refused", state: "blocked", blockedBy: "refused"},
		{id: 4, account: 2, at: at, label: "linux", state: "blocked", blockedBy: "suspended"},
		{id: 5, account: 3, at: at, label: "linux", state: "queued"},
		{id: 6, account: 3, at: at, label: "linx", state: "no_pool"},
		{id: 7, account: 3, at: at, label: "ubuntu-latest", state: "elsewhere"},
	} {
		got := q.shown(StoredJob{
			Job:  adminapi.Job{ID: c.id, State: "queued", BlockedBy: c.held, Labels: []string{c.label}},
			Lane: dispatch.LaneRef{LabelKey: dispatch.LabelKey([]string{c.label}), AccountID: c.account}, Place: dispatch.JobAge{ID: c.id, QueuedAt: c.at},
		})
		require.Equal(t, []string{c.state, c.blockedBy}, []string{got.State, got.BlockedBy}, c)
	}
}

// An account counts what pools count, and only jobs that wait for its limit are counted for the limit's platform.
func TestCount_JobsThatWaitForAnotherReasonAreNotOfTheLimit(t *testing.T) {
	account := adminapi.Account{Budgets: []adminapi.Budget{{Platform: "linux"}, {Platform: "macos"}}}
	count(&account, dispatch.LaneDemand{Platform: fleet.Linux, Queued: 3, Blocked: map[runnerapi.BlockedReason]int64{runnerapi.BlockedLimit: 4, runnerapi.BlockedRepository: 2}})
	count(&account, dispatch.LaneDemand{Platform: fleet.MacOS, Blocked: map[runnerapi.BlockedReason]int64{runnerapi.BlockedPaused: 1}})
	require.Equal(t, []int64{3, 7, 4, 0}, []int64{account.Queued, account.Blocked, account.Budgets[0].Blocked, account.Budgets[1].Blocked})
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
		got := served.shown(StoredJob{Job: adminapi.Job{State: string(c.state), BlockedBy: c.blockedBy, Conclusion: c.given, Labels: []string{"linux"}}})
		require.Equal(t, []string{c.shown, c.conclusion}, []string{got.State, got.Conclusion}, c.state)
		require.Contains(t, adminapi.JobStates(), got.State)
	}
}

func TestSelectJobs_NewAndFormerNames(t *testing.T) {
	for value, c := range map[string]struct {
		states []string
		keeps  []string // of queued jobs, by the state that is shown; nil: no filter
	}{
		"pending_approval": {[]string{"waiting"}, nil},
		"queued":           {[]string{"queued"}, []string{"queued"}},
		"blocked":          {[]string{"queued"}, []string{"blocked"}},
		"no_pool":          {[]string{"queued"}, []string{"no_pool"}},
		"elsewhere":        {[]string{"queued"}, []string{"elsewhere"}},
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
			for _, shown := range []string{"queued", "blocked", "no_pool", "elsewhere"} {
				if keep("queued", shown) {
					kept = append(kept, shown)
				}
			}
		}
		require.Equal(t, c.keeps, kept, value)
	}
	states, keep, err := selectJobs([]string{"blocked", "running"})
	require.NoError(t, err)
	require.Equal(t, []string{"queued", "executing"}, states)
	require.True(t, keep("executing", "running"))
	require.False(t, keep("queued", "queued"))

	for _, value := range []string{"", "lost", "Queued"} {
		_, _, err := selectJobs([]string{value})
		require.ErrorContains(t, err, "state must be one of pending_approval, queued, blocked, no_pool, elsewhere, assigned, running and completed", value)
	}
}

// Blocked jobs are found behind others, page after page, and a request reads a bounded number of jobs.
func TestPageOfJobs_BlockedOnesAreFoundBehindOthers(t *testing.T) {
	store := &shelf{}
	const total = (maxScannedPages + 1) * adminapi.MaxPage
	for id := int64(total); id > 0; id-- {
		job := StoredJob{Job: adminapi.Job{ID: id, State: string(fleet.JobQueued), Labels: []string{"linux"}}}
		if id == total-adminapi.MaxPage || id == 5 {
			job.BlockedBy = "label_sets"
		}
		store.jobs = append(store.jobs, job)
	}
	states, keep, err := selectJobs([]string{adminapi.JobBlocked})
	require.NoError(t, err)
	q := JobQuery{States: states, Most: 2}
	jobs, next, err := pageOfJobs(t.Context(), store, q, served.shown, keep)
	require.NoError(t, err)
	require.Len(t, jobs, 1)
	require.Equal(t, int64(total-adminapi.MaxPage), jobs[0].ID)
	require.Equal(t, maxScannedPages, store.reads)
	require.NotZero(t, next, "the rest is on the next page")

	q.Before = next
	jobs, next, err = pageOfJobs(t.Context(), store, q, served.shown, keep)
	require.NoError(t, err)
	require.Len(t, jobs, 1)
	require.Equal(t, int64(5), jobs[0].ID)
	require.Zero(t, next)

	q.Before, q.Most = 0, 1
	jobs, next, err = pageOfJobs(t.Context(), store, q, served.shown, keep)
	require.NoError(t, err)
	require.Equal(t, jobs[0].ID, next, "a full page ends with its last job")
}

// A search among blocked jobs reads one page of the search, keeps the blocked jobs of it, and says where the next one begins.
func TestPageOfJobs_ASearchReadsOnePage(t *testing.T) {
	store := &shelf{}
	for id := int64(3 * adminapi.MaxPage); id > 0; id-- {
		job := StoredJob{Job: adminapi.Job{ID: id, State: string(fleet.JobQueued), Labels: []string{"linux"}}}
		if id%adminapi.MaxPage == 0 {
			job.BlockedBy = "label_sets"
		}
		store.jobs = append(store.jobs, job)
	}
	states, keep, err := selectJobs([]string{adminapi.JobBlocked})
	require.NoError(t, err)
	jobs, next, err := pageOfJobs(t.Context(), store, JobQuery{States: states, Name: "build", Most: 2}, served.shown, keep)
	require.NoError(t, err)
	require.Equal(t, 1, store.searches)
	require.Zero(t, store.reads)
	require.Len(t, jobs, 1)
	require.Equal(t, int64(3*adminapi.MaxPage), jobs[0].ID)
	require.Equal(t, int64(2*adminapi.MaxPage+1), next)
}
