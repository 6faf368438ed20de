package cli_test

import (
	"bytes"
	"context"
	"encoding/json"
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/bullpen-ci/bullpen/api/adminapi"
	"github.com/bullpen-ci/bullpen/internal/cli"
	"github.com/bullpen-ci/bullpen/internal/cli/clusterevents"
	"github.com/bullpen-ci/bullpen/internal/lib/childproc"
)

// A token goes to https, or to this machine, and nowhere else; a redirect does not carry it on.
func TestClient_WhereATokenMayGo(t *testing.T) {
	token := func(context.Context) (string, error) { return "t", nil }
	for _, good := range []string{"https://bullpen.example.com", "http://127.0.0.1:8082", "http://localhost:1", "http://[::1]:1"} {
		_, err := cli.NewClient(good, token, 0)
		require.NoError(t, err, good)
	}
	for bad, says := range map[string]string{
		"http://bullpen.example.com": "unencrypted", "http://127.0.0.1.evil.com": "unencrypted", "http://10.0.0.1": "unencrypted",
		"bullpen": "invalid server URL", "ftp://x": "invalid server URL", "": "invalid server URL", "https://user:pw@x": "invalid server URL", "://": "invalid server URL",
	} {
		_, err := cli.NewClient(bad, token, 0)
		require.ErrorContains(t, err, says, bad)
	}
	stolen := false
	thief := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { stolen = true }))
	defer thief.Close()
	redirecting := httptest.NewServer(http.RedirectHandler(thief.URL, http.StatusTemporaryRedirect))
	defer redirecting.Close()
	client, err := cli.NewClient(redirecting.URL, token, 0)
	require.NoError(t, err)
	_, err = client.Accounts(t.Context(), false)
	require.ErrorContains(t, err, "Check that this is the URL of Bullpen's administrators' API")
	require.False(t, stolen)
	client, err = cli.NewClient("http://127.0.0.1:1", token, 0)
	require.NoError(t, err)
	_, err = client.Accounts(t.Context(), false)
	require.ErrorContains(t, err, "cannot reach the server at http://127.0.0.1:1: ")
}

// kubeconfig writes one whose user is that.
func kubeconfig(t *testing.T, server string, user *clientcmdapi.AuthInfo) string {
	t.Helper()
	file := clientcmdapi.NewConfig()
	file.Clusters["c"] = &clientcmdapi.Cluster{Server: server, InsecureSkipTLSVerify: true} // credentials go to https only
	file.AuthInfos["u"], file.Contexts["x"], file.CurrentContext = user, &clientcmdapi.Context{Cluster: "c", AuthInfo: "u"}, "x"
	path := filepath.Join(t.TempDir(), "kubeconfig")
	require.NoError(t, clientcmd.WriteToFile(*file, path))
	return path
}

// Every way in which a kubeconfig names a token is understood; where it names none, the cluster is asked for one that is
// made for this API alone.
func TestConnection_TokenOfAKubeconfig(t *testing.T) {
	var asked string
	var seconds float64
	var audiences []any
	var refused bool // a policy of the cluster knows no audiences of users
	cluster := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var body map[string]any
		_ = json.NewDecoder(r.Body).Decode(&body)
		w.Header().Set("Content-Type", "application/json")
		if strings.HasSuffix(r.URL.Path, "/selfsubjectreviews") {
			w.WriteHeader(http.StatusCreated)
			body["status"] = map[string]any{"userInfo": map[string]any{"username": "ada"}}
			_ = json.NewEncoder(w).Encode(body)
			return
		}
		asked = r.URL.Path
		audiences = body["spec"].(map[string]any)["audiences"].([]any)
		if refused && len(audiences) > 1 {
			w.WriteHeader(http.StatusForbidden)
			_, _ = w.Write([]byte(`{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden","code":403}`))
			return
		}
		seconds, _ = body["spec"].(map[string]any)["expirationSeconds"].(float64)
		body["status"] = map[string]any{"token": "requested", "expirationTimestamp": time.Now().Add(time.Hour).UTC().Format(time.RFC3339)}
		w.WriteHeader(http.StatusCreated)
		_ = json.NewEncoder(w).Encode(body)
	}))
	defer cluster.Close()
	var got string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got = r.Header.Get("Authorization")
		_, _ = w.Write([]byte(`{"accounts":[]}`))
	}))
	defer server.Close()
	file := filepath.Join(t.TempDir(), "token")
	require.NoError(t, os.WriteFile(file, []byte("from a file\n"), 0o600))
	plugin := filepath.Join(t.TempDir(), "plugin")
	require.NoError(t, os.WriteFile(plugin, []byte(`#!/bin/sh
echo '{"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential","status":{"token":"from a plugin"}}'
`), 0o700))
	for want, c := range map[string]struct {
		user    *clientcmdapi.AuthInfo
		account string
	}{
		"of its own":  {user: &clientcmdapi.AuthInfo{Token: "of its own"}},
		"from a file": {user: &clientcmdapi.AuthInfo{TokenFile: file}},
		"from a plugin": {user: &clientcmdapi.AuthInfo{Exec: &clientcmdapi.ExecConfig{
			Command: plugin, APIVersion: "client.authentication.k8s.io/v1", InteractiveMode: clientcmdapi.NeverExecInteractiveMode,
		}}},
		"requested": {user: &clientcmdapi.AuthInfo{}, account: cli.DefaultServiceAccount},
	} {
		conn := cli.Connection{Server: server.URL, Kubeconfig: kubeconfig(t, cluster.URL, c.user), ServiceAccount: cli.DefaultServiceAccount}
		client, err := conn.Client()
		require.NoError(t, err, want)
		_, err = client.Accounts(t.Context(), false)
		require.NoError(t, err, want)
		require.Equal(t, "Bearer "+want, got)
	}
	require.Equal(t, "/api/v1/namespaces/bullpen-system/serviceaccounts/bullpen-admin/token", asked)
	require.InDelta(t, 600, seconds, 0, "the shortest that Kubernetes issues")
	require.Equal(t, []any{adminapi.Audience, adminapi.AudienceUser + "ada"}, audiences, "the audit log names the user")

	console := cli.Connection{
		Server: server.URL, Kubeconfig: kubeconfig(t, cluster.URL, &clientcmdapi.AuthInfo{}), ServiceAccount: cli.DefaultServiceAccount,
		TokenLife: cli.ConsoleTokenLife,
	}
	client, err := console.Client()
	require.NoError(t, err)
	_, err = client.Accounts(t.Context(), false)
	require.NoError(t, err)
	require.InDelta(t, 8*3600, seconds, 0, "a session of the console lasts a working day")
	refused = true
	client, err = console.Client()
	require.NoError(t, err)
	_, err = client.Accounts(t.Context(), false)
	require.NoError(t, err)
	require.Equal(t, []any{adminapi.Audience}, audiences, "without a name where the cluster allows none")

	conn := cli.Connection{Server: server.URL, Kubeconfig: kubeconfig(t, cluster.URL, &clientcmdapi.AuthInfo{Token: "x"}), ServiceAccount: "ns/other"}
	client, err = conn.Client()
	require.NoError(t, err)
	_, err = client.Accounts(t.Context(), false)
	require.NoError(t, err)
	require.Equal(t, "Bearer requested", got, "a ServiceAccount that is named takes precedence")
	for _, bad := range []string{"", "x", "/x", "x/", "a/b/c"} {
		conn.ServiceAccount = bad
		_, err := conn.Client()
		require.ErrorContains(t, err, "namespace/name", bad)
	}
	conn = cli.Connection{Server: server.URL, Kubeconfig: filepath.Join(t.TempDir(), "none"), ServiceAccount: cli.DefaultServiceAccount}
	_, err = conn.Client()
	require.ErrorContains(t, err, "kubeconfig "+conn.Kubeconfig+" not found. Choose another with --kubeconfig")
}

// The server is the flag's, the environment's, or the one that runs on this machine, in that order.
func TestConnection_FindsTheServer(t *testing.T) {
	var hit string
	serve := func(name string) string {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			hit = name
			_, _ = w.Write([]byte(`{"accounts":[]}`))
		}))
		t.Cleanup(s.Close)
		return s.URL
	}
	flag, environment, machine := serve("flag"), serve("environment"), serve("machine")
	config := kubeconfig(t, "https://127.0.0.1:1", &clientcmdapi.AuthInfo{Token: "x"})
	dir := t.TempDir()
	status, err := json.Marshal(map[string]string{"admin": machine, "kubeconfig": config})
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "status.json"), status, 0o600))
	env := map[string]string{}
	ask := func(c cli.Connection) string {
		t.Helper()
		c.ServiceAccount, c.Getenv = cli.DefaultServiceAccount, func(name string) string { return env[name] }
		client, err := c.Client()
		require.NoError(t, err)
		_, err = client.Accounts(t.Context(), false)
		require.NoError(t, err)
		return hit
	}
	here := func() (string, error) { return dir, nil }
	require.Equal(t, "machine", ask(cli.Connection{DefaultStateDir: here}))
	env[cli.EnvServer] = environment
	require.Equal(t, "environment", ask(cli.Connection{DefaultStateDir: here, Kubeconfig: config}))
	require.Equal(t, "machine", ask(cli.Connection{StateDir: dir}), "a directory that is named takes precedence")
	require.Equal(t, "flag", ask(cli.Connection{Server: flag, Kubeconfig: config, DefaultStateDir: here}))
	delete(env, cli.EnvServer)
	nowhere := func() (string, error) { return t.TempDir(), nil }
	none := filepath.Join(t.TempDir(), "none")
	t.Setenv("KUBECONFIG", none)
	c := cli.Connection{DefaultStateDir: nowhere, Getenv: func(string) string { return "" }}
	_, err = c.Client()
	require.EqualError(t, err, "no server found: `bullpen up` is not running here (--state-dir names another directory) and BULLPEN_SERVER is not set, and there is no kubeconfig ("+none+
		"). Start it, name a server with --server, or a cluster with --kubeconfig")
	require.True(t, cli.IsNoServer(err))
	c.DefaultStateDir = nil
	_, err = c.Client()
	require.EqualError(t, err, "no server found: BULLPEN_SERVER is not set, and there is no kubeconfig ("+none+"). Name a server with --server, or a cluster with --kubeconfig")
	c.StateDir = t.TempDir()
	_, err = c.Client()
	require.ErrorContains(t, err, "`bullpen up` is not running in "+c.StateDir)
}

// A `bullpen up` that was killed leaves a status file of a process that no longer exists. Every command says so.
func TestConnection_OfAnUpThatWasKilled(t *testing.T) {
	self, err := childproc.Identify("up", os.Getpid())
	require.NoError(t, err)
	dead := self
	dead.Started = "long ago"
	status := func(owner childproc.Process) string {
		dir := t.TempDir()
		text, err := json.Marshal(map[string]any{"admin": "http://127.0.0.1:1", "kubeconfig": "k", "owner": owner})
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(dir, "status.json"), text, 0o600))
		return dir
	}
	getenv := func(string) string { return "" }
	killed, alive := status(dead), status(self)
	for name, conn := range map[string]cli.Connection{
		"named": {StateDir: killed, Getenv: getenv}, "of this machine": {DefaultStateDir: func() (string, error) { return killed, nil }, Getenv: getenv},
	} {
		_, err := conn.Client()
		var was *cli.KilledError
		require.ErrorAs(t, err, &was, name)
		require.Equal(t, cli.KilledError{Dir: killed, PID: os.Getpid()}, *was)
		require.ErrorContains(t, err, "`bullpen up` was killed")
		require.ErrorContains(t, err, "run it again")
		require.False(t, cli.IsNoServer(err))
		_, _, err = conn.Site()
		require.ErrorAs(t, err, &was, name)
	}
	conn := cli.Connection{StateDir: alive, Getenv: getenv}
	site, found, err := conn.Site()
	require.NoError(t, err)
	require.True(t, found)
	require.Equal(t, "k", site.Kubeconfig)
}

func TestConnection_TakesNoTokenAsAnArgument(t *testing.T) {
	flags := pflag.NewFlagSet("x", pflag.ContinueOnError)
	(&cli.Connection{}).Flags(flags)
	flags.VisitAll(func(f *pflag.Flag) { require.NotContains(t, f.Name, "token") })
}

func TestPrint_Formats(t *testing.T) {
	account := adminapi.Account{
		ID: 7, Login: "acme", Kind: "Organization", State: adminapi.AccountSuspended, InstallationID: 9, SuspendedByAdministrator: true,
		SuspensionReason: "a\x1b[2Jb\tc", Queued: 4, Blocked: adminapi.MaxQueued, Version: 3, Budgets: []adminapi.Budget{
			{Platform: "linux", Limits: adminapi.Limits{Jobs: 40, MilliCPU: 32500, MemoryMB: 65536, JobsPerRepository: 5}, Usage: adminapi.Usage{Jobs: 2, MilliCPU: 2000, MemoryMB: 512}},
			{Platform: "macos"},
		},
	}
	print := func(format cli.Format) string {
		var out bytes.Buffer
		require.NoError(t, cli.Print(&out, format, []adminapi.Account{account}, cli.AccountTable([]adminapi.Account{account})))
		return out.String()
	}
	require.Equal(t, `ACCOUNT   STATE                       PLATFORM   JOBS   CPU        MEMORY       CLOSEST     PER REPO   QUEUED   BLOCKED   NO POOL
acme      suspended (administrator)   linux      2/40   2/32500m   512Mi/64Gi   6% cpu      5          4        10000+    0
                                      macos      0/0    0/0        0/0          100% jobs   -                             
`, print(cli.FormatTable))
	wide := print(cli.FormatWide)
	require.Contains(t, wide, "INSTALLATION")
	require.Contains(t, wide, "a [2Jb c")
	require.NotContains(t, wide, "\x1b", "external text must not move the cursor")
	var back []adminapi.Account
	require.NoError(t, json.Unmarshal([]byte(print(cli.FormatJSON)), &back))
	require.Equal(t, []adminapi.Account{account}, back)
	require.Contains(t, print(cli.FormatYAML), "suspendedByAdministrator: true\n")
	var none bytes.Buffer
	require.NoError(t, cli.Print(&none, cli.FormatTable, nil, cli.AccountTable(nil)))
	require.Equal(t, "No accounts found. Install the GitHub App in an organization or for a user.\n", none.String())
	var format cli.Format
	require.ErrorContains(t, format.Set("xml"), "table, wide, json or yaml")
}

// Events are shown in the time's order, and line by line when they go on; external text moves no cursor.
func TestEvents_ArePrinted(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	e := clusterevents.Event{
		At: now.Add(-90 * time.Second), First: now.Add(-2 * time.Hour), Count: 3, Type: "Warning", Reason: "FailedScheduling", Namespace: "bullpen-runners",
		Kind: "Pod", Name: "linux-x7k2p", Related: "runnerpool/linux", Message: "no node has 4 CPUs\x1b[2J left", Reporter: "default-scheduler",
	}
	var out bytes.Buffer
	require.NoError(t, cli.Print(&out, cli.FormatWide, nil, cli.EventTable([]clusterevents.Event{e}, now)))
	require.Regexp(t, `(?m)^1m30s +Warning +FailedScheduling +pod/linux-x7k2p +no node has 4 CPUs \[2J left +3 +2h00m +bullpen-runners +runnerpool/linux +default-scheduler$`, out.String())
	for format, want := range map[cli.Format]string{
		cli.FormatTable: "11:58:30  Warning  FailedScheduling        pod/linux-x7k2p                           no node has 4 CPUs [2J left\n",
		cli.FormatJSON:  `"reason":"FailedScheduling"`, cli.FormatYAML: "\nreason: FailedScheduling\n", cli.FormatWide: "2026-03-01T11:58:30Z  Warning",
	} {
		out.Reset()
		output := cli.OutputOf[clusterevents.Event]()
		require.NoError(t, output.Set(string(format)))
		require.NoError(t, cli.PrintEvent(&out, &output, e))
		require.Contains(t, out.String(), want)
		require.NotContains(t, out.String(), "\x1b")
	}
	out.Reset()
	require.NoError(t, cli.Print(&out, cli.FormatTable, nil, cli.EventTable(nil, now)))
	require.Contains(t, out.String(), "bullpen audit")
}

// certificateOf is a test server's own certificate, in PEM form.
func certificateOf(server *httptest.Server) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
}
