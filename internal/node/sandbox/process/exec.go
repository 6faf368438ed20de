//go:build unix

package process

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/creack/pty"
	"github.com/google/uuid"
	"golang.org/x/sys/unix"

	"github.com/bullpen-ci/bullpen/internal/node/sandbox"
)

// Exec implements sandbox.Sandbox: the command runs beside the container, with its environment, directory and paths.
func (s *Sandbox) Exec(ctx context.Context, podUID, name string, command []string, streams sandbox.Streams) (int, error) {
	c, err := s.onRecord(podUID, name)
	if err != nil {
		return 0, err
	}
	if len(command) == 0 {
		return 0, errors.New("no command given")
	}
	ctx, done, err := s.beginCommand(ctx, c)
	if err != nil {
		return 0, fmt.Errorf("running a command in container %s: %w", name, err)
	}
	defer done()
	run, err := s.command(c, command, streams.TTY)
	if err != nil {
		return 0, err
	}
	code, err := run.run(ctx, streams, done)
	if err != nil && ctx.Err() == nil {
		return 0, fmt.Errorf("running %s: %w", command[0], err)
	}
	return code, err
}

// commands are those that run beside one container.
type commands struct {
	cancels map[string]context.CancelCauseFunc
	idle    chan struct{} // closed when none runs
}

// beginCommand lets a command begin unless the container does not run. The context that it returns ends with the container; the
// caller calls done when nothing of the command is left.
func (s *Sandbox) beginCommand(ctx context.Context, c container) (_ context.Context, done func(), err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	id := uuid.NewString()
	s.mu.Lock()
	of := s.execs[c.dir]
	if of == nil {
		of = &commands{cancels: map[string]context.CancelCauseFunc{}, idle: make(chan struct{})}
		s.execs[c.dir] = of
	}
	of.cancels[id] = cancel
	s.mu.Unlock()
	watched := make(chan struct{})
	done = sync.OnceFunc(func() {
		cancel(nil)
		<-watched
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(of.cancels, id)
		if len(of.cancels) == 0 {
			close(of.idle)
			delete(s.execs, c.dir)
		}
	})
	// The container's end is checked after the command is registered: either this check sees it, or the code that settles the end sees the
	// command.
	state, err := c.state()
	if err == nil && state.Exit != nil {
		err = sandbox.ErrNotRunning
	}
	if err != nil {
		close(watched)
		done()
		return nil, nil, err
	}
	go func() {
		defer close(watched)
		if s.awaitShim(ctx, c) == nil {
			cancel(sandbox.ErrNotRunning)
		}
	}()
	return ctx, done, nil
}

// endCommands ends what runs beside a container that has ended, and what any command has left behind.
func (s *Sandbox) endCommands(ctx context.Context, c container) error {
	s.mu.Lock()
	var idle chan struct{}
	if of := s.execs[c.dir]; of != nil {
		idle = of.idle
		for _, cancel := range of.cancels {
			cancel(sandbox.ErrNotRunning)
		}
	}
	s.mu.Unlock()
	if idle != nil {
		select {
		case <-idle:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	left := c.path(fileExecs)
	if _, err := os.Stat(left); err != nil {
		return nil //nolint:nilerr // no command was ever run there
	}
	if err := killAllMarked(ctx, s.markEntry(c)); err != nil {
		return err
	}
	_ = os.Remove(left) // looking again does no harm
	return nil
}

// command is a command to run, and the mark that its processes carry.
type command struct {
	cmd  *exec.Cmd
	mark string
	user int64 // who is to own its terminal
}

func (s *Sandbox) command(c container, argv []string, terminal bool) (command, error) {
	var sp spec
	if found, err := readJSON(c.path(fileSpec), &sp); err != nil {
		return command{}, err
	} else if !found {
		return command{}, fmt.Errorf("container %s: %w", c.name, sandbox.ErrNotRunning)
	}
	run := command{mark: s.markEntry(c) + "/" + uuid.NewString()}
	if sp.Inside != nil {
		argv = append(append(slices.Clone(sp.Args), "--"), argv...)
		run.user = sp.Inside.Security.User
	} else {
		argv = slices.Clone(argv)
		for i, arg := range argv {
			argv[i] = Substitute(arg, sp.Mounts)
		}
	}
	program, err := lookPath(argv[0], sp)
	if err != nil {
		return command{}, err
	}
	// The file is written before the command starts: if this agent is killed, the next one knows that there may be processes to find.
	if err := os.WriteFile(c.path(fileExecs), nil, 0o600); err != nil {
		return command{}, fmt.Errorf("recording that a command is run: %w", err)
	}
	//nolint:gosec // running what is asked for is the purpose
	run.cmd = exec.Command(program, argv[1:]...) //nolint:noctx // run ends it with everything that it started
	run.cmd.Dir = sp.Dir
	run.cmd.Env = slices.DeleteFunc(slices.Clone(sp.Env), func(e string) bool { return strings.HasPrefix(e, envMark+"=") })
	if terminal && !slices.ContainsFunc(sp.Env, func(e string) bool { return strings.HasPrefix(e, "TERM=") }) {
		run.cmd.Env = append(run.cmd.Env, "TERM=xterm")
	}
	run.cmd.Env = append(run.cmd.Env, run.mark)
	run.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: terminal}
	return run, nil
}

// run starts the command and returns its exit code when it has ended and all its output has been passed on. gone is called when no process
// of a killed command is left: the end of a container waits for that, and not for a client that does not read.
func (r command) run(ctx context.Context, streams sandbox.Streams, gone func()) (int, error) {
	ends, err := r.connect(streams)
	if err != nil {
		return 0, err
	}
	defer ends.close()
	if err := r.cmd.Start(); err != nil {
		return 0, err
	}
	ends.closeTheirs()
	ends.pump(streams)
	exited := make(chan error, 1)
	go func() { exited <- r.cmd.Wait() }()
	select {
	case err = <-exited:
	case <-ctx.Done():
		// Its whole session's foreground. It may have exited this instant: within that time its id would have to be reused.
		_ = syscall.Kill(-r.cmd.Process.Pid, syscall.SIGKILL)
		err = <-exited
	}
	select {
	case <-ends.drained():
	case <-ctx.Done():
	}
	if ctx.Err() != nil {
		cause := context.Cause(ctx)
		err := r.endRest()
		gone()
		ends.close()
		<-ends.drained()
		return 0, errors.Join(cause, err)
	}
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		if status, ok := exit.Sys().(syscall.WaitStatus); ok && status.Signaled() {
			return 128 + int(status.Signal()), nil
		}
		return exit.ExitCode(), nil
	}
	return 0, err
}

// execPatience bounds how long a command that was killed may take to be gone.
const execPatience = 10 * time.Second

// endRest kills whatever of the command is still there.
func (r command) endRest() error {
	ctx, cancel := context.WithTimeout(context.Background(), execPatience)
	defer cancel()
	if err := killAllMarked(ctx, r.mark); err != nil {
		return fmt.Errorf("ending what a command has left running: %w", err)
	}
	return nil
}

// streamEnds are both ends of what joins a command to its streams.
type streamEnds struct {
	theirs, ours []*os.File
	in           *os.File
	out, err     *os.File
	terminal     *os.File

	stop    sync.Once
	stopped chan struct{}
	copying sync.WaitGroup
	idle    chan struct{}
}

func (r command) connect(streams sandbox.Streams) (_ *streamEnds, err error) {
	e := &streamEnds{stopped: make(chan struct{}), idle: make(chan struct{})}
	defer func() {
		if err != nil {
			e.closeTheirs()
			e.close()
		}
	}()
	if streams.TTY {
		return e, r.connectTerminal(e, streams)
	}
	pipe := func() (read, write *os.File) {
		if err == nil {
			read, write, err = os.Pipe()
		}
		return read, write
	}
	if streams.In != nil {
		theirs, ours := pipe()
		r.cmd.Stdin, e.in = theirs, ours
		e.add(theirs, ours)
	}
	if streams.Out != nil {
		ours, theirs := pipe()
		r.cmd.Stdout, e.out = theirs, ours
		e.add(theirs, ours)
	}
	if streams.Err != nil {
		ours, theirs := pipe()
		r.cmd.Stderr, e.err = theirs, ours
		e.add(theirs, ours)
	}
	return e, err
}

func (r command) connectTerminal(e *streamEnds, streams sandbox.Streams) error {
	ours, theirs, err := pty.Open()
	if err != nil {
		return fmt.Errorf("opening a terminal: %w", err)
	}
	if ours, err = interruptible(ours); err != nil {
		return errors.Join(fmt.Errorf("opening a terminal: %w", err), theirs.Close())
	}
	e.add(theirs, ours)
	if r.user != 0 {
		if err := theirs.Chown(int(r.user), -1); err != nil {
			return fmt.Errorf("giving the terminal to the container's user: %w", err)
		}
	}
	r.cmd.Stdin, r.cmd.Stdout, r.cmd.Stderr = theirs, theirs, theirs
	e.terminal, e.out = ours, ours
	if streams.In != nil {
		e.in = ours
	}
	return nil
}

// interruptible makes closing the file end a Read that is under way, where the kernel can tell when there is something to read.
func interruptible(file *os.File) (*os.File, error) {
	if runtime.GOOS != "linux" {
		return file, nil
	}
	defer func() { _ = file.Close() }()
	fd, err := unix.FcntlInt(file.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, os.NewSyscallError("fcntl", err)
	}
	if err := unix.SetNonblock(fd, true); err != nil {
		_ = unix.Close(fd)
		return nil, os.NewSyscallError("fcntl", err)
	}
	return os.NewFile(uintptr(fd), file.Name()), nil
}

func (e *streamEnds) add(theirs, ours *os.File) {
	if theirs != nil {
		e.theirs, e.ours = append(e.theirs, theirs), append(e.ours, ours)
	}
}

func (e *streamEnds) closeTheirs() {
	for _, f := range e.theirs {
		_ = f.Close()
	}
}

// close ends all copying but a Read of the caller's that is under way.
func (e *streamEnds) close() {
	e.stop.Do(func() {
		close(e.stopped)
		for _, f := range e.ours {
			_ = f.Close()
		}
	})
}

// pump copies until each stream has ended or close is called.
func (e *streamEnds) pump(streams sandbox.Streams) {
	out := func(to io.Writer, from *os.File) {
		if from == nil {
			return
		}
		if to == nil {
			to = io.Discard
		}
		e.copying.Go(func() {
			_, _ = io.Copy(to, from) // a terminal that no process holds any more returns an error
			_ = from.Close()         // a process that still writes gets SIGPIPE
		})
	}
	out(streams.Out, e.out)
	out(streams.Err, e.err)
	if e.in != nil {
		go func() { // may be left behind in a Read of the caller's
			_, _ = io.Copy(e.in, streams.In)
			if e.terminal == nil {
				_ = e.in.Close()
			}
		}()
	}
	if e.terminal != nil && streams.Resize != nil {
		go e.resize(streams.Resize) // ends with close
	}
	go func() {
		e.copying.Wait()
		close(e.idle)
	}()
}

func (e *streamEnds) resize(sizes <-chan sandbox.Size) {
	for {
		select {
		case <-e.stopped:
			return
		case size, more := <-sizes:
			if !more {
				return
			}
			setSize(e.terminal, size)
		}
	}
}

// setSize leaves a terminal that is closed meanwhile alone.
func setSize(terminal *os.File, size sandbox.Size) {
	raw, err := terminal.SyscallConn()
	if err != nil {
		return
	}
	_ = raw.Control(func(fd uintptr) {
		_ = unix.IoctlSetWinsize(int(fd), unix.TIOCSWINSZ, &unix.Winsize{Col: size.Columns, Row: size.Rows})
	})
}

// drained is closed when everything that the command wrote has been handed on.
func (e *streamEnds) drained() <-chan struct{} { return e.idle }

// OpenLog implements sandbox.Sandbox.
func (s *Sandbox) OpenLog(podUID, name string) (sandbox.Log, error) {
	c, err := s.onRecord(podUID, name)
	if err != nil {
		return nil, err
	}
	return openLog(s.LogFile(podUID, name), c.path(fileTimes)), nil
}
