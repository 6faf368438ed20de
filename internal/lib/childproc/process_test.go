package childproc_test

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/internal/lib/childproc"
	"github.com/bullpen-ci/bullpen/test/kit/await"
)

func TestIdentify_TellsProcessesApart(t *testing.T) {
	own, err := childproc.Identify("test", os.Getpid())
	require.NoError(t, err)
	again, err := childproc.Identify("test", os.Getpid())
	require.NoError(t, err)
	require.Equal(t, own, again)
	require.True(t, own.Alive())

	child, _ := shell(t, `echo ready; exec sleep 1000`)
	seen, err := childproc.Identify("child", child.PID())
	require.NoError(t, err)
	require.Equal(t, child.Process("child"), seen)
	child.Stop(t.Context(), syscall.SIGKILL, 0)
	require.False(t, seen.Alive())
	_, err = childproc.Identify("child", child.PID())
	require.ErrorIs(t, err, os.ErrNotExist)
}

// A name with parentheses and spaces must not shift the fields that the kernel shows.
func TestIdentify_WhateverTheProgramsName(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a) Z (b")
	require.NoError(t, os.Symlink("/bin/sleep", path))
	child, err := childproc.Start(exec.Command(path, "1000"), syscall.SIGKILL)
	require.NoError(t, err)
	defer child.Stop(context.Background(), syscall.SIGKILL, 0)
	require.True(t, child.Process("odd").Alive())
}

func TestIdentify_ADeadProcessThatIsNotReapedIsGone(t *testing.T) {
	command := exec.Command("/bin/sleep", "1000")
	require.NoError(t, command.Start())
	running, err := childproc.Identify("zombie", command.Process.Pid)
	require.NoError(t, err)
	require.NoError(t, command.Process.Kill())
	require.Eventually(t, func() bool { return !running.Alive() }, patience, interval)
	_, err = childproc.Identify("zombie", command.Process.Pid)
	require.ErrorIs(t, err, os.ErrNotExist)
	require.Error(t, command.Wait())
}

func TestProcess_SignalSparesAProcessThatReusesThePID(t *testing.T) {
	child, _ := shell(t, `echo ready; exec sleep 1000`)
	recycled := child.Process("recycled")
	recycled.Started = "another boot/12345"
	unknown := childproc.Process{Name: "unknown", PID: child.PID()}
	for _, p := range []childproc.Process{recycled, unknown} {
		require.False(t, p.Alive(), p.Name)
		p.Signal(syscall.SIGKILL)
	}
	require.Equal(t, []childproc.Process{child.Process("child")}, childproc.Running([]childproc.Process{recycled, child.Process("child"), unknown}))

	child.Process("child").Signal(syscall.SIGTERM)
	require.Equal(t, "signal: terminated", child.Outcome(), "not killed by what was meant for others")
}

// The group of process 1 is, for kill(2), every process there is; that of 0 is the caller's own.
func TestProcess_TheFirstOneIsNeverNamed(t *testing.T) {
	first, err := childproc.Identify("init", 1)
	if err != nil {
		first = childproc.Process{PID: 1, Started: "unreadable"}
	}
	require.False(t, first.Alive())
	require.False(t, childproc.Process{PID: 0, Started: first.Started}.Alive())
	require.False(t, childproc.Process{PID: -1, Started: first.Started}.Alive())
}

func TestAwaitGone(t *testing.T) {
	ending, _ := shell(t, `echo ready; exec sleep 1000`)
	staying, _ := shell(t, `echo ready; exec sleep 1000`)
	both := []childproc.Process{ending.Process("ending"), staying.Process("staying")}
	both[0].Signal(syscall.SIGKILL)

	await.Receive(t, ending.Done(), "the process that was killed ends")
	left, err := childproc.AwaitGone(t.Context(), both, time.Millisecond)
	require.NoError(t, err)
	require.Equal(t, both[1:], left)

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	left, err = childproc.AwaitGone(ctx, both, time.Hour)
	require.ErrorIs(t, err, context.Canceled)
	require.Equal(t, both[1:], left)

	both[1].Signal(syscall.SIGKILL)
	left, err = childproc.AwaitGone(t.Context(), both, patience)
	require.NoError(t, err)
	require.Empty(t, left)
}

func TestReadRecord(t *testing.T) {
	path := filepath.Join(t.TempDir(), "processes.json")
	processes, err := childproc.ReadRecord(path)
	require.NoError(t, err, "no file, nothing ran")
	require.Empty(t, processes)

	written := []childproc.Process{{Name: "etcd", PID: 7, Started: "boot/1"}}
	data, err := json.Marshal(written)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(path, data, 0o600))
	processes, err = childproc.ReadRecord(path)
	require.NoError(t, err)
	require.Equal(t, written, processes)

	require.NoError(t, os.WriteFile(path, []byte(`[{"pid":`), 0o600))
	_, err = childproc.ReadRecord(path)
	require.Error(t, err)
}
