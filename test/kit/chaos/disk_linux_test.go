package chaos

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/test/kit/await"
)

func TestDisk_FullAndDrained(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root may mount")
	}
	dir := t.TempDir()
	disk, err := NewDisk(dir, 8<<20)
	require.NoError(t, err)
	closed := false
	t.Cleanup(func() {
		if !closed {
			_ = disk.Close()
		}
	})
	state := filepath.Join(dir, "state")
	require.NoError(t, os.WriteFile(state, make([]byte, 1<<20), 0o600))
	require.NoError(t, disk.Fill(64<<10))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "small"), make([]byte, 32<<10), 0o600))
	require.ErrorIs(t, os.WriteFile(filepath.Join(dir, "large"), make([]byte, 1<<20), 0o600), syscall.ENOSPC)
	require.NoError(t, disk.Fill(0))
	require.ErrorIs(t, os.WriteFile(filepath.Join(dir, "more"), make([]byte, 4096), 0o600), syscall.ENOSPC)
	require.NoError(t, disk.Drain())
	require.NoError(t, disk.Drain(), "twice does no harm")
	require.NoError(t, os.WriteFile(filepath.Join(dir, "large"), make([]byte, 1<<20), 0o600))
	kept, err := os.ReadFile(state)
	require.NoError(t, err)
	require.Len(t, kept, 1<<20)
	require.NoError(t, disk.Close())
	closed = true
	require.NoFileExists(t, state)
}

// A database keeps writing while its disk is filled.
func TestDisk_FilledWhileOthersWrite(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root may mount")
	}
	dir := t.TempDir()
	disk, err := NewDisk(dir, 256<<20)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, disk.Close()) })
	stop, stopped := make(chan struct{}), make(chan struct{})
	file, err := os.Create(filepath.Join(dir, "log"))
	require.NoError(t, err)
	go func() {
		defer close(stopped)
		defer file.Close()
		page := make([]byte, 4096)
		for {
			select {
			case <-stop:
				return
			default:
				_, _ = file.Write(page)
			}
		}
	}()
	for range 20 {
		require.NoError(t, disk.Fill(0))
		require.ErrorIs(t, os.WriteFile(filepath.Join(dir, "more"), make([]byte, 4096), 0o600), syscall.ENOSPC)
		require.NoError(t, disk.Drain())
	}
	close(stop)
	await.Receive(t, stopped, "the disk is full")
}
