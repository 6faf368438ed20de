package sandboxtest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/internal/node/sandbox"
)

func execNeedsARunningContainer(f *fixture) {
	pod := f.start(Behaviour{ExitCode: 0})
	f.wait(pod)
	_, err := f.sb.Exec(f.ctx, string(pod.UID), f.name, f.machine.True(), sandbox.Streams{})
	require.ErrorIs(f, err, sandbox.ErrNotRunning)
}

func execStreams(f *fixture) {
	pod := f.start(Behaviour{Runs: true})
	uid := string(pod.UID)
	for code, size := range map[int]int{0: 0, 1: 1, 7: 1 << 20} { // more than fits into any pipe
		sent := strings.Repeat("0123456789abcde\n", size/16+1)[:size]
		var out, errs bytes.Buffer
		got, err := f.sb.Exec(f.ctx, uid, f.name, f.machine.Script("complaint", code), sandbox.Streams{
			In: strings.NewReader(sent), Out: &out, Err: &errs,
		})
		require.NoError(f, err)
		require.Equal(f, code, got)
		require.Equal(f, "complaint", errs.String())
		require.Equal(f, len(sent), out.Len())
		require.True(f, sent == out.String(), "what came out is what went in")
	}
	code, err := f.sb.Exec(f.ctx, uid, f.name, f.machine.Script("unread", 3), sandbox.Streams{Out: io.Discard})
	require.NoError(f, err, "nothing to read is an end of the input")
	require.Equal(f, 3, code)
}

// notifying is a writer that says when something has been written.
type notifying struct {
	mu   sync.Mutex
	text bytes.Buffer
	news chan struct{}
}

func newNotifying() *notifying { return &notifying{news: make(chan struct{}, 1)} }

func (w *notifying) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	n, err := w.text.Write(p)
	select {
	case w.news <- struct{}{}:
	default:
	}
	return n, err
}

func (w *notifying) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.text.String()
}

// await returns when what was written contains the text.
func (w *notifying) await(f *fixture, text string) {
	f.Helper()
	w.until(f, func() bool { return strings.Contains(w.String(), text) }, fmt.Sprintf("%q", text))
}

// awaitLines returns when that many lines have ended.
func (w *notifying) awaitLines(f *fixture, count int) {
	f.Helper()
	w.until(f, func() bool { return strings.Count(w.String(), "\n") >= count }, fmt.Sprintf("%d lines", count))
}

func (w *notifying) until(f *fixture, met func() bool, what string) {
	f.Helper()
	for !met() {
		select {
		case <-w.news:
		case <-f.ctx.Done():
			f.Fatalf("waiting for %s, there is %q", what, w.String())
		}
	}
}

// running begins a command that runs until it is ended, and returns how it ends.
func (f *fixture) running(ctx context.Context, uid string) <-chan error {
	f.Helper()
	in, neverWrites := io.Pipe()
	f.Cleanup(func() { _ = neverWrites.Close() })
	errs := newNotifying()
	done := make(chan error, 1)
	go func() {
		_, err := f.sb.Exec(ctx, uid, f.name, f.machine.Script("begun", 0), sandbox.Streams{In: in, Out: io.Discard, Err: errs})
		done <- err
	}()
	errs.await(f, "begun")
	return done
}

func (f *fixture) ends(done <-chan error) error {
	f.Helper()
	select {
	case err := <-done:
		return err
	case <-f.ctx.Done():
		f.Fatal("the command does not end")
		return nil
	}
}

func execEndsWithItsContext(f *fixture) {
	pod := f.start(Behaviour{Runs: true})
	ctx, cancel := context.WithCancelCause(f.ctx)
	done := f.running(ctx, string(pod.UID))
	gone := errors.New("the caller went away")
	cancel(gone)
	require.ErrorIs(f, f.ends(done), gone)
	require.True(f, f.machine.Settled(string(pod.UID), f.name), "the container runs on")
}

func execEndsWithItsContainer(f *fixture) {
	pod := f.start(Behaviour{Runs: true})
	done := f.running(f.ctx, string(pod.UID))
	require.NoError(f, f.sb.Signal(f.ctx, string(pod.UID), f.name, sandbox.Terminate))
	require.ErrorIs(f, f.ends(done), sandbox.ErrNotRunning)
}

// stuck is a caller that does not read what the command writes.
type stuck struct{ entered, free chan struct{} }

func (w stuck) Write([]byte) (int, error) {
	close(w.entered)
	<-w.free // bounded: the test closes it
	return 0, io.ErrClosedPipe
}

func execHoldsNoContainerUp(f *fixture) {
	pod := f.start(Behaviour{Runs: true})
	uid := string(pod.UID)
	caller := stuck{entered: make(chan struct{}), free: make(chan struct{})}
	done := make(chan error, 1)
	go func() {
		_, err := f.sb.Exec(f.ctx, uid, f.name, f.machine.Script("unread", 0), sandbox.Streams{In: strings.NewReader("x"), Err: caller})
		done <- err
	}()
	select {
	case <-caller.entered:
	case err := <-done:
		f.Fatalf("the command has ended: %v", err)
	case <-f.ctx.Done():
		f.Fatal("the command writes nothing")
	}
	require.NoError(f, f.sb.Signal(f.ctx, uid, f.name, sandbox.Kill))
	f.wait(pod)
	require.NoError(f, f.sb.Remove(f.ctx, uid))
	close(caller.free)
	_ = f.ends(done) // it may have ended before the container
}

func execTerminal(f *fixture) {
	command := f.machine.TerminalSize()
	if command == nil {
		f.Skip("this back end has no terminals")
	}
	pod := f.start(Behaviour{Runs: true})
	in, keyboard := io.Pipe()
	screen := newNotifying()
	sizes := make(chan sandbox.Size)
	ctx, cancel := context.WithCancel(f.ctx)
	defer cancel()
	done := make(chan error, 1)
	go func() {
		_, err := f.sb.Exec(ctx, string(pod.UID), f.name, command, sandbox.Streams{In: in, Out: screen, TTY: true, Resize: sizes})
		done <- err
	}()
	for _, size := range []sandbox.Size{{Columns: 100, Rows: 30}, {Columns: 101, Rows: 31}, {Columns: 101, Rows: 31}} {
		select {
		case sizes <- size:
		case <-f.ctx.Done():
			f.Fatal("nobody takes the terminal's size")
		}
	}
	// The size before the last is that of the terminal when the last is taken. A guest in a virtual machine gets it a
	// moment later.
	for lines := 0; !strings.Contains(screen.String(), "31 101"); {
		_, err := keyboard.Write([]byte("again\n"))
		require.NoError(f, err)
		lines += 2 // its echo and its answer
		screen.awaitLines(f, lines)
	}
	require.Contains(f, screen.String(), "again\r\n", "a terminal echoes, and ends lines with two characters")
	cancel()
	require.ErrorIs(f, f.ends(done), context.Canceled)
	require.NoError(f, keyboard.Close())
}

func logs(f *fixture) {
	before := time.Now()
	pod := f.start(Behaviour{Runs: true, Writes: "hello"})
	uid := string(pod.UID)
	_, err := f.sb.OpenLog(uid, "other")
	require.ErrorIs(f, err, sandbox.ErrNotFound)
	_, err = f.sb.OpenLog("nobody", f.name)
	require.ErrorIs(f, err, sandbox.ErrNotFound)

	log, err := f.sb.OpenLog(uid, f.name)
	require.NoError(f, err)
	defer func() { require.NoError(f, log.Close()) }()
	f.awaitLog(log, "hello\n")
	p := make([]byte, 64)
	n, err := log.ReadAt(p, 2)
	require.ErrorIs(f, err, io.EOF)
	require.Equal(f, "llo\n", string(p[:n]))
	_, err = log.ReadAt(p, 6)
	require.ErrorIs(f, err, io.EOF)

	for t, want := range map[time.Time]int64{before.Add(-time.Hour): 0, before: 0, time.Now().Add(time.Minute): 6} {
		offset, err := log.OffsetAt(t)
		require.NoError(f, err)
		require.Equal(f, want, offset)
	}
}

func (f *fixture) awaitLog(log sandbox.Log, text string) {
	f.Helper()
	require.Eventually(f, func() bool {
		size, err := log.Size()
		return err == nil && size == int64(len(text))
	}, patience, 5*time.Millisecond)
	p := make([]byte, len(text))
	n, err := log.ReadAt(p, 0)
	if err != nil {
		require.ErrorIs(f, err, io.EOF)
	}
	require.Equal(f, text, string(p[:n]))
}

func logOutlivesItsContainer(f *fixture) {
	pod := f.start(Behaviour{ExitCode: 1, Writes: "farewell"})
	f.wait(pod)
	log, err := f.machine.Open(f.T).OpenLog(string(pod.UID), f.name)
	require.NoError(f, err)
	f.awaitLog(log, "farewell\n")
	require.NoError(f, log.Close())
	require.NoError(f, f.sb.Remove(f.ctx, string(pod.UID)))
	_, err = f.sb.OpenLog(string(pod.UID), f.name)
	require.ErrorIs(f, err, sandbox.ErrNotFound)
}
