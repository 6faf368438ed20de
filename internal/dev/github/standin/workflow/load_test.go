package workflow

import (
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func mustLoad(t testing.TB, text string) *Workflow {
	t.Helper()
	wf, err := Load("ci.yml", []byte(text))
	require.NoError(t, err)
	return wf
}

// oneJob is a workflow of one job with more lines in the job.
func oneJob(lines ...string) string {
	text := "on: push\njobs:\n  a:\n    runs-on: linux\n    steps: [{run: 'true'}]\n"
	for _, l := range lines {
		text += "    " + l + "\n"
	}
	return text
}

func TestLoad_ReadsEverythingSupported(t *testing.T) {
	data, err := os.ReadFile("testdata/full.yml")
	require.NoError(t, err)
	wf, err := Load("full.yml", data)
	require.NoError(t, err)
	require.Equal(t, "Full", wf.Name)
	require.Equal(t, []string{"push", "workflow_dispatch", "schedule"}, wf.Events)
	require.Equal(t, []Input{
		{Name: "level", Type: "choice", Default: "low", Required: true, Options: []string{"low", "high"}},
		{Name: "dry", Type: "boolean"},
		{Name: "n", Type: "number", Default: "2"},
	}, wf.Inputs)
	require.Equal(t, Env{Pairs: []Pair{{"ZED", "1"}, {"ALPHA", "${{ github.ref }}"}}}, wf.Env)
	require.Equal(t, Defaults{Shell: "bash"}, wf.Defaults)
	require.Len(t, wf.Jobs, 3)
	build := wf.Jobs[1]
	require.Equal(t, "Build", build.ID)
	require.Equal(t, []string{"plan"}, build.Needs)
	require.Equal(t, []string{"os", "n", "include", "exclude"}, build.Strategy.Matrix.(*Object).Keys())
	require.Equal(t, "false", build.Strategy.FailFast)
	require.Equal(t, "2", build.Strategy.MaxParallel)
	require.Equal(t, "7.5", build.TimeoutMinutes)
	require.Equal(t, "${{ matrix.flaky == true }}", build.ContinueOnError)
	require.Equal(t, RunsOn{Labels: []string{"self-hosted", "${{ matrix.os }}"}, Group: "fast"}, build.RunsOn)
	require.Equal(t, "echo one\necho two\n", build.Steps[0].Run)
	require.Equal(t, StepDef{ID: "s2", Name: "Second", If: "always()", Run: "exit 1", Shell: "sh", WorkingDirectory: "sub",
		Env: Env{Pairs: []Pair{{"X", "y"}}}, ContinueOnError: "true", TimeoutMinutes: "1"}, build.Steps[1])
	require.Equal(t, []string{"Build"}, wf.Jobs[2].Needs, "needs are spelled as the definition is")
}

func TestLoad_RefusesWithPlaceAndFeature(t *testing.T) {
	for name, tc := range map[string]struct {
		text, feature, message string
		line                   int
	}{
		"action":                 {"on: push\njobs:\n  a:\n    runs-on: x\n    steps:\n      - uses: actions/checkout@v4\n", "uses", "`run` step", 6},
		"reusable":               {"on: push\njobs:\n  a:\n    uses: ./.github/workflows/b.yml\n", "uses (reusable workflow)", "this file", 4},
		"environment":            {oneJob("environment: prod"), "environment", "approvals", 6},
		"concurrency":            {oneJob("concurrency: one"), "concurrency", "wait", 6},
		"top concurrency":        {"concurrency: x\n" + oneJob(), "concurrency", "wait", 1},
		"shell":                  {oneJob("defaults: {run: {shell: pwsh}}"), "shell", "bash or sh", 6},
		"step shell":             {"on: push\njobs:\n  a:\n    runs-on: x\n    steps:\n      - run: x\n        shell: python {0}\n", "shell", "bash or sh", 7},
		"hashFiles":              {oneJob("env: {}", "outputs: {o: '${{ steps.x.outputs.y }}'}") + "  b:\n    runs-on: x\n    steps: [{run: \"${{ hashFiles('go.sum') }}\"}]\n", "hashFiles()", "hash", 10},
		"syntax":                 {"on: [push\njobs: {}", "", "did not find expected", 1},
		"no jobs":                {"on: push\n", "", "jobs", 1},
		"unknown key":            {oneJob("needz: b"), "", "needz", 6},
		"unknown need":           {oneJob("needs: b"), "", "does not exist", 3},
		"cycle":                  {oneJob("needs: b") + "  b:\n    needs: a\n    runs-on: x\n    steps: [{run: x}]\n", "", "cyclic", 3},
		"bad expr":               {oneJob("env: {A: '${{ 1 + }}'}"), "", "bad expression", 6},
		"no such context":        {oneJob("if: steps.x.outcome"), "", "steps", 6},
		"no such function":       {oneJob("if: exists()"), "", "exists", 6},
		"matrix in if":           {oneJob("strategy: {matrix: {a: [1]}}", "if: matrix.a == 1"), "", "matrix", 7},
		"status function in env": {oneJob("env: {A: '${{ always() }}'}"), "", "always", 6},
		"matrix too big":         {oneJob("strategy: {matrix: {a: [" + strings.Repeat("1,", 16) + "1], b: [" + strings.Repeat("1,", 16) + "1]}}"), "", "289 jobs, more than 256", 6},
		"exclude unknown":        {oneJob("strategy: {matrix: {a: [1], exclude: [{b: 1}]}}"), "", "exclude", 6},
		"unknown event":          {"on: pushed\njobs: {a: {runs-on: x, steps: [{run: x}]}}", "", "pushed", 1},
		"duplicate step id":      {oneJob() + "  b:\n    runs-on: x\n    steps: [{run: x, id: s}, {run: y, id: S}]\n", "", "duplicate", 8},
		"aliases":                {"x: &a [1,1,1,1,1,1,1,1,1,1]\ny: &b [*a,*a,*a,*a,*a,*a,*a,*a,*a,*a]\nz: &c [*b,*b,*b,*b,*b,*b,*b,*b,*b,*b]\nw: &d [*c,*c,*c,*c,*c,*c,*c,*c,*c,*c]\nv: &e [*d,*d,*d,*d,*d,*d,*d,*d,*d,*d]\nu: [*e,*e,*e]", "", "aliases expand", 0},
		"alias of itself":        {"on: push\njobs: &a [*a]\n", "", "aliases expand", 0},
		"too long":               {strings.Repeat("#", maxFile+1), "", "split it", 0},
		"empty":                  {"", "", "empty", 1},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Load("ci.yml", []byte(tc.text))
			var load *LoadError
			require.ErrorAs(t, err, &load)
			found := false
			for _, p := range load.Problems {
				if p.Feature == tc.feature && strings.Contains(p.Message, tc.message) && p.Line == tc.line {
					found = true
				}
			}
			require.True(t, found, "want line %d, feature %q, %q in:\n%v", tc.line, tc.feature, tc.message, err)
		})
	}
}

func TestLoad_CollectsAllProblemsInFileOrder(t *testing.T) {
	_, err := Load("ci.yml", []byte(`on: push
jobs:
  b:
    runs-on: x
    environment: prod
    steps: [{uses: actions/checkout@v4}, {run: x, shell: cmd}]
  a:
    concurrency: one
    runs-on: x
    steps: [{run: "${{ nope() }}"}]
`))
	var load *LoadError
	require.True(t, errors.As(err, &load))
	var features []string
	for i, p := range load.Problems {
		features = append(features, p.Feature)
		require.Positive(t, p.Column)
		require.True(t, i == 0 || load.Problems[i-1].Line <= p.Line)
	}
	require.Equal(t, []string{"environment", "uses", "shell", "concurrency", ""}, features)
	require.Contains(t, err.Error(), "ci.yml:5:")
	require.Len(t, strings.Split(err.Error(), "\n"), 5)
}

func TestLoad_LeavesTasteAlone(t *testing.T) {
	mustLoad(t, oneJob("permissions: write-all")+`  b:
    runs-on: [self-hosted, my-very-own-label]
    steps:
      - run: echo "${{ github.event.pull_request.title }}" ${{ steps.unknown.outputs.x }} ${{ matrix.nothing }}
`)
}

func FuzzLoad(f *testing.F) {
	full, err := os.ReadFile("testdata/full.yml")
	require.NoError(f, err)
	f.Add(full)
	f.Add([]byte(oneJob("strategy: {matrix: {a: [1, x, {b: c}], include: [{a: 1, z: 2}], exclude: [{a: x}]}}")))
	f.Add([]byte(oneJob("strategy: {matrix: '${{ fromJSON(needs.x.outputs.y) }}'}", "timeout-minutes: .nan")))
	f.Add([]byte(oneJob("runs-on: {group: g, labels: [a, '${{ github.ref }}']}", "needs: [a]")))
	f.Add([]byte("on: {workflow_dispatch: {inputs: {a: {type: number, default: 1e9}}}}\njobs: &j {a: *j}"))
	f.Fuzz(func(t *testing.T, data []byte) {
		wf, err := Load("fuzz.yml", data)
		if err != nil {
			var load *LoadError
			require.ErrorAs(t, err, &load)
			require.NotEmpty(t, load.Problems)
			return
		}
		runToEnd(t, wf)
	})
}

// runToEnd runs every event of a workflow, all jobs succeeding, and writes their messages.
func runToEnd(t *testing.T, wf *Workflow) {
	for _, event := range wf.Events {
		run, err := NewRun(wf, Event{Name: event})
		if err != nil {
			continue // a required input
		}
		for !run.Done() {
			ready := run.Next()
			for _, job := range ready {
				m, err := JobMessage(job, testParams)
				require.NoError(t, err)
				requireRoundTrip(t, m)
				_, err = run.Complete(job.Key, Success, nil)
				require.NoError(t, err)
			}
			require.True(t, len(ready) > 0 || run.Done(), "the run is stuck")
		}
	}
}
