package dispatch_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/internal/fleet"
	"github.com/bullpen-ci/bullpen/internal/server/dispatch"
)

// TEN-1: sets of labels that no pool serves, and changes of pools that make no difference to routing, cost no reading of
// label sets and wake no poll, however many there are.
func TestRouting_TEN1_ForeignLabelSetsCostNothing(t *testing.T) {
	h, c := newHarness(t), newClock()
	h.cluster.PutPool(linuxPool("linux", "linux", "self-hosted"))
	store, d := h.counting(c)
	h.queue(1)
	h.started(d, h.pod("linux"), 1)
	h.asks(d, c)
	before := store.sets.Load()
	for id := int64(100); id < 300; id++ {
		h.record(job(fleet.JobEventQueued, id, labelled(fmt.Sprintf("run-%d", id))))
		d.WorkArrived(dispatch.LabelKey([]string{fmt.Sprintf("run-%d", id)}))
	}
	require.Zero(t, d.Arrived(), "nor remembered")
	d.PoolsChanged() // of a pool's status
	h.asks(d, c)
	require.Equal(t, before, store.sets.Load(), "nothing is read again")

	h.record(job(fleet.JobEventQueued, 2, labelled("linux", "self-hosted"))) // a new set, which the pool serves
	h.started(d, h.pod("linux"), 2)
	require.Equal(t, before, store.sets.Load(), "it is matched alone")
	wide := linuxPool("wide", "a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "linux")
	h.cluster.PutPool(wide)
	d.PoolsChanged()
	h.record(job(fleet.JobEventQueued, 3, labelled("a", "k", "linux")))
	h.started(d, h.pod("wide"), 3)
	require.Greater(t, store.sets.Load(), before, "a pool that has changed is matched again")
}

// A pool is visible before its event is handled. A label set that arrives between the two is matched alone, and the sets that waited for
// the pool must still be matched.
func TestRouting_TEN1_APoolThatShowsBeforeItsEventServesWhatWaited(t *testing.T) {
	h, c := newHarness(t), newClock()
	_, d := h.counting(c)
	h.queue(1)
	h.started(d, h.pod("linux"), 1)
	h.record(job(fleet.JobEventQueued, 2, labelled("gpu")))
	require.NotContains(t, h.asks(d, c), "gpu")
	h.cluster.PutPool(linuxPool("gpu", "gpu", "self-hosted"))
	d.WorkArrived(dispatch.LabelKey([]string{"gpu", "self-hosted"}))
	h.asks(d, c)
	d.PoolsChanged()
	h.started(d, h.pod("gpu"), 2)
}

// A ledger that was restored may have label sets without a notification, whether or not a pool has changed.
func TestRouting_ARestoredLedgerIsRoutedAgain(t *testing.T) {
	h, c := newHarness(t), newClock()
	store, d := h.counting(c)
	h.asks(d, c)
	before := store.sets.Load()
	d.LedgerResumed()
	h.asks(d, c)
	require.Greater(t, store.sets.Load(), before)
}
