package volume

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/test/kit/await"
)

// signs are a supervisor's, each on its own.
type signs struct {
	dir      string
	lock     *os.File
	listener *net.UnixListener
}

func newSigns(t *testing.T) *signs {
	t.Helper()
	dir, err := os.MkdirTemp("", "v") // short: a socket's path has at most 107 bytes
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	hold, err := Take(dir)
	require.NoError(t, err)
	t.Cleanup(hold.Release)
	return &signs{dir, hold.lock, hold.listener}
}

func TestWatch_JOB2_EachSignCounts(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(s *signs) error{
		"the lock":   func(s *signs) error { return s.lock.Close() },
		"the socket": func(s *signs) error { return s.listener.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSigns(t)
			ended, err := Watch(s.dir)
			require.NoError(t, err)
			select {
			case <-ended:
				t.Fatal("the runner has not ended")
			case <-time.After(100 * time.Millisecond):
			}
			require.NoError(t, end(s))
			await.Receive(t, ended, "the runner's end is seen")
		})
	}
}

func TestWatch_JOB2_ThereMustBeASupervisor(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(s *signs) error{
		"no lock":     func(s *signs) error { return os.Remove(filepath.Join(s.dir, lockFile)) },
		"a free lock": func(s *signs) error { return s.lock.Close() },
		"no socket":   func(s *signs) error { return os.Remove(filepath.Join(s.dir, socketFile)) },
		"no listener": func(s *signs) error { s.listener.SetUnlinkOnClose(false); return s.listener.Close() },
	} {
		s := newSigns(t)
		require.NoError(t, end(s))
		_, err := Watch(s.dir)
		require.ErrorIs(t, err, ErrRunnerEnded, name)
	}
}

// A supervisor that starts again waits for guards that end at this moment, and refuses a volume that another one holds.
func TestTake_WaitsForTheLockAndNotForEver(t *testing.T) {
	t.Parallel()
	s := newSigns(t)
	require.NoError(t, syscall.Flock(int(s.lock.Fd()), syscall.LOCK_UN))
	guard, err := os.Open(filepath.Join(s.dir, lockFile))
	require.NoError(t, err)
	require.NoError(t, syscall.Flock(int(guard.Fd()), syscall.LOCK_SH))
	taken := make(chan error, 1)
	go func() {
		hold, err := Take(s.dir)
		if err == nil {
			hold.Release()
		}
		taken <- err
	}()
	require.NoError(t, guard.Close())
	require.NoError(t, await.Receive(t, taken, "the lock is taken"))

	held, err := os.Open(filepath.Join(s.dir, lockFile))
	require.NoError(t, err)
	t.Cleanup(func() { _ = held.Close() })
	require.NoError(t, syscall.Flock(int(held.Fd()), syscall.LOCK_EX))
	file, err := os.Open(filepath.Join(s.dir, lockFile))
	require.NoError(t, err)
	t.Cleanup(func() { _ = file.Close() })
	require.ErrorContains(t, lockWithin(file, time.Millisecond), "the volume must belong to one pod alone")
}

func TestWant_NamesOnlyContainers(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, name := range []string{"", ".", "..", "a/b", "../x"} {
		require.Error(t, Want(dir, name))
		require.Error(t, Withdraw(dir, name))
		require.Error(t, AwaitWanted(t.Context(), dir, name, time.Second, nil))
	}
	require.NoError(t, Want(dir, "job"))
	require.NoError(t, Want(dir, "job"), "a second time changes nothing")
	require.NoError(t, AwaitWanted(t.Context(), dir, "job", time.Second, nil))
	require.NoError(t, Withdraw(dir, "job"))
	require.NoError(t, Withdraw(dir, "job"))
	require.ErrorIs(t, AwaitWanted(t.Context(), dir, "job", time.Minute, nil), ErrUnwanted)
	require.ErrorIs(t, AwaitWanted(t.Context(), dir, "other", time.Millisecond, nil), ErrUnwanted)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, AwaitWanted(ctx, dir, "other", time.Minute, nil), context.Canceled)
}

// A process that looks for the runner before it has started does not keep the runner from starting.
func TestWatch_LeavesAFreeLockFree(t *testing.T) {
	dir := t.TempDir()
	hold, err := Take(dir)
	require.NoError(t, err)
	hold.Release()
	_, err = Watch(dir)
	require.ErrorIs(t, err, ErrRunnerEnded)
	lock, err := os.Open(filepath.Join(dir, lockFile))
	require.NoError(t, err)
	defer func() { _ = lock.Close() }()
	require.NoError(t, flock(lock, syscall.LOCK_EX|syscall.LOCK_NB))
}
