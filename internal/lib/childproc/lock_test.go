package childproc_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/internal/lib/childproc"
)

func TestLock_HasOneHolder(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	require.NoError(t, os.WriteFile(path, []byte("1234567890\n"), 0o600), "an earlier holder, with more digits than we have")
	lock, err := childproc.Lock(path)
	require.NoError(t, err)
	_, err = childproc.Lock(path)
	var held *childproc.HeldError
	require.ErrorAs(t, err, &held)
	require.Equal(t, childproc.HeldError{Path: path, PID: os.Getpid()}, *held)
	require.NoError(t, lock.Close())
	again, err := childproc.Lock(path)
	require.NoError(t, err, "the lock goes with its holder")
	require.NoError(t, again.Close())

	_, err = childproc.Lock(filepath.Join(path, "below-a-file"))
	require.Error(t, err)
	require.NotErrorAs(t, err, &held)
}
