package serviceproxy

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/bullpen-ci/bullpen/test/kit"
	"github.com/bullpen-ci/bullpen/test/kit/await"
)

const patience = 30 * time.Second

func TestMain(m *testing.M) { os.Exit(kit.Main(m)) }

// loopback stands for the pods' network: each of its addresses is a port of this machine.
type loopback struct {
	mu    sync.Mutex
	ports map[string]string
}

func (l *loopback) Listen(ctx context.Context, network, address string) (net.Listener, error) {
	listener, err := new(net.ListenConfig).Listen(ctx, network, "127.0.0.1:0")
	if err == nil {
		l.mu.Lock()
		l.ports[address] = listener.Addr().String()
		l.mu.Unlock()
	}
	return listener, err
}

func (l *loopback) ListenPacket(ctx context.Context, network, _ string) (net.PacketConn, error) {
	return new(net.ListenConfig).ListenPacket(ctx, network, "127.0.0.1:0")
}

func (l *loopback) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	l.mu.Lock()
	port := l.ports[address]
	l.mu.Unlock()
	if port == "" {
		return nil, fmt.Errorf("nobody is at %s", address)
	}
	return new(net.Dialer).DialContext(ctx, network, port)
}

// echo answers each line with its own name, at an address of the network.
func (l *loopback) echo(t *testing.T, address, name string) {
	listener, err := l.Listen(t.Context(), "tcp", address)
	require.NoError(t, err)
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				for lines := bufio.NewScanner(conn); lines.Scan(); {
					fmt.Fprintln(conn, name)
				}
			}()
		}
	}()
}

func ask(conn net.Conn) string {
	_ = conn.SetDeadline(time.Now().Add(patience))
	fmt.Fprintln(conn, "who is it?")
	name, _ := bufio.NewReader(conn).ReadString('\n')
	return name
}

// Connections go to endpoints that are ready, as they come and go; one that has begun continues; and without a ready
// endpoint nothing listens.
func TestProxy_FollowsEndpoints(t *testing.T) {
	cluster := kit.Cluster(t)
	namespace := cluster.Namespace(t)
	network := &loopback{ports: map[string]string{}}
	network.echo(t, "10.112.0.2:8080", "first")
	network.echo(t, "10.112.0.3:8080", "second")
	proxy, err := New(Options{Config: cluster.As(t, "system:kube-proxy"), Network: network})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- proxy.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		require.NoError(t, await.Receive(t, ended, "the proxy stops"))
	})

	service, err := cluster.Kube.CoreV1().Services(namespace).Create(ctx, &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "web"}, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Name: "http", Port: 80}}},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	slices := cluster.Kube.DiscoveryV1().EndpointSlices(namespace)
	slice, err := slices.Create(ctx, &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Name: "web-1", Labels: map[string]string{discoveryv1.LabelServiceName: "web"}},
		AddressType: discoveryv1.AddressTypeIPv4, Ports: []discoveryv1.EndpointPort{{Name: ptr.To("http"), Port: ptr.To[int32](8080)}},
		Endpoints: []discoveryv1.Endpoint{{Addresses: []string{"10.112.0.2"}}},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	at := net.JoinHostPort(service.Spec.ClusterIP, "80")
	reach := func() string {
		conn, err := network.DialContext(ctx, "tcp", at)
		if err != nil {
			return "nobody"
		}
		defer conn.Close()
		return ask(conn)
	}
	await := func(want string) {
		t.Helper()
		require.Eventually(t, func() bool { return reach() == want }, patience, 20*time.Millisecond, want)
	}
	await("first\n")
	open, err := network.DialContext(ctx, "tcp", at)
	require.NoError(t, err)
	defer open.Close()
	require.Equal(t, "first\n", ask(open))

	// The first no longer answers, which the API server does not know: the next in rotation is tried.
	slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{Addresses: []string{"10.112.0.3"}}, discoveryv1.Endpoint{Addresses: []string{"10.112.0.9"}})
	slice, err = slices.Update(ctx, slice, metav1.UpdateOptions{})
	require.NoError(t, err)
	await("second\n")
	for range 6 {
		require.Contains(t, []string{"first\n", "second\n"}, reach())
	}

	slice.Endpoints = []discoveryv1.Endpoint{{Addresses: []string{"10.112.0.3"}, Conditions: discoveryv1.EndpointConditions{Ready: ptr.To(false)}}}
	_, err = slices.Update(ctx, slice, metav1.UpdateOptions{})
	require.NoError(t, err)
	await("nobody")
	require.Equal(t, "first\n", ask(open), "a connection that has begun goes on")
}
