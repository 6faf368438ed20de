package cli_test

import (
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/bullpen-ci/bullpen/api/adminapi"
	"github.com/bullpen-ci/bullpen/internal/cli"
	"github.com/bullpen-ci/bullpen/test/kit/await"
	"github.com/bullpen-ci/bullpen/test/kit/portforwardtest"
)

// A command that is given nothing but a kubeconfig reaches the server in its cluster.
func TestConnection_ForwardsAPortToTheRelease(t *testing.T) {
	var token, host string
	cluster := portforwardtest.New(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		token, host = r.Header.Get("Authorization"), r.Host
		if r.URL.Path == adminapi.PathConsoleCode {
			_, _ = w.Write([]byte(`{"code":"once"}`))
			return
		}
		_, _ = w.Write([]byte(`{"accounts":[]}`))
	}))
	connection := func(user *clientcmdapi.AuthInfo) *cli.Connection {
		t.Setenv("KUBECONFIG", kubeconfig(t, cluster.URL, user))
		c := &cli.Connection{ServiceAccount: cli.DefaultServiceAccount, Getenv: func(string) string { return "" }}
		t.Cleanup(c.Close)
		return c
	}
	conn := connection(&clientcmdapi.AuthInfo{Token: "ada's"})
	client, err := conn.Client()
	require.NoError(t, err)
	require.True(t, client.Forwarded())
	require.Empty(t, cluster.Forwards(), "nothing is started before the first request")
	for range 2 {
		_, err = client.Accounts(await.Context(t), false)
		require.NoError(t, err)
	}
	require.Equal(t, []string{"server-1 by WebSocket"}, cluster.Forwards())
	require.Equal(t, []string{"Bearer ada's", "bullpen-admin.bullpen-system.svc:8082"}, []string{token, host})

	link, err := client.ConsoleLink(await.Context(t))
	require.NoError(t, err)
	require.Regexp(t, `^http://127\.0\.0\.1:\d+/ui/login#code=once$`, link)
	local, _, _ := strings.Cut(link, "#")
	response, err := await.HTTP.Get(local)
	require.NoError(t, err)
	response.Body.Close()
	conn.Close()
	_, err = await.HTTP.Get(local)
	require.Error(t, err, "the port-forward ends with the command")
	_, err = client.Accounts(await.Context(t), false)
	require.ErrorContains(t, err, "the port-forward is closed")

	// A client certificate alone has the token of the release's ServiceAccount, under its own name.
	cluster.Change(func() { cluster.Services = portforwardtest.Services("team-b", "fleet-bullpen") })
	conn = connection(&clientcmdapi.AuthInfo{})
	client, err = conn.Client()
	require.NoError(t, err)
	_, err = client.Accounts(await.Context(t), false)
	require.NoError(t, err)
	require.Equal(t, "Bearer of team-b/fleet-bullpen-admin", token)
	conn = connection(&clientcmdapi.AuthInfo{})
	conn.ServiceAccount = "team-c/robot"
	client, err = conn.Client()
	require.NoError(t, err)
	_, err = client.Accounts(await.Context(t), false)
	require.NoError(t, err)
	require.Equal(t, "Bearer of team-c/robot", token)
}

// A pod that is replaced is followed, and what the cluster lacks is said.
func TestConnection_ForwardsToWhatIsThere(t *testing.T) {
	cluster := portforwardtest.New(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(`{"accounts":[]}`)) }))
	t.Setenv("KUBECONFIG", kubeconfig(t, cluster.URL, &clientcmdapi.AuthInfo{Token: "ada's"}))
	ask := func(here bool, change func()) error {
		cluster.Change(change)
		conn := &cli.Connection{ServiceAccount: cli.DefaultServiceAccount, Getenv: func(string) string { return "" }}
		if here {
			conn.DefaultStateDir = func() (string, error) { return filepath.Join(t.TempDir(), "none"), nil }
		}
		defer conn.Close()
		client, err := conn.Client()
		require.NoError(t, err)
		_, err = client.Accounts(await.Context(t), false)
		return err
	}
	require.NoError(t, ask(true, func() {}))
	err := ask(false, func() { cluster.Pods = []corev1.Pod{portforwardtest.Pod("server-1", time.Hour, corev1.ConditionFalse)} })
	require.ErrorContains(t, err, "no pod of the Service bullpen-system/bullpen-admin is ready (1 not ready)")
	require.False(t, cli.IsNoServer(err))
	err = ask(false, func() { cluster.Services = nil })
	require.EqualError(t, err, "no server found: BULLPEN_SERVER is not set, and the cluster at "+cluster.URL+
		" has no release of Bullpen. Install the chart, choose another with --context, or name a server with --server")
	require.True(t, cli.IsNoServer(err))
	require.ErrorContains(t, ask(true, func() {}), "no server found: `bullpen up` is not running here (--state-dir names another directory) and BULLPEN_SERVER is not set, and the cluster at ")
}
