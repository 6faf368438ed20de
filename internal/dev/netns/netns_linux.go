package netns

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"runtime"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// Ensure makes a network namespace that file keeps, unless it keeps one already: then it says false.
func Ensure(file string) (made bool, err error) {
	if Is(file) {
		return false, nil
	}
	// An existing file is left from before the machine was restarted: nothing is mounted on it.
	f, err := os.OpenFile(file, os.O_CREATE|os.O_RDONLY, 0o600)
	if err != nil {
		return false, err
	}
	if err := f.Close(); err != nil {
		return false, err
	}
	err = onThread(func() error {
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			return os.NewSyscallError("unshare", err)
		}
		own := fmt.Sprintf("/proc/self/task/%d/ns/net", unix.Gettid())
		return os.NewSyscallError("mount", unix.Mount(own, file, "", unix.MS_BIND, ""))
	})
	if err != nil {
		return false, errors.Join(err, os.Remove(file))
	}
	return true, nil
}

// Is reports whether a file keeps a namespace.
func Is(file string) bool {
	var st unix.Statfs_t
	return unix.Statfs(file, &st) == nil && st.Type == unix.NSFS_MAGIC
}

// Remove unmounts a namespace, which ends with its last process. It need not be there.
func Remove(file string) error {
	for Is(file) {
		if err := unix.Unmount(file, unix.MNT_DETACH); err != nil {
			return os.NewSyscallError("umount", err)
		}
	}
	if err := os.Remove(file); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// Within runs do in a namespace. do may open sockets, which stay in it; it must not leave its goroutine.
func Within(file string, do func() error) error {
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	return onThread(func() error {
		if err := unix.Setns(int(f.Fd()), unix.CLONE_NEWNET); err != nil {
			return os.NewSyscallError("setns", err)
		}
		return do()
	})
}

// onThread runs do on a thread of its own, whose network namespace do may change. A thread that cannot be brought back ends
// with its goroutine, so that no other goroutine runs on it.
func onThread(do func() error) error {
	result := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		home, err := os.Open(fmt.Sprintf("/proc/self/task/%d/ns/net", unix.Gettid()))
		if err != nil {
			runtime.UnlockOSThread()
			result <- err
			return
		}
		defer func() { _ = home.Close() }()
		err = do()
		if unix.Setns(int(home.Fd()), unix.CLONE_NEWNET) == nil {
			runtime.UnlockOSThread()
		}
		result <- err
	}()
	return <-result
}

// WithHandle speaks netlink in a namespace.
func WithHandle(file string, do func(*netlink.Handle) error) error {
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	handle, err := netlink.NewHandleAt(netns.NsHandle(f.Fd()), unix.NETLINK_ROUTE)
	if err != nil {
		return fmt.Errorf("opening netlink: %w", err)
	}
	defer handle.Close()
	return do(handle)
}
