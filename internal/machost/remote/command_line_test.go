package remote

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/internal/machost"
)

// commandLine is `bullpen host bootstrap` of a person without a terminal.
func (m *model) commandLine(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	binary, err := bullpen()
	require.NoError(t, err)
	dir := t.TempDir()
	config, identity, token := filepath.Join(dir, "host.yaml"), filepath.Join(dir, "id"), filepath.Join(dir, "bootstrap.kubeconfig")
	require.NoError(t, os.WriteFile(config, []byte("user: ci\nhostname: mac-1\nnode: {disabled: true}\n"), 0o644))
	require.NoError(t, os.WriteFile(identity, m.ssh.PrivateKey, 0o600))
	require.NoError(t, os.WriteFile(token, []byte(kubeconfig), 0o600))
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	t.Cleanup(cancel)
	cmd := exec.CommandContext(ctx, binary, append([]string{"host", "bootstrap", m.ssh.Address, "--config", config, "--identity", identity,
		"--bootstrap-kubeconfig", token, "--binary", binary, "--any-binary", "--remote-root", string(m.Root)}, args...)...)
	cmd.Env = []string{"HOME=" + dir, "PATH=/usr/bin:/bin"}
	return cmd
}

// runLine runs it to its end, and keeps what it prints for the scan.
func (m *model) runLine(t *testing.T, stdin string, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	cmd := m.commandLine(t, args...)
	var out, problems bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(stdin), &out, &problems
	_ = cmd.Run()
	m.said.WriteString(strings.Join(cmd.Args, " ") + out.String() + problems.String())
	return out.String(), problems.String(), cmd.ProcessState.ExitCode()
}

func TestCommandLine_FromABareMacToNothingToDo(t *testing.T) {
	m := newModel(t)
	known := filepath.Join(t.TempDir(), "known_hosts")

	_, stderr, code := m.runLine(t, "", "--known-hosts", known)
	require.Equal(t, 1, code)
	require.Contains(t, stderr, "--host-key "+m.ssh.HostKey())
	require.Contains(t, stderr, "--trust-first")

	_, stderr, code = m.runLine(t, "", "--known-hosts", known, "--trust-first")
	require.Equal(t, 1, code)
	require.Contains(t, stderr, "--ask-password", "it says how to give the password")

	stdout, stderr, code := m.runLine(t, password+"\n", "--known-hosts", known, "--password-stdin", "-o", "json")
	require.Zero(t, code, stderr)
	lines := strings.Split(strings.TrimSpace(stdout), "\n")
	for _, line := range lines {
		var event machost.Event
		require.NoError(t, json.Unmarshal([]byte(line), &event), line)
		require.NotEmpty(t, event.Phase, line)
	}
	var last struct{ Phase, HostKey, Hash string }
	require.NoError(t, json.Unmarshal([]byte(lines[len(lines)-1]), &last))
	require.Equal(t, "Summary", last.Phase)
	require.Equal(t, m.ssh.HostKey(), last.HostKey)
	require.NotEmpty(t, last.Hash)

	for _, more := range [][]string{nil, {"--plan"}} {
		stdout, stderr, code = m.runLine(t, "", append([]string{"--host-key", m.ssh.HostKey()}, more...)...)
		require.Zero(t, code, stderr)
		require.Contains(t, stdout, "nothing to do")
	}

	m.ssh.NewHostKey()
	_, stderr, code = m.runLine(t, "", "--known-hosts", known, "--trust-first")
	require.Equal(t, 1, code, "a key that is another than the known one is never the first")
	require.Contains(t, stderr, m.ssh.HostKey())
}

func TestCommandLine_EndsByCtrlC(t *testing.T) {
	m := newModel(t)
	cmd := m.commandLine(t, "--host-key", m.ssh.HostKey(), "--password-stdin", "-o", "json")
	cmd.Stdin = strings.NewReader(password + "\n")
	stdout, err := cmd.StdoutPipe()
	require.NoError(t, err)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	require.NoError(t, cmd.Start())
	lines := bufio.NewScanner(stdout)
	interrupted := false
	for lines.Scan() {
		m.said.WriteString(lines.Text())
		if !interrupted && strings.Contains(lines.Text(), StageApply) {
			interrupted = true
			require.NoError(t, cmd.Process.Signal(syscall.SIGINT))
		}
	}
	_, _ = io.Copy(io.Discard, stdout)
	_ = cmd.Wait() // bounded: the command's context has a deadline
	m.said.WriteString(stderr.String())
	require.True(t, interrupted)
	require.Equal(t, 1, cmd.ProcessState.ExitCode())
	require.Contains(t, stderr.String(), "interrupted")
	require.NotContains(t, stderr.String(), "panic")
}
