package portforwardtest

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/proxy"
	tunneling "k8s.io/apiserver/pkg/util/proxy"
	"k8s.io/cri-streaming/pkg/streaming/portforward"
	"k8s.io/streaming/pkg/httpstream/wsstream"
)

// Port is the one that the server's pods serve.
const Port = 8082

// Cluster is an API server with pods that serve a handler. Change its fields with Change.
type Cluster struct {
	URL string

	Services []corev1.Service
	Pods     []corev1.Pod
	// Forbidden are requests that the caller may not send, as METHOD and path.
	Forbidden map[string]bool
	// NoWebSockets is an API server of earlier releases.
	NoWebSockets bool

	mu        sync.Mutex
	forwarded []string
	kubelet   *url.URL
	served    string // address of the handler
}

// New starts a cluster with a release named bullpen, of one pod.
func New(t *testing.T, inPod http.Handler) *Cluster {
	t.Helper()
	c := &Cluster{
		Services: Services("bullpen-system", "bullpen"), Pods: []corev1.Pod{Pod("server-1", time.Hour, corev1.ConditionTrue)}, Forbidden: map[string]bool{},
	}
	serve := func(handler http.Handler) *httptest.Server {
		server := httptest.NewServer(handler)
		t.Cleanup(server.Close)
		return server
	}
	c.served = serve(inPod).Listener.Addr().String()
	kubelet := serve(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		portforward.ServePortForward(w, r, c, "server", "uid", &portforward.V4Options{}, time.Minute, time.Minute, portforward.SupportedProtocols)
	}))
	var err error
	c.kubelet, err = url.Parse(kubelet.URL)
	require.NoError(t, err)
	api := httptest.NewTLSServer(http.HandlerFunc(c.serve)) // client-go sends tokens over TLS only
	t.Cleanup(api.Close)
	c.URL = api.URL
	return c
}

// Change changes fields while requests may be read.
func (c *Cluster) Change(how func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	how()
}

// Forbid lets no request to a path pass.
func (c *Cluster) Forbid(path string) {
	c.Change(func() { c.Forbidden = map[string]bool{"GET " + path: true, "POST " + path: true} })
}

// Forwards are the port-forwards that were started: pod by protocol.
func (c *Cluster) Forwards() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.forwarded)
}

// PortForward is what a kubelet does with a connection: it goes to the port in the pod.
func (c *Cluster) PortForward(ctx context.Context, _, _ string, port int32, stream io.ReadWriteCloser) error {
	if port != Port {
		return fmt.Errorf("connection refused: %d", port)
	}
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", c.served)
	if err != nil {
		return err
	}
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()
	go func() { _, _ = io.Copy(conn, stream) }() // ends with either connection
	_, err = io.Copy(stream, conn)
	return err
}

func (c *Cluster) serve(w http.ResponseWriter, r *http.Request) {
	c.mu.Lock()
	services, pods, noWebSockets, forbidden := c.Services, c.Pods, c.NoWebSockets, c.Forbidden[r.Method+" "+r.URL.Path]
	c.mu.Unlock()
	if forbidden {
		respond(w, http.StatusForbidden, metav1.Status{
			TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusFailure, Reason: metav1.StatusReasonForbidden,
			Code: http.StatusForbidden, Message: "ada cannot",
		})
		return
	}
	parts := strings.Split(strings.TrimPrefix(r.URL.Path, "/api/v1/"), "/") // namespaces/NAMESPACE/RESOURCE/NAME/SUBRESOURCE, or RESOURCE
	switch last := parts[len(parts)-1]; {
	case last == "portforward":
		c.portForward(w, r, parts[3], noWebSockets)
	case last == "token":
		respond(w, http.StatusCreated, authenticationv1.TokenRequest{
			TypeMeta: metav1.TypeMeta{Kind: "TokenRequest", APIVersion: "authentication.k8s.io/v1"},
			Status:   authenticationv1.TokenRequestStatus{Token: "of " + parts[1] + "/" + parts[3], ExpirationTimestamp: metav1.NewTime(time.Now().Add(time.Hour))},
		})
	case last == "services":
		list := corev1.ServiceList{TypeMeta: metav1.TypeMeta{Kind: "ServiceList", APIVersion: "v1"}}
		for _, service := range services {
			if len(parts) == 1 || parts[1] == service.Namespace {
				list.Items = append(list.Items, service)
			}
		}
		respond(w, http.StatusOK, list)
	case last == "pods" && strings.Contains(r.URL.Query().Get("labelSelector"), "app.kubernetes.io/instance="):
		respond(w, http.StatusOK, corev1.PodList{TypeMeta: metav1.TypeMeta{Kind: "PodList", APIVersion: "v1"}, Items: pods})
	default:
		http.NotFound(w, r)
	}
}

func respond(w http.ResponseWriter, status int, object any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(object) // the client sees
}

// portForward leads to the kubelet by the API server's own handlers.
func (c *Cluster) portForward(w http.ResponseWriter, r *http.Request, pod string, noWebSockets bool) {
	protocol := "SPDY"
	var handler http.Handler = proxy.NewUpgradeAwareHandler(c.kubelet, http.DefaultTransport, false, true, responder{})
	if wsstream.IsWebSocketRequest(r) {
		if noWebSockets {
			http.Error(w, "upgrade to SPDY is required", http.StatusBadRequest)
			return
		}
		protocol, handler = "WebSocket", tunneling.NewTunnelingHandler(handler)
	}
	c.Change(func() { c.forwarded = append(c.forwarded, pod+" by "+protocol) })
	handler.ServeHTTP(w, r)
}

type responder struct{}

// Error responds to a request that could not be forwarded.
func (responder) Error(w http.ResponseWriter, _ *http.Request, err error) {
	http.Error(w, err.Error(), http.StatusBadGateway)
}
