package dispatch_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/internal/fleet"
	"github.com/bullpen-ci/bullpen/internal/server/dispatch"
)

// TEN-7: a job that waited for an approval is queued when it is approved, behind what could run before, of its own account
// and of others, and before what comes later. The time of its creation at GitHub is still known.
func TestQueue_TEN7_AnApprovedJobQueuesUpWhenItCanRun(t *testing.T) {
	h := newHarness(t)
	other := dispatch.Account{ID: 2, Login: "other", InstallationID: 102}
	h.install(other)
	h.capped(acme, 1000, 0)
	h.capped(other, 1000, 0)
	for id := int64(1); id <= 3; id++ {
		h.record(job(fleet.JobEventWaiting, id))
	}
	h.record(job(fleet.JobEventQueued, 11))
	h.record(job(fleet.JobEventQueued, 12, from(other)))
	for _, id := range []int64{2, 3, 1} {
		h.record(job(fleet.JobEventQueued, id))
	}
	h.record(job(fleet.JobEventQueued, 4, func(ev *dispatch.JobEvent) { ev.QueuedAt = time.Now().Add(time.Minute) }))

	var order []int64
	for range 6 {
		claims := h.claims(linuxPool("linux", "linux"), 1)
		require.Len(t, claims, 1)
		order = append(order, claims[0].JobID)
	}
	require.Equal(t, []int64{11, 12, 2, 3, 1, 4}, order)

	stored, err := h.store.Job(t.Context(), 2)
	require.NoError(t, err)
	require.Equal(t, job(fleet.JobEventQueued, 2).QueuedAt.UTC(), stored.QueuedAt)
	require.NotNil(t, stored.ApprovedAt)
}
