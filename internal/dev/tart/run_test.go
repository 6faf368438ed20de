//go:build unix

package tart_test

import (
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	devtart "github.com/bullpen-ci/bullpen/internal/dev/tart"
)

// Tart 4.2: until `run` has built its configuration, the VM is invisible.
func TestRun_IsNotSeenUntilItIsConfigured(t *testing.T) {
	t.Parallel()
	m := newMac(t, devtart.Script{Timing: devtart.Timing{Configure: devtart.Duration(time.Hour)}})
	m.ok("clone", image, "a")
	v := m.run("a")
	require.Eventually(t, func() bool { return len(calls(t, m, "run")) == 1 }, patience, interval)
	m.fails(2, `VM "a" is not running`, "stop", "a")
	m.fails(1, "is your VM running?", "ip", "a")
	require.Contains(t, m.ok("list", "--format", "json"), `"stopped"`)
	m.ok("delete", "a")
	require.NoError(t, v.cmd.Process.Signal(syscall.SIGINT))
	require.Equal(t, -1, v.exit().code, "it has no handler yet")

	m.script(devtart.Script{Timing: devtart.Timing{Address: devtart.Duration(time.Hour)}})
	m.ok("clone", image, "a")
	m.up("a")
	m.fails(1, "no IP address found\n", "ip", "a")
	require.Equal(t, result{code: 2, out: "VM \"a\" is already running!\n"}, m.run("a").exit())
}

// Tart 4.1, 4.2: what ends a VM, and that the exit code says nothing about it.
func TestRun_Ends(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		rule  devtart.Rule
		end   func(*vm)
		code  int
		log   string
		state string
	}{
		"interrupt": {end: func(v *vm) { v.signal(syscall.SIGINT) }},
		"polite":    {end: func(v *vm) { v.signal(syscall.SIGUSR2) }},
		"stop":      {end: func(v *vm) { v.ok("stop", "a") }},
		"suspend":   {end: func(v *vm) { v.ok("suspend", "a") }, state: "suspended"},
		"from inside": {end: func(v *vm) {
			v.tart("exec", "a", "shutdown", "-h", "now") // its own exit is lost, or not
		}},
		"kill": {end: func(v *vm) { v.signal(syscall.SIGKILL) }, code: -1},
		"crash": {
			rule: devtart.Rule{Effect: devtart.EffectCrash, After: devtart.Duration(3 * time.Second)}, log: "Internal Virtualization error",
		},
		"deaf to interrupts": {
			rule: devtart.Rule{Effect: devtart.EffectIgnoreInterrupt}, code: -1,
			end: func(v *vm) { v.ok("stop", "a", "--timeout", "1") }, // which kills it then
		},
	} {
		t.Run(name, func(t *testing.T) {
			test.rule.Command = "run"
			m := newMac(t, devtart.Script{Rules: []devtart.Rule{test.rule}})
			m.ok("clone", image, "a")
			v := m.up("a", "--suspendable")
			daemon := v.daemon()
			if test.end != nil {
				test.end(v)
			}
			r := v.exit()
			require.Equal(t, test.code, r.code, r.out)
			require.Contains(t, r.out, test.log)
			requireGone(t, daemon)
			require.Eventually(t, func() bool { // the guest of a killed VM exits on its own
				m.ok("list")
				guests, err := os.ReadDir(filepath.Join(m.home, ".faketart", "guests"))
				return err == nil && len(guests) == 0
			}, patience, interval)
			if test.state == "" {
				test.state = "stopped"
			}
			require.Contains(t, m.ok("list", "--format", "json", "--source", "local"), `"`+test.state+`"`)
			require.Zero(t, m.tart("delete", "a").code)
		})
	}
}

func (v *vm) signal(s syscall.Signal) {
	v.t.Helper()
	require.NoError(v.t, v.cmd.Process.Signal(s))
}

// daemon leaves its parent, its session and its group in the guest, and returns its PID.
func (v *vm) daemon() int {
	v.t.Helper()
	pid, err := strconv.Atoi(strings.TrimSpace(v.ok("exec", "a", "sh", "-c", `(setsid sh -c 'trap "" TERM INT HUP; echo $$ > pid; exec sleep 1000' >/dev/null 2>&1 &); while [ ! -s pid ]; do sleep 0.01; done; cat pid`)))
	require.NoError(v.t, err)
	require.NoError(v.t, syscall.Kill(pid, 0))
	return pid
}

func requireGone(t *testing.T, pid int) {
	t.Helper()
	require.Eventually(t, func() bool { return syscall.Kill(pid, 0) != nil }, patience, interval, "process %d of the guest lives on", pid)
}

// Tart 4.4: the third VM is refused, under any name; a Linux VM does not count; a ghost does until the Mac is restarted.
func TestRun_HasTwoSlots(t *testing.T) {
	t.Parallel()
	m := newMac(t, devtart.Script{
		Rules:  []devtart.Rule{{Command: "run", Name: "ghost", Effect: devtart.EffectGhost}},
		Images: map[string]devtart.Image{"ghcr.io/org/linux:1": {OS: "linux"}},
	})
	for _, name := range []string{"a", "ghost", "c"} {
		m.ok("clone", image, name)
	}
	m.ok("clone", "ghcr.io/org/linux:1", "linux")
	a, ghost := m.up("a"), m.up("ghost")
	m.up("linux")
	r := m.run("c").exit()
	require.Equal(t, 1, r.code)
	require.Regexp(t, `(?m)^The number of VMs exceeds the system limit \(other running VMs: a, ghost, linux\)$`, r.out)
	m.ok("stop", "ghost")
	ghost.exit()
	require.Contains(t, m.run("c").exit().out, "exceeds the system limit (other running VMs: a, linux)", "the ghost has outlived its VM")
	m.ok("stop", "a")
	a.exit()
	m.up("c")
	m.run("a").exit()
	require.NoError(t, devtart.Reboot(m.home))
	m.up("a")
}

// Tart 4.4 (tart#967): a VM runs, and is not listed as running.
func TestRun_Unlocked(t *testing.T) {
	t.Parallel()
	m := newMac(t, devtart.Script{Rules: []devtart.Rule{{Command: "run", Effect: devtart.EffectUnlocked}}})
	m.ok("clone", image, "a")
	v := m.run("a")
	socket := filepath.Join(m.home, "vms", "a", "control.sock")
	require.Eventually(t, func() bool { _, err := os.Lstat(socket); return err == nil }, patience, interval)
	require.Contains(t, m.ok("list", "--format", "json", "--source", "local"), `"stopped"`)
	m.fails(2, "is not running", "stop", "a")
	m.ok("delete", "a")
	select {
	case <-v.ended:
		require.Fail(t, "it ended with its files")
	default:
	}
	v.signal(syscall.SIGINT)
	v.exit()
}

// Tart 4.2: two VMs with one MAC address get two.
func TestRun_RepairsAClashOfAddresses(t *testing.T) {
	t.Parallel()
	m := newMac(t, devtart.Script{})
	m.ok("clone", image, "a")
	m.ok("clone", "a", "b")
	m.up("a")
	before := m.identity("b")[0]
	v := m.up("b")
	require.NotEqual(t, before, m.identity("b")[0])
	require.NotEqual(t, m.ok("ip", "a"), m.ok("ip", "b"))
	m.ok("stop", "b")
	require.Contains(t, v.exit().out, "already a running VM with MAC address "+before)
}

// Tart 4.3 (tart#1220): a VM whose control socket is dead; and that of an ended VM stays behind.
func TestRun_ControlSockets(t *testing.T) {
	t.Parallel()
	m := newMac(t, devtart.Script{Rules: []devtart.Rule{{Command: "run", Times: 1, Effect: devtart.EffectDeadSocket}}})
	m.ok("clone", image, "a")
	v := m.run("a")
	require.Eventually(t, func() bool { return strings.Contains(m.ok("list", "--format", "json"), `"running"`) }, patience, interval)
	require.Eventually(t, func() bool {
		r := m.tart("exec", "a", "true")
		return r.code == 1 && strings.Contains(r.errors, "using its control socket") && strings.Contains(r.errors, "connection refused")
	}, patience, interval)
	m.ok("stop", "a")
	v.exit()
	_, err := os.Lstat(filepath.Join(m.home, "vms", "a", "control.sock"))
	require.NoError(t, err)
	m.up("a")
}

func TestRun_Shares(t *testing.T) {
	t.Parallel()
	m := newMac(t, devtart.Script{Images: map[string]devtart.Image{image: {Boot: []string{"sh", "-c", `cp "$BULLPEN_GUEST_SHARES/in/x" "$BULLPEN_GUEST_SHARES/out/booted"`}}}})
	m.ok("clone", image, "a")
	in, out := t.TempDir(), t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(in, "x"), []byte("content\n"), 0o600))
	v := m.up("a", "--dir", "in:"+in+":ro", "--dir=out:"+out)
	require.Equal(t, "content\n", m.ok("exec", "a", "cat", "/Volumes/My Shared Files/in/x"))
	require.Eventually(t, func() bool {
		data, err := os.ReadFile(filepath.Join(out, "booted"))
		return err == nil && len(data) > 0
	},
		patience, interval, "the image's own command did not run")
	m.ok("exec", "a", "sh", "-c", `echo y > "$BULLPEN_GUEST_SHARES/out/y" && mv "$BULLPEN_GUEST_SHARES/out/y" "$BULLPEN_GUEST_SHARES/out/z"`)
	data, err := os.ReadFile(filepath.Join(out, "z"))
	require.NoError(t, err)
	require.Equal(t, "y\n", string(data))
	if runtime.GOOS == "linux" && os.Geteuid() == 0 { // others may not be allowed to mount
		r := m.tart("exec", "a", "sh", "-c", `echo no > "$BULLPEN_GUEST_SHARES/in/y"`)
		require.NotZero(t, r.code)
		require.Contains(t, r.errors, "Read-only")
	}
	require.NotContains(t, m.ok("exec", "a", "env"), "TART_HOME", "a guest knows nothing of its host")
	m.ok("stop", "a")
	v.exit()
	_, err = os.Stat(filepath.Join(in, "x"))
	require.NoError(t, err, "what was shared is not removed with the guest")

	for _, args := range [][]string{{"--dir", in, "--dir", out}, {"--dir", "x:" + in, "--dir", "x:" + out}, {"--dir", "x:/no/such/folder"}} {
		require.Equal(t, 1, m.run("a", args...).exit().code)
	}
	m.up("a", "--dir", in+":ro")
	require.Equal(t, "content\n", m.ok("exec", "a", "cat", "/Volumes/My Shared Files/x"), "a single one needs no name")
}

// Tart 4.3: without a GUI session no VM starts.
func TestRun_WantsASession(t *testing.T) {
	t.Parallel()
	m := newMac(t, devtart.Script{Session: devtart.SessionNone})
	m.ok("clone", image, "a")
	r := m.run("a").exit()
	require.Equal(t, 1, r.code)
	require.Contains(t, r.out, "Failed to create new HostKey")
}
