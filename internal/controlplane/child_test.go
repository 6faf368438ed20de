package controlplane

import (
	"context"
	"encoding/json"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const (
	testPatience = 20 * time.Second
	testInterval = 10 * time.Millisecond
)

// shell starts a child that runs a script, and waits until the script has printed "ready".
func shell(t *testing.T, script string) (*child, string) {
	t.Helper()
	log := filepath.Join(t.TempDir(), "log")
	started, err := startChild("/bin/sh", []string{"-c", script}, log)
	require.NoError(t, err)
	t.Cleanup(func() { started.stop(context.Background(), 0) })
	require.Eventually(t, func() bool {
		data, err := os.ReadFile(log)
		return err == nil && len(data) > 0
	}, testPatience, testInterval)
	return started, log
}

func TestChild_StopIsOrderlyFirst(t *testing.T) {
	started, log := shell(t, `trap 'echo bye; exit 0' TERM; echo ready; while :; do sleep 0.01; done`)
	require.False(t, started.stop(t.Context(), testPatience))
	data, err := os.ReadFile(log)
	require.NoError(t, err)
	require.Contains(t, string(data), "bye\n")
	require.True(t, started.exited())
	require.False(t, started.stop(t.Context(), testPatience), "a second stop does nothing")
}

func TestChild_StopKillsAfterTheGraceWithTheWholeGroup(t *testing.T) {
	started, log := shell(t, `trap '' TERM; sleep 1000 & echo $!; wait; while :; do sleep 0.01; done`)
	data, err := os.ReadFile(log)
	require.NoError(t, err)
	grandchild, err := strconv.Atoi(string(data[:len(data)-1]))
	require.NoError(t, err)

	require.True(t, started.stop(t.Context(), 10*time.Millisecond))
	require.Eventually(t, func() bool {
		_, err := startStamp(grandchild)
		return err != nil
	}, testPatience, testInterval, "the child's own child lives on")
}

func TestChild_StopKillsWhenTheContextEnds(t *testing.T) {
	started, _ := shell(t, `trap '' TERM; echo ready; while :; do sleep 0.01; done`)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.True(t, started.stop(ctx, time.Hour))
}

func TestStartChild_SaysWhatIsMissing(t *testing.T) {
	_, err := startChild("/nowhere/etcd", nil, filepath.Join(t.TempDir(), "log"))
	require.ErrorIs(t, err, os.ErrNotExist)
}

func TestStartStamp_TellsProcessesApart(t *testing.T) {
	own, err := startStamp(os.Getpid())
	require.NoError(t, err)
	again, err := startStamp(os.Getpid())
	require.NoError(t, err)
	require.Equal(t, own, again)

	started, _ := shell(t, `echo ready; exec sleep 1000`)
	stamp, err := startStamp(started.pid)
	require.NoError(t, err)
	require.Equal(t, started.started, stamp)
	started.stop(t.Context(), 0)
	_, err = startStamp(started.pid)
	require.ErrorIs(t, err, os.ErrNotExist)
}

func TestKillRecorded_EndsTheRecordedAndNoOther(t *testing.T) {
	recorded, _ := shell(t, `echo ready; exec sleep 1000`)
	reused, _ := shell(t, `echo ready; exec sleep 1000`)
	unstamped, _ := shell(t, `echo ready; exec sleep 1000`)
	path := filepath.Join(t.TempDir(), "children.json")
	data, err := json.Marshal([]record{
		{Component: Etcd, Pid: recorded.pid, Started: recorded.started},
		{Component: APIServer, Pid: reused.pid, Started: "another process had this pid"},
		{Component: Scheduler, Pid: unstamped.pid},
		{Component: ControllerManager, Pid: 0, Started: "nothing"},
	})
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(path, data, 0o600))

	require.NoError(t, killRecorded(t.Context(), path, slog.New(slog.DiscardHandler)))

	_, err = startStamp(recorded.pid)
	require.ErrorIs(t, err, os.ErrNotExist, "gone when killRecorded returns")
	<-recorded.done
	require.False(t, reused.exited())
	require.False(t, unstamped.exited())
}

// The group of process 1 is, for kill(2), every process there is.
func TestAlive_NeverNamesTheFirstProcess(t *testing.T) {
	stamp, err := startStamp(1)
	if err != nil {
		stamp = "unreadable"
	}
	require.False(t, alive(record{Component: Etcd, Pid: 1, Started: stamp}))
}

func TestKillRecorded_RefusesAFileItCannotRead(t *testing.T) {
	path := filepath.Join(t.TempDir(), "children.json")
	require.NoError(t, killRecorded(t.Context(), path, slog.New(slog.DiscardHandler)), "no file, nothing to end")
	require.NoError(t, os.WriteFile(path, []byte(`[{"pid":`), 0o600))
	require.ErrorContains(t, killRecorded(t.Context(), path, slog.New(slog.DiscardHandler)), "end those processes by hand")
}

func TestPorts_PersistUnlessTaken(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ports.json")
	first, err := choosePorts(path)
	require.NoError(t, err)
	seen := map[int]bool{}
	for _, port := range first.all() {
		require.False(t, seen[*port], "chosen twice")
		seen[*port] = true
	}
	again, err := choosePorts(path)
	require.NoError(t, err)
	require.Equal(t, first, again)

	taken, err := new(net.ListenConfig).Listen(t.Context(), "tcp4", net.JoinHostPort("127.0.0.1", strconv.Itoa(first.APIServer)))
	require.NoError(t, err)
	defer taken.Close()
	third, err := choosePorts(path)
	require.NoError(t, err)
	require.NotEqual(t, first.APIServer, third.APIServer)
	third.APIServer = first.APIServer
	require.Equal(t, first, third, "the others stay")

	require.NoError(t, os.WriteFile(path, []byte("{"), 0o600))
	_, err = choosePorts(path)
	require.ErrorContains(t, err, "remove that file")
}

func TestLockState_HasOneHolder(t *testing.T) {
	dir := t.TempDir()
	held, err := lockState(dir)
	require.NoError(t, err)
	_, err = lockState(dir)
	require.ErrorIs(t, err, ErrInUse)
	require.ErrorContains(t, err, "process "+strconv.Itoa(syscall.Getpid()))
	require.NoError(t, held.Close())
	held, err = lockState(dir)
	require.NoError(t, err)
	require.NoError(t, held.Close())
}
