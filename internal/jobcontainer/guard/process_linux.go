package guard

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/bullpen-ci/bullpen/internal/jobcontainer/guard/wire"
)

// Exit codes of commands that were not started, as shells and Docker have them.
const (
	exitNotExecutable = 126
	exitNotFound      = 127
	exitSignal        = 128 // + signal
)

// defaultPath is Docker's PATH of a container whose image sets none.
const defaultPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// maxFile bounds the files of the image that the guard reads, in bytes.
const maxFile = 4 << 20

// prepared is a process that can be started.
type prepared struct {
	path string
	argv []string
	attr syscall.ProcAttr
}

// notStarted is a command that could not be started: an exit of the process, and no failure of the guard.
type notStarted struct {
	exit   wire.Exit
	denied *wire.Denied // if the reason is the user's number
}

func (n *notStarted) Error() string { return n.exit.Text }

func cannotStart(code int, format string, args ...any) error {
	return &notStarted{exit: wire.Exit{Code: code, Text: bounded(fmt.Sprintf(format, args...))}}
}

// bounded cuts a text that quotes what a client has sent.
func bounded(text string) string {
	if len(text) <= maxText {
		return text
	}
	return text[:maxText] + "…"
}

// prepare resolves a process's user, directory and program. The error is a *notStarted.
func (g *guard) prepare(p *wire.Process) (*prepared, error) {
	user, credential, err := g.user(p.User)
	if err != nil {
		return nil, err
	}
	env := withDefaults(p.Env, user)
	dir := p.Dir
	if dir == "" {
		dir = "/"
	}
	if p.MakeDir {
		err := g.writing(func() error { return os.MkdirAll(dir, 0o755) }) //nolint:gosec // a directory of the image, as Docker makes it
		if err != nil {
			return nil, cannotStart(exitNotExecutable, "creating working directory %s: %v", dir, withoutPath(err))
		}
	}
	switch info, err := os.Stat(dir); {
	case err != nil:
		return nil, cannotStart(exitNotExecutable, "working directory %s: %v", dir, withoutPath(err))
	case !info.IsDir():
		return nil, cannotStart(exitNotExecutable, "working directory %s: it is not a directory", dir)
	}
	program, err := lookPath(p.Argv[0], dir, env)
	if err != nil {
		return nil, err
	}
	ready := &prepared{path: program, argv: p.Argv, attr: syscall.ProcAttr{
		Dir: dir, Env: env, Sys: &syscall.SysProcAttr{Setsid: true, Credential: credential},
	}}
	if p.Nofile != nil {
		self, err := os.Executable()
		if err != nil {
			return nil, cannotStart(exitNotExecutable, "setting --ulimit nofile: %v", err)
		}
		ready.path, ready.argv = self, limitArgv(self, *p.Nofile, program, p.Argv)
	}
	return ready, nil
}

// user resolves a user in the container's files. The credential is nil for the guard's own user, who has its groups already.
func (g *guard) user(spec string) (account, *syscall.Credential, error) {
	uid, gid := uint32(os.Geteuid()), uint32(os.Getegid()) //nolint:gosec // they are not negative on Linux
	if spec == "" {
		spec = strconv.Itoa(int(uid))
	}
	passwd, err := readImageFile("/etc/passwd")
	if err != nil {
		return account{}, nil, err
	}
	group, err := readImageFile("/etc/group")
	if err != nil {
		return account{}, nil, err
	}
	user, err := findAccount(spec, passwd, group)
	switch {
	case err != nil:
		return account{}, nil, cannotStart(exitNotExecutable, "%v", err)
	case user.uid == uid && (user.gid == gid || uid != 0 && !strings.Contains(spec, ":")): // the pod sets its group, not the image
		return user, nil, nil
	case uid != 0:
		text := fmt.Sprintf("the container runs as user %d and cannot start a process as user %q: this pool permits no other user", uid, spec)
		denied := &notStarted{exit: wire.Exit{Code: exitNotExecutable, Text: bounded(text)}}
		if user.uid != uid {
			denied.denied = &wire.Denied{UID: user.uid, Own: uid}
		}
		return account{}, nil, denied
	}
	groups := user.groups
	if shared, found := g.volumeGroup(); found && !slices.Contains(groups, shared) {
		groups = append(slices.Clone(groups), shared)
	}
	return user, &syscall.Credential{Uid: user.uid, Gid: user.gid, Groups: groups}, nil
}

// volumeGroup is the pod's fsGroup, by which the files of its volumes can be written: the kubelet gives it to the containers and sets it on
// the volumes' directories, with the set-group-ID bit.
func (g *guard) volumeGroup() (uint32, bool) {
	var stat unix.Stat_t
	if err := unix.Stat(g.dir, &stat); err != nil || stat.Mode&unix.S_ISGID == 0 {
		return 0, false
	}
	return stat.Gid, true
}

// readImageFile reads a small file of the image, which may be anything. A missing one is empty. The error is a *notStarted.
func readImageFile(path string) ([]byte, error) {
	file, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0) // a pipe must not hold the guard up
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, cannotStart(exitNotExecutable, "reading %s of the image: %v", path, withoutPath(err))
	}
	defer func() { _ = file.Close() }()
	info, err := file.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = errors.New("it is not a regular file")
	}
	var content []byte
	if err == nil {
		content, err = io.ReadAll(io.LimitReader(file, maxFile+1))
	}
	if err == nil && len(content) > maxFile {
		err = fmt.Errorf("it is larger than %d bytes", maxFile)
	}
	if err != nil {
		return nil, cannotStart(exitNotExecutable, "reading %s of the image: %v", path, withoutPath(err))
	}
	return content, nil
}

// withDefaults adds the variables that Docker sets in a container.
func withDefaults(env []string, user account) []string {
	env = slices.Clone(env)
	if _, set := lookupEnv(env, "PATH"); !set {
		env = append(env, "PATH="+defaultPath)
	}
	if _, set := lookupEnv(env, "HOME"); !set {
		env = append(env, "HOME="+user.home)
	}
	if _, set := lookupEnv(env, "HOSTNAME"); !set {
		if name, err := os.Hostname(); err == nil {
			env = append(env, "HOSTNAME="+name)
		}
	}
	return env
}

// lookupEnv finds the last value of a variable, which is the one that counts.
func lookupEnv(env []string, name string) (value string, found bool) {
	for _, entry := range env {
		if v, ok := strings.CutPrefix(entry, name+"="); ok {
			value, found = v, true
		}
	}
	return value, found
}

// lookPath finds a program as a shell does. The error is a *notStarted.
func lookPath(name, dir string, env []string) (string, error) {
	if strings.Contains(name, "/") {
		path := name
		if !filepath.IsAbs(path) {
			path = filepath.Join(dir, path)
		}
		if found, executable := isProgram(path); !found {
			return "", cannotStart(exitNotFound, "%s: command not found", name)
		} else if !executable {
			return "", cannotStart(exitNotExecutable, "%s: it is not an executable file", name)
		}
		return path, nil
	}
	list, _ := lookupEnv(env, "PATH")
	plain := ""
	for _, element := range filepath.SplitList(list) {
		path := filepath.Join(element, name)
		if !filepath.IsAbs(path) {
			path = filepath.Join(dir, path)
		}
		found, executable := isProgram(path)
		if executable {
			return path, nil
		}
		if found && plain == "" {
			plain = path
		}
	}
	if plain != "" {
		return "", cannotStart(exitNotExecutable, "%s: %s is not an executable file", name, plain)
	}
	return "", cannotStart(exitNotFound, "%s: command not found in PATH (%s)", name, list)
}

func isProgram(path string) (found, executable bool) {
	info, err := os.Stat(path)
	if err != nil {
		return false, false
	}
	return true, info.Mode().IsRegular() && info.Mode().Perm()&0o111 != 0
}

// spawn starts a prepared process with three descriptors. The error is a *notStarted.
func (g *guard) spawn(p *prepared, stdin, stdout, stderr int) (*child, error) {
	p.attr.Files = []uintptr{uintptr(stdin), uintptr(stdout), uintptr(stderr)} //nolint:gosec // file descriptors
	started, err := g.children.start(p.path, p.argv, &p.attr)
	name := p.argv[0]
	switch {
	case err == nil:
		return started, nil
	case errors.Is(err, syscall.ENOENT):
		return nil, cannotStart(exitNotFound, "%s: the file is there, but not the interpreter or the loader that it names", name)
	case errors.Is(err, syscall.ENOEXEC):
		return nil, cannotStart(exitNotExecutable, "%s: it is not a program for linux/%s, or a script without a #! line", name, runtime.GOARCH)
	case errors.Is(err, syscall.E2BIG):
		return nil, cannotStart(exitNotExecutable, "%s: its arguments and environment are too long", name)
	case errors.Is(err, syscall.EAGAIN):
		return nil, cannotStart(exitNotExecutable, "%s: the container has as many processes as it may have", name)
	case errors.Is(err, syscall.EPERM) && p.attr.Sys.Credential != nil:
		return nil, cannotStart(exitNotExecutable, "%s: the container may not change to user %d: it lacks the capabilities SETUID and SETGID",
			name, p.attr.Sys.Credential.Uid)
	}
	return nil, cannotStart(exitNotExecutable, "%s: %v", name, err)
}

// pipe returns a pipe for a child: theirs blocks, as programs expect, and ours does not, so that Go can wait for it.
func pipe(oursReads bool) (ours *os.File, theirs int, err error) {
	var ends [2]int
	if err := unix.Pipe2(ends[:], unix.O_CLOEXEC); err != nil {
		return nil, -1, fmt.Errorf("making a pipe: %w", err)
	}
	own, other := ends[0], ends[1]
	if !oursReads {
		own, other = other, own
	}
	if err := unix.SetNonblock(own, true); err != nil {
		_, _ = unix.Close(own), unix.Close(other)
		return nil, -1, fmt.Errorf("making a pipe: %w", err)
	}
	return os.NewFile(uintptr(own), "pipe"), other, nil //nolint:gosec // a file descriptor
}
