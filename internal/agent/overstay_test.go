package agent

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TEN-5: a runner that does not end although the worker of its one job has, stopped by that job or hung, is killed in a bounded time.
func TestSupervise_TEN5_ARunnerThatOutlivesItsWorkerIsKilled(t *testing.T) {
	t.Parallel()
	if !seesWorkers {
		return
	}
	c := newContainer(t, "overstay DIR")
	c.options.Overstay = 50 * time.Millisecond
	c.start()
	c.stage(jitText)
	c.await("online")
	touch(filepath.Join(c.dir, "assign"))
	c.await("stopped")
	require.Equal(t, 128+9, c.code(), c.log.String())
}

// A job has the directory's user: whatever it makes of the marker, reading it ends.
func TestHookRunByWorker_ReadsNothingButAFile(t *testing.T) {
	t.Parallel()
	if !seesWorkers {
		return
	}
	f := filesIn(filepath.Join(t.TempDir(), "jitconfig"), "")
	require.False(t, f.hookRunByWorker(), "there is none")
	require.NoError(t, syscall.Mkfifo(f.jobStarted, 0o600))
	require.False(t, f.hookRunByWorker())
	require.NoError(t, os.Remove(f.jobStarted))
	touch(f.jobStarted, workerName, "\n", workerName)
	require.False(t, f.hookRunByWorker(), "more than a name")
	touch(f.jobStarted, workerName, "\n")
	require.True(t, f.hookRunByWorker())
}
