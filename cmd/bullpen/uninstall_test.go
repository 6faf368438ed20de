package main

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// kubeconfigOf is one whose cluster is at that address.
func kubeconfigOf(t *testing.T, address string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "kubeconfig")
	require.NoError(t, os.WriteFile(path, []byte("apiVersion: v1\nkind: Config\ncurrent-context: a\ncontexts: [{name: a, context: {cluster: a, user: a}}]\n"+
		"clusters: [{name: a, cluster: {server: '"+address+"'}}]\nusers: [{name: a, user: {}}]\n"), 0o600))
	return path
}

// Nothing is deleted before a person has agreed, and everything else than y is a no.
func TestUninstall_R9_AsksFirst(t *testing.T) {
	asked := 0
	cluster := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked++
		http.Error(w, "no", http.StatusForbidden)
	}))
	t.Cleanup(cluster.Close)
	t.Setenv("XDG_STATE_HOME", t.TempDir())
	uninstall := func(answer string, more ...string) (string, error) {
		cmd := newUninstallCommand()
		var out bytes.Buffer
		cmd.SetIn(strings.NewReader(answer))
		cmd.SetOut(&out)
		cmd.SetErr(&out)
		cmd.SetArgs(append([]string{"--kubeconfig", kubeconfigOf(t, cluster.URL), "--server", "http://127.0.0.1:1"}, more...))
		err := cmd.ExecuteContext(t.Context())
		return out.String(), err
	}
	for _, answer := range []string{"", "\n", "n\n", "uninstall\n"} {
		said, err := uninstall(answer)
		require.ErrorContains(t, err, "nothing was deleted")
		require.Contains(t, said, "Delete all pools and runners in the namespace bullpen-runners of "+cluster.URL+"?")
		require.Zero(t, asked)
	}
	_, err := uninstall("y\n")
	require.ErrorContains(t, err, "no")
	require.NotZero(t, asked)
	asked = 0
	said, err := uninstall("", "--yes", "-o", "json")
	require.Error(t, err)
	require.NotZero(t, asked)
	require.Contains(t, said, `"done": false`)
}
