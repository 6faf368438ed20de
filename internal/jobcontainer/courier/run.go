package courier

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/bullpen-ci/bullpen/internal/jobcontainer"
	"github.com/bullpen-ci/bullpen/internal/jobcontainer/letter"
)

// DeletedText is what a job reads that asks for containers in a pod that is being deleted.
const DeletedText = "The runner's pod is being deleted, and Kubernetes starts no container in it any more. Re-run the job."

// RunOptions of Run. The zero value of an optional field takes its default.
type RunOptions struct {
	// Dir is the volume, Lock the file that the runner's supervisor has locked while its runner runs, MessageFile the container's
	// termination message. Required.
	Dir, Lock, MessageFile string
	// Request is the request to go on with, from the character From; empty: the next one.
	Request string
	From    int
	// Limit is how many bytes the message may have. Required, unless nothing is waited for.
	Limit int
	// Delivery is written into the volume first.
	Delivery letter.Delivery
	// DeliverOnly ends the process after that.
	DeliverOnly bool
	// Watch signals when something appears in a directory; nil: the directory is read at each interval.
	Watch func(dir string) (appeared <-chan struct{}, stop func(), err error)
	// LookEvery is that interval; 2 s when zero, and 100 ms without Watch.
	LookEvery time.Duration
	// Now is the clock; time.Now when nil.
	Now func() time.Time
	// Log; discarded when nil.
	Log *slog.Logger
}

// Run delivers what the controller sent, waits for a request, and writes it as the container's termination message, with which the kubelet
// reports it. It returns nil then, and when there will be none: the runner has exited, requests are closed, or ctx ended, which closes them.
//
// It waits by the kernel's events and a lock, without polling.
func Run(ctx context.Context, o RunOptions) error {
	if o.Dir == "" || !o.DeliverOnly && (o.Lock == "" || o.MessageFile == "" || o.Limit <= 0) {
		return errors.New("carrying requests for containers: directory, lock, message file and limit are required")
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if err := prepare(o.Dir); err != nil {
		return fmt.Errorf("carrying requests for containers: %w", err)
	}
	if err := deliver(o.Dir, o.Delivery); err != nil {
		return fmt.Errorf("carrying requests for containers: %w", err)
	}
	if o.DeliverOnly || o.Delivery.Closed != "" {
		return nil
	}
	return o.wait(ctx)
}

func (o RunOptions) wait(ctx context.Context) error {
	events, stop := o.watch()
	defer stop()
	look := time.NewTicker(o.lookEvery(events != nil))
	defer look.Stop()
	runner := supervisor{lock: o.Lock, now: o.Now}
	runner.await()
	for closedText(o.Dir) == "" {
		if id, text := nextRequest(o.Dir, o.Request); id != "" {
			return o.send(id, text)
		}
		select {
		case <-events:
		case <-look.C:
			runner.await()
		case <-runner.released:
			if runner.exited() { // JOB-2
				o.Log.Info("the runner has exited")
				return nil
			}
		case <-ctx.Done():
			o.Log.Info("asked to stop: no container can be added to this pod any more")
			return Close(o.Dir, DeletedText)
		}
	}
	return nil
}

func (o RunOptions) watch() (events <-chan struct{}, stop func()) {
	if o.Watch != nil {
		events, stop, err := o.Watch(filepath.Join(o.Dir, requestsDir))
		if err == nil {
			return events, stop
		}
		o.Log.Warn("cannot watch the volume: polling it instead", "error", err)
	}
	return nil, func() {}
}

func (o RunOptions) lookEvery(watched bool) time.Duration {
	switch {
	case o.LookEvery > 0:
		return o.LookEvery
	case watched:
		return 2 * time.Second
	}
	return 100 * time.Millisecond
}

func (o RunOptions) send(id, text string) error {
	message, err := letter.Cut(id, text, o.From, o.Limit)
	if err != nil {
		return err
	}
	// The kubelet has made the file, and reads it where it is.
	if err := os.WriteFile(o.MessageFile, []byte(message), 0o600); err != nil {
		return fmt.Errorf("sending a request for containers: %w", err)
	}
	o.Log.Info("sent a request for containers", "request", id, "from", o.From, "of", len(text))
	return nil
}

// settle is how long a lock that was just made may be free: its owner takes it right after.
const settle = time.Second

// supervisor finds out that the runner's supervisor has exited, by a lock that the kernel releases then.
type supervisor struct {
	lock     string
	now      func() time.Time
	seen     time.Time     // when the lock was first seen
	released chan struct{} // closed when the lock was free; nil while it is not waited for
}

// await begins to wait for the lock, once there is one. A wait for a lock cannot be cancelled: it ends with this process.
func (s *supervisor) await() {
	if s.released != nil {
		return
	}
	file, err := jobcontainer.OpenRegular(s.lock)
	if err != nil {
		return // not yet, or a job has replaced it: this process ends by SIGTERM then
	}
	if s.seen.IsZero() {
		s.seen = s.now()
	}
	released := make(chan struct{})
	s.released = released
	go func() {
		defer close(released)
		defer func() { _ = file.Close() }()
		for errors.Is(syscall.Flock(int(file.Fd()), syscall.LOCK_SH), syscall.EINTR) {
			continue
		}
	}()
}

// exited reports, after the lock was free, whether its owner has exited. One that was made a moment ago may not have been taken yet.
func (s *supervisor) exited() bool {
	s.released = nil
	return s.now().Sub(s.seen) >= settle
}
