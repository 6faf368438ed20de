package restore

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/api/runnerapi"
	"github.com/bullpen-ci/bullpen/internal/fleet"
	"github.com/bullpen-ci/bullpen/internal/server/dispatch"
	"github.com/bullpen-ci/bullpen/internal/server/ledger"
	"github.com/bullpen-ci/bullpen/internal/server/restore/epoch"
	"github.com/bullpen-ci/bullpen/test/kit/await"
	"github.com/bullpen-ci/bullpen/test/kit/dispatchtest"
	"github.com/bullpen-ci/bullpen/test/kit/ledgertest"
	"github.com/bullpen-ci/bullpen/test/kit/postgrestest"
)

// noteHolds has the database record each hold. A hold may be over before a test reads it.
func noteHolds(t *testing.T, url string) {
	t.Helper()
	ledgertest.Exec(t, url, `CREATE TABLE holds_noted (length interval NOT NULL)`)
	ledgertest.Exec(t, url, `CREATE FUNCTION note_hold() RETURNS trigger LANGUAGE plpgsql AS
		$$ BEGIN INSERT INTO holds_noted VALUES (NEW.hold_until - now()); RETURN NULL; END $$`)
	ledgertest.Exec(t, url, `CREATE TRIGGER note_hold AFTER UPDATE OF hold_until ON ledger_epoch
		FOR EACH ROW WHEN (NEW.hold_until IS NOT NULL) EXECUTE FUNCTION note_hold()`)
}

// holds counts those that were noted.
func holds(t *testing.T, url, which string, args ...any) int64 {
	t.Helper()
	return ledgertest.Int(t, url, "SELECT count(*) FROM holds_noted WHERE "+which, args...)
}

// CLAIM-17: the backup of some time ago is restored under two running servers, one of whose clocks is ten minutes off. What
// was dispatched since is not in it.
func TestRestore_CLAIM17_UnderRunningServers(t *testing.T) {
	w := newWorld(t)
	url := postgrestest.NewDatabase(t, ledger.Migrate)
	one := w.server(url, 0).open()
	one.install(3)
	one.tell(fleet.JobEventQueued, 1, "")
	one.tell(fleet.JobEventQueued, 5, "")
	before, ended, idle := w.pod(), w.pod(), w.pod()
	one.work(before, 1)
	done := one.work(ended, 5)
	noteHolds(t, url)
	backup := postgrestest.TakeBackup(t, url)
	taken := time.Now()
	w.eventually("epochs go on", func() bool { return !one.frozen() && w.copy.now().Epoch > 3 })
	first := w.copy.now()
	w.eventually("the backup is older", func() bool { return w.copy.now().Epoch > first.Epoch+2 })

	// Since: one job ends, two begin, of which one has not reached its runner yet, and a third is queued.
	w.forge.Set(func(g *dispatchtest.GitHub) { delete(g.Runners, done) })
	one.end(ended, 5, done)
	working, waiting := w.pod(), w.pod()
	one.tell(fleet.JobEventQueued, 2, "")
	busy := one.work(working, 2)
	one.tell(fleet.JobEventQueued, 3, "")
	w.forge.Connect(one.serve(waiting))
	one.tell(fleet.JobEventQueued, 4, "")
	one.tell(fleet.JobEventQueued, 9, "", "a set of labels that the backup has never heard of")
	two := w.server(url, 10*time.Minute).open()
	seen := w.copy.now()
	minted := w.forge.Mints()
	stop := w.guardian([]*server{one, two}, before, working)

	backup.Restore(t, url)
	w.eventually("every replica holds", func() bool { return one.frozen() && two.frozen() })
	require.GreaterOrEqual(t, seen.Epoch, int64(3))
	for _, s := range []*server{one, two} {
		answer := s.retire(idle)[0]
		if s.frozen() {
			require.Equal(t, runnerapi.Unknown, answer.Verdict)
			require.NotEmpty(t, answer.Reason)
			_, err := s.dispatcher.Signals(t.Context())
			require.ErrorIs(t, err, fleet.ErrLedgerFrozen)
		}
	}
	w.eventually("the hold is written down", func() bool { return holds(t, url, "true") > 0 }) // a server holds before it writes that
	require.Zero(t, holds(t, url, "length > $1::float8 * interval '1 s'", holdFor.Seconds()), "by the database's clock")
	require.Equal(t, minted, w.forge.Mints())

	w.eventually("dispatch goes on", func() bool { return !one.frozen() && !two.frozen() })
	after, err := one.store.Epoch(t.Context())
	require.NoError(t, err)
	require.Greater(t, after.Epoch, seen.Epoch+900, "ahead of everything that was seen")
	require.Equal(t, seen.Lineage, after.Lineage)
	require.Equal(t, minted, w.forge.Mints(), "nothing was minted in the meantime")

	require.Equal(t, fleet.ClaimExecuting, one.claim(before).State)
	rebuilt := one.claim(working)
	require.Equal(t, fleet.ClaimExecuting, rebuilt.State)
	require.EqualValues(t, 2, rebuilt.JobID, "found among GitHub's jobs")
	require.Equal(t, busy, rebuilt.RunnerName)
	require.Equal(t, fleet.JobExecuting, one.job(2))
	registered := one.claim(waiting)
	require.Equal(t, fleet.ClaimMinted, registered.State, "it may be given a job at any moment")
	require.True(t, registered.Acknowledged)
	require.Equal(t, runnerapi.Busy, two.retire(working)[0].Verdict)
	require.Equal(t, runnerapi.Busy, two.retire(waiting)[0].Verdict)
	stop()

	// GitHub's events since the backup are requested again, and the budget holds: three are charged, and a fourth that is gone.
	w.mu.Lock()
	require.NotEmpty(t, w.missed)
	require.WithinDuration(t, taken.Add(-2*time.Minute), w.missed[0], 30*time.Second)
	w.mu.Unlock()
	one.tell(fleet.JobEventQueued, 4, "")
	one.tell(fleet.JobEventQueued, 9, "", "a set of labels that the backup has never heard of") // and that the server remembers
	answer, err := two.dispatcher.Poll(await.Context(t), idle, 0)
	require.NoError(t, err)
	require.Equal(t, dispatch.ReplyEmpty, answer.Reply, "CLAIM-5: over the budget")
	one.end(ended, 5, done)
	require.EqualValues(t, 3, ledgertest.Int(t, url, `SELECT count(*) FROM runner_claims WHERE state IN ('claimed', 'minted', 'executing')`))
	one.limit(4)
	two.serve(idle)
	require.EqualValues(t, 4, one.claim(idle).JobID)

	// And everything continues.
	one.tell(fleet.JobEventCompleted, 2, busy)
	require.Equal(t, fleet.ClaimSpent, one.claim(working).State)
	require.Equal(t, fleet.JobCompleted, one.job(2))
}

// CLAIM-17: a new, empty database beside an old cluster is a restore as well, of everything.
func TestRestore_CLAIM17_AnEmptyDatabase(t *testing.T) {
	for name, copyLost := range map[string]bool{"the copy tells": false, "the copy is gone too, but pods work": true} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			former := w.server(postgrestest.NewDatabase(t, ledger.Migrate), 0).open()
			former.install(9)
			former.tell(fleet.JobEventQueued, 1, "")
			working := w.pod()
			former.work(working, 1)
			w.eventually("it is copied", func() bool { return w.copy.now().Epoch > 2 })
			known := w.copy.now()
			former.stop()
			if copyLost {
				w.copy.set(epoch.Mark{}, nil)
			}

			url := empty(t)
			next := w.server(url, 0)
			stop := w.guardian([]*server{next}, working)
			w.eventually("a hold is written down", func() bool {
				row, err := next.store.Epoch(t.Context())
				return err == nil && !row.HoldUntil.IsZero()
			})
			next.open()
			stop()
			claim := next.claim(working)
			require.Equal(t, fleet.ClaimExecuting, claim.State)
			require.EqualValues(t, 1, claim.JobID)
			require.Equal(t, acme, claim.Account)
			require.EqualValues(t, 1000, ledgertest.Int(t, url, `SELECT milli_cpu FROM runner_claims`), "charged")
			row, err := next.store.Epoch(t.Context())
			require.NoError(t, err)
			if !copyLost {
				require.Equal(t, known.Lineage, row.Lineage, "a replica that remembers the former one continues with this")
				require.Greater(t, row.Epoch, known.Epoch)
			}
			w.mu.Lock()
			defer w.mu.Unlock()
			require.WithinDuration(t, time.Now().Add(-72*time.Hour), w.missed[0], time.Minute, "everything that GitHub keeps")
		})
	}
}

// empty is a database with a lineage of its own: those of one template would share theirs.
func empty(t *testing.T) string {
	url := postgrestest.NewDatabase(t, nil)
	require.NoError(t, ledger.Migrate(t.Context(), url))
	return url
}

// CLAIM-17: everything was stopped when the backup was restored, and a server that is started again in the middle of the hold
// does not skip it.
func TestRestore_CLAIM17_AllStoppedAndStartedAgain(t *testing.T) {
	w := newWorld(t)
	url := postgrestest.NewDatabase(t, ledger.Migrate)
	s := w.server(url, 0).open()
	s.install(9)
	s.tell(fleet.JobEventQueued, 1, "")
	backup := postgrestest.TakeBackup(t, url)
	working := w.pod()
	w.eventually("it goes on", func() bool { return !s.frozen() })
	name := s.work(working, 1)
	behind := w.copy.now()
	w.eventually("it is copied", func() bool { return w.copy.now().Epoch > behind.Epoch+2 })
	s.stop()
	backup.Restore(t, url)

	w.forge.Set(func(g *dispatchtest.GitHub) { g.Down = errDown }) // GitHub cannot be asked either: the hold does not end by its time
	s = w.server(url, 0)
	var row epoch.Row
	w.eventually("a hold is written down", func() bool {
		var err error
		row, err = s.store.Epoch(t.Context())
		return err == nil && !row.HoldUntil.IsZero()
	})
	require.True(t, s.frozen())
	s.stop()
	s = w.server(url, 0)
	again, err := s.store.Epoch(t.Context())
	require.NoError(t, err)
	require.Equal(t, row.HoldUntil, again.HoldUntil)
	w.eventually("its time is over", func() bool {
		row, err := s.store.Epoch(t.Context())
		return err == nil && row.Now.After(row.HoldUntil.Add(holdFor))
	})
	require.True(t, s.frozen(), "nothing is rebuilt: nothing is dispatched")
	require.Equal(t, runnerapi.Unknown, s.retire(working)[0].Verdict)
	w.forge.Set(func(g *dispatchtest.GitHub) { g.Down = nil })
	s.open()
	require.Equal(t, fleet.ClaimExecuting, s.claim(working).State)
	require.Equal(t, name, s.claim(working).RunnerName)
	require.Equal(t, fleet.JobExecuting, s.job(1), "queued in the backup, and not handed out a second time")
}

// CLAIM-17: one server still uses the former database when another one begins with its restored copy. Only one of the two
// dispatches, and it is the former as long as it runs.
func TestRestore_CLAIM17_TwoDatabasesAtOnce(t *testing.T) {
	w := newWorld(t)
	url := postgrestest.NewDatabase(t, ledger.Migrate)
	former := w.server(url, 0).open()
	former.install(9)
	backup := postgrestest.TakeBackup(t, url)
	then := w.copy.now()
	w.eventually("it goes on", func() bool { return !former.frozen() && w.copy.now().Epoch > then.Epoch+3 })
	next := w.server(backup.RestoreBeside(t, url), 0)
	w.eventually("a hold is written down", func() bool {
		row, err := next.store.Epoch(t.Context())
		return err == nil && !row.HoldUntil.IsZero()
	})
	at := w.copy.now()
	w.eventually("the hold's time has passed, and again", func() bool { return w.copy.now().Epoch > at.Epoch+int64(3*holdFor/beat)/2 })
	require.True(t, next.frozen())
	require.False(t, former.frozen())
	former.stop()
	next.open()
	require.Greater(t, w.copy.now().Epoch, at.Epoch)

	back := w.server(url, 0)
	w.eventually("the former is behind now", func() bool {
		row, err := back.store.Epoch(t.Context())
		return err == nil && !row.HoldUntil.IsZero()
	})
	require.True(t, back.frozen())
	require.False(t, next.frozen())
}

// CLAIM-17: without the copy no server starts, and those that run continue.
func TestRestore_CLAIM17_TheCopyCannotBeRead(t *testing.T) {
	w := newWorld(t)
	url := postgrestest.NewDatabase(t, ledger.Migrate)
	runs := w.server(url, 0).open()
	runs.install(9)
	w.copy.set(w.copy.now(), errDown)
	starts := w.server(url, 0)
	runs.tell(fleet.JobEventQueued, 1, "")
	pod := w.pod()
	answer, err := starts.dispatcher.Poll(t.Context(), pod, 0)
	require.NoError(t, err)
	require.Equal(t, dispatch.ReplyEmpty, answer.Reply)
	require.True(t, starts.frozen())
	_, err = starts.store.Retire(t.Context(), []dispatch.Pod{pod}, time.Now())
	require.ErrorIs(t, err, fleet.ErrLedgerFrozen, "the statements refuse it, too")
	runs.serve(pod)
	w.copy.set(w.copy.now(), nil)
	starts.open()
	row, err := starts.store.Epoch(t.Context())
	require.NoError(t, err)
	require.Less(t, row.Epoch, int64(1000), "there was no hold")
}

// CLAIM-17: what may hand out or grant asks for the epoch inside its own statement.
func TestRestore_CLAIM17_StatementsRefuseADatabaseThatIsBehind(t *testing.T) {
	url := postgrestest.NewDatabase(t, ledger.Migrate)
	store, err := ledger.Open(t.Context(), url, 0)
	require.NoError(t, err)
	t.Cleanup(store.Close)
	row, err := store.Epoch(t.Context())
	require.NoError(t, err)
	w := newWorld(t)
	s := &server{w: w, store: store}
	s.install(9)
	s.tell(fleet.JobEventQueued, 1, "")
	s.tell(fleet.JobEventQueued, 2, "")
	claimed, other, gone := w.pod(), w.pod(), w.pod()
	now := time.Now()
	batch := func(pod dispatch.Pod, lease time.Duration) dispatch.Batch {
		return dispatch.Batch{
			Pool: pool, LabelKeys: []string{dispatch.LabelKey(pool.Labels)}, Now: now, Lease: lease, Excluded: []int64{},
			Polls:   []dispatch.Poll{{Namespace: pod.Namespace, PodName: pod.Name, PodUID: pod.UID}},
			Reserve: func(_ dispatch.Account, want int) int { return want }, Return: func(int64, int) {},
		}
	}
	result, err := store.ClaimBatch(t.Context(), batch(claimed, -time.Second))
	require.NoError(t, err)
	require.Len(t, result.Claims, 1)
	_, err = store.Retire(t.Context(), []dispatch.Pod{gone}, now)
	require.NoError(t, err)
	g := result.Claims[0].Generation
	attempts := map[string]func(context.Context) error{
		"claim": func(ctx context.Context) error {
			_, err := store.ClaimBatch(ctx, batch(other, time.Minute))
			return err
		},
		"take-over": func(ctx context.Context) error {
			_, err := store.TakeOver(ctx, claimed.UID, g, g+1, 0, now.Add(time.Minute), now)
			return err
		},
		"intent of a mint": func(ctx context.Context) error {
			_, err := store.Intend(ctx, claimed.UID, g, "name", fleet.Scope{Owner: "acme"}, now)
			return err
		},
		"record of a mint": func(ctx context.Context) error { _, err := store.RecordMint(ctx, claimed.UID, g, 1, now); return err },
		"retire":           func(ctx context.Context) error { _, err := store.Retire(ctx, []dispatch.Pod{other}, now); return err },
		"take for release": func(ctx context.Context) error {
			_, err := store.TakeForRelease(ctx, claimed.UID, g, g+1, now.Add(time.Minute), now)
			return err
		},
		"release": func(ctx context.Context) error {
			if err := store.RegistrationGone(ctx, result.Claims[0].RunnerName, now); err != nil {
				return err
			}
			_, err := store.Release(ctx, claimed.UID, g, "because", now)
			return err
		},
		"proof": func(ctx context.Context) error {
			_, err := store.ProveEnded(ctx, []string{gone.UID}, "because")
			return err
		},
	}
	cases := map[string]func(){
		"nothing is known yet": func() { store.Guard() },
		"behind":               func() { store.Know(epoch.Mark{Lineage: row.Lineage, Epoch: row.Epoch + 1}) },
		"another lineage":      func() { store.Know(epoch.Mark{Lineage: "another", Epoch: row.Epoch}) },
		"held": func() {
			store.Know(row.Mark)
			ledgertest.Exec(t, url, `UPDATE ledger_epoch SET hold_until = now()`)
		},
		"no row": func() { ledgertest.Exec(t, url, `DELETE FROM ledger_epoch`) },
	}
	const fingerprint = `SELECT coalesce(sum(hashtext(c::text)), 0)::bigint + (SELECT coalesce(sum(hashtext(j::text)), 0)::bigint FROM workflow_jobs j) FROM runner_claims c`
	before := ledgertest.Int(t, url, fingerprint)
	for _, name := range []string{"nothing is known yet", "behind", "another lineage", "held", "no row"} {
		cases[name]()
		for what, attempt := range attempts {
			require.ErrorIs(t, attempt(t.Context()), fleet.ErrLedgerFrozen, "%s: %s", name, what)
		}
		require.Equal(t, before, ledgertest.Int(t, url, fingerprint), name)
	}
	ledgertest.Exec(t, url, `INSERT INTO ledger_epoch (lineage, epoch, beaten_at) VALUES ($1, $2, now())`, row.Lineage, row.Epoch+7)
	store.Know(row.Mark)
	for _, what := range []string{"claim", "take-over"} {
		require.NoError(t, attempts[what](t.Context()), what)
	}
}
