package e2e

import (
	"encoding/json"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/api/adminapi"
	"github.com/bullpen-ci/bullpen/test/kit/tracingtest"
)

// traced finds the trace of a completed job by its attributes, and in it all phases of the job.
func traced(t *testing.T, dir string, collector *tracingtest.Collector) {
	stdout, stderr, code := run(t, "jobs", "--ended", "--state", "completed", "--state-dir", dir, "-o", "json")
	require.Zero(t, code, "%s", stderr)
	var jobs []adminapi.Job
	require.NoError(t, json.Unmarshal([]byte(stdout), &jobs))
	require.NotEmpty(t, jobs)
	id := strconv.FormatInt(jobs[0].ID, 10)
	stdout, stderr, code = run(t, "job", id, "--state-dir", dir, "-o", "json")
	require.Zero(t, code, "%s", stderr)
	var job adminapi.Job
	require.NoError(t, json.Unmarshal([]byte(stdout), &job))
	require.Equal(t, "https://traces.example.com/"+job.TraceID, job.TraceURL)
	stdout, stderr, code = run(t, "job", id, "--state-dir", dir)
	require.Zero(t, code, "%s", stderr)
	require.Regexp(t, `(?m)^Trace +`+job.TraceID+" "+job.TraceURL+"$", stdout)

	spans := map[string]tracingtest.Span{}
	require.Eventually(t, func() bool {
		for _, span := range collector.Spans(job.TraceID) {
			spans[span.Name] = span
		}
		return spans["job"].ID != ""
	}, patience, interval)
	whole := spans["job"]
	require.Empty(t, whole.Parent)
	require.Equal(t, "success", whole.Attributes["cicd.pipeline.task.run.result"])
	require.Equal(t, job.Pool, whole.Attributes["bullpen.pool"])
	for _, name := range []string{
		"webhook", "claim", "register", "phase webhook", "phase dispatch", "phase registration", "phase handover", "phase start", "phase run",
	} {
		require.Equal(t, whole.ID, spans[name].Parent, name)
		require.Equal(t, id, spans[name].Attributes["cicd.pipeline.task.run.id"], name)
	}
}
