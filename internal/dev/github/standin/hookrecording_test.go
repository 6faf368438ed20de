package standin_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/internal/dev/github/standin"
	devrunner "github.com/bullpen-ci/bullpen/internal/dev/runner"
)

// hookCall is one call of a container hook.
type hookCall struct {
	Stdin map[string]any `json:"stdin"`
	Names []string       `json:"environment_names"`
}

func readHookCalls(t *testing.T, file string) []hookCall {
	t.Helper()
	opened, err := os.Open(file)
	require.NoError(t, err)
	defer opened.Close()
	var calls []hookCall
	lines := bufio.NewScanner(opened)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		if strings.TrimSpace(lines.Text()) == "" {
			continue
		}
		var call hookCall
		require.NoError(t, json.Unmarshal(lines.Bytes(), &call))
		calls = append(calls, call)
	}
	require.NoError(t, lines.Err())
	return calls
}

// recorder is a hook that records its calls as the recordings have them. The action of the workspace has to be there before its step.
const recorder = `
input=$(cat)
names=$(env -0 | tr '\n' ' ' | tr '\0' '\n' | sed -n 's/^\([A-Za-z_][A-Za-z0-9_]*\)=.*/"\1",/p' | grep -v '^"\(SHLVL\|_\|PWD\|OLDPWD\|RECORD\)",$' | sort | tr -d '\n')
printf '{"stdin": %s, "environment_names": [%s]}\n' "$input" "${names%,}" >> "$RECORD"
response=$(printf '%s' "$input" | sed 's/.*"responseFile":"\([^"]*\)".*/\1/')
case "$input" in
*'"command":"prepare_job"'*)
  mkdir -p "$GITHUB_WORKSPACE/mine"
  printf 'name: mine\nruns: {using: node20, main: i.js, post: i.js}\n' > "$GITHUB_WORKSPACE/mine/action.yml"
  touch "$GITHUB_WORKSPACE/mine/i.js"
  printf '{"state": {"pod": "r-7"}, "isAlpine": false, "context": {"services": [{"id": "s", "network": "n", "ports": {"5432": "5432"}}]}}' > "$response" ;;
esac
`

const recordedWorkflow = `
name: t
on: push
jobs:
  t:
    runs-on: [self-hosted, linux]
%s
    services: {postgres: {image: "postgres:17", ports: [5432]}}
    steps:
%s
`

// The inputs that the development runner gives a hook are those of GitHub's own worker, field by field; ids, times and addresses are theirs.
func TestDevelopmentRunner_GivesAHookWhatGitHubsGives(t *testing.T) {
	for name, content := range map[string]string{
		"hook-services-only": fmt.Sprintf(recordedWorkflow, "", "      - run: 'true'"),
		"hook-all": fmt.Sprintf(recordedWorkflow, "    container: debian:12", `
      - {run: a, working-directory: /tmp, env: {A: "${{ github.sha }}"}}
      - run: b
      - uses: ./mine
      - uses: docker://alpine:3.20
        with: {args: 'echo "a b" c', entrypoint: /bin/sh}`),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, nil)
			submitted, err := w.in.Admin.Submit(w.ctx, standin.Submission{FileName: "w.yaml", Repo: "acme/app", Content: content})
			require.NoError(t, err)
			root, hook, record := t.TempDir(), filepath.Join(t.TempDir(), "hook.sh"), filepath.Join(t.TempDir(), "record")
			require.NoError(t, writeFile(hook, recorder))
			_, config := w.mintConfig("b", "self-hosted", "linux")
			r, err := devrunner.New(devrunner.Options{JIT: config, WorkDir: root, Environ: []string{
				"PATH=" + os.Getenv("PATH"), "HOME=/root", "ACTIONS_RUNNER_CONTAINER_HOOKS=" + hook, "RECORD=" + record,
			}})
			require.NoError(t, err)
			require.NoError(t, r.Run(w.ctx))
			job := w.job(submitted[0], "t")
			log, err := w.in.Admin.JobLog(w.ctx, job.ID)
			require.NoError(t, err)
			require.Equal(t, "success", job.Conclusion, log)
			want, got := readHookCalls(t, filepath.Join("testdata", "recordings", "hooks", name+".jsonl")), readHookCalls(t, record)
			require.Len(t, got, len(want))
			for i := range want {
				slices.Sort(got[i].Names)
				require.Equal(t, want[i].Names, got[i].Names, "the environment of call %d, %v", i, want[i].Stdin["command"])
				if args, _ := got[i].Stdin["args"].(map[string]any); args["environmentVariables"] != nil {
					delete(args["environmentVariables"].(map[string]any), "ACTIONS_CACHE_URL") // the message of that time named no cache
				}
				require.Equal(t, sameForAll(want[i].Stdin, "/home/runner"), sameForAll(got[i].Stdin, root), "the input of call %d", i)
			}
		})
	}
}

var (
	recordedGUID    = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`)
	recordedAddress = regexp.MustCompile(`^https?://[^/]+`)
	anyID           = regexp.MustCompile(`^([0-9a-f]{40}|\d+)$`)
)

// idVariables are variables whose values are ids. The names of two steps are those that a proxy gave them when the recordings were made.
var idVariables = []string{
	"GITHUB_REPOSITORY_ID", "GITHUB_REPOSITORY_OWNER_ID", "GITHUB_RUN_ID", "GITHUB_ACTOR_ID", "GITHUB_SHA", "GITHUB_WORKFLOW_SHA", "A", "ACTIONS_RUNTIME_TOKEN", "GITHUB_ACTION",
}

// sameForAll writes ids, addresses and the runner's directory alike.
func sameForAll(v any, root string) any {
	switch v := v.(type) {
	case map[string]any:
		out := map[string]any{}
		for key, item := range v {
			if text, ok := item.(string); ok && slices.Contains(idVariables, key) && (anyID.MatchString(text) || key == "ACTIONS_RUNTIME_TOKEN" || strings.HasPrefix(text, "__")) {
				out[key] = "<id>"
				continue
			}
			out[key] = sameForAll(item, root)
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i, item := range v {
			out[i] = sameForAll(item, root)
		}
		return out
	case string:
		return recordedAddress.ReplaceAllString(recordedGUID.ReplaceAllString(strings.ReplaceAll(v, root, "<root>"), "<guid>"), "<url>")
	}
	return v
}
