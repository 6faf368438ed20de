package tart

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// adoptOrphans makes this process the parent of every descendant that loses its own.
func adoptOrphans() { _ = unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) }

// killChildren kills every child of this process, known or adopted.
func killChildren([]int) {
	self := os.Getpid()
	entries, _ := os.ReadDir("/proc") // none: nothing can be killed
	for _, e := range entries {
		if pid, err := strconv.Atoi(e.Name()); err == nil && parentOf(pid) == self {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	}
}

// parentOf reads the second field after the command's name, which may hold anything but ends at the last parenthesis.
func parentOf(pid int) int {
	stat, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	if err != nil {
		return 0
	}
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	if len(fields) < 2 {
		return 0
	}
	parent, _ := strconv.Atoi(fields[1])
	return parent
}

// guestAttributes are ways to start the guest's process, the best one first: with mounts of its own, so that what is shared
// read-only is; with those and a user namespace, for users other than root; plainly.
func guestAttributes() []*syscall.SysProcAttr {
	const session = true
	user := &syscall.SysProcAttr{
		Setsid: session, Cloneflags: unix.CLONE_NEWNS | unix.CLONE_NEWUSER,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: os.Getuid(), HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: os.Getgid(), HostID: os.Getgid(), Size: 1}},
	}
	return []*syscall.SysProcAttr{{Setsid: session, Cloneflags: unix.CLONE_NEWNS}, user, {Setsid: session}}
}

// ownMounts makes sure that mounts made here are seen by the guest alone. It fails where this process shares its mounts.
func ownMounts() error {
	own, err := os.Readlink("/proc/self/ns/mnt")
	if err != nil {
		return err
	}
	parents, err := os.Readlink(filepath.Join("/proc", strconv.Itoa(os.Getppid()), "ns", "mnt"))
	if err != nil {
		return err
	}
	if own == parents {
		return unix.EPERM
	}
	return unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, "")
}

// bindShare makes a directory visible in another place.
func bindShare(from, at string, readOnly bool) error {
	if err := unix.Mount(from, at, "", unix.MS_BIND, ""); err != nil {
		return err
	}
	if !readOnly {
		return nil
	}
	// In a user namespace the flags of the file system below may not be dropped.
	var below unix.Statfs_t
	if err := unix.Statfs(at, &below); err != nil {
		return err
	}
	kept := uintptr(below.Flags) & (unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC | unix.MS_NOATIME | unix.MS_NODIRATIME | unix.MS_RELATIME)
	if err := unix.Mount("", at, "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY|kept, ""); err != nil {
		_ = unix.Unmount(at, unix.MNT_DETACH) // a link takes its place
		return err
	}
	return nil
}
