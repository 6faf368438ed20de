package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
	"syscall"
	"time"

	"github.com/bullpen-ci/bullpen/internal/jobcontainer/guard/wire"
)

// stdinPiece is how much of standard input is sent at once, in bytes.
const stdinPiece = 32 << 10

// Streams of a process in the foreground. Nil streams are empty or discarded.
type Streams struct {
	// Stdin is read as the process takes it, by a goroutine that Exec does not wait for: a Read may still be under way when Exec
	// returns.
	Stdin io.Reader
	// Stdout and Stderr are written by the goroutine that calls Exec. While a write waits, the process waits, too.
	Stdout, Stderr io.Writer
	// Signals are passed on to the process group, as the runner sends SIGINT and SIGTERM when a job is cancelled. After one, everything
	// that the process has started is killed when the process ends.
	Signals <-chan syscall.Signal
}

// Exec runs a process in the container and returns how it ended. The end of ctx, or of this program, kills everything that the process has
// started, also in sessions of their own.
//
// A command that is not found or cannot be executed is no error: the Exit has the code 127 or 126, and a Text. Errors are ErrAbsent, a
// Failure, or ErrLost if the guard ended before the process: a step that got it has failed. It returns at most two seconds after the
// process, although what that left in the background may hold its output open.
func (c *Client) Exec(ctx context.Context, process Process, streams Streams) (Exit, error) {
	const doing = "running a command in the container"
	conn, stop, err := c.send(ctx, doing, &wire.Request{Exec: &wire.Exec{Process: process, Stdin: streams.Stdin != nil}})
	if err != nil {
		return Exit{}, err
	}
	s := &session{conn: conn, streams: streams, taken: make(chan struct{}, 1), over: make(chan struct{})}
	s.senders.Go(s.pingAndSignal)
	if streams.Stdin != nil {
		go s.sendStdin() // may be in a Read of the caller's reader: it sends nothing after over
	}
	defer func() {
		close(s.over)
		stop()
		s.senders.Wait()
	}()
	exit, err := s.receive()
	switch {
	case err == nil:
		return exit, nil
	case errors.Is(err, errOutput):
		return Exit{}, fmt.Errorf("%s: %w", doing, err)
	default:
		var failure *Failure
		if errors.As(err, &failure) {
			return Exit{}, fmt.Errorf("%s: %w", doing, failure)
		}
		return Exit{}, lost(ctx, doing, err)
	}
}

// errOutput is a writer of the caller that failed.
var errOutput = errors.New("writing the output")

// session is one Exec.
type session struct {
	conn    *wire.Conn
	streams Streams
	taken   chan struct{} // the guard is ready for the next piece of stdin
	over    chan struct{}
	senders sync.WaitGroup
}

// receive passes output on until the process has ended.
func (s *session) receive() (Exit, error) {
	stdout, stderr := orDiscard(s.streams.Stdout), orDiscard(s.streams.Stderr)
	for {
		kind, payload, err := s.conn.Read(wire.PeerPatience)
		if err != nil {
			return Exit{}, err
		}
		switch kind {
		case wire.KindPing:
		case wire.KindTaken:
			select {
			case s.taken <- struct{}{}:
			default: // one that was not asked for
			}
		case wire.KindStdout:
			_, err = stdout.Write(payload)
		case wire.KindStderr:
			_, err = stderr.Write(payload)
		case wire.KindExit:
			var exit Exit
			if err := json.Unmarshal(payload, &exit); err != nil {
				return Exit{}, fmt.Errorf("%w: an exit that cannot be read", wire.ErrProtocol)
			}
			return exit, nil
		default:
			return Exit{}, answer(kind, payload, nil)
		}
		if err != nil {
			return Exit{}, fmt.Errorf("%w: %w", errOutput, err)
		}
	}
}

// pingAndSignal sends until the session is over, or cannot: then reading fails, too.
func (s *session) pingAndSignal() {
	ping := time.NewTicker(wire.PingEvery)
	defer ping.Stop()
	for err := error(nil); err == nil; {
		select {
		case <-s.over:
			return
		case <-ping.C:
			err = s.conn.Write(wire.KindPing, nil)
		case signal, open := <-s.streams.Signals:
			if !open {
				s.streams.Signals = nil
				continue
			}
			err = s.conn.Write(wire.KindSignal, []byte{byte(signal)})
		}
	}
}

// sendStdin sends a piece whenever the guard has written the one before.
func (s *session) sendStdin() {
	frame := make([]byte, wire.HeadLen+stdinPiece)
	for {
		n, err := s.streams.Stdin.Read(frame[wire.HeadLen:])
		select {
		case <-s.over:
			return
		default:
		}
		if n > 0 {
			if s.conn.WriteFrame(wire.KindStdin, frame[:wire.HeadLen+n]) != nil {
				return
			}
			select {
			case <-s.taken:
			case <-s.over:
				return
			}
		}
		if err != nil { // its end, or what the process must take for it
			_ = s.conn.Write(wire.KindStdin, nil)
			return
		}
	}
}

func orDiscard(w io.Writer) io.Writer {
	if w == nil {
		return io.Discard
	}
	return w
}
