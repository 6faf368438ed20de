package onebox

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/bullpen-ci/bullpen/internal/lib/childproc"
	"github.com/bullpen-ci/bullpen/internal/lib/faultpoint"
)

// Backoff of restarts: doubled for each death in a row, reset after a process has stayed up for a while.
const (
	firstBackoff = 250 * time.Millisecond
	maxBackoff   = 30 * time.Second
	stableAfter  = 30 * time.Second
)

// nextBackoff is the pause before the next start, given the last pause and how long the process had run.
func nextBackoff(last, ran time.Duration) time.Duration {
	// A part that is killed on purpose, repeatedly, is not crashing.
	if last == 0 || ran >= stableAfter || faultpoint.Enabled {
		return firstBackoff
	}
	return min(2*last, maxBackoff)
}

// Command is how to start one process.
type Command struct {
	// Name is the part's: "server".
	Name string
	// Path of the executable and its arguments, without secrets: those are in files.
	Path string
	Args []string
	// Env is the whole environment.
	Env []string
	// LogPath is appended to.
	LogPath string
	// Grace is how long the process may take to end after SIGTERM.
	Grace time.Duration
}

// supervised is one part that is kept running until it is stopped.
type supervised struct {
	command Command
	record  *record
	report  func(Event)
	now     func() time.Time

	cancel context.CancelFunc
	ended  chan struct{} // closed when run has returned: no process is left

	mu      sync.Mutex // guards what follows
	current *childproc.Child
	since   time.Time
	changed chan struct{} // closed and replaced whenever current changes
	asked   bool          // the end of current is our own doing
	ready   bool          // the part was ready once: from then on it is kept running
}

// supervise starts the part, and keeps it running once awaitReady has seen it ready: a failure at its very start would
// repeat. ctx ends the supervision, and with it the process, like stop does.
func supervise(ctx context.Context, command Command, rec *record, report func(Event), now func() time.Time) (*supervised, error) {
	s := &supervised{command: command, record: rec, report: report, now: now, ended: make(chan struct{}), changed: make(chan struct{})}
	first, err := s.start()
	if err != nil {
		return nil, err
	}
	ctx, s.cancel = context.WithCancel(ctx)
	go func() {
		defer close(s.ended)
		s.run(ctx, first)
	}()
	return s, nil
}

func (s *supervised) start() (*childproc.Child, error) {
	process := exec.Command(s.command.Path, s.command.Args...) //nolint:noctx // it outlives the context of its start; stop ends it
	process.Env = s.command.Env
	// Nothing of ours outlives a kill -9 of its owner. Runner pods are no children: they survive their node agent (NODE-3).
	c, err := childproc.StartLogged(process, s.command.LogPath, syscall.SIGKILL)
	if err != nil {
		return nil, fmt.Errorf("starting %s: %w", s.command.Name, err)
	}
	if err := s.record.add(s.command.Name, c.PID()); err != nil {
		c.Stop(context.Background(), syscall.SIGKILL, 0)
		return nil, fmt.Errorf("recording %s: %w", s.command.Name, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.current, s.since, s.asked = c, s.now(), false
	close(s.changed)
	s.changed = make(chan struct{})
	return c, nil
}

// run waits for the end of each child and starts the next.
func (s *supervised) run(ctx context.Context, c *childproc.Child) {
	var pause time.Duration
	for {
		select {
		case <-ctx.Done():
			c.Stop(context.Background(), syscall.SIGTERM, s.command.Grace)
			return
		case <-c.Done():
		}
		s.mu.Lock()
		asked, ready, ran := s.asked, s.ready, s.now().Sub(s.since)
		s.mu.Unlock()
		switch {
		case !ready:
			return
		case asked:
			pause = 0
		default:
			pause = nextBackoff(pause, ran)
			s.report(Event{
				Kind: EventEnded, Part: s.command.Name, PID: c.PID(), Log: s.command.LogPath,
				Message: fmt.Sprintf("%s (pid %d) died (%s); restarting in %s", s.command.Name, c.PID(), strings.TrimPrefix(c.Outcome(), "signal: "), pause),
			})
		}
		next := s.startAgain(ctx, &pause)
		if next == nil {
			return
		}
		if !asked {
			s.report(Event{Kind: EventStarted, Part: s.command.Name, PID: next.PID(), Log: s.command.LogPath,
				Message: fmt.Sprintf("%s restarted (pid %d)", s.command.Name, next.PID())})
		}
		c = next
	}
}

// startAgain starts the next child after the pause, and tries until it can; nil when ctx ended first.
func (s *supervised) startAgain(ctx context.Context, pause *time.Duration) *childproc.Child {
	for waitFor(ctx, *pause) {
		next, err := s.start()
		if err == nil {
			return next
		}
		*pause = nextBackoff(*pause, 0)
		s.report(Event{Kind: EventProblem, Part: s.command.Name, Message: fmt.Sprintf("%v; retrying in %s", err, *pause)})
	}
	return nil
}

// waitFor pauses; false when ctx ended first.
func waitFor(ctx context.Context, pause time.Duration) bool {
	if pause <= 0 {
		return ctx.Err() == nil
	}
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

// state is the current child, when it was started, and a channel that is closed when another takes its place.
func (s *supervised) state() (c *childproc.Child, since time.Time, changed <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.current, s.since, s.changed
}

// replace ends the current process with a signal, and returns when its successor has been started.
func (s *supervised) replace(ctx context.Context, signal syscall.Signal) (oldPID, newPID int, err error) {
	s.mu.Lock()
	old, changed := s.current, s.changed
	s.asked = true
	s.mu.Unlock()
	old.Signal(signal)
	select {
	case <-changed:
	case <-s.ended:
		return old.PID(), 0, errStopping
	case <-ctx.Done():
		return old.PID(), 0, fmt.Errorf("waiting for the successor of %s (pid %d): %w", s.command.Name, old.PID(), ctx.Err())
	}
	next, _, _ := s.state()
	return old.PID(), next.PID(), nil
}

var errStopping = errors.New("stopping")

// stop ends the part and returns when no process of it is left. Stopping twice is fine.
func (s *supervised) stop() {
	s.cancel()
	<-s.ended
}

// awaitReady polls until the part is ready. A process that exits before is a failure, with its last log line as the error.
func (s *supervised) awaitReady(ctx context.Context, ready func(context.Context, time.Time) error) error {
	tick := time.NewTicker(50 * time.Millisecond) // another process's readiness cannot be waited for otherwise
	defer tick.Stop()
	first, since, _ := s.state()
	for {
		asking, cancel := context.WithTimeout(ctx, 5*time.Second)
		last := ready(asking, since)
		cancel()
		if last == nil {
			s.mu.Lock()
			s.ready = true
			s.mu.Unlock()
			return nil
		}
		select {
		case <-first.Done():
			return fmt.Errorf("%s exited during its start (%s): %s. See its log: %s",
				s.command.Name, first.Outcome(), lastWords(s.command.LogPath), s.command.LogPath)
		case <-ctx.Done():
			return fmt.Errorf("%s did not become ready: %w. See its log: %s", s.command.Name, last, s.command.LogPath)
		case <-tick.C:
		}
	}
}

// lastWords are the end of a process's log: its error, which can have several lines, or the last line.
func lastWords(path string) string {
	file, err := os.Open(path)
	if err != nil {
		return "no log"
	}
	defer file.Close()
	const window = 4096
	if info, err := file.Stat(); err == nil && info.Size() > window {
		_, _ = file.Seek(-window, io.SeekEnd)
	}
	data, _ := io.ReadAll(io.LimitReader(file, window))
	text := strings.TrimSpace(string(data))
	if text == "" {
		return "empty log"
	}
	const ours = "\nbullpen: " // how the binary begins its error
	if at := strings.LastIndex("\n"+text, ours); at >= 0 {
		return strings.Join(strings.Fields(text[at+len(ours)-1:]), " ")
	}
	return strings.TrimSpace(text[strings.LastIndexByte(text, '\n')+1:])
}
