package portforward

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
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/proxy"
	tunneling "k8s.io/apiserver/pkg/util/proxy"
	"k8s.io/client-go/rest"
	"k8s.io/cri-streaming/pkg/streaming/portforward"
	"k8s.io/streaming/pkg/httpstream/wsstream"

	"github.com/bullpen-ci/bullpen/test/kit/await"
)

// cluster is an API server with a release. Its port-forwards are those of Kubernetes' own kubelet and API server, the rest is written here.
type cluster struct {
	t       *testing.T
	URL     string
	kubelet *url.URL

	mu           sync.Mutex
	services     []corev1.Service
	pods         []corev1.Pod
	forbidden    map[string]bool // by the path's end
	webSockets   bool            // this API server has them
	forwarded    []string        // pods to which a port-forward was started, with its protocol
	servesOnPort string          // address of the server in the pods
}

func newCluster(t *testing.T) *cluster {
	t.Helper()
	c := &cluster{
		t: t, services: chartServices("bullpen-system", "bullpen"), pods: []corev1.Pod{pod("server-1", time.Hour, corev1.ConditionTrue)},
		forbidden: map[string]bool{}, webSockets: true,
	}
	inPod := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, "served ", r.URL.Path) }))
	t.Cleanup(inPod.Close)
	c.servesOnPort = inPod.Listener.Addr().String()
	kubelet := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		portforward.ServePortForward(w, r, c, "server", "uid", &portforward.V4Options{}, time.Minute, time.Minute, portforward.SupportedProtocols)
	}))
	t.Cleanup(kubelet.Close)
	var err error
	c.kubelet, err = url.Parse(kubelet.URL)
	require.NoError(t, err)
	api := httptest.NewServer(http.HandlerFunc(c.serve))
	t.Cleanup(api.Close)
	c.URL = api.URL
	return c
}

// PortForward is what the kubelet does with a connection: it goes to the port in the pod.
func (c *cluster) PortForward(ctx context.Context, _, _ string, port int32, stream io.ReadWriteCloser) error {
	if port != 8082 {
		return fmt.Errorf("connection refused: %d", port)
	}
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", c.servesOnPort)
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

func (c *cluster) serve(w http.ResponseWriter, r *http.Request) {
	c.mu.Lock()
	services, pods, webSockets := c.services, c.pods, c.webSockets
	forbidden := c.forbidden[r.Method+" "+r.URL.Path]
	c.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	if forbidden {
		w.WriteHeader(http.StatusForbidden)
		_ = json.NewEncoder(w).Encode(metav1.Status{
			TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusFailure, Reason: metav1.StatusReasonForbidden,
			Code: http.StatusForbidden, Message: "ada cannot",
		})
		return
	}
	switch path := r.URL.Path; {
	case strings.HasSuffix(path, "/portforward"):
		c.portForward(w, r, strings.Split(path, "/")[6], webSockets)
	case strings.HasSuffix(path, "/services"):
		list := corev1.ServiceList{TypeMeta: metav1.TypeMeta{Kind: "ServiceList", APIVersion: "v1"}}
		for _, service := range services {
			if path == "/api/v1/services" || path == "/api/v1/namespaces/"+service.Namespace+"/services" {
				list.Items = append(list.Items, service)
			}
		}
		_ = json.NewEncoder(w).Encode(list)
	case path == "/api/v1/namespaces/bullpen-system/pods" && strings.Contains(r.URL.Query().Get("labelSelector"), "app.kubernetes.io/instance=bullpen"):
		_ = json.NewEncoder(w).Encode(corev1.PodList{TypeMeta: metav1.TypeMeta{Kind: "PodList", APIVersion: "v1"}, Items: pods})
	default:
		http.NotFound(w, r)
	}
}

// portForward leads to the kubelet by the API server's own handlers.
func (c *cluster) portForward(w http.ResponseWriter, r *http.Request, pod string, webSockets bool) {
	protocol := "SPDY"
	var handler http.Handler = proxy.NewUpgradeAwareHandler(c.kubelet, http.DefaultTransport, false, true, responder{})
	if wsstream.IsWebSocketRequest(r) {
		if !webSockets {
			http.Error(w, "upgrade to SPDY is required", http.StatusBadRequest)
			return
		}
		protocol, handler = "WebSocket", tunneling.NewTunnelingHandler(handler)
	}
	c.mu.Lock()
	c.forwarded = append(c.forwarded, pod+" by "+protocol)
	c.mu.Unlock()
	handler.ServeHTTP(w, r)
}

type responder struct{}

func (responder) Error(w http.ResponseWriter, _ *http.Request, err error) {
	http.Error(w, err.Error(), http.StatusBadGateway)
}

func (c *cluster) forwards() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.forwarded)
}

func (c *cluster) change(how func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	how()
}

func (c *cluster) forwarder(namespace string) *Forwarder {
	f, err := New(&rest.Config{Host: c.URL}, namespace)
	require.NoError(c.t, err)
	c.t.Cleanup(f.Close)
	return f
}

func get(t *testing.T, address string) string {
	t.Helper()
	response, err := await.HTTP.Get("http://" + address + "/api/v1/pools")
	require.NoError(t, err)
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	return string(text)
}

func TestForwarder_LeadsToTheServer(t *testing.T) {
	for protocol, webSockets := range map[string]bool{"WebSocket": true, "SPDY": false} {
		c := newCluster(t)
		c.webSockets = webSockets
		f := c.forwarder("")
		service, err := f.Service(await.Context(t))
		require.NoError(t, err)
		require.Equal(t, "bullpen-system/bullpen-operators", service.String())
		require.Empty(t, c.forwards(), "it begins with the first use")
		for range 3 {
			address, err := f.Address(await.Context(t))
			require.NoError(t, err)
			require.Equal(t, "served /api/v1/pools", get(t, address))
		}
		require.Equal(t, []string{"server-1 by " + protocol}, c.forwards(), "one port-forward serves all requests")
		f.Close()
		_, err = f.Address(await.Context(t))
		require.ErrorIs(t, err, ErrClosed)
	}
}

// A rollout replaces the pod: the next request goes to another one, by the same local port.
func TestForwarder_FollowsTheServersPods(t *testing.T) {
	c := newCluster(t)
	f := c.forwarder("bullpen-system")
	first, err := f.Address(await.Context(t))
	require.NoError(t, err)
	require.Equal(t, "served /api/v1/pools", get(t, first))
	c.change(func() { c.pods = append(c.pods, pod("server-2", time.Minute, corev1.ConditionTrue)) })
	f.running.close() // as a connection that is lost
	require.False(t, f.running.up())
	second, err := f.Address(await.Context(t))
	require.NoError(t, err)
	require.Equal(t, first, second)
	require.Equal(t, "served /api/v1/pools", get(t, second))
	require.Equal(t, []string{"server-1 by WebSocket", "server-2 by WebSocket"}, c.forwards())
}

func TestForwarder_Problems(t *testing.T) {
	const services, pods = "/api/v1/namespaces/bullpen-system/services", "/api/v1/namespaces/bullpen-system/pods"
	for name, test := range map[string]struct {
		namespace string
		change    func(*cluster)
		says      string
	}{
		"no release":                  {"", func(c *cluster) { c.services = nil }, "has no release of Bullpen. "},
		"none in the namespace":       {"team-b", func(*cluster) {}, "has no release of Bullpen in namespace team-b. "},
		"several":                     {"", func(c *cluster) { c.services = append(c.services, chartServices("team-b", "fleet")...) }, "Choose one with --system-namespace"},
		"no ready pod":                {"", func(c *cluster) { c.pods = []corev1.Pod{pod("a", 0, corev1.ConditionFalse)} }, "is ready (1 not ready)"},
		"no right to the Services":    {"", func(c *cluster) { c.forbidden = map[string]bool{"GET /api/v1/services": true, "GET " + services: true} }, "finding the server's Service: not allowed. A port-forward needs list on services"},
		"no right to the pods":        {"", func(c *cluster) { c.forbidden = map[string]bool{"GET " + pods: true} }, "finding a pod of the Service bullpen-system/bullpen-operators: not allowed."},
		"no right to a port-forward":  {"", func(c *cluster) { c.forbid(pods + "/server-1/portforward") }, "forwarding a port to pod bullpen-system/server-1: not allowed. A port-forward needs list on services and pods, and get and create on pods/portforward in namespace bullpen-system."},
		"a pod without the port":      {"", func(c *cluster) { c.pods[0].Spec.Containers = nil }, "has no port operators. Compare the release's version"},
		"a cluster that is not there": {"", func(c *cluster) { c.URL = "http://127.0.0.1:1" }, "finding the server's Service: cannot reach the cluster at http://127.0.0.1:1: connection refused"},
	} {
		c := newCluster(t)
		test.change(c)
		_, err := c.forwarder(test.namespace).Address(await.Context(t))
		require.ErrorContains(t, err, test.says, name)
		require.Empty(t, c.forwards(), name)
	}
}

func (c *cluster) forbid(path string) {
	c.forbidden = map[string]bool{"GET " + path: true, "POST " + path: true}
}

// Most users may not list the Services of all namespaces.
func TestForwarder_FindsTheUsualNamespaceWithFewRights(t *testing.T) {
	c := newCluster(t)
	c.services = append(c.services, chartServices("team-b", "fleet")...)
	c.forbidden["GET /api/v1/services"] = true
	service, err := c.forwarder("").Service(await.Context(t))
	require.NoError(t, err)
	require.Equal(t, "bullpen-system/bullpen-operators", service.String())

	c = newCluster(t) // clusters before 1.35 take the right to create for SPDY alone
	c.forbidden["GET /api/v1/namespaces/bullpen-system/pods/server-1/portforward"] = true
	address, err := c.forwarder("").Address(await.Context(t))
	require.NoError(t, err)
	require.Equal(t, "served /api/v1/pools", get(t, address))
	require.Equal(t, []string{"server-1 by SPDY"}, c.forwards())
}

// Keep starts a lost port-forward again, reports what fails, and ends with its context.
func TestForwarder_Keep(t *testing.T) {
	c := newCluster(t)
	f := c.forwarder("")
	ctx, cancel := context.WithCancel(await.Context(t))
	retry, reported := make(chan time.Time), make(chan error, 1)
	var started atomic.Int32
	began := make(chan *tunnel, 1)
	dial := f.connect
	f.connect = func(ctx context.Context, pod corev1.Pod, local uint16, remote int32) (*tunnel, error) {
		started.Add(1)
		made, err := dial(ctx, pod, local, remote)
		if err == nil {
			began <- made
		}
		return made, err
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		f.Keep(ctx, func() <-chan time.Time { return retry }, func(err error) { reported <- err })
	}()
	first := await.Receive(t, began, "the first port-forward")
	c.change(func() { c.pods = nil })
	first.close()
	require.ErrorContains(t, await.Receive(t, reported, "the report"), "no pod of the Service")
	c.change(func() { c.pods = []corev1.Pod{pod("server-3", 0, corev1.ConditionTrue)} })
	retry <- time.Time{}
	second := await.Receive(t, began, "the second port-forward")
	require.Equal(t, first.local, second.local)
	cancel()
	await.Receive(t, ended, "the end")
	require.EqualValues(t, 2, started.Load())
}
