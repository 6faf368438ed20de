package synthetic

import (
	"context"
	"errors"
	"io"
	"sort"
	"strconv"
	"sync"
	"time"

	"github.com/bullpen-ci/bullpen/internal/node/sandbox"
)

// log is what a container has written; the machine's lock guards it.
type log struct {
	data   []byte
	pieces []piece
}

// piece is what was written at one time.
type piece struct {
	at     time.Time
	offset int64
}

func (l *log) write(at time.Time, text string) {
	if text != "" {
		l.pieces = append(l.pieces, piece{at: at, offset: int64(len(l.data))})
		l.data = append(l.data, text...)
	}
}

// Write appends to a running container's log, as if the container had written it. sandbox.ErrNotFound when there is none of that
// name, sandbox.ErrNotRunning when it has ended.
func (m *Machine) Write(podUID, name, text string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	c, err := m.container(podUID, name)
	if err != nil {
		return err
	}
	if c.state.Exit != nil {
		return sandbox.ErrNotRunning
	}
	c.log.write(m.clock.Now(), text)
	return nil
}

// openLog implements sandbox.Log.
type openLog struct {
	m   *Machine
	log *log
}

// OpenLog implements sandbox.Sandbox.
func (s *Sandbox) OpenLog(podUID, name string) (sandbox.Log, error) {
	s.m.mu.Lock()
	defer s.m.mu.Unlock()
	c, err := s.m.container(podUID, name)
	if err != nil {
		return nil, err
	}
	return openLog{m: s.m, log: &c.log}, nil
}

// ReadAt implements sandbox.Log.
func (l openLog) ReadAt(p []byte, off int64) (int, error) {
	l.m.mu.Lock()
	defer l.m.mu.Unlock()
	if off >= int64(len(l.log.data)) {
		return 0, io.EOF
	}
	n := copy(p, l.log.data[off:])
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

// Size implements sandbox.Log.
func (l openLog) Size() (int64, error) {
	l.m.mu.Lock()
	defer l.m.mu.Unlock()
	return int64(len(l.log.data)), nil
}

// OffsetAt implements sandbox.Log.
func (l openLog) OffsetAt(t time.Time) (int64, error) {
	l.m.mu.Lock()
	defer l.m.mu.Unlock()
	i := sort.Search(len(l.log.pieces), func(i int) bool { return !l.log.pieces[i].at.Before(t) })
	if i == len(l.log.pieces) {
		return int64(len(l.log.data)), nil
	}
	return l.log.pieces[i].offset, nil
}

// Close implements sandbox.Log.
func (l openLog) Close() error { return nil }

// Script is the command that Exec understands with streams: it writes text to Err, copies In to Out, and ends with code.
func Script(text string, code int) []string {
	return []string{commandScript, text, strconv.Itoa(code)}
}

const commandScript = "script"

// script runs a Script until In ends, or the container, or ctx.
func script(ctx context.Context, ended <-chan struct{}, command []string, streams sandbox.Streams) (int, error) {
	if len(command) != 3 || command[0] != commandScript {
		return 0, errors.New("a synthetic container runs no command with streams but `script TEXT CODE`")
	}
	code, err := strconv.Atoi(command[2])
	if err != nil {
		return 0, err
	}
	open := &gate{}
	defer open.shut()
	copied := make(chan struct{})
	go func() { // may be left behind in a Read of the caller's
		defer close(copied)
		_, _ = open.writer(streams.Err).Write([]byte(command[1]))
		if streams.In != nil {
			_, _ = io.Copy(open.writer(streams.Out), streams.In)
		}
	}()
	select {
	case <-copied:
		return code, nil
	case <-ended:
		return 0, sandbox.ErrNotRunning
	case <-ctx.Done():
		return 0, context.Cause(ctx)
	}
}

// gate lets writes through until it is shut.
type gate struct {
	mu   sync.Mutex
	gone bool
}

func (g *gate) writer(to io.Writer) io.Writer {
	if to == nil {
		to = io.Discard
	}
	return gated{g, to}
}

func (g *gate) shut() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.gone = true
}

type gated struct {
	gate *gate
	to   io.Writer
}

func (w gated) Write(p []byte) (int, error) {
	w.gate.mu.Lock()
	defer w.gate.mu.Unlock()
	if w.gate.gone {
		return 0, io.ErrClosedPipe
	}
	return w.to.Write(p)
}
