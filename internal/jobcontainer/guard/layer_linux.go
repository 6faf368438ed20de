package guard

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// clearPatience bounds the time for removing a container's files. What is left then stays until the pod is deleted.
	clearPatience = 5 * time.Minute
	// clearDepth is the depth of directories that are searched; each needs an open file. Trees of packages have some tens.
	clearDepth = 500
	// clearMargin is how much earlier than the guard the container runtime may have made directories in the layer: mount points, and the working
	// directory.
	clearMargin = time.Minute
	// clearBatch is how many names of a directory are read at a time.
	clearBatch = 64
)

// layer is the writable layer of a container, whose files stay on the node until the pod is deleted. No limit counts them once the container has
// exited: the kubelet measures containers that run.
type layer struct {
	root string
	// since is when the container's processes began. What is older came with the image.
	since time.Duration // since 1970
	// device is the file system of root. Without marks, everything on another one belongs to a volume, or to the kubelet.
	device uint64
	// copies says that root is an overlay: a change below a directory of the image has then made a new one in its place, so one that is older
	// than the container has nothing new below it.
	copies bool
	// marks says that the kernel tells the roots of mounts from other files.
	marks bool
}

// layerStart is when the container's processes began, by two clocks.
type layerStart struct{ stamp, boot time.Duration }

func startOfLayer() layerStart {
	// The coarse clock is the one of which the kernel gives times to files.
	return layerStart{clock(unix.CLOCK_REALTIME_COARSE), clock(unix.CLOCK_BOOTTIME)}
}

func clock(id int32) time.Duration {
	var now unix.Timespec
	if err := unix.ClockGettime(id, &now); err != nil {
		return time.Duration(time.Now().UnixNano())
	}
	return time.Duration(now.Nano())
}

// since is the earliest time that a file of these processes may have, also if the node's clock was set back.
func (s layerStart) since() time.Duration {
	shifted := clock(unix.CLOCK_REALTIME_COARSE) - (clock(unix.CLOCK_BOOTTIME) - s.boot)
	if s.stamp-shifted > time.Second { // less is the grain of the coarse clock
		return shifted
	}
	return s.stamp
}

// openLayer opens the writable layer below root, where dir is a mount of the pod's. Its error says that nothing may be removed there.
func openLayer(root, dir string, since time.Duration) (*layer, error) {
	stat, err := statAt(unix.AT_FDCWD, root)
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", root, err)
	}
	l := &layer{root: root, since: since, device: device(&stat), marks: stat.Attributes_mask&unix.STATX_ATTR_MOUNT_ROOT != 0}
	var system unix.Statfs_t
	if err := unix.Statfs(root, &system); err != nil {
		return nil, fmt.Errorf("reading %s: %w", root, err)
	}
	l.copies = system.Type == unix.OVERLAYFS_SUPER_MAGIC
	mounted, err := statAt(unix.AT_FDCWD, dir)
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", dir, err)
	}
	if !l.foreign(&mounted) {
		return nil, fmt.Errorf("%s is no volume: this is not a container of a pod", dir)
	}
	if l.marks {
		return l, nil
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, fmt.Errorf("reading mounts: %w", err)
	}
	if path := sharing(mounts, root, l.device); path != "" {
		return nil, fmt.Errorf("this kernel does not tell the mount at %s from the container's own files", path)
	}
	return l, nil
}

// sharing returns the path of a mount on the device of the root's, in the text of proc_pid_mountinfo(5): ID parent major:minor root path ….
func sharing(mounts []byte, root string, device uint64) string {
	own := fmt.Sprintf("%d:%d", unix.Major(device), unix.Minor(device))
	for line := range bytes.Lines(mounts) {
		fields := strings.Fields(string(line))
		if len(fields) > 4 && fields[2] == own && fields[4] != root {
			return fields[4]
		}
	}
	return ""
}

// clear removes every file that was made or changed since the container's processes began. They must have ended. Files that cannot be
// removed, as in a directory of the image that belongs to another user, are emptied.
func (l *layer) clear(ctx context.Context) error {
	dir, err := openDir(unix.AT_FDCWD, l.root)
	if err != nil {
		return fmt.Errorf("reading %s: %w", l.root, err)
	}
	defer func() { _ = dir.Close() }()
	c := clearing{layer: l}
	c.clearDir(ctx, dir, l.root, 0)
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("removing files: %w", context.Cause(ctx))
	}
	if c.failed > 0 {
		return fmt.Errorf("%d files and directories could not be removed, the first: %w", c.failed, c.first)
	}
	return nil
}

// clearing is one call of clear.
type clearing struct {
	*layer
	failed int
	first  error
}

func (c *clearing) fail(path string, err error) {
	if c.failed++; c.first == nil {
		c.first = fmt.Errorf("%s: %w", bounded(path), err)
	}
}

// clearDir clears an open directory. Paths are for messages; names are resolved in the directory itself.
func (c *clearing) clearDir(ctx context.Context, dir *os.File, path string, depth int) {
	if depth > clearDepth {
		c.fail(path, errors.New("too many directories in each other"))
		return
	}
	for ctx.Err() == nil {
		names, err := dir.Readdirnames(clearBatch)
		if err != nil && !errors.Is(err, io.EOF) {
			c.fail(path, withoutPath(err))
		}
		if len(names) == 0 {
			return
		}
		for _, name := range names {
			c.clearEntry(ctx, dir, name, filepath.Join(path, name), depth)
		}
	}
}

func (c *clearing) clearEntry(ctx context.Context, dir *os.File, name, path string, depth int) {
	at := int(dir.Fd())
	stat, err := statAt(at, name)
	switch {
	case errors.Is(err, unix.ENOENT):
		return
	case err != nil:
		c.fail(path, err)
		return
	}
	isDir := stat.Mode&unix.S_IFMT == unix.S_IFDIR
	if c.mount(&stat) || isDir && !c.marks && device(&stat) != c.device {
		return
	}
	changed := changedAt(&stat) >= c.since
	if !isDir {
		if changed {
			c.remove(at, name, path, &stat)
		}
		return
	}
	if c.copies && depth > 0 && changedAt(&stat) < c.since-clearMargin {
		return
	}
	own := changed && int(stat.Uid) == os.Geteuid()
	below, err := openDir(at, name)
	switch {
	case errors.Is(err, unix.EACCES) && !own && !(changed && unix.Faccessat(at, name, unix.X_OK, 0) == nil):
		return // of the image, and without anything new: all processes had this user
	case err != nil:
		c.fail(path, err)
		return
	}
	if own {
		_ = below.Chmod(0o700) // it may deny its owner to remove what is in it
	}
	c.clearDir(ctx, below, path, depth+1)
	_ = below.Close()
	if changed {
		_ = unix.Unlinkat(at, name, unix.AT_REMOVEDIR) // one that is not empty stays: it is of the image, or its files have failed
	}
}

// remove removes a file, or empties it.
func (c *clearing) remove(at int, name, path string, stat *unix.Statx_t) {
	err := unix.Unlinkat(at, name, 0)
	if err == nil || errors.Is(err, unix.ENOENT) || errors.Is(err, unix.EBUSY) { // busy: a mount
		return
	}
	if stat.Blocks == 0 || !c.marks && device(stat) != c.device {
		return // it has no content, or it may be another mount's
	}
	if stat.Mode&unix.S_IFMT == unix.S_IFREG {
		err = emptyFile(at, name)
	}
	if err != nil {
		c.fail(path, err)
	}
}

// foreign reports whether a directory is not in the layer.
func (l *layer) foreign(stat *unix.Statx_t) bool { return device(stat) != l.device || l.mount(stat) }

func (l *layer) mount(stat *unix.Statx_t) bool {
	return l.marks && stat.Attributes&unix.STATX_ATTR_MOUNT_ROOT != 0
}

// emptyFile empties a regular file.
func emptyFile(at int, name string) error {
	fd, err := withAccess(at, name, unix.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(fd) }()
	return unix.Ftruncate(fd, 0) //nolint:wrapcheck // the caller adds the path
}

func openDir(at int, name string) (*os.File, error) {
	fd, err := withAccess(at, name, unix.O_RDONLY|unix.O_DIRECTORY, 0o700)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), name), nil
}

// withAccess opens a file, and changes its mode if that denies it to its owner.
func withAccess(at int, name string, flags int, mode uint32) (int, error) {
	flags |= unix.O_NOFOLLOW | unix.O_NONBLOCK | unix.O_CLOEXEC
	fd, err := unix.Openat(at, name, flags, 0)
	if errors.Is(err, unix.EACCES) && unix.Fchmodat(at, name, mode, 0) == nil {
		fd, err = unix.Openat(at, name, flags, 0)
	}
	return fd, err //nolint:wrapcheck // the caller adds the path
}

func statAt(at int, name string) (stat unix.Statx_t, err error) {
	err = unix.Statx(at, name, unix.AT_SYMLINK_NOFOLLOW|unix.AT_NO_AUTOMOUNT, unix.STATX_BASIC_STATS, &stat)
	return stat, err //nolint:wrapcheck // the caller adds the path
}

func device(stat *unix.Statx_t) uint64 { return unix.Mkdev(stat.Dev_major, stat.Dev_minor) }

func changedAt(stat *unix.Statx_t) time.Duration {
	return time.Duration(stat.Ctime.Sec)*time.Second + time.Duration(stat.Ctime.Nsec)
}
