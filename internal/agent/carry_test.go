package agent

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/internal/jobcontainer"
	"github.com/bullpen-ci/bullpen/internal/jobcontainer/courier"
	"github.com/bullpen-ci/bullpen/internal/jobcontainer/letter"
	"github.com/bullpen-ci/bullpen/test/kit/await"
)

// The script works wherever the program is, and passes what GitHub's runner writes to its standard input.
func TestInstallContainerHook_CallsTheAgent(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "it's here")
	require.NoError(t, os.Mkdir(dir, 0o700))
	program, script := filepath.Join(dir, "agent"), filepath.Join(dir, "hook.sh")
	require.NoError(t, os.WriteFile(program, []byte("#!/bin/sh\necho \"$1\"; cat\n"), 0o700)) //nolint:gosec // a program
	require.NoError(t, InstallContainerHook(script, program))
	command := exec.CommandContext(await.Context(t), script)
	in, err := command.StdinPipe()
	require.NoError(t, err)
	go func() { _, _ = in.Write([]byte("{}")); _ = in.Close() }()
	output, err := command.CombinedOutput()
	require.NoError(t, err, string(output))
	require.Equal(t, "container-hook\n{}", string(output))
	require.Error(t, InstallContainerHook(filepath.Join(dir, "none", "hook.sh"), program))
}

// In a pod that is being deleted the kubelet starts nothing: a job that asks is refused at once.
func TestSupervise_ADeletedPodRefusesContainersAtOnce(t *testing.T) {
	key, err := letter.NewPrivateKey()
	require.NoError(t, err)
	s := &supervisor{SuperviseOptions: SuperviseOptions{JobDir: t.TempDir(), CourierDir: t.TempDir()}}
	s.closeRequests()
	client := courier.Client{Dir: s.CourierDir, PublicKey: key.Public(), Wait: await.Limit}
	response, err := client.Ask(await.Context(t), jobcontainer.Request{ID: "a"})
	require.NoError(t, err)
	require.Equal(t, courier.DeletedText, response.Refusal)

	s = &supervisor{SuperviseOptions: SuperviseOptions{CourierDir: t.TempDir()}}
	s.closeRequests()
	entries, err := os.ReadDir(s.CourierDir)
	require.NoError(t, err)
	require.Empty(t, entries, "without job containers nothing is written")
}
