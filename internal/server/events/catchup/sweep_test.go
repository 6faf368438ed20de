package catchup_test

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/internal/dev/github/standin"
	"github.com/bullpen-ci/bullpen/internal/fleet"
	"github.com/bullpen-ci/bullpen/internal/github"
	"github.com/bullpen-ci/bullpen/internal/runnerpod"
	"github.com/bullpen-ci/bullpen/internal/server/dispatch"
	"github.com/bullpen-ci/bullpen/internal/server/events/catchup"
)

func (w *world) sweep() {
	w.t.Helper()
	require.NoError(w.t, w.c.Sweep(w.t.Context()))
}

// reported submits a job of each repository, which is what makes it swept.
func (w *world) reported(repositories ...string) {
	w.t.Helper()
	for _, repository := range repositories {
		before := w.attempts()
		_, ids := w.submit(repository, 1)
		w.settled(before + 1)
		require.Equal(w.t, fleet.JobQueued, w.state(ids[0]))
	}
}

// vanish submits a run whose webhooks leave no trace at all, and waits until they count as missed.
func (w *world) vanish(repository string, jobs int, labels ...string) (run int64, ids []int64) {
	w.t.Helper()
	w.fault(standin.Fault{Kind: "hook-vanish", Event: "workflow_job"})
	run, ids = w.submit(repository, jobs, labels...)
	require.NoError(w.t, w.in.Admin.RemoveFault(w.t.Context(), 0))
	w.clock.Advance(2 * time.Minute)
	return run, ids
}

func TestSweep_RECV8_AnUnreportedJobIsFound(t *testing.T) {
	w := newWorld(t, nil)
	w.reported("acme/app")
	_, ids := w.vanish("acme/app", 3)
	w.read()
	require.Equal(t, map[fleet.JobState]int{fleet.JobAbsent: 3}, w.states(ids), "it is in no list of deliveries")
	w.sweep()
	require.Equal(t, map[fleet.JobState]int{fleet.JobQueued: 3}, w.states(ids))
	require.Equal(t, 3, w.counted("queue_swept"), "RECV-9")
	w.forge.called()
	w.sweep()
	require.Empty(t, w.forge.called(), "once in a while is enough")
	w.clock.Advance(5 * time.Minute)
	w.sweep()
	require.Equal(t, 3, w.counted("queue_swept"))
}

func TestSweep_AJobThatHasEndedHereIsNotQueued(t *testing.T) {
	w := newWorld(t, nil)
	w.reported("acme/app")
	_, ids := w.vanish("acme/app", 1)
	job, err := w.forge.Job(t.Context(), 11, fleet.Repository{Name: "acme/app"}, ids[0])
	require.NoError(t, err)
	_, err = w.intake.Observe(t.Context(), dispatch.JobEvent{
		Kind: fleet.JobEventCompleted, Account: dispatch.Account{ID: 1, Login: "acme", InstallationID: 11}, JobID: job.ID,
		Repository: "acme/app", Labels: job.Labels, Conclusion: "success",
	}, w.clock.Now())
	require.NoError(t, err)
	w.sweep() // GitHub's list is late: it still shows the job as queued
	require.Equal(t, fleet.JobCompleted, w.state(ids[0]))
	require.Zero(t, w.counted("queue_swept"))
}

func TestSweep_OnlyWhatAPoolOfOursServes(t *testing.T) {
	terminating := false
	w := newWorld(t, func(o *catchup.Options) {
		o.Pools = func() []dispatch.Pool {
			return []dispatch.Pool{{Name: "p", Labels: []string{jobLabel}, Platform: fleet.Linux, Terminating: terminating}}
		}
	})
	w.reported("acme/app")
	_, foreign := w.vanish("acme/app", 1, "ubuntu-latest")
	w.sweep()
	require.Equal(t, fleet.JobAbsent, w.state(foreign[0]))
	terminating = true
	_, ids := w.vanish("acme/app", 1)
	w.clock.Advance(5 * time.Minute)
	w.sweep()
	require.Equal(t, fleet.JobAbsent, w.state(ids[0]))
	terminating = false
	w.clock.Advance(5 * time.Minute)
	w.sweep()
	require.Equal(t, fleet.JobQueued, w.state(ids[0]))
}

func TestSweep_AWebhookOnItsWayIsNotLost(t *testing.T) {
	w := newWorld(t, nil)
	w.reported("acme/app")
	w.fault(standin.Fault{Kind: "hook-vanish", Event: "workflow_job"})
	_, ids := w.submit("acme/app", 1)
	w.clock.Advance(-time.Minute) // back to GitHub's present
	w.sweep()
	require.Equal(t, fleet.JobAbsent, w.state(ids[0]))
	w.clock.Advance(7 * time.Minute)
	w.sweep()
	require.Equal(t, fleet.JobQueued, w.state(ids[0]))
}

// Other missed events show too: jobs that run on our runners or elsewhere, and jobs that have ended.
func TestSweep_RECV8_StartsAndEndsAreMadeGood(t *testing.T) {
	w := newWorld(t, nil)
	w.reported("acme/app")
	long := w.clock.Now().Add(-time.Hour)
	ours, err := runnerpod.RunnerName("0b9e0b9e-0000-4000-8000-000000000001", 1)
	require.NoError(t, err)
	job := func(id int64, status, conclusion, runner string) github.WorkflowJob {
		return github.WorkflowJob{
			ID: id, RunID: 5, Name: "x", Labels: []string{jobLabel}, Status: status, Conclusion: conclusion, RunnerName: runner,
			CreatedAt: long, StartedAt: long, CompletedAt: long,
		}
	}
	owner := dispatch.Account{ID: 1000, Login: "acme", InstallationID: 11}
	accounts, err := w.store.AccountsAfter(t.Context(), 0, 10)
	require.NoError(t, err)
	list, err := w.store.RepositoriesToSweep(t.Context(), w.clock.Now(), long, accounts, 10)
	require.NoError(t, err)
	owner.ID = list[0].Account.ID
	for id, kind := range map[int64]fleet.JobEvent{
		1: fleet.JobEventQueued, 2: fleet.JobEventWaiting, 3: fleet.JobEventQueued, 4: fleet.JobEventQueued, 7: fleet.JobEventStarted,
		11: fleet.JobEventQueued, 12: fleet.JobEventStarted,
	} {
		_, err := w.intake.Observe(t.Context(), dispatch.JobEvent{
			Kind: kind, Account: owner, JobID: id, Repository: "acme/app", RunID: 5, Labels: []string{jobLabel},
		}, w.clock.Now())
		require.NoError(t, err)
	}
	w.forge.runs = func(_, status string, _ int) ([]github.Run, int, error) {
		if status == github.RunQueued {
			return nil, 0, nil
		}
		return []github.Run{{ID: 5, Status: status, CreatedAt: long}}, 0, nil
	}
	onItsWay := func(id int64, status string) github.WorkflowJob { // and not missed yet
		young := job(id, status, "success", "somebody-elses")
		young.CreatedAt, young.StartedAt, young.CompletedAt = w.clock.Now(), w.clock.Now(), w.clock.Now()
		return young
	}
	w.forge.runJobs = func(int64) ([]github.WorkflowJob, int, error) {
		return []github.WorkflowJob{
			onItsWay(10, "queued"), onItsWay(11, "in_progress"), onItsWay(12, "completed"),
			job(1, "in_progress", "", "somebody-elses"), job(2, "queued", "", ""), job(3, "completed", "cancelled", ""),
			job(4, "queued", "", ""), job(5, "in_progress", "", "somebody-elses"), job(6, "completed", "success", ""),
			job(7, "in_progress", "", "somebody-elses"), job(8, "in_progress", "", ours), job(9, "nonsense", "", ""),
		}, 0, nil
	}
	w.sweep()
	want := map[int64]fleet.JobState{
		1: fleet.JobExecuting, 2: fleet.JobQueued, 3: fleet.JobCancelled, 4: fleet.JobQueued, 5: fleet.JobAbsent, 6: fleet.JobAbsent,
		7: fleet.JobExecuting, 8: fleet.JobExecuting, 9: fleet.JobAbsent,
		10: fleet.JobAbsent, 11: fleet.JobQueued, 12: fleet.JobExecuting,
	}
	for id, state := range want {
		require.Equal(t, state, w.state(id), "job %d", id)
	}
	require.Equal(t, 2, w.counted("unstarted_execution"))
	require.Equal(t, 1, w.counted("orphan_completed"))
	require.Equal(t, 1, w.counted("queue_swept"))
}

// A thousand repositories are swept over several runs, each within its share, and none twice before all were once.
func TestSweep_AThousandRepositoriesInTurn(t *testing.T) {
	w := newWorld(t, nil)
	accounts, err := w.store.AccountsAfter(t.Context(), 0, 10)
	require.NoError(t, err)
	list, err := w.store.RepositoriesToSweep(t.Context(), w.clock.Now(), time.Time{}, accounts, 10)
	require.NoError(t, err)
	require.Empty(t, list)
	const repositories = 1000
	owner := dispatch.Account{ID: 5, Login: "large", InstallationID: 77}
	for i := range repositories {
		_, err := w.intake.Observe(t.Context(), dispatch.JobEvent{
			Kind: fleet.JobEventCompleted, Account: owner, JobID: int64(1 + i), Repository: fmt.Sprintf("large/r%d", i),
			Labels: []string{jobLabel},
		}, w.clock.Now())
		require.NoError(t, err)
	}
	var mu sync.Mutex
	seen := map[string]int{}
	w.forge.runs = func(repository, status string, _ int) ([]github.Run, int, error) {
		mu.Lock()
		defer mu.Unlock()
		if status == github.RunInProgress {
			seen[repository]++
		}
		w.forge.rate.Remaining--
		return []github.Run{}, 0, nil
	}
	w.forge.rate = &fleet.RateState{Limit: 12_500, Remaining: 12_500, Reset: w.clock.Now().Add(time.Hour)}
	w.c = w.catchUp(nil)
	runs := 0
	for ; len(seen) < repositories; runs++ {
		w.forge.called()
		before := w.forge.rate.Remaining
		w.sweep()
		left := w.forge.rate.Reset.Sub(w.clock.Now()).Minutes()
		require.LessOrEqual(t, float64(before-w.forge.rate.Remaining), float64(before)/4/left+1, "a quarter of what is left, evenly")
		require.Less(t, runs, 60, "%d were swept", len(seen))
		for name, times := range seen {
			require.True(t, times == 1 || len(seen) == repositories, "%s was swept %d times before others were once", name, times)
		}
		w.clock.Advance(time.Minute)
	}
	t.Logf("%d repositories in %d minutes", repositories, runs)
}

// A share that is small does not stand between repositories at rest and their sweeps: that nothing has changed costs nothing.
func TestSweep_WhatHasNotChangedIsNoneOfTheShare(t *testing.T) {
	w := newWorld(t, nil)
	w.reported("acme/app", "acme/lib")
	runs, err := w.in.Admin.Runs(t.Context())
	require.NoError(t, err)
	for _, run := range runs {
		require.NoError(t, w.in.Admin.CancelRun(t.Context(), run.ID))
	}
	w.forge.rate = &fleet.RateState{Limit: 5000, Remaining: 740, Reset: w.clock.Now().Add(time.Hour)} // one a minute
	w.c = w.catchUp(nil)
	w.forge.called()
	for range 4 {
		w.sweep()
		require.Equal(t, 1, count(w.forge.called(), "runs acme/"), "what is new is paid for")
		w.clock.Advance(time.Minute)
	}
	w.clock.Advance(5 * time.Minute)
	w.forge.rate.Reset = w.clock.Now().Add(time.Hour)
	w.sweep()
	require.Equal(t, 4, count(w.forge.called(), "runs acme/"), "all of both repositories with one call to spend")
}

// A repository with more runs than a share allows is gone on with where the last sweep stopped.
func TestSweep_ALargeRepositoryIsGoneOnWith(t *testing.T) {
	w := newWorld(t, nil)
	w.reported("acme/app", "acme/lib")
	long := w.clock.Now().Add(-time.Hour)
	var order []int64
	w.forge.runs = func(repository, status string, page int) ([]github.Run, int, error) {
		if repository != "acme/app" || status != github.RunQueued {
			return []github.Run{}, 0, nil
		}
		var list []github.Run
		for i := range 20 {
			list = append(list, github.Run{ID: int64(100 - (page-1)*20 - i), CreatedAt: long})
		}
		next := page + 1
		if page == 4 {
			next = 0
		}
		return list, next, nil
	}
	w.forge.runJobs = func(run int64) ([]github.WorkflowJob, int, error) {
		order = append(order, run)
		return []github.WorkflowJob{}, 0, nil
	}
	w.forge.rate = &fleet.RateState{Limit: 5000, Remaining: 5000, Reset: w.clock.Now().Add(time.Hour)}
	w.c = w.catchUp(nil)
	for runs := 0; len(order) < 80; runs++ {
		require.Less(t, runs, 12)
		w.sweep()
		w.clock.Advance(time.Minute)
	}
	var want []int64
	for id := int64(100); id > 20; id-- {
		want = append(want, id)
	}
	require.Equal(t, want, order, "each run once, in order")
	w.sweep()
	require.Positive(t, count(w.forge.called(), "runs acme/lib"), "then it is the others' turn")
}

// A repository that cannot be read, or an installation that is limited, stands before no other.
func TestSweep_OnesTroubleIsNotTheOthers(t *testing.T) {
	w := newWorldOn(t, standin.Options{Installations: []standin.Installation{
		{ID: 11, Account: "acme", Repositories: []string{"app", "lib"}}, {ID: 12, Account: "else", Repositories: []string{"own"}},
	}}, nil)
	w.reported("acme/app", "acme/lib", "else/own")
	_, ids := w.vanish("else/own", 1)
	_, more := w.vanish("acme/lib", 1)
	w.forge.runs = func(repository, status string, page int) ([]github.Run, int, error) {
		if repository == "acme/app" {
			return nil, 0, fleet.ErrForbidden
		}
		installation := int64(11)
		if strings.HasPrefix(repository, "else/") {
			installation = 12
		}
		return w.forge.Client.Runs(t.Context(), installation, repository, status, page)
	}
	w.sweep()
	require.Equal(t, fleet.JobQueued, w.state(ids[0]))
	require.Equal(t, fleet.JobQueued, w.state(more[0]))
	w.forge.called()
	w.sweep()
	require.Empty(t, w.forge.called(), "what cannot be read has had its turn as well")
	w.clock.Advance(6 * time.Minute)
	w.sweep()
	calls := w.forge.called()
	require.Zero(t, count(calls, "runs acme/app"), "and comes again later than others: %v", calls)
	require.Positive(t, count(calls, "runs acme/lib"))

	real := w.forge.runs
	w.forge.runs = func(repository, status string, page int) ([]github.Run, int, error) {
		if strings.HasPrefix(repository, "acme/") {
			return nil, 0, &fleet.RateLimitedError{Resource: "core", Until: w.clock.Now().Add(time.Hour)}
		}
		return real(repository, status, page)
	}
	w.clock.Advance(2 * time.Hour)
	w.forge.called()
	w.sweep()
	calls = w.forge.called()
	require.Equal(t, 1, count(calls, "runs acme/"), "%v", calls)
	require.Equal(t, 2, count(calls, "runs else/"))
	w.forge.runs = real
	w.sweep()
	require.True(t, slices.Contains(w.forge.called(), "runs acme/lib queued 1"), "its turn is not used up")
}
