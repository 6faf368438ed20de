package network

import (
	"context"
	"net"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bullpen-ci/bullpen/internal/dev/netpolicy"
	"github.com/bullpen-ci/bullpen/test/kit/await"
	"github.com/bullpen-ci/bullpen/test/kit/rig"
)

// fragile counts what a network layer would drop that drops every connection of a pod when the set of policies that select the pod changes.
// It holds each runner's connections to GitHub.
type fragile struct {
	g    *gated
	mu   sync.Mutex
	pods map[string]*linked // by name
	cut  int                // connections that would have been dropped
	held int                // connections that there were
}

// linked is a pod whose runner has connected.
type linked struct {
	by   []string // the policies that selected it then
	open int
}

// client is what a pod's runner speaks to GitHub by.
func (f *fragile) client(ctx context.Context, pod *corev1.Pod) *http.Client {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	dial := transport.DialContext
	transport.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		by := f.selecting(ctx, pod.Name)
		if by == nil { // the runner is ending
			return conn, nil
		}
		f.mu.Lock()
		defer f.mu.Unlock()
		if f.pods[pod.Name] == nil {
			f.pods[pod.Name] = &linked{by: by}
		}
		f.pods[pod.Name].open++
		f.held++
		return conn, nil
	}
	context.AfterFunc(ctx, func() { // the runner has ended
		f.mu.Lock()
		defer f.mu.Unlock()
		delete(f.pods, pod.Name)
		transport.CloseIdleConnections()
	})
	return &http.Client{Transport: transport, Timeout: 2 * time.Minute}
}

// selecting names the policies that select a pod, as the API server has it now; nil when it is gone.
func (f *fragile) selecting(ctx context.Context, name string) []string {
	var policies networkingv1.NetworkPolicyList
	var pod corev1.Pod
	key := types.NamespacedName{Namespace: f.g.Namespace, Name: name}
	if f.g.Admin.List(ctx, &policies, client.InNamespace(f.g.Namespace)) != nil || f.g.Admin.Get(ctx, key, &pod) != nil {
		return nil
	}
	evaluator, err := netpolicy.New(policies.Items, []corev1.Pod{pod}, nil)
	if err != nil {
		return nil
	}
	view, _ := evaluator.View(key)
	return view.Policies
}

// follow counts what a changed pod has open, until the watch is stopped.
func (f *fragile) follow(ctx context.Context, events <-chan watch.Event) {
	for event := range events { // bounded: the watch ends with its context
		pod, ok := event.Object.(*corev1.Pod)
		if !ok {
			continue
		}
		by := f.selecting(ctx, pod.Name)
		f.mu.Lock()
		if known := f.pods[pod.Name]; known != nil && by != nil && !slices.Equal(known.by, by) {
			f.cut += known.open
			known.by, known.open = by, 0
		}
		f.mu.Unlock()
	}
}

func (f *fragile) dropped() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.cut
}

func newFragile(t *testing.T) *fragile {
	t.Helper()
	f := &fragile{pods: map[string]*linked{}}
	f.g = newGated(t, func(_ *gated, o *rig.Options) { o.GitHub = f.client })
	var list corev1.PodList
	watching, err := f.g.Admin.Watch(t.Context(), &list, client.InNamespace(f.g.Namespace))
	require.NoError(t, err)
	var following sync.WaitGroup
	following.Go(func() { f.follow(t.Context(), watching.ResultChan()) })
	t.Cleanup(func() { watching.Stop(); await.Return(t, following.Wait, "the network layer stops") })
	f.g.warm(2)
	return f
}

// TEN-8, end to end, with a network layer that would drop a pod's connections to GitHub whenever other policies select it.
// It drops none while a job runs, because the label is there before the runner starts, or is never written.
func TestMidJob_TEN8_NoConnectionToGitHubIsDropped(t *testing.T) {
	const jobs = 4
	f := newFragile(t)
	require.NoError(t, f.g.Submit(t.Context(), gatedLabel, 1, jobs, time.Second))
	f.g.eventually("all jobs have ended well", func() bool { return f.g.State().Jobs["completed"] == jobs })
	require.Zero(t, f.dropped())
	require.GreaterOrEqual(t, f.held, jobs, "each runner was connected to GitHub")
}
