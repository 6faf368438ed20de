package catchup_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/internal/dev/github/standin"
	"github.com/bullpen-ci/bullpen/internal/fleet"
	"github.com/bullpen-ci/bullpen/internal/github"
	"github.com/bullpen-ci/bullpen/internal/server/dispatch"
	"github.com/bullpen-ci/bullpen/internal/server/events/catchup"
	"github.com/bullpen-ci/bullpen/internal/server/periodic/retention"
	"github.com/bullpen-ci/bullpen/internal/server/recovery"
	"github.com/bullpen-ci/bullpen/test/kit/ledgertest"
)

func (w *world) queued() {
	w.t.Helper()
	require.NoError(w.t, w.c.Queued(w.t.Context()))
}

// job records an event of a job that GitHub need not know.
func (w *world) job(kind fleet.JobEvent, id int64, owner dispatch.Account) {
	w.t.Helper()
	_, err := w.intake.Observe(w.t.Context(), dispatch.JobEvent{
		Kind: kind, Account: owner, JobID: id, Repository: owner.Login + "/app", RunID: 1, Name: "x", Labels: []string{jobLabel},
		QueuedAt: w.clock.Now(),
	}, w.clock.Now())
	require.NoError(w.t, err)
}

var someone = dispatch.Account{ID: 5, Login: "someone", InstallationID: 55}

func TestQueued_RECV7_AJobThatEndedUnheardIsCompleted(t *testing.T) {
	w := newWorld(t, nil)
	before := w.attempts()
	run, ids := w.submit("acme/app", 2)
	w.settled(before + 2)
	w.fault(standin.Fault{Kind: "hook-vanish", Event: "workflow_job"})
	require.NoError(t, w.in.CancelRun(run))
	w.clock.Advance(50 * time.Minute)
	w.queued()
	require.Empty(t, w.forge.called(), "not asked before its time")
	w.clock.Advance(20 * time.Minute)
	w.queued()
	require.Equal(t, map[fleet.JobState]int{fleet.JobCancelled: 2}, w.states(ids))
	require.Equal(t, 2, w.counted("queued_reaped"))
}

func TestQueued_AnAnswerForEachOfGitHubsWords(t *testing.T) {
	w := newWorld(t, nil)
	answers := map[int64]github.WorkflowJob{
		1: {Status: "queued"}, 2: {Status: "in_progress", RunnerName: "somebody-elses"}, 3: {Status: "completed", Conclusion: "success"},
		4: {Status: "queued"}, 5: {Status: "waiting"}, 6: {Status: "a new word"},
	}
	for id := int64(1); id <= 6; id++ {
		w.job(fleet.JobEventQueued, id, someone)
	}
	for id := int64(14); id <= 15; id++ { // those that wait
		w.job(fleet.JobEventWaiting, id, someone)
	}
	w.forge.job = func(id int64) (github.WorkflowJob, error) {
		job := answers[id%10]
		job.ID, job.Labels = id, []string{jobLabel}
		return job, nil
	}
	w.clock.Advance(time.Hour)
	w.queued()
	for id, want := range map[int64]fleet.JobState{
		1: fleet.JobQueued, 2: fleet.JobExecuting, 3: fleet.JobCompleted, 4: fleet.JobQueued, 5: fleet.JobQueued, 6: fleet.JobQueued,
		14: fleet.JobQueued, 15: fleet.JobWaiting,
	} {
		require.Equal(t, want, w.state(id), "job %d", id)
	}
	require.Equal(t, 1, w.counted("queued_reaped"))
	require.Equal(t, 1, w.counted("unstarted_execution"))
	require.Equal(t, 1, w.counted("queue_swept"), "the one that no longer waits")
	w.forge.called()
	w.queued()
	require.Empty(t, w.forge.called(), "asked once an hour")
}

// A job that is not found is gone only if its repository can be read just then.
func TestQueued_EXCL6_NotFoundCountsOnlyBesideAControlRead(t *testing.T) {
	w := newWorld(t, nil)
	w.job(fleet.JobEventQueued, 1, someone)
	w.forge.job = func(int64) (github.WorkflowJob, error) { return github.WorkflowJob{}, fleet.ErrNotFound }
	w.forge.readRuns = func() error { return fleet.ErrNotFound }
	w.clock.Advance(time.Hour)
	w.queued()
	require.Equal(t, fleet.JobQueued, w.state(1))
	w.forge.readRuns = func() error { return nil }
	w.clock.Advance(time.Hour)
	w.queued()
	require.Equal(t, fleet.JobCancelled, w.state(1))
	require.Equal(t, 1, w.counted("queued_reaped"))
}

// Every waiting job ends, also if GitHub can never be asked about it, and whether it is queued or waits.
func TestQueued_RECV7_EveryJobEnds(t *testing.T) {
	w := newWorld(t, nil)
	uninstalled := dispatch.Account{ID: 6, Login: "gone", InstallationID: 66}
	w.job(fleet.JobEventQueued, 1, someone)
	w.job(fleet.JobEventWaiting, 2, someone)
	w.job(fleet.JobEventQueued, 3, uninstalled)
	w.job(fleet.JobEventWaiting, 4, uninstalled)
	_, err := w.store.RecordInstallation(t.Context(), dispatch.Delivery{GUID: "x", Event: "installation", At: w.clock.Now()},
		dispatch.Installation{Action: "deleted", Account: uninstalled})
	require.NoError(t, err)
	w.forge.job = func(int64) (github.WorkflowJob, error) { return github.WorkflowJob{}, fleet.ErrForbidden }
	ids := []int64{1, 2, 3, 4}
	for range 23 {
		w.clock.Advance(time.Hour)
		w.queued()
		require.Zero(t, w.states(ids)[fleet.JobStale])
	}
	w.clock.Advance(time.Hour)
	w.queued()
	require.Equal(t, map[fleet.JobState]int{fleet.JobStale: 4}, w.states(ids))
	require.Equal(t, 4, w.counted("queued_reaped"))
	// CLAIM-4: it stays so.
	w.job(fleet.JobEventQueued, 1, someone)
	require.Equal(t, fleet.JobStale, w.state(1))
}

// TEN-2: jobs that are given up leave nothing behind, though no batch ever reads their lanes: no pool serves them, and their account has
// uninstalled the App.
func TestQueued_TEN2_LanesOfStaleJobsGo(t *testing.T) {
	w := newWorld(t, nil)
	gone := dispatch.Account{ID: 6, Login: "gone", InstallationID: 66}
	for id := int64(1); id <= 20; id++ {
		_, err := w.intake.Observe(t.Context(), dispatch.JobEvent{
			Kind: fleet.JobEventQueued, Account: gone, JobID: id, Repository: "gone/app", RunID: 1, Name: "x",
			Labels: []string{fmt.Sprintf("run-%d", id)}, QueuedAt: w.clock.Now(),
		}, w.clock.Now())
		require.NoError(t, err)
	}
	_, err := w.store.RecordInstallation(t.Context(), dispatch.Delivery{GUID: "x", Event: "installation", At: w.clock.Now()},
		dispatch.Installation{Action: "deleted", Account: gone})
	require.NoError(t, err)
	w.clock.Advance(25 * time.Hour)
	w.queued()
	require.EqualValues(t, 20, ledgertest.Int(t, w.url, "SELECT count(*) FROM workflow_jobs WHERE state = 'stale'"))
	require.EqualValues(t, 20, ledgertest.Int(t, w.url, "SELECT count(*) FROM job_lanes WHERE parked = 'empty'"), "at once")

	pass, err := retention.New(retention.Options{Store: w.store, Now: w.clock.Now})
	require.NoError(t, err)
	w.clock.Advance(time.Hour)
	require.NoError(t, pass.Run(t.Context()))
	require.Zero(t, ledgertest.Int(t, w.url, "SELECT count(*) FROM job_lanes"))
	w.clock.Advance(32 * 24 * time.Hour)
	require.NoError(t, pass.Run(t.Context()))
	require.Zero(t, ledgertest.Int(t, w.url, "SELECT count(*) FROM label_sets"))
}

// A job that was never asked about, because the server was away, is asked about before it is given up.
func TestQueued_RECV7_AfterAnOutageGitHubIsAskedFirst(t *testing.T) {
	w := newWorld(t, nil)
	w.job(fleet.JobEventQueued, 1, someone)
	w.job(fleet.JobEventQueued, 2, someone)
	w.forge.rate = &fleet.RateState{Limit: 100, Remaining: 5, Reset: w.clock.Now().Add(100 * time.Hour)}
	w.clock.Advance(24*time.Hour + 30*time.Minute)
	w.c = w.catchUp(nil)
	w.queued() // but nothing may be asked just now
	require.Equal(t, map[fleet.JobState]int{fleet.JobQueued: 2}, w.states([]int64{1, 2}))
	w.forge.rate = nil
	w.forge.job = func(id int64) (github.WorkflowJob, error) {
		if id == 1 {
			return github.WorkflowJob{ID: 1, Status: "completed", Conclusion: "success", Labels: []string{jobLabel}}, nil
		}
		return github.WorkflowJob{}, fleet.ErrUncertain
	}
	w.clock.Advance(time.Minute)
	w.queued()
	require.Equal(t, fleet.JobCompleted, w.state(1))
	require.Equal(t, fleet.JobStale, w.state(2))
}

// GitHub holds a job for approval for weeks: it is not given up as long as GitHub says so, and it can still run then.
func TestQueued_RECV7_WhatRightlyWaitsIsKept(t *testing.T) {
	w := newWorld(t, nil)
	w.job(fleet.JobEventWaiting, 1, someone)
	confirmed := true
	w.forge.job = func(int64) (github.WorkflowJob, error) {
		if !confirmed {
			return github.WorkflowJob{}, fleet.ErrUncertain
		}
		return github.WorkflowJob{ID: 1, Status: "waiting"}, nil
	}
	for range 60 {
		w.clock.Advance(time.Hour)
		w.queued()
	}
	require.Equal(t, fleet.JobWaiting, w.state(1))
	w.job(fleet.JobEventQueued, 1, someone) // approved on the third day
	w.queued()
	require.Equal(t, fleet.JobQueued, w.state(1), "its day in the queue begins now")

	w.job(fleet.JobEventWaiting, 2, someone)
	confirmed = false
	for range 25 {
		w.clock.Advance(time.Hour)
		w.queued()
	}
	require.Equal(t, fleet.JobStale, w.state(2))
}

// Unanswerable jobs do not block the rest, and an account at its limit does not block another.
func TestQueued_NoJobBlocksTheRest(t *testing.T) {
	w := newWorld(t, nil)
	other := dispatch.Account{ID: 6, Login: "other", InstallationID: 66}
	const stuck = 500 // more than is read at a time, and older
	for id := range int64(stuck) {
		w.job(fleet.JobEventQueued, 1000+id, someone)
	}
	w.clock.Advance(time.Second)
	w.job(fleet.JobEventQueued, 1, someone)
	w.job(fleet.JobEventQueued, 2, other)
	w.clock.Advance(time.Hour)
	// Five questions a minute: an hour is not enough for all, and then the first may be asked about again.
	w.forge.rate = &fleet.RateState{Limit: 1334, Remaining: 1334}
	minute := func() {
		w.forge.rate.Reset = w.clock.Now().Add(time.Hour)
		w.queued()
		w.clock.Advance(time.Minute)
	}
	w.forge.job = func(id int64) (github.WorkflowJob, error) {
		if id >= 1000 {
			return github.WorkflowJob{}, fleet.ErrForbidden
		}
		return github.WorkflowJob{ID: id, Status: "completed", Conclusion: "success", Labels: []string{jobLabel}}, nil
	}
	w.c = w.catchUp(nil)
	w.forge.called()
	minute()
	require.Equal(t, fleet.JobCompleted, w.state(2), "at once")
	require.Equal(t, 6, count(w.forge.called(), "job"))
	minutes := 1
	for ; w.state(1) == fleet.JobQueued; minutes++ {
		require.Less(t, minutes, 110)
		minute()
	}
	require.Greater(t, minutes, 90, "or the share was not kept")
}

// GitHub's silence is not taken for an answer, and not waited for job after job.
func TestQueued_WithoutGitHubOneQuestionAnAccount(t *testing.T) {
	w := newWorld(t, nil)
	for id := range int64(5) {
		w.job(fleet.JobEventQueued, 1+id, someone)
	}
	w.clock.Advance(time.Hour)
	w.forge.job = func(int64) (github.WorkflowJob, error) { return github.WorkflowJob{}, fleet.ErrUncertain }
	w.queued()
	require.Equal(t, 1, count(w.forge.called(), "job"))
	require.Contains(t, w.log.String(), "cannot say")
	w.forge.job = func(int64) (github.WorkflowJob, error) {
		return github.WorkflowJob{}, &fleet.RateLimitedError{Until: w.clock.Now().Add(time.Hour)}
	}
	w.queued()
	require.Equal(t, []string{"job 2"}, w.forge.called())
	w.queued()
	require.Equal(t, []string{"job 2"}, w.forge.called(), "it was not answered, so it is still its turn")
}

func TestNew_SaysWhatIsWrong(t *testing.T) {
	w := newWorld(t, nil)
	for flag, change := range map[string]func(*catchup.Options){
		"--catch-up-every":     func(o *catchup.Options) { o.Every = time.Millisecond },
		"--queued-ask-after":   func(o *catchup.Options) { o.AskAfter = time.Second },
		"--queued-stale-after": func(o *catchup.Options) { o.StaleAfter = time.Hour },
		"--rerun-lost-jobs":    func(o *catchup.Options) { o.RerunLostJobs = 11 },
		"a ledger":             func(o *catchup.Options) { o.Ledger = nil },
	} {
		options := catchup.Options{
			Ledger: w.store, Forge: w.forge, Intake: w.intake, Pools: func() []dispatch.Pool { return nil }, Count: func(recovery.Kind) {},
		}
		change(&options)
		_, err := catchup.New(options)
		require.ErrorContains(t, err, flag)
		require.False(t, strings.Contains(err.Error(), "\n"))
	}
	names := func(change func(*catchup.Options)) (names []string) {
		for _, pass := range w.catchUp(change).Passes() {
			names = append(names, pass.Name)
		}
		return names
	}
	require.Equal(t, []string{"redelivered", "queue_swept", "queued_reaped"}, names(nil))
	require.Equal(t, []string{"deliveries_polled", "queue_swept", "queued_reaped", "lost_job_rerun"}, names(func(o *catchup.Options) {
		o.Poll, o.RerunLostJobs = true, 1
	}))
	require.Empty(t, names(func(o *catchup.Options) { o.Off = recovery.Kind.OfTheQueue }), "each can be switched off")
}
