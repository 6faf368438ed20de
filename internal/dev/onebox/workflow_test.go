package onebox

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/bullpen-ci/bullpen/examples"
	"github.com/bullpen-ci/bullpen/internal/dev/github/standin/workflow"
)

// runThrough evaluates a workflow as the stand-in does, ending every job as it is expected to end, and returns the
// conclusions by key.
func runThrough(t require.TestingT, content []byte) map[string]string {
	file, err := workflow.Load("demo.yaml", content)
	require.NoError(t, err)
	run, err := workflow.NewRun(file, workflow.Event{Name: "workflow_dispatch", GitHub: workflow.NewObject("run_number", "1")})
	require.NoError(t, err)
	conclusions := map[string]string{}
	for !run.Done() {
		jobs := run.Next()
		for _, concluded := range run.Concluded() {
			conclusions[concluded.Key] = string(concluded.Conclusion)
		}
		if len(jobs) == 0 && !run.Done() {
			require.Fail(t, "the workflow is stuck")
		}
		for _, job := range jobs {
			conclusions[job.Key] = demoExpected(job.Key)
			_, err := run.Complete(job.Key, workflow.Conclusion(demoExpected(job.Key)), map[string]string{"version": "1.0.1"})
			require.NoError(t, err)
		}
	}
	return conclusions
}

func TestDemoWorkflowHasAsManyJobsAsAskedFor(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		jobs := rapid.OneOf(rapid.IntRange(DemoMinJobs, 40), rapid.IntRange(maxMatrix, 3*maxMatrix)).Draw(t, "jobs")
		content, err := DemoWorkflow(examples.Demo(), jobs)
		require.NoError(t, err)
		conclusions := runThrough(t, content)
		require.Len(t, conclusions, jobs)
		for key, conclusion := range conclusions {
			require.Equal(t, demoExpected(key), conclusion, key)
		}
	})
}

func TestDemoWorkflowOfTheDefaultSizeIsTheExampleItself(t *testing.T) {
	require.Len(t, runThrough(t, examples.Demo()), DemoDefaultJobs-demoMacJobs)
	content, err := mixedWorkflow(examples.Demo(), examples.MacWorkflow(), demoMacJobs, DemoDefaultJobs)
	require.NoError(t, err)
	require.Len(t, runThrough(t, content), DemoDefaultJobs)
	require.Contains(t, string(content), `test "${{ needs.build-macos.result }}" = success`)
	content, err = mixedWorkflow(examples.Demo(), examples.Services(), demoServiceJobs, DemoContainerJobs)
	require.NoError(t, err)
	require.Len(t, runThrough(t, content), DemoContainerJobs)
	require.Contains(t, string(content), `test "${{ needs.database.result }}" = success`)
}

func TestDemoWorkflowSummaryLooksAtEveryMatrix(t *testing.T) {
	content, err := DemoWorkflow(examples.Demo(), 600)
	require.NoError(t, err)
	for _, name := range []string{"build", "build-2", "build-3"} {
		require.Contains(t, string(content), `test "${{ needs.`+name+`.result }}" = success`)
	}
	require.NotContains(t, string(content), "build-4")
}

func TestDemoWorkflowRefusesImpossibleNumbers(t *testing.T) {
	for _, jobs := range []int{-1, 0, DemoMinJobs - 1, DemoMaxJobs + 1} {
		_, err := DemoWorkflow(examples.Demo(), jobs)
		require.ErrorContains(t, err, "--jobs must be between")
	}
	for _, jobs := range []int{DemoMinJobs + demoMacJobs - 1, DemoMaxJobs + 1} {
		_, err := mixedWorkflow(examples.Demo(), examples.MacWorkflow(), demoMacJobs, jobs)
		require.ErrorContains(t, err, "--jobs must be between 9 and")
	}
	_, err := DemoWorkflow([]byte(strings.ReplaceAll(string(examples.Demo()), "shard:", "part:")), 24)
	require.ErrorContains(t, err, "has no job build with a matrix of shards")
}

func TestRestartPlan(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		jobs := rapid.IntRange(DemoMinJobs, 2000).Draw(t, "jobs")
		plan := planRestarts(jobs, false)
		hard := map[string]map[bool]bool{}
		for i, step := range plan.steps {
			require.Less(t, step.done, jobs, "jobs must still run")
			if i > 1 {
				require.GreaterOrEqual(t, step.done, plan.steps[i-1].done)
				require.NotEqual(t, plan.steps[i-1].hard, step.hard, "kill -9 and SIGTERM take turns")
			}
			if hard[step.part] == nil {
				hard[step.part] = map[bool]bool{}
			}
			hard[step.part][step.hard] = true
		}
		require.Len(t, hard, 4, "server, controller and both node agents")
		if len(plan.steps) > 4 {
			for part, both := range hard {
				require.True(t, len(both) == 2 || part == partMac, "%s is ended both ways", part)
			}
		}
		_, due := plan.due(0, jobs, 1, 0)
		require.False(t, due, "never while no macOS job runs")
		_, due = plan.due(1, jobs, 0, 0)
		require.False(t, due, "never while no job runs")
		changes := planChanges(jobs)
		require.ElementsMatch(t, []string{changeRoll, changeScale, changeCordon, changeRename}, changes.kinds())
		for i, step := range changes {
			require.Less(t, step.done, jobs, "jobs must still run")
			require.NotEmpty(t, changeName(step.kind))
			require.NotEmpty(t, changeVerb(step.kind))
			_, due = changes.due(i, step.done-1, 1)
			require.False(t, due)
			_, due = changes.due(i, jobs, 0)
			require.False(t, due, "never while no job runs")
			kind, due := changes.due(i, step.done, 1)
			require.True(t, due)
			require.Equal(t, step.kind, kind)
		}
		require.Equal(t, changeRename, changes.kinds()[3], "the pool of the old name is gone then")
		_, due = plan.due(len(plan.steps), jobs, 5, 5)
		require.False(t, due, "all are done")
		step, due := plan.due(0, 1, 1, 1)
		require.True(t, due)
		require.Equal(t, restartStep{part: partMac, hard: true}, step)
		step, due = plan.due(1, jobs, 1, 0)
		require.True(t, due)
		require.Equal(t, partServer, step.part)
	})
}
