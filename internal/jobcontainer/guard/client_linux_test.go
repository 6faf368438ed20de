package guard_test

import (
	"os"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/test/kit/deep"
)

// startClient starts a process that runs a command in a container.
func startClient(t *testing.T, socket string, argv ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(os.Args[0], append([]string{socket}, argv...)...) //nolint:gosec // this program
	cmd.Env = append(os.Environ(), modeEnv+"=exec")
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
