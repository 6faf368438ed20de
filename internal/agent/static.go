package agent

import (
	"context"
	"os"
	"syscall"
	"time"
)

const (
	// busyLook is the interval at which a static runner is polled whose job is about to be over: no event reports a
	// process's exit.
	busyLook = 50 * time.Millisecond
	// frozenAtMost is how long a listener is held: far less than the ten minutes for which GitHub waits for it to renew its job.
	frozenAtMost = 4 * time.Minute
)

// static registers a runner and runs it until it exits.
//
// It is not ready while a job runs, and ready again after it. A job is over when its worker has exited, or, where no worker
// was seen, some time after the hook at its end has run. What is not seen to be over is not: a runner that is wrongly held
// busy is only removed later.
//
// The end of ctx:
//
//   - No job runs: nothing (EXCL-8), because it may have acquired one that shows no sign yet. The controller removes the registration at
//     GitHub, and then the runner exits.
//   - A job runs: it may finish, and the runner is stopped before it takes another. GitHub's listener has no order for that: TERM
//     and INT both cancel its job (actions/runner issues 2190, 2582, 3308). But its worker finishes and reports a job without it. So
//     once the hook reports that the job's last step is over, the listener is held (SIGSTOP), and can ask GitHub for nothing. The
//     hook waits for that, some seconds at most. When the worker has exited, the listener is killed as it is held (KILL): an answer of
//     GitHub's may have reached its socket in between, and it could acquire that job before it saw an order to stop, and cancel it
//     then. GitHub gives a job that was not acquired to another runner. A runner that has no hook, or no worker that can be
//     seen, continues until its registration is removed.
func (s *supervisor) static(ctx context.Context, events <-chan struct{}) error {
	_ = os.Remove(s.files.idle) // it is for pollers, of which there are none
	registered, err := s.register(ctx)
	if err != nil || !registered {
		return err
	}
	env, err := s.staticEnvironment()
	if err != nil {
		return fail("starting the runner: %v", err)
	}
	cmd, done, err := s.start(ctx, s.Command, env)
	if err != nil {
		return err
	}
	s.Log.Info("runner started", "pid", cmd.Process.Pid)
	attended := &attendance{supervisor: s, group: cmd.Process.Pid, silent: !seesWorkers && !exists(s.files.jobless)}
	attended.run(ctx, events, done)
	_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // what a job left running in the background
	if attended.listenerEnded {
		s.Log.Info("the runner exited after its last job")
		return nil
	}
	return s.ended(cmd.ProcessState, attended.busy)
}

// staticEnvironment is the runner's: with both hooks, and without anything that it could be registered with again.
func (s *supervisor) staticEnvironment() ([]string, error) {
	hookDone, err := writeHookDone(s.files, s.Environ)
	if err != nil {
		return nil, err
	}
	env, err := s.environment("")
	if err != nil {
		return nil, err
	}
	env = without(env, envJIT, inputPrefix+"TOKEN")
	if hookDone != "" {
		env = append(without(env, envHookDone), hookDone)
	}
	return env, nil
}

// attendance is what is known of a static runner while it runs. One goroutine has it.
type attendance struct {
	*supervisor
	group int
	// silent: its jobs cannot be detected, so it never shows that it has none.
	silent bool
	said   bool // that it cannot show that it is idle

	busy     bool
	worked   bool      // its present job's worker was seen
	over     time.Time // when its present job's last step was seen to be over
	draining bool      // a stop came while it was busy
	stopped  bool      // TERM was sent
	frozen   int       // the listener that is held; 0: none
	since    time.Time
	thawed   bool // the present job took too long after its last step: its listener is not held again
	// listenerEnded: the listener was ended while it was held, with its last job reported. How its process ended says nothing then.
	listenerEnded bool
}

// look brings what is known up to date. It returns whether a job runs.
func (a *attendance) look() bool {
	working := workerRuns(a.group)
	if !a.busy && (working || exists(a.files.jobStarted)) {
		a.busy = true
		a.Log.Info("a job has started")
	}
	if !a.busy {
		a.showIdle()
		return false
	}
	_ = os.Remove(a.files.jobless) // EXCL-6: the pod shows it from the next probe on
	a.worked = a.worked || working
	if working || !a.worked && !a.settled() {
		return true
	}
	a.busy, a.worked, a.thawed = false, false, false
	a.Log.Info("the job has finished")
	a.idleAgain()
	return a.busy
}

// settled says of a job whose worker cannot be seen that it was reported by now: its last step is over since a while, and no other
// job has started.
func (a *attendance) settled() bool {
	if !exists(a.files.jobCompleted) {
		a.over = time.Time{}
		return false
	}
	if a.over.IsZero() {
		a.over = a.Now()
	}
	return a.Now().Sub(a.over) >= a.Settle
}

// idleAgain shows that the runner has no job. It checks once more afterwards, because the next one may have
// begun in between, and its hook have written what is removed here.
func (a *attendance) idleAgain() {
	_ = os.Remove(a.files.jobCompleted)
	_ = os.Remove(a.files.jobStarted)
	a.showIdle()
	if workerRuns(a.group) {
		a.busy, a.worked = true, true
		_ = os.Remove(a.files.jobless) // EXCL-6
		a.Log.Info("a job has started")
	}
}

// showIdle shows that no job runs, where that is not shown: the disk may have been full when the last one ended, and a
// runner that looks busy forever is never removed.
func (a *attendance) showIdle() {
	if a.silent || a.frozen != 0 || a.stopped || exists(a.files.jobless) {
		return
	}
	err := placeSign(a.files.jobless)
	if err != nil && !a.said {
		a.Log.Error("recording that the runner is idle failed, retrying", "error", err)
	}
	a.said = err != nil
}

// hold holds the listener between a job's last step and the end of its worker, so that it takes no other.
func (a *attendance) hold() {
	switch {
	case a.frozen != 0 && a.Now().Sub(a.since) > frozenAtMost:
		a.Log.Warn("the job has not finished after its last step: the runner continues")
		a.thaw()
		a.thawed = true
	case a.frozen == 0 && !a.thawed && exists(a.files.jobCompleted):
		if listener := listenerOf(a.group); listener != 0 && syscall.Kill(listener, syscall.SIGSTOP) == nil {
			a.frozen, a.since = listener, a.Now()
			a.sign(a.files.held) // the hook continues, and the worker exits
		}
	}
}

// sign leaves a sign for the hook; where it cannot, the hook does not wait, or not for long.
func (a *attendance) sign(path string) {
	if err := placeSign(path); err != nil {
		a.Log.Warn("writing a file for the job's hook", "error", err)
	}
}

func (a *attendance) thaw() {
	if a.frozen != 0 {
		_ = syscall.Kill(a.frozen, syscall.SIGCONT)
		a.frozen = 0
	}
}

// endListener ends the listener that is held: it may have been given a job that it has not read of yet, and must not acquire.
func (a *attendance) endListener() {
	if a.frozen != 0 && syscall.Kill(a.frozen, syscall.SIGKILL) == nil {
		a.listenerEnded = true
	}
	a.frozen = 0
}

// run returns when the runner has ended.
func (a *attendance) run(ctx context.Context, events <-chan struct{}, done <-chan struct{}) {
	timer := time.NewTimer(a.LookEvery)
	defer timer.Stop()
	stop := ctx.Done()
	var stoppedAt time.Time
	for {
		select {
		case <-done:
			return
		case <-events:
		case <-timer.C:
		case <-stop:
			stop = nil
			a.draining = true
			a.sign(a.files.last)
			if a.look() {
				a.Log.Info("asked to stop: waiting for the job, which is the last")
			} else {
				a.Log.Info("asked to stop: no job is running, and the runner exits when its registration is removed")
			}
		}
		busy := a.look()
		switch {
		case a.draining && busy:
			a.hold()
		case a.draining && a.frozen != 0 && !a.stopped: // held since before the end of its last job: it has acquired no other (EXCL-8)
			a.stopped, stoppedAt = true, a.Now()
			a.endListener()
			_ = syscall.Kill(-a.group, syscall.SIGTERM)
		case a.stopped && !busy && a.Now().Sub(stoppedAt) > a.IdleStop:
			_ = syscall.Kill(-a.group, syscall.SIGKILL)
		}
		if a.Reap {
			reapOrphans(a.group)
		}
		timer.Reset(a.pace())
	}
}

// pace is the time until the next check.
func (a *attendance) pace() time.Duration {
	if a.draining || a.busy && exists(a.files.jobCompleted) {
		return min(busyLook, a.LookEvery)
	}
	return a.LookEvery
}
