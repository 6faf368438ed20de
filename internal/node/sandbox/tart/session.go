//go:build unix

package tart

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// session ensures that the user has a GUI session, without which no machine can be started (NODE-9): the framework wants the
// console user's unlocked keychain.
type session struct{}

// sessionLook is how often a session is looked for that was asked to come back, and queryTimeout bounds one look.
const (
	sessionLook  = 500 * time.Millisecond
	queryTimeout = 10 * time.Second
)

// ensure returns nil when there is a session, after restarting the login window if need be. Starts that ask at the same time share one answer.
func (session) ensure(ctx context.Context, s *Sandbox) error {
	said, err := s.flight(ctx, "session", func(ctx context.Context) (string, error) {
		return s.ensureSession(ctx), nil
	})
	if err != nil {
		return err
	}
	if said != "" {
		return delayed(reasonNoSession, "%s", said)
	}
	return nil
}

// ensureSession is what ensure shares: empty, or why there is no session.
func (s *Sandbox) ensureSession(ctx context.Context) string {
	missing := s.lookForSession(ctx)
	if missing == nil {
		return s.sessionFound()
	}
	ctx, cancel := context.WithTimeout(ctx, s.opts.SessionPatience)
	defer cancel()
	look := time.NewTicker(sessionLook)
	defer look.Stop()
	var kickErr error
	for kicked := false; ; {
		// A failure to ask launchctl proves nothing about the session.
		if !kicked && !errors.Is(missing, errNotAnswered) {
			if why := s.leaveLoginWindow(ctx); why != "" {
				return s.sessionMissing(missing, why)
			}
			kicked = true
			s.opts.Log.Warn("no GUI session; restarting the login window", "detail", missing)
			kickErr = s.system(ctx, s.opts.Kickstart, "kickstart", "-k", "system/com.apple.loginwindow")
		}
		if err := s.lookForSession(ctx); err == nil {
			return s.sessionFound()
		} else if ctx.Err() == nil {
			missing = err
		}
		select {
		case <-look.C:
			continue
		case <-ctx.Done():
		}
		if kickErr != nil {
			return s.sessionMissing(missing, fmt.Sprintf("restarting the login window: %v", kickErr))
		}
		return s.sessionMissing(missing, "it has not restarted")
	}
}

// leaveLoginWindow says why the login window is not restarted now; empty when it is about to be. A restart ends the session, whatever was
// read of it, and with the session the machines that run in it: none of them may be there (NODE-3). An administrator who logs in by hand,
// to repair a fault, needs more time than there is between two checks (ADR 0026).
func (s *Sandbox) leaveLoginWindow(ctx context.Context) string {
	if err := s.countForeign(ctx); err != nil {
		return fmt.Sprintf("the login window is not restarted, because the running virtual machines cannot be counted: %v", err)
	}
	running := 0
	s.slots.read(func(l *ledger) { running = len(l.held) + l.foreign })
	if running > 0 {
		return fmt.Sprintf("the login window is not restarted while %d virtual machines run", running)
	}
	s.state.mu.Lock()
	defer s.state.mu.Unlock()
	now := s.opts.Now()
	if wait := s.state.kicks.kick(now); wait > 0 {
		return fmt.Sprintf("the login window was restarted before; the next restart is in %s", wait.Round(time.Second))
	}
	return ""
}

func (s *Sandbox) sessionFound() string {
	s.state.mu.Lock()
	s.state.kicks = kicks{}
	s.state.mu.Unlock()
	s.state.setSession(true, "")
	return ""
}

func (s *Sandbox) sessionMissing(missing error, why string) string {
	said := fmt.Sprintf("user %d has no GUI session: %v; enable automatic login, and turn FileVault off (%s)", os.Getuid(), missing, why)
	s.state.setSession(false, said)
	return said
}

// Between two restarts of the login window there is more and more time.
const (
	firstKickPause   = time.Minute
	longestKickPause = time.Hour
)

// kicks remembers the restarts of the login window since there was a session. It is a value without a clock.
type kicks struct {
	next  time.Time
	pause time.Duration
}

// kick returns zero and counts a restart, or how long to wait for the next one.
func (k *kicks) kick(now time.Time) time.Duration {
	if wait := k.next.Sub(now); wait > 0 {
		return wait
	}
	k.pause = min(max(2*k.pause, firstKickPause), longestKickPause)
	k.next = now.Add(k.pause)
	return 0
}

// lookForSession says why there is no GUI session; nil when there is one.
func (s *Sandbox) lookForSession(ctx context.Context) error {
	var out strings.Builder
	if err := s.query(ctx, &out, s.opts.Launchctl, "print", "gui/"+strconv.Itoa(os.Getuid())); err != nil {
		return err
	}
	kind, ok := sessionKind(out.String())
	if ok && kind != "Aqua" {
		return fmt.Errorf("the session is of type %s", kind)
	}
	return nil
}

// sessionKind finds the session's type in what `launchctl print gui/UID` says.
func sessionKind(text string) (kind string, ok bool) {
	for line := range strings.Lines(text) {
		name, value, found := strings.Cut(line, "=")
		switch strings.TrimSpace(name) {
		case "session", "session type":
			if found {
				return strings.TrimSpace(value), true
			}
		}
	}
	return "", false
}

func (s *Sandbox) system(ctx context.Context, command []string, args ...string) error {
	return s.query(ctx, nil, command, args...)
}

// query runs a program of the system for a short while.
func (s *Sandbox) query(ctx context.Context, out *strings.Builder, command []string, args ...string) error {
	ctx, cancel := context.WithTimeout(ctx, queryTimeout)
	defer cancel()
	argv := append(append([]string{}, command...), args...)
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...) //nolint:gosec // the administrator names it
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = 2 * time.Second
	cmd.Env = append(os.Environ(), "TART_HOME="+s.opts.TartHome)
	var complaint strings.Builder
	cmd.Stderr = &complaint
	if out != nil {
		cmd.Stdout = out
	}
	err := cmd.Run()
	var exit *exec.ExitError
	switch {
	case err != nil && ctx.Err() != nil, errors.As(err, &exit) && !exit.Exited():
		return fmt.Errorf("%s: %w: %w", strings.Join(argv, " "), errNotAnswered, err)
	case errors.As(err, &exit):
		return fmt.Errorf("%s: %s", strings.Join(argv, " "), firstOf(firstLine(complaint.String()), exit.String()))
	case err != nil:
		return fmt.Errorf("%s: %w: %w", strings.Join(argv, " "), errNotAnswered, err)
	}
	return nil
}

// errNotAnswered reports that a program of the system could not be started, or did not come to its end.
var errNotAnswered = errors.New("no response")

func firstOf(texts ...string) string {
	for _, t := range texts {
		if t != "" {
			return clip(t, 300)
		}
	}
	return ""
}
