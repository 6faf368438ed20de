package controlplane

import (
	"context"
	"encoding/json"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/internal/lib/childproc"
)

// sleeper is a child that does nothing until it is ended.
func sleeper(t *testing.T) *childproc.Child {
	t.Helper()
	started, err := childproc.Start(exec.Command("/bin/sleep", "1000"), syscall.SIGKILL)
	require.NoError(t, err)
	t.Cleanup(func() { started.Stop(context.Background(), syscall.SIGKILL, 0) })
	return started
}

func TestKillRecorded_EndsTheRecordedAndNoOther(t *testing.T) {
	recorded, reused, unstamped := sleeper(t), sleeper(t), sleeper(t)
	stranger := reused.Process(string(APIServer))
	stranger.Started = "another process had this pid"
	path := filepath.Join(t.TempDir(), "children.json")
	data, err := json.Marshal([]childproc.Process{
		recorded.Process(string(Etcd)),
		stranger,
		{Name: string(Scheduler), PID: unstamped.PID()},
		{Name: string(ControllerManager), PID: 0, Started: "nothing"},
	})
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(path, data, 0o600))

	require.NoError(t, killRecorded(t.Context(), path, slog.New(slog.DiscardHandler)))

	require.False(t, recorded.Process("").Alive(), "gone when killRecorded returns")
	require.Equal(t, "signal: killed", recorded.Outcome())
	require.False(t, reused.Exited())
	require.False(t, unstamped.Exited())
}

func TestKillRecorded_RefusesAFileItCannotRead(t *testing.T) {
	path := filepath.Join(t.TempDir(), "children.json")
	require.NoError(t, killRecorded(t.Context(), path, slog.New(slog.DiscardHandler)), "no file, nothing to end")
	require.NoError(t, os.WriteFile(path, []byte(`[{"pid":`), 0o600))
	require.ErrorContains(t, killRecorded(t.Context(), path, slog.New(slog.DiscardHandler)), "end those processes by hand")
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
