//go:build linux

package mac_test

import (
	"net/netip"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	devmac "github.com/bullpen-ci/bullpen/internal/dev/mac"
	"github.com/bullpen-ci/bullpen/test/kit/await"
	"github.com/bullpen-ci/bullpen/test/kit/mactest"
)

func addr(text string) netip.Addr { return netip.MustParseAddr(text) }

func TestPfctl_IsOffAfterBootAndLosesWhatWasLoaded(t *testing.T) {
	mac := mactest.Boot(t)
	status := func() string { return mac.Run("root", "/sbin/pfctl", "-s", "info") }
	require.Contains(t, status(), "Status: Disabled")
	require.Equal(t, "nat-anchor \"com.apple/*\" all\nrdr-anchor \"com.apple/*\" all\n", mac.Run("root", "/sbin/pfctl", "-s", "nat"))
	_, stderr, exit := mac.Try("root", "", "/sbin/pfctl", "-E")
	require.Zero(t, exit)
	token := regexp.MustCompile(`Token : (\d+)`).FindStringSubmatch(stderr)
	require.NotNil(t, token)
	require.Contains(t, status(), "Status: Enabled")
	_, stderr, exit = mac.Try("root", "", "/sbin/pfctl", "-e")
	require.Equal(t, 1, exit)
	require.Contains(t, stderr, "pfctl: pf already enabled")
	mac.Run("root", "/sbin/pfctl", "-X", token[1])
	require.Contains(t, status(), "Status: Disabled")

	mac.WriteFile("/etc/pf.anchors/x", "table <t> { 10/8 }\nblock in quick from any to <t>\n", 0o644)
	mac.Run("root", "/sbin/pfctl", "-e", "-a", "x", "-f", "/etc/pf.anchors/x")
	require.Equal(t, "block drop in quick from any to <t>\n", mac.Run("root", "/sbin/pfctl", "-sr", "-a", "x"))
	require.Equal(t, "   10.0.0.0/8\n", mac.Run("root", "/sbin/pfctl", "-a", "x", "-t", "t", "-T", "show"))
	require.True(t, mac.Reaches("192.168.64.5", "10.0.0.5:443"), "the main rule set does not call it")
	mac.WriteFile("/etc/pf.conf", devmac.PFConf+"anchor \"x\"\nload anchor \"x\" from \"/etc/pf.anchors/x\"\n", 0o644)
	mac.Run("root", "/sbin/pfctl", "-f", "/etc/pf.conf")
	require.False(t, mac.Reaches("192.168.64.5", "10.0.0.5:443"))
	require.True(t, mac.Reaches("192.168.64.5", "203.0.113.1:443"))
	answer := mac.Evaluate(devmac.Flow{From: addr("192.168.64.5"), To: addr("10.0.0.5"), Port: 443})
	require.Equal(t, []string{"x: block drop in quick from any to <t>"}, answer.By)

	mac.Reboot()
	require.Contains(t, status(), "Status: Disabled")
	require.Equal(t, "block drop in quick from any to <t>\n", mac.Run("root", "/sbin/pfctl", "-sr", "-a", "x"), "it is loaded at boot")
	require.True(t, mac.Reaches("192.168.64.5", "10.0.0.5:443"), "but not enabled")

	// A file with a mistake leaves no rules at all at boot, and the old ones later.
	mac.WriteFile("/etc/pf.conf", "blok\n", 0o644)
	_, stderr, exit = mac.Try("root", "", "/sbin/pfctl", "-f", "/etc/pf.conf")
	require.Equal(t, 1, exit)
	require.Contains(t, stderr, "/etc/pf.conf:1: syntax error\npfctl: Syntax error in config file: pf rules not loaded\n")
	require.Contains(t, mac.Run("root", "/sbin/pfctl", "-sr"), "anchor \"x\" all\n")
	mac.Reboot()
	require.Empty(t, mac.Run("root", "/sbin/pfctl", "-sr"))
}

// An anchor that is not there is complained of, with exit code 0.
func TestPfctl_ShowsAMissingAnchor(t *testing.T) {
	mac := mactest.Boot(t)
	stdout, stderr, exit := mac.Try("root", "", "/sbin/pfctl", "-a", "missing", "-sr")
	require.Zero(t, exit)
	require.Empty(t, stdout)
	require.Contains(t, stderr, "pfctl: DIOCGETRULES: Invalid argument")
}

// Which interfaces a connection passes, and in which direction.
func TestEvaluate_KnowsTheWay(t *testing.T) {
	mac := mactest.Boot(t)
	mac.Run("root", "/sbin/pfctl", "-e")
	for _, test := range []struct{ from, to, rule string }{
		{"192.168.64.5", "10.0.0.5:443", "block in on bridge100"},
		{"192.168.64.5", "10.0.0.5:443", "block out on en0"},
		{"192.168.64.5", "192.168.64.1:53", "block in on bridge100"},
		{"192.168.64.5", "10.0.0.21:22", "block in on bridge100"},
		{"192.168.64.5", "192.168.64.6:22", "block out on bridge100"},
		{"198.51.100.7", "10.0.0.21:22", "block in on en0"},
		{"10.0.0.21", "198.51.100.7:443", "block out on en0"},
		{"127.0.0.1", "127.0.0.1:22", "block in on lo0"},
	} {
		load := func(rule string) {
			mac.WriteFile("/etc/rule", rule+"\n", 0o644)
			mac.Run("root", "/sbin/pfctl", "-f", "/etc/rule")
		}
		load("pass")
		require.True(t, mac.Reaches(test.from, test.to))
		load(test.rule)
		require.False(t, mac.Reaches(test.from, test.to), "%s from %s to %s", test.rule, test.from, test.to)
	}
	// The other end sees the address that NAT gives, and so do rules on the way out.
	mac.WriteFile("/etc/rule", "nat on en0 inet from 192.168.64.0/24 to any -> (en0)\nblock out on en0 from 192.168.64.0/24\n", 0o644)
	mac.Run("root", "/sbin/pfctl", "-f", "/etc/rule")
	answer := mac.Evaluate(devmac.Flow{From: addr("192.168.64.5"), To: addr("198.51.100.7"), Port: 443})
	require.True(t, answer.Reached && answer.Translated)
	require.Equal(t, "10.0.0.21", answer.Source.String())
}

// dial reports whether a login succeeds within a second.
func login(t *testing.T, ssh *mactest.SSH) bool {
	t.Helper()
	return client(ssh, "true").Run() == nil
}

func client(ssh *mactest.SSH, command string) *exec.Cmd {
	host, port, _ := strings.Cut(ssh.Address, ":")
	return exec.Command("ssh", "-F", "none", "-i", ssh.KeyFile, "-p", port, "-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null", "-o", "BatchMode=yes",
		"-o", "ConnectTimeout=2", ssh.User+"@"+host, command)
}

const guard = "block in proto tcp to port 22\npass in proto tcp from 10.0.0.0/24 to port 22 flags S/SA\n"

// A new connection is judged by the rules that are in force, by where it comes from.
func TestSSH_NewConnectionsAreJudged(t *testing.T) {
	mac := mactest.Boot(t)
	ssh := mac.SSH(t)
	mac.WriteFile("/etc/guard", guard, 0o644)
	mac.Run("root", "/sbin/pfctl", "-f", "/etc/guard")
	ssh.SetSource(addr("198.51.100.7"))
	require.True(t, login(t, ssh), "the filter is off")
	mac.Run("root", "/sbin/pfctl", "-e")
	require.False(t, login(t, ssh))
	require.Equal(t, 1, ssh.Dropped())
	ssh.SetSource(addr("10.0.0.9"))
	require.True(t, login(t, ssh))
	require.Equal(t, 2, ssh.Accepted())
	sessions, err := mac.Root.Sessions()
	require.NoError(t, err)
	require.Equal(t, 2, sessions)

	mac.WriteFile("/etc/guard", "block return in proto tcp to port 22\n", 0o644)
	mac.Run("root", "/sbin/pfctl", "-f", "/etc/guard")
	output, err := client(ssh, "true").CombinedOutput()
	require.Error(t, err)
	require.NotContains(t, string(output), "timed out", "a refused sender is notified")
}

// A live connection continues if the filter has a state for it. Without one, because the filter was off or had no rule for
// it, a guard that wants the first packet of a connection cuts it, and one that takes any packet does not.
func TestSSH_LiveConnections(t *testing.T) {
	for name, test := range map[string]struct {
		before    string // is in force when the connection is made
		after     string
		flush     bool
		continues bool
	}{
		"with a state":                         {before: "pass in proto tcp to port 22\n", after: "block quick all\n", continues: true},
		"with a state that is thrown away":     {before: "pass in proto tcp to port 22\n", after: "block quick all\n", flush: true},
		"without, and first packets only":      {after: guard},
		"without, and any packet":              {after: strings.Replace(guard, "flags S/SA", "flags any", 1), continues: true},
		"without, and answers may not get out": {after: "pass in proto tcp to port 22 flags any\nblock out\n"},
	} {
		t.Run(name, func(t *testing.T) {
			mac := mactest.Boot(t)
			ssh := mac.SSH(t)
			load := func(rules string) {
				mac.WriteFile("/etc/rules", rules, 0o644)
				mac.Run("root", "/sbin/pfctl", "-f", "/etc/rules")
			}
			if test.before != "" {
				load(test.before)
				mac.Run("root", "/sbin/pfctl", "-e")
			}
			session := client(ssh, "cat")
			in, err := session.StdinPipe()
			require.NoError(t, err)
			out, err := session.StdoutPipe()
			require.NoError(t, err)
			require.NoError(t, session.Start())
			defer func() { _ = session.Process.Kill(); _ = session.Wait() }()
			received := make(chan string, 16)
			go func() {
				buffer := make([]byte, 64)
				for {
					n, err := out.Read(buffer)
					if err != nil {
						close(received)
						return
					}
					received <- string(buffer[:n])
				}
			}()
			say := func(word string, limit time.Duration) bool {
				_, err := in.Write([]byte(word))
				require.NoError(t, err)
				select {
				case got := <-received:
					return got == word
				case <-time.After(limit):
					return false
				}
			}
			require.True(t, say("before", 10*time.Second))
			load(test.after)
			if test.before == "" {
				mac.Run("root", "/sbin/pfctl", "-e")
			}
			if test.flush {
				mac.Run("root", "/sbin/pfctl", "-F", "states")
			}
			if test.continues {
				require.True(t, say("after", 10*time.Second))
				return
			}
			require.False(t, say("after", 300*time.Millisecond))
			// It was only delayed: the sender retries, and continues once the rules let it through.
			mac.Run("root", "/sbin/pfctl", "-d")
			select {
			case got := <-received:
				require.Equal(t, "after", got)
			case <-time.After(10 * time.Second):
				require.Fail(t, "nothing was heard")
			}
		})
	}
}

func TestSSH_HostKeyAndCuts(t *testing.T) {
	mac := mactest.Boot(t)
	ssh := mac.SSH(t)
	before := ssh.HostKey()
	session := client(ssh, "cat")
	_, err := session.StdinPipe()
	require.NoError(t, err)
	require.NoError(t, session.Start())
	require.Eventually(t, func() bool { n, err := mac.Root.Sessions(); return err == nil && n == 1 }, 10*time.Second, 5*time.Millisecond)
	ssh.NewHostKey()
	require.NotEqual(t, before, ssh.HostKey())
	require.True(t, login(t, ssh))
	ssh.Cut()
	require.Error(t, await.Call(t, session.Wait, "the session ends"))
	require.True(t, login(t, ssh))
	// No connection is accepted while the Mac is down.
	require.NoError(t, mac.Shutdown())
	require.False(t, login(t, ssh))
}

func TestDisk_IsFull(t *testing.T) {
	mac := mactest.Boot(t, mactest.OnDisk(t, mactest.SmallDisk(t, "64m")))
	empty := mac.Fill()
	require.Contains(t, mac.Run("root", "/bin/df", "-Pk", "/"), " 0 100% /\n")
	_, _, exit := mac.Try("root", "", "/bin/cp", mac.Root.Path("/etc/pf.conf"), mac.Root.Path("/etc/copy"))
	require.NotZero(t, exit)
	empty()
	mac.Run("root", "/bin/cp", mac.Root.Path("/etc/pf.conf"), mac.Root.Path("/etc/copy"))
}
