//go:build unix

package mactest

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/test/kit/await"
)

func TestMain(m *testing.M) { os.Exit(Main(m.Run)) }

func (s *SSH) run(t *testing.T, command string) (string, error) {
	t.Helper()
	host, port, _ := strings.Cut(s.Address, ":")
	output, err := exec.CommandContext(await.Context(t), "ssh", "-F", "none", "-i", s.KeyFile, "-p", port, "-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null", "-o", "BatchMode=yes",
		"-o", "LogLevel=ERROR", s.User+"@"+host, command).CombinedOutput()
	return string(output), err
}

func TestSSH_IsTheMacs(t *testing.T) {
	mac := Boot(t)
	ssh := mac.SSH(t)
	output, err := ssh.run(t, "uname -sm; id -un; echo $HOME; echo $SSH_CONNECTION; sudo -n true")
	require.ErrorContains(t, err, "exit status 1")
	require.Equal(t, "Darwin arm64\nci\n"+mac.Root.Path("/Users/ci")+"\n10.0.0.9 50000 10.0.0.21 22\nsudo: a password is required\n", output)
}
