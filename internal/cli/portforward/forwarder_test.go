package portforward

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"

	"github.com/bullpen-ci/bullpen/test/kit/await"
	"github.com/bullpen-ci/bullpen/test/kit/portforwardtest"
)

func newCluster(t *testing.T) *portforwardtest.Cluster {
	t.Helper()
	return portforwardtest.New(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, "served ", r.URL.Path) }))
}

func forwarder(t *testing.T, c *portforwardtest.Cluster, namespace string) *Forwarder {
	t.Helper()
	f, err := New(&rest.Config{Host: c.URL, TLSClientConfig: rest.TLSClientConfig{Insecure: true}}, namespace)
	require.NoError(t, err)
	t.Cleanup(f.Close)
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
		c.NoWebSockets = !webSockets
		f := forwarder(t, c, "")
		service, err := f.Service(await.Context(t))
		require.NoError(t, err)
		require.Equal(t, "bullpen-system/bullpen-admin", service.String())
		require.Empty(t, c.Forwards(), "it begins with the first use")
		for range 3 {
			address, err := f.Address(await.Context(t))
			require.NoError(t, err)
			require.Equal(t, "served /api/v1/pools", get(t, address))
		}
		require.Equal(t, []string{"server-1 by " + protocol}, c.Forwards(), "one port-forward serves all requests")
		f.Close()
		_, err = f.Address(await.Context(t))
		require.ErrorIs(t, err, ErrClosed)
	}
}

// A rollout replaces the pod: the next request goes to another one, by the same local port.
func TestForwarder_FollowsTheServersPods(t *testing.T) {
	c := newCluster(t)
	f := forwarder(t, c, "bullpen-system")
	first, err := f.Address(await.Context(t))
	require.NoError(t, err)
	require.Equal(t, "served /api/v1/pools", get(t, first))
	c.Change(func() { c.Pods = append(c.Pods, portforwardtest.Pod("server-2", time.Minute, corev1.ConditionTrue)) })
	f.running.close() // as a connection that is lost
	require.False(t, f.running.up())
	second, err := f.Address(await.Context(t))
	require.NoError(t, err)
	require.Equal(t, first, second)
	require.Equal(t, "served /api/v1/pools", get(t, second))
	require.Equal(t, []string{"server-1 by WebSocket", "server-2 by WebSocket"}, c.Forwards())
}

func TestForwarder_Problems(t *testing.T) {
	const services, pods = "/api/v1/namespaces/bullpen-system/services", "/api/v1/namespaces/bullpen-system/pods"
	for name, test := range map[string]struct {
		namespace string
		change    func(*portforwardtest.Cluster)
		says      string
	}{
		"no release":            {"", func(c *portforwardtest.Cluster) { c.Services = nil }, "has no release of Bullpen. "},
		"none in the namespace": {"team-b", func(*portforwardtest.Cluster) {}, "has no release of Bullpen in namespace team-b. "},
		"several": {"", func(c *portforwardtest.Cluster) {
			c.Services = append(c.Services, portforwardtest.Services("team-b", "fleet")...)
		}, "Choose one with --system-namespace"},
		"no ready pod": {"", func(c *portforwardtest.Cluster) {
			c.Pods = []corev1.Pod{portforwardtest.Pod("a", 0, corev1.ConditionFalse)}
		}, "is ready (1 not ready)"},
		"no right to the Services": {"", func(c *portforwardtest.Cluster) {
			c.Forbidden = map[string]bool{"GET /api/v1/services": true, "GET " + services: true}
		}, "finding the server's Service: not allowed. A port-forward needs list on services"},
		"no right to the pods":        {"", func(c *portforwardtest.Cluster) { c.Forbidden = map[string]bool{"GET " + pods: true} }, "finding a pod of the Service bullpen-system/bullpen-admin: not allowed."},
		"no right to a port-forward":  {"", func(c *portforwardtest.Cluster) { c.Forbid(pods + "/server-1/portforward") }, "forwarding a port to pod bullpen-system/server-1: not allowed. A port-forward needs list on services and pods, and get and create on pods/portforward in namespace bullpen-system."},
		"a pod without the port":      {"", func(c *portforwardtest.Cluster) { c.Pods[0].Spec.Containers = nil }, "has no port admin. Compare the release's version"},
		"a cluster that is not there": {"", func(c *portforwardtest.Cluster) { c.URL = "http://127.0.0.1:1" }, "finding the server's Service: cannot reach the cluster at http://127.0.0.1:1: connection refused"},
	} {
		c := newCluster(t)
		test.change(c)
		_, err := forwarder(t, c, test.namespace).Address(await.Context(t))
		require.ErrorContains(t, err, test.says, name)
		require.Empty(t, c.Forwards(), name)
	}
}

// Most users may not list the Services of all namespaces.
func TestForwarder_FindsTheUsualNamespaceWithFewRights(t *testing.T) {
	c := newCluster(t)
	c.Services = append(c.Services, portforwardtest.Services("team-b", "fleet")...)
	c.Forbidden["GET /api/v1/services"] = true
	service, err := forwarder(t, c, "").Service(await.Context(t))
	require.NoError(t, err)
	require.Equal(t, "bullpen-system/bullpen-admin", service.String())

	c = newCluster(t) // clusters before 1.35 take the right to create for SPDY alone
	c.Forbidden["GET /api/v1/namespaces/bullpen-system/pods/server-1/portforward"] = true
	address, err := forwarder(t, c, "").Address(await.Context(t))
	require.NoError(t, err)
	require.Equal(t, "served /api/v1/pools", get(t, address))
	require.Equal(t, []string{"server-1 by SPDY"}, c.Forwards())
}

// Keep starts a lost port-forward again, reports what fails, and ends with its context.
func TestForwarder_Keep(t *testing.T) {
	c := newCluster(t)
	f := forwarder(t, c, "")
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
	c.Change(func() { c.Pods = nil })
	first.close()
	retry <- time.Time{}
	require.ErrorContains(t, await.Receive(t, reported, "the report"), "no pod of the Service")
	c.Change(func() { c.Pods = []corev1.Pod{portforwardtest.Pod("server-3", 0, corev1.ConditionTrue)} })
	retry <- time.Time{}
	second := await.Receive(t, began, "the second port-forward")
	require.Equal(t, first.local, second.local)
	cancel()
	await.Receive(t, ended, "the end")
	require.EqualValues(t, 2, started.Load())
}
