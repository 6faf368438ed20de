package onebox

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/internal/dev/github/standin"
	"github.com/bullpen-ci/bullpen/internal/lib/childproc"
	"github.com/bullpen-ci/bullpen/internal/runnerpod"
)

var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func at(seconds int) *time.Time {
	moment := epoch.Add(time.Duration(seconds) * time.Second)
	return &moment
}

func podUID(n int) string { return fmt.Sprintf("00000000-0000-0000-0000-%012d", n) }

// ranJob is a job that ran on pod n from start to end and succeeded.
func ranJob(t testing.TB, n int, key string, queued, started, completed int) standin.JobView {
	runner, err := runnerpod.RunnerName(podUID(n), int64(1000+n))
	require.NoError(t, err)
	return standin.JobView{
		ID: int64(n), Key: key, Name: key, Status: "completed", Conclusion: demoExpected(key),
		QueuedAt: at(queued), StartedAt: at(started), CompletedAt: at(completed), RunnerName: runner, Acquisitions: 1,
	}
}

// goodEvidence passes.
func goodEvidence(t testing.TB) Evidence {
	skipped := standin.JobView{ID: 99, Key: "after-failure", Name: "after-failure", Status: "completed", Conclusion: "skipped", CompletedAt: at(6)}
	return Evidence{
		Jobs: []standin.JobView{
			ranJob(t, 1, "prepare", 0, 1, 2), ranJob(t, 2, "build/1", 2, 3, 9), ranJob(t, 3, "expected-failure", 2, 3, 5), skipped,
			ranJob(t, 4, "summary", 9, 10, 11),
		},
		WantJobs: 5, Expected: demoExpected, Runners: map[string]int{"": 2},
		Removals:     []Removal{{Pod: "p-1", UID: podUID(1), Seen: *at(3), Finished: true}, {Pod: "p-9", UID: podUID(9), Seen: *at(4)}},
		WantRestarts: []string{partServer, partController},
		Restarts: []Restart{
			{Replacement: Replacement{Part: partServer, Signal: "kill -9", OldPID: 1, NewPID: 2}, Running: 2},
			{Replacement: Replacement{Part: partController, Signal: "SIGTERM", OldPID: 3, NewPID: 4}, Running: 1},
		},
		WantChanges: []string{changeRoll, changeRename},
		Changes:     []Change{{Kind: changeRoll, Running: 2}, {Kind: changeRename, Running: 1}},
	}
}

func TestJudge(t *testing.T) {
	v := Judge(goodEvidence(t))
	require.True(t, v.Passed(), v.Problems)
	require.Zero(t, v.Killed)
	require.Equal(t, 5, v.AsExpected)
	require.Equal(t, map[string]int{"success": 3, "failure": 1, "skipped": 1}, v.Conclusions)

	for name, test := range map[string]struct {
		spoil  func(*Evidence)
		says   string
		killed int
	}{
		"a pod deleted while its job ran":     {func(e *Evidence) { e.Removals = append(e.Removals, Removal{Pod: "p-2", UID: podUID(2), Seen: *at(5)}) }, `job "build/1" was killed: its pod p-2 was deleted`, 1},
		"a pod deleted the moment it started": {func(e *Evidence) { e.Removals = append(e.Removals, Removal{Pod: "p-2", UID: podUID(2), Seen: *at(3)}) }, "was killed", 1},
		"a pod deleted under a job without end": {func(e *Evidence) {
			e.Jobs[1].CompletedAt = nil
			e.Removals = append(e.Removals, Removal{UID: podUID(2), Seen: *at(50)})
		}, "was killed", 1},
		"a runner that fell silent":     {func(e *Evidence) { e.Jobs[1].Lost = true }, "was lost", 1},
		"a wrong conclusion":            {func(e *Evidence) { e.Jobs[1].Conclusion = "cancelled"; e.Jobs[1].Reason = "why not" }, `concluded with cancelled (why not), expected success`, 0},
		"a failure that did not happen": {func(e *Evidence) { e.Jobs[2].Conclusion = "success" }, "expected failure", 0},
		"a job that ran twice":          {func(e *Evidence) { e.Jobs[1].Acquisitions = 2 }, "ran 2 times, not 1", 0},
		"a job without a runner":        {func(e *Evidence) { e.Jobs[1].Acquisitions = 0 }, "ran 0 times, not 1", 0},
		"a skipped job that ran":        {func(e *Evidence) { e.Jobs[3].Acquisitions = 1 }, "ran 1 times, not 0", 0},
		"a job that did not end":        {func(e *Evidence) { e.Jobs[4].Conclusion, e.Jobs[4].Status = "", "queued" }, "did not complete: it is queued", 0},
		"a job that is missing":         {func(e *Evidence) { e.Jobs = e.Jobs[:4] }, "has 5 jobs, but 4 were seen", 0},
		"a restart that did not happen": {func(e *Evidence) { e.Restarts = e.Restarts[:1] }, "controller was not restarted", 0},
		"a restart when nothing ran":    {func(e *Evidence) { e.Restarts[1].Running = 0 }, "when no job ran", 0},
		"a change that was not made":    {func(e *Evidence) { e.Changes = e.Changes[:1] }, "not done while jobs ran: renamed the pool", 0},
		"a change when nothing ran":     {func(e *Evidence) { e.Changes[0].Running = 0 }, "done when no job ran: changed the pool's template", 0},
		"a process that remains":        {func(e *Evidence) { e.Left = []childproc.Process{{Name: "etcd", PID: 7}} }, "process 7 (etcd) is left", 0},
	} {
		t.Run(name, func(t *testing.T) {
			evidence := goodEvidence(t)
			test.spoil(&evidence)
			v := Judge(evidence)
			require.False(t, v.Passed())
			require.Contains(t, fmt.Sprint(v.Problems), test.says)
			require.Equal(t, test.killed, v.Killed)
		})
	}
}

func TestPercentilesByNearestRank(t *testing.T) {
	require.Equal(t, Percentiles{}, percentiles(nil))
	var durations []time.Duration
	for n := 100; n >= 1; n-- {
		durations = append(durations, time.Duration(n))
	}
	require.Equal(t, Percentiles{Count: 100, P50: 50, P99: 99, Max: 100}, percentiles(durations))
	require.Equal(t, Percentiles{Count: 1, P50: 7, P99: 7, Max: 7}, percentiles([]time.Duration{7}))
}

func TestQueueToStartTellsWarmFromWaiting(t *testing.T) {
	jobs := []standin.JobView{
		ranJob(t, 1, "build/1", 0, 1, 10), ranJob(t, 2, "build/2", 0, 2, 10), // two runners, two jobs
		ranJob(t, 3, "build/3", 0, 12, 15), // has to wait for one of them
		ranJob(t, 4, "build/4", 20, 23, 25),
	}
	runners := map[string]int{"": 2, "bullpen-macos": 1}
	all, warm := queueToStart(jobs, runners)
	require.Equal(t, Percentiles{Count: 4, P50: 2 * time.Second, P99: 12 * time.Second, Max: 12 * time.Second}, all)
	require.Equal(t, Percentiles{Count: 3, P50: 2 * time.Second, P99: 3 * time.Second, Max: 3 * time.Second}, warm)

	// Runners of another platform are none for a job.
	for n := range 2 {
		mac := ranJob(t, 5+n, "build-macos", 0, 1+20*n, 11+20*n)
		mac.Labels = []string{"bullpen-macos"}
		jobs = append(jobs, mac)
	}
	all, warm = queueToStart(jobs, runners)
	require.Equal(t, 6, all.Count)
	require.Equal(t, 4, warm.Count)
	require.Equal(t, 3*time.Second, warm.Max)
}

func TestPrintedVerdict(t *testing.T) {
	var out bytes.Buffer
	evidence := goodEvidence(t)
	Judge(evidence).Print(&out, evidence.Jobs)
	for _, line := range []string{
		"killed mid-job: 0\n", "PASSED: ", "processes left  0\n", "5, 5 as expected (3 success, 1 failure, 1 skipped)",
		"server      kill -9, pid 1 → 2", "with 1 job running",
	} {
		require.Contains(t, out.String(), line)
	}
	evidence.Removals = append(evidence.Removals, Removal{Pod: "p-2", UID: podUID(2), Seen: *at(5)})
	out.Reset()
	Judge(evidence).Print(&out, evidence.Jobs)
	require.Contains(t, out.String(), "killed mid-job: 1\n")
	require.Contains(t, out.String(), "FAILED:\n  job \"build/1\" was killed")
	require.NotContains(t, out.String(), "PASSED")
}

func TestJobLinesPutAMatrixIntoOne(t *testing.T) {
	lines := jobLines([]standin.JobView{
		{Key: "prepare", Conclusion: "success"}, {Key: "build/1", Conclusion: "success"}, {Key: "build/2", Conclusion: "cancelled"}, {Key: "build/3"},
	})
	require.Equal(t, []string{
		"prepare                success", "build (3 jobs)         1 success, 1 cancelled, 1 unfinished",
	}, lines)
}
