//go:build unix

package process

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"

	"github.com/bullpen-ci/bullpen/internal/node/sandbox"
)

// Start implements sandbox.Sandbox.
func (s *Sandbox) Start(ctx context.Context, pod *corev1.Pod, c sandbox.Container) error {
	uid := string(pod.UID)
	if _, err := s.pod(uid); err != nil {
		return err
	}
	rec := s.container(uid, c.Name)
	child := &shimChild{started: make(chan struct{})}
	if !s.claim(rec, child) {
		return nil // another goroutine is starting it
	}
	defer close(child.started)

	// The directory is the record. Creating it is atomic: this agent, and the next one, leave a container with a directory alone, because a
	// container that may have run is not run again.
	if err := os.Mkdir(rec.dir, 0o700); errors.Is(err, fs.ErrExist) {
		s.disown(rec, child)
		return nil
	} else if err != nil {
		s.disown(rec, child)
		return fmt.Errorf("recording container %s: %w", c.Name, err)
	}
	if err := s.start(ctx, rec, child, c); err != nil {
		s.disown(rec, child)
		if undo := os.RemoveAll(rec.dir); undo != nil {
			return errors.Join(err, undo)
		}
		return err
	}
	return nil
}

// claim notes that this process starts the container; false when it already did.
func (s *Sandbox) claim(rec container, child *shimChild) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.shims[rec.dir] != nil {
		return false
	}
	s.shims[rec.dir] = child
	return true
}

func (s *Sandbox) disown(rec container, child *shimChild) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.shims[rec.dir] == child {
		delete(s.shims, rec.dir)
	}
}

// start writes the specification and spawns the shim. After an error nothing runs.
func (s *Sandbox) start(ctx context.Context, rec container, child *shimChild, c sandbox.Container) error {
	sp, err := s.spec(rec, c)
	if err != nil {
		return err
	}
	program, err := lookPath(sp.Args[0], sp)
	if err != nil { // an exit like any other, so that the pod shows it
		return writeJSON(rec.path(fileExit), startError(err, s.opts.Now()))
	}
	sp.Args[0] = program
	if err := writeJSON(rec.path(fileSpec), sp); err != nil {
		return fmt.Errorf("writing the container's specification: %w", err)
	}
	alive, err := openFIFO(rec.path(fileAlive))
	if err != nil {
		return err
	}
	defer func() { _ = alive.Close() }()
	control, err := openFIFO(rec.path(fileControl))
	if err != nil {
		return err
	}
	defer func() { _ = control.Close() }()
	ready, readyShim, err := os.Pipe()
	if err != nil {
		return err
	}
	defer func() { _ = ready.Close() }()
	err = s.spawn(rec, child, []*os.File{alive, control, readyShim})
	if err = errors.Join(err, readyShim.Close()); err != nil {
		return err
	}
	// Until the shim has closed its end the start is in progress. A caller that does not want to wait for it still finds the container on
	// record.
	stop := context.AfterFunc(ctx, func() { _ = ready.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	_, _ = io.Copy(io.Discard, ready)
	return nil
}

// openFIFO makes a FIFO and opens both of its ends, which never waits.
func openFIFO(path string) (*os.File, error) {
	if err := unix.Mkfifo(path, 0o600); err != nil {
		return nil, fmt.Errorf("making %s: %w", filepath.Base(path), err)
	}
	fd, err := unix.Open(path, unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("opening %s: %w", filepath.Base(path), err)
	}
	return os.NewFile(uintptr(fd), path), nil
}

func (s *Sandbox) spawn(rec container, child *shimChild, files []*os.File) error {
	log, err := os.OpenFile(rec.path(fileShimLog), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer func() { _ = log.Close() }()
	argv := append(append([]string{}, s.opts.ShimCommand...), rec.dir)
	// No context of ours ends it.
	cmd := exec.CommandContext(context.Background(), argv[0], argv[1:]...)
	cmd.Env = []string{s.markEntry(rec), "GOMAXPROCS=1"}
	cmd.Dir = "/"
	cmd.Stdout, cmd.Stderr = log, log
	cmd.ExtraFiles = files
	// NODE-3: a session of its own, out of reach of whatever ends the agent.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("starting the shim: %w", err)
	}
	child.cmd = cmd
	return nil
}

func (s *Sandbox) mark(rec container) string { return s.owner + "/" + rec.uid + "/" + rec.name }

func (s *Sandbox) markEntry(rec container) string { return envMark + "=" + s.mark(rec) }

// spec turns a container into what the shim starts: paths substituted, environment complete.
func (s *Sandbox) spec(rec container, c sandbox.Container) (spec, error) {
	if len(c.Command) == 0 {
		return spec{}, invalid("container %q has no command: set `command`", c.Name)
	}
	if c.Message.HostPath != "" {
		c.Mounts = append(slices.Clone(c.Mounts), c.Message)
	}
	sp := spec{Log: s.LogFile(rec.uid, rec.name), Mounts: c.Mounts, Dir: rec.path("home")}
	for _, dir := range []string{"home", "tmp"} {
		if err := os.Mkdir(rec.path(dir), 0o700); err != nil {
			return spec{}, fmt.Errorf("making the container's directories: %w", err)
		}
	}
	if s.opts.Enclosure != nil {
		return s.enclosed(rec, c, sp)
	}
	for _, arg := range c.Command {
		sp.Args = append(sp.Args, Substitute(arg, c.Mounts))
	}
	sp.Env = s.environ(rec, c)
	if c.WorkingDir != "" {
		sp.Dir = Substitute(c.WorkingDir, c.Mounts)
		if underMount(c.WorkingDir, c.Mounts) {
			if err := os.MkdirAll(sp.Dir, 0o755); err != nil {
				return spec{}, fmt.Errorf("making the working directory: %w", err)
			}
		}
	}
	if info, err := os.Stat(sp.Dir); err != nil || !info.IsDir() {
		return spec{}, invalid("container %q: its workingDir %s is neither below one of its volume mounts nor a directory of this machine", c.Name, c.WorkingDir)
	}
	return sp, nil
}

// environ is the whole environment of a container: nothing of the agent's own.
func (s *Sandbox) environ(rec container, c sandbox.Container) []string {
	values := map[string]string{}
	var order []string
	set := func(name, value string) {
		if _, known := values[name]; !known {
			order = append(order, name)
		}
		values[name] = value
	}
	if s.opts.Enclosure == nil {
		set("PATH", s.binDir()+":"+hostPath())
		set("HOME", rec.path("home"))
		set("TMPDIR", rec.path("tmp"))
	} else {
		set("PATH", plainSearchPath)
		set("HOME", "/")
	}
	for _, e := range c.Env {
		if s.opts.Enclosure == nil {
			e.Value = Substitute(e.Value, c.Mounts)
		}
		set(e.Name, e.Value)
	}
	set(envMark, s.mark(rec)) // last, so that the pod cannot override it
	env := make([]string, 0, len(order))
	for _, name := range order {
		env = append(env, name+"="+values[name])
	}
	return env
}

// hostPath is where this machine's programs are.
func hostPath() string {
	if runtime.GOOS == "darwin" {
		return "/opt/homebrew/bin:" + plainSearchPath
	}
	return plainSearchPath
}

// plainSearchPath is where programs are on every Unix, and in images that do not say otherwise.
const plainSearchPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// lookPath finds a program as execvp would in the container, not in the agent.
func lookPath(name string, sp spec) (string, error) {
	if strings.Contains(name, "/") {
		if !filepath.IsAbs(name) {
			name = filepath.Join(sp.Dir, name)
		}
		return name, nil // whether it can be executed is the kernel's to say
	}
	path := ""
	for _, e := range sp.Env {
		if value, ok := strings.CutPrefix(e, "PATH="); ok {
			path = value
		}
	}
	for _, dir := range filepath.SplitList(path) {
		candidate := filepath.Join(dir, name)
		if info, err := os.Stat(candidate); err == nil && !info.IsDir() && info.Mode()&0o111 != 0 {
			return candidate, nil
		}
	}
	return "", fmt.Errorf("%q is not in the container's PATH (%s): %w", name, path, exec.ErrNotFound)
}

// Wait implements sandbox.Sandbox.
func (s *Sandbox) Wait(ctx context.Context, podUID, name string) (sandbox.Exit, error) {
	c, err := s.onRecord(podUID, name)
	if err != nil {
		return sandbox.Exit{}, err
	}
	return s.wait(ctx, c)
}

func (s *Sandbox) wait(ctx context.Context, c container) (sandbox.Exit, error) {
	if err := s.awaitShim(ctx, c); err != nil {
		return sandbox.Exit{}, err
	}
	if err := s.endCommands(ctx, c); err != nil {
		return sandbox.Exit{}, fmt.Errorf("ending commands in container %s: %w", c.name, err)
	}
	var exit sandbox.Exit
	if found, err := readJSON(c.path(fileExit), &exit); err != nil || found {
		return exit, err
	}
	return s.lost(ctx, c)
}

// awaitShim returns when the container's shim is gone, and with it every process of the container.
func (s *Sandbox) awaitShim(ctx context.Context, c container) error {
	s.mu.Lock()
	child := s.shims[c.dir]
	s.mu.Unlock()
	if child != nil {
		select {
		case <-child.started:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	if err := waitShim(ctx, c.path(fileAlive)); err != nil {
		return fmt.Errorf("waiting for container %s: %w", c.name, err)
	}
	if child != nil && child.cmd != nil {
		child.reap.Do(func() { _ = child.cmd.Wait() }) // at once: it has closed everything it had
	}
	return nil
}

// lost settles a container whose shim exited without recording the exit: it was killed, or the machine was restarted. NODE-4: how the
// container ended is unknown, and that is not success. Processes that it left behind carry the mark.
func (s *Sandbox) lost(ctx context.Context, c container) (sandbox.Exit, error) {
	s.opts.Log.Warn("a container's shim exited without recording the container's exit", "pod", c.uid, "container", c.name)
	if err := killAllMarked(ctx, s.markEntry(c)); err != nil {
		return sandbox.Exit{}, fmt.Errorf("ending what container %s left behind: %w", c.name, err)
	}
	begun, err := c.begun()
	if err != nil {
		return sandbox.Exit{}, err
	}
	exit := unknownExit(begun.StartedAt, s.opts.Now())
	if err := writeJSON(c.path(fileExit), exit); err != nil {
		return sandbox.Exit{}, fmt.Errorf("recording the end of container %s: %w", c.name, err)
	}
	return exit, nil
}

// killAllMarked kills until a scan finds no process: one may fork during the scan.
func killAllMarked(ctx context.Context, variable string) error {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for killMarked(variable) > 0 {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-tick.C:
		}
	}
	return nil
}

// Signal implements sandbox.Sandbox.
func (s *Sandbox) Signal(_ context.Context, podUID, name string, signal sandbox.Signal) error {
	c, err := s.onRecord(podUID, name)
	if err != nil {
		return err
	}
	return c.signal(signal)
}

func (c container) signal(signal sandbox.Signal) error {
	if err := order(c.path(fileControl), signalOrder(signal)); err != nil {
		return fmt.Errorf("signalling container %s: %w", c.name, err)
	}
	return nil
}
