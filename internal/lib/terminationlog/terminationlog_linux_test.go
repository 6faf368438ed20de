package terminationlog

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// The owner of a file that no other process has open can take a lease on it, which keeps others from opening it for lease-break-time (45 s).
func TestOpen_KeepsTheFileFromALease(t *testing.T) {
	path := filepath.Join(t.TempDir(), "termination-log")
	require.NoError(t, os.WriteFile(path, nil, 0o600))
	lease := func() error {
		fd, err := unix.Open(path, unix.O_RDWR|unix.O_CLOEXEC, 0)
		require.NoError(t, err)
		defer func() { _ = unix.Close(fd) }()
		_, err = unix.FcntlInt(uintptr(fd), unix.F_SETLEASE, unix.F_WRLCK)
		return err
	}
	if err := lease(); err != nil {
		t.Skip("this file system has no leases: ", err)
	}
	opened(t, path)
	require.ErrorIs(t, lease(), unix.EAGAIN)
}
