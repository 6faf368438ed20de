package run

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// A runner that works elsewhere than in the volume of containers is refused before any of them starts, with what to do.
func TestCheckWorkDir_WantsTheVolumeThatContainersHave(t *testing.T) {
	c := newStandIn(t).call()
	root := t.TempDir()
	volume, elsewhere := filepath.Join(root, "home", "_work"), filepath.Join(root, "work", "_work")
	for _, dir := range []string{volume, elsewhere} {
		require.NoError(t, os.MkdirAll(dir, 0o755))
	}
	link := filepath.Join(root, "link")
	require.NoError(t, os.Symlink(volume, link))
	check := func(work string) error {
		c.Environ = []string{"RUNNER_TEMP=" + filepath.Join(work, "_temp")}
		return c.checkWorkDir()
	}
	require.NoError(t, check(elsewhere), "it is not known where the volume is")
	c.WorkVolume = filepath.Join(root, "gone")
	require.NoError(t, check(elsewhere))
	c.WorkVolume = volume
	require.NoError(t, check(volume))
	require.NoError(t, check(link))
	for _, work := range []string{elsewhere, filepath.Join(volume, "deeper"), filepath.Dir(volume)} {
		require.EqualError(t, check(work), "The runner's work directory is '"+work+"', and containers of jobs have '"+volume+"'. "+
			"An administrator must start the runners of this pool in '"+filepath.Dir(volume)+"'.")
	}
}
