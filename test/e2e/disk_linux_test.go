package e2e

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/test/kit/chaos"
)

// smallDisk puts a disk of its own under a state directory; nil where the test lacks the rights for it.
func smallDisk(t *testing.T, dir string) fullDisk {
	t.Helper()
	if os.Geteuid() != 0 {
		return nil
	}
	disk, err := chaos.NewDisk(dir, 1<<30)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, disk.Close()) }) // once everything in it has ended, before the directory is deleted
	return disk
}
