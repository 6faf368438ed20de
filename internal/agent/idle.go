package agent

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"syscall"
	"time"
)

// IdleOptions of Idle. The zero value of an optional field takes its default.
type IdleOptions struct {
	// JITFile is where the poller stages the configuration. It names the shared directory.
	JITFile string
	// LookEvery is the interval at which the directory is read in case the lock reports nothing; 2 s when zero.
	LookEvery time.Duration
	// Log; discarded when nil.
	Log *slog.Logger
}

// Idle returns nil when a job has started in the runner's container, or when its supervisor has exited. The kubelet reports the exit of the
// container that runs it, and that is the pod's own sign of work (EXCL-4): it needs no probe, no credential and no network. Whatever else
// ends this process shows the same, so a pod without the sign says for certain that no job has started.
//
// It waits for a lock that the supervisor holds, and so uses no CPU. The end of ctx alone ends it only while no supervisor runs: a runner of
// a pod that is being deleted may be given a job (EXCL-8), and the pod must show it.
func Idle(ctx context.Context, o IdleOptions) error {
	if o.JITFile == "" {
		return fail("waiting for a job: %v", errors.New("missing shared directory: set $BULLPEN_SHARED_DIR or --shared-dir"))
	}
	if o.LookEvery == 0 {
		o.LookEvery = lookAnyway
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	f := filesIn(o.JITFile, "")
	if err := f.check(); err != nil {
		return fail("waiting for a job: %v", err)
	}
	if !f.awaitSupervisor(ctx) {
		o.Log.Info("no runner is waiting for a job")
		return nil
	}
	look := time.NewTicker(o.LookEvery)
	defer look.Stop()
	released, stop := lockReleased(f.jobless), ctx.Done()
	exited, stopped := false, false
	for Ready(o.JITFile, "") == nil && !(exited && stopped) {
		select {
		case <-released: // and the file is still there: the supervisor was killed, or there are no locks
			exited, released = true, nil
		case <-stop:
			stopped, stop = true, nil
		case <-look.C:
		}
	}
	o.Log.Info("a job has started, or the runner has exited")
	return nil
}

// awaitSupervisor reports whether a supervisor shows that no job has started; false when one has shown that before or has exited, or ctx ended.
// The signal that ends ctx can be missed: the kernel drops it while the first process of a container has no handler for it yet.
func (f files) awaitSupervisor(ctx context.Context) bool {
	look := time.NewTicker(lookForRunner)
	defer look.Stop()
	for !exists(f.jobless) {
		if exists(f.taken) || exists(f.jobStarted) || exists(f.exited) {
			return false
		}
		select {
		case <-ctx.Done():
			return false
		case <-look.C:
		}
	}
	return true
}

// lockReleased is closed when no process holds a lock on the file. A wait for a lock cannot be cancelled: it ends with this process.
func lockReleased(path string) <-chan struct{} {
	released := make(chan struct{})
	go func() {
		defer close(released)
		file, err := os.Open(path)
		if err != nil {
			return
		}
		defer func() { _ = file.Close() }()
		_ = flock(file, syscall.LOCK_SH)
	}()
	return released
}
