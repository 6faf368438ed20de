package workflow

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func start(t testing.TB, text string) *Run {
	t.Helper()
	run, err := NewRun(mustLoad(t, text), Event{Name: "push", GitHub: NewObject("ref", "refs/heads/main", "sha", "abc", "run_number", "1")})
	require.NoError(t, err)
	return run
}

func keys(jobs []Job) []string {
	out := []string{}
	for _, j := range jobs {
		out = append(out, j.Key)
	}
	return out
}

func names(jobs []Job) []string {
	out := []string{}
	for _, j := range jobs {
		out = append(out, j.Name)
	}
	return out
}

func complete(t require.TestingT, run *Run, key string, c Conclusion) []string {
	cancel, err := run.Complete(key, c, nil)
	require.NoError(t, err)
	return cancel
}

// jobs writes a workflow of simple jobs: "id: extra yaml".
func jobs(defs ...string) string {
	text := "on: push\njobs:\n"
	for _, d := range defs {
		id, extra, _ := strings.Cut(d, ":")
		text += fmt.Sprintf("  %s: {runs-on: linux, steps: [{run: x}]%s}\n", id, extra)
	}
	return text
}

func TestRun_NeedsAndOutputs(t *testing.T) {
	run := start(t, jobs("c:, needs: [a, b], name: '${{ needs.a.outputs.x }} ${{ needs.B.result }}'", "a:", "b:"))
	require.Equal(t, []string{"a", "b"}, keys(run.Next()))
	require.Empty(t, run.Next(), "each job is handed out once")
	_, err := run.Complete("a", Success, map[string]string{"X": "hello"})
	require.NoError(t, err)
	require.Empty(t, run.Next())
	require.False(t, run.Done())
	require.Empty(t, complete(t, run, "b", Success))
	ready := run.Next()
	require.Equal(t, []string{"hello success"}, names(ready))
	needs, _ := ready[0].Contexts.Get("needs")
	a, _ := needs.(*Object).Get("a")
	require.Equal(t, "success", a.(*Object).String("result"))
	require.Equal(t, Conclusion(""), run.Conclusion())
	complete(t, run, "c", Success)
	run.Next()
	require.True(t, run.Done())
	require.Equal(t, Success, run.Conclusion())
}

func TestRun_ConditionsFollowAncestors(t *testing.T) {
	run := start(t, jobs("a:", "b:, needs: a", "c:, needs: b, if: always()", "d:, needs: c", "e:, needs: b, if: failure()", "f:, needs: a, if: \"success() || needs.a.result == 'failure'\""))
	require.Equal(t, []string{"a"}, keys(run.Next()))
	complete(t, run, "a", Failure)
	// b is skipped; c runs regardless; e sees a's failure although b was only skipped; f asks for itself.
	require.Equal(t, []string{"c", "e", "f"}, keys(run.Next()))
	require.Equal(t, []Concluded{{"b", "b", "b", Skipped, "its condition is false"}}, run.Concluded())
	require.Empty(t, run.Concluded())
	for _, k := range []string{"c", "e", "f"} {
		complete(t, run, k, Success)
	}
	require.Empty(t, run.Next())
	require.Equal(t, "d", run.Concluded()[0].Key, "success() looks at all ancestors, not only at c")
	require.True(t, run.Done())
	require.Equal(t, Failure, run.Conclusion())
}

func TestRun_SkippedAndFailedExpressions(t *testing.T) {
	run := start(t, jobs("a:, if: github.ref == 'x'", "b:, needs: a", "c:, if: \"fromJSON(github.sha)\"", "d:, name: \"${{ fromJSON(github.sha) }}\"", "e:, strategy: {matrix: \"${{ fromJSON(github.run_number) }}\"}", "f:"))
	require.Equal(t, []string{"f"}, keys(run.Next()))
	complete(t, run, "f", Success)
	run.Next()
	got := map[string]Conclusion{}
	for _, c := range run.Concluded() {
		got[c.Key] = c.Conclusion
		require.NotEmpty(t, c.Reason)
	}
	require.Equal(t, map[string]Conclusion{"a": Skipped, "b": Skipped, "c": Failure, "d": Failure, "e": Failure}, got)
	require.True(t, run.Done())
	require.Equal(t, Failure, run.Conclusion())

	run = start(t, jobs("a:, if: false"))
	run.Next()
	require.Equal(t, Skipped, run.Conclusion())
}

func TestRun_MatrixNamesAndOrder(t *testing.T) {
	for _, tc := range []struct {
		strategy string
		want     []string
	}{
		{"matrix: {n: [3, 1], os: [linux, mac]}", []string{"a (3, linux)", "a (3, mac)", "a (1, linux)", "a (1, mac)"}},
		{"matrix: {os: [linux], n: ['3', 3.50, true, null]}", []string{"a (linux, 3)", "a (linux, 3.5)", "a (linux, true)", "a (linux)"}},
		{"matrix: {c: [{name: x, v: [1, 2]}]}", []string{"a (x, 1, 2)"}},
		{"matrix: {n: [1, 2], exclude: [{n: 1}]}", []string{"a (2)"}},
		{"matrix: {n: [1, 2], m: [x, y], exclude: [{n: 1, m: Y}]}", []string{"a (1, x)", "a (2, x)", "a (2, y)"}},
		{"matrix: {n: [1], include: [{n: 1, extra: e}, {n: 5}, {z: all}]}", []string{"a (1)", "a (5)"}},
		{"matrix: {include: [{n: 1}, {n: 2, os: mac}]}", []string{"a (1)", "a (2, mac)"}},
		{"matrix: \"${{ fromJSON('{\\\"n\\\":[7,8]}') }}\"", []string{"a (7)", "a (8)"}},
		{"matrix: {n: \"${{ fromJSON('[7,8]') }}\"}", []string{"a (7)", "a (8)"}},
		{"matrix: {n: [\"${{ github.sha }}\"]}", []string{"a (abc)"}},
		{"matrix: {n: [" + strings.Repeat("x", 120) + "]}", []string{"a (" + strings.Repeat("x", 94) + "..."}},
		{"fail-fast: false", []string{"a"}},
	} {
		run := start(t, jobs("a:, strategy: {"+tc.strategy+"}"))
		require.Equal(t, tc.want, names(run.Next()), tc.strategy)
	}
	run := start(t, jobs("a:, name: 'go ${{ matrix.n }}', strategy: {max-parallel: 5, matrix: {n: [1, 2], include: [{n: 2, x: y}]}}"))
	ready := run.Next()
	require.Equal(t, []string{"go 1", "go 2"}, names(ready))
	require.Equal(t, []string{"a/0", "a/1"}, keys(ready))
	require.Equal(t, `{"n":2,"x":"y"}`, asJSON(t, ready[1], "matrix"))
	require.Equal(t, `{"fail-fast":true,"job-index":1,"job-total":2,"max-parallel":5}`, asJSON(t, ready[1], "strategy"))
}

func asJSON(t *testing.T, job Job, context string) string {
	v, ok := job.Contexts.Get(context)
	require.True(t, ok)
	data, err := encodeJSON(v, "")
	require.NoError(t, err)
	return string(data)
}

func TestRun_FailFast(t *testing.T) {
	run := start(t, jobs("a:, strategy: {max-parallel: 3, matrix: {n: [1, 2, 3, 4]}}", "b:, needs: a, if: always()"))
	require.Equal(t, []string{"a/0", "a/1", "a/2"}, keys(run.Next()), "max-parallel")
	require.Equal(t, []string{"a/1", "a/2"}, complete(t, run, "a/0", Failure), "the running siblings are to be cancelled")
	require.Empty(t, run.Next())
	c := run.Concluded()
	require.Len(t, c, 1)
	require.Equal(t, "a/3", c[0].Key, "the waiting sibling is cancelled at once")
	require.Equal(t, Cancelled, c[0].Conclusion)
	require.Empty(t, complete(t, run, "a/1", Failure), "nothing is cancelled twice")
	require.Empty(t, run.Cancel(), "not even with the whole run")
	complete(t, run, "a/2", Cancelled)
	ready := run.Next()
	require.Equal(t, []string{"b"}, keys(ready))
	require.Contains(t, asJSON(t, ready[0], "needs"), `"result":"failure"`)
}

func TestRun_NoFailFast(t *testing.T) {
	run := start(t, jobs("a:, strategy: {fail-fast: false, max-parallel: 1, matrix: {n: [1, 2]}}"))
	require.Equal(t, []string{"a/0"}, keys(run.Next()))
	require.Empty(t, complete(t, run, "a/0", Failure))
	require.Equal(t, []string{"a/1"}, keys(run.Next()))
	complete(t, run, "a/1", Success)
	run.Next()
	require.Equal(t, Failure, run.Conclusion())
}

func TestRun_ContinueOnErrorHidesAFailure(t *testing.T) {
	run := start(t, jobs("a:, continue-on-error: '${{ matrix.n == 1 }}', strategy: {matrix: {n: [1, 2]}}", "b:, needs: a"))
	require.Len(t, run.Next(), 2)
	require.Empty(t, complete(t, run, "a/0", Failure), "fail-fast does not count it")
	complete(t, run, "a/1", Success)
	require.Equal(t, []string{"b"}, keys(run.Next()))
	complete(t, run, "b", Success)
	run.Next()
	require.Equal(t, Success, run.Conclusion())
	require.Equal(t, Failure, run.Jobs()[0].Conclusion, "but the job itself shows it")
}

func TestRun_Cancel(t *testing.T) {
	run := start(t, jobs("a:, strategy: {max-parallel: 1, matrix: {n: [1, 2]}}", "keep:, if: always()", "b:, needs: a", "clean:, needs: a, if: cancelled()"))
	require.Equal(t, []string{"a/0", "keep"}, keys(run.Next()))
	require.Equal(t, []string{"a/0"}, run.Cancel())
	require.Empty(t, run.Cancel())
	require.Empty(t, run.Next())
	complete(t, run, "a/0", Cancelled)
	require.Equal(t, []string{"clean"}, keys(run.Next()))
	complete(t, run, "clean", Success)
	complete(t, run, "keep", Success)
	run.Next()
	require.True(t, run.Done())
	require.Equal(t, Cancelled, run.Conclusion())
	ended := map[string]Conclusion{}
	for _, c := range run.Concluded() {
		ended[c.Key] = c.Conclusion
	}
	require.Equal(t, map[string]Conclusion{"a/1": Cancelled, "b": Skipped}, ended)
}

func TestRun_EvaluatesWhatTheSchedulerNeeds(t *testing.T) {
	run := start(t, jobs(
		"a:, timeout-minutes: \"${{ matrix.n }}\", strategy: {matrix: {n: [0.5, 0]}}",
		"b:",
	)+"  c: {runs-on: \"${{ fromJSON('[\\\"self-hosted\\\",\\\"linux\\\",\\\"linux\\\"]') }}\", steps: [{run: x}]}\n"+
		"  d: {runs-on: '${{ github.event.nothing }}', steps: [{run: x}]}\n"+
		"  e: {runs-on: {group: 'g-${{ github.sha }}'}, steps: [{run: x}]}\n")
	byKey := map[string]Job{}
	for _, j := range run.Next() {
		byKey[j.Key] = j
	}
	require.Equal(t, 30*time.Second, byKey["a/0"].Timeout)
	require.Equal(t, 6*time.Hour, byKey["b"].Timeout)
	require.Equal(t, []string{"self-hosted", "linux"}, byKey["c"].Labels)
	require.Equal(t, "g-abc", byKey["e"].Group)
	failed := keysOf(run.Concluded())
	require.Equal(t, []string{"a/1", "d"}, failed)
}

func keysOf(list []Concluded) []string {
	out := []string{}
	for _, c := range list {
		out = append(out, c.Key)
	}
	return out
}

func TestRun_RefusesNonsense(t *testing.T) {
	run := start(t, jobs("a:", "b:, needs: a"))
	_, err := run.Complete("a", Success, nil)
	require.ErrorIs(t, err, ErrJobState, "unknown before Next")
	run.Next()
	_, err = run.Complete("a", "great", nil)
	require.ErrorContains(t, err, "great")
	complete(t, run, "a", Success)
	_, err = run.Complete("a", Success, nil)
	require.ErrorIs(t, err, ErrJobState, "twice")
	_, err = run.Complete("b", Success, nil)
	require.ErrorIs(t, err, ErrJobState, "not handed out")
}

func TestNewRun_Inputs(t *testing.T) {
	wf := mustLoad(t, "on: {push: , workflow_dispatch: {inputs: {level: {type: choice, options: [low, high], required: true}, dry: {type: boolean, default: true}, n: {type: number}, s: {default: d}}}}\n"+
		"jobs: {a: {runs-on: x, steps: [{run: x}]}}\n")
	run, err := NewRun(wf, Event{Name: "workflow_dispatch", Inputs: map[string]string{"LEVEL": "high", "n": "2"}})
	require.NoError(t, err)
	require.Equal(t, `{"level":"high","dry":true,"n":2,"s":"d"}`, asJSON(t, run.Next()[0], "inputs"))
	for part, ev := range map[string]Event{
		`"level" is required`:       {Name: "workflow_dispatch"},
		`one of low, high`:          {Name: "workflow_dispatch", Inputs: map[string]string{"level": "mid"}},
		`true or false`:             {Name: "workflow_dispatch", Inputs: map[string]string{"level": "low", "dry": "maybe"}},
		`must be a number`:          {Name: "workflow_dispatch", Inputs: map[string]string{"level": "low", "n": "many"}},
		`no input "zzz"`:            {Name: "workflow_dispatch", Inputs: map[string]string{"level": "low", "zzz": "1"}},
		`only workflow_dispatch`:    {Name: "push", Inputs: map[string]string{"level": "low"}},
		`does not run on "release"`: {Name: "release"},
	} {
		_, err := NewRun(wf, ev)
		require.ErrorContains(t, err, part)
	}
}

// For any order of events: every job ends, none starts before its needs have ended, none starts twice, at
// most max-parallel run at once, and the same history gives the same run.
func TestRun_EveryJobEndsAndNeedsComeFirst(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text, parallel := drawWorkflow(t)
		wf, err := Load("p.yml", []byte(text))
		require.NoError(t, err, text)
		run, err := NewRun(wf, Event{Name: "push"})
		require.NoError(t, err)
		twin, err := NewRun(wf, Event{Name: "push"})
		require.NoError(t, err)
		needs := map[string][]string{}
		for _, j := range wf.Jobs {
			needs[j.ID] = j.Needs
		}
		started, running := map[string]bool{}, map[string]string{}
		for steps := 0; ; steps++ {
			require.Less(t, steps, 1000, "the run does not end")
			ready := run.Next()
			require.Equal(t, keys(ready), keys(twin.Next()))
			require.Equal(t, run.Concluded(), twin.Concluded())
			for _, j := range ready {
				require.False(t, started[j.Key], "%s started twice", j.Key)
				started[j.Key], running[j.Key] = true, j.ID
				for _, s := range run.Jobs() {
					require.False(t, slices.Contains(needs[j.ID], s.ID) && s.Status != Completed, "%s started before %s ended", j.Key, s.Key)
				}
			}
			perJob := map[string]int{}
			for _, id := range running {
				perJob[id]++
				require.True(t, parallel[id] == 0 || perJob[id] <= parallel[id], "max-parallel of %s", id)
			}
			if run.Done() {
				break
			}
			require.NotEmpty(t, running, "nothing runs and the run is not done:\n%s", text)
			if rapid.IntRange(0, 20).Draw(t, "cancel") == 0 {
				require.Equal(t, run.Cancel(), twin.Cancel())
			}
			key := rapid.SampledFrom(sortedKeys(running)).Draw(t, "key")
			c := rapid.SampledFrom([]Conclusion{Success, Success, Failure, Cancelled}).Draw(t, "conclusion")
			delete(running, key)
			require.Equal(t, complete(t, run, key, c), complete(t, twin, key, c))
		}
		require.Empty(t, running)
		require.NotEmpty(t, run.Conclusion())
		for _, s := range run.Jobs() {
			require.Equal(t, Completed, s.Status)
			require.NotEmpty(t, s.Conclusion)
		}
	})
}

func drawWorkflow(t *rapid.T) (text string, parallel map[string]int) {
	parallel = map[string]int{}
	text = "on: push\njobs:\n"
	for i := range rapid.IntRange(1, 6).Draw(t, "jobs") {
		id := fmt.Sprintf("j%d", i)
		text += "  " + id + ":\n    runs-on: linux\n    steps: [{run: x}]\n"
		if i > 0 {
			var needs []string
			for k := range i {
				if rapid.Bool().Draw(t, "need") {
					needs = append(needs, fmt.Sprintf("j%d", k))
				}
			}
			if len(needs) > 0 {
				text += "    needs: [" + strings.Join(needs, ", ") + "]\n"
			}
		}
		if c := rapid.SampledFrom([]string{"", "", "always()", "failure()", "cancelled()", "false", "!cancelled()"}).Draw(t, "if"); c != "" {
			text += "    if: ${{ " + c + " }}\n"
		}
		if rapid.Bool().Draw(t, "carry on") {
			text += "    continue-on-error: true\n"
		}
		if n := rapid.IntRange(0, 4).Draw(t, "matrix"); n > 0 {
			text += "    strategy:\n      matrix: {n: [" + strings.Repeat("x, ", n) + "y]}\n"
			if rapid.Bool().Draw(t, "no fail-fast") {
				text += "      fail-fast: false\n"
			}
			if p := rapid.IntRange(0, 3).Draw(t, "parallel"); p > 0 {
				parallel[id] = p
				text += fmt.Sprintf("      max-parallel: %d\n", p)
			}
		}
	}
	return text, parallel
}
