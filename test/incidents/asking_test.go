package incidents

import (
	"context"
	"net/http"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/internal/dev/github/standin"
	"github.com/bullpen-ci/bullpen/internal/fleet"
	"github.com/bullpen-ci/bullpen/internal/github"
)

// settle waits until everything that has arrived so far has been processed. A webhook that is sent now and recorded was
// sent after it, and a poll that is asked now was answered after it.
func (w *world) settle() {
	w.t.Helper()
	before := w.count(`SELECT count(*) FROM webhook_deliveries`)
	require.NoError(w.t, w.github.Admin.Announce(w.t.Context(), w.last))
	w.eventually("a later webhook is recorded", func() bool { return w.count(`SELECT count(*) FROM webhook_deliveries`) > before })
	probe := w.add("linux-that-nobody-asks-for")
	ctx, cancel := context.WithTimeout(w.t.Context(), 100*time.Millisecond)
	defer cancel()
	_, _ = w.up().dispatcher.Poll(ctx, probe.Pod, 0)
	probe.stop()
	w.cluster.DropPod(probe.UID)
}

// deliveries are GitHub's attempts, as its API lists them, newest first.
func (w *world) deliveries() []github.Delivery {
	w.t.Helper()
	var all []github.Delivery
	for cursor := ""; ; {
		page, err := w.forge.DeliveryPage(w.t.Context(), cursor, "")
		require.NoError(w.t, err)
		all = append(all, page.Deliveries...)
		if cursor = page.Next; cursor == "" {
			break
		}
	}
	return all
}

// failedDeliveries are those of jobs without one attempt that succeeded, each once.
func (w *world) failedDeliveries() []github.Delivery {
	w.t.Helper()
	done := map[string]bool{}
	all := w.deliveries()
	for _, d := range all {
		if d.StatusCode >= 200 && d.StatusCode < 300 {
			done[d.GUID] = true
		}
	}
	var failed []github.Delivery
	for _, d := range all {
		if !done[d.GUID] && d.Event == "workflow_job" {
			done[d.GUID] = true
			failed = append(failed, d)
		}
	}
	return failed
}

// redeliverFailed asks GitHub for them again, waits until they are there, and says how many it were.
func (w *world) redeliverFailed() int {
	w.t.Helper()
	failed := w.failedDeliveries()
	for _, d := range failed {
		require.NoError(w.t, w.forge.Redeliver(w.t.Context(), d.ID))
	}
	w.eventually("they are delivered", func() bool { return len(w.failedDeliveries()) == 0 })
	return len(failed)
}

// about are the deliveries of a job's event.
func (w *world) about(job int64, action string) []standin.DeliveryView {
	w.t.Helper()
	all, err := w.github.Admin.Deliveries(w.t.Context(), 10_000)
	require.NoError(w.t, err)
	var found []standin.DeliveryView
	for _, d := range all {
		if d.JobID == job && d.Action == action {
			found = append(found, d)
		}
	}
	return found
}

// hooksOf counts the attempts of a job's event that the server took.
func (w *world) hooksOf(job int64, action string) (n int) {
	w.t.Helper()
	for _, d := range w.about(job, action) {
		if d.StatusCode == http.StatusOK {
			n++
		}
	}
	return n
}

func (w *world) delivered(job int64, action string) bool {
	w.t.Helper()
	return w.hooksOf(job, action) > 0
}

// redeliver has a job's event sent once more, and waits until it is there.
func (w *world) redeliver(job int64, action string) int {
	w.t.Helper()
	before := w.hooksOf(job, action)
	require.NoError(w.t, w.forge.Redeliver(w.t.Context(), w.about(job, action)[0].ID))
	w.eventually("it is delivered again", func() bool { return w.hooksOf(job, action) > before })
	return w.hooksOf(job, action) - before
}

// limit sets how many jobs of an account may run.
func (w *world) limit(login string, jobs int64) {
	w.t.Helper()
	id := w.count(`SELECT id FROM accounts WHERE login = $1`, login)
	require.NoError(w.t, w.store.SetLimits(w.t.Context(), id, fleet.Linux, fleet.Limits{MilliCPU: 1 << 40, MemoryMB: 1 << 40, Jobs: jobs}))
}

// rowsRead is how many rows of jobs have been read, by the database's own count. A session reports when it ends, so no
// client may be connected any more.
func (w *world) rowsRead() int64 {
	w.t.Helper()
	w.eventually("all sessions have ended", func() bool {
		return w.count(`SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()`) == 0
	})
	w.count(`SELECT count(*) FROM pg_stat_force_next_flush()`) // of the test's own connection: else at most once a second
	return w.count(`SELECT seq_tup_read + idx_tup_fetch FROM pg_stat_user_tables WHERE relname = 'workflow_jobs'`)
}
