package proxytest

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/internal/lib/childproc"
)

// EnvProgram names the tinyproxy to run, in place of the one that is installed.
const EnvProgram = "BULLPEN_TINYPROXY"

const (
	user     = "runner"
	password = "s3cret-of-the-proxy"
)

// Proxy is a running tinyproxy.
type Proxy struct {
	t       testing.TB
	address string
	log     string
}

// Start runs a proxy on a free loopback port until the test ends.
func Start(t testing.TB) *Proxy {
	t.Helper()
	program, err := exec.LookPath(cmp.Or(os.Getenv(EnvProgram), "tinyproxy"))
	require.NoError(t, err, "tinyproxy is missing: run scripts/prerequisites.sh tinyproxy, or name one with %s", EnvProgram)
	dir := t.TempDir()
	p := &Proxy{t: t, address: freeAddress(t), log: filepath.Join(dir, "log")}
	_, port, err := net.SplitHostPort(p.address)
	require.NoError(t, err)
	config := filepath.Join(dir, "tinyproxy.conf")
	require.NoError(t, os.WriteFile(config, fmt.Appendf(nil,
		"Port %s\nListen 127.0.0.1\nTimeout 60\nMaxClients 50\nLogLevel Info\nBasicAuth %s %s\n", port, user, password), 0o600))
	command := exec.Command(program, "-d", "-c", config) //nolint:noctx,gosec // the test's cleanup ends it; a program of the system
	child, err := childproc.StartLogged(command, p.log, syscall.SIGKILL)
	require.NoError(t, err)
	t.Cleanup(func() {
		child.Stop(context.Background(), syscall.SIGTERM, 2*time.Second)
		if t.Failed() {
			t.Log("tinyproxy:\n" + p.Log())
		}
	})
	var dialer net.Dialer
	require.Eventually(t, func() bool {
		conn, err := dialer.DialContext(t.Context(), "tcp", p.address)
		return err == nil && conn.Close() == nil
	}, 20*time.Second, 10*time.Millisecond, "tinyproxy does not listen")
	return p
}

func freeAddress(t testing.TB) string {
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer listener.Close()
	return listener.Addr().String()
}

// URL of the proxy, with the name and the password that it demands.
func (p *Proxy) URL() string {
	return (&url.URL{Scheme: "http", Host: p.address, User: url.UserPassword(user, password)}).String()
}

// Refused is a URL with a password that the proxy refuses.
func (p *Proxy) Refused() string {
	return (&url.URL{Scheme: "http", Host: p.address, User: url.UserPassword(user, "another")}).String()
}

// Log is what it has logged.
func (p *Proxy) Log() string {
	text, _ := os.ReadFile(p.log)
	return string(text)
}

var connect = regexp.MustCompile(`CONNECT (\S+) HTTP`)

// Connected are the addresses (host:port) to which clients have asked for a tunnel, in their order.
func (p *Proxy) Connected() []string {
	var found []string
	for _, line := range connect.FindAllStringSubmatch(p.Log(), -1) {
		found = append(found, line[1])
	}
	return found
}
