package e2e

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/api/adminapi"
	"github.com/bullpen-ci/bullpen/internal/cli"
)

// pauseAndDrain has the pool hand out nothing while a long job runs in it: new jobs wait, idle runners stay or are removed,
// that job continues.
func pauseAndDrain(t *testing.T, dir string, w *where, up *running) {
	ask := func(verb string, more ...string) cli.PoolIntake {
		t.Helper()
		stdout, stderr, code := run(t, append([]string{"pool", verb, "default", "--state-dir", dir, "-o", "json"}, more...)...)
		require.Zero(t, code, "%s", stderr)
		var changed cli.PoolIntake
		require.NoError(t, json.Unmarshal([]byte(stdout), &changed))
		return changed
	}
	pool := func() adminapi.Pool {
		t.Helper()
		stdout, stderr, code := run(t, "pools", "--state-dir", dir, "-o", "json")
		require.Zero(t, code, "%s", stderr)
		var pools []adminapi.Pool
		require.NoError(t, json.Unmarshal([]byte(stdout), &pools))
		at := slices.IndexFunc(pools, func(p adminapi.Pool) bool { return p.Name == "default" })
		require.GreaterOrEqual(t, at, 0)
		return pools[at]
	}
	const busy = 1 // a runner whose job has just ended may still be counted
	require.Eventually(t, func() bool {
		p := pool()
		return p.Busy == busy && p.Idle > 0
	}, patience, commandInterval, "the long job alone runs")
	defer run(t, "pool", "resume", "default", "--state-dir", dir) // also after a failure, the other tests need the pool

	paused := ask("pause", "--reason", "a test")
	require.True(t, paused.Changed)
	require.Regexp(t, `^by \S+ since .*: a test$`, paused.Note)
	again := ask("pause", "--reason", "another")
	require.False(t, again.Changed)
	require.Equal(t, paused.Note, again.Note, "the first word stands")
	require.Eventually(t, func() bool { return pool().Intake == "Paused" }, patience, commandInterval)
	require.Contains(t, pool().Problems[0].Sentence, paused.Note)
	submit(t, dir, w, strings.ReplaceAll(heldJob, "held", "waited"))
	require.Eventually(t, func() bool {
		demand := pool().Demand
		return demand != nil && demand.Blocked["pool_paused"] == 1 && demand.Queued == 0
	}, patience, commandInterval)
	whyTheJobWaits(t, dir, "acme", "pool-paused")
	require.Positive(t, pool().Idle, "who waits for work stays")

	require.Equal(t, "Paused", string(ask("drain").Was))
	require.Eventually(t, func() bool {
		p := pool()
		return p.Idle == 0 && p.Starting == 0 && p.Terminating == 0 && p.Busy == busy
	}, patience, commandInterval, "idle ones leave, the one that works does not")
	require.True(t, longJobRuns(t, dir))
	whyTheJobWaits(t, dir, "acme", "pool-paused")

	opened := ask("resume")
	require.Empty(t, opened.Note)
	up.await(t, "the job that waited", jobEnded("waited", "success"))
	require.Equal(t, "Open", pool().Intake)
	require.True(t, longJobRuns(t, dir))
	changesOfThePool(t, dir)
	refused(t, `pool "nothing" not found, and not in the audit log`, "audit", "--pool", "nothing", "--state-dir", dir)
	refused(t, `account "unknown" not found`, "audit", "--account", "unknown", "--state-dir", dir)
	refused(t, `pool "nothing" not found`, "pool", "pause", "nothing", "--state-dir", dir)
}

// changesOfThePool awaits that the audit log has each change of the pool, once, with the user whose client certificate bullpen used.
func changesOfThePool(t *testing.T, dir string) {
	t.Helper()
	require.Eventually(t, func() bool {
		stdout, stderr, code := run(t, "audit", "--pool", "default", "--since", "1h", "-o", "json", "--state-dir", dir)
		require.Zero(t, code, "%s", stderr)
		var events []adminapi.AuditEvent
		require.NoError(t, json.Unmarshal([]byte(stdout), &events))
		var actions []string
		for _, e := range events {
			if e.Action == adminapi.ActionRetire {
				continue
			}
			actions = append(actions, e.Action)
			if e.User+e.StatedUser != "bullpen-admin" || e.Manager != "bullpen-pool" || e.Pool != "bullpen-runners/default" {
				t.Logf("unexpected: %+v", e)
				return false
			}
		}
		return slices.Equal(slices.Compact(actions), []string{adminapi.ActionPoolResume, adminapi.ActionPoolDrain, adminapi.ActionPoolPause, adminapi.ActionPoolScale})
	}, patience, commandInterval)
}

// resizePool changes the number of runners, reads pools and runners in formats for scripts, and has changes without effect rejected.
func resizePool(t *testing.T, dir string) {
	ask := func(args ...string) (stdout, stderr string) {
		t.Helper()
		stdout, stderr, code := run(t, append(args, "--state-dir", dir)...)
		require.Zero(t, code, "%s", stderr)
		return stdout, stderr
	}
	desired := func() int {
		t.Helper()
		text, _ := ask("pools", "default", "-o", "jsonpath={.desired}")
		n, err := strconv.Atoi(text)
		require.NoError(t, err)
		return n
	}
	before := desired()
	_, stderr := ask("pool", "scale", "default", "--replicas", strconv.Itoa(before))
	require.Contains(t, stderr, "already has spec.replicas")
	more := strconv.Itoa(before + 1)
	refused(t, "is managed by bullpen-up", "pool", "set", "default", "--image", "another", "--state-dir", dir)
	refused(t, "pool default is not autoscaled: --min-idle has no effect", "pool", "set", "default", "--min-idle", "2", "--state-dir", dir)
	defer ask("pool", "scale", "default", "--replicas", strconv.Itoa(before)) // the other tests count its runners
	stdout, stderr := ask("pool", "scale", "default", "--replicas", more, "-o", "json")
	require.Contains(t, stderr, "`bullpen up` keeps this size when it starts again.")
	var changed cli.PoolSettings
	require.NoError(t, json.Unmarshal([]byte(stdout), &changed))
	require.True(t, changed.Changed)
	require.Eventually(t, func() bool { return desired() == before+1 }, patience, commandInterval)
	refused(t, "spec.replicas", "pool", "scale", "default", "--replicas", "20000", "--state-dir", dir) // the API server's limit
	refused(t, `pool "defautl" not found`, "pool", "get", "defautl", "--state-dir", dir)

	names, _ := ask("pool", "list", "-q", "--sort-by", "name")
	require.Contains(t, strings.Fields(names), "default")
	runner := ""
	require.Eventually(t, func() bool {
		stdout, _ := ask("runners", "-q", "--pool", "default", "--limit", "1")
		runner = strings.TrimSpace(stdout)
		return runner != ""
	}, patience, commandInterval)
	pool, _ := ask("runner", "get", runner, "-o", "custom-columns=POOL:.pool", "--no-headers")
	require.Equal(t, "default\n", pool)
}
