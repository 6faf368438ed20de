package poolaudit

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/internal/fleet"
	"github.com/bullpen-ci/bullpen/test/kit/await"
)

// world is a watch and a store.
type world struct {
	mu       sync.Mutex
	pools    map[string]Pool
	listed   bool
	recorded map[string]int64
	fails    error
	verified bool
	unknown  error // of the cluster

	written   chan Entry
	forgotten chan []string
	reads     int
}

func newWorld() *world {
	return &world{pools: map[string]Pool{}, recorded: map[string]int64{}, written: make(chan Entry, 100), forgotten: make(chan []string, 100)}
}

func (w *world) NewGenerations(known map[string]int64) (found []Pool, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, p := range w.pools {
		if generation, there := known[p.UID]; !there || generation < p.Generation {
			found = append(found, p)
		}
	}
	return found, nil
}

func (w *world) PoolUIDs() (uids []string, listed bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for uid := range w.pools {
		uids = append(uids, uid)
	}
	return uids, w.listed
}

func (w *world) AuditedPools(context.Context, string) (map[string]int64, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.reads++
	known := map[string]int64{}
	for uid, generation := range w.recorded {
		known[uid] = generation
	}
	return known, nil
}

func (w *world) AuditPool(_ context.Context, e Entry) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.fails != nil {
		return w.fails
	}
	w.recorded[e.UID] = e.Generation
	w.written <- e
	return nil
}

func (w *world) ForgetAuditedPools(_ context.Context, _ string, uids []string, _ time.Time) error {
	w.forgotten <- uids
	return nil
}

func (w *world) set(change func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	change()
}

func (w *world) auditor(t *testing.T, retry time.Duration) *Auditor {
	t.Helper()
	a, err := New(Options{Store: w, Source: w, Namespace: "runners", Retry: retry, Verified: func(context.Context, time.Time) (bool, error) {
		return w.verified, w.unknown
	}})
	require.NoError(t, err)
	return a
}

// Each generation is recorded once, also by an auditor that starts later, and a change of the status writes nothing.
func TestAuditor_RecordsEachGenerationOnce(t *testing.T) {
	w := newWorld()
	w.pools["u"] = Pool{Name: "linux", UID: "u", Generation: 3}
	a := w.auditor(t, time.Hour)
	require.NoError(t, a.pass(t.Context()))
	require.EqualValues(t, 3, await.Receive(t, w.written, "the first generation is recorded").Generation)
	require.NoError(t, a.pass(t.Context()))
	require.Empty(t, w.written, "nothing changed")
	w.pools["u"] = Pool{Name: "linux", UID: "u", Generation: 5}
	require.NoError(t, a.pass(t.Context()))
	require.EqualValues(t, 5, await.Receive(t, w.written, "the next one is recorded").Generation)
	require.Equal(t, 1, w.reads, "the database is read once")
	require.NoError(t, w.auditor(t, time.Hour).pass(t.Context()))
	require.Empty(t, w.written, "a restart records nothing again")
}

// NET-5: a name is verified only if the cluster says so, and one that the cluster cannot judge now is judged later.
func TestAuditor_NET5_NamesAreVerifiedByTheCluster(t *testing.T) {
	w := newWorld()
	a := w.auditor(t, time.Hour)
	w.pools["u"] = Pool{UID: "u", Generation: 1, Author: "ada"}
	w.unknown = errors.New("the cluster does not answer")
	require.ErrorContains(t, a.pass(t.Context()), "does not answer")
	require.Empty(t, w.written)
	w.unknown = nil
	require.NoError(t, a.pass(t.Context()))
	stated := await.Receive(t, w.written, "it is recorded")
	require.Equal(t, []string{"", "ada"}, []string{stated.Requester, stated.Stated})
	w.verified = true
	w.pools["u"] = Pool{UID: "u", Generation: 2, Author: "ada"}
	require.NoError(t, a.pass(t.Context()))
	verified := await.Receive(t, w.written, "it is recorded")
	require.Equal(t, []string{"ada", ""}, []string{verified.Requester, verified.Stated})
	w.pools["u"] = Pool{UID: "u", Generation: 3}
	require.NoError(t, a.pass(t.Context()))
	unnamed := await.Receive(t, w.written, "it is recorded")
	require.Equal(t, []string{"", ""}, []string{unnamed.Requester, unnamed.Stated})
}

// A failed write is repeated, and one that no retry changes is not.
func TestAuditor_RetriesFailedWrites(t *testing.T) {
	w := newWorld()
	a := w.auditor(t, time.Millisecond)
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { a.Run(ctx) })
	defer func() { stop(); await.Return(t, running.Wait, "the auditor stops") }()
	w.set(func() { w.fails = errors.New("the database is away"); w.pools["u"] = Pool{UID: "u", Generation: 1} })
	a.Changed()
	w.set(func() { w.fails = nil })
	await.Receive(t, w.written, "it is recorded after the failure")

	b := newWorld()
	b.pools["u"] = Pool{UID: "u", Generation: 1}
	b.fails = fmt.Errorf("writing: %w", fleet.ErrUnstorable)
	c := b.auditor(t, time.Hour)
	require.NoError(t, c.pass(t.Context()))
	require.EqualValues(t, 1, c.known["u"])
}

// Deleted pools are removed once, and not before the watch has listed those that exist.
func TestAuditor_ForgetsDeletedPools(t *testing.T) {
	w := newWorld()
	w.pools["u"] = Pool{UID: "u", Generation: 1}
	a := w.auditor(t, time.Hour)
	require.NoError(t, a.pass(t.Context()))
	require.Empty(t, w.forgotten)
	w.listed = true
	require.NoError(t, a.pass(t.Context()))
	require.Equal(t, []string{"u"}, await.Receive(t, w.forgotten, "the pools that exist"))
	require.NoError(t, a.pass(t.Context()))
	require.Empty(t, w.forgotten)
}
