package process

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/bullpen-ci/bullpen/internal/node/sandbox"
)

const canEnclose = true

// RunEnter is the body of the process between the shim and a container with an enclosure: it enters the pod's network, makes
// the container's root, becomes its user, and then becomes its program. With a command it becomes that, in the network and the
// root that the container's main process has. It returns only with an error. It must be the only thing that its process does.
func RunEnter(dir string, command []string) error {
	err := enter(dir, command)
	if len(command) == 0 {
		_, _ = unix.Write(fdEntered, []byte(err.Error())) // the shim records it
	}
	return err
}

func enter(dir string, command []string) error {
	// Namespaces belong to threads; the one that calls exec is the one that remains.
	runtime.LockOSThread()
	c := container{dir: dir}
	var s spec
	if found, err := readJSON(c.path(fileSpec), &s); err != nil || !found || s.Inside == nil {
		return fmt.Errorf("reading the container's specification in %s: found=%t: %w", dir, found, err)
	}
	in := s.Inside
	if len(command) == 0 {
		command = in.Args
		unix.CloseOnExec(fdEntered)
		if err := in.enterNetwork(); err != nil {
			return fmt.Errorf("entering the pod's network: %w", err)
		}
		if err := in.makeRoot(dir, s.Mounts); err != nil {
			return fmt.Errorf("making the container's root: %w", err)
		}
	} else if err := join(c, s); err != nil {
		return fmt.Errorf("joining the container: %w", err)
	}
	if err := in.become(); err != nil {
		return fmt.Errorf("becoming user %d: %w", in.Security.User, err)
	}
	s.Dir = in.Dir
	if s.Dir == "" {
		s.Dir = "/"
	}
	if err := os.Chdir(s.Dir); err != nil {
		return err
	}
	program, err := lookPath(command[0], s)
	if err != nil {
		return err
	}
	return fmt.Errorf("starting %s: %w", program, unix.Exec(program, command, os.Environ()))
}

// join enters the namespaces of the container's main process. The process is recognized by the container's mark, and its directory in /proc
// is opened before the mark is read: if its id has been reused for another process, nothing is joined.
func join(c container, s spec) error {
	begun, err := c.begun()
	if err != nil {
		return err
	}
	process, err := unix.Open(procFile(begun.PID, ""), unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return os.NewSyscallError("open", err)
	}
	environ, err := readAt(process, "environ")
	if err != nil {
		return err
	}
	mark := s.Env[slices.IndexFunc(s.Env, func(e string) bool { return strings.HasPrefix(e, envMark+"=") })]
	if !slices.Contains(strings.Split(string(environ), "\x00"), mark) {
		return sandbox.ErrNotRunning
	}
	// A thread that shares its idea of the root with others may not change it.
	if err := unix.Unshare(unix.CLONE_FS); err != nil {
		return os.NewSyscallError("unshare", err)
	}
	// The root comes last: the others are named by the machine's.
	for _, kind := range []struct {
		name string
		flag int
	}{{"net", unix.CLONE_NEWNET}, {"uts", unix.CLONE_NEWUTS}, {"mnt", unix.CLONE_NEWNS}} {
		namespace, err := unix.Openat(process, "ns/"+kind.name, unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			return os.NewSyscallError("openat", err)
		}
		if err := unix.Setns(namespace, kind.flag); err != nil {
			return os.NewSyscallError("setns", err)
		}
	}
	return nil
}

func readAt(dir int, name string) ([]byte, error) {
	fd, err := unix.Openat(dir, name, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, os.NewSyscallError("openat", err)
	}
	file := os.NewFile(uintptr(fd), name)
	defer func() { _ = file.Close() }()
	return io.ReadAll(file)
}

func (in *inside) enterNetwork() error {
	namespace, err := os.Open(in.Namespace)
	if err != nil {
		return err
	}
	defer func() { _ = namespace.Close() }()
	if err := unix.Setns(int(namespace.Fd()), unix.CLONE_NEWNET); err != nil {
		return os.NewSyscallError("setns", err)
	}
	if err := unix.Unshare(unix.CLONE_NEWNS | unix.CLONE_NEWUTS); err != nil {
		return os.NewSyscallError("unshare", err)
	}
	return os.NewSyscallError("sethostname", unix.Sethostname([]byte(in.Hostname)))
}

// oldRoot is where the machine's root is while the container's is being made.
const oldRoot = "/.machine"

// makeRoot puts a layer to write into, which lives in memory, over the image's files, and the volumes where
// they belong. All of it is seen by this process and its children alone, and goes with them.
func (in *inside) makeRoot(dir string, mounts []sandbox.Mount) error {
	if err := mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return err
	}
	scratch := filepath.Join(dir, "root")
	if err := os.Mkdir(scratch, 0o700); err != nil {
		return err
	}
	if err := mount("tmpfs", scratch, "tmpfs", 0, "mode=0755"); err != nil {
		return err
	}
	upper, work, root := filepath.Join(scratch, "upper"), filepath.Join(scratch, "work"), filepath.Join(scratch, "merged")
	for _, made := range []string{upper, work, root} {
		if err := os.Mkdir(made, 0o755); err != nil {
			return err
		}
	}
	options := "lowerdir=" + in.Image + ",upperdir=" + upper + ",workdir=" + work
	if err := mount("overlay", root, "overlay", 0, options); err != nil {
		return err
	}
	if err := in.writeFiles(root); err != nil {
		return err
	}
	if err := os.MkdirAll(root+oldRoot, 0o700); err != nil {
		return err
	}
	if err := unix.PivotRoot(root, root+oldRoot); err != nil {
		return os.NewSyscallError("pivot_root", err)
	}
	if err := os.Chdir("/"); err != nil {
		return err
	}
	if err := bind(sandbox.Mount{HostPath: "/proc", MountPath: "/proc"}); err != nil {
		return err
	}
	if err := makeDevices(); err != nil {
		return err
	}
	if err := bindAll(mounts); err != nil {
		return err
	}
	if in.Dir != "" { // a container runtime creates it, too
		if err := os.MkdirAll(in.Dir, 0o755); err != nil {
			return err
		}
	}
	if err := unix.Unmount(oldRoot, unix.MNT_DETACH); err != nil {
		return os.NewSyscallError("umount", err)
	}
	if err := os.Remove(oldRoot); err != nil {
		return err
	}
	if in.Security.ReadOnlyRoot {
		return mount("", "/", "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY, "")
	}
	return nil
}

// writeFiles replaces files of the image. A link in their place is not followed: it would lead out of the root.
func (in *inside) writeFiles(root string) error {
	for path, content := range in.Files {
		path = filepath.Join(root, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil { //nolint:gosec // what every program of the container reads
			return err
		}
	}
	return nil
}

// bindAll mounts what is inside another mount after it, and makes mounts read-only when all are in their places.
func bindAll(mounts []sandbox.Mount) error {
	mounts = slices.Clone(mounts)
	slices.SortStableFunc(mounts, func(a, b sandbox.Mount) int { return strings.Count(a.MountPath, "/") - strings.Count(b.MountPath, "/") })
	for _, m := range mounts {
		if err := bind(m); err != nil {
			return err
		}
	}
	for _, m := range mounts {
		if !m.ReadOnly {
			continue
		}
		if err := mount("", m.MountPath, "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY, ""); err != nil {
			return err
		}
	}
	return nil
}

// makeDevices makes a /dev of the container's own, with the devices and terminals of the machine that every container has.
func makeDevices() error {
	if err := os.MkdirAll("/dev", 0o755); err != nil {
		return err
	}
	if err := mount("tmpfs", "/dev", "tmpfs", unix.MS_NOSUID, "mode=0755"); err != nil {
		return err
	}
	for _, name := range []string{"null", "zero", "full", "random", "urandom", "tty", "ptmx", "pts"} {
		if err := bind(sandbox.Mount{HostPath: "/dev/" + name, MountPath: "/dev/" + name}); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	for name, target := range map[string]string{"fd": "/proc/self/fd", "stdin": "/proc/self/fd/0", "stdout": "/proc/self/fd/1", "stderr": "/proc/self/fd/2"} {
		if err := os.Symlink(target, "/dev/"+name); err != nil {
			return err
		}
	}
	if err := os.Mkdir("/dev/shm", 0o755); err != nil {
		return err
	}
	return mount("tmpfs", "/dev/shm", "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=1777")
}

// bind makes a directory or file of the machine visible in the root. Links on the way are those of the container's root.
func bind(m sandbox.Mount) error {
	from := oldRoot + m.HostPath
	info, err := os.Stat(from)
	if err != nil {
		return err
	}
	if info.IsDir() {
		err = os.MkdirAll(m.MountPath, 0o755)
	} else {
		var file *os.File
		if err = os.MkdirAll(filepath.Dir(m.MountPath), 0o755); err == nil {
			file, err = os.OpenFile(m.MountPath, os.O_CREATE|os.O_RDONLY, 0o644) //nolint:gosec // only a place to mount on
		}
		if err == nil {
			err = file.Close()
		}
	}
	if err != nil {
		return err
	}
	return mount(from, m.MountPath, "", unix.MS_BIND|unix.MS_REC, "")
}

func mount(source, target, kind string, flags uintptr, data string) error {
	if err := unix.Mount(source, target, kind, flags, data); err != nil {
		return fmt.Errorf("mounting %s: %w", target, err)
	}
	return nil
}

// become gives up root for the container's user, and with it every capability.
func (in *inside) become() error {
	s := in.Security
	groups := make([]int, 0, len(s.Groups))
	for _, g := range s.Groups {
		groups = append(groups, int(g))
	}
	if err := unix.Setgroups(groups); err != nil {
		return os.NewSyscallError("setgroups", err)
	}
	if err := unix.Setresgid(int(s.Group), int(s.Group), int(s.Group)); err != nil {
		return os.NewSyscallError("setresgid", err)
	}
	if err := unix.Setresuid(int(s.User), int(s.User), int(s.User)); err != nil {
		return os.NewSyscallError("setresuid", err)
	}
	if s.NoNewPrivileges {
		return os.NewSyscallError("prctl", unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
	}
	return nil
}
