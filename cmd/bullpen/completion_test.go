package main

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/api/adminapi"
	"github.com/bullpen-ci/bullpen/internal/cli"
)

// completionServer answers as the operators' API does.
func completionServer(t *testing.T) (address string, asked *atomic.Int32) {
	t.Helper()
	asked = &atomic.Int32{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		var answer any
		switch r.URL.Path {
		case adminapi.PathJobs:
			jobs := []adminapi.Job{{ID: 271, State: "queued", Repository: "acme/app"}, {ID: 314, State: "running", Repository: "acme/lib"}}
			if r.URL.Query().Get("ended") == "true" {
				jobs = append(jobs, adminapi.Job{ID: 279, State: "completed", Repository: "acme/app"})
			}
			answer = adminapi.JobList{Jobs: jobs}
		case adminapi.PathPools:
			answer = adminapi.PoolList{Pools: []adminapi.Pool{
				{Namespace: "bullpen-runners", Name: "linux", Labels: []string{"linux-4"}}, {Namespace: "other", Name: "large"},
			}}
		case adminapi.PathRunners:
			if r.URL.Query().Get("stage") != "idle" {
				http.Error(w, "only idle runners can be retired", http.StatusBadRequest)
				return
			}
			answer = adminapi.RunnerList{Runners: []adminapi.Runner{
				{Namespace: "bullpen-runners", Name: "linux-abc", Pool: "linux"}, {Namespace: "other", Name: "linux-def", Pool: "large"},
			}}
		case adminapi.PathAccounts:
			accounts := []adminapi.Account{{Login: "acme", State: adminapi.AccountActive}, {Login: "zoo"}}
			if r.URL.Query().Get("deleted") == "true" {
				accounts = append(accounts, adminapi.Account{Login: "old", State: adminapi.AccountDeleted})
			}
			answer = adminapi.AccountList{Accounts: accounts}
		default:
			http.NotFound(w, r)
			return
		}
		_ = json.NewEncoder(w).Encode(answer)
	}))
	t.Cleanup(server.Close)
	return server.URL, asked
}

// tab returns what the shell receives for Tab after these words: the names, and the messages.
func tab(t *testing.T, words ...string) (offered []string, said string) {
	t.Helper()
	root, out, errs := newRootCommand(), bytes.Buffer{}, bytes.Buffer{}
	root.SetOut(&out)
	root.SetErr(&errs)
	root.SetArgs(append([]string{"__complete"}, words...))
	require.NoError(t, root.ExecuteContext(t.Context()))
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	require.Equal(t, ":4", lines[len(lines)-1], "files of the present folder are never offered for names of the fleet")
	for _, line := range lines[:len(lines)-1] {
		name, _, _ := strings.Cut(line, "\t")
		offered = append(offered, name)
	}
	return offered, out.String() + errs.String()
}

// kubeconfigFor holds a token, so that no cluster is asked for one.
func kubeconfigFor(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "kubeconfig")
	require.NoError(t, os.WriteFile(path, []byte(`{"apiVersion": "v1", "kind": "Config", "current-context": "here",
"clusters": [{"name": "here", "cluster": {"server": "https://127.0.0.1:1"}}], "users": [{"name": "ada", "user": {"token": "ada's"}}],
"contexts": [{"name": "here", "context": {"cluster": "here", "user": "ada"}}]}`), 0o600))
	return path
}

func TestCompletion_OffersNamesOfTheFleet(t *testing.T) {
	server, _ := completionServer(t)
	t.Setenv("BULLPEN_SERVER", server) // `pool` has no --server
	t.Setenv("KUBECONFIG", kubeconfigFor(t))
	for words, want := range map[string][]string{
		"why |":                         {"271", "314"},
		"why 27|":                       {"271"},
		"why 271 |":                     nil,
		"job |":                         {"271", "314", "279"},
		"retire |":                      {"linux-abc"},
		"retire -n other |":             {"linux-def"},
		"pool pause |":                  {"linux"},
		"pool drain -n other |":         {"large"},
		"pool resume x|":                nil,
		"accounts get |":                {"acme", "zoo"},
		"accounts set-limits a|":        {"acme"},
		"accounts suspend |":            {"acme", "zoo"},
		"accounts resume |":             {"acme", "zoo"},
		"accounts delete |":             {"acme", "zoo", "old"},
		"jobs --account z|":             {"zoo"},
		"usage --account z|":            {"zoo"},
		"audit --account z|":            {"zoo"},
		"runners --pool l|":             {"linux", "large"},
		"runners --stage idle --pool |": {"linux", "large"},
		"runners --stage b|":            cli.RunnerStageNames(), // the shell picks
		"jobs --state r|":               cli.JobStateNames(),
	} {
		before, begun := splitWords(words)
		offered, _ := tab(t, append(before, begun)...)
		require.Equal(t, want, offered, words)
	}
}

// splitWords takes a line with | where the cursor is apart.
func splitWords(line string) (before []string, begun string) {
	words := strings.Split(strings.TrimSuffix(line, "|"), " ")
	return words[:len(words)-1], words[len(words)-1]
}

// Errors are not printed into the line that the user types.
func TestCompletion_SaysNothingWhenItFails(t *testing.T) {
	server, asked := completionServer(t)
	t.Setenv("BULLPEN_SERVER", "")
	for _, words := range [][]string{
		{"why", "--kubeconfig", "/does/not/exist", "--server", server, ""},
		{"why", "--kubeconfig", kubeconfigFor(t), "--server", "http://127.0.0.1:1", ""},
		{"why", "--kubeconfig", kubeconfigFor(t), "--server", "http://bullpen.example.com", ""}, // the token would go in the clear
		{"retire", "--kubeconfig", kubeconfigFor(t), "--server", server + "/wrong", ""},
		{"pool", "pause", "--state-dir", t.TempDir(), ""},
	} {
		offered, said := tab(t, words...)
		require.Empty(t, offered, words)
		require.NotContains(t, strings.ToLower(said), "error", words)
		require.NotContains(t, said, "kubeconfig", words)
	}
	require.EqualValues(t, 1, asked.Load(), "the wrong path alone")
}
