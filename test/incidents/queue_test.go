package incidents

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/internal/dev/github/standin"
	"github.com/bullpen-ci/bullpen/internal/fleet"
	"github.com/bullpen-ci/bullpen/internal/plan/scaling"
)

// The oldest job of a queue cannot be run: it no longer exists, or its account may not run anything.
func TestQueue_CLAIM9_AStaleHeadPinsNothing(t *testing.T) {
	t.Parallel()
	t.Run("it was cancelled without an event", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		dead := w.submit("acme", "linux", 1).known()
		w.fault(standin.Fault{Kind: "hook-vanish", Event: "workflow_job", Action: "completed", Times: 1})
		require.NoError(t, w.github.Admin.CancelRun(t.Context(), dead.id))
		w.eventually("GitHub has done with it", func() bool { return w.job(dead.jobs[0]).Conclusion == "cancelled" })
		require.Equal(t, fleet.JobQueued, w.state(dead.jobs[0]))
		for range 3 {
			run := w.submit("acme", "linux", 1).known()
			w.add("linux")
			run.running()
			run.release()
			run.succeed()
		}
		require.EqualValues(t, 3, w.count(`SELECT count(*) FROM runner_sessions`), "no pod was spent on it")
	})
	t.Run("its account is at its limit", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t, func(o *worldOptions) { o.accounts = []string{"acme", "other"} })
		w.limit("acme", 0)
		head := w.submit("acme", "linux", 1).known()
		run := w.submit("other", "linux", 1).known()
		w.add("linux")
		run.running()
		run.release()
		run.succeed()
		require.Equal(t, fleet.JobQueued, w.state(head.jobs[0]))
		// Control: the oldest job of all accounts is still the one that cannot be run.
		require.EqualValues(t, head.jobs[0], w.count(`SELECT id FROM workflow_jobs WHERE state = 'queued' ORDER BY queued_at, id LIMIT 1`))
	})
}

// The reads of a pick do not grow with the queue.
func TestQueue_CLAIM5_TheCostOfAPickIsFlat(t *testing.T) {
	t.Parallel()
	read := func(backlog int) (rows, naive int64) {
		w := newWorld(t)
		w.submit("acme", "linux", 1).known()
		w.write(`INSERT INTO workflow_jobs (id, account_id, repository, run_id, run_attempt, name, workflow, head_branch, head_sha, label_key, state, queued_at, updated_at)
			SELECT 1000000000000 + n, j.account_id, j.repository, j.run_id, 1, j.name, j.workflow, j.head_branch, j.head_sha, j.label_key, 'queued', now() + n * interval '1 ms', now()
			FROM workflow_jobs j, generate_series(1, $1::int) n`, backlog)
		w.write(`ANALYZE workflow_jobs`)
		w.store.Close()
		w.killServer()
		before := w.rowsRead()
		w.newServer()
		w.add("linux").delivered()
		w.killServer()
		after := w.rowsRead()
		rows = after - before
		w.count(`SELECT id FROM workflow_jobs WHERE state = 'queued' ORDER BY queued_at LIMIT 1`)
		return rows, w.rowsRead() - after
	}
	few, _ := read(10)
	many, naive := read(20_000)
	require.LessOrEqual(t, many, few+10, "a pick reads as many rows of 20,000 jobs as of 10")
	require.GreaterOrEqual(t, naive, int64(20_000), "control: the oldest of all, found the obvious way")
}

// Two pools share one node with room for five runners. One has four jobs running and keeps a fifth runner warm; the other's
// jobs are blocked, as the four use up their account's budget.
func TestScaling_SCALE2_BlockedWorkIsThereWhenRoomIsFreed(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const jobs, places = 4, 5
	w.pool("mac")
	w.limit("acme", jobs)
	var hogs []*run
	for range jobs {
		hogs = append(hogs, w.submit("acme", "linux", 1).known())
		w.add("linux")
	}
	for _, hog := range hogs {
		hog.running()
	}
	parked := w.submit("acme", "mac", 2).known()

	w.eventually("the label set is routed", func() bool { return w.plan(places, nil)["mac"] > 0 })
	desired := w.plan(places, nil)
	require.Equal(t, 1, desired["mac"], "exactly one runner for work that is blocked, though two jobs wait")
	require.Equal(t, jobs, desired["linux"], "the warm one yields, and no work does")

	// Control: blocked work asks for nothing, as it did. When room is freed no runner polls for it, and none ever
	// will.
	blind := func(s *scaling.Signal) { s.Blocked = 0 }
	require.Equal(t, map[string]int{"mac": 0, "linux": places}, w.plan(places, blind))
	hogs[0].release()
	hogs[0].succeed()
	w.settle()
	for _, id := range parked.jobs {
		require.Equal(t, fleet.JobQueued, w.state(id), "the budget has room, and no pod is there to take it")
	}

	for range desired["mac"] { // what the plan asked for
		w.add("mac")
	}
	w.eventually("one of them runs", func() bool {
		return w.state(parked.jobs[0]) == fleet.JobExecuting || w.state(parked.jobs[1]) == fleet.JobExecuting
	})
	for _, hog := range hogs[1:] {
		hog.release()
	}
	parked.release()
}

// plan is a pass of scaling over one node with that number of places, on the server's real signals. The pool linux keeps one idle runner.
func (w *world) plan(places int64, change func(*scaling.Signal)) map[string]int {
	w.t.Helper()
	w.clock.Advance(2 * time.Second) // signals are kept for one
	signals, err := w.up().dispatcher.Signals(w.t.Context())
	require.NoError(w.t, err)
	in := scaling.Input{
		Now: w.clock.Now(), Nodes: map[string]scaling.Room{"node": {MilliCPU: 1000 * places, Memory: 1 << 40, Pods: 100}},
		Signals: scaling.Signals{At: signals.At, Pools: map[string]scaling.Signal{}},
	}
	for _, pool := range signals.Pools {
		signal := scaling.Signal{Occupied: pool.Occupied, Claimed: pool.Claimed, Queued: pool.Queued, P95: pool.P95LastHour}
		for _, n := range pool.Blocked {
			signal.Blocked += n
		}
		if change != nil {
			change(&signal)
		}
		in.Signals.Pools[pool.Name] = signal
		sized := scaling.Pool{
			Name: pool.Name, Autoscaled: true, Max: 10, Runner: scaling.Room{MilliCPU: 1000, Memory: 1 << 30, Pods: 1}, Nodes: []string{"node"},
		}
		if pool.Name == "linux" {
			sized.MinIdle = 1
		}
		in.Pools = append(in.Pools, sized)
	}
	desired := map[string]int{}
	for _, result := range scaling.Plan(in) {
		require.Empty(w.t, result.Blind)
		w.t.Log(result.Name, result.Why())
		desired[result.Name] = result.Desired
	}
	return desired
}
