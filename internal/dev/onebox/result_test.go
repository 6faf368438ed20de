package onebox

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/bullpen-ci/bullpen/internal/dev/github/standin"
)

func runsOf(conclusions ...string) Result {
	var r Result
	for i, conclusion := range conclusions {
		r.Runs = append(r.Runs, standin.RunView{ID: int64(i + 1), File: "ci.yaml", Conclusion: conclusion})
	}
	return r
}

func TestResult_ExitCodeIsThatOfTheConclusions(t *testing.T) {
	for _, c := range []struct {
		result Result
		code   int
		says   string
	}{
		{Result{}, 0, ""},
		{runsOf("success", "skipped"), 0, ""},
		{runsOf("success", "failure"), 2, "ci.yaml (run 2): failure"},
		{runsOf("cancelled", "failure"), 2, "ci.yaml (run 1): cancelled, ci.yaml (run 2): failure"},
		{runsOf("success", "cancelled"), 3, "ci.yaml (run 2): cancelled"},
		{runsOf("timed_out"), 2, "ci.yaml (run 1): timed_out"},
		{runsOf("a word of tomorrow"), 2, "ci.yaml (run 1): a word of tomorrow"},
	} {
		require.Equal(t, c.code, c.result.ExitCode(), c.says)
		require.Equal(t, c.says, c.result.String())
	}
}

func TestConcluded_WaitsForAllRuns(t *testing.T) {
	runs := []standin.RunView{{ID: 1, Conclusion: "failure"}, {ID: 2, Conclusion: "success"}, {ID: 3}}
	require.Nil(t, concluded(runs, []int64{2, 3}), "one of them has not completed")
	require.Equal(t, runs[1:2], concluded(runs, []int64{2}), "runs of others do not count")
	require.Nil(t, concluded(runs, []int64{4}), "it is not there yet")
}

func TestUnserved_FindsAJobThatNoPoolTakes(t *testing.T) {
	pools, err := LoadPools("", 1)
	require.NoError(t, err)
	require.Equal(t, "default bullpen", poolsText(pools))
	jobs := []standin.JobView{
		{ID: 1, RunID: 7, Status: "queued", Labels: []string{"Bullpen"}}, {ID: 2, RunID: 8, Status: "queued", Labels: []string{"ubuntu-latest"}},
		{ID: 3, RunID: 7, Status: "completed", Labels: []string{"gpu"}}, {ID: 4, RunID: 7, Status: "queued", Labels: []string{"bullpen", "x64"}},
	}
	require.Equal(t, int64(4), unserved(jobs, []int64{7}, pools).ID)
	require.Nil(t, unserved(jobs[:3], []int64{7}, pools), "another run's job, and one that is over")
	require.Equal(t, int64(1), unserved(jobs, []int64{7}, []*unstructured.Unstructured{}).ID)
}

// A failed job's line says how to read its log, if there is one.
func TestFollower_NamesTheLogOfAFailedJob(t *testing.T) {
	began := epoch
	ended := began.Add(10 * time.Millisecond)
	f := follower{ids: true, log: func(job int64) string { return logCommand(" --state-dir /x", job) }, name: func(string) string { return "" }}
	failed := standin.JobView{ID: 7, Name: "build", Status: "completed", Conclusion: "failure", StartedAt: &began, CompletedAt: &ended}
	require.Equal(t, "job 7  build                    failure after 10ms. Log: `bullpen job 7 --log --state-dir /x`", f.sentence(failed))
	require.NotContains(t, (&follower{}).sentence(failed), "--log", "of a stand-in that stops with the run")
	failed.Conclusion = "success"
	require.Equal(t, "job 7  build                    success after 10ms", f.sentence(failed))
	never := standin.JobView{ID: 7, Name: "build", Status: "completed", Conclusion: "failure", Reason: "there is no runner group"}
	require.Equal(t, "job 7  build                    failure: there is no runner group", f.sentence(never))
	running := standin.JobView{ID: 7, Name: "build", Status: "in_progress", RunnerName: "bp-1", QueuedAt: &began, StartedAt: &ended}
	require.Equal(t, "job 7  build                    running after 10ms in the queue", f.sentence(running))
	require.Equal(t, "job build                    running on bp-1 after 10ms in the queue", (&follower{}).sentence(running))
}
