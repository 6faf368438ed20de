package cli_test

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/api/adminapi"
	"github.com/bullpen-ci/bullpen/internal/cli"
)

// twoNamespaces is a client of a server with pools and runners in two namespaces, in pages of one runner.
func twoNamespaces(t *testing.T) *cli.Client {
	t.Helper()
	pools := []adminapi.Pool{
		{Namespace: "a", Name: "linux", Labels: []string{"linux-4"}}, {Namespace: "a", Name: "mac", Labels: []string{"macos"}}, {Namespace: "b", Name: "linux", Labels: []string{"linux-8"}},
	}
	runners := []adminapi.Runner{
		{Namespace: "a", Name: "linux-1", Pool: "linux"}, {Namespace: "a", Name: "mac-1", Pool: "mac"}, {Namespace: "b", Name: "linux-1", Pool: "linux"}, {Namespace: "b", Name: "linux-2", Pool: "linux"},
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == adminapi.PathPools {
			_ = json.NewEncoder(w).Encode(adminapi.PoolList{Pools: pools})
			return
		}
		var page adminapi.RunnerList
		for _, runner := range runners {
			key := runner.Namespace + "/" + runner.Name
			if namespace := r.URL.Query().Get("namespace"); key <= r.URL.Query().Get("after") || namespace != "" && namespace != runner.Namespace {
				continue
			}
			if len(page.Runners) == 1 {
				page.Next = page.Runners[0].Namespace + "/" + page.Runners[0].Name
				break
			}
			page.Runners = append(page.Runners, runner)
		}
		_ = json.NewEncoder(w).Encode(page)
	}))
	t.Cleanup(server.Close)
	client, err := cli.NewClient(server.URL, func(context.Context) (string, error) { return "ada's", nil }, 0)
	require.NoError(t, err)
	return client
}

func TestClient_Pool(t *testing.T) {
	client := twoNamespaces(t)
	for name, want := range map[[2]string]string{{"", "mac"}: "a", {"b", "linux"}: "b", {"", "a/linux"}: "a", {"a", "b/linux"}: "b"} {
		pool, err := client.Pool(t.Context(), name[0], name[1])
		require.NoError(t, err, name)
		require.Equal(t, want, pool.Namespace, name)
	}
	for name, says := range map[[2]string]string{
		{"", "linux"}: `ambiguous pool "linux": use a/linux or b/linux`, {"", "linx"}: `pool "linx" not found. Did you mean linux`,
		{"b", "mac"}: "pool \"mac\" not found in namespace b. `bullpen pools` lists pools.", {"", "c/linux"}: `pool "linux" not found in namespace c`,
	} {
		_, err := client.Pool(t.Context(), name[0], name[1])
		require.ErrorContains(t, err, says, name)
	}
}

func TestClient_Runner(t *testing.T) {
	client := twoNamespaces(t)
	runner, err := client.Runner(t.Context(), "b", "linux-2")
	require.NoError(t, err)
	require.Equal(t, adminapi.Runner{Namespace: "b", Name: "linux-2", Pool: "linux"}, runner)
	_, err = client.Runner(t.Context(), "a", "mac-2")
	require.EqualError(t, err, `runner "mac-2" not found in namespace a. Did you mean mac-1?`)
	_, err = client.Runner(t.Context(), "a", "windows")
	require.ErrorContains(t, err, "`bullpen runners` lists runners")
}

// -l selects runners by the labels of their pools, on every page.
func TestClient_RunnersByLabel(t *testing.T) {
	client := twoNamespaces(t)
	filter := cli.RunnerFilter{Most: 10}
	require.NoError(t, filter.Labels.Set("linux-8"))
	runners, err := client.Runners(t.Context(), filter)
	require.NoError(t, err)
	require.Equal(t, []adminapi.Runner{{Namespace: "b", Name: "linux-1", Pool: "linux"}, {Namespace: "b", Name: "linux-2", Pool: "linux"}}, runners)
	filter.Most = 1
	runners, err = client.Runners(t.Context(), filter)
	require.NoError(t, err)
	require.Len(t, runners, 1)
}
