package cli_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/bullpen-ci/bullpen/internal/cli"
	"github.com/bullpen-ci/bullpen/internal/cli/servers"
)

// places are servers at every place that a command may use, each with a kubeconfig whose token is its name.
type places struct {
	t       *testing.T
	env     map[string]string
	used    string // the server and the token of the last request
	stateOf string // the state directory of a running bullpen up
}

func newPlaces(t *testing.T) *places {
	t.Helper()
	p := &places{t: t, env: map[string]string{}, stateOf: t.TempDir()}
	file := servers.File{}
	for _, name := range []string{"current", "other"} {
		file = file.With(name, servers.Server{URL: p.serve(name), Kubeconfig: kubeconfig(t, "https://127.0.0.1:1", &clientcmdapi.AuthInfo{Token: name})})
	}
	file = file.With("machine", servers.Server{StateDir: p.stateOf})
	file.Current = "current"
	p.env["BULLPEN_CONFIG"] = filepath.Join(t.TempDir(), "config.yaml")
	require.NoError(t, servers.Save(p.env["BULLPEN_CONFIG"], file))
	status, err := json.Marshal(map[string]string{
		"admin": p.serve("machine"), "kubeconfig": kubeconfig(t, "https://127.0.0.1:1", &clientcmdapi.AuthInfo{Token: "machine"}),
	})
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(p.stateOf, "status.json"), status, 0o600))
	t.Setenv("KUBECONFIG", kubeconfig(t, "https://127.0.0.1:1", &clientcmdapi.AuthInfo{Token: "own"}))
	return p
}

// serve is the URL of a server that reports its name.
func (p *places) serve(name string) string {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p.used = name + " " + r.Header.Get("Authorization")
		_, _ = w.Write([]byte(`{"accounts":[]}`))
	}))
	p.t.Cleanup(s.Close)
	return s.URL
}

// connection is one with a command line.
func (p *places) connection(args ...string) *cli.Connection {
	p.t.Helper()
	c := &cli.Connection{Getenv: func(name string) string { return p.env[name] }, DefaultStateDir: func() (string, error) { return p.stateOf, nil }}
	flags := pflag.NewFlagSet("x", pflag.ContinueOnError)
	c.Flags(flags)
	require.NoError(p.t, flags.Parse(args))
	found, is := cli.ConnectionOf(flags)
	require.True(p.t, is)
	require.Same(p.t, c, found)
	p.t.Cleanup(c.Close)
	return c
}

// ask sends a request with a command line, and returns which server got it with which token.
func (p *places) ask(args ...string) (string, error) {
	p.t.Helper()
	client, err := p.connection(args...).Client()
	if err != nil {
		return "", err
	}
	_, err = client.Accounts(p.t.Context(), false)
	return p.used, err
}

// The server is that of --server, --state-dir, BULLPEN_SERVER, the cluster of a flag, the configuration file, this machine, or the kubeconfig's
// cluster, in that order.
func TestConnection_PrecedenceOfServers(t *testing.T) {
	p := newPlaces(t)
	environment, flag := p.serve("environment"), p.serve("flag")
	other := kubeconfig(t, "https://127.0.0.1:1", &clientcmdapi.AuthInfo{Token: "another"})
	expect := func(want string, args ...string) {
		t.Helper()
		got, err := p.ask(args...)
		require.NoError(t, err, args)
		require.Equal(t, want, got, args)
	}
	toCluster := func(args ...string) {
		t.Helper()
		_, err := p.ask(args...)
		require.ErrorContains(t, err, "finding the server's Service: cannot reach the cluster at https://127.0.0.1:1", args)
		require.False(t, cli.IsNoServer(err))
	}
	expect("current Bearer current")
	toCluster("--kubeconfig", other)
	toCluster("--context", "x")
	toCluster("--system-namespace", "team-b")
	p.env["BULLPEN_SERVER"] = environment
	expect("environment Bearer own")
	expect("environment Bearer another", "--kubeconfig", other)
	p.env["BULLPEN_SERVER"] = "other"
	expect("other Bearer other")
	expect("other Bearer another", "--kubeconfig", other)
	expect("machine Bearer machine", "--state-dir", p.stateOf)
	expect("current Bearer current", "--server", "current")
	expect("machine Bearer machine", "--server", "machine")
	expect("flag Bearer own", "--server", flag)
	expect("flag Bearer another", "--server", flag, "--state-dir", p.stateOf, "--kubeconfig", other)

	delete(p.env, "BULLPEN_SERVER")
	p.env["BULLPEN_CONFIG"] = filepath.Join(t.TempDir(), "none")
	expect("machine Bearer machine")
	p.stateOf = t.TempDir()
	toCluster()
}

func TestConnection_MistakesOfTheConfiguration(t *testing.T) {
	p := newPlaces(t)
	_, err := p.ask("--server", "othr")
	require.ErrorContains(t, err, `server "othr" not found in `+p.env["BULLPEN_CONFIG"]+". Did you mean other?")
	p.env["BULLPEN_SERVER"] = "nothing"
	_, err = p.ask()
	require.ErrorContains(t, err, `server "nothing" not found in `)
	delete(p.env, "BULLPEN_SERVER")

	require.NoError(t, os.WriteFile(p.env["BULLPEN_CONFIG"], []byte("servers: []\n"), 0o600))
	for _, args := range [][]string{nil, {"--server", "other"}} {
		_, err = p.ask(args...)
		require.EqualError(t, err, p.env["BULLPEN_CONFIG"]+":1: servers must be a mapping")
	}
	_, err = p.ask("--server", p.serve("flag"))
	require.NoError(t, err, "a URL needs no file")

	require.NoError(t, os.WriteFile(p.env["BULLPEN_CONFIG"], []byte("servers: {a: {url: 'https://x', caFile: /does/not/exist}}\n"), 0o600))
	_, err = p.ask("--server", "a")
	require.ErrorContains(t, err, "reading the server's CA file: ")
}

// The certificate of a server is checked with the file of its own.
func TestConnection_CAFileOfAServer(t *testing.T) {
	secure := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(`{"accounts":[]}`)) }))
	t.Cleanup(secure.Close)
	p := newPlaces(t)
	ca := filepath.Join(t.TempDir(), "ca.crt")
	require.NoError(t, os.WriteFile(ca, certificateOf(secure), 0o600))
	file := servers.File{}.With("with", servers.Server{URL: secure.URL, CAFile: ca}).With("without", servers.Server{URL: secure.URL})
	require.NoError(t, servers.Save(p.env["BULLPEN_CONFIG"], file))
	_, err := p.ask("--server", "with")
	require.NoError(t, err)
	_, err = p.ask("--server", "without")
	require.ErrorContains(t, err, "its certificate is not trusted")
}

// Commands that use the cluster itself use that of the server.
func TestConnection_ClusterOfAServer(t *testing.T) {
	p := newPlaces(t)
	cluster := func(args ...string) (token string, here bool) {
		t.Helper()
		c := p.connection(args...)
		site, here, err := c.Site()
		require.NoError(t, err)
		kubeconfig := c.Kubeconfig
		if here {
			kubeconfig = site.Kubeconfig
		}
		config, err := c.Cluster(kubeconfig)
		require.NoError(t, err)
		return config.BearerToken, here
	}
	for want, args := range map[string][]string{"current": nil, "other": {"--server", "other"}, "own": {"--context", "x"}} {
		token, here := cluster(args...)
		require.Equal(t, want, token)
		require.False(t, here, want)
	}
	for _, args := range [][]string{{"--server", "machine"}, {"--state-dir", p.stateOf}} {
		token, here := cluster(args...)
		require.Equal(t, "machine", token)
		require.True(t, here)
	}
	p.env["BULLPEN_CONFIG"] = filepath.Join(t.TempDir(), "none")
	token, here := cluster()
	require.Equal(t, "machine", token)
	require.True(t, here)
}

// A shell that completes a line starts no port-forward, unless the configuration file says so.
func TestConnection_OnlyNamed(t *testing.T) {
	p := newPlaces(t)
	p.stateOf = t.TempDir()
	client := func(args ...string) error {
		c := p.connection(args...)
		c.OnlyNamed = true
		_, err := c.Client()
		return err
	}
	require.NoError(t, client())
	require.NoError(t, servers.Save(p.env["BULLPEN_CONFIG"], servers.File{}.With("forwarded", servers.Server{Context: "x"})))
	require.NoError(t, client("--server", "forwarded"))
	require.True(t, cli.IsNoServer(client()))
	require.True(t, cli.IsNoServer(client("--context", "x")))
}
