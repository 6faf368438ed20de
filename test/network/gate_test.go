package network

import (
	"context"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bullpen-ci/bullpen/api/v1alpha1"
	policygate "github.com/bullpen-ci/bullpen/internal/dev/netpolicy/gate"
	"github.com/bullpen-ci/bullpen/internal/fleet"
	"github.com/bullpen-ci/bullpen/internal/runnerpod"
	"github.com/bullpen-ci/bullpen/internal/runnerpod/podsigns"
	"github.com/bullpen-ci/bullpen/internal/server/dispatch"
	"github.com/bullpen-ci/bullpen/test/kit"
	"github.com/bullpen-ci/bullpen/test/kit/await"
	"github.com/bullpen-ci/bullpen/test/kit/postgrestest"
	"github.com/bullpen-ci/bullpen/test/kit/rig"
)

// gatedLabel is what jobs ask for.
const gatedLabel = "gated"

// gated is a whole fleet whose pods reach the server through a gate that enforces the chart's policies.
type gated struct {
	*testing.T
	*rig.Fleet
	gate *policygate.Gate

	mu       sync.Mutex
	cut      map[string]int // by pod: established connections that were cut
	refused  map[string]int // by pod: connections that were refused
	strayers int            // connections of no pod
}

func newGated(t *testing.T, change func(*gated, *rig.Options)) *gated {
	t.Helper()
	env := kit.Cluster(t)
	g := &gated{T: t, cut: map[string]int{}, refused: map[string]int{}}
	options := rig.Options{
		Cluster: env, Database: postgrestest.NewDatabase(t, nil), Nodes: 1, PodsEach: 20,
		Between: func(ctx context.Context, namespace, server string) string {
			return g.between(ctx, env, namespace, server)
		},
	}
	if change != nil {
		change(g, &options)
	}
	g.Fleet = rig.Start(t, options)
	return g
}

func (g *gated) between(ctx context.Context, env *kit.Env, namespace, server string) string {
	admin := env.Client(g.T)
	for _, object := range render(g.T, kit.SystemNamespace, map[string]any{
		"runners": map[string]any{"namespace": namespace, "createNamespace": false},
	}, "templates/networkpolicy.yaml") {
		require.NoError(g, admin.Create(g.Context(), object))
	}
	made, err := policygate.New(policygate.Options{
		Kube: env.Kube, Namespace: namespace, Upstream: server, Port: dispatchPort, Observe: g.observe,
		Server: &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: kit.SystemNamespace, Name: "server", Labels: deployment(g.T).Spec.Template.Labels},
			Status:     corev1.PodStatus{PodIP: "192.0.2.1"},
		},
	})
	require.NoError(g, err)
	g.gate = made
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	require.NoError(g, err)
	ctx, end := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- made.Run(ctx, listener) }()
	g.Cleanup(func() { end(); require.NoError(g, await.Receive(g, ended, "the gate stops")) })
	return "http://" + listener.Addr().String()
}

// Context is the test's: both embedded types have one.
func (g *gated) Context() context.Context { return g.T.Context() }

func (g *gated) observe(r policygate.Refusal) {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case r.Pod.Name == "":
		g.strayers++
	case r.Cut:
		g.cut[r.Pod.Name]++
	default:
		g.refused[r.Pod.Name]++
	}
}

// warm makes a pool and waits until its runners poll.
func (g *gated) warm(runners int) {
	pool := &v1alpha1.RunnerPool{
		ObjectMeta: metav1.ObjectMeta{Namespace: g.Namespace, Name: "linux"},
		Spec: v1alpha1.RunnerPoolSpec{
			Platform: v1alpha1.PlatformLinux, Labels: []string{gatedLabel}, Replicas: ptr.To(int32(runners)), //nolint:gosec // few
			Resources: v1alpha1.RunnerResources{CPU: resource.MustParse("100m"), Memory: resource.MustParse("64Mi")},
			Template:  v1alpha1.RunnerTemplate{Image: "runner:1"},
		},
	}
	require.NoError(g, g.Admin.Create(g.Context(), pool))
	g.eventually("the runners are ready", func() bool {
		ready := 0
		for _, p := range g.runners() {
			if podsigns.Jobless(&p, podsigns.Container(&p, runnerpod.ContainerRunner)) {
				ready++
			}
		}
		return ready >= runners
	})
}

func (g *gated) runners() []corev1.Pod {
	var pods corev1.PodList
	require.NoError(g, g.Admin.List(g.Context(), &pods, client.InNamespace(g.Namespace), client.MatchingLabels{runnerpod.LabelRunner: "true"}))
	return pods.Items
}

func (g *gated) eventually(what string, holds func() bool) {
	g.Helper()
	require.Eventually(g, holds, 2*time.Minute, interval, what)
}

// CLAIM-6, NET-2, end to end: real policies in a live API server, a gate that cuts a pod's connections at the label, the
// server, the agent and the runner. Every job is done, because the label follows the acknowledgement; and once it is there
// the pod does not reach the server.
func TestGate_CLAIM6_NET2_TheLabelCutsNoPodOffFromItsAnswer(t *testing.T) {
	const jobs = 6
	g := newGated(t, nil)
	g.warm(3)
	require.NoError(t, g.Submit(t.Context(), gatedLabel, 1, jobs, 2*time.Second))
	barred := map[types.UID]bool{}
	g.eventually("all jobs have ended well", func() bool {
		for _, p := range g.runners() {
			if name := (types.NamespacedName{Namespace: p.Namespace, Name: p.Name}); p.Labels[runnerpod.LabelOwner] != "" && !g.gate.Allows(name) {
				barred[p.UID] = true
			}
		}
		return g.State().Jobs["completed"] == jobs
	})
	require.NotEmpty(t, barred, "no busy runner was kept from the server")
	g.mu.Lock()
	strayers := g.strayers
	g.mu.Unlock()
	require.Zero(t, strayers)

	t.Run("control: the label at the claim", func(t *testing.T) { // as it was
		const jobs = 2
		g := newGated(t, func(g *gated, o *rig.Options) {
			o.Dispatch = func(d *dispatch.Options) {
				d.Store = stampsAtTheClaim{d.Store, d.Cluster}
				d.Forge = slowForge{d.Forge, g}
			}
		})
		g.warm(2)
		require.NoError(t, g.Submit(t.Context(), gatedLabel, 1, jobs, time.Second))
		g.eventually("both pods are cut off in the middle of their poll, and their retries fail", func() bool {
			g.mu.Lock()
			defer g.mu.Unlock()
			return len(g.cut) == 2 && len(g.refused) == 2
		})
		state := g.State()
		require.Zero(t, state.Jobs["in_progress"]+state.Jobs["completed"], "no job ever starts")
	})
}

// stampsAtTheClaim is a ledger whose user writes the owner label as soon as a claim is won.
type stampsAtTheClaim struct {
	dispatch.Store
	cluster dispatch.Cluster
}

func (s stampsAtTheClaim) ClaimBatch(ctx context.Context, b dispatch.Batch) (dispatch.BatchResult, error) {
	result, err := s.Store.ClaimBatch(ctx, b)
	for _, claim := range result.Claims {
		if pod, there := s.cluster.Pod(claim.PodUID); there && err == nil {
			_ = s.cluster.StampOwner(ctx, pod, claim.Account)
		}
	}
	return result, err
}

// slowForge mints no faster than a network layer follows labels.
type slowForge struct {
	dispatch.Forge
	g *gated
}

func (f slowForge) Mint(ctx context.Context, installation int64, request fleet.MintRequest) (fleet.JIT, error) {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		f.g.mu.Lock()
		cut := len(f.g.cut)
		f.g.mu.Unlock()
		if cut == 2 {
			return f.Forge.Mint(ctx, installation, request)
		}
		select {
		case <-ctx.Done():
			return fleet.JIT{}, ctx.Err()
		case <-tick.C:
		}
	}
}
