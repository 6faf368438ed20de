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
)

// completionServer answers as the admin API does.
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
			runners := []adminapi.Runner{
				{Namespace: "bullpen-runners", Name: "linux-abc", Pool: "linux"}, {Namespace: "other", Name: "linux-def", Pool: "large"},
			}
			if r.URL.Query().Get("stage") != "idle" {
				runners = append(runners, adminapi.Runner{Namespace: "bullpen-runners", Name: "linux-busy", Pool: "linux"})
			}
			answer = adminapi.RunnerList{Runners: runners}
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
	config := filepath.Join(t.TempDir(), "config.yaml")
	require.NoError(t, os.WriteFile(config, []byte("servers: {production: {url: 'https://x'}, lab: {context: lab}}\n"), 0o600))
	t.Setenv("BULLPEN_CONFIG", config)
	for words, want := range map[string][]string{
		"cancel |":                           {"271", "314"},
		"why |":                              {"271", "314"},
		"why 27|":                            {"271"},
		"why 271 |":                          nil,
		"job |":                              {"271", "314", "279"},
		"retire |":                           {"linux-abc"},
		"retire -n other |":                  {"linux-def"},
		"pool pause |":                       {"linux"},
		"pool drain -n other |":              {"large"},
		"pool resume x|":                     nil,
		"pool set |":                         {"linux"},
		"pool scale -n other --replicas 1 |": {"large"},
		"pool get l|":                        {"linux", "large"},
		"pools l|":                           {"linux", "large"},
		"runners get |":                      {"linux-abc", "linux-busy"},
		"runner get -n other |":              {"linux-def"},
		"runners --sort-by |":                {"namespace", "name", "pool", "stage", "node", "createdAt", "account", "jobId", "runnerName", "claimedAt"},
		"usage -o |":                         {"table", "wide", "json", "yaml", "csv", "jsonpath=", "custom-columns="},
		"job 271 -o |":                       {"table", "wide", "json", "yaml", "name", "jsonpath=", "custom-columns="},
		"accounts get |":                     {"acme", "zoo"},
		"accounts set-limits a|":             {"acme"},
		"accounts suspend |":                 {"acme", "zoo"},
		"accounts resume |":                  {"acme", "zoo"},
		"accounts delete |":                  {"acme", "zoo", "old"},
		"jobs --account z|":                  {"zoo"},
		"usage --account z|":                 {"zoo"},
		"audit --account z|":                 {"zoo"},
		"runners --pool l|":                  {"linux", "large"},
		"runners --stage idle --pool |":      {"linux", "large"},
		"runners logs linux-b|":              {"linux-busy"},
		"runners --stage b|":                 {"busy"},
		"jobs --state r|":                    {"running"},
		"jobs --state running,b|":            {"running,blocked"},
		"jobs --state running,r|":            nil,
		"jobs --conclusion fail|":            {"failure"},
		"events --types |":                   {"Normal", "Warning"},
		"doctor --only d|":                   {"database"},
		"jobs --server |":                    {"lab", "production"},
		"config use-server |":                {"lab", "production"},
		"config delete-server lab |":         nil,
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
		{"pool", "pause", "--context", "here", ""}, // a port-forward that the configuration file does not have
		{"jobs", "--server", "nothing", "--account", ""},
	} {
		offered, said := tab(t, words...)
		require.Empty(t, offered, words)
		require.NotContains(t, strings.ToLower(said), "error", words)
		require.NotContains(t, said, "kubeconfig", words)
	}
	require.EqualValues(t, 1, asked.Load(), "the wrong path alone")
}
