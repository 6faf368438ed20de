package chart

import (
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"

	"github.com/bullpen-ci/bullpen/test/kit/await"
	"github.com/bullpen-ci/bullpen/test/kit/deep"
	"github.com/bullpen-ci/bullpen/test/kit/gobuild"
	"github.com/bullpen-ci/bullpen/test/kit/helmchart"
)

// kube-linter finds nothing in what the chart renders to, except in the checks that charts/kube-linter.yaml leaves out,
// each with its reason.
func TestObjects_PassKubeLinter(t *testing.T) {
	deep.Only(t, "TestPods_POD1_R6_EveryContainerHasRequestsAndLimits and TestPods_POD2_R11_ConformToRestrictedAndLeaveTheUserToTheCluster")
	linter := filepath.Join(t.TempDir(), "kube-linter")
	output, err := gobuild.Command(t.Context(), "../../tools/kubelinter", linter, "golang.stackrox.io/kube-linter/cmd/kube-linter").CombinedOutput()
	require.NoError(t, err, "%s", output)

	for name, text := range map[string]string{"least": least, "everything": everything} {
		require.Empty(t, lint(t, linter, text, nil), name)
	}
	// The check can fail.
	found := lint(t, linter, least, func(manifest string) string {
		return strings.Replace(manifest, "readOnlyRootFilesystem: true", "readOnlyRootFilesystem: false", 1)
	})
	require.Contains(t, strings.Join(found, "\n"), "no-read-only-root-fs")
}

// lint are the names of the checks that fail on the rendered chart, with the object.
func lint(t *testing.T, linter, text string, spoil func(string) string) []string {
	t.Helper()
	dir := t.TempDir()
	var documents []string
	for _, object := range render(t, helmchart.Release{Upgrade: true}, text) {
		document, err := yaml.Marshal(object.Object)
		require.NoError(t, err)
		documents = append(documents, string(document))
	}
	manifest := strings.Join(documents, "---\n")
	if spoil != nil {
		manifest = spoil(manifest)
	}
	require.NoError(t, os.WriteFile(filepath.Join(dir, "chart.yaml"), []byte(manifest), 0o600))
	command := exec.CommandContext(await.Context(t), linter, "lint", "--config", "../../charts/kube-linter.yaml", "--format", "json", dir) //nolint:gosec // a test's own
	command.Stderr = os.Stderr
	output, err := command.Output() // it exits with 1 if it finds anything
	if _, found := errors.AsType[*exec.ExitError](err); !found {
		require.NoError(t, err)
	}
	var result struct {
		Reports []struct {
			Check      string
			Diagnostic struct{ Message string }
			Object     struct{ K8sObject struct{ Name string } }
		}
	}
	require.NoError(t, json.Unmarshal(output, &result), "%s", output)
	var found []string
	for _, r := range result.Reports {
		found = append(found, r.Check+": "+r.Object.K8sObject.Name+": "+r.Diagnostic.Message)
	}
	return found
}
