package restore

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/internal/fleet"
	"github.com/bullpen-ci/bullpen/internal/runnerpod"
	"github.com/bullpen-ci/bullpen/internal/server/dispatch"
	"github.com/bullpen-ci/bullpen/internal/server/events/roster"
	"github.com/bullpen-ci/bullpen/internal/server/ledger"
	"github.com/bullpen-ci/bullpen/internal/server/restore/epoch"
	"github.com/bullpen-ci/bullpen/internal/server/restore/rebuild"
	"github.com/bullpen-ci/bullpen/test/kit/await"
	"github.com/bullpen-ci/bullpen/test/kit/dispatchtest"
	"github.com/bullpen-ci/bullpen/test/kit/ledgertest"
	"github.com/bullpen-ci/bullpen/test/kit/postgrestest"
)

// hold begins one over the database itself.
func hold(t *testing.T, store *ledger.Store, lasts time.Duration) epoch.Mark {
	t.Helper()
	row, err := store.Epoch(t.Context())
	require.NoError(t, err)
	require.NoError(t, store.BeginHold(t.Context(), row.Mark, epoch.Decision{Over: row.Mark, Reason: "a test"}, lasts))
	return row.Mark
}

// holding begins a hold, and has the turn to rebuild in it.
func holding(t *testing.T, store *ledger.Store, lasts time.Duration) epoch.Turn {
	t.Helper()
	hold(t, store, lasts)
	return turnFor(t, store, time.Minute)
}

func turnFor(t *testing.T, store *ledger.Store, lease time.Duration) epoch.Turn {
	t.Helper()
	turn, mine, err := store.BeginRebuild(t.Context(), lease, 0)
	require.NoError(t, err)
	require.True(t, mine)
	return turn
}

// The moments at which a replica is stopped: it has decided what to write, and the write comes when it
// continues.
const (
	beforeTheFirst = "before the first claim"
	betweenTwo     = "between two claims"
	beforeAJob     = "before a job"
)

// sleeper is a ledger whose replica is stopped at one moment, as by a suspended machine.
type sleeper struct {
	*ledger.Store
	t      *testing.T
	at     string
	asleep chan struct{}
	wake   chan struct{}
	claims int
}

func newSleeper(t *testing.T, store *ledger.Store, at string) *sleeper {
	return &sleeper{Store: store, t: t, at: at, asleep: make(chan struct{}), wake: make(chan struct{})}
}

func (s *sleeper) sleep(at string) {
	if s.at == at {
		s.at = ""
		close(s.asleep)
		await.OrEnd(s.t, s.wake)
	}
}

func (s *sleeper) Rebuild(ctx context.Context, turn epoch.Turn, f dispatch.FoundRunner, now time.Time) (fleet.ClaimState, error) {
	s.sleep([]string{beforeTheFirst, betweenTwo}[min(s.claims, 1)])
	s.claims++
	return s.Store.Rebuild(ctx, turn, f, now)
}

func (s *sleeper) RecordFound(ctx context.Context, turn epoch.Turn, ev dispatch.JobEvent, now time.Time) (dispatch.Recorded, error) {
	s.sleep(beforeAJob)
	return s.Store.RecordFound(ctx, turn, ev, now)
}

// rebuilder is a replica's.
func (w *world) rebuilder(store *ledger.Store, ledger rebuild.Ledger) *rebuild.Rebuilder {
	w.t.Helper()
	lists, err := roster.New(roster.Options{Forge: w.forge, Ledger: store})
	require.NoError(w.t, err)
	r, err := rebuild.New(rebuild.Options{Pods: w.cluster.ListPods, Pool: w.cluster.Pool, Lists: lists, Ledger: ledger, Forge: w.forge})
	require.NoError(w.t, err)
	return r
}

// rows is everything that a rebuilding could have written.
func rows(t *testing.T, url string) map[string]string {
	t.Helper()
	out := map[string]string{}
	for _, table := range []string{"accounts", "runner_claims", "runner_registrations", "runner_sessions", "workflow_jobs", "job_lanes", "webhook_deliveries"} {
		out[table] = ledgertest.Text(t, url, `SELECT coalesce(string_agg(r::text, E'\n' ORDER BY r::text), '') FROM `+table+` r`)
	}
	return out
}

// asleep has two busy pods that the ledger knows nothing of, and a rebuilding that sleeps at that moment.
func asleep(t *testing.T, at string, lasts, lease time.Duration) (
	w *world, url string, store *ledger.Store, turn epoch.Turn, over epoch.Mark, goOn func() error,
) {
	t.Helper()
	w, url = newWorld(t), postgrestest.NewDatabase(t, ledger.Migrate)
	var err error
	store, err = ledger.Open(t.Context(), url, 0)
	require.NoError(t, err)
	t.Cleanup(store.Close)
	over = hold(t, store, lasts)
	first := turnFor(t, store, time.Minute)
	row, err := store.Epoch(t.Context())
	require.NoError(t, err)
	require.NoError(t, store.EndRebuild(t.Context(), first, row.Now, 0), "one that found nothing: the hold may end")
	for job := range int64(2) {
		pod := w.pod()
		name, err := runnerpod.RunnerName(pod.UID, job+1)
		require.NoError(t, err)
		w.forge.Set(func(g *dispatchtest.GitHub) {
			g.Runners[name] = &dispatchtest.Runner{ID: job + 1, Online: true, Busy: true, Job: job + 1}
		})
		w.cluster.ChangePod(pod.UID, func(p *dispatch.Pod) { p.PollerEnded = true })
	}
	turn = turnFor(t, store, lease)
	s := newSleeper(t, store, at)
	ended := make(chan error, 1)
	var running sync.WaitGroup
	running.Go(func() {
		_, err := w.rebuilder(store, s).Run(t.Context(), turn)
		ended <- err
	})
	t.Cleanup(running.Wait)
	await.Receive(t, s.asleep, "the rebuilding reaches the place where it sleeps")
	return w, url, store, turn, over, func() error { close(s.wake); return await.Receive(t, ended, "the rebuilding returns") }
}

// CLAIM-17: a replica that is stopped while it rebuilds, and continues when the hold is over and claims are being made,
// writes nothing: what it saw is late.
func TestTurns_CLAIM17_NothingIsWrittenAfterTheHold(t *testing.T) {
	for _, at := range []string{beforeTheFirst, betweenTwo, beforeAJob} {
		t.Run(at, func(t *testing.T) {
			w, url, store, turn, over, goOn := asleep(t, at, time.Millisecond, time.Minute)
			w.eventually("the hold is over", func() bool {
				ended, err := store.EndHold(t.Context(), over)
				require.NoError(t, err)
				return ended
			})
			before := rows(t, url)
			require.ErrorIs(t, goOn(), epoch.ErrTurnOver)
			require.Equal(t, before, rows(t, url))
			require.ErrorIs(t, store.EndRebuild(t.Context(), turn, time.Now(), 0), epoch.ErrTurnOver)

			hold(t, store, time.Minute) // another hold is not that one's
			mine, err := store.RenewRebuild(t.Context(), turn, time.Minute)
			require.NoError(t, err)
			require.False(t, mine)
			require.ErrorIs(t, store.EndRebuild(t.Context(), turn, time.Now(), 0), epoch.ErrTurnOver)
		})
	}
}

// CLAIM-17: two replicas never rebuild at once. The one that was stopped for longer than its lease writes nothing from the
// moment that another has begun, and cannot give the other's turn back, nor prove anything in its name.
func TestTurns_CLAIM17_OneRebuildsAtATime(t *testing.T) {
	for _, at := range []string{beforeTheFirst, betweenTwo, beforeAJob} {
		t.Run(at, func(t *testing.T) {
			w, url, store, turn, _, goOn := asleep(t, at, time.Minute, time.Millisecond)
			var next epoch.Turn
			w.eventually("the lease is over", func() bool {
				got, mine, err := store.BeginRebuild(t.Context(), time.Minute, 0)
				require.NoError(t, err)
				next = got
				return mine
			})
			before := rows(t, url)
			require.ErrorIs(t, goOn(), epoch.ErrTurnOver)
			require.Equal(t, before, rows(t, url))
			proven := ledgertest.Text(t, url, `SELECT rebuilt_at::text FROM ledger_epoch`)
			require.ErrorIs(t, store.EndRebuild(t.Context(), turn, time.Now().Add(time.Hour), 0), epoch.ErrTurnOver)
			require.Equal(t, proven, ledgertest.Text(t, url, `SELECT rebuilt_at::text FROM ledger_epoch`))
			_, mine, err := store.BeginRebuild(t.Context(), time.Minute, 0)
			require.NoError(t, err)
			require.False(t, mine, "the other is at it")

			doubts, err := w.rebuilder(store, store).Run(t.Context(), next)
			require.NoError(t, err)
			require.Zero(t, doubts)
			require.EqualValues(t, 2, ledgertest.Int(t, url, `SELECT count(*) FROM runner_claims WHERE state = 'executing' AND job_id IS NOT NULL`))
			require.NoError(t, store.EndRebuild(t.Context(), next, time.Now(), 0))
		})
	}
}
