package terminationlog

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
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

func opened(t *testing.T, path string) *File {
	t.Helper()
	file := Open(path)
	t.Cleanup(file.Close)
	return file
}

func TestBound_EmptiesLargeMessages(t *testing.T) {
	for name, row := range map[string]struct{ size, want int64 }{
		"a message of the largest size is kept": {MaxSize, MaxSize},
		"a larger one is emptied":               {MaxSize + 1, 0},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "termination-log")
			require.NoError(t, os.WriteFile(path, make([]byte, row.size), 0o600))
			require.NoError(t, opened(t, path).Bound())
			require.Equal(t, row.want, sizeOf(t, path))
		})
	}
}

func TestBound_OpensAFileThatIsMadeLater(t *testing.T) {
	path := filepath.Join(t.TempDir(), "termination-log")
	file := opened(t, path)
	require.NoError(t, file.Bound())
	require.NoError(t, file.Set("there is no file"))
	require.NoError(t, os.WriteFile(path, make([]byte, MaxSize+1), 0o600))
	require.NoError(t, file.Bound())
	require.Zero(t, sizeOf(t, path))
}

func TestBound_FollowsNoLinkAndWaitsForNothing(t *testing.T) {
	dir := t.TempDir()
	file, link, fifo := filepath.Join(dir, "file"), filepath.Join(dir, "link"), filepath.Join(dir, "fifo")
	require.NoError(t, os.WriteFile(file, make([]byte, MaxSize+1), 0o600))
	require.NoError(t, os.Symlink(file, link))
	require.NoError(t, syscall.Mkfifo(fifo, 0o600))
	require.Error(t, opened(t, link).Bound())
	require.EqualValues(t, MaxSize+1, sizeOf(t, file))
	require.Error(t, await.Call(t, opened(t, fifo).Bound, "the FIFO is refused"))
}

func TestSet_ReplacesTheMessage(t *testing.T) {
	path := filepath.Join(t.TempDir(), "termination-log")
	require.NoError(t, os.WriteFile(path, []byte("a text of the job's that is longer"), 0o600))
	file := opened(t, path)
	require.NoError(t, file.Set("files are left"))
	content, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, "files are left", string(content))
	require.NoError(t, file.Set(strings.Repeat("x", MaxSize)))
	require.EqualValues(t, maxText, sizeOf(t, path))
}

func TestKeep_BoundsUntilItIsStopped(t *testing.T) {
	path := filepath.Join(t.TempDir(), "termination-log")
	stop := Keep(path, slog.New(slog.DiscardHandler))
	require.NoError(t, os.WriteFile(path, make([]byte, MaxSize+1), 0o600)) // a job writes it later
	require.Eventually(t, func() bool { return sizeOf(t, path) == 0 }, await.Limit, 10*time.Millisecond)
	require.NoError(t, os.WriteFile(path, make([]byte, MaxSize+1), 0o600)) // and at its end
	stop()
	require.Zero(t, sizeOf(t, path))
}
