package jobcontainers

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/bullpen-ci/bullpen/internal/dev/netns"
)

// envMode makes the test binary the first process of a container.
const envMode = "BULLPEN_ROW_MODE"

func TestMain(m *testing.M) {
	if os.Getenv(envMode) == "enter" {
		fmt.Fprintln(os.Stderr, "entering a container:", enter(os.Stdin))
		os.Exit(125)
	}
	os.Exit(runTests(m))
}

// mount is a bind mount of a directory or a file.
type mount struct {
	Source, Target string
	ReadOnly       bool
}

// room is what a process of a container sees, and what it is.
type room struct {
	Root   string
	Mounts []mount
	Argv   []string
	Env    []string
	Dir    string
	User   int
	Group  int
	Groups []int // of the pod: fsGroup
	Stdin  []byte
}

// command is a process in a room, in namespaces of its own as the flags say. It is not started.
func (r room) command(flags uintptr) (*exec.Cmd, error) {
	text, err := json.Marshal(r)
	if err != nil {
		return nil, err
	}
	input, err := memory(text)
	if err != nil {
		return nil, err
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	command := exec.Command(self)
	command.Env = []string{envMode + "=enter"}
	command.Stdin = input
	command.SysProcAttr = &syscall.SysProcAttr{Cloneflags: flags | syscall.CLONE_NEWNS, Setpgid: true}
	return command, nil
}

// memory is a file that has no name, with a content.
func memory(content []byte) (*os.File, error) {
	fd, err := unix.MemfdCreate("room", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, os.NewSyscallError("memfd_create", err)
	}
	file := os.NewFile(uintptr(fd), "room")
	if _, err := file.Write(content); err != nil {
		return nil, err
	}
	_, err = file.Seek(0, io.SeekStart)
	return file, err
}

// startIn starts a command within a network namespace.
func startIn(network string, command *exec.Cmd) error {
	return netns.Within(network, command.Start)
}

// enter makes the mounts, and becomes the process.
func enter(input io.Reader) error {
	var r room
	if err := json.NewDecoder(input).Decode(&r); err != nil {
		return err
	}
	stdin, err := memory(r.Stdin)
	if err != nil {
		return err
	}
	if err := errors.Join(unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""), unix.Mount(r.Root, r.Root, "", unix.MS_BIND, "")); err != nil {
		return err
	}
	for _, m := range r.Mounts {
		if err := m.make(r.Root); err != nil {
			return fmt.Errorf("mounting %s: %w", m.Target, err)
		}
	}
	if err := unix.Mount("proc", filepath.Join(r.Root, "proc"), "proc", 0, ""); err != nil {
		return fmt.Errorf("mounting /proc: %w", err)
	}
	if err := errors.Join(unix.Chroot(r.Root), os.Chdir(r.Dir)); err != nil {
		return err
	}
	unix.Umask(0o022)
	if r.User != 0 {
		if err := errors.Join(syscall.Setgroups(r.Groups), syscall.Setgid(r.Group), syscall.Setuid(r.User)); err != nil {
			return err
		}
	}
	if err := unix.Dup2(int(stdin.Fd()), 0); err != nil {
		return err
	}
	return syscall.Exec(r.Argv[0], r.Argv, r.Env)
}

func (m mount) make(root string) error {
	target := filepath.Join(root, m.Target)
	info, err := os.Stat(m.Source)
	if err != nil {
		return err
	}
	if info.IsDir() {
		err = os.MkdirAll(target, 0o755)
	} else if err = os.MkdirAll(filepath.Dir(target), 0o755); err == nil {
		var file *os.File
		if file, err = os.OpenFile(target, os.O_CREATE|os.O_RDONLY, 0o644); err == nil {
			err = file.Close()
		}
	}
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	if err := unix.Mount(m.Source, target, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
		return err
	}
	if !m.ReadOnly {
		return nil
	}
	return unix.Mount("", target, "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY, "")
}
