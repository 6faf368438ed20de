package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/bullpen-ci/bullpen/internal/agent/guestshare"
)

// GuestOptions of Guest. The zero value of an optional field takes its default.
type GuestOptions struct {
	// Shares is the directory of the two shares; guestshare.SharesDir when empty.
	Shares string
	// Dir is the guest's own directory, on its own disk and deleted with it: one path for each virtual machine, whichever
	// process starts the agent there. Default: /tmp/bullpen-guest where shares are at their usual place, and beside the
	// shares where they are not.
	Dir string
	// Environ is what the command inherits; os.Environ() is usual.
	Environ []string
	// Beat is how often the heartbeat is written and the growth of the log noted; 1 s when zero. LookEvery is how often orders are looked for;
	// 100 ms when zero.
	Beat, LookEvery time.Duration
	// Now is the clock; optional.
	Now func() time.Time
	// Log; discarded when nil.
	Log *slog.Logger
}

func (o GuestOptions) withDefaults() GuestOptions {
	if o.Shares == "" {
		o.Shares = guestshare.SharesDir
	}
	if o.Dir == "" {
		o.Dir = "/tmp/bullpen-guest"
		if o.Shares != guestshare.SharesDir {
			o.Dir = filepath.Join(filepath.Dir(filepath.Clean(o.Shares)), "bullpen-guest")
		}
	}
	if o.Beat == 0 {
		o.Beat = time.Second
	}
	if o.LookEvery == 0 {
		o.LookEvery = 100 * time.Millisecond
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return o
}

// ErrGuestBegun says that the container's command has been started in this guest already: it never is again.
var ErrGuestBegun = errors.New("the container's command was already started in this virtual machine")

// Guest runs the container's command, which the read-only share describes, once in the life of this virtual machine, and reports how it
// ended in the status share. It returns when the report is written. ErrGuestBegun when another Guest was here before; nothing is
// touched then, so that the host may start it as often as it likes.
//
// An order to terminate, or the end of ctx, is passed to the command's main process as TERM. What the command leaves behind in
// its process group is killed.
func Guest(ctx context.Context, options GuestOptions) error {
	g := &guest{GuestOptions: options.withDefaults()}
	spec, err := g.open()
	if err != nil {
		return err
	}
	lock, err := g.begin(spec.Folders)
	if err != nil {
		return err
	}
	defer func() { _ = lock.Close() }()
	g.beat()
	report := g.run(ctx, spec)
	if err := g.tell(ctx, report); err != nil {
		return err
	}
	g.beat()
	return nil
}

// tell writes the report, and retries without limit: the host's disk may be full, and only the guest knows how the command
// ended.
func (g *guest) tell(ctx context.Context, report guestshare.Report) error {
	again := time.NewTicker(g.Beat)
	defer again.Stop()
	for {
		err := guestshare.WriteJSON(g.status(guestshare.FileExit), report)
		if err == nil {
			return nil
		}
		g.Log.Warn("reporting the exit of the container's command failed, retrying", "error", err)
		select {
		case <-again.C:
		case <-ctx.Done():
			return fail("reporting the exit of the container's command: %v", err)
		}
	}
}

// guest is one running of the container's command.
type guest struct {
	GuestOptions
	logged int64 // length of the log that is noted
}

func (g *guest) bullpen(name string) string {
	return filepath.Join(g.Shares, guestshare.ShareBullpen, name)
}

func (g *guest) status(name string) string {
	return filepath.Join(g.Shares, guestshare.ShareStatus, name)
}

// open reads what to run, with the guest's own paths in it.
func (g *guest) open() (guestshare.Spec, error) {
	var spec guestshare.Spec
	data, err := guestshare.Read(filepath.Join(g.Shares, guestshare.ShareBullpen), guestshare.FileSpec)
	if err != nil {
		return spec, fail("reading the command of this virtual machine: %v; the host shares it as %s", err, guestshare.ShareBullpen)
	}
	if err := json.Unmarshal(data, &spec); err != nil || len(spec.Command) == 0 {
		return spec, fail("reading the command of this virtual machine: %s is invalid", g.bullpen(guestshare.FileSpec))
	}
	if spec.Placeholder == "" {
		return spec, nil
	}
	place := func(text string) string { return strings.ReplaceAll(text, spec.Placeholder, g.Dir) }
	for _, list := range [][]string{spec.Command, spec.Env} {
		for i := range list {
			list[i] = place(list[i])
		}
	}
	spec.WorkingDir = place(spec.WorkingDir)
	return spec, nil
}

// begin makes the guest's directory and takes the lock: of any number of agents one gets past here, once.
func (g *guest) begin(dirs []string) (*os.File, error) {
	if err := os.MkdirAll(g.Dir, 0o700); err != nil {
		return nil, fail("creating the guest's directory: %v", err)
	}
	lock, err := os.OpenFile(filepath.Join(g.Dir, "lock"), os.O_CREATE|os.O_RDWR|syscall.O_CLOEXEC, 0o600)
	if err != nil {
		return nil, fail("locking the guest's directory: %v", err)
	}
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		_ = lock.Close()
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, ErrGuestBegun
		}
		return nil, fail("locking the guest's directory: %v", err)
	}
	// The directory is gone when the guest was restarted from inside. The share is not.
	if !guestshare.Absent(filepath.Join(g.Shares, guestshare.ShareStatus), guestshare.FileHeartbeat) {
		_ = lock.Close()
		return nil, ErrGuestBegun
	}
	if err := g.settle(dirs); err != nil {
		_ = lock.Close()
		return nil, err
	}
	return lock, nil
}

// settle leaves the sign that the command has been begun, and gives the shares paths without a space.
func (g *guest) settle(dirs []string) error {
	begun, err := os.OpenFile(filepath.Join(g.Dir, "begun"), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if errors.Is(err, os.ErrExist) {
		return ErrGuestBegun
	}
	if err != nil {
		return fail("preparing the guest: %v", err)
	}
	err = begun.Close()
	for name, share := range map[string]string{guestshare.GuestShared: guestshare.ShareBullpen, guestshare.GuestStatus: guestshare.ShareStatus} {
		link := filepath.Join(g.Dir, name)
		_ = os.Remove(link)
		err = errors.Join(err, os.Symlink(filepath.Join(g.Shares, share), link))
	}
	for _, dir := range append(dirs, guestshare.GuestWork) {
		if !filepath.IsLocal(dir) {
			return fail("preparing the guest: the directory %q is outside of the guest's own", dir)
		}
		err = errors.Join(err, os.MkdirAll(filepath.Join(g.Dir, dir), 0o700))
	}
	if err != nil {
		return fail("preparing the guest: %v", err)
	}
	return nil
}

// beat shows that the agent lives, and notes how long the log was when. A failure is seen by the host as silence.
func (g *guest) beat() {
	now := g.Now().UTC()
	if err := guestshare.Write(g.status(guestshare.FileHeartbeat), []byte(now.Format(time.RFC3339Nano)+"\n")); err != nil {
		g.Log.Warn("writing the heartbeat", "error", err)
		_ = os.Chtimes(g.status(guestshare.FileHeartbeat), now, now) // that takes no room on a disk that is full
	}
	info, err := os.Stat(g.status(guestshare.FileLog))
	if err != nil || info.Size() <= g.logged {
		return
	}
	times, err := os.OpenFile(g.status(guestshare.FileLogTimes), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		g.Log.Warn("recording the size of the log", "error", err)
		return
	}
	defer func() { _ = times.Close() }()
	// Everything up to this length was written by now.
	if _, err := fmt.Fprintf(times, "%d %d\n", now.UnixNano(), info.Size()); err == nil {
		g.logged = info.Size()
	}
}

func (g *guest) terminateOrdered() bool { return exists(g.bullpen(guestshare.FileTerminate)) }

// command is what the container runs, its environment complete.
func command(spec guestshare.Spec, inherited []string, own string, argv []string) *exec.Cmd {
	cmd := &exec.Cmd{Args: argv, Env: append(inherited, spec.Env...), Dir: spec.WorkingDir}
	if cmd.Dir == "" {
		cmd.Dir = filepath.Join(own, guestshare.GuestWork)
	}
	program, err := lookPath(argv[0], cmd.Dir, cmd.Env)
	cmd.Path, cmd.Err = program, err
	return cmd
}

// lookPath finds a program in the command's own PATH.
func lookPath(name, dir string, env []string) (string, error) {
	if strings.Contains(name, "/") {
		if !filepath.IsAbs(name) {
			name = filepath.Join(dir, name)
		}
		return name, nil // whether it can be executed is the kernel's to say
	}
	path, _ := lookup(env, "PATH")
	for _, directory := range filepath.SplitList(path) {
		candidate := filepath.Join(directory, name)
		if info, err := os.Stat(candidate); err == nil && !info.IsDir() && info.Mode()&0o111 != 0 {
			return candidate, nil
		}
	}
	return name, fmt.Errorf("%q is not in the container's PATH (%s): %w", name, path, exec.ErrNotFound)
}

// run runs the command and tells how it ended.
func (g *guest) run(ctx context.Context, spec guestshare.Spec) guestshare.Report {
	begun := g.Now()
	if ctx.Err() != nil || g.terminateOrdered() {
		return guestshare.Report{
			Code: exitSignalBase + int32(syscall.SIGTERM), Signal: int32(syscall.SIGTERM), Message: "ended before it was started",
			StartedAt: begun, FinishedAt: begun,
		}
	}
	output, err := os.OpenFile(g.status(guestshare.FileLog), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return startError(err, begun, g.Now())
	}
	defer func() { _ = output.Close() }()
	cmd := command(spec, g.Environ, g.Dir, spec.Command)
	cmd.Stdout, cmd.Stderr = output, output
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return startError(err, begun, g.Now())
	}
	g.Log.Info("the container's command started", "pid", cmd.Process.Pid)
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = cmd.Wait() // how it ended is in ProcessState
	}()
	g.attend(ctx, cmd.Process, done)
	_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // what it left behind
	report := ending(cmd.ProcessState)
	report.StartedAt, report.FinishedAt = begun, g.Now()
	g.Log.Info("the container's command exited", "code", report.Code, "signal", report.Signal)
	return report
}

// attend returns when the command has ended.
func (g *guest) attend(ctx context.Context, process *os.Process, done <-chan struct{}) {
	look, beat := time.NewTicker(g.LookEvery), time.NewTicker(g.Beat)
	defer look.Stop()
	defer beat.Stop()
	stop, asked := ctx.Done(), false
	ask := func() {
		if !asked {
			asked = true
			g.Log.Info("stopping the container's command")
			_ = process.Signal(syscall.SIGTERM) // the main process alone, as container runtimes do
		}
	}
	for {
		select {
		case <-done:
			return
		case <-stop:
			stop = nil
			ask()
		case <-look.C:
			if !asked && g.terminateOrdered() {
				ask()
			}
		case <-beat.C:
			g.beat()
		}
	}
}

func startError(err error, begun, now time.Time) guestshare.Report {
	return guestshare.Report{
		Code: exitSignalBase, Reason: guestshare.ReasonStartError, Message: "starting the container's command: " + err.Error(),
		StartedAt: begun, FinishedAt: now,
	}
}

// ending reads how a process ended.
func ending(state *os.ProcessState) guestshare.Report {
	report := guestshare.Report{Code: int32(state.ExitCode())}
	if status, ok := state.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		report.Signal = int32(status.Signal())
		report.Code = exitSignalBase + report.Signal
	}
	return report
}

// GuestExecOptions of GuestExec.
type GuestExecOptions struct {
	GuestOptions
	// ID names the file of the report. Letters and digits only.
	ID string
	// Command to run. TTY says that the standard streams are a terminal.
	Command        []string
	TTY            bool
	Stdin          io.Reader
	Stdout, Stderr io.Writer
}

// GuestExec runs a command beside the container's, with its environment and directory, and reports its end in the status
// share. The exit code of the program through which the host starts it would not do: that has exit codes of its own. nil or
// an *ExitError with the command's code. The command is killed when ctx ends, or when the host orders it.
func GuestExec(ctx context.Context, options GuestExecOptions) error {
	g := &guest{GuestOptions: options.withDefaults()}
	if options.ID == "" || strings.Trim(options.ID, "0123456789abcdefghijklmnopqrstuvwxyz") != "" || len(options.Command) == 0 {
		return fail("a name of lower-case letters and digits and a command are required")
	}
	spec, err := g.open()
	if err != nil {
		return err
	}
	begun := g.Now()
	report := g.exec(ctx, spec, options)
	report.StartedAt, report.FinishedAt = begun, g.Now()
	if err := guestshare.WriteJSON(g.status(guestshare.FileExec(options.ID)), report); err != nil {
		return fail("reporting the exit of the command: %v", err)
	}
	if report.Code != 0 {
		return &ExitError{Code: int(report.Code), Text: report.Message}
	}
	return nil
}

func (g *guest) exec(ctx context.Context, spec guestshare.Spec, options GuestExecOptions) guestshare.Report {
	argv := make([]string, len(options.Command))
	for i, arg := range options.Command {
		argv[i] = arg
		if spec.Placeholder != "" {
			argv[i] = strings.ReplaceAll(arg, spec.Placeholder, g.Dir)
		}
	}
	cmd := command(spec, g.Environ, g.Dir, argv)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = options.Stdin, options.Stdout, options.Stderr
	// A terminal's foreground is the group that this process is in; without one the command has its own, so that all of it can be ended.
	target := 1
	if !options.TTY {
		cmd.SysProcAttr, target = &syscall.SysProcAttr{Setpgid: true}, -1
	}
	cmd.WaitDelay = 2 * time.Second
	if err := cmd.Start(); err != nil {
		return startError(err, time.Time{}, time.Time{})
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = cmd.Wait() // how it ended is in ProcessState
	}()
	look := time.NewTicker(g.LookEvery)
	defer look.Stop()
	end := func() { _ = syscall.Kill(target*cmd.Process.Pid, syscall.SIGKILL) }
	stop := ctx.Done()
	for {
		select {
		case <-done:
			return ending(cmd.ProcessState)
		case <-stop:
			stop = nil
			end()
		case <-look.C:
			if exists(g.bullpen(guestshare.FileExecEnd(options.ID))) {
				end()
			}
		}
	}
}

// DetachGuest starts Guest in a session of its own, as the program argv, and returns when its heartbeat is there. A caller
// that starts it through a connection into the guest may then close that. nil also when another one runs here, or ran here
// before.
func DetachGuest(ctx context.Context, options GuestOptions, argv []string) error {
	g := &guest{GuestOptions: options.withDefaults()}
	if _, err := g.open(); err != nil {
		return err
	}
	output, err := os.OpenFile(g.status(guestshare.FileGuestLog), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return fail("opening the guest's log: %v; the host shares its directory as %s", err, guestshare.ShareStatus)
	}
	defer func() { _ = output.Close() }()
	cmd := exec.CommandContext(context.WithoutCancel(ctx), argv[0], argv[1:]...)
	cmd.Stdout, cmd.Stderr = output, output
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return fail("starting the guest's agent: %v", err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	look := time.NewTicker(20 * time.Millisecond)
	defer look.Stop()
	for !exists(g.status(guestshare.FileHeartbeat)) {
		select {
		case err := <-ended:
			if err != nil && !exists(g.status(guestshare.FileHeartbeat)) {
				return fail("the guest's agent exited at once: %v; see its log: %s", err, g.status(guestshare.FileGuestLog))
			}
			return nil
		case <-ctx.Done():
			return fail("stopped before the guest's agent started")
		case <-look.C:
		}
	}
	return nil
}
