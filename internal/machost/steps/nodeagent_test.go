package steps

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"encoding/xml"
	"fmt"
	"io"
	"math/big"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/internal/machost"
)

func itoa(n int) string { return strconv.Itoa(n) }

// fakeLaunchd is launchctl for one job, whose processes live for a scripted time.
type fakeLaunchd struct {
	h      *scripted
	clock  *steppedClock
	loaded bool
	pid    int
	until  time.Time
	next   int
	// lives is how long each next process lives; the last entry counts from then on.
	lives []time.Duration
	// deaf ignores kickstart and bootstrap: the process of before stays.
	deaf bool
	// onBootout happens before a job is unloaded.
	onBootout func()
	// refuses is how many jobs are refused, as if the one of before were still being unloaded.
	refuses int
}

func newLaunchd(h *scripted) *fakeLaunchd {
	l := &fakeLaunchd{h: h, clock: newSteppedClock(), next: 100, lives: []time.Duration{time.Hour * 1e4}}
	h.programs[launchctl] = l.run
	return l
}

func (l *fakeLaunchd) start() {
	if l.deaf {
		return
	}
	l.next++
	l.pid, l.until = l.next, l.clock.now.Add(l.lives[0])
	if len(l.lives) > 1 {
		l.lives = l.lives[1:]
	}
}

func (l *fakeLaunchd) run(args, _ string) machost.Result {
	verb, _, _ := strings.Cut(args, " ")
	switch {
	case verb == "bootstrap" && l.refuses > 0:
		l.refuses--
		return machost.Result{ExitCode: 5, Stderr: []byte("Bootstrap failed: 5: Input/output error")}
	case verb == "bootstrap":
		l.loaded = true
		l.start()
	case verb == "enable":
	case !l.loaded:
		return machost.Result{ExitCode: 113, Stderr: []byte("Could not find service")}
	case verb == "print":
		if l.clock.now.After(l.until) {
			return machost.Result{Stdout: []byte("system/dev.bullpen.node = {\n\tstate = spawn scheduled\n}\n")}
		}
		return machost.Result{Stdout: fmt.Appendf(nil, "system/dev.bullpen.node = {\n\tstate = running\n\n\tpid = %d\n\tppid = 1\n}\n", l.pid)}
	case verb == "kickstart":
		l.start()
	case verb == "bootout":
		if l.onBootout != nil {
			l.onBootout()
		}
		l.loaded = false
	}
	return machost.Result{}
}

// calls are the verbs that launchctl received, without queries.
func (l *fakeLaunchd) calls() string {
	var verbs []string
	for _, call := range l.h.ran {
		if rest, ok := strings.CutPrefix(call, launchctl+" "); ok && !strings.HasPrefix(rest, "print") {
			verb, _, _ := strings.Cut(rest, " ")
			verbs = append(verbs, verb)
		}
	}
	l.h.ran = nil
	return strings.Join(verbs, " ")
}

func agentConfig() machost.Config {
	return machost.Config{User: "ci", Hostname: "mac-1", Node: machost.Node{IP: "10.0.0.21", Memory: "12Gi", MinDiskFree: "20Gi", Labels: map[string]string{"b": "2", "a": "<1>"}}}.Default()
}

func (l *fakeLaunchd) step(c machost.Config, bootstrap string) machost.Step {
	step, err := newNodeAgent(machost.Payload{Config: c, Secrets: machost.Secrets{BootstrapKubeconfig: machost.NewSecret(bootstrap)}}, Facts{Clock: l.clock}.withDefaults())
	require.NoError(l.h.t, err)
	return step
}

func newAgentHost(t *testing.T) *fakeLaunchd {
	requireRoot(t)
	h := newScripted(t)
	h.put(BinaryPath, "version 1", 0o755)
	h.put(TartPath, "tart", 0o755)
	return newLaunchd(h)
}

func TestNodeAgent_HOST5_ReloadsInTheLeastWayThatDoes(t *testing.T) {
	l := newAgentHost(t)
	changed, err := l.h.converge(l.step(agentConfig(), "token-1"))
	require.NoError(t, err)
	require.True(t, changed)
	require.Equal(t, "enable bootstrap", l.calls())
	first := l.pid

	changed, err = l.h.converge(l.step(agentConfig(), "token-2-and-no-certificate"))
	require.NoError(t, err)
	require.True(t, changed, "a node without a certificate asks by the new token")
	require.Equal(t, "kickstart", l.calls(), "the same job: launchd disables one that is registered again and again")
	require.NotEqual(t, first, l.pid)

	l.h.put(BinaryPath, "version 2", 0o755)
	changed, err = l.h.converge(l.step(agentConfig(), ""))
	require.NoError(t, err)
	require.True(t, changed)
	require.Equal(t, "kickstart", l.calls(), "another program in the same job")

	c := agentConfig()
	c.Node.Memory = "20Gi"
	changed, err = l.h.converge(l.step(c, ""))
	require.NoError(t, err)
	require.True(t, changed)
	require.Equal(t, "bootout enable bootstrap", l.calls(), "another job")
}

func TestNodeAgent_HOST5_CountsOnlyOnceANewProcessHasStayed(t *testing.T) {
	for name, c := range map[string]struct {
		lives []time.Duration
		deaf  bool
		calls string
		fails bool
	}{
		"the first dies, and the second stays": {[]time.Duration{2 * time.Second, 1e4 * time.Hour}, false, "kickstart kickstart", false},
		"both die":                             {[]time.Duration{2 * time.Second}, false, "kickstart kickstart", true},
		"one that dies just in time":           {[]time.Duration{4900 * time.Millisecond}, false, "kickstart kickstart", true},
		"the old one stays":                    {nil, true, "kickstart kickstart", true},
	} {
		t.Run(name, func(t *testing.T) {
			l := newAgentHost(t)
			_, err := l.h.converge(l.step(agentConfig(), "token"))
			require.NoError(t, err)
			l.h.put(BinaryPath, "version 2", 0o755)
			l.h.put(NodeLog, "starting\nbullpen: reading --bootstrap-kubeconfig: no\n", 0o644)
			l.calls()
			if c.lives != nil {
				l.lives = c.lives
			}
			l.deaf = c.deaf
			_, err = machost.Apply(t.Context(), machost.Options{Host: l.h, Steps: []machost.Step{l.step(agentConfig(), "")}, Hash: "h"})
			require.Equal(t, c.calls, l.calls())
			if !c.fails {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, "does not stay up for 5s")
			require.ErrorContains(t, err, "last log lines: bullpen: reading --bootstrap-kubeconfig: no")
			_, err = machost.ReadApplied(l.h)
			require.Error(t, err, "a failed reload is not recorded as applied")

			l.lives, l.deaf = []time.Duration{1e4 * time.Hour}, false
			changed, err := l.h.converge(l.step(agentConfig(), ""))
			require.NoError(t, err)
			require.True(t, changed, "and the next apply does it again")
		})
	}
}

// A configuration that was tried, failed and was taken back: what runs is not what the files say.
func TestNodeAgent_HOST5_GoingBackAfterAFailureReloads(t *testing.T) {
	l := newAgentHost(t)
	_, err := l.h.converge(l.step(agentConfig(), "token"))
	require.NoError(t, err)
	bad := agentConfig()
	bad.Node.Memory = "1"
	l.lives = []time.Duration{time.Second}
	_, err = l.h.converge(l.step(bad, ""))
	require.Error(t, err)
	l.calls()
	l.lives = []time.Duration{1e4 * time.Hour}
	changed, err := l.h.converge(l.step(agentConfig(), ""))
	require.NoError(t, err)
	require.True(t, changed)
	require.Equal(t, "bootout enable bootstrap", l.calls())
	require.NotContains(t, l.h.content(NodePlist), "<string>1</string>")
}

// The same of a program: the one of before is back, and what runs, or does not, was started from the other.
func TestNodeAgent_HOST5_GoingBackToAnEarlierProgramRestarts(t *testing.T) {
	l := newAgentHost(t)
	_, err := l.h.converge(l.step(agentConfig(), "token"))
	require.NoError(t, err)
	l.h.put(BinaryPath, "version 2", 0o755)
	l.lives = []time.Duration{4 * time.Second, 4 * time.Second, 1e4 * time.Hour}
	_, err = l.h.converge(l.step(agentConfig(), ""))
	require.Error(t, err)
	l.start() // launchd's own next try, with version 2
	l.calls()
	l.h.put(BinaryPath, "version 1", 0o755)
	changed, err := l.h.converge(l.step(agentConfig(), ""))
	require.NoError(t, err)
	require.True(t, changed)
	require.Equal(t, "kickstart", l.calls())
}

func TestNodeAgent_ADeadOneIsADifference(t *testing.T) {
	l := newAgentHost(t)
	_, err := l.h.converge(l.step(agentConfig(), "token"))
	require.NoError(t, err)
	l.until = l.clock.now.Add(-time.Second)
	diff, err := l.step(agentConfig(), "").Check(t.Context(), l.h)
	require.NoError(t, err)
	require.Equal(t, []string{"start dev.bullpen.node: it does not run"}, diff.Changes)
	require.False(t, diff.Disruptive, "NODE-3: its restart ends no machine")
	require.ErrorContains(t, l.step(agentConfig(), "").Verify(t.Context(), l.h), "does not run")
}

func TestNodeAgent_TheBootstrapKubeconfigIsTheUsersAlone(t *testing.T) {
	l := newAgentHost(t)
	_, err := l.h.converge(l.step(agentConfig(), ""))
	require.ErrorContains(t, err, "--bootstrap-kubeconfig")
	require.Empty(t, l.calls(), "and nothing was started")
	_, err = l.h.converge(l.step(agentConfig(), "token-1"))
	require.NoError(t, err)
	info, err := l.h.Stat(bootstrapFile)
	require.NoError(t, err)
	require.Equal(t, "0600", fmt.Sprintf("%04o", info.Mode))
	for _, ran := range l.h.ran {
		require.NotContains(t, ran, "token-1", "HOST-6")
	}
	for _, file := range []string{NodePlist, agentRecord} {
		require.NotContains(t, l.h.content(file), "token-1", "HOST-6")
	}
}

func TestNodeAgent_ANodeWithACertificateKeepsItsKubeconfig(t *testing.T) {
	for name, c := range map[string]struct {
		until   time.Duration
		of      string
		written bool
	}{
		"it holds": {time.Hour, "mac-1", false}, "it has ended": {-time.Hour, "mac-1", true},
		"it is another node's": {time.Hour, "mac-0", true}, // the node agent is refused with it, and requests one
	} {
		t.Run(name, func(t *testing.T) {
			l := newAgentHost(t)
			_, err := l.h.converge(l.step(agentConfig(), "token-1"))
			require.NoError(t, err)
			l.calls()
			dir := "/Users/ci/bullpen/identity/"
			l.h.put(dir+"bullpen-node-2026-01-01.pem", certificate(t, c.of, l.clock.now.Add(c.until)), 0o600)
			require.NoError(t, l.h.Symlink("/Users/ci/bullpen/identity/bullpen-node-2026-01-01.pem", dir+"bullpen-node-current.pem"))
			changed, err := l.h.converge(l.step(agentConfig(), "token-2"))
			require.NoError(t, err)
			require.Equal(t, c.written, changed)
			require.Equal(t, c.written, l.h.content(bootstrapFile) == "token-2")
		})
	}
}

func certificate(t *testing.T, node string, until time.Time) string {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "system:node:" + node}, NotAfter: until}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	require.NoError(t, err)
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
}

func TestNodeAgent_OffTakesItOut(t *testing.T) {
	l := newAgentHost(t)
	_, err := l.h.converge(l.step(agentConfig(), "token"))
	require.NoError(t, err)
	l.calls()
	c := agentConfig()
	c.Node.Off = true
	changed, err := l.h.converge(l.step(c, ""))
	require.NoError(t, err)
	require.True(t, changed)
	require.Equal(t, "bootout", l.calls())
	for _, file := range []string{NodePlist, bootstrapFile, agentRecord} {
		_, err := l.h.Stat(file)
		require.True(t, isMissing(err), file)
	}
}

func TestNodePlist_IsCanonicalAndKeepsMachinesAlive(t *testing.T) {
	user := account{Name: "ci", UID: 501, GID: 20, Home: "/Users/ci"}
	plist := nodePlist(agentConfig(), user, TartPath)
	require.Equal(t, string(plist), string(nodePlist(agentConfig(), user, TartPath)))
	for _, want := range []string{
		"<key>AbandonProcessGroup</key><true/>", "<key>KeepAlive</key><true/>", "<key>UserName</key><string>ci</string>",
		"<string>--label</string>\n\t\t<string>a=&lt;1&gt;</string>\n\t\t<string>--label</string>\n\t\t<string>b=2</string>",
		"<string>--name</string>\n\t\t<string>mac-1</string>", "<string>--memory</string>\n\t\t<string>12Gi</string>",
		"<string>--min-disk-free</string>\n\t\t<string>20Gi</string>",
	} {
		require.Contains(t, string(plist), want)
	}
	decoder := xml.NewDecoder(bytes.NewReader(plist))
	for {
		_, err := decoder.Token()
		if err == io.EOF {
			break
		}
		require.NoError(t, err)
	}
}

func TestNodeAgent_HOST6_TakesAKubeconfigThatStaysFromTheSightOfOthers(t *testing.T) {
	l := newAgentHost(t)
	_, err := l.h.converge(l.step(agentConfig(), "token-1"))
	require.NoError(t, err)
	before, err := l.h.Stat(bootstrapFile)
	require.NoError(t, err)
	l.h.put(bootstrapFile, "token-1", 0o644)
	_, err = l.h.converge(l.step(agentConfig(), ""))
	require.NoError(t, err)
	after, err := l.h.Stat(bootstrapFile)
	require.NoError(t, err)
	require.Equal(t, before.Attributes, after.Attributes)
	require.Equal(t, "token-1", l.h.content(bootstrapFile))
}
