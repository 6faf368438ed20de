package realnode

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// able is a machine that can run a node, with cgroup v1.
func able() probe {
	return probe{
		euid: 0,
		look: func(string) error { return nil },
		exists: func(path string) bool {
			return path != cgroupMount+"/cgroup.controllers"
		},
		read:     func(string) string { return "nodev\tproc\nnodev\toverlay\n\text4\n" },
		mayMount: func() error { return nil },
	}
}

func TestCheckMachine_SaysEverythingThatIsMissing(t *testing.T) {
	require.NoError(t, able().check())
	for name, c := range map[string]struct {
		without func(*probe)
		want    []string
	}{
		"root":      {func(p *probe) { p.euid = 1000 }, []string{"it needs root", "sudo"}},
		"mount":     {func(p *probe) { p.mayMount = func() error { return errors.New("operation not permitted") } }, []string{"root may not mount here (operation not permitted)", "--privileged"}},
		"overlayfs": {func(p *probe) { p.read = func(string) string { return "nodev\tproc\n" } }, []string{"the kernel has no overlayfs", "modprobe overlay"}},
		"controllers": {func(p *probe) {
			exists := p.exists
			p.exists = func(path string) bool { return path != cgroupMount+"/memory" && exists(path) }
		}, []string{"cgroup controllers are missing: memory ("}},
		"controllers of cgroup v2": {func(p *probe) {
			read := p.read
			p.exists = func(string) bool { return true }
			p.read = func(path string) string {
				if path == cgroupMount+"/cgroup.controllers" {
					return "cpuset cpu io memory\n"
				}
				return read(path)
			}
		}, []string{"cgroup controllers are missing: pids ("}},
		"programs": {func(p *probe) {
			p.look = func(program string) error {
				if program == "ipset" || program == "nft" {
					return errors.New("not found")
				}
				return nil
			}
		}, []string{"programs are missing: ipset, nft (scripts/prerequisites.sh node"}},
		"CNI plug-ins": {func(p *probe) {
			exists := p.exists
			p.exists = func(path string) bool { return !strings.HasSuffix(path, "/portmap") && exists(path) }
		}, []string{"CNI plug-ins are in none of /usr/lib/cni", "containernetworking-plugins"}},
		"several": {func(p *probe) {
			p.read = func(string) string { return "" }
			p.mayMount = func() error { return errors.New("no") }
		}, []string{"root may not mount", "no overlayfs"}},
	} {
		t.Run(name, func(t *testing.T) {
			p := able()
			c.without(&p)
			err := p.check()
			require.ErrorIs(t, err, ErrUnsupported)
			for _, want := range c.want {
				require.ErrorContains(t, err, want)
			}
		})
	}
}

// An overlay cannot be the upper directory of another one.
func TestCheckStateDir_RefusesAnOverlay(t *testing.T) {
	requireMachine(t)
	require.NoError(t, CheckStateDir(t.TempDir()))
	base := t.TempDir()
	for _, name := range []string{"lower", "upper", "work", "merged"} {
		require.NoError(t, os.Mkdir(filepath.Join(base, name), 0o700))
	}
	merged := filepath.Join(base, "merged")
	require.NoError(t, unix.Mount("overlay", merged, "overlay", 0, "lowerdir="+base+"/lower,upperdir="+base+"/upper,workdir="+base+"/work"))
	defer func() { require.NoError(t, unix.Unmount(merged, unix.MNT_DETACH)) }()
	err := CheckStateDir(merged)
	require.ErrorIs(t, err, ErrUnsupported)
	require.ErrorContains(t, err, "choose a state directory on ext4 or xfs")
	left, err := os.ReadDir(merged)
	require.NoError(t, err)
	require.Empty(t, left)
}
