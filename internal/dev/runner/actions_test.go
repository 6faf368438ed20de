package runner

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// actionFiles makes an action in the workspace that later steps use.
func actionFiles(t testing.TB, x *trial, files map[string]string) {
	t.Helper()
	for name, content := range files {
		file := filepath.Join(x.opts.WorkDir, "_work", "shop", "shop", name)
		require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o755))
		require.NoError(t, os.WriteFile(file, []byte(content), 0o755))
	}
}

func TestActions_ADockerActionIsRunByTheHook(t *testing.T) {
	x := hooked(t, `[ $command != run_container_step ] || echo "said=it" >> $(printf '%s' "$input" | sed 's|.*"GITHUB_OUTPUT":"/github/file_commands\([^"]*\)".*|'"$RUNNER_TEMP"'/_runner_file_commands\1|')`)
	actionFiles(t, x, map[string]string{"mine/Dockerfile": "FROM scratch", "mine/action.yml": `
inputs: {who: {default: "${{ github.sha }}"}, how: {default: loud}}
runs:
  using: docker
  image: Dockerfile
  entrypoint: /main
  post-entrypoint: /post
  args: ["hi ${{ inputs.who }}", 'a"b', ""]
  env: {A: action, B: "${{ inputs.how }}"}
`})
	x.job(`
  a:
    runs-on: x
    steps:
      - {name: one, id: one, uses: ./mine, with: {who: me}, env: {A: workflow}}
      - {name: two, run: 'test "${{ steps.one.outputs.said }}" = it'}
`)
	s := x.service
	require.Equal(t, "succeeded", s.completed.Conclusion, s.jobLog())
	require.Equal(t, []string{"run_container_step", "run_container_step"}, x.commands(), "without a job container there is nothing to prepare")
	require.Equal(t, "succeeded", s.conclusions()["Post one"])
	require.Contains(t, s.stepLog("Post one"), "Post job cleanup.")
	main, post := x.calls()[0].Args, x.calls()[1].Args
	require.Empty(t, main.Image)
	require.Equal(t, filepath.Join(x.opts.WorkDir, "_work/shop/shop")+"/./mine/Dockerfile", main.Dockerfile)
	require.Equal(t, "/main", main.EntryPoint)
	require.Equal(t, []string{`"hi`, `me"`, `"a\"b"`, `""`}, main.EntryPointArgs)
	require.Equal(t, "/post", post.EntryPoint)
	for name, want := range map[string]string{
		"INPUT_WHO": "me", "INPUT_HOW": "loud", "A": "workflow", "B": "loud", "HOME": "/github/home", "GITHUB_WORKSPACE": "/github/workspace",
		"RUNNER_TEMP": "/github/runner_temp", "GITHUB_EVENT_PATH": "/github/workflow/event.json", "GITHUB_ACTION": "one",
	} {
		require.Equal(t, want, main.EnvironmentVariables[name], name)
	}
	require.NotContains(t, main.EnvironmentVariables, "CI", "GitHub's worker leaves it to who makes the container")
}

func TestActions_SaveStateForTheirPostStep(t *testing.T) {
	x := newTrial(t, false)
	node := "externals/node20/bin/node"
	actionFiles(t, x, map[string]string{
		"mine/action.yaml": "runs: {using: node20, main: main.sh, post: post.sh}",
		"mine/main.sh":     `echo "main $INPUT_A_B"; echo "kept=me" >> "$GITHUB_STATE"`, "mine/post.sh": `echo "post $STATE_kept $INPUT_A_B"`,
	})
	require.NoError(t, os.MkdirAll(filepath.Join(x.opts.WorkDir, filepath.Dir(node)), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(x.opts.WorkDir, node), []byte("#!/bin/sh\nexec sh \"$1\"\n"), 0o755))
	x.job("  a: {runs-on: x, steps: [{name: one, uses: ./mine, with: {'a b': c}}]}")
	require.Equal(t, "succeeded", x.service.completed.Conclusion, x.service.jobLog())
	require.Contains(t, x.service.stepLog("one"), "Z main c\n")
	require.Contains(t, x.service.stepLog("Post one"), "Z post me c\n")
}

func TestActions_InAContainerNodeIsTheRunnersOwn(t *testing.T) {
	x := hooked(t, `[ $command != prepare_job ] || echo '{"isAlpine": true}' > "$response"`)
	actionFiles(t, x, map[string]string{"mine/action.yml": "runs: {using: node24, main: i.js}", "mine/i.js": ""})
	x.job("  a: {runs-on: x, container: alpine, steps: [{name: one, uses: ./mine}]}")
	if runtime.GOARCH != "amd64" {
		require.Contains(t, x.service.stepLog("one"), "JavaScript Actions in Alpine containers are only supported on x64 Linux runners")
		return
	}
	require.Equal(t, "succeeded", x.service.completed.Conclusion, x.service.jobLog())
	require.Equal(t, "/__e/node24_alpine/bin/node", x.calls()[1].Args.EntryPoint)
	require.Equal(t, []string{"/__w/shop/shop/./mine/i.js"}, x.calls()[1].Args.EntryPointArgs)
	require.Equal(t, x.service.http.URL+"/run/", x.calls()[1].Args.EnvironmentVariables["ACTIONS_RUNTIME_URL"])
}

func TestActions_ThatCannotBeRun(t *testing.T) {
	for name, tc := range map[string]struct {
		files   map[string]string
		message string
	}{
		"no action":      {nil, "Can't find 'action.yml', 'action.yaml' or 'Dockerfile' under 'ROOT/_work/shop/shop/mine'. Did you forget to run actions/checkout before running your local action?"},
		"an image":       {map[string]string{"mine/action.yml": "runs: {using: docker, image: alpine}"}, "'alpine' should be either '[path]/Dockerfile' or 'docker://image[:tag]'."},
		"no Dockerfile":  {map[string]string{"mine/action.yml": "runs: {using: docker, image: Dockerfile}"}, "File not found: 'ROOT/_work/shop/shop/./mine/Dockerfile'"},
		"composite":      {map[string]string{"mine/action.yml": "runs: {using: composite, steps: []}"}, "is a composite action, which is not supported here"},
		"no script":      {map[string]string{"mine/action.yml": "runs: {using: node20, main: i.js}"}, "File not found: 'ROOT/_work/shop/shop/./mine/i.js'"},
		"bad expression": {map[string]string{"mine/action.yml": "runs: {using: docker, image: 'docker://a', args: ['${{ secrets.PASSWORD }}']}"}, "evaluating the action's arguments"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			x := hooked(t, "")
			actionFiles(t, x, tc.files)
			x.job("  a: {runs-on: x, steps: [{name: one, uses: ./mine}]}")
			require.Equal(t, "failed", x.service.completed.Conclusion)
			require.Contains(t, x.service.stepLog("one"), strings.ReplaceAll(tc.message, "ROOT", x.opts.WorkDir))
			require.Empty(t, x.calls())
		})
	}
}

func FuzzParseResponse(f *testing.F) {
	f.Add([]byte(`{"state": {"a": 1}, "isAlpine": true, "context": {"container": {"id": "c", "network": "n"}, "services": [{"id": "s", "network": "n", "ports": {"80": 1}}]}}`))
	f.Add([]byte("\ufeffnull"))
	f.Fuzz(func(t *testing.T, data []byte) {
		r, err := parseResponse(data)
		if err != nil {
			return
		}
		context, err := r.contextOf(true, []string{"db"})
		if err == nil {
			require.LessOrEqual(t, context.services.Len(), 1)
		}
	})
}
