package node

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"runtime"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/client-go/kubernetes"
)

// heartbeat is how often a node's status is written when nothing in it changes: the lease says that the node lives.
const heartbeat = time.Minute

// registrar keeps the Node object.
type registrar struct {
	a        *Agent
	kube     kubernetes.Interface
	redial   func()
	reported time.Time
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
	for {
		if err := r.ensure(ctx); err != nil && ctx.Err() == nil {
			r.a.opts.Log.Warn("reporting the node failed and will be tried again", "error", err)
			if !answered(err) {
				r.redial()
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C():
		case <-r.a.nodeKick: // NODE-8: somebody deleted the Node object
		}
	}
}

// ensure registers the node when it is not there, and brings labels and status up to date.
func (r *registrar) ensure(ctx context.Context) error {
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
	if !equality.Semantic.DeepEqual(want.Labels, node.Labels) {
		if err := r.patch(ctx, node, want); err != nil {
			return fmt.Errorf("labelling the node: %w", err)
		}
	}
	return r.report(ctx, node)
}

// report writes the status when something in it has changed, and now and then anyway.
func (r *registrar) report(ctx context.Context, node *corev1.Node) error {
	now := r.a.opts.Clock.Now()
	want := node.DeepCopy()
	r.fill(&want.Status, now)
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
		Spec:       corev1.NodeSpec{Taints: r.a.opts.Taints},
	}
	r.fill(&node.Status, r.a.opts.Clock.Now())
	return node
}

func (r *registrar) labels() map[string]string {
	labels := map[string]string{
		corev1.LabelOSStable:   runtime.GOOS,
		corev1.LabelArchStable: runtime.GOARCH,
		corev1.LabelHostname:   r.a.opts.Name,
		LabelSandbox:           r.a.opts.SandboxName,
	}
	maps.Copy(labels, r.a.opts.Labels)
	return labels
}

// fill puts in what this agent knows and keeps what others know.
func (r *registrar) fill(st *corev1.NodeStatus, now time.Time) {
	st.Capacity = r.a.opts.Capacity.DeepCopy()
	st.Allocatable = r.a.opts.Capacity.DeepCopy()
	st.Addresses = []corev1.NodeAddress{
		{Type: corev1.NodeInternalIP, Address: r.a.opts.IP},
		{Type: corev1.NodeHostName, Address: r.a.opts.Name},
	}
	st.NodeInfo = hostInfo(r.a.opts.Version, r.a.opts.SandboxName)
	p := measure(r.a.opts.StateDir)
	set := func(kind corev1.NodeConditionType, on bool, reason, message string) {
		setNodeCondition(st, kind, on, reason, message, metav1.NewTime(now).Rfc3339Copy())
	}
	set(corev1.NodeMemoryPressure, p.memory != "", reasonOf(p.memory, "MemoryLow", "MemorySufficient"), p.memory)
	set(corev1.NodeDiskPressure, p.disk != "", reasonOf(p.disk, "DiskLow", "DiskSufficient"), p.disk)
	set(corev1.NodePIDPressure, p.pids != "", reasonOf(p.pids, "ProcessIDsLow", "ProcessIDsSufficient"), p.pids)
	set(corev1.NodeReady, true, "NodeAgentReady", "the Bullpen node agent runs")
}

func reasonOf(problem, bad, good string) string {
	if problem != "" {
		return bad
	}
	return good
}

func setNodeCondition(st *corev1.NodeStatus, kind corev1.NodeConditionType, on bool, reason, message string, now metav1.Time) {
	c := corev1.NodeCondition{
		Type: kind, Status: corev1.ConditionFalse, Reason: reason, Message: message, LastHeartbeatTime: now, LastTransitionTime: now,
	}
	if on {
		c.Status = corev1.ConditionTrue
	}
	for i, old := range st.Conditions {
		if old.Type == kind {
			if old.Status == c.Status {
				c.LastTransitionTime = old.LastTransitionTime
			}
			st.Conditions[i] = c
			return
		}
	}
	st.Conditions = append(st.Conditions, c)
}
