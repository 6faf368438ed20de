package guestshare

import (
	"bytes"
	"os"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// withoutRoot has the test go on as a user whom permissions bind, on this thread, and returns a directory of that user's.
func withoutRoot(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if os.Geteuid() != 0 {
		return dir
	}
	require.NoError(t, os.Chown(dir, 65534, 65534))
	require.NoError(t, os.Chmod(filepath.Dir(dir), 0o711)) //nolint:gosec // the other user passes through it
	runtime.LockOSThread()
	require.NoError(t, syscall.Setfsuid(65534))
	t.Cleanup(func() {
		_ = syscall.Setfsuid(0)
		runtime.UnlockOSThread()
	})
	return dir
}

// The node agent is not root: what a job hides in directories without rights fills the host's disk all the same.
func TestExcess_TEN6_CountsWhatIsHiddenInDirectoriesWithoutRights(t *testing.T) {
	const most = 1 << 20
	for name, hide := range map[string]func(dir string) []string{
		"a directory":              func(dir string) []string { return []string{filepath.Join(dir, "a")} },
		"a directory and below it": func(dir string) []string { return []string{filepath.Join(dir, "a", "b"), filepath.Join(dir, "a")} },
		"the share":                func(dir string) []string { return []string{dir} },
	} {
		for _, mode := range []os.FileMode{0, 0o400, 0o100, 0o600} { // none, list only, pass only, no search
			t.Run(name+" "+mode.String(), func(t *testing.T) {
				dir := withoutRoot(t)
				require.NoError(t, os.MkdirAll(filepath.Join(dir, "a", "b"), 0o700))
				write := func(size int) {
					require.NoError(t, os.WriteFile(filepath.Join(dir, "a", "b", "file"), bytes.Repeat([]byte("x"), size), 0o600))
				}
				lock := func() {
					for _, d := range hide(dir) {
						require.NoError(t, os.Chmod(d, mode))
					}
				}
				write(most / 2)
				lock()
				require.Empty(t, Excess(dir, most), "rights alone end no job")
				write(2 * most)
				lock()
				require.Equal(t, "has more than 1 MiB", Excess(dir, most))
			})
		}
	}
}

// Rights that the host cannot take back, as with an access list or an immutable directory, hide what is there.
func TestExcess_TEN6_ADirectoryThatCannotBeReadIsTooMuch(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can make a directory of another user's")
	}
	dir := t.TempDir()
	theirs := filepath.Join(dir, "share", "theirs")
	require.NoError(t, os.MkdirAll(theirs, 0o700))
	require.NoError(t, os.Chown(dir, 65534, 65534))
	require.NoError(t, os.Chown(filepath.Dir(theirs), 65534, 65534))
	require.NoError(t, os.Chmod(filepath.Dir(dir), 0o711)) //nolint:gosec // the other user passes through it
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	require.NoError(t, syscall.Setfsuid(65534))
	defer func() { _ = syscall.Setfsuid(0) }()
	require.Equal(t, "has a directory that the host cannot read", Excess(filepath.Dir(theirs), 1<<20))
	require.Equal(t, "has a directory that the host cannot read", Excess(theirs, 1<<20))
	require.Empty(t, Excess(filepath.Join(dir, "none"), 1<<20))
}
