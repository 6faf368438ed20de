package hosts

import (
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/test/kit/mactest"
)

// Step, file and remedy are named, existing files stay, and once the file system is writable the apply continues.
func TestApply_AReadOnlyDirectoryIsNamed(t *testing.T) {
	h := newHost(t)
	etc := h.Root.Path("/private/etc")
	if err := syscall.Mount(etc, etc, "", syscall.MS_BIND, ""); err != nil {
		t.Skipf("takes leave to mount: %v", err)
	}
	mounted := true
	unmount := func() {
		if mounted {
			require.NoError(t, syscall.Unmount(etc, syscall.MNT_DETACH))
		}
		mounted = false
	}
	t.Cleanup(unmount)
	require.NoError(t, syscall.Mount("", etc, "", syscall.MS_BIND|syscall.MS_REMOUNT|syscall.MS_RDONLY, ""))
	before := h.tree(volatile)["/private/etc/pf.conf"]
	done := h.apply("-o", "json")
	require.Equal(t, 1, done.state.ExitCode())
	require.Contains(t, done.stderr, "step sudo: /etc/sudoers.d/bullpen-ci:")
	require.Contains(t, done.stderr, "The file system is read-only")
	require.Contains(t, done.stdout, `"phase":"Failed"`)
	h.requireNotWorse()
	require.Equal(t, before, h.tree(volatile)["/private/etc/pf.conf"])
	unmount()
	h.converged()
}

func TestApply_AFullDiskIsReportedBeforeAnythingIsChanged(t *testing.T) {
	h := newHost(t, mactest.OnDisk(t, mactest.SmallDisk(t, "300m")))
	before := h.tree(volatile)
	done := h.apply("-o", "json")
	require.Equal(t, 1, done.state.ExitCode())
	require.Contains(t, done.stderr, "step preflight")
	require.Contains(t, done.stderr, "Free disk space")
	after := h.tree(volatile)
	for _, path := range []string{"/usr/local", "/usr/local/var", "/usr/local/var/bullpen"} { // of the lock
		delete(after, path)
		delete(before, path)
	}
	require.Equal(t, before, after)
}
