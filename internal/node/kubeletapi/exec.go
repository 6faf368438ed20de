package kubeletapi

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"sync"
	"time"

	"k8s.io/cri-streaming/pkg/streaming/remotecommand"
	"k8s.io/utils/exec"

	"github.com/bullpen-ci/bullpen/internal/node/sandbox"
)

// streamIdle is how long a stream may carry nothing, as at a kubelet.
const streamIdle = 4 * time.Hour

func (s *Server) serveExec(w http.ResponseWriter, r *http.Request) {
	options, err := remotecommand.NewOptions(r)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	command := r.URL.Query()["command"]
	if len(command) == 0 {
		http.Error(w, "no command given", http.StatusBadRequest)
		return
	}
	t, state, begun := s.target(w, r)
	if !begun {
		return
	}
	if state.Exit != nil {
		http.Error(w, fmt.Sprintf("cannot run a command in container %q of pod %q: it has exited", t.container, t.pod), http.StatusBadRequest)
		return
	}
	log := s.opts.Log.With("user", userOf(r.Context()).Username, "namespace", t.namespace, "pod", t.pod, "container", t.container)
	log.Info("running a command for a user")
	// An upgraded connection ends no request's context: this does.
	ctx, cancel := context.WithCancelCause(r.Context())
	defer cancel(nil)
	over := make(chan struct{})
	var closing sync.WaitGroup
	defer closing.Wait()
	defer close(over)
	watched := &watchedWriter{ResponseWriter: w, gone: func() { cancel(errClientGone) }, upgraded: func(conn net.Conn) {
		closing.Go(func() { s.closeLate(r.Context(), conn, over) })
	}}
	remotecommand.ServeExec(watched, r.WithContext(ctx), executor{s.opts.Sandbox}, t.pod, t.uid, t.container, command, options, streamIdle,
		remotecommand.DefaultStreamCreationTimeout, remotecommand.SupportedStreamingProtocols)
	log.Info("a user's command completed")
}

// endPatience is how long a command's client may take to read the rest of its output when the server ends.
const endPatience = 2 * time.Second

// closeLate closes a connection some time after ctx ended, unless the request is over before: a caller who does not read would keep the
// server from ending.
func (s *Server) closeLate(ctx context.Context, conn net.Conn, over <-chan struct{}) {
	select {
	case <-over:
		return
	case <-ctx.Done():
	}
	timer := s.opts.Clock.NewTimer(endPatience)
	defer timer.Stop()
	select {
	case <-over:
	case <-timer.C():
		_ = conn.Close()
	}
}

var errClientGone = errors.New("the client of the command disconnected")

// executor implements remotecommand.Executor.
type executor struct{ sandbox sandbox.Sandbox }

// ExecInContainer runs a command; an exit code other than 0 is an exec.ExitError.
func (e executor) ExecInContainer(ctx context.Context, _, uid, container string, command []string, in io.Reader, out, err io.WriteCloser,
	tty bool, resize <-chan remotecommand.TerminalSize, _ time.Duration,
) error {
	streams := sandbox.Streams{In: in, TTY: tty}
	// An interface that holds a nil stream is not nil.
	if out != nil {
		streams.Out = out
	}
	if err != nil {
		streams.Err = err
	}
	stop := make(chan struct{})
	var forwarding sync.WaitGroup
	defer forwarding.Wait()
	defer close(stop)
	if resize != nil {
		sizes := make(chan sandbox.Size)
		streams.Resize = sizes
		forwarding.Go(func() { forwardSizes(resize, sizes, stop) })
	}
	code, failed := e.sandbox.Exec(ctx, uid, container, command, streams)
	switch {
	case failed != nil:
		return failed
	case code != 0:
		return exec.CodeExitError{Err: fmt.Errorf("exit code %d", code), Code: code}
	}
	return nil
}

func forwardSizes(from <-chan remotecommand.TerminalSize, to chan<- sandbox.Size, stop <-chan struct{}) {
	defer close(to)
	for {
		select {
		case <-stop:
			return
		case size, more := <-from:
			if !more {
				return
			}
			select {
			case <-stop:
				return
			case to <- sandbox.Size{Columns: size.Width, Rows: size.Height}:
			}
		}
	}
}

// watchedWriter tells when the connection that it is upgraded to has ended.
type watchedWriter struct {
	http.ResponseWriter
	gone     func()
	upgraded func(net.Conn)
}

// Hijack implements http.Hijacker.
func (w *watchedWriter) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, buffers, err := http.NewResponseController(w.ResponseWriter).Hijack()
	if err != nil {
		return nil, nil, err
	}
	read, err := buffers.Reader.Peek(buffers.Reader.Buffered())
	if err != nil {
		return nil, nil, errors.Join(err, conn.Close())
	}
	watched := &watchedConn{Conn: conn, gone: w.gone}
	w.upgraded(watched)
	reader := bufio.NewReader(io.MultiReader(bytes.NewReader(bytes.Clone(read)), watched))
	return watched, bufio.NewReadWriter(reader, bufio.NewWriter(watched)), nil
}

type watchedConn struct {
	net.Conn
	gone func()
}

func (c *watchedConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
		c.gone()
	}
	return n, err
}

func (c *watchedConn) Close() error {
	c.gone()
	return c.Conn.Close()
}
