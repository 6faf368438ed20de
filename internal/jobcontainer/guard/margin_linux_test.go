package guard

import (
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

// What a clock that was set back makes of the times of files is no way to keep them.
func TestLayer_JOB5_AClockThatIsSetBackKeepsNothing(t *testing.T) {
	now := startOfLayer()
	require.InDelta(t, now.stamp, now.since(), float64(time.Minute))
	behind := layerStart{stamp: now.stamp + time.Hour, boot: now.boot} // the clock was an hour ahead when the guard started
	require.InDelta(t, now.stamp, behind.since(), float64(time.Minute))
}
