package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const arcRunner = `apiVersion: actions.summerwind.dev/v1alpha1
kind: Runner
metadata: {name: one, namespace: bullpen-runners}
spec: {repository: acme/shop, dockerEnabled: false, image: "ghcr.io/actions/actions-runner:latest"}
`

// migrate runs the command and gives what it prints, and its exit code as main would.
func migrate(t *testing.T, stdin string, args ...string) (out, report string, code int) {
	t.Helper()
	root := newRootCommand()
	var stdout, stderr bytes.Buffer
	root.SetIn(strings.NewReader(stdin))
	root.SetOut(&stdout)
	root.SetErr(&stderr)
	root.SetArgs(append([]string{"arc"}, args...))
	err := root.ExecuteContext(t.Context())
	var failed migrationError
	switch {
	case errors.As(err, &failed):
		code = failed.code
		stderr.WriteString(err.Error())
	case err != nil:
		code = 1
		stderr.WriteString(err.Error())
	}
	return stdout.String(), stderr.String(), code
}

func TestMigrateARC_ExitCodesAreForScripts(t *testing.T) {
	out, report, code := migrate(t, arcRunner, "-", "--strict")
	require.Zero(t, code, report)
	require.Contains(t, out, "kind: Runner\n")
	require.Contains(t, report, "standard input, document 1, line 1: Runner one in namespace bullpen-runners: converted to Runner one")

	left := strings.Replace(arcRunner, "dockerEnabled", "future: 1, dockerEnabled", 1)
	out, _, code = migrate(t, left, "-")
	require.Zero(t, code)
	require.NotEmpty(t, out)
	out, report, code = migrate(t, left, "-", "--strict")
	require.Equal(t, exitLeft, code)
	require.NotEmpty(t, out, "what was converted is printed whatever is left")
	require.Contains(t, report, "spec.future")

	_, report, code = migrate(t, strings.Replace(arcRunner, "name: one", "name: o.ne", 1), "-")
	require.Equal(t, 1, code)
	require.Contains(t, report, "without dots")
}

func TestMigrateARC_TheReportIsJSONAlone(t *testing.T) {
	file := filepath.Join(t.TempDir(), "runners.yaml")
	require.NoError(t, os.WriteFile(file, []byte(strings.Replace(arcRunner, "dockerEnabled", "future: 1, dockerEnabled", 1)), 0o600))
	_, report, code := migrate(t, "", file, "-o", "json", "--strict")
	require.Equal(t, exitLeft, code)
	var read struct {
		Objects []struct {
			File     string
			Findings []struct {
				Verdict, Path string
				Line, Column  int
			}
		}
		Summary map[string]int
	}
	require.NoError(t, json.Unmarshal([]byte(report), &read), report)
	require.Equal(t, file, read.Objects[0].File)
	future := slices.IndexFunc(read.Objects[0].Findings, func(f struct {
		Verdict, Path string
		Line, Column  int
	}) bool {
		return f.Path == "spec.future"
	})
	require.Equal(t, []int{4, 31}, []int{read.Objects[0].Findings[future].Line, read.Objects[0].Findings[future].Column})
	require.Equal(t, 1, read.Summary["dropped"])
}

// Two results of one label cannot be used together, and a script sees it without --strict.
func TestMigrateARC_R4_TheExitCodeSaysThatLabelsAreShared(t *testing.T) {
	set := func(name, group string) string {
		return "githubConfigUrl: https://github.com/acme\ngithubConfigSecret: gh\nmaxRunners: 3\nrunnerScaleSetName: " + name + "\nrunnerGroup: " + group + "\nscaleSetLabels: [gpu]\n"
	}
	folder := t.TempDir()
	one, two, three := filepath.Join(folder, "one.yaml"), filepath.Join(folder, "two.yaml"), filepath.Join(folder, "three.yaml")
	for file, content := range map[string]string{one: set("shop", "a"), two: set("shop", "b"), three: set("web", "a")} {
		require.NoError(t, os.WriteFile(file, []byte(content), 0o600))
	}
	for _, files := range [][]string{{one, two}, {one, three}} {
		out, report, code := migrate(t, "", files...)
		require.Equal(t, 1, code, report)
		require.NotEmpty(t, out)
		require.Contains(t, report, "would stay queued")
	}
	out, report, code := migrate(t, "", one, "--to", "RunnerDeployment")
	require.Zero(t, code, report)
	require.Contains(t, out, "kind: RunnerDeployment\n")
}

func TestMigrateARC_BadArgumentsAreSaid(t *testing.T) {
	for _, args := range [][]string{{}, {"/nowhere/at/all.yaml"}, {"-", "-o", "xml"}, {"-", "--to", "Deployment"}} {
		out, report, code := migrate(t, arcRunner, args...)
		require.Equal(t, 1, code, args)
		require.Empty(t, out)
		require.NotEmpty(t, report)
	}
}

func TestRoot_WithoutAProjectFails(t *testing.T) {
	require.Equal(t, 1, run(t.Context(), nil))
	require.Equal(t, 1, run(t.Context(), []string{"elsewhere"}))
	require.Zero(t, run(t.Context(), []string{"--version"}))
}

func TestRun_ExitsWithTheCodesOfTheReport(t *testing.T) {
	file := filepath.Join(t.TempDir(), "runners.yaml")
	require.NoError(t, os.WriteFile(file, []byte(strings.Replace(arcRunner, "dockerEnabled", "future: 1, dockerEnabled", 1)), 0o600))
	require.Equal(t, exitLeft, run(t.Context(), []string{"arc", file, "--strict"}))
	require.Zero(t, run(t.Context(), []string{"arc", file}))
}
