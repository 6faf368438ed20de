package terminationlog

import (
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/test/kit/await"
)

func sizeOf(t *testing.T, path string) int64 {
	t.Helper()
	info, err := os.Stat(path)
	require.NoError(t, err)
	return info.Size()
}

func TestBound_EmptiesWhatNobodyReads(t *testing.T) {
	for name, row := range map[string]struct{ size, want int64 }{
		"a message of the largest size is kept": {MaxSize, MaxSize},
		"a larger one is emptied":               {MaxSize + 1, 0},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "termination-log")
			require.NoError(t, os.WriteFile(path, make([]byte, row.size), 0o600))
			require.NoError(t, Bound(path))
			require.Equal(t, row.want, sizeOf(t, path))
		})
	}
	require.NoError(t, Bound(filepath.Join(t.TempDir(), "missing")))
}

func TestBound_FollowsNoLink(t *testing.T) {
	dir := t.TempDir()
	file, link := filepath.Join(dir, "file"), filepath.Join(dir, "link")
	require.NoError(t, os.WriteFile(file, make([]byte, MaxSize+1), 0o600))
	require.NoError(t, os.Symlink(file, link))
	require.Error(t, Bound(link))
	require.EqualValues(t, MaxSize+1, sizeOf(t, file))
}

func TestKeep_BoundsUntilItIsStopped(t *testing.T) {
	path := filepath.Join(t.TempDir(), "termination-log")
	stop := Keep(path, slog.New(slog.DiscardHandler))
	require.NoError(t, os.WriteFile(path, make([]byte, MaxSize+1), 0o600)) // a job writes it later
	require.Eventually(t, func() bool { return sizeOf(t, path) == 0 }, await.Limit, 10*time.Millisecond)
	stop()
}
