package onebox

import (
	"os"
	"os/exec"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/internal/lib/childproc"
	"github.com/bullpen-ci/bullpen/test/kit/await"
)

// startStranger runs a process that is not ours to supervise, in a group of its own.
func startStranger(t *testing.T, script string) childproc.Process {
	t.Helper()
	command := exec.Command("/bin/sh", "-c", script)
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	require.NoError(t, command.Start())
	waited := make(chan struct{})
	go func() {
		defer close(waited)
		_ = command.Wait()
	}()
	t.Cleanup(func() {
		_ = syscall.Kill(-command.Process.Pid, syscall.SIGKILL)
		await.Receive(t, waited, "the process that was killed ends")
	})
	stranger, err := childproc.Identify("stranger", command.Process.Pid)
	require.NoError(t, err)
	return stranger
}

func TestEndRecordedEndsWhatAKilledOwnerLeft(t *testing.T) {
	polite := startStranger(t, "sleep 1000")
	stubborn := startStranger(t, "trap '' TERM; while :; do sleep 1000 & wait; done")
	require.True(t, polite.Alive())
	ended, err := endRecorded(t.Context(), []childproc.Process{polite, stubborn})
	require.NoError(t, err)
	require.Len(t, ended, 2)
	require.False(t, polite.Alive())
	require.False(t, stubborn.Alive())
	ended, err = endRecorded(t.Context(), []childproc.Process{polite, stubborn})
	require.NoError(t, err)
	require.Empty(t, ended)
}

func TestEndRecordedSparesWhoeverHasTheNumberNow(t *testing.T) {
	other := startStranger(t, "sleep 1000")
	recycled := other
	recycled.Started = "another boot/12345"
	ended, err := endRecorded(t.Context(), []childproc.Process{recycled, {Name: "init", PID: 1}, {Name: "unknown", PID: other.PID}})
	require.NoError(t, err)
	require.Empty(t, ended)
	require.True(t, other.Alive())
}

func TestRecordSurvivesItsOwner(t *testing.T) {
	layout := testLayout(t)
	stranger := startStranger(t, "sleep 1000")
	rec := &record{path: layout.recordFile()}
	require.NoError(t, rec.add("stranger", stranger.PID))
	read, err := readRecord(layout.recordFile())
	require.NoError(t, err)
	require.Equal(t, []childproc.Process{stranger}, read)
	require.Equal(t, []childproc.Process{stranger}, rec.alive())

	require.NoError(t, os.WriteFile(layout.recordFile(), []byte("[{"), 0o600))
	_, err = readRecord(layout.recordFile())
	require.ErrorContains(t, err, "by hand, then remove the file")
}

func TestBelongs(t *testing.T) {
	const dir, mark = "/state", "BULLPEN_SANDBOX=abc"
	ours := []string{"bullpen", agentName, "etcd"}
	for name, test := range map[string]struct {
		process seenProcess
		want    bool
	}{
		"one of ours that names the folder":  {seenProcess{args: []string{"/x/bullpen", "server", "--kubeconfig=/state/k"}}, true},
		"the agent of a runner pod":          {seenProcess{args: []string{"/state/node/pods/u/shared/bullpen-agent", "run", "--shared-dir=/state/node/pods/u"}}, true},
		"the control plane":                  {seenProcess{args: []string{"/assets/etcd", "--data-dir=/state/etcd"}}, true},
		"a job's process":                    {seenProcess{args: []string{"sleep", "5"}, env: []string{"A=b", "BULLPEN_SANDBOX=abc/uid/runner"}}, true},
		"another folder's job":               {seenProcess{args: []string{"sleep", "5"}, env: []string{"BULLPEN_SANDBOX=abcd/uid/runner"}}, false},
		"another folder's server":            {seenProcess{args: []string{"/x/bullpen", "server", "--kubeconfig=/other/k"}}, false},
		"somebody who reads a log":           {seenProcess{args: []string{"tail", "-f", "/state/logs/server.log"}}, false},
		"a kernel thread, without arguments": {seenProcess{}, false},
	} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, test.want, belongs(test.process, dir, []string{mark}, ours))
		})
	}
}

func TestRemainingFindsAProcessOfTheFolder(t *testing.T) {
	layout := testLayout(t)
	require.NoError(t, layout.prepare(false, false))
	require.NoError(t, os.WriteFile(layout.path("node", "owner"), []byte("0123abcd\n"), 0o600))
	left, err := remaining(layout, "/x/bullpen")
	require.NoError(t, err)
	require.Empty(t, left)

	command := exec.Command("/bin/sleep", "1000")
	command.Env = []string{"BULLPEN_SANDBOX=0123abcd/uid/runner"}
	require.NoError(t, command.Start())
	defer func() {
		_ = command.Process.Kill()
		_ = command.Wait()
	}()
	require.Eventually(t, func() bool { // until the child has become /bin/sleep
		left, err = remaining(layout, "/x/bullpen")
		return err == nil && len(left) == 1 && left[0].PID == command.Process.Pid
	}, patience, interval)
}
