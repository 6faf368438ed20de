package ledger

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/internal/fleet"
	"github.com/bullpen-ci/bullpen/internal/server/dispatch"
	"github.com/bullpen-ci/bullpen/internal/server/ledger/sqlcgen"
	"github.com/bullpen-ci/bullpen/test/kit/ledgertest"
)

// labelled is a ledger in which an account may have few lanes. Each job asks for one label, and was queued in the order of the job IDs.
type labelled struct {
	*testing.T
	store *Store
	url   string
	asked []string // statements of the last event, by name
	now   time.Time
}

func newLabelled(t *testing.T, mostLanes int64) *labelled {
	t.Helper()
	store, url := retained(t)
	store.mostLanes = mostLanes
	l := &labelled{T: t, store: store, url: url, now: time.Now()}
	store.full.now = func() time.Time { return l.now }
	return l
}

// later is when an event searches for room again that an event before did not find.
func (l *labelled) later() { l.now = l.now.Add(fullFor) }

func (l *labelled) event(id int64, label string, kind fleet.JobEvent) dispatch.JobEvent {
	ev := queuedEvent(id)
	ev.Kind, ev.Labels, ev.QueuedAt = kind, []string{label}, time.Unix(1_700_000_000+id, 0)
	if kind != fleet.JobEventQueued {
		ev.RunnerName = "elsewhere"
	}
	return ev
}

// record applies the event, and reports whether its job is in its lane.
func (l *labelled) record(ev dispatch.JobEvent) bool {
	l.Helper()
	rec, err := l.store.recordJob(l.Context(), delivery(), ev, func(ctx context.Context, _ string, fn func(q *sqlcgen.Queries) error) error {
		return pipelined(ctx, l.store.pool.Pool, func(p *pipeline) error {
			l.asked = nil
			return fn(sqlcgen.New(&asking{p, &l.asked}))
		})
	})
	require.NoError(l, err)
	return rec.Queued
}

func (l *labelled) queue(id int64, label string) bool {
	l.Helper()
	return l.record(l.event(id, label, fleet.JobEventQueued))
}

// end has the job run elsewhere, and end.
func (l *labelled) end(id int64, label string) {
	l.Helper()
	l.record(l.event(id, label, fleet.JobEventStarted))
	l.record(l.event(id, label, fleet.JobEventCompleted))
}

// returnBlocked is the pass.
func (l *labelled) returnBlocked() {
	l.Helper()
	require.NoError(l, l.store.ReturnBlocked(l.Context()))
}

// held are the jobs that are held for their label sets, oldest first.
func (l *labelled) held() []int64 {
	l.Helper()
	return l.jobs("SELECT id FROM workflow_jobs WHERE state = 'queued' AND held = 'label_sets' ORDER BY id")
}

func (l *labelled) jobs(sql string) []int64 {
	l.Helper()
	rows, err := l.store.pool.Query(l.Context(), sql)
	require.NoError(l, err)
	ids, err := pgx.CollectRows(rows, pgx.RowTo[int64])
	require.NoError(l, err)
	return ids
}

func (l *labelled) lanes() int64 {
	l.Helper()
	return ledgertest.Int(l, l.url, "SELECT count(*) FROM job_lanes WHERE account_id = 1")
}

// asking notes the statements of a transaction by their names.
type asking struct {
	sqlcgen.DBTX
	names *[]string
}

func (a *asking) note(sql string) {
	name, _, _ := strings.Cut(strings.TrimPrefix(sql, "-- name: "), " ")
	*a.names = append(*a.names, name)
}

func (a *asking) Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	a.note(sql)
	return a.DBTX.Exec(ctx, sql, args...)
}

func (a *asking) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	a.note(sql)
	return a.DBTX.Query(ctx, sql, args...)
}

func (a *asking) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	a.note(sql)
	return a.DBTX.QueryRow(ctx, sql, args...)
}

// TEN-2: an account has lanes for a bounded number of label sets. A job of a further one is held, costs no other, and is unblocked when
// there is room.
func TestLabelSets_TEN2_OfOneAccountAreBounded(t *testing.T) {
	t.Parallel()
	l := newLabelled(t, 2)
	require.True(t, l.queue(1, "a"))
	require.True(t, l.queue(2, "b"))
	require.False(t, l.queue(3, "c"))
	require.False(t, l.queue(4, "c"), "it waits behind the first of its kind")
	require.True(t, l.queue(5, "a"), "a label set that it has already")
	other := l.event(6, "c", fleet.JobEventQueued)
	other.Account, other.Repository = dispatch.Account{ID: 2, Login: "globex", InstallationID: 102}, "globex/app"
	require.True(t, l.record(other), "another account's")
	require.Equal(t, []int64{3, 4}, l.held())
	require.Equal(t, int64(2), l.lanes())

	l.returnBlocked()
	require.Equal(t, []int64{3, 4}, l.held(), "there is no room")
	l.record(l.event(2, "b", fleet.JobEventStarted))
	l.returnBlocked()
	require.Equal(t, []int64{3, 4}, l.held(), "a lane whose job runs is kept")
	l.record(l.event(2, "b", fleet.JobEventCompleted))
	l.returnBlocked()
	require.Empty(t, l.held(), "both have the same lane")
	require.Equal(t, int64(1), ledgertest.Int(t, l.url, `SELECT count(*) FROM job_lanes WHERE account_id = 1 AND label_key = '["c"]'`))

	l.end(3, "c")
	l.end(4, "c")
	l.later()
	require.True(t, l.queue(7, "d"), "a lane without a job, which retention would remove within an hour, keeps none out")
	l.end(1, "a")
	require.False(t, l.queue(8, "e"), "another job waits in that lane")
	require.Equal(t, int64(2), l.lanes())
}

// TEN-2, TEN-7: the room of a lane without a job is the oldest held job's, whichever job's event finds it, and a job of the same label set does not go
// before it.
func TestLabelSets_TEN2_TheOldestHeldJobHasTheRoom(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		label  string // of the later job
		queued bool
		held   []int64
	}{
		"the same label set": {"c", true, nil},
		"another label set":  {"d", false, []int64{4}},
	} {
		l := newLabelled(t, 2)
		require.True(t, l.queue(1, "a"), name)
		require.True(t, l.queue(2, "b"), name)
		require.False(t, l.queue(3, "c"), name)
		l.end(1, "a")
		l.later()
		require.Equal(t, c.queued, l.queue(4, c.label), name)
		require.ElementsMatch(t, c.held, l.held(), name)
		require.Equal(t, int64(2), l.lanes(), name)
		oldest, err := l.store.queries().OldestInLane(t.Context(), `["c"]`, 1, "")
		require.NoError(t, err, name)
		require.Equal(t, int64(3), oldest.ID, name)
		require.Equal(t, int64(1_700_000_003), ledgertest.Int(t, l.url, `SELECT extract(epoch FROM head_at)::bigint FROM job_lanes WHERE label_key = '["c"]'`), name)
	}
}

// TEN-2: lanes that retention has removed are room for the held jobs first, too.
func TestLabelSets_TEN2_ANewJobTakesNoRoomFromHeldOnes(t *testing.T) {
	t.Parallel()
	l := newLabelled(t, 2)
	require.True(t, l.queue(1, "a"))
	require.True(t, l.queue(2, "b"))
	require.False(t, l.queue(3, "c"))
	l.end(1, "a")
	ledgertest.Exec(t, l.url, `DELETE FROM job_lanes WHERE label_key = '["a"]'`)
	l.later()
	require.False(t, l.queue(4, "d"))
	require.Equal(t, []int64{4}, l.held())
}

// TEN-2: a job that is held although its label set has a lane, because two transactions did not see each other, needs no room: the next event of the
// lane returns it, or the pass. TEN-1: an event asks nothing for that while no job of its lane is held.
func TestLabelSets_TEN2_AHeldJobWithALaneReturns(t *testing.T) {
	t.Parallel()
	for name, returns := range map[string]func(l *labelled){
		"by an event": func(l *labelled) {
			require.True(l, l.queue(4, "b"))
			require.NotContains(l, l.asked, "ReturnToLane")
			require.Equal(l, []int64{3}, l.held())
			require.True(l, l.queue(5, "a"))
			require.Contains(l, l.asked, "ReturnToLane")
		},
		"by the pass": func(l *labelled) { l.returnBlocked() },
	} {
		l := newLabelled(t, 2)
		require.True(t, l.queue(1, "a"), name)
		require.True(t, l.queue(2, "b"), name)
		require.False(t, l.queue(3, "c"), name)
		ledgertest.Exec(t, l.url, `UPDATE workflow_jobs SET label_key = '["a"]', queued_at = to_timestamp(1699999999) WHERE id = 3`)
		returns(l)
		require.Empty(t, l.held(), name)
		require.Equal(t, int64(2), l.lanes(), name)
		require.Equal(t, int64(1_699_999_999), ledgertest.Int(t, l.url, `SELECT extract(epoch FROM head_at)::bigint FROM job_lanes WHERE label_key = '["a"]'`), name)
	}
}

// TEN-1: an event returns few of the jobs that are held for its lane. TEN-7: as long as older ones are held, its own job is, too.
func TestLabelSets_TEN1_AnEventReturnsAFewHeldJobs(t *testing.T) {
	t.Parallel()
	l := newLabelled(t, 2)
	require.True(t, l.queue(1, "a"))
	require.True(t, l.queue(2, "b"))
	const held = 2*returnedAtOnce + 3
	for id := range int64(held) {
		require.False(t, l.queue(10+id, "c"))
	}
	l.end(1, "a")
	l.later()
	require.True(t, l.queue(100, "a"), "it has its lane")
	l.end(100, "a")
	l.later()
	l.queue(101, "c")
	require.Equal(t, []int64{21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31, 32, 101}, l.held(), "one has the room, and a few are in its lane")
	require.False(t, l.queue(102, "c"), "older ones are held")
	require.Equal(t, []int64{31, 32, 101, 102}, l.held())
	l.returnBlocked()
	require.Empty(t, l.held(), "the pass returns all")
}

// TEN-1: a search that found some room, all of which the oldest held jobs needed, is not repeated by the next event either.
func TestLabelSets_TEN1_ASearchWhoseRoomIsUsedIsNotRepeated(t *testing.T) {
	t.Parallel()
	l := newLabelled(t, 2)
	require.True(t, l.queue(1, "a"))
	require.True(t, l.queue(2, "b"))
	require.False(t, l.queue(3, "c"))
	l.end(1, "a")
	l.later()
	require.False(t, l.queue(4, "d"))
	require.Contains(t, l.asked, "EvictLanes")
	require.False(t, l.queue(5, "e"))
	require.NotContains(t, l.asked, "LanesOfAccount")
	require.NotContains(t, l.asked, "EvictLanes")
}

// A job that is held for another reason stays so when its account has no further lane: room for one would return it.
func TestLabelSets_TEN2_AnotherHoldStays(t *testing.T) {
	t.Parallel()
	l := newLabelled(t, 1)
	require.True(t, l.queue(1, "a"))
	require.False(t, l.queue(2, "b"))
	ledgertest.Exec(t, l.url, `UPDATE workflow_jobs SET held = 'repository_removed' WHERE id = 2`)
	require.NoError(t, l.store.queries().HoldForLabels(t.Context(), 2))
	require.Empty(t, l.held())
}

// TEN-2: lanes that are parked as empty while their jobs run elsewhere, as with runners that register themselves, hide no lane without a job.
func TestLabelSets_TEN2_LanesWithRunningJobsHideNoEmptyOne(t *testing.T) {
	t.Parallel()
	const lanes = evictedAtOnce + 2
	l := newLabelled(t, lanes)
	ledgertest.Exec(t, l.url, `INSERT INTO label_sets SELECT '["run-' || n || '"]', ARRAY['run-' || n] FROM generate_series(1, $1::int) n`, lanes)
	ledgertest.Exec(t, l.url, `INSERT INTO job_lanes (label_key, account_id, head_at, parked)
		SELECT '["run-' || n || '"]', 1, now(), 'empty' FROM generate_series(1, $1::int) n`, lanes)
	ledgertest.Exec(t, l.url, `INSERT INTO workflow_jobs (id, account_id, repository, run_id, run_attempt, name, workflow, head_branch, head_sha,
			label_key, state, runner_name, queued_at, started_at, updated_at)
		SELECT n, 1, 'acme/app', 1, 1, '', '', '', '', '["run-' || n || '"]', 'executing', 'elsewhere', now(), now(), now()
		FROM generate_series(1, $1::int - 1) n`, lanes)
	require.True(t, l.queue(lanes, "new"))
	require.Equal(t, int64(lanes), l.lanes())
	require.Zero(t, ledgertest.Int(t, l.url, `SELECT count(*) FROM job_lanes WHERE label_key = '["run-' || $1::int || '"]'`, lanes))
}

// TEN-1: of an account without room for a further lane, one event in some seconds counts the lanes and searches for one without a job. The pass
// searches all the same.
func TestLabelSets_TEN1_AFruitlessSearchIsNotRepeatedByEachEvent(t *testing.T) {
	t.Parallel()
	l := newLabelled(t, 2)
	require.True(t, l.queue(1, "a"))
	require.True(t, l.queue(2, "b"))
	for round := range int64(3) {
		searches := 0
		for i := range int64(5) {
			require.False(t, l.queue(10*(round+1)+i, fmt.Sprintf("new-%d-%d", round, i)))
			require.Contains(t, l.asked, "HoldForLabels")
			for _, name := range l.asked {
				if name == "LanesOfAccount" || name == "EvictLanes" {
					searches++
				}
			}
		}
		require.Equal(t, 2, searches, "one counts the lanes, and searches them")
		l.later()
	}
	require.Len(t, l.held(), 15)
	require.False(t, l.queue(50, "newest"))
	l.end(1, "a")
	l.returnBlocked()
	require.NotContains(t, l.held(), int64(10), "the oldest has the room")
	require.Len(t, l.held(), 15)
}

func TestFullAccounts_AreBoundedAndForgotten(t *testing.T) {
	t.Parallel()
	now := time.Now()
	full := fullAccounts{now: func() time.Time { return now }}
	for id := range int64(3 * mostFull) {
		full.note(id, true)
		require.LessOrEqual(t, len(full.until), mostFull)
	}
	last := int64(3*mostFull - 1)
	require.True(t, full.has(last))
	full.note(last, false)
	require.False(t, full.has(last))
	full.note(last, true)
	now = now.Add(fullFor)
	require.False(t, full.has(last))
}
