package hosts

import (
	"bytes"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/internal/machost"
	"github.com/bullpen-ci/bullpen/test/kit/await"
)

// begin starts an apply whose output and input the test holds.
func (h *host) begin() (command *exec.Cmd, stdout, stdin *os.File, stderr *bytes.Buffer) {
	h.t.Helper()
	path, err := bullpen()
	require.NoError(h.t, err)
	line, err := machost.EncodePayload(h.payload)
	require.NoError(h.t, err)
	command = exec.CommandContext(await.ContextWithin(h.t, 3*time.Minute), path, "host", "apply", "--root", string(h.Root), "--stdin", "-o", "json")
	command.Env = append(os.Environ(), "DEVMAC_USER=root")
	stdout, out, err := os.Pipe()
	require.NoError(h.t, err)
	in, stdin, err := os.Pipe()
	require.NoError(h.t, err)
	stderr = &bytes.Buffer{}
	command.Stdout, command.Stdin, command.Stderr = out, in, stderr
	require.NoError(h.t, command.Start())
	require.NoError(h.t, out.Close())
	require.NoError(h.t, in.Close())
	_, err = stdin.Write(line)
	require.NoError(h.t, err)
	return command, stdout, stdin, stderr
}

// HOST-1: an SSH connection that drops closes the pipes, and perhaps sends SIGHUP. The apply continues to its end.
func TestApply_ContinuesWhenItsClientHasDisconnected(t *testing.T) {
	h := newHost(t)
	h.payload.Config.SSH = machost.SSH{} // it could not be confirmed
	command, stdout, stdin, stderr := h.begin()
	first := make([]byte, 1)
	_, err := stdout.Read(first)
	require.NoError(t, err)
	require.NoError(t, stdout.Close())
	require.NoError(t, stdin.Close())
	require.NoError(t, command.Process.Signal(syscall.SIGHUP))
	require.NoError(t, await.Call(t, command.Wait, "the command exits"), stderr.String())
	require.FileExists(t, h.Root.Path(machost.AppliedFile))
	plan := h.apply("--plan")
	require.Contains(t, plan.stdout, "nothing to do")
}

// Ctrl-C ends an apply between two changes, and the next continues from there.
func TestApply_CtrlCEndsItBetweenTwoChanges(t *testing.T) {
	h := newHost(t)
	command, stdout, stdin, stderr := h.begin()
	defer stdin.Close()
	said := make([]byte, 1)
	_, err := stdout.Read(said)
	require.NoError(t, err)
	require.NoError(t, command.Process.Signal(os.Interrupt))
	var rest bytes.Buffer
	_, err = rest.ReadFrom(stdout)
	require.NoError(t, err)
	require.Error(t, await.Call(t, command.Wait, "the command exits"))
	require.Equal(t, 1, command.ProcessState.ExitCode(), "it ends: %s", stderr)
	require.Contains(t, stderr.String(), "apply again to continue")
	require.Contains(t, rest.String(), `"phase":"Failed"`)
	h.requireNotWorse()
	h.converged()
}
