package remote

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"golang.org/x/crypto/ssh"
)

// command is one program to run on the host.
type command struct {
	script string // for /bin/sh, in which no argument may hold a secret (HOST-6)
	// stdin writes standard input, which ends when it returns. Its context ends with the command. Nil: there is none.
	stdin func(ctx context.Context, w io.Writer) error
	// stdout is written to by one goroutine. Nil: the beginning is kept for the caller.
	stdout io.Writer
	limit  time.Duration
	// silence bounds the time without a word on standard output. Zero: only limit does.
	silence time.Duration
}

// outcome is what came of a command that ran to its end.
type outcome struct {
	stdout string // the beginning, unless the command has a destination for it
	stderr string // the end
	code   int    // 128 and more: by a signal
	fed    error  // why not all of standard input was written; io.EOF: the command did not read it
}

// keepOutput is how much is kept of a command's output, and of its standard error.
const keepOutput = 64 << 10

// misbehavedError reports that the connection was ended from here, although the host lives: a command did not end, or said too much.
type misbehavedError struct{ text string }

func (e *misbehavedError) Error() string { return e.text }

// run runs a command to its end. The error is a *lostError, a *misbehavedError, the context's, or says that the host runs no command.
func (c *conn) run(ctx context.Context, cmd command) (outcome, error) {
	out, err := c.session(ctx, cmd)
	switch {
	case err == nil:
		return out, nil
	case ctx.Err() != nil:
		return out, ctx.Err()
	}
	var misbehaved *misbehavedError
	if cause := c.why(); cause != nil {
		if errors.As(cause, &misbehaved) {
			return out, misbehaved
		}
		return out, &lostError{cause}
	}
	var missing *ssh.ExitMissingError
	if errors.As(err, &missing) || !c.alive() {
		return out, &lostError{fmt.Errorf("the connection ended before the command did")}
	}
	return out, errors.New("the host runs no commands for this user: check that the shell is /bin/zsh and that no ForceCommand is set")
}

// session runs it on a session of its own.
func (c *conn) session(ctx context.Context, cmd command) (outcome, error) {
	activity := make(chan struct{}, 1)
	done := make(chan struct{})
	watched := make(chan struct{})
	go func() { // ends with this function, which waits for it
		defer close(watched)
		c.bound(cmd, activity, done)
	}()
	defer func() { close(done); <-watched }()

	session, err := c.client.NewSession()
	if err != nil {
		return outcome{}, err
	}
	defer func() { _ = session.Close() }()
	var head headBuffer
	var tail tailBuffer
	session.Stderr = &tail
	session.Stdout = &activityWriter{to: cmd.stdout, activity: activity}
	if cmd.stdout == nil {
		session.Stdout = &activityWriter{to: &head, activity: activity}
	}
	stdin, err := session.StdinPipe()
	if err != nil {
		return outcome{}, err
	}
	if err := session.Start("/bin/sh -c " + quote(cmd.script)); err != nil {
		return outcome{}, err
	}
	feeding, stop := context.WithCancel(ctx)
	fed := make(chan error, 1)
	go func() { // ends when the session does, and is waited for
		defer stdin.Close()
		if cmd.stdin == nil {
			fed <- nil
			return
		}
		fed <- cmd.stdin(feeding, stdin)
	}()
	err = session.Wait()
	stop()
	_ = session.Close()
	out := outcome{fed: <-fed, stdout: head.String(), stderr: tail.String()}
	var exit *ssh.ExitError
	if errors.As(err, &exit) {
		out.code, err = exit.ExitStatus(), nil
	}
	return out, err
}

// killedBySignal is the least exit code of a program that a signal ended.
const killedBySignal = 128

// bound ends the connection when a command takes too long. There is no other way to be sure that nothing here waits for it.
func (c *conn) bound(cmd command, activity, done <-chan struct{}) {
	limit := c.timing.After(cmd.limit)
	var silence <-chan time.Time
	if cmd.silence > 0 {
		silence = c.timing.After(cmd.silence)
	}
	for {
		select {
		case <-done:
			return
		case <-activity:
			if cmd.silence > 0 {
				silence = c.timing.After(cmd.silence)
			}
		case <-limit:
			c.end(&misbehavedError{fmt.Sprintf("timed out after %s; the host is alive", cmd.limit)})
			return
		case <-silence:
			c.end(&misbehavedError{fmt.Sprintf("no output for %s; the host is alive", cmd.silence)})
			return
		}
	}
}

// quote makes one word of a text, for any POSIX shell, and for fish if it has no backslash.
func quote(text string) string {
	return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'"
}

// activityWriter signals each output.
type activityWriter struct {
	to       io.Writer
	activity chan<- struct{}
}

func (w *activityWriter) Write(p []byte) (int, error) {
	select {
	case w.activity <- struct{}{}:
	default:
	}
	return w.to.Write(p)
}

// headBuffer keeps the beginning, and swallows the rest.
type headBuffer struct{ bytes.Buffer }

func (b *headBuffer) Write(p []byte) (int, error) {
	b.Buffer.Write(p[:min(len(p), keepOutput-b.Len())])
	return len(p), nil
}

// tailBuffer keeps the end.
type tailBuffer struct{ kept []byte }

func (b *tailBuffer) Write(p []byte) (int, error) {
	b.kept = append(b.kept, p...)
	if over := len(b.kept) - keepOutput; over > 0 {
		b.kept = append(b.kept[:0], b.kept[over:]...)
	}
	return len(p), nil
}

func (b *tailBuffer) String() string { return string(b.kept) }
