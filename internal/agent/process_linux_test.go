package agent

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// A job has the directory's user: whatever it makes of the marker, reading it ends.
func TestHookRunByWorker_ReadsNothingButAFile(t *testing.T) {
	t.Parallel()
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
