package main

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/api/adminapi"
	"github.com/bullpen-ci/bullpen/internal/cli"
)

func versions(t *testing.T, args ...string) (cli.VersionReport, error) {
	t.Helper()
	cmd := newVersionCommand()
	var out bytes.Buffer
	cmd.SetOut(&out)
	cmd.SetErr(&bytes.Buffer{})
	cmd.SetArgs(append(args, "-o", "json"))
	failure := cmd.ExecuteContext(t.Context())
	var report cli.VersionReport
	// What cobra prints after an error follows the JSON.
	require.NoError(t, json.NewDecoder(&out).Decode(&report), out.String())
	return report, failure
}

func TestVersion_OfTheClientAndTheServer(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer ada's" {
			http.Error(w, "who?", http.StatusUnauthorized)
			return
		}
		w.Header().Set(adminapi.HeaderVersion, "v9.9.9")
		_ = json.NewEncoder(w).Encode(adminapi.PoolList{Pools: []adminapi.Pool{}})
	}))
	t.Cleanup(server.Close)
	t.Setenv("BULLPEN_SERVER", "")
	t.Setenv("XDG_STATE_HOME", t.TempDir())
	t.Setenv("KUBECONFIG", kubeconfigFor(t))

	report, err := versions(t, "--server", server.URL)
	require.NoError(t, err)
	require.Equal(t, []string{version, "v9.9.9", ""}, []string{report.Client, report.Server, report.Problem})

	report, err = versions(t)
	require.ErrorContains(t, err, "finding the server's Service: cannot reach the cluster at https://127.0.0.1:1: connection refused")
	require.Equal(t, version, report.Client)

	t.Setenv("KUBECONFIG", filepath.Join(t.TempDir(), "none"))
	report, err = versions(t)
	require.NoError(t, err, "a machine without a server has a version too")
	require.Equal(t, []string{version, "", "none found"}, []string{report.Client, report.Server, report.Problem})

	t.Setenv("KUBECONFIG", kubeconfigFor(t))
	report, err = versions(t, "--client", "--server", "http://127.0.0.1:1")
	require.NoError(t, err, "no server is asked")
	require.Empty(t, report.Problem)

	report, err = versions(t, "--server", "http://127.0.0.1:1")
	require.ErrorContains(t, err, "cannot reach the server at http://127.0.0.1:1: connection refused")
	require.Equal(t, version, report.Client, "the client's is printed nevertheless")
}
