package guard_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/test/kit/deep"
)

// startClient starts a process that runs a command in a container.
func startClient(t *testing.T, socket string, argv ...string) *exec.Cmd {
	t.Helper()
	return startClientAs(t, 0, socket, argv...)
}

// startClientAs is startClient for another user.
func startClientAs(t *testing.T, user uint32, socket string, argv ...string) *exec.Cmd {
	t.Helper()
	program := os.Args[0]
	if user != 0 { // who may not enter the directory of the test binary
		content, err := os.ReadFile(program)
		require.NoError(t, err)
		dir := tempDir(t)
		require.NoError(t, os.Chmod(dir, 0o755)) //nolint:gosec // for another user
		program = filepath.Join(dir, "client")
		require.NoError(t, os.WriteFile(program, content, 0o755)) //nolint:gosec // a program
	}
	cmd := exec.Command(program, append([]string{socket}, argv...)...) //nolint:gosec // this program
	cmd.Env = append(os.Environ(), modeEnv+"=exec")
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: user, Gid: user}}
	require.NoError(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	return cmd
}

// size of much output.
type size struct {
	text  string
	bytes int64
}

func outputSize() size {
	if deep.Enabled() {
		return size{"2G", 2 << 30}
	}
	return size{"256M", 256 << 20}
}
