package guard

import (
	"errors"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bullpen-ci/bullpen/internal/jobcontainer/guard/wire"
)

// foreground is a process that belongs to a connection.
type foreground struct {
	*guard
	conn  *wire.Conn
	child *child
	stdin chan []byte   // for feed: a piece, which it then has alone; closed when there is no more
	lost  chan struct{} // closed when the client is gone
	over  chan struct{} // closed when the process has ended, or is given up
	sent  bool          // a signal of the client was passed on; for one goroutine until lost or over
	mu    sync.Mutex    // of sent
}

// exec runs a process in the foreground of a connection.
func (g *guard) exec(conn *wire.Conn, request *wire.Exec) {
	if err := g.service.mayExec(); err != nil {
		g.refuse(conn, err)
		return
	}
	f := &foreground{guard: g, conn: conn, lost: make(chan struct{}), over: make(chan struct{})}
	to := func(kind wire.Kind) func([]byte) error {
		return func(frame []byte) error { return conn.WriteFrame(kind, frame) }
	}
	streams, err := newPipes(to(wire.KindStdout), to(wire.KindStderr))
	if err != nil {
		g.refuse(conn, err)
		return
	}
	stdin, err := f.begin(&request.Process, request.Stdin, streams)
	if err != nil {
		streams.abandon()
		g.notStarted(conn, err)
		return
	}
	streams.started()
	f.attend(stdin, streams)
}

// notStarted answers a command that could not be started with an exit, and everything else with a failure.
func (g *guard) notStarted(conn *wire.Conn, err error) {
	var not *notStarted
	if errors.As(err, &not) {
		_ = conn.WriteJSON(wire.KindExit, not.exit)
		return
	}
	g.refuse(conn, err)
}

// begin starts the process. stdin is nil if the client sends none.
func (f *foreground) begin(p *wire.Process, sends bool, streams *pipes) (stdin *os.File, err error) {
	ready, err := f.prepare(p)
	if err != nil {
		return nil, err
	}
	var theirs int
	if sends {
		stdin, theirs, err = pipe(false)
	} else {
		theirs, err = unix.Open("/dev/null", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	}
	if err != nil {
		return nil, cannotStart(exitNotExecutable, "opening standard input: %v", err)
	}
	f.child, err = f.spawn(ready, theirs, streams.theirStdout, streams.theirStderr)
	_ = unix.Close(theirs)
	if err != nil && stdin != nil {
		_ = stdin.Close()
	}
	return stdin, err
}

// attend passes everything on until the process has ended, and tells the client how. If the client is gone, or has cancelled the process,
// nothing of its tree is left afterwards.
func (f *foreground) attend(stdin *os.File, streams *pipes) {
	var helpers sync.WaitGroup
	f.stdin = make(chan []byte, 1)
	helpers.Go(func() { f.receive(stdin != nil) })
	helpers.Go(f.ping)
	if stdin != nil {
		helpers.Go(func() { f.feed(stdin) })
	}
	defer func() {
		close(f.over)
		_ = f.conn.Close() // ends receive
		if stdin != nil {
			_ = stdin.SetWriteDeadline(time.Now()) // ends a write to what the process has left behind
		}
		helpers.Wait()
	}()
	select {
	case <-f.child.done:
	case <-f.lost:
	}
	tree := root{pid: f.child.pid, started: f.child.started, orphans: true}
	patience := linger
	if f.cancelled() {
		f.awaitEnd(tree, linger) // what has got the signal may clean up, too
	}
	if f.clientGone() || f.cancelled() {
		f.children.killTree(tree)
		patience = 0
	}
	exit := f.children.wait(f.child)
	exit.OutOfMemory = exit.OutOfMemory && !f.cancelled()
	streams.settle(patience, &f.left)
	if !f.clientGone() && f.conn.WriteJSON(wire.KindExit, exit) != nil {
		f.children.killTree(tree)
	}
}

// awaitEnd returns when nothing of a tree is left, the client is gone, or patience is over.
func (f *foreground) awaitEnd(tree root, patience time.Duration) {
	look := time.NewTicker(endEvery)
	defer look.Stop()
	limit := time.NewTimer(patience)
	defer limit.Stop()
	for len(members(tree, processes(), f.children.known())) > 0 {
		select {
		case <-look.C:
		case <-limit.C:
			return
		case <-f.lost:
			return
		}
	}
}

// endEvery is how often awaitEnd looks.
const endEvery = 20 * time.Millisecond

func (f *foreground) clientGone() bool {
	select {
	case <-f.lost:
		return true
	default:
		return false
	}
}

func (f *foreground) cancelled() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.sent
}

// receive takes the client's frames until there is no client, and never waits for the process.
func (f *foreground) receive(takesStdin bool) {
	defer close(f.stdin)
	for {
		kind, payload, err := f.conn.Read(wire.PeerPatience)
		if err == nil {
			err = f.received(kind, payload, &takesStdin)
		}
		if err != nil {
			close(f.lost)
			_ = f.conn.Close() // ends the pumps that wait for the client
			return
		}
	}
}

func (f *foreground) received(kind wire.Kind, payload []byte, takesStdin *bool) error {
	switch {
	case kind == wire.KindPing:
	case kind == wire.KindSignal && len(payload) == 1 && payload[0] >= 1 && payload[0] <= 64:
		f.mu.Lock()
		f.sent = true
		f.mu.Unlock()
		f.children.signal(f.child, true, syscall.Signal(payload[0]))
	case kind == wire.KindStdin && *takesStdin:
		*takesStdin = len(payload) > 0
		select {
		case f.stdin <- append([]byte(nil), payload...):
		default: // the piece before it has not been taken
			return wire.ErrProtocol
		}
	default:
		return wire.ErrProtocol
	}
	return nil
}

// feed writes standard input to the process. That it does not read is no error.
func (f *foreground) feed(stdin *os.File) {
	for piece := range f.stdin {
		if len(piece) == 0 {
			break
		}
		_, _ = stdin.Write(piece)
		if f.conn.Write(wire.KindTaken, nil) != nil {
			break
		}
	}
	_ = stdin.Close()
}

// ping tells the client that the guard is alive.
func (f *foreground) ping() {
	every := time.NewTicker(wire.PingEvery)
	defer every.Stop()
	for {
		select {
		case <-f.over:
			return
		case <-f.lost:
			return
		case <-every.C:
			if f.conn.Write(wire.KindPing, nil) != nil {
				return
			}
		}
	}
}
