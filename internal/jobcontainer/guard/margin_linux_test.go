package guard

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/bullpen-ci/bullpen/test/kit/await"
)

// A container runtime makes mount points and the working directory in the layer just before the guard starts. A change in the lowest of them is not
// seen in those above.
func TestLayer_JOB5_DirectoriesOfTheRuntimeAreRead(t *testing.T) {
	root := t.TempDir()
	dir := filepath.Join(root, "made", "by", "the-runtime")
	require.NoError(t, os.MkdirAll(dir, 0o700))
	last, err := statAt(unix.AT_FDCWD, dir)
	require.NoError(t, err)
	since := changedAt(&last) + 1 // everything until here is older
	require.Eventually(t, func() bool { return clock(unix.CLOCK_REALTIME_COARSE) >= since }, await.Limit, time.Millisecond)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "file"), nil, 0o600))
	stat, err := statAt(unix.AT_FDCWD, root)
	require.NoError(t, err)

	files := &layer{root: root, since: since, device: device(&stat), copies: true, marks: true}
	require.NoError(t, files.clear(t.Context()))
	require.NoFileExists(t, filepath.Join(dir, "file"))
	require.DirExists(t, filepath.Dir(dir), "it is older")
}

// What is left is named, with the first of it.
func TestLayer_JOB5_SaysWhatIsLeft(t *testing.T) {
	root := t.TempDir()
	since := clock(unix.CLOCK_REALTIME_COARSE)
	at, err := unix.Open(root, unix.O_DIRECTORY|unix.O_RDONLY|unix.O_CLOEXEC, 0)
	require.NoError(t, err)
	for range clearDepth + 2 { // the path is longer than the kernel takes
		require.NoError(t, unix.Mkdirat(at, "directory", 0o700))
		below, err := unix.Openat(at, "directory", unix.O_DIRECTORY|unix.O_RDONLY|unix.O_CLOEXEC, 0)
		require.NoError(t, errors.Join(err, unix.Close(at)))
		at = below
	}
	require.NoError(t, unix.Close(at))
	stat, err := statAt(unix.AT_FDCWD, root)
	require.NoError(t, err)
	files := &layer{root: root, since: since, device: device(&stat), marks: true}
	err = files.clear(t.Context())
	require.ErrorContains(t, err, "1 files and directories could not be removed, the first: "+root)
	require.ErrorContains(t, err, "too many directories in each other")
}

// What a clock that was set back makes of the times of files is no way to keep them.
func TestLayer_JOB5_AClockThatIsSetBackKeepsNothing(t *testing.T) {
	now := startOfLayer()
	require.InDelta(t, now.stamp, now.since(), float64(time.Minute))
	behind := layerStart{stamp: now.stamp + time.Hour, boot: now.boot} // the clock was an hour ahead when the guard started
	require.InDelta(t, now.stamp, behind.since(), float64(time.Minute))
}
