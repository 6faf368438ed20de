package dispatch_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/api/runnerapi"
	"github.com/bullpen-ci/bullpen/internal/fleet"
	"github.com/bullpen-ci/bullpen/internal/server/dispatch"
	"github.com/bullpen-ci/bullpen/test/kit/await"
	"github.com/bullpen-ci/bullpen/test/kit/dispatchtest"
	"github.com/bullpen-ci/bullpen/test/kit/ledgertest"
)

// clock is a clock that the test advances.
type clock struct {
	mu sync.Mutex
	at time.Time
}

func newClock() *clock { return &clock{at: time.Now()} }

func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.at
}

func (c *clock) pass(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at = c.at.Add(d)
}

func at(c *clock) func(*dispatch.Options) { return func(o *dispatch.Options) { o.Now = c.now } }

// knowsLabels waits until the replica knows every label set: a notification announces a new one.
func (h *harness) knowsLabels(d *dispatch.Dispatcher) {
	h.t.Helper()
	keys, err := h.store.LabelSetsFrom(h.t.Context(), "", 100_000)
	require.NoError(h.t, err)
	for _, key := range keys {
		h.eventually("the replica knows "+key, func() bool { return d.Heard(key) })
	}
}

// asks reads the signals again, by pool.
func (h *harness) asks(d *dispatch.Dispatcher, c *clock) map[string]runnerapi.PoolSignals {
	h.t.Helper()
	h.knowsLabels(d)
	c.pass(time.Minute)
	signals, err := d.Signals(h.t.Context())
	require.NoError(h.t, err)
	require.Equal(h.t, c.now(), signals.At)
	pools := map[string]runnerapi.PoolSignals{}
	for _, p := range signals.Pools {
		pools[p.Name] = p
	}
	return pools
}

func blocked(reason runnerapi.BlockedReason, jobs int) map[runnerapi.BlockedReason]int {
	return map[runnerapi.BlockedReason]int{reason: jobs}
}

func TestSignals_SCALE2_ThroughAJobsLife(t *testing.T) {
	h, c := newHarness(t), newClock()
	d := h.replica(at(c))
	require.NoError(t, h.store.SetLimits(t.Context(), acme.ID, fleet.Linux, fleet.Limits{MilliCPU: 9000, MemoryMB: 2048, Jobs: 9}))
	linux := runnerapi.PoolSignals{Namespace: "runners", Name: "linux"}
	require.Equal(t, linux, h.asks(d, c)["linux"])

	h.queue(1, 2, 3)
	got := h.asks(d, c)["linux"]
	require.Equal(t, 2, got.Queued, "memory for two")
	require.Equal(t, blocked(runnerapi.BlockedLimit, 1), got.Blocked)
	require.Equal(t, int64(1_700_000_001), got.OldestQueued.Unix())

	first, second := h.pod("linux"), h.pod("linux")
	name := h.started(d, first, 1).JIT.Name
	h.started(d, second, 2)
	got = h.asks(d, c)["linux"]
	require.Equal(t, runnerapi.PoolSignals{
		Namespace: "runners", Name: "linux", Occupied: 2, Claimed: 2, Blocked: blocked(runnerapi.BlockedLimit, 1),
	}, runnerapi.PoolSignals{
		Namespace: got.Namespace, Name: got.Name, Occupied: got.Occupied, Claimed: got.Claimed, Queued: got.Queued, Blocked: got.Blocked,
	})

	// The job is over, its pod is not: uploads and the end of the pod still take a place.
	h.record(job(fleet.JobEventCompleted, 1, by(name)))
	got = h.asks(d, c)["linux"]
	require.Equal(t, []int{2, 1, 0}, []int{got.Occupied, got.Claimed, got.Queued})
	require.Equal(t, blocked(runnerapi.BlockedLimit, 1), got.Blocked, "and are charged (TEN-4)")
	live, err := d.PodStopped(t.Context(), first.UID, c.now(), nil)
	require.NoError(t, err)
	require.False(t, live, "GitHub has said what became of its job")
	got = h.asks(d, c)["linux"]
	require.Equal(t, []int{1, 1, 1}, []int{got.Occupied, got.Claimed, got.Queued})
	require.Empty(t, got.Blocked)
}

// A session whose pod was deleted without a report is not open forever.
func TestSignals_ForgottenPodsOccupyNothing(t *testing.T) {
	h, c := newHarness(t), newClock()
	d := h.replica(at(c))
	h.queue(1)
	pod := h.pod("linux")
	name := h.started(d, pod, 1).JIT.Name
	h.record(job(fleet.JobEventCompleted, 1, by(name)))
	require.Equal(t, 1, h.asks(d, c)["linux"].Occupied)
	forgotten, err := h.store.ForgetPod(t.Context(), pod.UID)
	require.NoError(t, err)
	require.True(t, forgotten)
	require.Zero(t, h.asks(d, c)["linux"].Occupied)
}

func TestSignals_SCALE2_Suspended(t *testing.T) {
	h, c := newHarness(t), newClock()
	d := h.replica(at(c))
	h.queue(1, 2)
	again := acme
	for _, action := range []string{"suspend", "deleted"} {
		h.install(again)
		require.Equal(t, 2, h.asks(d, c)["linux"].Queued)
		_, err := h.store.RecordInstallation(t.Context(), h.delivery("installation"), dispatch.Installation{Action: action, Account: again})
		require.NoError(t, err)
		got := h.asks(d, c)["linux"]
		require.Zero(t, got.Queued, action)
		require.Equal(t, blocked(runnerapi.BlockedSuspended, 2), got.Blocked, action)
	}
	h.install(again)
	require.Equal(t, blocked(runnerapi.BlockedSuspended, 2), h.asks(d, c)["linux"].Blocked, "GitHub uses no installation's id again")
	again.InstallationID++
	h.install(again)
	require.Equal(t, 2, h.asks(d, c)["linux"].Queued)
}

// CLAIM-12: what two live pools serve is handed out by neither, and counted once; a pool that is being deleted does not count.
func TestSignals_CLAIM12_ConflictAndTerminating(t *testing.T) {
	h, c := newHarness(t), newClock()
	d := h.replica(at(c))
	h.queue(1)
	other := linuxPool("other", "LINUX")
	h.cluster.PutPool(other)
	got := h.asks(d, c)
	require.Zero(t, got["linux"].Queued+got["other"].Queued)
	require.Equal(t, blocked(runnerapi.BlockedConflict, 1), got["linux"].Blocked)
	require.Empty(t, got["other"].Blocked)
	other.Terminating = true
	h.cluster.PutPool(other)
	got = h.asks(d, c)
	require.Equal(t, 1, got["linux"].Queued)
	require.Zero(t, got["other"].Queued)
}

// CLAIM-11: while GitHub is not to be asked for an account, its jobs ask for no runner; afterwards one job tries.
func TestSignals_CLAIM11_Backoff(t *testing.T) {
	h, c := newHarness(t), newClock()
	d := h.replica(at(c))
	h.forge.Set(func(g *dispatchtest.GitHub) { g.Refuse = fleet.ErrCredentials })
	h.queue(1, 2, 3)
	pod := h.pod("linux")
	_, err := d.Poll(await.Context(t), pod, 0) // gets no job
	require.NoError(t, err)
	signals, err := d.Signals(t.Context())
	require.NoError(t, err)
	require.Equal(t, blocked(runnerapi.BlockedBackoff, 3), signals.Pools[0].Blocked)
	require.Zero(t, signals.Pools[0].Queued)

	got := h.asks(d, c)["linux"] // the back-off is over
	require.Equal(t, 1, got.Queued)
	require.Equal(t, blocked(runnerapi.BlockedBackoff, 2), got.Blocked)
	h.forge.Set(func(g *dispatchtest.GitHub) { g.Refuse = nil })
	h.served(d, pod)
	require.Equal(t, 2, h.asks(d, c)["linux"].Queued, "GitHub answers again")

	h.forge.Set(func(g *dispatchtest.GitHub) {
		g.Rates[acme.InstallationID] = &fleet.RateState{Limit: 10, Remaining: 1, Reset: c.now().Add(time.Hour)}
	})
	got = h.asks(d, c)["linux"] // CLAIM-14
	require.Equal(t, 1, got.Queued)
	require.Equal(t, blocked(runnerapi.BlockedBackoff, 1), got.Blocked)
	c.pass(time.Hour)
	require.Equal(t, 2, h.asks(d, c)["linux"].Queued)
}

// The reported back-off of an account is the one that dispatch uses, with its cause: a limit or a failure.
func TestBackoff_CLAIM11_CLAIM14_SaysUntilWhen(t *testing.T) {
	h, c := newHarness(t), newClock()
	d := h.replica(at(c))
	acme := dispatch.Account{ID: 1, Login: "acme", InstallationID: 101}
	until, _ := d.Backoff(acme)
	require.Zero(t, until)
	h.forge.Set(func(g *dispatchtest.GitHub) { g.Refuse = fleet.ErrCredentials })
	h.queue(1)
	pod := h.pod("linux")
	_, err := d.Poll(await.Context(t), pod, 0) // gets no job
	require.NoError(t, err)
	until, limited := d.Backoff(acme)
	require.True(t, until.After(c.now()))
	require.False(t, limited)
	until, _ = d.Backoff(dispatch.Account{ID: 2, Login: "globex", InstallationID: 102})
	require.Zero(t, until, "another account is not kept from anything")

	c.pass(time.Hour)
	until, _ = d.Backoff(acme)
	require.Zero(t, until, "it is over")
	reset := c.now().Add(time.Minute)
	h.forge.Set(func(g *dispatchtest.GitHub) {
		g.Refuse, g.Rates[acme.InstallationID] = nil, &fleet.RateState{Limit: 10, Remaining: 0, Reset: reset}
	})
	until, limited = d.Backoff(acme)
	require.Equal(t, reset, until)
	require.True(t, limited)
	c.pass(time.Minute)
	until, _ = d.Backoff(acme)
	require.Zero(t, until, "the limit is reset")
}

// The last hour: sessions that are over count where they were open, those of other times do not.
func TestSignals_P95(t *testing.T) {
	h, c := newHarness(t), newClock()
	d := h.replica(at(c))
	c.pass(time.Minute) // asks does
	session := func(from, to time.Duration) {
		uid := uuid.NewString()
		ledgertest.Exec(t, h.url, `INSERT INTO runner_sessions (pod_uid, namespace, pod_name, pool, account_id, platform, milli_cpu,
			memory_mb, runner_name, started_at, ended_at) VALUES ($1, 'runners', $1, 'linux', 1, 'linux', 1, 1, $1, $2, $3)`,
			uid, c.now().Add(-from), c.now().Add(-to))
	}
	for range 5 {
		session(30*time.Minute, 26*time.Minute+time.Second) // at four minutes
	}
	session(20*time.Minute, 0)
	for range 9 {
		session(50*time.Minute, 47*time.Minute+time.Second) // at three minutes
		session(2*time.Hour, time.Hour)
		session(10*time.Minute+50*time.Second, 10*time.Minute+10*time.Second) // between two
	}
	c.pass(-time.Minute)
	require.Equal(t, 5, h.asks(d, c)["linux"].P95LastHour)

	// An open session counts while its pod is not forgotten.
	h.queue(1)
	pod := h.pod("linux")
	name := h.started(d, pod, 1).JIT.Name
	ledgertest.Exec(t, h.url, `DELETE FROM runner_sessions WHERE ended_at IS NOT NULL`)
	c.pass(4 * time.Minute)
	require.Equal(t, 1, h.asks(d, c)["linux"].P95LastHour)
	h.record(job(fleet.JobEventCompleted, 1, by(name)))
	_, err := h.store.ForgetPod(t.Context(), pod.UID)
	require.NoError(t, err)
	require.Zero(t, h.asks(d, c)["linux"].P95LastHour)
}

// A lane is read as far as it is asked to, oldest job first.
func TestBacklog_LooksNoFurtherThanAsked(t *testing.T) {
	h := newHarness(t)
	h.queue(4, 2, 3, 1)
	keys := []string{dispatch.LabelKey([]string{"linux"})}
	for _, look := range []dispatch.Look{{}, {Count: 1}, {Count: 3, Ages: 2}, {Count: 9, Ages: 9}} {
		b, err := h.store.Backlog(t.Context(), keys, func(dispatch.Backlog) []dispatch.Look { return []dispatch.Look{look} })
		require.NoError(t, err)
		require.Len(t, b.Lanes, 1)
		require.Equal(t, min(4, look.Count), b.Lanes[0].Jobs)
		require.Len(t, b.Lanes[0].Oldest, int(min(4, look.Ages)))
		for i, job := range b.Lanes[0].Oldest {
			require.Equal(t, int64(i+1), job.ID)
		}
	}
	b, err := h.store.Backlog(t.Context(), []string{`["other"]`}, func(b dispatch.Backlog) []dispatch.Look {
		require.Empty(t, b.Lanes)
		return nil
	})
	require.NoError(t, err)
	require.Empty(t, b.Lanes)
}

// SCALE-2: budgets, claims and jobs are of one moment: a job that is claimed concurrently counts as claimed or as queued,
// not as neither.
func TestBacklog_SCALE2_OfOneMoment(t *testing.T) {
	h := newHarness(t)
	h.queue(1, 2)
	b, err := h.store.Backlog(t.Context(), []string{dispatch.LabelKey([]string{"linux"})}, func(b dispatch.Backlog) []dispatch.Look {
		require.Empty(t, b.Usage)
		result, err := h.store.ClaimBatch(t.Context(), h.batch(h.pod("linux")))
		require.NoError(t, err)
		require.Len(t, result.Claims, 1)
		return []dispatch.Look{{Count: 9, Ages: 9}}
	})
	require.NoError(t, err)
	require.Equal(t, int64(2), b.Lanes[0].Jobs)
}

// EXCL-4: only what is known, other than from the pod, to have ended is reported, and only if it does not exit on its
// own.
func TestSignals_EXCL4_RemovalsOfProvenEnds(t *testing.T) {
	h, c := newHarness(t), newClock()
	d := h.replica(at(c))
	removals := func(after time.Duration) []runnerapi.Removal {
		t.Helper()
		c.pass(after)
		signals, err := d.Signals(t.Context())
		require.NoError(t, err)
		return signals.Removals
	}
	h.queue(1, 2, 3)
	pods := []dispatch.Pod{h.pod("linux"), h.pod("linux"), h.pod("linux"), h.pod("linux")}
	for i, pod := range pods[:3] {
		name := h.started(d, pod, int64(i+1)).JIT.Name
		if i < 2 {
			h.record(job(fleet.JobEventCompleted, int64(i+1), by(name)))
		}
	}
	_, err := d.Retire(t.Context(), pods[3:]) // taken by the fleet: nothing proves anything
	require.NoError(t, err)
	ledgertest.Exec(t, h.url, `UPDATE runner_claims SET ended_at = $1, proof = CASE state WHEN 'executing' THEN 'stale' ELSE proof END`, c.now())
	require.Empty(t, removals(29*time.Second), "its runner may be about to end")
	got := removals(2 * time.Second)
	require.Len(t, got, 2)
	require.ElementsMatch(t, []string{pods[0].UID, pods[1].UID}, []string{got[0].Pod.UID, got[1].Pod.UID})
	require.Equal(t, "linux", got[0].Pod.Pool)
	require.Equal(t, "runners", got[0].Pod.Namespace)
	require.NotEmpty(t, got[0].Pod.Name)
	require.Contains(t, got[0].Proof, "completed")

	ledgertest.Exec(t, h.url, `UPDATE runner_claims SET proof = '' WHERE pod_uid = $1`, pods[0].UID)
	got = removals(2 * time.Second)
	require.Len(t, got, 1, "an end without a proof")
	require.Equal(t, pods[1].UID, got[0].Pod.UID)
	leaving := pods[1]
	leaving.Deleting = true
	h.cluster.PutPod(leaving)
	require.Len(t, removals(2*time.Second), 1, "TEN-5: it may have a grace period of hours")
	h.cluster.DropPod(leaving.UID)
	require.Empty(t, removals(2*time.Second))
}

// countingStore counts its reads, and can be made to fail.
type countingStore struct {
	dispatch.Store
	backlogs, peaks, sets atomic.Int32
	err                   func(method string) error
	during                func(ctx context.Context)
}

func (s *countingStore) Backlog(
	ctx context.Context, keys []string, look func(dispatch.Backlog) []dispatch.Look,
) (dispatch.Backlog, error) {
	s.backlogs.Add(1)
	if s.during != nil {
		s.during(ctx)
	}
	b, err := s.Store.Backlog(ctx, keys, look)
	return b, errors.Join(err, s.err("backlog"))
}

func (s *countingStore) SessionChanges(ctx context.Context, since time.Time, minutes int) ([]dispatch.SessionChange, error) {
	s.peaks.Add(1)
	changes, err := s.Store.SessionChanges(ctx, since, minutes)
	return changes, errors.Join(err, s.err("sessions"))
}

func (s *countingStore) ProvenEnds(ctx context.Context, before time.Time) ([]dispatch.ProvenEnd, error) {
	ends, err := s.Store.ProvenEnds(ctx, before)
	return ends, errors.Join(err, s.err("ends"))
}

func (s *countingStore) LabelSetsAmong(ctx context.Context, keys []string) ([]string, error) {
	s.sets.Add(1)
	found, err := s.Store.LabelSetsAmong(ctx, keys)
	return found, errors.Join(err, s.err("label sets"))
}

func (s *countingStore) LabelSetsOfLogins(ctx context.Context, logins []string) (map[string][]dispatch.LabelSet, error) {
	found, err := s.Store.LabelSetsOfLogins(ctx, logins)
	return found, errors.Join(err, s.err("label sets"))
}

func (s *countingStore) LabelSetsFrom(ctx context.Context, start string, most int32) ([]string, error) {
	s.sets.Add(1)
	sets, err := s.Store.LabelSetsFrom(ctx, start, most)
	return sets, errors.Join(err, s.err("label sets"))
}

func (h *harness) counting(c *clock) (*countingStore, *dispatch.Dispatcher) {
	store := &countingStore{Store: h.store, err: func(string) error { return nil }}
	return store, h.replica(at(c), func(o *dispatch.Options) { o.Store = store })
}

// POOL-8: if anything cannot be read, there is no answer: neither a partial nor a former one.
func TestSignals_POOL8_WholeOrNotAtAll(t *testing.T) {
	h, c := newHarness(t), newClock()
	store, d := h.counting(c)
	h.asks(d, c)
	broken := errors.New("the database went away")
	for _, part := range []string{"backlog", "sessions", "label sets", "ends"} {
		store.err = func(method string) error {
			if method == part {
				return broken
			}
			return nil
		}
		c.pass(time.Minute)
		d.Reconnected() // label sets are read again
		got, err := d.Signals(t.Context())
		require.ErrorIs(t, err, broken, part)
		require.Zero(t, got)
	}
	store.err = func(string) error { return nil }
	got, err := d.Signals(t.Context())
	require.NoError(t, err)
	require.Len(t, got.Pools, 1, "a failure is not remembered")
	h.store.Close()
	c.pass(time.Minute)
	_, err = d.Signals(t.Context())
	require.Error(t, err)
}

// However many ask, the ledger is read once a second, and the sessions twice a minute.
func TestSignals_ReadOnceForAll(t *testing.T) {
	h, c := newHarness(t), newClock()
	store, d := h.counting(c)
	entered, leave := make(chan struct{}, 1), make(chan struct{})
	store.during = func(context.Context) { entered <- struct{}{}; await.OrEnd(t, leave) }
	first, hangUp := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() { _, _ = d.Signals(first) })
	await.Receive(t, entered, "the ledger is read")
	hangUp() // the others' answer does not depend on the first caller
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := d.Signals(gone)
	require.ErrorIs(t, err, context.Canceled, "a client that hangs up does not wait")
	for range 20 {
		wg.Go(func() {
			if _, err := d.Signals(context.Background()); err != nil {
				t.Errorf("asking: %v", err)
			}
		})
	}
	close(leave)
	await.Return(t, wg.Wait, "the concurrent calls return")
	store.during = nil
	require.Equal(t, int32(1), store.backlogs.Load())
	c.pass(999 * time.Millisecond)
	_, err = d.Signals(t.Context())
	require.NoError(t, err)
	require.Equal(t, int32(1), store.backlogs.Load())
	for range 28 {
		c.pass(time.Second)
		_, err = d.Signals(t.Context())
		require.NoError(t, err)
	}
	require.Equal(t, []int32{29, 1}, []int32{store.backlogs.Load(), store.peaks.Load()})
	c.pass(2 * time.Second)
	_, err = d.Signals(t.Context())
	require.NoError(t, err)
	require.Equal(t, int32(2), store.peaks.Load())
	c.pass(-time.Hour) // a clock that was set back keeps nothing for an hour
	_, err = d.Signals(t.Context())
	require.NoError(t, err)
	require.Equal(t, []int32{31, 3}, []int32{store.backlogs.Load(), store.peaks.Load()})
}
