package tart

import (
	"os"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// A job may make its directories inaccessible; its pod must still be deleted.
func TestRemove_NODE1_FoldersWithoutRights(t *testing.T) {
	s := &Sandbox{opts: Options{StateDir: t.TempDir()}}
	gone := filepath.Join(s.goneDir(), "pod")
	require.NoError(t, os.MkdirAll(gone, 0o700))
	if os.Geteuid() == 0 { // root bypasses permissions: run as another user, on this thread
		for dir := gone; dir != filepath.Dir(s.opts.StateDir); dir = filepath.Dir(dir) {
			require.NoError(t, os.Chown(dir, 65534, 65534))
		}
		require.NoError(t, os.Chmod(filepath.Dir(s.opts.StateDir), 0o711))
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		require.NoError(t, syscall.Setfsuid(65534))
		defer func() { _ = syscall.Setfsuid(0) }()
	}
	require.NoError(t, os.MkdirAll(filepath.Join(gone, "status", "locked"), 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(gone, "status", "locked", "file"), nil, 0o600))
	require.NoError(t, os.Chmod(filepath.Join(gone, "status", "locked"), 0))
	require.NoError(t, s.Remove(t.Context(), "pod"))
	require.NoDirExists(t, gone)
}
