package onebox

import (
	"testing"

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
