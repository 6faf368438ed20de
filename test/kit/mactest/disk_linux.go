package mactest

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/bullpen-ci/bullpen/internal/dev/mac"
)

// SmallDisk is a directory on a file system of that size, for the option OnDisk. The test is skipped where mounting is not permitted; root
// on the machines of continuous integration may mount.
func SmallDisk(t *testing.T, bytes string) string {
	t.Helper()
	dir := t.TempDir()
	if err := unix.Mount("devmac", dir, "tmpfs", 0, "size="+bytes); err != nil {
		t.Skipf("mounting a small disk: %v", err)
	}
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
	return dir
}

// OnDisk makes the Mac in a directory below that one, as of SmallDisk. The model's own files lie elsewhere.
func OnDisk(t *testing.T, dir string) Option {
	t.Helper()
	state := t.TempDir()
	return func(o *mac.Options) { o.Dir, o.StateDir = filepath.Join(dir, "mac"), state }
}

// Fill leaves nothing free on the disk that the Mac is on, which must be one of SmallDisk's, until the function that it returns is called.
func (m *Mac) Fill() (empty func()) {
	m.t.Helper()
	var disk unix.Statfs_t
	require.NoError(m.t, unix.Statfs(string(m.Root), &disk))
	require.Less(m.t, disk.Blocks*uint64(disk.Bsize), uint64(1<<30), "the Mac lies on a disk of SmallDisk, and not on that of this machine")
	path := filepath.Join(filepath.Dir(string(m.Root)), "filler")
	filler, err := os.Create(path)
	require.NoError(m.t, err)
	block := make([]byte, 4<<10)
	for err == nil {
		_, err = filler.Write(block)
	}
	require.ErrorIs(m.t, err, unix.ENOSPC)
	require.NoError(m.t, filler.Close())
	return func() { require.NoError(m.t, os.Remove(path)) }
}
