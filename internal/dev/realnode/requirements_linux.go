package realnode

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// ErrUnsupported reports that this machine cannot run a node. The message around it says what is missing and what to do.
var ErrUnsupported = errors.New("this machine cannot run a Kubernetes node")

// cniDirs are where distributions and the project itself put CNI plug-ins.
func cniDirs() []string { return []string{"/usr/lib/cni", "/opt/cni/bin", "/usr/libexec/cni"} }

// probe is what requirements ask the machine. Tests put their own here.
type probe struct {
	euid     int
	look     func(program string) error
	exists   func(path string) bool
	read     func(path string) string
	mayMount func() error
}

func theMachine() probe {
	return probe{
		euid:   os.Geteuid(),
		look:   func(program string) error { _, err := exec.LookPath(program); return err },
		exists: func(path string) bool { _, err := os.Stat(path); return err == nil },
		read: func(path string) string {
			data, _ := os.ReadFile(path) // what cannot be read has nothing in it
			return string(data)
		},
		mayMount: mayMount,
	}
}

// CheckMachine reports everything that this machine lacks for a node, a line each. The error is ErrUnsupported.
func CheckMachine() error { return theMachine().check() }

func (p probe) check() error {
	if p.euid != 0 {
		return fmt.Errorf("%w: it needs root: run this as root, or with sudo", ErrUnsupported)
	}
	var lacks []string
	if err := p.mayMount(); err != nil {
		lacks = append(lacks, fmt.Sprintf("root may not mount here (%v): in a container, start that with --privileged", err))
	}
	if !strings.Contains(p.read("/proc/filesystems"), "\toverlay\n") {
		lacks = append(lacks, "the kernel has no overlayfs: load it with `modprobe overlay`")
	}
	lacks = append(lacks, p.controllers()...)
	if missing := p.programs(); len(missing) > 0 {
		lacks = append(lacks, fmt.Sprintf("programs are missing: %s (scripts/prerequisites.sh node installs Debian's)", strings.Join(missing, ", ")))
	}
	if p.plugins() == "" {
		lacks = append(lacks, fmt.Sprintf("CNI plug-ins are in none of %s: install Debian's package containernetworking-plugins", strings.Join(cniDirs(), ", ")))
	}
	switch len(lacks) {
	case 0:
		return nil
	case 1:
		return fmt.Errorf("%w: %s", ErrUnsupported, lacks[0])
	}
	return fmt.Errorf("%w:\n  %s", ErrUnsupported, strings.Join(lacks, "\n  "))
}

// controllers that the kubelet and runc account and limit pods with.
func (p probe) controllers() []string {
	has := func(name string) bool { return p.exists(filepath.Join(cgroupMount, name)) }
	if p.unified() {
		listed := strings.Fields(p.read(filepath.Join(cgroupMount, "cgroup.controllers")))
		has = func(name string) bool { return slices.Contains(listed, name) }
	}
	var missing []string
	for _, name := range []string{"cpu", "cpuset", "memory", "pids"} {
		if !has(name) {
			missing = append(missing, name)
		}
	}
	if len(missing) == 0 {
		return nil
	}
	return []string{fmt.Sprintf("cgroup controllers are missing: %s (the kernel's command line enables memory with cgroup_enable=memory)", strings.Join(missing, ", "))}
}

// unified indicates cgroup v2 alone.
func (p probe) unified() bool { return p.exists(filepath.Join(cgroupMount, "cgroup.controllers")) }

func (p probe) programs() []string {
	var missing []string
	for _, name := range []string{"nsenter", "mount", "umount", "iptables", "ip6tables", "iptables-save", "iptables-restore", "ipset", "nft", "conntrack"} {
		if p.look(name) != nil {
			missing = append(missing, name)
		}
	}
	return missing
}

// plugins is the directory that has the CNI plug-ins, or empty.
func (p probe) plugins() string {
	for _, dir := range cniDirs() {
		if p.exists(filepath.Join(dir, "bridge")) && p.exists(filepath.Join(dir, "host-local")) && p.exists(filepath.Join(dir, "portmap")) && p.exists(filepath.Join(dir, "loopback")) {
			return dir
		}
	}
	return ""
}

func mayMount() error {
	return withMounts(func() error { return unix.Mount("tmpfs", "/tmp", "tmpfs", 0, "size=4k") })
}

// CheckStateDir reports a directory on which containerd cannot make an image's file system, such as one in a container whose root is an
// overlay itself. The directory need not exist yet. The error is ErrUnsupported.
func CheckStateDir(dir string) error {
	at, err := filepath.Abs(dir)
	if err != nil {
		return fmt.Errorf("resolving the state directory: %w", err)
	}
	for !isDir(at) && at != "/" {
		at = filepath.Dir(at)
	}
	trial, err := os.MkdirTemp(at, ".overlay-")
	if err != nil {
		return fmt.Errorf("making the cluster's directory: %w", err)
	}
	defer os.RemoveAll(trial)
	for _, name := range []string{"lower", "upper", "work", "merged"} {
		if err := os.Mkdir(filepath.Join(trial, name), 0o700); err != nil {
			return fmt.Errorf("making the cluster's directory: %w", err)
		}
	}
	in := func(name string) string { return filepath.Join(trial, name) }
	err = withMounts(func() error {
		return unix.Mount("overlay", in("merged"), "overlay", 0, "lowerdir="+in("lower")+",upperdir="+in("upper")+",workdir="+in("work"))
	})
	if err != nil {
		return fmt.Errorf("%w: no overlay can be mounted in %s (%w): choose a state directory on ext4 or xfs, not on another overlay", ErrUnsupported, dir, err)
	}
	return nil
}

func isDir(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

// withMounts runs do in a mount namespace of a thread that ends: what it mounts is seen by no other.
func withMounts(do func() error) error {
	result := make(chan error, 1)
	go func() {
		// The thread is not unlocked: it ends with its goroutine, and its namespace with it.
		runtime.LockOSThread()
		if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
			result <- os.NewSyscallError("unshare", err)
			return
		}
		if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
			result <- os.NewSyscallError("mount", err)
			return
		}
		result <- os.NewSyscallError("mount", do())
	}()
	return <-result // bounded: it makes system calls alone
}
