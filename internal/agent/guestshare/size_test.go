package guestshare

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestExcess_TEN6_CountsWhatAGuestHasWrittenAndNoMore(t *testing.T) {
	const most = 4 << 20
	write := func(size int, name ...string) func(t *testing.T, dir string) {
		return func(t *testing.T, dir string) {
			t.Helper()
			at := filepath.Join(append([]string{dir}, name...)...)
			require.NoError(t, os.MkdirAll(filepath.Dir(at), 0o700))
			require.NoError(t, os.WriteFile(at, bytes.Repeat([]byte("x"), size), 0o600))
		}
	}
	for name, c := range map[string]struct {
		fill func(t *testing.T, dir string)
		want string
	}{
		"nothing":   {func(*testing.T, string) {}, ""},
		"a log":     {write(3<<20, FileLog), ""},
		"a big log": {write(5<<20, FileLog), "has more than 4 MiB"},
		"deep down": {write(5<<20, "a", "b", "c", "d"), "has more than 4 MiB"},
		"in parts": {func(t *testing.T, dir string) {
			for i := range 5 {
				write(1<<20, fmt.Sprint(i))(t, dir)
			}
		}, "has more than 4 MiB"},
		"a hole takes no room": {func(t *testing.T, dir string) {
			write(0, "hole")(t, dir)
			require.NoError(t, os.Truncate(filepath.Join(dir, "hole"), 1<<40))
		}, ""},
		"a link leads nowhere": {func(t *testing.T, dir string) {
			outside := t.TempDir()
			write(5<<20, "big")(t, outside)
			require.NoError(t, os.Symlink(outside, filepath.Join(dir, "link")))
			require.NoError(t, os.Symlink(dir, filepath.Join(dir, "round")))
		}, ""},
		"a pipe does not block": {func(t *testing.T, dir string) { require.NoError(t, syscall.Mkfifo(filepath.Join(dir, "pipe"), 0o600)) }, ""},
		"files without end": {func(t *testing.T, dir string) {
			for i := range 21 {
				require.NoError(t, os.Symlink("x", filepath.Join(dir, fmt.Sprint(i))))
			}
		}, "has more than 20 files"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			c.fill(t, dir)
			require.Equal(t, c.want, excess(dir, most, 20))
		})
	}
	require.Empty(t, Excess(filepath.Join(t.TempDir(), "none"), most), "a share that cannot be read says nothing of its guest")
}

// Probes that time out leave a report each, when their guest is slow; a few thousand must not end the machine with its job.
func TestRemoveReports_TEN6_LateOnesDoNotAddUp(t *testing.T) {
	dir := t.TempDir()
	keep := []string{".heartbeat-1", FileExec("waited"), "." + FileExec("waited") + "-2", FileExit, FileHeartbeat, FileExec("late") + "-not", "exec-late.end"}
	for _, name := range append([]string{FileExec("late"), "." + FileExec("late") + "-123", FileExec("")}, keep...) {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), nil, 0o600))
	}
	require.NoError(t, os.MkdirAll(filepath.Join(dir, FileExec("directory"), "full"), 0o700))
	outside := t.TempDir()
	require.NoError(t, os.Symlink(outside, filepath.Join(dir, FileExec("link"))))
	RemoveReports(dir, func(id string) bool { return id == "waited" })
	left, err := os.ReadDir(dir)
	require.NoError(t, err)
	var names []string
	for _, e := range left {
		names = append(names, e.Name())
	}
	require.ElementsMatch(t, append(keep, FileExec("directory")), names)
	require.DirExists(t, outside)
	RemoveReports(filepath.Join(dir, "none"), nil)
}
