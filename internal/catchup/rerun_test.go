package catchup_test

import (
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/internal/catchup"
	"github.com/bullpen-ci/bullpen/internal/dispatch"
	"github.com/bullpen-ci/bullpen/internal/fleet"
	"github.com/bullpen-ci/bullpen/internal/github"
	"github.com/bullpen-ci/bullpen/internal/runnerpod"
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
	require.Contains(t, w.log.String(), "its node died under it")
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

func TestRerun_NeverTwiceAndNotInSomebodysStead(t *testing.T) {
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

	w.failed(3, 1, true)
	w.forge.run = func(id int64) (github.Run, error) {
		return github.Run{ID: id, Attempt: 2, Status: github.RunCompleted}, nil
	}
	require.Equal(t, []string{"run 9"}, w.reruns(), "somebody has run it again")
	w.clock.Advance(time.Hour)
	require.Empty(t, w.reruns())

	w.failed(4, 1, true)
	w.forge.run = func(int64) (github.Run, error) { return github.Run{}, fleet.ErrUncertain }
	require.Equal(t, []string{"run 9"}, w.reruns())
	require.Empty(t, w.reruns())
	w.clock.Advance(25 * time.Hour)
	require.Empty(t, w.reruns(), "what is that old is for people")
	require.Zero(t, w.counted(catchup.PassLostJobRerun))
}
