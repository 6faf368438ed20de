package standin_test

import (
	"encoding/json"
	"net/http"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/internal/dev/github/standin"
)

func mustJSON(t testing.TB, value any) string {
	t.Helper()
	data, err := json.Marshal(value)
	require.NoError(t, err)
	return string(data)
}

func (w *world) ledger() standin.Ledger {
	w.t.Helper()
	ledger, err := w.in.Admin.Ledger(w.ctx)
	require.NoError(w.t, err)
	return ledger
}

func TestLedger_TellsEveryRunnerAndSurvivesARestart(t *testing.T) {
	file := filepath.Join(t.TempDir(), "state.json")
	w := newWorld(t, func(o *standin.Options) { o.StateFile = file })
	w.fault(standin.Fault{Kind: standin.FaultHookVanish, Action: "completed"})
	run := w.submit(oneJob)
	w.mint("silent", "self-hosted", "linux").start(w.clock.Now())
	w.clock.Advance(61 * time.Second) // it never acquires, and is offline then
	w.in.Tick()
	r := w.mint("worker", "self-hosted", "linux").start(w.clock.Now()).take()
	w.clock.Advance(11 * time.Minute) // it falls silent in the middle
	w.in.Tick()
	require.Equal(t, http.StatusNotFound, r.renew())
	w.eventually(func() bool { return len(w.deliveries()) == 4 }, "two installations, queued, in_progress")

	check := func(l standin.Ledger) {
		require.Len(t, l.Jobs, 1)
		j := l.Jobs[0]
		require.Equal(t, run.ID, j.RunID)
		require.Equal(t, 1, j.Requeues)
		require.True(t, j.VanishedMidJob)
		require.Len(t, j.Given, 2)
		require.Equal(t, "silent", j.Given[0].Runner)
		require.Equal(t, "not acquired in time", j.Given[0].End)
		require.Nil(t, j.Given[0].AcquiredAt)
		require.Equal(t, "worker", j.Given[1].Runner)
		require.Equal(t, "runner lost", j.Given[1].End)
		require.NotNil(t, j.Given[1].AcquiredAt)
		require.WithinDuration(t, *j.CompletedAt, *j.Given[1].EndedAt, 0)
		require.Len(t, l.Runners, 2)
		require.Equal(t, []int64{j.ID}, l.Runners[0].Given)
		require.Empty(t, l.Runners[0].Ran)
		require.Nil(t, l.Runners[0].RemovedAt)
		require.Equal(t, 1, l.Runners[0].Sessions)
		require.Equal(t, []int64{j.ID}, l.Runners[1].Ran)
		require.Equal(t, "its one job ended", l.Runners[1].RemovedBy)
		require.Len(t, l.Deliveries, 5)
		require.Equal(t, []standin.FaultKind{standin.FaultHookVanish}, l.Deliveries[4].Faults)
	}
	check(w.ledger())
	w.in.Close()
	after := newWorld(t, func(o *standin.Options) { o.StateFile, o.Now = file, w.clock.Now })
	check(after.ledger())
	require.Len(t, must2(after.in.Admin.Faults(after.ctx)), 1, "faults stay in force")
	after.submit(oneJob)
	after.eventually(func() bool { return len(after.hooks.got("workflow_job", "queued")) == 1 }, "webhooks go out")
	require.Len(t, after.hooks.got("workflow_job", ""), 1, "what vanished stays so")
	require.Nil(t, after.ledger().Deliveries[4].DeliveredAt)
}

func must2[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

func TestSubmission_RulesStrikeItsOwnRunsAlone(t *testing.T) {
	w := newWorld(t, nil)
	w.submit(oneJob)
	runs, err := w.in.Admin.Submit(w.ctx, standin.Submission{
		FileName: "ci.yaml", Content: pipeline, Repo: "acme/app", Count: 2,
		Faults: []standin.Fault{{Kind: standin.FaultHookDrop, Action: "queued", Job: "build", Times: 1}},
	})
	require.NoError(t, err)
	require.Len(t, runs, 2)
	dropped := func() (ids []int64) {
		for _, d := range w.deliveries() {
			if d.StatusCode == http.StatusBadGateway {
				ids = append(ids, d.JobID)
			}
		}
		return ids
	}
	w.eventually(func() bool { return len(w.deliveries()) == 5 }, "all listed")
	require.ElementsMatch(t, []int64{w.job(runs[0], "build").ID, w.job(runs[1], "build").ID}, dropped(), "each run has its own count")
	require.Len(t, must2(w.in.Admin.Faults(w.ctx)), 2)
	require.NoError(t, w.in.Admin.CancelRun(w.ctx, runs[0].ID))
	require.Len(t, must2(w.in.Admin.Faults(w.ctx)), 1, "a rule ends with its run")

	_, err = w.in.Admin.Submit(w.ctx, standin.Submission{
		FileName: "ci.yaml", Content: oneJob, Repo: "acme/app", Faults: []standin.Fault{{Kind: standin.FaultRateEmpty}},
	})
	require.ErrorContains(t, err, "rate-empty", "no call counts against a run")
}

func TestInstallations_SuspendedDeletedAndBack(t *testing.T) {
	w := newWorld(t, nil)
	w.eventually(func() bool { return len(w.hooks.got("installation", "created")) == 2 }, "announced")
	r := w.mint("a", "self-hosted", "linux").start(w.clock.Now())
	require.NoError(t, w.in.Admin.Suspend(w.ctx, 11))
	require.Error(t, w.in.Admin.Suspend(w.ctx, 11))
	w.eventually(func() bool { return len(w.hooks.got("installation", "suspend")) == 1 }, "suspend")
	code, err := w.listed()
	require.Error(t, err)
	require.Equal(t, http.StatusForbidden, code)
	_, response, err := w.app.Apps.CreateInstallationToken(w.ctx, 11, nil)
	require.Error(t, err)
	require.Equal(t, http.StatusForbidden, statusOf(response))
	require.False(t, must(w.app.Apps.GetInstallation(w.ctx, 11)).GetSuspendedAt().IsZero())
	run := w.submit(oneJob)
	r.take()
	require.Equal(t, "in_progress", w.job(run, "build").Status, "runners and jobs go on")

	require.NoError(t, w.in.Admin.Unsuspend(w.ctx, 11))
	w.eventually(func() bool { return len(w.hooks.got("installation", "unsuspend")) == 1 }, "unsuspend")
	_, err = w.listed()
	require.NoError(t, err)
	require.Empty(t, w.hooks.got("workflow_job", ""), "events in the meantime are not delivered")

	require.NoError(t, w.in.Admin.Uninstall(w.ctx, 11))
	w.eventually(func() bool { return len(w.hooks.got("installation", "deleted")) == 1 }, "deleted")
	code, err = w.listed()
	require.Error(t, err)
	require.Equal(t, http.StatusUnauthorized, code)
	_, response, err = w.app.Apps.GetInstallation(w.ctx, 11)
	require.Error(t, err)
	require.Equal(t, http.StatusNotFound, statusOf(response))
	_, response, err = w.app.Apps.GetOrganizationInstallation(w.ctx, "acme")
	require.Error(t, err)
	require.Equal(t, http.StatusNotFound, statusOf(response))
	require.Len(t, must(w.app.Apps.ListInstallations(w.ctx, nil)), 1)
	require.Equal(t, http.StatusOK, r.complete("succeeded", nil))

	back, err := w.in.Admin.Install(w.ctx, standin.Installation{Account: "acme"})
	require.NoError(t, err)
	require.NotEqual(t, int64(11), back.ID)
	require.Equal(t, []string{"app", "lib"}, back.Repositories)
	require.Equal(t, back.ID, must(w.app.Apps.GetOrganizationInstallation(w.ctx, "acme")).GetID())
	w.eventually(func() bool { return len(w.hooks.got("installation", "created")) == 3 }, "created again")
	w.submit(oneJob)
	w.eventually(func() bool { return len(w.hooks.got("workflow_job", "queued")) == 1 }, "heard again")
	require.Equal(t, back.ID, w.hooks.got("workflow_job", "queued")[0].Job.GetInstallation().GetID())
}

func TestInstallations_UninstalledStaysSoAfterARestart(t *testing.T) {
	file := filepath.Join(t.TempDir(), "state.json")
	w := newWorld(t, func(o *standin.Options) { o.StateFile = file })
	w.submit(oneJob)
	require.NoError(t, w.in.Admin.Uninstall(w.ctx, 11))
	require.NoError(t, w.in.Admin.Suspend(w.ctx, 12))
	w.in.Close()
	after := newWorld(t, func(o *standin.Options) { o.StateFile = file })
	installed := must2(after.in.Admin.Installations(after.ctx))
	require.Len(t, installed, 1)
	require.True(t, installed[0].Suspended)
	require.Len(t, after.in.Jobs(), 1, "its jobs are still known")
}
