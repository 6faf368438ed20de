//go:build unix

package tart

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// place is a TART_HOME: what Tart itself keeps there, and the fake's own state in a directory that Tart ignores.
type place string

func (p place) vms() string    { return filepath.Join(string(p), "vms") }
func (p place) images() string { return filepath.Join(string(p), "cache", "OCIs") }
func (p place) tmp() string    { return filepath.Join(string(p), "tmp") }

func (p place) vm(name string) vmDir { return vmDir(filepath.Join(p.vms(), name)) }

func (p place) state() string       { return filepath.Join(string(p), ".faketart") }
func (p place) fired() string       { return filepath.Join(p.state(), "fired") }
func (p place) restored() string    { return filepath.Join(p.state(), "session-restored") }
func (p place) slots() string       { return filepath.Join(p.state(), "slots") }
func (p place) guests() string      { return filepath.Join(p.state(), "guests") }
func (p place) logins() string      { return filepath.Join(p.state(), "logins") }
func (p place) calls() string       { return filepath.Join(p.state(), "calls") }
func (p place) kernelLock() string  { return filepath.Join(p.state(), "kernel.lock") }
func (p place) counterLock() string { return filepath.Join(p.state(), "counter.lock") }

func (p place) make() error {
	for _, dir := range []string{p.vms(), p.images(), p.tmp(), p.fired(), p.slots(), p.guests(), p.logins()} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return err
		}
	}
	return nil
}

// lockFile waits for an exclusive flock of a file or directory. waiting, if set, is called before that when another process
// has it.
func lockFile(ctx context.Context, path string, waiting func()) (*os.File, error) {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		f, err = os.OpenFile(path, os.O_CREATE|os.O_RDONLY, 0o600)
	}
	if err != nil {
		return nil, err
	}
	err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		if waiting != nil {
			waiting()
		}
		for err = unix.EINTR; errors.Is(err, unix.EINTR) && ctx.Err() == nil; {
			err = unix.Flock(int(f.Fd()), unix.LOCK_EX)
		}
	}
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("locking %s: %w", path, err)
	}
	return f, nil
}

// record is the lock by which a process shows that it runs a VM: unlike a flock it tells others the holder's PID.
func record(kind int16) *unix.Flock_t {
	return &unix.Flock_t{Type: kind, Whence: 0, Start: 0, Len: 0}
}

// holder is the PID of the process that holds the record lock of the file, 0 if there is none.
func holder(path string) (int, error) {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	asked := record(unix.F_WRLCK)
	if err := unix.FcntlFlock(f.Fd(), unix.F_GETLK, asked); err != nil {
		return 0, err
	}
	if asked.Type == unix.F_UNLCK {
		return 0, nil
	}
	return int(asked.Pid), nil
}

// takeRecord holds the record lock of the file for as long as this process lives and closes no other descriptor of it.
func takeRecord(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	if err := unix.FcntlFlock(f.Fd(), unix.F_SETLK, record(unix.F_WRLCK)); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// slot is one of the kernel's slots for macOS VMs (Tart 4.4): the third VM is refused. A ghost's slot is free again only after Reboot. The
// slot is released when this process ends, for any reason.
func (p place) slot(ctx context.Context, s Script, ghost bool) (*os.File, error) {
	lock, err := lockFile(ctx, p.kernelLock(), nil)
	if err != nil {
		return nil, err
	}
	defer lock.Close()
	occupied, free := s.GhostSlots+s.OtherMachines, -1
	for i := range s.VMLimit {
		pid, err := holder(p.slotFile(i))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		if _, err := os.Stat(p.slotFile(i) + ghostSuffix); pid != 0 || err == nil {
			occupied++
		} else if free < 0 {
			free = i
		}
	}
	if occupied >= s.VMLimit || free < 0 {
		return nil, p.limit()
	}
	if ghost {
		if err := os.WriteFile(p.slotFile(free)+ghostSuffix, nil, 0o600); err != nil {
			return nil, err
		}
	}
	return takeRecord(p.slotFile(free))
}

const ghostSuffix = ".ghost"

func (p place) slotFile(i int) string { return filepath.Join(p.slots(), strconv.Itoa(i)) }

// limit is the message for a host that is full. It lists the VMs that Tart knows to run, if it knows any (Tart 4.3).
func (p place) limit() error {
	var others []string
	dirs, _ := os.ReadDir(p.vms())
	for _, f := range dirs {
		if pid, err := holder(p.vm(f.Name()).config()); err == nil && pid != 0 && pid != os.Getpid() {
			others = append(others, f.Name())
		}
	}
	hint := ""
	if len(others) > 0 {
		hint = " (other running VMs: " + strings.Join(others, ", ") + ")"
	}
	return failed(codeFailed, "%s%s", Messages["limit"].Text, hint)
}

// Reboot forgets ghost slots, as restarting the Mac does.
func Reboot(home string) error {
	ghosts, err := filepath.Glob(filepath.Join(place(home).slots(), "*"+ghostSuffix))
	if err != nil {
		return err
	}
	for _, path := range ghosts {
		if err := os.Remove(path); err != nil {
			return err
		}
	}
	return nil
}

// reserve makes a directory that is not collected for as long as the file is open, here or in a child.
func reserve(ctx context.Context, parent, pattern string) (string, *os.File, error) {
	making, err := lockFile(ctx, parent, nil) // no collection runs in between: the directory has no lock when it is made
	if err != nil {
		return "", nil, err
	}
	defer making.Close()
	dir, err := os.MkdirTemp(parent, pattern)
	if err != nil {
		return "", nil, err
	}
	lock, err := lockFile(ctx, dir, nil)
	return dir, lock, err
}

// collect removes what dead commands and dead VMs left in a directory: entries without a lock (Tart 4.2).
func collect(parent string) {
	dir, err := os.Open(parent)
	if err != nil {
		return
	}
	defer dir.Close()
	if unix.Flock(int(dir.Fd()), unix.LOCK_EX|unix.LOCK_NB) != nil {
		return // what cannot be collected now is by a later command
	}
	entries, _ := os.ReadDir(parent) // as above
	for _, e := range entries {
		path := filepath.Join(parent, e.Name())
		f, err := os.Open(path)
		if err != nil {
			continue
		}
		if unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) == nil {
			_ = os.RemoveAll(path)
		}
		f.Close()
	}
}
