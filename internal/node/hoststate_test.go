package node_test

import (
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/bullpen-ci/bullpen/internal/node"
	"github.com/bullpen-ci/bullpen/internal/node/sandbox"
	"github.com/bullpen-ci/bullpen/internal/node/sandbox/synthetic"
	"github.com/bullpen-ci/bullpen/internal/runnerpod"
	"github.com/bullpen-ci/bullpen/test/kit/await"
)

// reporting is a back end with a scripted state.
type reporting struct {
	sandbox.Sandbox
	mu    sync.Mutex
	state sandbox.HostState
}

func (r *reporting) Host() sandbox.HostState {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.state
}

func (r *reporting) say(change func(*sandbox.HostState)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	change(&r.state)
}

func slots(n int64) corev1.ResourceList {
	return corev1.ResourceList{runnerpod.ResourceMacOSVM: *resource.NewQuantity(n, resource.DecimalSI)}
}

func nodeCondition(n *corev1.Node, kind string) *corev1.NodeCondition {
	for i := range n.Status.Conditions {
		if string(n.Status.Conditions[i].Type) == kind {
			return &n.Status.Conditions[i]
		}
	}
	return nil
}

func slotsOf(list corev1.ResourceList) int64 {
	q, ok := list[runnerpod.ResourceMacOSVM]
	if !ok {
		return -1
	}
	return q.Value()
}

func aMac() *reporting {
	return &reporting{Sandbox: synthetic.New(synthetic.NewMachine(nil)), state: sandbox.HostState{
		OS: "darwin", Arch: "arm64", Capacity: slots(2),
		Conditions: []sandbox.Condition{{Type: "GUISession", Status: corev1.ConditionTrue, Reason: "Aqua"}},
	}}
}

func TestNode_NODE9_AHostThatCannotStartVMsIsOutOfSchedulingAndComesBack(t *testing.T) {
	f := newFixture(t)
	mac := aMac()
	// Slow on purpose: it must not take the next round to notice.
	f.run(mac, func(o *node.Options) { o.StatusInterval = time.Hour })
	n := f.node(func(n *corev1.Node) bool { return nodeReady(n) && len(n.Spec.Taints) == 1 })
	require.Equal(t, "darwin", n.Labels[corev1.LabelOSStable])
	require.Equal(t, "arm64", n.Labels[corev1.LabelArchStable])
	require.Equal(t, "darwin", n.Status.NodeInfo.OperatingSystem)
	require.Equal(t, "arm64", n.Status.NodeInfo.Architecture)
	require.Equal(t, corev1.Taint{Key: runnerpod.TaintMacOS, Effect: corev1.TaintEffectNoSchedule}, n.Spec.Taints[0])
	require.Equal(t, corev1.ConditionTrue, nodeCondition(n, "GUISession").Status)
	require.Equal(t, int64(50), n.Status.Capacity.Pods().Value(), "the agent's configured capacity stays")

	mac.say(func(s *sandbox.HostState) {
		s.Allocatable = slots(0)
		s.Conditions = []sandbox.Condition{{Type: "GUISession", Status: corev1.ConditionFalse, Reason: "NoSession", Message: "nobody is logged in"}}
	})
	n = f.node(func(n *corev1.Node) bool { return slotsOf(n.Status.Allocatable) == 0 })
	require.Equal(t, int64(2), slotsOf(n.Status.Capacity))
	require.Equal(t, "nobody is logged in", nodeCondition(n, "GUISession").Message)

	pod := f.create(func(p *corev1.Pod) {
		p.Spec.NodeName = ""
		p.Spec.NodeSelector = map[string]string{corev1.LabelHostname: f.name}
		p.Spec.Containers[0].Resources.Limits = slots(1)
	}, sh("main", ""))
	f.await(pod, "unschedulable", func(p *corev1.Pod) bool { return condition(p, corev1.PodScheduled) == "False" })
	mac.say(func(s *sandbox.HostState) { s.Allocatable = slots(1) })
	f.awaitPhase(pod, corev1.PodRunning)
}

func TestNode_ConditionsNobodyReportsAnyMoreAreTakenOff(t *testing.T) {
	f := newFixture(t)
	mac := aMac()
	stop := f.run(mac)
	f.node(nodeReady)
	_, err := f.kube.CoreV1().Nodes().PatchStatus(t.Context(), f.name, []byte(`{"status":{"conditions":[{"type":"KernelDeadlock","status":"False","reason":"SomebodyElses"}]}}`))
	require.NoError(t, err)

	mac.say(func(s *sandbox.HostState) {
		s.Conditions = []sandbox.Condition{
			{Type: "DHCPLeases", Status: corev1.ConditionTrue, Reason: "Enough"},
			{Type: "Ready", Status: corev1.ConditionFalse, Reason: "NotItsBusiness"},
		}
	})
	n := f.node(func(n *corev1.Node) bool {
		return nodeCondition(n, "GUISession") == nil && nodeCondition(n, "DHCPLeases") != nil
	})
	require.True(t, nodeReady(n), "a back end cannot say of itself whether its node is ready")
	require.NotNil(t, nodeCondition(n, "KernelDeadlock"))

	// The next agent has another back end: it has never seen what the one before it set.
	stop()
	f.run(synthetic.New(synthetic.NewMachine(nil)))
	n = f.node(func(n *corev1.Node) bool { return nodeCondition(n, "DHCPLeases") == nil })
	require.NotNil(t, nodeCondition(n, "KernelDeadlock"))
	n = f.node(func(n *corev1.Node) bool { return n.Annotations[node.AnnotationConditions] == "" })
	require.Equal(t, int64(-1), slotsOf(n.Status.Capacity))
	require.Equal(t, runtime.GOOS, n.Labels[corev1.LabelOSStable])
	require.Equal(t, runtime.GOOS, n.Status.NodeInfo.OperatingSystem)
}

// stuck is a back end that does not answer about its host.
type stuck struct {
	sandbox.Sandbox
	t     *testing.T
	until chan struct{}
}

func (s stuck) Host() sandbox.HostState {
	await.OrEnd(s.t, s.until)
	return sandbox.HostState{}
}

func TestNode_NODE6_ABackEndThatDoesNotAnswerDelaysNotTheLease(t *testing.T) {
	f := newFixture(t)
	s := stuck{t: t, Sandbox: synthetic.New(synthetic.NewMachine(nil)), until: make(chan struct{})}
	stop := f.run(s)
	before := f.lease().Spec.RenewTime.Time
	require.Eventually(t, func() bool { return f.lease().Spec.RenewTime.After(before) }, patience, 50*time.Millisecond)
	_, err := f.kube.CoreV1().Nodes().Get(t.Context(), f.name, metav1.GetOptions{})
	require.Error(t, err, "it waits to be registered")
	close(s.until)
	f.node(nodeReady)
	stop()
}
