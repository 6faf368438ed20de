package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/internal/dev/github/standin"
	devrunner "github.com/bullpen-ci/bullpen/internal/dev/runner"
	"github.com/bullpen-ci/bullpen/internal/fleet"
	"github.com/bullpen-ci/bullpen/test/kit/await"
	"github.com/bullpen-ci/bullpen/test/kit/proxytest"
)

// enterprise is a GitHub at a host of a private network: a stand-in behind HTTPS, whose certificate a private CA has signed.
type enterprise struct {
	Part    string // of the product that connects
	URL     string // as people see it in their browser
	CAFile  string
	KeyFile string

	admin *standin.AdminClient
}

const enterpriseInstallation = 7

func newEnterprise(t *testing.T) enterprise {
	t.Helper()
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", ":0")
	require.NoError(t, err)
	host := notLoopback(t)
	authority, certificate := certificateOf(t, host)
	_, port, err := net.SplitHostPort(listener.Addr().String())
	require.NoError(t, err)
	e := enterprise{URL: "https://" + net.JoinHostPort(host, port)}
	hub, err := standin.Start(t.Context(), standin.Options{
		URL: e.URL, Installations: []standin.Installation{{ID: enterpriseInstallation, Account: "acme", Repositories: []string{"app"}}},
	})
	require.NoError(t, err)
	t.Cleanup(hub.Close)
	front := httptest.NewUnstartedServer(hub.Server)
	require.NoError(t, front.Listener.Close())
	front.Listener, front.TLS = listener, &tls.Config{Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS12}
	front.StartTLS()
	t.Cleanup(front.Close)
	dir := t.TempDir()
	e.CAFile, e.KeyFile, e.admin = filepath.Join(dir, "ca.crt"), filepath.Join(dir, "app.pem"), hub.Admin
	require.NoError(t, os.WriteFile(e.CAFile, authority, 0o600))
	require.NoError(t, os.WriteFile(e.KeyFile, hub.AppKeyPEM, 0o600))
	return e
}

// notLoopback is an address of this machine for which Go uses a proxy: it never does for 127.0.0.1 and localhost.
func notLoopback(t *testing.T) string {
	t.Helper()
	addresses, err := net.InterfaceAddrs()
	require.NoError(t, err)
	for _, address := range addresses {
		if network, is := address.(*net.IPNet); is && network.IP.To4() != nil && !network.IP.IsLoopback() && !network.IP.IsLinkLocalUnicast() {
			return network.IP.String()
		}
	}
	name, err := os.Hostname()
	require.NoError(t, err)
	_, err = net.DefaultResolver.LookupHost(t.Context(), name)
	require.NoError(t, err, "this machine has neither an address beside loopback nor a name that resolves")
	return name
}

func certificateOf(t *testing.T, host string) (authority []byte, leaf tls.Certificate) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	now := time.Now()
	ca := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "a private CA"}, NotBefore: now.Add(-time.Hour), NotAfter: now.Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	root, err := x509.CreateCertificate(rand.Reader, ca, ca, key.Public(), key)
	require.NoError(t, err)
	own := &x509.Certificate{
		SerialNumber: big.NewInt(2), NotBefore: ca.NotBefore, NotAfter: ca.NotAfter, DNSNames: []string{host},
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	if ip := net.ParseIP(host); ip != nil {
		own.DNSNames, own.IPAddresses = nil, []net.IP{ip}
	}
	signed, err := x509.CreateCertificate(rand.Reader, own, ca, key.Public(), key)
	require.NoError(t, err)
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: root}), tls.Certificate{Certificate: [][]byte{signed}, PrivateKey: key}
}

// envEnterprise has this test binary connect as a part of the product does: the environment's proxies are read once per process.
const envEnterprise = "BULLPEN_TEST_ENTERPRISE"

// R7: an Enterprise Server with a private CA, behind a proxy that demands a password, from its web address alone.
func TestGitHub_R7_NET12_AnEnterpriseServerBehindAProxy(t *testing.T) {
	if given := os.Getenv(envEnterprise); given != "" {
		var e enterprise
		require.NoError(t, json.Unmarshal([]byte(given), &e))
		e.connect(t)
		return
	}
	e, proxy := newEnterprise(t), proxytest.Start(t)
	address := strings.TrimPrefix(e.URL, "https://")
	child := func(e enterprise, environment ...string) (string, error) {
		t.Helper()
		encoded, err := json.Marshal(e)
		require.NoError(t, err)
		command := exec.CommandContext(await.Context(t), os.Args[0], "-test.run=^"+t.Name()+"$") //nolint:gosec // itself
		command.Env = slices.DeleteFunc(os.Environ(), func(entry string) bool { return strings.Contains(strings.ToUpper(entry), "_PROXY=") })
		command.Env = append(command.Env, append(environment, envEnterprise+"="+string(encoded))...)
		output, err := command.CombinedOutput()
		require.NotContains(t, string(output), "s3cret", "a password is in no error")
		return string(output), err
	}
	runs, err := e.admin.Submit(t.Context(), standin.Submission{
		FileName: "ci.yaml", Repo: "acme/app", Content: "on: push\njobs: {build: {runs-on: linux, steps: [{run: 'true'}]}}\n",
	})
	require.NoError(t, err)
	for _, part := range []string{"server", "controller", "doctor", "runner"} {
		e.Part = part
		before := len(proxy.Connected())
		environment := []string{"HTTPS_PROXY=" + proxy.URL()}
		if part == "runner" {
			environment = append(environment, "SSL_CERT_FILE="+e.CAFile)
		}
		output, err := child(e, environment...)
		require.NoError(t, err, output)
		made := proxy.Connected()[before:]
		require.NotEmpty(t, made, "the %s has used the proxy", part)
		require.Empty(t, slices.DeleteFunc(slices.Clone(made), func(to string) bool { return to == address }), "and for nothing else")
	}
	ran, err := e.admin.WaitRun(t.Context(), runs[0].ID)
	require.NoError(t, err)
	require.Equal(t, "success", ran.Conclusion)
	e.Part = "controller"
	before := len(proxy.Connected())
	output, err := child(e, "HTTPS_PROXY="+proxy.URL(), "NO_PROXY="+strings.Split(address, ":")[0])
	require.NoError(t, err, output)
	require.Len(t, proxy.Connected(), before, "what is to be reached directly is")
	output, err = child(e, "HTTPS_PROXY="+proxy.Refused())
	require.Error(t, err, "the proxy refuses the password")
	require.Regexp(t, `the proxy 127\.0\.0\.1:\d+ refused to connect: 40[17] `, output)
	e.CAFile = ""
	output, err = child(e, "HTTPS_PROXY="+proxy.URL())
	require.Error(t, err, "the CA is unknown")
	require.Contains(t, output, "unknown authority")
}

// connect asks GitHub for something, as one part of the product, by its own flags.
func (e enterprise) connect(t *testing.T) {
	t.Helper()
	flags := githubFlags{url: e.URL, caFile: e.CAFile}
	switch e.Part {
	case "server":
		r := wired(t, func(cfg *serverConfig, _ func(name, content string) string) {
			cfg.github, cfg.keyFile = flags, e.KeyFile
		})
		_, err := r.forge.Installations(t.Context())
		require.NoError(t, err)
		require.Zero(t, r.gauges(t, "bullpen_credential_refused")["github_ca"])
	case "controller":
		registering := registeringFlags{enabled: true, github: flags, appID: 1, keyFile: e.KeyFile}
		made, err := registering.prepare(t.Context(), prometheus.NewRegistry(), slog.New(slog.DiscardHandler))
		require.NoError(t, err)
		require.NotNil(t, made.Keep)
		_, err = made.App.Installations(t.Context())
		require.NoError(t, err)
	case "runner": // registers and runs a job, as the environment of a runner's container has it
		r := wired(t, func(cfg *serverConfig, _ func(name, content string) string) {
			cfg.github, cfg.keyFile = flags, e.KeyFile
		})
		jit, err := r.forge.Mint(t.Context(), enterpriseInstallation, fleet.MintRequest{
			Scope: fleet.Scope{Owner: "acme"}, Name: "behind-a-proxy", Labels: []string{"linux"}, RunnerGroupID: 1, WorkFolder: "_work",
		})
		require.NoError(t, err)
		runner, err := devrunner.New(devrunner.Options{JIT: jit.Encoded.Reveal(), WorkDir: t.TempDir()})
		require.NoError(t, err)
		require.NoError(t, runner.Run(await.Context(t)))
	case "doctor":
		t.Setenv("XDG_STATE_HOME", t.TempDir())
		code := run(t.Context(), []string{
			"doctor", "--only", "github", "--webhooks", "poll", "--github-url", e.URL, "--github-ca-file", e.CAFile,
			"--github-app-id", "1", "--github-private-key-file", e.KeyFile,
		})
		require.NotEqual(t, 2, code, "GitHub was asked")
	}
}

// NET-12: a proxy is for GitHub. The API server is reached directly, unless the kubeconfig itself says otherwise.
func TestClusterConfig_NET12_UsesNoProxyOfTheEnvironment(t *testing.T) {
	file := func(more string) string {
		path := filepath.Join(t.TempDir(), "kubeconfig")
		require.NoError(t, os.WriteFile(path, []byte("apiVersion: v1\nkind: Config\ncurrent-context: a\ncontexts: [{name: a, context: {cluster: a, user: a}}]\n"+
			"clusters: [{name: a, cluster: {server: 'https://api.example.com'"+more+"}}]\nusers: [{name: a, user: {}}]\n"), 0o600))
		return path
	}
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://api.example.com", nil)
	require.NoError(t, err)
	config, err := clusterConfig(file(""))
	require.NoError(t, err)
	require.NotNil(t, config.Proxy, "or client-go would ask the environment")
	proxy, err := config.Proxy(request)
	require.NoError(t, err)
	require.Nil(t, proxy)
	config, err = clusterConfig(file(", proxy-url: 'http://jump.example.com:3128'"))
	require.NoError(t, err)
	proxy, err = config.Proxy(request)
	require.NoError(t, err)
	require.Equal(t, "jump.example.com:3128", proxy.Host)
}

func TestGitHubFlags_R7_SayWhatIsWrong(t *testing.T) {
	_, err := (&githubFlags{url: "https://u:s3cret@ghes.example.com"}).api()
	require.ErrorContains(t, err, "--github-url")
	require.NotContains(t, err.Error(), "s3cret")
	_, _, err = (&githubFlags{caFile: filepath.Join(t.TempDir(), "none")}).trust(t.Context())
	require.ErrorContains(t, err, "--github-ca-file")
	key := filepath.Join(t.TempDir(), "key.pem")
	writeAppKey(t, key)
	_, _, err = (&githubFlags{caFile: key}).trust(t.Context())
	require.ErrorContains(t, err, "it holds no certificate")
	transport, sources, err := (&githubFlags{}).trust(t.Context())
	require.NoError(t, err)
	require.Nil(t, transport, "net/http's own")
	require.Empty(t, sources)
}

func TestEgressFlags_R7_NET12_NoPasswordReachesAPod(t *testing.T) {
	none, err := (&egressFlags{}).options()
	require.NoError(t, err)
	require.Nil(t, none, "pods stay what they were")
	for name, flags := range map[string]egressFlags{
		"a password":             {https: "http://runner:s3cret@proxy:3128"},
		"a user":                 {http: "http://s3cret@proxy:3128"},
		"no URL":                 {https: "proxy:3128"},
		"another scheme":         {https: "socks5://proxy:1080"},
		"both":                   {https: "http://proxy:3128", httpsFrom: "proxy/https"},
		"a Secret without a key": {httpFrom: "proxy"},
		"a Secret with two":      {caFrom: "a/b/c"},
		"nothing to except from": {no: ".svc"},
	} {
		_, err := flags.options()
		require.ErrorContains(t, err, "--runner-", name)
		require.NotContains(t, err.Error(), "s3cret", name)
	}
	given, err := (&egressFlags{http: "http://proxy:3128/", httpsFrom: "proxy/https", no: ".svc", caFrom: "ca/ca.crt"}).options()
	require.NoError(t, err)
	require.Equal(t, "http://proxy:3128/", given.HTTPProxy.URL)
	require.Equal(t, "https", given.HTTPSProxy.From.Key)
	require.Equal(t, "ca.crt", given.CA.Key)
}
