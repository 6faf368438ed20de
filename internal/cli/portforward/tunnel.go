package portforward

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"sync"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/client-go/transport/spdy"
	"k8s.io/klog/v2"
	"k8s.io/streaming/pkg/httpstream"
)

// closing bounds how long a tunnel's end is waited for: the library may be connecting, which nothing interrupts.
const closing = 2 * time.Second

// quiet keeps the library's messages about single connections off the terminal: the failed request has its own error.
var quiet = sync.OnceFunc(func() { klog.SetLogger(logr.Discard()) })

// tunnel is one port-forward of the library.
type tunnel struct {
	local uint16
	stop  func()
	done  chan struct{} // closed when it has ended
}

func (t *tunnel) address() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(int(t.local))) }

func (t *tunnel) up() bool {
	select {
	case <-t.done:
		return false
	default:
		return true
	}
}

func (t *tunnel) close() {
	t.stop()
	limit := time.NewTimer(closing)
	defer limit.Stop()
	select {
	case <-t.done:
	case <-limit.C:
	}
}

// dial starts a port-forward to a pod, and returns when the local port accepts connections.
func (f *Forwarder) dial(ctx context.Context, pod corev1.Pod, local uint16, remote int32) (*tunnel, error) {
	quiet()
	connect, err := f.dialer(f.kube.CoreV1().RESTClient().Post().Resource("pods").Namespace(pod.Namespace).Name(pod.Name).SubResource("portforward").URL())
	if err != nil {
		return nil, err
	}
	stop, ready := make(chan struct{}), make(chan struct{})
	t := &tunnel{stop: sync.OnceFunc(func() { close(stop) }), done: make(chan struct{})}
	forward, err := portforward.NewOnAddressesForStreaming(connect, []string{"127.0.0.1"}, []string{fmt.Sprintf("%d:%d", local, remote)}, stop, ready, io.Discard, io.Discard)
	if err != nil {
		return nil, fmt.Errorf("preparing a port-forward: %w", err)
	}
	var failure error // of the port-forward; read after done is closed
	go func() {
		defer close(t.done)
		failure = forward.ForwardPorts()
	}()
	select {
	case <-ready:
	case <-t.done:
		if connect.failure != nil { // the library keeps its text alone
			return nil, connect.failure
		}
		return nil, failure
	case <-ctx.Done():
		t.stop()
		return nil, ctx.Err()
	}
	ports, err := forward.GetPorts()
	if err != nil {
		t.close()
		return nil, fmt.Errorf("reading the local port: %w", err)
	}
	t.local = ports[0].Local
	return t, nil
}

// dialer uses WebSockets, and SPDY for API servers and proxies without them, as kubectl does.
func (f *Forwarder) dialer(at *url.URL) (*recordingDialer, error) {
	upgraded, upgrader, err := spdy.RoundTripperFor(f.config)
	if err != nil {
		return nil, fmt.Errorf("preparing a port-forward: %w", err)
	}
	webSockets, err := portforward.NewSPDYOverWebsocketDialerForStreaming(at, f.config)
	if err != nil {
		return nil, fmt.Errorf("preparing a port-forward: %w", err)
	}
	return &recordingDialer{webSockets: webSockets, older: spdy.NewDialerForStreaming(upgrader, &http.Client{Transport: upgraded}, http.MethodPost, at)}, nil
}

// recordingDialer keeps the error of a connection, so that its type is known.
type recordingDialer struct {
	webSockets, older httpstream.Dialer
	failure           error
}

// Dial connects to the API server.
func (d *recordingDialer) Dial(protocols ...string) (httpstream.Connection, string, error) {
	conn, protocol, err := d.webSockets.Dial(protocols...)
	var refused *httpstream.UpgradeFailureError
	if errors.As(err, &refused) || httpstream.IsHTTPSProxyError(err) {
		conn, protocol, err = d.older.Dial(protocols...)
	}
	if err != nil && refused != nil && apierrors.IsForbidden(refused.Cause) {
		err = refused.Cause // SPDY's error has its text alone
	}
	d.failure = err
	return conn, protocol, err
}
