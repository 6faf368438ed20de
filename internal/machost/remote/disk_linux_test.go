package remote

import (
	"errors"
	"os"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/internal/machost"
	"github.com/bullpen-ci/bullpen/test/kit/chaos"
)

func TestBootstrap_SaysThatTheDiskIsFull(t *testing.T) {
	h := newHost(t)
	dir := h.path("home/.bullpen")
	require.NoError(t, os.Mkdir(dir, 0o755))
	disk, err := chaos.NewDisk(dir, 1<<20)
	if errors.Is(err, syscall.EPERM) {
		t.Skip(err)
	}
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, disk.Close()) })

	o := h.options(&events{})
	program, err := os.OpenFile(o.Binary, os.O_APPEND|os.O_WRONLY, 0)
	require.NoError(t, err)
	_, err = program.Write(append([]byte("\nexit\n"), make([]byte, 4<<20)...))
	require.NoError(t, err)
	require.NoError(t, program.Close())
	for range 2 { // a full disk is a state, not an accident
		var seen events
		o.Events = seen.add
		_, err = Bootstrap(t.Context(), o)
		var stage *StageError
		require.ErrorAs(t, err, &stage)
		require.Equal(t, StageUpload, stage.Stage)
		require.ErrorContains(t, err, "disk full")
		require.Len(t, seen.of(StageUpload, machost.PhaseFailed), 1)
		left, err := os.ReadDir(dir)
		require.NoError(t, err)
		require.Empty(t, left, "it leaves the disk fuller than it was")
	}
	require.Zero(t, h.attempts())
}
