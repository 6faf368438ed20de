package dispatch_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/internal/fleet"
	"github.com/bullpen-ci/bullpen/internal/server/dispatch"
	"github.com/bullpen-ci/bullpen/test/kit/dispatchtest"
	"github.com/bullpen-ci/bullpen/test/kit/ledgertest"
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

// TEN-1: one account may have jobs of each label set of a pool. A further set is matched alone, and once their lanes are gone, those sets
// cost nothing any more.
func TestRouting_TEN1_NoSetIsMatchedAgainOrKeptWithoutALane(t *testing.T) {
	h, c := newHarness(t), newClock()
	h.cluster.PutPool(linuxPool("linux", "linux", "self-hosted", "a", "b", "c"))
	store, d := h.counting(c)
	sets := [][]string{{"linux"}, {"a"}, {"a", "b"}, {"a", "b", "c"}, {"b", "c"}, {"a", "linux"}}
	for i, set := range sets {
		h.record(job(fleet.JobEventQueued, int64(i+1), labelled(set...)))
	}
	h.asks(d, c)
	require.Equal(t, len(sets), d.Known())
	d.WorkArrived(dispatch.LabelKey([]string{"b", "self-hosted"}))
	matched, err := d.Rematched(t.Context())
	require.NoError(t, err)
	require.Equal(t, 1, matched)

	ledgertest.Exec(t, h.url, `DELETE FROM job_lanes WHERE label_key LIKE '%"b"%'`)
	ledgertest.Exec(t, h.url, `DELETE FROM workflow_jobs WHERE label_key LIKE '%"b"%'`)
	before := store.sets.Load()
	h.asks(d, c)
	require.Equal(t, before, store.sets.Load(), "nothing is read again so soon")
	c.pass(10 * time.Minute)
	h.asks(d, c)
	require.Equal(t, 3, d.Known())
	h.record(job(fleet.JobEventQueued, 20, labelled("a", "b"))) // its lane is made again
	h.asks(d, c)
	require.Equal(t, 4, d.Known())
}

// TEN-1: a lane may be removed and made again while a replica reads which label sets have one. Its set is matched again, although it is known.
func TestRouting_TEN1_ASetThatReturnsWhileItIsDroppedIsServed(t *testing.T) {
	h, c := newHarness(t), newClock()
	h.cluster.PutPool(linuxPool("linux", "linux", "gpu"))
	var reread func()
	l := &ledger{Store: h.store, labelSets: func() {
		if reread != nil {
			reread()
		}
	}}
	d := h.replica(on(l), at(c))
	h.record(job(fleet.JobEventQueued, 1, labelled("gpu")))
	h.asks(d, c)
	ledgertest.Exec(t, h.url, `DELETE FROM job_lanes`)
	key, once := dispatch.LabelKey([]string{"gpu"}), sync.Once{}
	reread = func() {
		once.Do(func() {
			ledgertest.Exec(t, h.url, `INSERT INTO job_lanes (label_key, account_id, version, head_at) VALUES ($1, $2, 1, now())`, key, acme.ID)
			d.WorkArrived(key)
		})
	}
	c.pass(10 * time.Minute)
	_, err := d.Signals(t.Context())
	require.NoError(t, err)
	h.started(d, h.pod("linux"), 1)
}

// As above, while the routing is made again after a reading that has failed: the set had arrived before that reading.
func TestRouting_TEN1_ASetThatReturnsDuringANewReadingIsServed(t *testing.T) {
	h, c := newHarness(t), newClock()
	h.cluster.PutPool(linuxPool("linux", "linux", "gpu"))
	store, key := &rereading{Store: h.store}, dispatch.LabelKey([]string{"gpu"})
	d := h.replica(at(c), func(o *dispatch.Options) { o.Store = store })
	h.record(job(fleet.JobEventQueued, 1, labelled("gpu")))
	h.asks(d, c)
	ledgertest.Exec(t, h.url, `DELETE FROM job_lanes`)
	d.Reconnected()
	store.arm(func() error {
		d.WorkArrived(key)
		return errors.New("the database went away")
	})
	c.pass(time.Minute)
	_, err := d.Signals(t.Context())
	require.Error(t, err)
	store.arm(func() error {
		ledgertest.Exec(t, h.url, `INSERT INTO job_lanes (label_key, account_id, version, head_at) VALUES ($1, $2, 1, now())`, key, acme.ID)
		d.WorkArrived(key)
		return nil
	})
	c.pass(time.Minute)
	_, err = d.Signals(t.Context())
	require.NoError(t, err)
	h.started(d, h.pod("linux"), 1)
}

// rereading is a ledger in which something happens once after label sets were read, and before they are returned.
type rereading struct {
	dispatch.Store
	mu     sync.Mutex
	during func() error
}

func (r *rereading) arm(during func() error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.during = during
}

func (r *rereading) LabelSetsAmong(ctx context.Context, keys []string) ([]string, error) {
	found, err := r.Store.LabelSetsAmong(ctx, keys)
	r.mu.Lock()
	during := r.during
	r.during = nil
	r.mu.Unlock()
	if during != nil {
		err = errors.Join(err, during())
	}
	return found, err
}

// A pool may change, and its event be handled, after a replica has read the pools and before it matches label sets to them.
func TestRouting_TEN1_APoolThatShowsWhilePoolsAreReadServesWhatWaited(t *testing.T) {
	h, c := newHarness(t), newClock()
	h.record(job(fleet.JobEventQueued, 1, labelled("gpu")))
	pools := &latePools{Cluster: h.cluster}
	d := h.replica(at(c), func(o *dispatch.Options) { o.Cluster = pools })
	require.NotContains(t, h.asks(d, c), "gpu")
	pools.arm(func() {
		h.cluster.PutPool(linuxPool("gpu", "gpu"))
		d.PoolsChanged()
	})
	d.Reconnected()
	c.pass(time.Minute)
	_, err := d.Signals(t.Context())
	require.NoError(t, err)
	h.started(d, h.pod("gpu"), 1)
}

// latePools is a cluster that changes once after its pools were read, and before they are returned.
type latePools struct {
	*dispatchtest.Cluster
	mu    sync.Mutex
	after func()
}

func (l *latePools) arm(after func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.after = after
}

func (l *latePools) Pools() []dispatch.Pool {
	pools := l.Cluster.Pools()
	l.mu.Lock()
	after := l.after
	l.after = nil
	l.mu.Unlock()
	if after != nil {
		after()
	}
	return pools
}
