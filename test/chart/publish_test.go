package chart

import (
	"io"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/rhysd/actionlint"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"
)

const workflowFile = ".github/workflows/release.yaml"

// used is an action that a workflow runs, in a version of three numbers.
var (
	used   = regexp.MustCompile(`(?m)^\s*- uses: (\S+)`)
	pinned = regexp.MustCompile(`^[\w.-]+/[\w./-]+@v\d+\.\d+\.\d+$`)
	minor  = regexp.MustCompile(`(@v\d+)\.\d+\.\d+`)
)

func workflow(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("../../" + workflowFile)
	require.NoError(t, err)
	return string(text)
}

// mistakes are what actionlint finds in a workflow.
func mistakes(t *testing.T, text string) []string {
	t.Helper()
	linter, err := actionlint.NewLinter(io.Discard, &actionlint.LinterOptions{})
	require.NoError(t, err)
	found, err := linter.Lint("<stdin>", []byte(text), nil)
	require.NoError(t, err)
	var out []string
	for _, one := range found {
		out = append(out, one.Error())
	}
	return out
}

// The workflow that publishes a release runs nowhere here, so it is linted. Actionlint knows the inputs of popular actions by their major
// version.
func TestPublish_TheWorkflowIsValid(t *testing.T) {
	text := workflow(t)
	require.Empty(t, mistakes(t, text))
	require.Empty(t, mistakes(t, minor.ReplaceAllString(text, "$1")))
	for from, to := range map[string]string{
		"needs: [test,": "needs: [tests,", "runner.temp": "runner.tmp", "steps.push.outputs": "steps.pushed.outputs", "packages: write": "packages: all",
	} {
		require.NotEmpty(t, mistakes(t, strings.ReplaceAll(text, from, to)), "the linter checks nothing: %s", to)
	}
	require.NotEmpty(t, mistakes(t, strings.ReplaceAll(minor.ReplaceAllString(text, "$1"), "fetch-depth:", "fetch-dept:")))
}

func TestPublish_ActionsAreOfOneVersion(t *testing.T) {
	actions := used.FindAllStringSubmatch(workflow(t), -1)
	require.NotEmpty(t, actions)
	versions := map[string]string{}
	for _, action := range actions {
		require.Regexp(t, pinned, action[1])
		name, version, _ := strings.Cut(action[1], "@")
		if known, is := versions[name]; is {
			require.Equal(t, known, version, name)
		}
		versions[name] = version
	}
}

// No job may do more than it says, and the image that is published is the one that the chart names.
func TestPublish_RightsAndNames(t *testing.T) {
	var read struct {
		Permissions map[string]string
		Env         map[string]string
		Jobs        map[string]struct {
			Permissions map[string]string
			Needs       any
		}
	}
	require.NoError(t, yaml.Unmarshal([]byte(workflow(t)), &read))
	require.Empty(t, read.Permissions)
	require.Len(t, read.Jobs, 6)
	for name, job := range read.Jobs {
		require.NotEmpty(t, job.Permissions, name)
	}
	for _, name := range []string{"test", "long-tests"} {
		require.Equal(t, map[string]string{"contents": "read"}, read.Jobs[name].Permissions)
	}
	require.Equal(t, []any{"test", "long-tests"}, read.Jobs["programs"].Needs, "what publishes comes after all tests")
	var chart struct{ Image struct{ Repository string } }
	text, err := os.ReadFile("../../charts/bullpen/values.yaml")
	require.NoError(t, err)
	require.NoError(t, yaml.Unmarshal(text, &chart))
	require.Equal(t, chart.Image.Repository, read.Env["IMAGE"])
}
