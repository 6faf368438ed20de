package process

import (
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// A program that is being started has every open file of its parent's for a moment, the lock among them.
func TestLock_IsFreeAtOnceThoughAChildIsBeingStarted(t *testing.T) {
	dir := t.TempDir()
	unlock, err := Lock(dir)
	require.NoError(t, err)
	_, err = Lock(dir)
	require.ErrorIs(t, err, ErrInUse)

	file := filepath.Join(dir, "lock")
	fds, err := os.ReadDir("/proc/self/fd")
	require.NoError(t, err)
	child := 0
	for _, fd := range fds {
		if to, err := os.Readlink(filepath.Join("/proc/self/fd", fd.Name())); err == nil && to == file {
			number, err := strconv.Atoi(fd.Name())
			require.NoError(t, err)
			child, err = unix.Dup(number)
			require.NoError(t, err)
		}
	}
	require.NotZero(t, child)
	defer func() { _ = unix.Close(child) }()
	unlock()
	again, err := Lock(dir)
	require.NoError(t, err)
	again()
}
