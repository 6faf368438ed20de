package logfile_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/internal/lib/logfile"
)

func TestFollow_GoesOnInTheNewFileAfterARotation(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "node.log")
	stream, err := os.OpenFile(filepath.Join(dir, "before"), os.O_CREATE|os.O_WRONLY, 0o600)
	require.NoError(t, err)
	defer stream.Close()
	require.NoError(t, os.WriteFile(path, []byte("earlier\n"), 0o600))
	stop, err := logfile.Follow(stream, path, time.Millisecond)
	require.NoError(t, err)
	defer stop()
	_, err = stream.WriteString("first\n")
	require.NoError(t, err)
	require.Equal(t, "earlier\nfirst\n", read(t, path))

	require.NoError(t, os.Rename(path, path+".0"))
	_, err = stream.WriteString("between\n") // in either, and never lost
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		_, err := stream.WriteString("second\n")
		require.NoError(t, err)
		content, err := os.ReadFile(path)
		return err == nil && len(content) > 0
	}, 10*time.Second, time.Millisecond)
	require.Contains(t, read(t, path)+read(t, path+".0"), "between\n")
	require.Contains(t, read(t, path), "second\n")
}

// The log's directory is root's on a Mac: between the renaming and the new file there is none that the agent could
// make.
func TestFollow_KeepsTheFormerFileWhileThereIsNoOther(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "log")
	require.NoError(t, os.Mkdir(dir, 0o700))
	path := filepath.Join(dir, "node.log")
	stream, err := os.Create(filepath.Join(t.TempDir(), "before"))
	require.NoError(t, err)
	defer stream.Close()
	stop, err := logfile.Follow(stream, path, time.Millisecond)
	require.NoError(t, err)
	defer stop()
	require.NoError(t, os.Rename(dir, dir+".moved")) // nothing can be made below it
	_, err = stream.WriteString("kept\n")
	require.NoError(t, err)
	require.Equal(t, "kept\n", read(t, filepath.Join(dir+".moved", "node.log")))
	require.NoError(t, os.Mkdir(dir, 0o700))
	require.Eventually(t, func() bool { _, err := os.Stat(path); return err == nil }, 10*time.Second, time.Millisecond)
}

func TestFollow_SaysThatTheFirstFileCannotBeOpened(t *testing.T) {
	stream, err := os.Create(filepath.Join(t.TempDir(), "before"))
	require.NoError(t, err)
	defer stream.Close()
	_, err = logfile.Follow(stream, filepath.Join(t.TempDir(), "no", "such"), time.Hour)
	require.ErrorIs(t, err, os.ErrNotExist)
}

func read(t *testing.T, path string) string {
	t.Helper()
	content, err := os.ReadFile(path)
	require.NoError(t, err)
	return string(content)
}
