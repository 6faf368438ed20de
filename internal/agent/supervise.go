package agent

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"

	"github.com/bullpen-ci/bullpen/internal/agent/guestshare"
	"github.com/bullpen-ci/bullpen/internal/jobcontainer/guard/volume"
	"github.com/bullpen-ci/bullpen/internal/lib/terminationlog"
)

// SuperviseOptions of Supervise. The zero value of an optional field takes its default.
type SuperviseOptions struct {
	// JITFile is where the poller stages the configuration.
	JITFile string
	// Given says that JITFile was put there for this pod alone, in a Secret that is mounted read-only: it is neither staged
	// nor removed. A second start in the pod then waits for the end of ctx instead of failing, because a StatefulSet's pods
	// restart in any case (RUN-7). StatusDir must be set.
	Given bool
	// RegistrationDir makes the runner a static one, which takes one job after the other: it is the mounted directory of
	// what the runner registers itself with (the Registration… files). JITFile is then empty, StatusDir must be set, and a
	// second start is as with Given.
	RegistrationDir string
	// StatusDir is where the supervisor leaves its signs; the directory of JITFile when empty. If it is another, the
	// supervisor changes nothing in JITFile's directory: the process that prepared it removes the configuration once it was
	// taken.
	StatusDir string
	// JobDir is the volume that the job's containers share with the runner: their guards run for as long as this supervisor holds it
	// (JOB-2). Empty where a job can have no containers.
	JobDir string
	// CourierDir is the volume through which a job asks for containers. It is used with JobDir only.
	CourierDir string
	// AwaitSocket is a socket that a job needs: without it the runner shows no sign that it could take one. Empty for none.
	AwaitSocket string
	// Command is the runner and its arguments.
	Command []string
	// Environ of the runner, before ours is added; os.Environ() is usual.
	Environ []string
	// Hidden variables are taken out of it: those that lead to the pod's token (NET-3).
	Hidden []string
	// CAFile holds certificates (PEM) that the runner and its jobs trust beside those of the image; optional.
	CAFile string
	// SystemBundles are where the image's certificates may be; where distributions have them when nil.
	SystemBundles []string
	// Stdout and Stderr of the runner; discarded when nil.
	Stdout, Stderr io.Writer
	// LookEvery is the interval at which the directory is read where the kernel sends no events; 50 ms when
	// zero.
	LookEvery time.Duration
	// IdleStop is how long a static runner that is being registered, or that has been held after its last job, may take to end after TERM
	// before it is killed; 15 s when zero.
	IdleStop time.Duration
	// Overstay is how long the runner may continue after the worker of its job has exited before it is killed; 1 min when
	// zero.
	Overstay time.Duration
	// MessageFile is the container's termination message, which is kept small; terminationlog.Path when empty.
	MessageFile string
	// Now is the clock; time.Now when nil.
	Now func() time.Time
	// Of static runners: how long to wait before one that could not register tries it again, and how long after the last
	// step a job is over whose worker was not seen; 10 s, and 5 s (30 s where no worker can be seen) when unset.
	Retry, Settle time.Duration
	// Reap says that this process is the first of its container: orphans become its children, and stay zombies until they
	// are reaped. A job of many steps would fill the process table.
	Reap bool
	// Log; discarded when nil.
	Log *slog.Logger
}

// lookForWorker is the interval at which a runner whose job has started is checked for its worker.
const lookForWorker = 10 * time.Second

// releasePatience is how long a staged configuration may wait for its release. A poller releases it within runnerapi.AcknowledgeWait, and
// one that has died never does.
const releasePatience = 5 * time.Second

// lookAnyway is the interval at which the directory is read even where the kernel sends events, in case one was
// missed.
const lookAnyway = 2 * time.Second

func (o SuperviseOptions) withDefaults() (SuperviseOptions, error) {
	if o.RegistrationDir != "" {
		o.Given, o.JITFile = true, filepath.Join(o.RegistrationDir, "registration") // names the marker of the first start only
	}
	if o.JITFile == "" {
		return o, errors.New("missing shared directory: set $BULLPEN_SHARED_DIR or --shared-dir")
	}
	if o.Given && o.StatusDir == "" {
		return o, errors.New("missing status directory: set $BULLPEN_STATUS_DIR or --status-dir, because a mounted Secret is read-only")
	}
	if len(o.Command) == 0 {
		return o, errors.New("missing runner command: write it after --, such as `bullpen-agent run -- /home/runner/run.sh`")
	}
	if o.SystemBundles == nil {
		o.SystemBundles = systemBundles
	}
	if o.LookEvery == 0 {
		o.LookEvery = 50 * time.Millisecond
	}
	if o.IdleStop == 0 {
		o.IdleStop = 15 * time.Second
	}
	if o.Overstay == 0 {
		o.Overstay = time.Minute
	}
	if o.Retry == 0 {
		o.Retry = 10 * time.Second
	}
	if o.Settle == 0 {
		o.Settle = 30 * time.Second
		if seesWorkers {
			o.Settle = 5 * time.Second
		}
	}
	if o.MessageFile == "" {
		o.MessageFile = terminationlog.Path
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return o, nil
}

// Supervise waits for a configuration, runs the runner once with it and returns nil for exit 0 or an *ExitError with the
// runner's exit code (128 + signal when it was killed), which a job cannot make exitOutdated.
//
// The end of ctx is the request to stop: TERM or INT, of which a second one changes nothing; the kubelet's KILL is the end
// of every grace period.
//
//   - Before a configuration came: nil at once. Nothing was lost, and Failed would read like a crash.
//   - The runner has its configuration: nothing (EXCL-8). It may have acquired a job that shows no sign yet, and would lose it. The
//     server, or the controller, sees that the pod is being stopped, and removes the registration at GitHub. Then the runner exits,
//     and GitHub gives the job that it had not acquired to another one. Where GitHub refuses that, there is a job, which has the
//     whole grace period (POOL-9), and its exit code survives.
//
// Whether a job has started is latched in this process as soon as the hook's marker is seen, so that no workflow can undo
// it. A runner that does not exit although the worker of its one job has is killed after Overstay (TEN-5): nothing more can
// come of it.
//
// A static runner (RegistrationDir) registers itself first, and is run until it exits; static.go says how it is stopped.
func Supervise(ctx context.Context, options SuperviseOptions) error {
	options, err := options.withDefaults()
	if err != nil {
		return fail("starting the runner's supervisor: %v", err)
	}
	defer terminationlog.Keep(options.MessageFile, options.Log)()
	s := &supervisor{SuperviseOptions: options, files: filesIn(options.JITFile, options.StatusDir)}
	if err := s.files.check(); err != nil {
		return fail("starting the runner's supervisor: %v", err)
	}
	if exists(s.files.taken) {
		if s.Given {
			return s.again(ctx)
		}
		return fail("a configuration was already used in this pod: a runner is started only once")
	}
	release, err := s.holdJobContainers()
	if err != nil {
		return fail("starting the runner's supervisor: %v", err)
	}
	defer release()
	if s.Environ, err = s.trusting(s.Environ); err != nil {
		return fail("adding the CA of GitHub to the runner's certificates: %v", err)
	}
	if !s.awaitSocket(ctx) {
		_ = placeSign(s.files.exited) // the container idle may be waiting for signs of this process
		return nil
	}
	events, stop := s.watch()
	defer stop()
	if err := s.placeSigns(); err != nil {
		return fail("starting the runner's supervisor: %v", err)
	}
	defer s.removeSigns()
	if s.RegistrationDir != "" {
		return s.static(ctx, events)
	}
	jit, err := s.await(ctx, events)
	if err != nil || len(jit) == 0 {
		return err
	}
	return s.run(ctx, string(jit), events)
}

// holdJobContainers keeps the containers of a job running until release, which is called when the runner has ended: a guard ends with it, and
// everything in its container (JOB-2).
func (s *supervisor) holdJobContainers() (release func(), err error) {
	if s.JobDir == "" {
		return func() {}, nil
	}
	hold, err := volume.Take(s.JobDir)
	if err != nil {
		return nil, err
	}
	return hold.Release, nil
}

type supervisor struct {
	SuperviseOptions
	files  files
	lock   *os.File  // held while no job has started, for the container idle; nil where there is none
	staged time.Time // when a configuration was first seen that is not released yet
}

// again is a second start in one pod. The registration was used, and what it started may have done a job: nothing is started, and
// nothing says that this container could take one (RUN-7).
func (s *supervisor) again(ctx context.Context) error {
	for _, sign := range []string{s.files.jobless, s.files.idle} {
		if err := os.Remove(sign); err != nil && !errors.Is(err, os.ErrNotExist) {
			return fail("starting the runner's supervisor again: %v", err)
		}
	}
	s.Log.Info("a runner was already started in this pod and is not started twice: waiting for the pod's deletion")
	<-ctx.Done()
	return nil
}

// watch prefers the kernel's word and falls back to looking: the number of watches per user is limited. Of what a host writes into
// a virtual machine's share, and of what the kubelet changes in a Secret, no kernel tells.
func (s *supervisor) watch() (events <-chan struct{}, stop func()) {
	if s.files.apart() && !s.Given {
		return nil, func() {}
	}
	events, stop, err := watch(s.files.status())
	if err == nil {
		s.LookEvery = max(s.LookEvery, lookAnyway)
		return events, stop
	}
	if !errors.Is(err, errors.ErrUnsupported) {
		s.Log.Warn("cannot watch the shared directory: polling it instead", "error", err)
	}
	return nil, func() {}
}

// await returns the configuration; nothing when there is nothing to do.
func (s *supervisor) await(ctx context.Context, events <-chan struct{}) ([]byte, error) {
	look := time.NewTicker(s.LookEvery)
	defer look.Stop()
	for !s.released() {
		select {
		case <-ctx.Done():
			s.Log.Info("stopped while idle")
			return nil, nil
		case <-events:
		case <-look.C:
		}
	}
	if ctx.Err() != nil { // staged, not started: the server removes the registration and no job is lost
		s.Log.Info("stopped before the runner was started")
		return nil, nil
	}
	return s.take()
}

// released reports whether a configuration may be taken: the poller has released it, or has left it staged for so long that the poller
// must have died (TEN-8). Where nothing may be renamed, it is taken as it is staged.
func (s *supervisor) released() bool {
	if exists(s.files.jit) {
		return true
	}
	if !exists(s.files.staged) {
		s.staged = time.Time{}
		return false
	}
	if s.staged.IsZero() {
		s.staged = s.Now()
	}
	if s.Now().Sub(s.staged) < releasePatience {
		return false
	}
	s.Log.Warn("the stored configuration was not released: using it anyway")
	if s.files.apart() {
		s.files.jit = s.files.staged
		return true
	}
	if err := s.files.release(); err != nil {
		s.Log.Error("reading the stored configuration", "error", withoutPath(err))
	}
	return exists(s.files.jit)
}

// take reads the configuration and removes it, if it may. What says "idle" goes first.
func (s *supervisor) take() ([]byte, error) {
	_ = os.Remove(s.files.idle) // the poller must not fetch work for it any more
	jit, err := s.read()
	if err != nil && s.Given {
		return nil, fail("reading the configuration %s: %v; the runner's user must be able to read the Secret (fsGroup)", s.files.jit, withoutPath(err))
	}
	if err != nil {
		return nil, fail("reading the stored configuration: %v; the poller must run as the same user as the runner, "+
			"or as root with --runner-uid", err)
	}
	if err := placeSign(s.files.taken); err != nil {
		return nil, fail("reading the stored configuration: %v", err)
	}
	if !s.files.apart() {
		if err := os.Remove(s.files.jit); err != nil {
			return nil, fail("reading the stored configuration: %v", err)
		}
	}
	jit = bytes.TrimSpace(jit)
	if len(jit) == 0 {
		s.Log.Info("nothing to do")
	}
	return jit, nil
}

// read reads the configuration. One that was to be taken as it is staged may have been released in that moment.
func (s *supervisor) read() ([]byte, error) {
	jit, err := readBounded(s.files.jit)
	if released := strings.TrimSuffix(s.files.jit, guestshare.StagedSuffix); released != s.files.jit && errors.Is(err, os.ErrNotExist) {
		return readBounded(released)
	}
	return jit, err
}

// environment of the runner: its configuration is passed here and never as an argument, which every user of the
// machine could read (NET-3).
func (s *supervisor) environment(jit string) ([]string, error) {
	hook, err := writeHook(s.files, s.Environ)
	if err != nil {
		return nil, err
	}
	env := without(s.Environ, append([]string{envJIT}, s.Hidden...)...) // NET-3
	if hook != "" {
		env = append(without(env, envHook), hook)
	} else {
		s.Log.Warn("the image's own job hook is not a shell script: a job is detected only when the runner's worker starts")
		if !seesWorkers { // EXCL-6: without this ability, it must not say that there is none
			s.showJob()
		}
	}
	env = append(without(env, envTellsVersion), envTellsVersion+"=true")
	return append(env, envJIT+"="+jit), nil
}

func (s *supervisor) run(ctx context.Context, jit string, events <-chan struct{}) error {
	env, err := s.environment(jit)
	if err != nil {
		return fail("starting the runner: %v", err)
	}
	cmd, done, err := s.start(ctx, s.Command, env)
	if err != nil {
		return err
	}
	s.Log.Info("runner started", "pid", cmd.Process.Pid)
	worked := s.attend(ctx, cmd.Process.Pid, events, done)
	_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // what a job left running in the background
	return s.ended(cmd.ProcessState, worked)
}

// start starts a program in a process group of its own. Its end closes done.
func (s *supervisor) start(ctx context.Context, argv, env []string) (cmd *exec.Cmd, done <-chan struct{}, err error) {
	// Not killed with ctx: the caller decides what a stop means.
	cmd = exec.CommandContext(context.WithoutCancel(ctx), argv[0], argv[1:]...)
	cmd.Env, cmd.Stdout, cmd.Stderr = env, s.Stdout, s.Stderr
	cmd.WaitDelay = 5 * time.Second // a process left in the background may hold an output that is no file
	// A group of its own: signals to our group reach the supervisor alone, which decides whether to pass them
	// on.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	dieWithParent(cmd.SysProcAttr)
	started, ended := make(chan error, 1), make(chan struct{})
	go func() {
		// The kernel ties "dies with its parent" to the thread that starts the child.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait() // how it ended is in ProcessState
			close(ended)
		}
	}()
	if err := <-started; err != nil {
		return nil, nil, startFailure(argv[0], err)
	}
	return cmd, ended, nil
}

// attend returns when the runner has ended, and whether it has had a job. A stop is for the log alone (EXCL-8).
func (s *supervisor) attend(ctx context.Context, group int, events <-chan struct{}, done <-chan struct{}) (worked bool) {
	look := time.NewTicker(s.LookEvery)
	defer look.Stop()
	stop := ctx.Done()
	j := oneJob{supervisor: s, group: group}
	for {
		select {
		case <-done:
			return j.started()
		case <-events:
			j.started()
		case <-look.C:
			j.started()
			if j.overstays() {
				s.Log.Warn("the runner has not exited although its job has finished: killing it")
				_ = syscall.Kill(-group, syscall.SIGKILL)
			}
			if s.Reap {
				reapOrphans(group)
			}
		case <-stop:
			stop = nil
			s.closeRequests()
			if j.started() {
				s.Log.Info("asked to stop: waiting for the job")
			} else {
				s.Log.Info("asked to stop: the runner exits when its registration is removed, or after its assigned job")
			}
		}
	}
}

// oneJob is what is known of the job of a runner that has one only. One goroutine has it.
type oneJob struct {
	*supervisor
	group   int
	latched bool      // it has started
	worker  bool      // it is known to have a worker
	looked  time.Time // for its worker
	over    time.Time // when its worker was first seen to have ended
}

// started says whether the job has started.
func (j *oneJob) started() bool {
	if !j.latched {
		hooked := exists(j.files.jobStarted) // by the worker, which is looked for after that: then it is there
		j.worker = workerRuns(j.group)
		if j.latched = j.worker || hooked; j.latched {
			j.looked = j.Now()
			j.Log.Info("a job has started")
		}
	}
	if j.latched {
		j.showJob() // EXCL-6
	}
	return j.latched
}

// overstays says whether the runner continues for too long after its job's worker, which is known to have run, has exited
// (TEN-5). A worker that has ended before this process looked for it is known from the hook, which it ran.
func (j *oneJob) overstays() bool {
	now, every := j.Now(), min(lookForWorker, j.Overstay)
	if !j.worker {
		every = 0 // the hook was seen first
	}
	if !j.latched || now.Sub(j.looked) < every {
		return false
	}
	j.looked, j.worker = now, j.worker || j.files.hookRunByWorker()
	switch running := workerRuns(j.group); {
	case running:
		j.worker, j.over = true, time.Time{}
	case j.worker && j.over.IsZero():
		j.over = now
	}
	return !j.over.IsZero() && now.Sub(j.over) >= j.Overstay
}

func startFailure(program string, err error) error {
	code := exitNotExecutable
	if errors.Is(err, exec.ErrNotFound) || errors.Is(err, os.ErrNotExist) {
		code = exitNotFound
	}
	return &ExitError{Code: code, Text: fmt.Sprintf("starting the runner %s: %v", program, err)}
}

// ended is the exit of a runner that has a job, or had its one job, or has not.
func (s *supervisor) ended(state *os.ProcessState, worked bool) error {
	code := state.ExitCode()
	if code == exitOutdated && worked {
		code = exitFailed // RUN-7: it is the job's doing
	}
	if status, ok := state.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		code = exitSignalBase + int(status.Signal())
	}
	s.Log.Info("runner exited", "code", code)
	if code == 0 {
		return nil
	}
	return &ExitError{Code: code}
}
