package guard

import (
	"errors"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bullpen-ci/bullpen/internal/jobcontainer/guard/wire"
)

const (
	// linger is how long output is still awaited after its process has ended: what that left in the background may hold the output open for
	// ever, and may also be the rest of a pipeline that has not written its last line.
	linger = 2 * time.Second
	// maxLeftovers bounds the outputs that are emptied after their connections.
	maxLeftovers = 64
)

// output is a stream of a process.
type output struct {
	file *os.File
	sink func(frame []byte) error // gets wire.HeadLen bytes of room before the data, which it may keep only until it returns
	over bool                     // the stream has ended; set when done
	done chan struct{}
}

// pump passes on what the process writes, as fast as sink takes it: the pipe and one buffer are all that is in memory. It ends with the
// stream, with an error of sink, or, after expire, when everything that was in the pipe then has been passed on.
func (o *output) pump() {
	defer close(o.done)
	buffer := make([]byte, wire.HeadLen+wire.MaxData)
	for {
		n, err := o.file.Read(buffer[wire.HeadLen:])
		if n > 0 {
			if o.sink(buffer[:wire.HeadLen+n]) != nil {
				return
			}
		}
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded):
			o.drain(buffer)
			return
		case err != nil:
			o.over = true
			return
		}
	}
}

// expire lets the pump end although the stream may not.
func (o *output) expire() { _ = o.file.SetReadDeadline(time.Now()) }

// drain passes on what is in the pipe now, and no more: a process in the background may go on writing.
func (o *output) drain(buffer []byte) {
	raw, err := o.file.SyscallConn()
	if err != nil {
		return
	}
	waiting := 0
	_ = raw.Control(func(fd uintptr) { waiting, _ = unix.IoctlGetInt(int(fd), unix.TIOCINQ) }) //nolint:gosec // a file descriptor
	for waiting > 0 {
		n := 0
		_ = raw.Control(func(fd uintptr) { //nolint:gosec // a file descriptor
			n, _ = unix.Read(int(fd), buffer[wire.HeadLen:][:min(waiting, wire.MaxData)])
		})
		if n <= 0 {
			return
		}
		waiting -= n
		if o.sink(buffer[:wire.HeadLen+n]) != nil {
			return
		}
	}
}

// leftovers are outputs that background processes still hold. They are emptied, so that these are neither held up nor ended by SIGPIPE
// when the step that started them is over.
type leftovers struct {
	mu    sync.Mutex
	count int
}

// adopt takes over an output whose pump has ended.
func (l *leftovers) adopt(o *output) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if o.over || l.count >= maxLeftovers || o.file.SetReadDeadline(time.Time{}) != nil {
		_ = o.file.Close()
		return
	}
	l.count++
	go func() { // ends with the stream, at the latest with this process
		buffer := make([]byte, 4096)
		for {
			if _, err := o.file.Read(buffer); err != nil {
				break
			}
		}
		_ = o.file.Close()
		l.mu.Lock()
		defer l.mu.Unlock()
		l.count--
	}()
}

// pipes are the outputs of a process that is about to start, and the ends that it gets.
type pipes struct {
	stdout, stderr           *output
	theirStdout, theirStderr int
}

// newPipes makes the pipes of both streams.
func newPipes(stdout, stderr func(frame []byte) error) (*pipes, error) {
	first, theirFirst, err := pipe(true)
	if err != nil {
		return nil, err
	}
	second, theirSecond, err := pipe(true)
	if err != nil {
		_, _ = first.Close(), unix.Close(theirFirst)
		return nil, err
	}
	return &pipes{
		stdout: &output{file: first, sink: stdout, done: make(chan struct{})}, theirStdout: theirFirst,
		stderr: &output{file: second, sink: stderr, done: make(chan struct{})}, theirStderr: theirSecond,
	}, nil
}

// started closes the process's ends here, and starts passing on.
func (p *pipes) started() {
	_, _ = unix.Close(p.theirStdout), unix.Close(p.theirStderr)
	go p.stdout.pump() // both end by settle
	go p.stderr.pump()
}

// abandon closes all ends: the process was not started.
func (p *pipes) abandon() {
	_, _ = unix.Close(p.theirStdout), unix.Close(p.theirStderr)
	_, _ = p.stdout.file.Close(), p.stderr.file.Close()
}

// settle waits until all output has been passed on, for patience at most if processes in the background hold it, and hands those
// streams to left. Whatever waits in a sink ends by an error of the sink.
func (p *pipes) settle(patience time.Duration, left *leftovers) {
	limit := time.NewTimer(patience)
	defer limit.Stop()
	for _, o := range []*output{p.stdout, p.stderr} {
		select {
		case <-o.done:
		case <-limit.C:
			limit.Reset(0)
			o.expire()
			<-o.done
		}
		left.adopt(o)
	}
}
