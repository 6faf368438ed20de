//go:build unix

package tart_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	devtart "github.com/bullpen-ci/bullpen/internal/dev/tart"
	"github.com/bullpen-ci/bullpen/test/kit/await"
	"github.com/bullpen-ci/bullpen/test/kit/tarttest"
)

const (
	patience = 20 * time.Second
	interval = 10 * time.Millisecond
	image    = "ghcr.io/org/macos:15"
)

// tart is the fake.
var tart string

func TestMain(m *testing.M) { os.Exit(tarttest.Main(m.Run, &tart)) }

// mac is a fake Mac: a TART_HOME.
type mac struct {
	t    *testing.T
	home string
}

func newMac(t *testing.T, script devtart.Script) *mac {
	t.Helper()
	m := &mac{t: t, home: t.TempDir()}
	m.script(script)
	return m
}

func (m *mac) script(s devtart.Script) {
	m.t.Helper()
	require.NoError(m.t, devtart.Write(m.home, s))
}

func (m *mac) command(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, tart, args...)
	cmd.Env = append(os.Environ(), "TART_HOME="+m.home)
	return cmd
}

// result of a command.
type result struct {
	code   int
	out    string
	errors string
}

func (m *mac) tart(args ...string) result {
	m.t.Helper()
	return m.with(nil, args...)
}

func (m *mac) with(env []string, args ...string) result {
	m.t.Helper()
	ctx, cancel := context.WithTimeout(m.t.Context(), patience)
	defer cancel()
	cmd := m.command(ctx, args...)
	cmd.Env = append(cmd.Env, env...)
	var out, failures bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &failures
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		require.NoError(m.t, err)
	}
	return result{cmd.ProcessState.ExitCode(), out.String(), failures.String()}
}

// ok is a command that has to succeed.
func (m *mac) ok(args ...string) string {
	m.t.Helper()
	r := m.tart(args...)
	require.Zero(m.t, r.code, "%v: %s", args, r.errors)
	return r.out
}

// fails is a command that has to end with that code and text.
func (m *mac) fails(code int, text string, args ...string) {
	m.t.Helper()
	r := m.tart(args...)
	require.Equal(m.t, code, r.code, "%v: %s%s", args, r.out, r.errors)
	require.Contains(m.t, r.errors, text)
}

// vm is a running VM.
type vm struct {
	*mac
	cmd   *exec.Cmd
	log   string
	ended chan struct{}
}

// run starts a VM, and does not wait for anything.
func (m *mac) run(name string, args ...string) *vm {
	m.t.Helper()
	v := &vm{mac: m, cmd: m.command(context.Background(), append([]string{"run", name, "--no-graphics"}, args...)...), ended: make(chan struct{})}
	v.log = filepath.Join(m.t.TempDir(), "log")
	log, err := os.Create(v.log)
	require.NoError(m.t, err)
	v.cmd.Stdout, v.cmd.Stderr = log, log
	v.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	require.NoError(m.t, v.cmd.Start())
	require.NoError(m.t, log.Close())
	go func() {
		_ = v.cmd.Wait()
		close(v.ended)
	}()
	m.t.Cleanup(func() {
		_ = v.cmd.Process.Kill()
		await.Receive(m.t, v.ended, "the process that was killed ends")
	})
	return v
}

// up is a VM whose guest answers.
func (m *mac) up(name string, args ...string) *vm {
	m.t.Helper()
	v := m.run(name, args...)
	require.Eventually(m.t, func() bool { return m.tart("exec", name, "true").code == 0 }, patience, interval, "%s does not answer", name)
	return v
}

// exit waits for the end of `run`.
func (v *vm) exit() result {
	v.t.Helper()
	select {
	case <-v.ended:
	case <-time.After(patience):
		require.Fail(v.t, "the VM runs on")
	}
	log, err := os.ReadFile(v.log)
	require.NoError(v.t, err)
	return result{code: v.cmd.ProcessState.ExitCode(), out: string(log)}
}

func TestExec_PassesOnStreamsAndTheGuestsExitCode(t *testing.T) {
	t.Parallel()
	m := newMac(t, devtart.Script{})
	m.ok("clone", image, "a")
	v := m.up("a")

	r := m.tart("exec", "a", "sh", "-c", "echo out; echo err >&2; exit 7")
	require.Equal(t, result{7, "out\n", "err\n"}, r)
	require.Equal(t, 2, m.tart("exec", "a", "sh", "-c", "exit 2").code, "Tart 4.1: the guest's 2 is no other than Tart's")
	require.Equal(t, 143, m.tart("exec", "a", "sh", "-c", "kill -TERM $$").code)
	m.fails(1, "failed to start the command", "exec", "a", "no-such-program")

	cmd := m.command(t.Context(), "exec", "-i", "a", "cat")
	cmd.Stdin = strings.NewReader(strings.Repeat("line\n", 100_000))
	out, err := cmd.Output()
	require.NoError(t, err)
	require.Len(t, out, 500_000)
	require.Empty(t, m.ok("exec", "a", "cat"), "without -i there is no input")

	require.NoError(t, v.cmd.Process.Signal(syscall.SIGINT))
	require.Zero(t, v.exit().code)
	m.fails(2, `VM "a" is not running`, "exec", "a", "true")
	m.fails(2, `the specified VM "b" does not exist`, "exec", "b", "true")
}
