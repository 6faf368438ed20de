//go:build unix

package tart_test

import (
	"bytes"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/creack/pty"
	"github.com/stretchr/testify/require"
	"golang.org/x/term"

	devtart "github.com/bullpen-ci/bullpen/internal/dev/tart"
	"github.com/bullpen-ci/bullpen/test/kit/await"
)

// buffer may be read while it is written.
type buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// The VM ends while a command runs: how `exec` ends then is no different from a command that ends on its own.
func TestExec_IsLostWithItsVM(t *testing.T) {
	t.Parallel()
	m := newMac(t, devtart.Script{})
	m.ok("clone", image, "a")
	v := m.up("a")
	address, err := netip.ParseAddr(strings.TrimSpace(m.ok("ip", "a")))
	require.NoError(t, err)
	require.True(t, address.IsPrivate())
	var out, failures buffer
	cmd := m.command(t.Context(), "exec", "a", "sh", "-c", "echo begun; sleep 1000")
	cmd.Stdout, cmd.Stderr = &out, &failures
	require.NoError(t, cmd.Start())
	require.Eventually(t, func() bool { return out.String() == "begun\n" }, patience, interval)
	v.signal(syscall.SIGKILL)
	require.Error(t, await.Call(t, cmd.Wait, "the command ends with its VM"))
	code := cmd.ProcessState.ExitCode()
	require.Contains(t, []int{1, 137}, code, "the connection's end is heard first, or that of the command, which the VM's has killed")
	require.Equal(t, code == 1, strings.Contains(failures.String(), "stream unexpectedly closed"), "%d: %s", code, failures.String())
}

// Who types does not stop when the command ends: `exec` does not wait for that.
func TestExec_DoesNotWaitForTheInput(t *testing.T) {
	t.Parallel()
	m := newMac(t, devtart.Script{})
	m.ok("clone", image, "a")
	m.up("a")
	in, typing, err := os.Pipe()
	require.NoError(t, err)
	defer typing.Close()
	cmd := m.command(t.Context(), "exec", "-i", "a", "sh", "-c", "exit 3")
	cmd.Stdin = in
	require.NoError(t, cmd.Start())
	require.NoError(t, in.Close())
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	select {
	case <-ended:
		require.Equal(t, 3, cmd.ProcessState.ExitCode())
	case <-time.After(patience):
		require.NoError(t, cmd.Process.Kill())
		require.Fail(t, "it waits for its input")
	}
}

// With `exec` the command in the guest ends (likely).
func TestExec_EndsItsCommand(t *testing.T) {
	t.Parallel()
	m := newMac(t, devtart.Script{})
	m.ok("clone", image, "a")
	m.up("a")
	var out buffer
	cmd := m.command(t.Context(), "exec", "a", "sh", "-c", "echo $$; exec sleep 1000")
	cmd.Stdout = &out
	require.NoError(t, cmd.Start())
	require.Eventually(t, func() bool { return strings.HasSuffix(out.String(), "\n") }, patience, interval)
	pid, err := strconv.Atoi(strings.TrimSpace(out.String()))
	require.NoError(t, err)
	require.NoError(t, syscall.Kill(pid, 0))
	require.NoError(t, cmd.Process.Kill())
	require.Error(t, cmd.Wait())
	requireGone(t, pid)
}

func TestExec_GivesTheCommandATerminal(t *testing.T) {
	t.Parallel()
	m := newMac(t, devtart.Script{})
	m.ok("clone", image, "a")
	m.up("a")
	m.fails(1, "failed to determine terminal size", "exec", "-t", "a", "true")

	controller, terminal, err := pty.Open()
	require.NoError(t, err)
	defer controller.Close()
	_, err = term.MakeRaw(int(terminal.Fd()))
	require.NoError(t, err)
	require.NoError(t, pty.Setsize(controller, &pty.Winsize{Cols: 101, Rows: 37}))
	cmd := m.command(t.Context(), "exec", "-i", "-t", "a", "sh", "-c",
		`test -t 0 && stty size && trap 'stty size; exit 5' WINCH && read line && echo "got $line" && while :; do sleep 0.01; done`)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = terminal, terminal, terminal
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	require.NoError(t, cmd.Start())
	require.NoError(t, terminal.Close())
	var out buffer
	ended := make(chan error, 1)
	go func() {
		_, _ = io.Copy(&out, controller) // ends with an error when the program has exited
		ended <- cmd.Wait()
	}()
	require.Eventually(t, func() bool { return strings.Contains(out.String(), "37 101") }, patience, interval)
	_, err = controller.WriteString("hello\n")
	require.NoError(t, err)
	require.Eventually(t, func() bool { return strings.Contains(out.String(), "got hello") }, patience, interval)
	require.NoError(t, pty.Setsize(controller, &pty.Winsize{Cols: 80, Rows: 24}))
	select {
	case <-ended:
	case <-time.After(patience):
		require.NoError(t, cmd.Process.Kill())
		require.Fail(t, "the command did not receive its new size", "%q", out.String())
	}
	require.Equal(t, 5, cmd.ProcessState.ExitCode())
	require.Contains(t, out.String(), "24 80")
}

// A terminal is hung up once its command has ended, also for a process that the command leaves running: a reader of it does
// not wait for input forever.
func TestExec_HangsUpTheTerminalItGave(t *testing.T) {
	t.Parallel()
	m := newMac(t, devtart.Script{})
	m.ok("clone", image, "a")
	m.up("a")
	controller, terminal, err := pty.Open()
	require.NoError(t, err)
	defer controller.Close()
	defer terminal.Close()
	done := filepath.Join(t.TempDir(), "done")
	cmd := m.command(t.Context(), "exec", "-t", "a", "sh", "-c", `trap "" HUP; exec 3<&0; (cat <&3; : > "$0") & exit 4`, done)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = terminal, terminal, terminal
	require.Error(t, cmd.Run())
	require.Equal(t, 4, cmd.ProcessState.ExitCode())
	require.Eventually(t, func() bool { _, err := os.Lstat(done); return err == nil }, patience, interval)
}

// Tart 4.3: a guest that boots, or that has no agent, does not answer. TestRun_ControlSockets has the dead socket.
func TestExec_UnreachableGuest(t *testing.T) {
	t.Parallel()
	for name, script := range map[string]devtart.Script{
		"boots":    {Timing: devtart.Timing{Boot: devtart.Duration(time.Hour)}},
		"no agent": {Images: map[string]devtart.Image{image: {NoGuestAgent: true}}},
	} {
		t.Run(name, func(t *testing.T) {
			m := newMac(t, script)
			m.ok("clone", image, "a")
			m.run("a")
			socket := filepath.Join(m.home, "vms", "a", "control.sock")
			require.Eventually(t, func() bool { _, err := os.Lstat(socket); return err == nil }, patience, interval)
			require.Eventually(t, func() bool {
				r := m.tart("exec", "a", "true")
				return r.code == 1 && strings.Contains(r.errors, "using its control socket")
			}, patience, interval)
		})
	}
}
