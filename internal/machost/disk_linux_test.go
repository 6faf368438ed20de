package machost_test

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/internal/machost"
)

// mount makes a small file system below the root.
func mount(t *testing.T, h machost.Local, path, options string) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("takes root: mounting")
	}
	dir := filepath.Join(h.Root, path)
	require.NoError(t, os.MkdirAll(dir, 0o755))
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, options); err != nil {
		t.Skipf("takes leave to mount: %v", err)
	}
	t.Cleanup(func() { require.NoError(t, syscall.Unmount(dir, syscall.MNT_DETACH)) })
}

func TestApply_AFullDiskLeavesTheFileAndSaysSo(t *testing.T) {
	b := newBench(t)
	mount(t, b.host, "/etc", "size=64k")
	require.NoError(t, b.host.WriteFile("/etc/pf.conf", strings.NewReader("old"), own(0o644)))
	err := b.host.WriteFile("/etc/pf.conf", strings.NewReader(strings.Repeat("new", 1<<16)), own(0o644))
	require.ErrorIs(t, err, syscall.ENOSPC)
	content, readErr := b.host.ReadFile("/etc/pf.conf")
	require.NoError(t, readErr)
	require.Equal(t, "old", string(content))
	require.Equal(t, []string{"pf.conf"}, names(t, b.host, "/etc"), "nothing is left beside it")

	one := b.step("egress")
	one.differs, one.failApply = true, err
	_, err = machost.Apply(t.Context(), b.options(one))
	require.ErrorContains(t, err, "step egress: /etc/pf.conf:")
	require.ErrorContains(t, err, "The disk is full: make room")
}

func TestApply_AReadOnlyFileSystemSaysSo(t *testing.T) {
	b := newBench(t)
	mount(t, b.host, "/usr/local/var", "size=64k")
	dir := filepath.Join(b.host.Root, "/usr/local/var")
	require.NoError(t, syscall.Mount("", dir, "", syscall.MS_REMOUNT|syscall.MS_RDONLY, ""))
	one := b.step("one")
	_, err := machost.Apply(t.Context(), b.options(one))
	require.ErrorIs(t, err, syscall.EROFS)
	var failed *machost.StepError
	require.ErrorAs(t, err, &failed)
	require.Contains(t, failed.Remedy, "read-only")
	require.Equal(t, machost.AppliedFile, failed.File)
	require.NotEqual(t, machost.PhaseDone, b.events[len(b.events)-1].Phase)

	require.ErrorIs(t, b.host.MakeDir(machost.StateDir, own(0o755)), syscall.EROFS)
	require.ErrorIs(t, b.host.Symlink("x", "/usr/local/var/x"), syscall.EROFS)
}
