package standin_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/internal/dev/github/standin"
)

// A job whose runner is known to be dead fails at once, with the webhook. A job that is not running is left alone.
func TestLoseJob_FailsARunningJob(t *testing.T) {
	w := newWorld(t, nil)
	run := w.submit(oneJob)
	queued := w.jobs(run)[0].ID
	var refused *standin.AdminError
	require.ErrorAs(t, w.in.Admin.LoseJob(w.ctx, queued), &refused)
	require.Equal(t, http.StatusConflict, refused.Status, "it is queued")
	r := w.mint("worker", "self-hosted", "linux").start(w.clock.Now()).take()
	require.NoError(t, w.in.Admin.LoseJob(w.ctx, queued))
	job := w.jobs(run)[0]
	require.Equal(t, []string{"completed", "failure", "the runner was stopped"}, []string{job.Status, job.Conclusion, job.Reason})
	require.True(t, job.Lost)
	require.Equal(t, http.StatusNotFound, r.renew(), "its registration is gone")
	w.eventually(func() bool { return len(w.hooks.got("workflow_job", "completed")) > 0 }, "the webhook is sent")
	require.ErrorAs(t, w.in.Admin.LoseJob(w.ctx, queued), &refused)
	require.Equal(t, http.StatusConflict, refused.Status, "it has completed")
	require.ErrorAs(t, w.in.Admin.LoseJob(w.ctx, 1), &refused)
	require.Equal(t, http.StatusNotFound, refused.Status)
}
