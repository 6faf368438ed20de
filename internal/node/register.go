package node

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/client-go/kubernetes"

	"github.com/bullpen-ci/bullpen/internal/node/sandbox"
)

// heartbeat is how often a node's status is written when nothing in it changes: the lease says that the node lives.
const heartbeat = time.Minute

// registrar keeps the Node object.
type registrar struct {
	a        *Agent
	kube     kubernetes.Interface
	redial   func()
	reported time.Time
	host     sandbox.HostState // as last asked for
	local    corev1.Node       // as it would be reported; only its status is of use
}

func newRegistrar(a *Agent) (*registrar, error) {
	kube, redial, err := ownClient(a.opts.Config, a.opts.RequestTimeout)
	if err != nil {
		return nil, err
	}
	return &registrar{a: a, kube: kube, redial: redial}, nil
}

func (r *registrar) run(ctx context.Context) {
	defer r.redial()
	tick := r.a.opts.Clock.NewTicker(r.a.opts.StatusInterval)
	defer tick.Stop()
	look, stop := r.hostTicks()
	defer stop()
	for {
		err := r.ensure(ctx)
		r.a.noteProblem(err)
		if err != nil && ctx.Err() == nil {
			r.a.opts.Log.Warn("reporting the node failed, retrying", "error", err)
			if !answered(err) {
				r.redial()
			}
		}
		for due := false; !due; {
			select {
			case <-ctx.Done():
				return
			case <-tick.C():
				due = true
			case <-r.a.nodeKick: // NODE-8: the Node object was deleted
				due = true
			case <-look:
				due = !equality.Semantic.DeepEqual(r.a.hostState(), r.host)
			}
		}
	}
}

// ensure registers the node when it is not there, and brings labels and status up to date.
func (r *registrar) ensure(ctx context.Context) error {
	r.host = r.a.hostState()
	r.fill(&r.local, r.a.opts.Clock.Now())
	r.a.nodeStatus.Store(r.local.Status.DeepCopy())
	nodes := r.kube.CoreV1().Nodes()
	node, err := nodes.Get(ctx, r.a.opts.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		node, err = nodes.Create(ctx, r.newNode(), metav1.CreateOptions{})
		if err != nil {
			return fmt.Errorf("registering the node: %w", err)
		}
		r.a.opts.Log.Info("registered the node", "node", node.Name, "uid", node.UID)
		r.reported = time.Time{}
	}
	if err != nil {
		return fmt.Errorf("reading the node: %w", err)
	}
	uid := node.UID
	r.a.nodeUID.Store(&uid)

	want := node.DeepCopy()
	want.Labels = maps.Clone(node.Labels)
	if want.Labels == nil {
		want.Labels = map[string]string{}
	}
	maps.Copy(want.Labels, r.labels())
	want.Annotations = r.annotations(node)
	if !equality.Semantic.DeepEqual(want.ObjectMeta, node.ObjectMeta) {
		if err := r.patch(ctx, node, want); err != nil {
			return fmt.Errorf("labelling the node: %w", err)
		}
	}
	node.Annotations = want.Annotations
	return r.report(ctx, node)
}

// report writes the status when something in it has changed, and now and then anyway.
func (r *registrar) report(ctx context.Context, node *corev1.Node) error {
	now := r.a.opts.Clock.Now()
	want := node.DeepCopy()
	r.fill(want, now)
	same := node.DeepCopy()
	for i := range same.Status.Conditions { // the time of the heartbeat is no change
		for _, c := range want.Status.Conditions {
			if c.Type == same.Status.Conditions[i].Type {
				same.Status.Conditions[i].LastHeartbeatTime = c.LastHeartbeatTime
			}
		}
	}
	if equality.Semantic.DeepEqual(same.Status, want.Status) && now.Sub(r.reported) < heartbeat {
		return nil
	}
	if err := r.patch(ctx, node, want, "status"); err != nil {
		return fmt.Errorf("reporting the node's status: %w", err)
	}
	r.reported = now
	r.a.conditionEvents(node.Status.Conditions, want.Status.Conditions)
	return nil
}

func (r *registrar) patch(ctx context.Context, old, want *corev1.Node, subresource ...string) error {
	before, err := json.Marshal(old)
	if err != nil {
		return err
	}
	after, err := json.Marshal(want)
	if err != nil {
		return err
	}
	patch, err := strategicpatch.CreateTwoWayMergePatch(before, after, corev1.Node{})
	if err != nil {
		return err
	}
	_, err = r.kube.CoreV1().Nodes().Patch(ctx, old.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, subresource...)
	return err
}

func (r *registrar) newNode() *corev1.Node {
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: r.a.opts.Name, Labels: r.labels()},
		Spec:       corev1.NodeSpec{Taints: r.taints()},
	}
	node.Annotations = r.annotations(node)
	r.fill(node, r.a.opts.Clock.Now())
	return node
}

func (r *registrar) labels() map[string]string {
	labels := map[string]string{
		corev1.LabelOSStable:   cmp.Or(r.host.OS, runtime.GOOS),
		corev1.LabelArchStable: cmp.Or(r.host.Arch, runtime.GOARCH),
		corev1.LabelHostname:   r.a.opts.Name,
		LabelSandbox:           r.a.opts.SandboxName,
	}
	maps.Copy(labels, r.a.opts.Labels)
	return labels
}

// fill puts in what this agent knows and keeps what others know.
func (r *registrar) fill(node *corev1.Node, now time.Time) {
	st := &node.Status
	st.Capacity, st.Allocatable = offered(r.a.opts.Capacity, r.host)
	st.Addresses = []corev1.NodeAddress{
		{Type: corev1.NodeInternalIP, Address: r.a.opts.IP},
		{Type: corev1.NodeHostName, Address: r.a.opts.Name},
	}
	st.DaemonEndpoints.KubeletEndpoint.Port = r.a.opts.KubeletPort
	st.NodeInfo = hostInfo(r.a.opts.Version, r.a.opts.SandboxName)
	st.NodeInfo.OperatingSystem, st.NodeInfo.Architecture = cmp.Or(r.host.OS, runtime.GOOS), cmp.Or(r.host.Arch, runtime.GOARCH)
	p := r.a.measure(isTrue(st.Conditions, corev1.NodeDiskPressure))
	set := func(kind corev1.NodeConditionType, on bool, reason, message string) {
		status := corev1.ConditionFalse
		if on {
			status = corev1.ConditionTrue
		}
		setNodeCondition(st, sandbox.Condition{Type: string(kind), Status: status, Reason: reason, Message: message}, now)
	}
	set(corev1.NodeMemoryPressure, p.memory != "", reasonOf(p.memory, "MemoryLow", "MemorySufficient"), p.memory)
	set(corev1.NodeDiskPressure, p.disk != "", reasonOf(p.disk, "DiskLow", "DiskSufficient"), p.disk)
	set(corev1.NodePIDPressure, p.pids != "", reasonOf(p.pids, "ProcessIDsLow", "ProcessIDsSufficient"), p.pids)
	set(corev1.NodeReady, true, "NodeAgentReady", "the Bullpen node agent is running")
	r.fillHostConditions(node, now)
}

func isTrue(conditions []corev1.NodeCondition, kind corev1.NodeConditionType) bool {
	return slices.ContainsFunc(conditions, func(c corev1.NodeCondition) bool { return c.Type == kind && c.Status == corev1.ConditionTrue })
}

func reasonOf(problem, bad, good string) string {
	if problem != "" {
		return bad
	}
	return good
}

func setNodeCondition(st *corev1.NodeStatus, condition sandbox.Condition, at time.Time) {
	now := metav1.NewTime(at).Rfc3339Copy()
	c := corev1.NodeCondition{
		Type: corev1.NodeConditionType(condition.Type), Status: condition.Status, Reason: condition.Reason, Message: condition.Message,
		LastHeartbeatTime: now, LastTransitionTime: now,
	}
	for i, old := range st.Conditions {
		if old.Type == c.Type {
			if old.Status == c.Status {
				c.LastTransitionTime = old.LastTransitionTime
			}
			st.Conditions[i] = c
			return
		}
	}
	st.Conditions = append(st.Conditions, c)
}
