package runner

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// listenerVersion is the version of GitHub's listener whose behaviour this one follows, and reports.
const listenerVersion = "2.336.0"

// Options configure a Runner. JIT or Root is required; every other field has a default.
type Options struct {
	// JIT is the encoded JIT config.
	JIT string
	// Root is the directory that Configure has written, for a runner without a JIT config.
	Root string
	// Worker are the arguments with which this program runs RunWorker. When set, each job runs in a process of its own, named
	// Runner.Worker as GitHub's, which reports the job's end itself.
	Worker []string
	// WorkDir is the directory that the JIT config's WorkFolder is relative to; by default the current one.
	WorkDir string
	// WorkerAfter is how long a job's worker takes to start once the job was acquired; by default no time. With GitHub's
	// runner that is up to a second, and a runner that is stopped in that time loses the job: its end is never reported.
	WorkerAfter time.Duration
	// Environ is the environment that steps begin with, by default the process's own. The variables with a JIT config are removed from it.
	Environ []string
	// Console gets the few lines that GitHub's listener prints; by default nothing.
	Console io.Writer
	// Log gets what goes wrong, never a secret; by default nothing.
	Log *slog.Logger
	// HTTP is the client for all calls.
	HTTP *http.Client
	// Now, After and Random are the clock and the randomness; Random returns a number in [0, 1).
	Now    func() time.Time
	After  func(time.Duration) <-chan time.Time
	Random func() float64
	// Version is the listener version that is reported.
	Version string
	// Within, if it is set, may run a script without a process of its own, for a program with thousands of runners in it. It
	// gets the shell's arguments, of which the last is the script's file, and tells its exit code and whether it has run it: if
	// not, the shell does. The context is done when the script has to end.
	Within func(ctx context.Context, args []string) (code int, ran bool)
	// InterruptGrace is how long a step has after SIGINT, TerminateGrace how long after SIGTERM, before SIGKILL.
	// By default 7.5 s and 2.5 s, as with GitHub's runner.
	InterruptGrace, TerminateGrace time.Duration
	// StreamGrace is how long a finished step's output is still read when a process it left behind holds the
	// pipe. By default 5 s.
	StreamGrace time.Duration
	// NoFeed leaves the live log out: a connection less for each job, for a program with thousands of runners in it.
	NoFeed bool
	// FlushEvery is how often the log of a running step is uploaded. By default 1 s.
	FlushEvery time.Duration
}

func (o *Options) setDefaults() error {
	if o.WorkDir == "" {
		o.WorkDir = "."
	}
	dir, err := filepath.Abs(o.WorkDir)
	if err != nil {
		return fmt.Errorf("finding the work directory: %w", err)
	}
	o.WorkDir = dir
	if o.Environ == nil {
		o.Environ = os.Environ()
	}
	if o.Console == nil {
		o.Console = io.Discard
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.HTTP == nil {
		o.HTTP = &http.Client{Transport: http.DefaultTransport.(*http.Transport).Clone()}
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.After == nil {
		o.After = time.After
	}
	if o.Random == nil {
		o.Random = rand.Float64
	}
	o.Version = cmp.Or(o.Version, listenerVersion)
	o.InterruptGrace = cmp.Or(o.InterruptGrace, 7500*time.Millisecond)
	o.TerminateGrace = cmp.Or(o.TerminateGrace, 2500*time.Millisecond)
	o.StreamGrace = cmp.Or(o.StreamGrace, 5*time.Second)
	o.FlushEvery = cmp.Or(o.FlushEvery, time.Second)
	return nil
}

// Runner is one registered runner, from its session to its exit.
type Runner struct {
	opts   Options
	config *Config
	tokens *tokens
	broker *broker
	work   string
}

// New reads the JIT config and prepares a runner. The error is an *ExitError.
func New(opts Options) (*Runner, error) {
	config, err := opts.config()
	if err != nil {
		return nil, &ExitError{ExitTerminated, err}
	}
	if err := opts.setDefaults(); err != nil {
		return nil, &ExitError{ExitRetryable, err}
	}
	opts.JIT = "" // nothing needs it any longer
	r := &Runner{opts: opts, config: config}
	r.tokens = &tokens{config: config, http: opts.HTTP, now: opts.Now}
	r.broker = &broker{caller: caller{http: opts.HTTP, auth: r.tokens}, config: config, version: opts.Version}
	r.work = cmp.Or(config.WorkFolder, "_work")
	if !filepath.IsAbs(r.work) {
		r.work = filepath.Join(opts.WorkDir, r.work)
	}
	return r, nil
}

func (o *Options) config() (*Config, error) {
	if o.Root != "" {
		return loadConfig(o.Root)
	}
	return DecodeJIT(o.JIT)
}

const (
	sessionRetry     = 30 * time.Second
	conflictPatience = 4 * time.Minute
)

// Run takes one job if the runner is ephemeral, jobs forever otherwise, and returns nil where GitHub's listener
// exits with 0: after the job with any conclusion, and when ctx is cancelled. A job that runs by then is
// cancelled first, and its end reported. Any other end is an *ExitError.
func (r *Runner) Run(ctx context.Context) error {
	err := r.openSession(ctx)
	connected := err == nil // GitHub's listener tells that its version is refused only when its poll is, not when its session is
	if connected {
		r.say("√ Connected to GitHub\n")
		r.say("%s: Listening for Jobs", r.opts.Now().UTC().Format("2006-01-02 15:04:05Z"))
		err = r.listen(ctx)
		r.closeSession(ctx, err)
	}
	var coded *ExitError
	switch {
	case err == nil || ctx.Err() != nil:
		return nil //nolint:nilerr // asked to stop, whatever failed because of it: GitHub's listener exits with 0
	case errors.As(err, &coded):
		return err
	case errors.Is(err, errRemoved):
		return &ExitError{ExitTerminated, err}
	case errors.Is(err, errVersion) && connected && slices.Contains(r.opts.Environ, envTellsVersion+"=true"):
		return &ExitError{ExitVersionDeprecated, err}
	case errors.Is(err, errVersion):
		return &ExitError{ExitTerminated, err}
	}
	return &ExitError{ExitRetryable, err}
}

// fatal reports whether an error of the broker ends this runner: trying again cannot help.
func fatal(err error) bool { return errors.Is(err, errRemoved) || errors.Is(err, errVersion) }

// openSession retries until it has a session, as GitHub's listener does: without limit, but four minutes against
// another session of the same runner.
func (r *Runner) openSession(ctx context.Context) error {
	var conflictSince time.Time
	for {
		err := r.broker.createSession(ctx)
		switch {
		case err == nil || fatal(err) || ctx.Err() != nil:
			return err
		case errors.Is(err, errConflict):
			if conflictSince.IsZero() {
				conflictSince = r.opts.Now()
			}
			if r.opts.Now().Sub(conflictSince) >= conflictPatience {
				return &ExitError{ExitSessionConflict, err}
			}
		default:
			conflictSince = time.Time{}
		}
		r.opts.Log.Warn("runner connect error, retrying until connected", "error", err)
		if err := r.pause(ctx, sessionRetry, 1.2); err != nil {
			return err
		}
	}
}

// closeSession frees the session for the next runner; it is worth one short try even while shutting down.
func (r *Runner) closeSession(ctx context.Context, cause error) {
	if cause != nil && fatal(cause) {
		return // there is nothing left to delete
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 30*time.Second)
	defer cancel()
	if err := r.broker.deleteSession(ctx); err != nil {
		r.opts.Log.Warn("deleting the session failed; the service will drop it later", "error", err)
	}
}

// pause waits between d and factor·d, so that runners that lost the service together do not return together.
func (r *Runner) pause(ctx context.Context, d time.Duration, factor float64) error {
	jittered := time.Duration(float64(d) * (1 + (factor-1)*r.opts.Random()))
	select {
	case <-r.opts.After(jittered):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// quickly is how soon an empty answer is suspicious: the service holds a poll for many seconds.
const quickly = 250 * time.Millisecond

// nextMessage polls until there is a message, backing off like GitHub's listener while the service fails.
func (r *Runner) nextMessage(ctx context.Context, status string) (*message, error) {
	failures, quick := 0, 0
	for {
		began := r.opts.Now()
		m, err := r.broker.poll(ctx, status)
		switch {
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case err == nil && m != nil:
			return m, nil
		case err == nil:
			failures = 0
			if quick++; r.opts.Now().Sub(began) >= quickly {
				quick = 0
			}
			if quick < 3 {
				continue
			}
			// Something between us and the service answers at once: do not spin.
			err = r.pause(ctx, time.Second, 2)
		case fatal(err):
			return nil, err
		case errors.Is(err, errSession):
			r.opts.Log.Warn("the session ended, opening another", "error", err)
			err = r.openSession(ctx)
		default:
			failures++
			r.opts.Log.Warn("waiting for a message failed", "error", err, "failures", failures)
			from := 15 * time.Second
			if failures > 5 {
				from = 30 * time.Second
			}
			err = r.pause(ctx, from, 2)
		}
		if err != nil {
			return nil, err
		}
	}
}

// listen handles messages until there is nothing more to do.
func (r *Runner) listen(ctx context.Context) error {
	skipped := 0
	for {
		m, err := r.nextMessage(ctx, "Online")
		if err != nil {
			return err
		}
		switch m.Type {
		case messageJob:
			ran, err := r.take(ctx, m)
			switch {
			case errors.Is(err, errNothingToDo):
				return nil
			case fatal(err) || ctx.Err() != nil:
				return err
			case ran && r.config.Ephemeral:
				return err
			case err != nil:
				skipped++
				r.opts.Log.Warn("skipping a job message", "error", err)
				// The broker may repeat the message until the run service has reported the refusal.
				if err := r.pause(ctx, min(time.Second<<min(skipped-1, 5), 30*time.Second), 1.5); err != nil {
					return err
				}
			default:
				skipped = 0
			}
		case messageTokenRefresh:
			r.tokens.refresh()
		default:
			r.opts.Log.Debug("ignoring a message", "type", m.Type)
		}
	}
}

func (r *Runner) say(format string, args ...any) {
	fmt.Fprintf(r.opts.Console, format+"\n", args...)
}
