package node

import (
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/bullpen-ci/bullpen/internal/node/sandbox"
	"github.com/bullpen-ci/bullpen/internal/runnerpod"
)

// AnnotationConditions names, on a node, the conditions that its back end has set. An agent that is restarted with another back end, or
// another version of it, removes those that are no longer reported, and no conditions that other clients have set.
const AnnotationConditions = "bullpen.dev/sandbox-conditions"

// hostLook is how often the back end is asked whether something has changed.
const hostLook = time.Second

// kubeletConditions are those that the node agent keeps itself, for every back end.
var kubeletConditions = []string{
	string(corev1.NodeReady), string(corev1.NodeMemoryPressure), string(corev1.NodeDiskPressure), string(corev1.NodePIDPressure),
}

// hostState is what the back end says of the node; nothing when it says nothing. Whatever it names that is the agent's own is left
// out: a back end cannot make a node ready.
func (a *Agent) hostState() sandbox.HostState {
	reporter, ok := a.opts.Sandbox.(sandbox.HostReporter)
	if !ok {
		return sandbox.HostState{}
	}
	host := reporter.Host()
	host.Conditions = slices.DeleteFunc(slices.Clone(host.Conditions), func(c sandbox.Condition) bool {
		return slices.Contains(kubeletConditions, c.Type)
	})
	return host
}

// hostTicks says when to ask the back end; never, where it has nothing to say.
func (r *registrar) hostTicks() (<-chan time.Time, func()) {
	if _, ok := r.a.opts.Sandbox.(sandbox.HostReporter); !ok {
		return nil, func() {}
	}
	tick := r.a.opts.Clock.NewTicker(hostLook)
	return tick.C(), tick.Stop
}

// offered is a node's capacity and what of it can be used.
func offered(machine corev1.ResourceList, host sandbox.HostState) (capacity, allocatable corev1.ResourceList) {
	capacity = machine.DeepCopy()
	maps.Copy(capacity, host.Capacity.DeepCopy())
	allocatable = capacity.DeepCopy()
	for name, usable := range host.Allocatable {
		if all, ok := capacity[name]; ok && usable.Cmp(all) < 0 {
			allocatable[name] = usable.DeepCopy()
		}
	}
	return capacity, allocatable
}

// taints are those to register with. Pods that say nothing of an operating system mean Linux.
func (r *registrar) taints() []corev1.Taint {
	taints := r.a.opts.Taints
	if r.host.OS != "darwin" || slices.ContainsFunc(taints, func(t corev1.Taint) bool { return t.Key == runnerpod.TaintMacOS }) {
		return taints
	}
	return append(slices.Clone(taints), corev1.Taint{Key: runnerpod.TaintMacOS, Effect: corev1.TaintEffectNoSchedule})
}

// annotations are the node's, with the conditions that are the back end's, or were and are still there.
func (r *registrar) annotations(node *corev1.Node) map[string]string {
	var owned []string
	for _, c := range r.host.Conditions {
		owned = append(owned, c.Type)
	}
	for _, kind := range ownedConditions(node) {
		if slices.ContainsFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool { return string(c.Type) == kind }) {
			owned = append(owned, kind)
		}
	}
	slices.Sort(owned)
	annotations := maps.Clone(node.Annotations)
	if len(owned) == 0 {
		delete(annotations, AnnotationConditions)
		return annotations
	}
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[AnnotationConditions] = strings.Join(slices.Compact(owned), ",")
	return annotations
}

func ownedConditions(node *corev1.Node) []string {
	return strings.FieldsFunc(node.Annotations[AnnotationConditions], func(r rune) bool { return r == ',' })
}

// fillHostConditions sets the back end's conditions, and removes those that it no longer reports.
func (r *registrar) fillHostConditions(node *corev1.Node, now time.Time) {
	st := &node.Status
	reported := map[string]bool{}
	for _, c := range r.host.Conditions {
		reported[c.Type] = true
		setNodeCondition(st, c, now)
	}
	owned := ownedConditions(node)
	st.Conditions = slices.DeleteFunc(st.Conditions, func(c corev1.NodeCondition) bool {
		kind := string(c.Type)
		return slices.Contains(owned, kind) && !reported[kind] && !slices.Contains(kubeletConditions, kind)
	})
}
