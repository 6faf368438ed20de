//go:build unix

package tart

import (
	"bufio"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"runtime"
	"sync"
	"syscall"
	"time"

	"github.com/creack/pty"
	"github.com/spf13/pflag"
	"golang.org/x/sys/unix"
	"golang.org/x/term"
)

func execFlags(f *pflag.FlagSet) {
	f.BoolP("interactive", "i", false, "")
	f.BoolP("tty", "t", false, "")
}

// order is what `exec` asks of the guest. Tart speaks gRPC here; only the fake itself sees the difference.
type order struct {
	Command     []string `json:"command"`
	Interactive bool     `json:"interactive"`
	Terminal    bool     `json:"terminal"`
	Columns     uint16   `json:"columns"`
	Rows        uint16   `json:"rows"`
}

// Kinds of frames: a letter, the payload's length in four bytes, the payload.
const (
	frameOrder  = 'c' // an order in JSON, once
	frameInput  = 'i' // empty: the end of the input
	frameSize   = 's' // columns and rows, two bytes each
	frameOutput = 'o'
	frameErrors = 'e'
	frameExit   = 'x' // the exit code, in four bytes
	frameFailed = 'f' // why the command was not started
)

// maxFrame is more than any frame has, in bytes.
const maxFrame = 1 << 20

// frames writes to a connection from several goroutines.
type frames struct {
	mu   sync.Mutex
	conn net.Conn
}

func (f *frames) send(kind byte, payload []byte) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	header := binary.BigEndian.AppendUint32([]byte{kind}, uint32(len(payload))) //nolint:gosec // below maxFrame
	if _, err := f.conn.Write(append(header, payload...)); err != nil {
		return err
	}
	return nil
}

// writer sends what is written to it.
func (f *frames) writer(kind byte) io.Writer {
	return writerFunc(func(p []byte) (int, error) { return len(p), f.send(kind, p) })
}

type writerFunc func([]byte) (int, error)

func (w writerFunc) Write(p []byte) (int, error) { return w(p) }

func receive(r *bufio.Reader) (byte, []byte, error) {
	var header [5]byte
	if _, err := io.ReadFull(r, header[:]); err != nil {
		return 0, nil, err
	}
	length := binary.BigEndian.Uint32(header[1:])
	if length > maxFrame {
		return 0, nil, fmt.Errorf("a frame of %d bytes", length)
	}
	payload := make([]byte, length)
	_, err := io.ReadFull(r, payload)
	return header[0], payload, err
}

// runExec runs a command in the guest, and ends with its exit code (Tart 4.1). Without -i the command has no input.
func runExec(_ context.Context, c *command) error {
	name := c.args[0]
	if _, err := c.runningPID(name); err != nil {
		return err
	}
	unreachable := func(err error) error {
		return failed(codeFailed, "Failed to connect to the VM using its control socket: %v, is the Tart Guest Agent running?", err)
	}
	if err := os.Chdir(string(c.vm(name))); err != nil {
		return unreachable(err)
	}
	conn, err := new(net.Dialer).Dial("unix", controlSocket)
	if err != nil {
		return unreachable(err)
	}
	defer conn.Close()
	o := order{Command: c.args[1:]}
	o.Interactive, _ = c.flags.GetBool("interactive")
	o.Terminal, _ = c.flags.GetBool("tty")
	to := &frames{conn: conn}
	resized := make(chan os.Signal, 1)
	if o.Terminal {
		restore, err := c.terminal(&o, resized)
		if err != nil {
			return err
		}
		defer restore()
	}
	encoded, err := json.Marshal(o)
	if err != nil {
		return err
	}
	if err := to.send(frameOrder, encoded); err != nil {
		return unreachable(err)
	}
	go c.tellSizes(resized, to) // ends with the process
	if o.Interactive {
		go func() { // ends with the process
			_, _ = io.Copy(to.writer(frameInput), c.Stdin)
			_ = to.send(frameInput, nil)
		}()
	}
	return c.output(bufio.NewReader(conn), unreachable)
}

// output passes on what the guest says, up to the command's exit.
func (c *command) output(from *bufio.Reader, unreachable func(error) error) error {
	for answered := false; ; answered = true {
		kind, payload, err := receive(from)
		switch {
		case err != nil && !answered: // the guest is not up yet, or has no agent (Tart 4.3)
			return unreachable(errors.New("connection reset by peer"))
		case err != nil: // the VM has exited (likely)
			return failed(codeFailed, "Error: unavailable (14): stream unexpectedly closed: %v", err)
		case kind == frameOutput:
			_, err = c.Stdout.Write(payload)
		case kind == frameErrors:
			_, err = c.Stderr.Write(payload)
		case kind == frameFailed:
			return failed(codeFailed, "Error: failed to start the command: %s", payload)
		case kind == frameExit && len(payload) == 4:
			if code := binary.BigEndian.Uint32(payload); code != 0 {
				return exitCode(code)
			}
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// terminal makes this process's own terminal raw, and has its changes of size noted from before the size that is sent with
// the order: none is lost. Without a terminal the request for one is refused (likely: Tart needs its size).
func (c *command) terminal(o *order, resized chan<- os.Signal) (restore func(), err error) {
	signal.Notify(resized, syscall.SIGWINCH)
	columns, rows, err := size(c.Stdin)
	if err != nil {
		return nil, failed(codeFailed, "Error: failed to determine terminal size: %v", err)
	}
	o.Columns, o.Rows = columns, rows
	state, err := term.MakeRaw(int(c.Stdin.Fd()))
	if err != nil {
		return nil, err
	}
	return func() { _ = term.Restore(int(c.Stdin.Fd()), state) }, nil
}

// tellSizes tells the guest the terminal's size whenever that has changed.
func (c *command) tellSizes(resized <-chan os.Signal, to *frames) {
	for range resized {
		if columns, rows, err := size(c.Stdin); err == nil {
			_ = to.send(frameSize, binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint16(nil, columns), rows))
		}
	}
}

// drainAfterExit is how long output is still passed on when a command has ended and something else has it open.
const drainAfterExit = time.Second

// serve answers one `exec`.
func (g *guest) serve(conn net.Conn) {
	from, to := bufio.NewReader(conn), &frames{conn: conn}
	kind, payload, err := receive(from)
	var o order
	if err != nil || kind != frameOrder || json.Unmarshal(payload, &o) != nil || len(o.Command) == 0 {
		return
	}
	run := g.piped
	if o.Terminal {
		run = g.onTerminal
	}
	status, err := run(o, from, to)
	if err != nil {
		_ = to.send(frameFailed, []byte(err.Error()))
		return
	}
	code := status.ExitStatus()
	if status.Signaled() {
		code = 128 + int(status.Signal())
	}
	_ = to.send(frameExit, binary.BigEndian.AppendUint32(nil, uint32(code))) //nolint:gosec // not negative
}

// piped runs a command with its streams apart.
func (g *guest) piped(o order, from *bufio.Reader, to *frames) (syscall.WaitStatus, error) {
	var mine, theirs [3]*os.File // input, output, errors
	defer func() {
		for _, f := range append(mine[:], theirs[:]...) {
			f.Close() // of nil, too
		}
	}()
	for i := range mine {
		r, w, err := os.Pipe()
		if err != nil {
			return 0, err
		}
		mine[i], theirs[i] = r, w
		if i == 0 {
			mine[i], theirs[i] = w, r
		}
	}
	command, err := g.start(o.Command, theirs[:], false)
	if err != nil {
		return 0, err
	}
	for _, f := range theirs {
		f.Close()
	}
	if !o.Interactive {
		mine[0].Close()
	}
	go func() {
		feed(from, mine[0], nil)
		g.children.kill(command)
	}()
	drained := make(chan struct{})
	var copies sync.WaitGroup
	copies.Go(func() { _, _ = io.Copy(to.writer(frameOutput), mine[1]) })
	copies.Go(func() { _, _ = io.Copy(to.writer(frameErrors), mine[2]) })
	go func() { copies.Wait(); close(drained) }()
	return await(command, drained), nil
}

// onTerminal runs a command with a terminal in front of it.
func (g *guest) onTerminal(o order, from *bufio.Reader, to *frames) (syscall.WaitStatus, error) {
	controller, terminal, err := pty.Open()
	if err != nil {
		return 0, err
	}
	defer controller.Close()
	defer terminal.Close()
	if err := interruptible(controller); err != nil {
		return 0, err
	}
	if err := setSize(controller, o.Columns, o.Rows); err != nil {
		return 0, err
	}
	command, err := g.start(o.Command, []*os.File{terminal, terminal, terminal}, true)
	if err != nil {
		return 0, err
	}
	terminal.Close()
	go func() {
		feed(from, controller, controller)
		g.children.kill(command)
	}()
	drained := make(chan struct{})
	go func() {
		_, _ = io.Copy(to.writer(frameOutput), controller)
		close(drained)
	}()
	return await(command, drained), nil
}

// interruptible makes Close end a Read that is in progress. The library leaves the descriptor in blocking mode, in which the Read would keep
// the terminal open until the last process that holds it exits. Only Linux can poll a terminal's controller.
func interruptible(controller *os.File) error {
	if runtime.GOOS != "linux" {
		return nil
	}
	return os.NewSyscallError("fcntl", unix.SetNonblock(int(controller.Fd()), true))
}

func size(terminal *os.File) (columns, rows uint16, err error) {
	full, err := pty.GetsizeFull(terminal)
	if err != nil {
		return 0, 0, err
	}
	return full.Cols, full.Rows, nil
}

// setSize does not use the library's Setsize, which makes the descriptor blocking again and races with Close.
func setSize(terminal *os.File, columns, rows uint16) error {
	raw, err := terminal.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	err = raw.Control(func(fd uintptr) {
		failed = unix.IoctlSetWinsize(int(fd), unix.TIOCSWINSZ, &unix.Winsize{Col: columns, Row: rows})
	})
	return errors.Join(err, failed)
}

func await(command *started, drained <-chan struct{}) syscall.WaitStatus {
	status := <-command.ended
	timer := time.NewTimer(drainAfterExit)
	defer timer.Stop()
	select {
	case <-drained:
	case <-timer.C:
	}
	return status
}

// feed passes on the input, and the size of the terminal, until the connection ends. The command is ended then (likely): a
// process that has to outlive the caller of `exec` has to leave the command's process.
func feed(from *bufio.Reader, input, terminal *os.File) {
	for {
		kind, payload, err := receive(from)
		switch {
		case err != nil:
			return
		case kind == frameInput && len(payload) == 0:
			if terminal == nil {
				input.Close()
			}
		case kind == frameInput:
			_, _ = input.Write(payload) // who does not read it misses it
		case kind == frameSize && terminal != nil && len(payload) == 4:
			_ = setSize(terminal, binary.BigEndian.Uint16(payload), binary.BigEndian.Uint16(payload[2:]))
		}
	}
}
