package incidents

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/internal/dev/github/standin"
	"github.com/bullpen-ci/bullpen/internal/fleet"
	"github.com/bullpen-ci/bullpen/internal/github"
	"github.com/bullpen-ci/bullpen/test/kit/ledgertest"
)

// endedUnannounced lets a job run and end whose queueing was never reported: a runner that was minted for another job
// takes it, as it is older. The other job runs afterwards.
func endedUnannounced(t *testing.T, w *world) int64 {
	t.Helper()
	unannounced := w.submit("acme", "linux", 1)
	announced := w.submit("acme", "linux", 1).known()
	w.add("linux")
	w.eventually("the older one runs", func() bool { return w.state(unannounced.jobs[0]) == fleet.JobExecuting })
	w.add("linux")
	unannounced.release()
	announced.release()
	announced.succeed()
	unannounced.succeed()
	return unannounced.jobs[0]
}

// revives reports whether a job is active again: it is queued, or a new pod is given it.
func revives(w *world, job int64) bool {
	w.t.Helper()
	fresh := w.add("linux")
	w.settle()
	return w.state(job) != fleet.JobCompleted || w.claim(fresh).State != fleet.ClaimNone
}

// The queued event of a job comes for the first time when the job has ended.
func TestWebhook_CLAIM3_CompletedBeforeQueued(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.fault(standin.Fault{Kind: "hook-delay", Event: "workflow_job", Action: "queued", Times: 1, Delay: standin.Duration(10 * time.Minute)})
	job := endedUnannounced(t, w)
	require.Zero(t, w.hooksOf(job, "queued"))
	w.clock.Advance(10 * time.Minute)
	w.eventually("it comes", func() bool { return w.hooksOf(job, "queued") == 1 })
	require.False(t, revives(w, job))
}

// The queued event of a job was lost, and is redelivered when the job has ended.
func TestWebhook_CLAIM4_RedeliveredAfterTheEnd(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.fault(standin.Fault{Kind: "hook-drop", Event: "workflow_job", Action: "queued", Times: 1})
	job := endedUnannounced(t, w)
	require.Equal(t, 1, w.redeliverFailed(), "GitHub lists it as failed")
	require.False(t, revives(w, job))
	w.write(`DELETE FROM workflow_jobs WHERE id = $1`, job) // as pruning does, one day
	w.write(`DELETE FROM webhook_deliveries`)
	require.Equal(t, 1, w.redeliver(job, "queued"))
	w.settle()
	require.Equal(t, fleet.JobAbsent, w.state(job))

	// Control: without the tombstone.
	w.write(`DELETE FROM job_tombstones WHERE job_id = $1`, job)
	w.write(`DELETE FROM webhook_deliveries`)
	require.Equal(t, 1, w.redeliver(job, "queued"))
	w.eventually("a pod waits for a job that ended long ago", func() bool {
		return w.count(`SELECT count(*) FROM runner_claims WHERE job_id = $1 AND state = 'minted'`, job) == 1
	})
}

// Postgres stands still while GitHub delivers.
func TestWebhook_RECV8_ADatabaseThatStandsStill(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	goOn := ledgertest.Hold(t, w.url, `LOCK TABLE workflow_jobs IN ACCESS EXCLUSIVE MODE`)
	run := w.submit("acme", "linux", 1)
	var failed []github.Delivery
	w.eventually("the delivery fails", func() bool {
		failed = w.failedDeliveries()
		return len(failed) == 1
	})
	require.Equal(t, http.StatusServiceUnavailable, failed[0].StatusCode, "answered within GitHub's ten seconds, and not with a 2xx")
	goOn()
	require.Equal(t, fleet.JobAbsent, w.state(run.jobs[0]), "not committed, not acknowledged")
	require.Equal(t, 1, w.redeliverFailed())
	w.add("linux")
	run.running()
	run.release()
	run.succeed()

	// Control: accepted at once, to be worked off by a process that dies before it is.
	w.accept.Store(true)
	lost := w.submit("acme", "linux", 1)
	w.eventually("GitHub is content", func() bool { return w.delivered(lost.jobs[0], "queued") })
	w.accept.Store(false)
	require.Empty(t, w.failedDeliveries(), "nothing to be redelivered")
	require.Equal(t, fleet.JobAbsent, w.state(lost.jobs[0]))
}
