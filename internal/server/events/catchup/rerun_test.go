package catchup_test

import (
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/internal/fleet"
	"github.com/bullpen-ci/bullpen/internal/github"
	"github.com/bullpen-ci/bullpen/internal/runnerpod"
	"github.com/bullpen-ci/bullpen/internal/server/dispatch"
	"github.com/bullpen-ci/bullpen/internal/server/events/catchup"
	"github.com/bullpen-ci/bullpen/test/kit/ledgertest"
)

// failed has a job run on a pod of ours and fail; its node died under it if lost.
func (w *world) failed(id, attempt int64, lost bool, change ...func(*dispatch.JobEvent)) {
	w.t.Helper()
	uid := uuid.NewString()
	runner, err := runnerpod.RunnerName(uid, 1)
	require.NoError(w.t, err)
	ev := dispatch.JobEvent{
		Account: someone, JobID: id, Repository: "someone/app", RunID: 9, RunAttempt: attempt, Name: "build", Labels: []string{jobLabel},
		RunnerName: runner, RunnerID: id,
	}
	which := ev
	for _, c := range change {
		c(&which)
	}
	ev.Name, ev.RunID = which.Name, which.RunID
	ev.Kind = fleet.JobEventStarted
	_, err = w.intake.Observe(w.t.Context(), ev, w.clock.Now())
	require.NoError(w.t, err)
	adopted, err := w.store.Adopt(w.t.Context(), dispatch.Adoption{
		RunnerName: runner, RunnerID: id, PodUID: uid, Account: someone, JobID: id, Scope: fleet.Scope{Owner: "someone"},
	}, dispatch.Pod{Namespace: "runners", Name: "p-" + uid, UID: uid}, dispatch.Pool{Name: "p", Platform: fleet.Linux}, w.clock.Now())
	require.NoError(w.t, err)
	require.True(w.t, adopted)
	w.clock.Advance(time.Minute)
	if lost {
		require.NoError(w.t, w.store.SessionsLost(w.t.Context(), []string{uid}, w.clock.Now()))
	}
	w.clock.Advance(time.Minute)
	ev.Kind, ev.Conclusion, ev.CompletedAt = fleet.JobEventCompleted, "failure", w.clock.Now()
	for _, c := range change {
		c(&ev)
	}
	_, err = w.intake.Observe(w.t.Context(), ev, w.clock.Now())
	require.NoError(w.t, err)
	require.NoError(w.t, w.store.SessionsLost(w.t.Context(), []string{uid}, w.clock.Now()), "too late: its job had ended")
}

func (w *world) reruns() []string {
	w.t.Helper()
	w.forge.called()
	require.NoError(w.t, w.c.Rerun(w.t.Context()))
	return w.forge.called()
}

func newRerunWorld(t *testing.T, most int) *world {
	w := newWorld(t, func(o *catchup.Options) { o.RerunLostJobs = most })
	w.forge.run = func(id int64) (github.Run, error) {
		return github.Run{ID: id, Attempt: 1, Status: github.RunCompleted}, nil
	}
	w.forge.rerun = func(int64) error { return nil }
	return w
}

func TestRerun_AJobWhoseNodeDiedIsRunAgainOnce(t *testing.T) {
	w := newRerunWorld(t, 1)
	w.failed(1, 1, true)
	w.failed(2, 1, false) // of its own
	w.failed(3, 1, true, func(ev *dispatch.JobEvent) { ev.Conclusion = "success" })
	w.failed(4, 1, true, func(ev *dispatch.JobEvent) { ev.Kind, ev.Conclusion = fleet.JobEventCancelled, "cancelled" })
	w.failed(5, 1, true, func(ev *dispatch.JobEvent) { ev.RunnerName = "another" }) // it failed elsewhere, later
	w.forge.run = func(id int64) (github.Run, error) {
		return github.Run{ID: id, Attempt: 1, Status: github.RunInProgress}, nil
	}
	require.Equal(t, []string{"run 9"}, w.reruns(), "GitHub runs nothing again before the run has completed")
	require.Empty(t, w.reruns(), "and is not asked all the time")
	w.clock.Advance(time.Minute)
	w.forge.run = func(id int64) (github.Run, error) {
		return github.Run{ID: id, Attempt: 1, Status: github.RunCompleted}, nil
	}
	require.Equal(t, []string{"run 9", "rerun 1"}, w.reruns())
	require.Equal(t, 1, w.counted(catchup.PassLostJobRerun))
	require.Contains(t, w.log.String(), "a job whose node died")
	for range 5 {
		w.clock.Advance(time.Hour)
		require.Empty(t, w.reruns())
	}
}

func TestRerun_ALineageHasItsNumberOfReruns(t *testing.T) {
	w := newRerunWorld(t, 2)
	var attempt int64
	w.forge.run = func(id int64) (github.Run, error) {
		return github.Run{ID: id, Attempt: attempt, Status: github.RunCompleted}, nil
	}
	var asked int
	for attempt = 1; attempt <= 4; attempt++ {
		w.failed(attempt, attempt, true)
		asked += count(w.reruns(), "rerun")
		w.clock.Advance(time.Hour)
	}
	require.Equal(t, 2, asked)
	require.Contains(t, w.log.String(), "has had its re-runs")
}

func TestRerun_NeverTwiceAndNotInAUsersStead(t *testing.T) {
	w := newRerunWorld(t, 5)
	w.failed(1, 1, true)
	w.forge.rerun = func(int64) error { return &fleet.RateLimitedError{Until: w.clock.Now().Add(10 * time.Minute)} }
	require.Equal(t, []string{"run 9", "rerun 1"}, w.reruns())
	require.Empty(t, w.reruns())
	w.clock.Advance(10 * time.Minute)
	w.forge.rerun = func(int64) error { return fleet.ErrUncertain }
	require.Equal(t, []string{"run 9", "rerun 1"}, w.reruns(), "a limit refuses before anything is done")
	w.clock.Advance(time.Hour)
	require.Empty(t, w.reruns(), "it may have been done")

	w.failed(2, 1, true)
	w.forge.rerun = func(int64) error { return fleet.ErrForbidden }
	require.Equal(t, []string{"run 9", "rerun 2"}, w.reruns())
	require.Contains(t, w.log.String(), "permission to write Actions")
	w.clock.Advance(time.Hour)
	require.Empty(t, w.reruns())

	w.failed(3, 1, true, func(ev *dispatch.JobEvent) { ev.RunID = 10 })
	w.forge.run = func(id int64) (github.Run, error) {
		return github.Run{ID: id, Attempt: 2, Status: github.RunCompleted}, nil
	}
	require.Equal(t, []string{"run 10"}, w.reruns(), "somebody has run it again")
	w.clock.Advance(time.Hour)
	require.Empty(t, w.reruns())

	w.failed(4, 1, true, func(ev *dispatch.JobEvent) { ev.RunID = 11 })
	w.forge.run = func(int64) (github.Run, error) { return github.Run{}, fleet.ErrUncertain }
	require.Equal(t, []string{"run 11"}, w.reruns())
	require.Empty(t, w.reruns())
	w.clock.Advance(25 * time.Hour)
	require.Empty(t, w.reruns(), "what is that old is for people")
	require.Zero(t, w.counted(catchup.PassLostJobRerun))
}

func named(name string) func(*dispatch.JobEvent) {
	return func(ev *dispatch.JobEvent) { ev.Name = name }
}

// A run that lost several jobs gets all of them back: GitHub takes one that is run again alone for another attempt, and
// the remaining ones for an earlier one's.
func TestRerun_AllThatARunLostComesBack(t *testing.T) {
	w := newRerunWorld(t, 1)
	for id, name := range []string{"", "a", "b", "c"} {
		if id > 0 {
			w.failed(int64(id), 1, true, named(name))
		}
	}
	require.Equal(t, []string{"run 9", "rerun failed of 9"}, w.reruns())
	require.Equal(t, 3, w.counted(catchup.PassLostJobRerun))
	w.clock.Advance(time.Hour)
	require.Empty(t, w.reruns())
	for id, name := range []string{"a", "b"} { // in the new attempt, too
		w.failed(int64(11+id), 2, true, named(name))
	}
	w.forge.run = func(id int64) (github.Run, error) {
		return github.Run{ID: id, Attempt: 2, Status: github.RunCompleted}, nil
	}
	require.Equal(t, []string{"run 9"}, w.reruns(), "each has had its re-run")
	require.Contains(t, w.log.String(), "has had its re-runs")
}

// A job whose loss GitHub reports late is not mistaken for one that a user has run again after the others were.
func TestRerun_OneThatIsReportedLateComesBackToo(t *testing.T) {
	w := newRerunWorld(t, 1)
	var runner string
	w.failed(1, 1, true, named("a"))
	require.Equal(t, []string{"run 9", "rerun 1"}, w.reruns())
	w.failed(2, 1, true, named("b"), func(ev *dispatch.JobEvent) { runner = ev.RunnerName })
	w.failed(3, 1, true, named("c"))
	status := github.RunInProgress
	w.forge.run = func(id int64) (github.Run, error) { return github.Run{ID: id, Attempt: 2, Status: status}, nil }
	require.Equal(t, []string{"run 9"}, w.reruns())
	w.clock.Advance(time.Minute)
	status = github.RunCompleted
	w.forge.runJobs = func(int64) ([]github.WorkflowJob, int, error) {
		return []github.WorkflowJob{
			{ID: 11, Name: "a", Status: github.JobCompleted, Conclusion: "success", RunnerName: "another"},
			{ID: 22, Name: "b", Status: github.JobCompleted, Conclusion: "failure", RunnerName: runner},
			{ID: 33, Name: "c", Status: github.JobCompleted, Conclusion: "failure", RunnerName: "another"}, // it was run again
		}, 0, nil
	}
	require.Equal(t, []string{"run 9", "jobs of someone/app 9", "rerun 22"}, w.reruns(), "by the id of the latest attempt")
	w.clock.Advance(time.Hour)
	require.Empty(t, w.reruns())
	require.Equal(t, 2, w.counted(catchup.PassLostJobRerun))
}

// A job whose pod was lost and that still runs here, while its run has completed, is waited for.
func TestRerun_WaitsForWhatIsStillToBeReported(t *testing.T) {
	w := newRerunWorld(t, 1)
	w.failed(1, 1, true, named("a"))
	w.failed(2, 1, true, named("b"))
	ledgertest.Exec(t, w.url, `UPDATE workflow_jobs SET state = 'executing', completed_at = NULL WHERE id = 2`)
	require.Equal(t, []string{"run 9"}, w.reruns())
	ledgertest.Exec(t, w.url, `UPDATE workflow_jobs SET state = 'completed', completed_at = updated_at WHERE id = 2`)
	w.clock.Advance(time.Minute)
	require.Equal(t, []string{"run 9", "rerun failed of 9"}, w.reruns())
}

// RECV-6: one that has had its re-runs is not run again for the sake of the others; they come back one after the other.
func TestRerun_RECV6_TheBoundOfOneHoldsBesideTheOthers(t *testing.T) {
	w := newRerunWorld(t, 1)
	w.failed(1, 1, true, named("a"))
	require.Equal(t, []string{"run 9", "rerun 1"}, w.reruns())
	runners := map[int64]string{}
	for id, name := range map[int64]string{11: "a", 12: "b", 13: "c"} {
		w.failed(id, 2, true, named(name), func(ev *dispatch.JobEvent) { runners[id] = ev.RunnerName })
	}
	attempt := int64(2)
	w.forge.run = func(id int64) (github.Run, error) {
		return github.Run{ID: id, Attempt: attempt, Status: github.RunCompleted}, nil
	}
	first := w.reruns()
	require.Len(t, first, 2)
	require.Contains(t, []string{"rerun 12", "rerun 13"}, first[1])
	attempt = 3
	w.clock.Advance(time.Minute)
	w.forge.runJobs = func(int64) (jobs []github.WorkflowJob, _ int, _ error) {
		for id, name := range map[int64]string{12: "b", 13: "c"} {
			jobs = append(jobs, github.WorkflowJob{ID: id, Name: name, Status: github.JobCompleted, Conclusion: "failure", RunnerName: runners[id]})
		}
		return jobs, 0, nil
	}
	second := w.reruns()
	require.Len(t, second, 3)
	require.NotEqual(t, first[1], second[2])
	require.Contains(t, []string{"rerun 12", "rerun 13"}, second[2])
}
