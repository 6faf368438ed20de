package nodes

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	"k8s.io/component-helpers/resource"
	scheduling "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/klog/v2"

	"github.com/bullpen-ci/bullpen/api/v1alpha1"
	"github.com/bullpen-ci/bullpen/internal/runnerpod"
)

// Room is an amount of what runners take of a node.
type Room struct {
	MilliCPU int64
	Memory   int64 // bytes
	Pods     int64
	VMs      int64 // slots for macOS virtual machines (runnerpod.ResourceMacOSVM)
	Disk     int64 // bytes of ephemeral storage
}

// Placement says on which nodes a pool's pods may run, and how much of one each of them takes. It is read from the pod
// that the pool's template makes, so that it is the scheduler's own view. The zero value fits nowhere. It is safe for
// concurrent use.
type Placement struct {
	required    nodeaffinity.RequiredNodeAffinity
	tolerations []corev1.Toleration
	pod         Room
}

// PlacementOf reads a pool's placement. The runtime class is the one that its template names, whose overhead, node selector and tolerations
// are added to each pod; nil when it names none, or the class is not known. It is an error if no pod can be built from the template.
func PlacementOf(pool *v1alpha1.RunnerPool, options runnerpod.Options, class *nodev1.RuntimeClass) (Placement, error) {
	pod, _, err := runnerpod.Build(pool, options, "aaaaaaaa")
	if err != nil {
		return Placement{}, fmt.Errorf("reading where pods of %s may run: %w", pool.Name, err)
	}
	addClass(&pod.Spec, class)
	requests := resource.PodRequests(pod, resource.PodResourcesOptions{})
	one := roomOf(requests)
	one.Pods = 1
	return Placement{
		required:    nodeaffinity.GetRequiredNodeAffinity(pod),
		tolerations: pod.Spec.Tolerations,
		pod:         one,
	}, nil
}

// addClass does what the API server does to a pod that names a runtime class.
func addClass(spec *corev1.PodSpec, class *nodev1.RuntimeClass) {
	if class == nil || spec.RuntimeClassName == nil || *spec.RuntimeClassName != class.Name {
		return
	}
	if class.Overhead != nil {
		spec.Overhead = class.Overhead.PodFixed
	}
	if class.Scheduling == nil {
		return
	}
	spec.Tolerations = append(spec.Tolerations, class.Scheduling.Tolerations...)
	selector := make(map[string]string, len(spec.NodeSelector)+len(class.Scheduling.NodeSelector))
	for _, from := range []map[string]string{spec.NodeSelector, class.Scheduling.NodeSelector} {
		for key, value := range from {
			selector[key] = value
		}
	}
	spec.NodeSelector = selector
}

// Pod is what one runner takes.
func (p Placement) Pod() Room { return p.pod }

// Belongs reports whether the node is of the fleet: the pool's node selector and required node affinity accept it, whatever
// state it is in.
func (p Placement) Belongs(node *corev1.Node) bool {
	if p.pod.Pods == 0 {
		return false
	}
	matches, err := p.required.Match(node) // an affinity that cannot be read accepts nothing, like the scheduler
	return err == nil && matches
}

// daemonTolerations are those that Kubernetes adds to every pod of a DaemonSet.
var daemonTolerations = []corev1.Toleration{
	{Key: corev1.TaintNodeNotReady, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute},
	{Key: corev1.TaintNodeUnreachable, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute},
	{Key: corev1.TaintNodeDiskPressure, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule},
	{Key: corev1.TaintNodeMemoryPressure, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule},
	{Key: corev1.TaintNodePIDPressure, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule},
	{Key: corev1.TaintNodeUnschedulable, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule},
}

// Daemons reports whether a DaemonSet whose pods are placed as the pool's has one on the node, in whatever state it is.
func (p Placement) Daemons(node *corev1.Node) bool {
	if !p.Belongs(node) {
		return false
	}
	tolerations := append(slices.Clone(p.tolerations), daemonTolerations...)
	_, untolerated := untoleratedTaint(node, tolerations)
	return !untolerated
}

func untoleratedTaint(node *corev1.Node, tolerations []corev1.Toleration) (corev1.Taint, bool) {
	return scheduling.FindMatchingUntoleratedTaint(klog.Logger{}, node.Spec.Taints, tolerations, func(t *corev1.Taint) bool {
		return t.Effect == corev1.TaintEffectNoSchedule || t.Effect == corev1.TaintEffectNoExecute
	}, false)
}

// Problem says in a sentence why no runner of the pool can be started on the node now; empty when one can, as far as the node's state
// allows. Requests of other pods on it are not considered.
func (p Placement) Problem(node *corev1.Node) string {
	if leaving := p.Leaving(node); leaving != "" {
		return leaving
	}
	if unwell := Unwell(node); unwell != "" {
		return unwell
	}
	if taint, untolerated := untoleratedTaint(node, p.tolerations); untolerated {
		return fmt.Sprintf("node %s has the taint %s, which the pool does not tolerate", node.Name, taint.ToString())
	}
	if p.pod.Disk > 0 && Allocatable(node).Disk <= 0 { // as the scheduler has it
		return fmt.Sprintf("node %s does not offer ephemeral-storage, which the pool's runners request: enable localStorageCapacityIsolation of its kubelet, or set spec.resources.ephemeralStorage to 0", node.Name)
	}
	if slots := Allocatable(node).VMs; slots < p.pod.VMs { // NODE-9: it has withdrawn itself from scheduling, or is no Mac of ours
		return fmt.Sprintf("node %s has %d usable slots for macOS virtual machines; see its conditions", node.Name, slots)
	}
	return ""
}

// Leaving is the package's Leaving for pods of this placement.
func (p Placement) Leaving(node *corev1.Node) string { return Leaving(node, p.tolerations) }

// Usable reports whether a runner of the pool could be started on the node now: it is of the fleet, and has no Problem.
func (p Placement) Usable(node *corev1.Node) bool { return p.Belongs(node) && p.Problem(node) == "" }

// Seats is how many of the pool's runners an otherwise empty node has room for, whatever state it is in.
func (p Placement) Seats(node *corev1.Node) int { return Seats(Allocatable(node), p.pod) }

// Seats is how many of one a room holds: the least of what CPU, memory, the number of pods, slots for virtual machines and ephemeral
// storage allow. Nothing is held by none: a part that a pod does not take limits nothing, a pod that takes nothing at all is no pod.
func Seats(room, one Room) int {
	if one == (Room{}) {
		return 0
	}
	fit := int64(math.MaxInt32)
	for _, part := range [][2]int64{
		{room.MilliCPU, one.MilliCPU}, {room.Memory, one.Memory}, {room.Pods, one.Pods}, {room.VMs, one.VMs},
		{room.Disk, one.Disk}, // TEN-6
	} {
		if part[1] > 0 {
			fit = min(fit, max(part[0], 0)/part[1])
		}
	}
	return int(fit)
}

// Allocatable is what a node offers to pods.
func Allocatable(node *corev1.Node) Room { return roomOf(node.Status.Allocatable) }

func roomOf(list corev1.ResourceList) Room {
	slots := list[runnerpod.ResourceMacOSVM]
	return Room{
		MilliCPU: list.Cpu().MilliValue(), Memory: list.Memory().Value(), Pods: list.Pods().Value(), VMs: slots.Value(),
		Disk: list.StorageEphemeral().Value(),
	}
}

// unschedulable is the taint that cordoning puts on a node.
var unschedulable = corev1.Taint{Key: corev1.TaintNodeUnschedulable, Effect: corev1.TaintEffectNoSchedule}

// ToleratesCordon reports whether pods with these tolerations are started on cordoned nodes too: cordoning says nothing
// about them.
func ToleratesCordon(tolerations []corev1.Toleration) bool {
	return scheduling.TolerationsTolerateTaint(klog.Logger{}, tolerations, &unschedulable, false)
}

// Leaving says in a sentence that the node is being deleted or shut down, or is cordoned and the tolerations do not allow for that. Empty otherwise.
// Taints are not part of it: see Departure.
func Leaving(node *corev1.Node, tolerations []corev1.Toleration) string {
	return DepartureOf(node, Taints{}).For(tolerations)
}

// pressures are the conditions with which a kubelet admits no pods like ours, or evicts them.
var pressures = map[corev1.NodeConditionType]string{
	corev1.NodeMemoryPressure: "is short of memory",
	corev1.NodeDiskPressure:   "is short of disk space",
	corev1.NodePIDPressure:    "is short of PIDs",
}

// Unwell says in a sentence what is wrong with the node by its own word: it is not ready, or short of something. Empty
// when it is well.
func Unwell(node *corev1.Node) string {
	ready := condition(node, corev1.NodeReady)
	switch {
	case ready == nil:
		return fmt.Sprintf("node %s has not reported ready yet", node.Name)
	case ready.Status != corev1.ConditionTrue:
		return fmt.Sprintf("node %s is not ready (%s)", node.Name, cmp.Or(ready.Reason, "no reason given"))
	}
	for _, c := range node.Status.Conditions {
		if short, known := pressures[c.Type]; known && c.Status == corev1.ConditionTrue {
			return fmt.Sprintf("node %s %s", node.Name, short)
		}
	}
	return ""
}

// Ready reports whether the node is ready by its own word, whatever it is short of.
func Ready(node *corev1.Node) bool {
	ready := condition(node, corev1.NodeReady)
	return ready != nil && ready.Status == corev1.ConditionTrue
}

// shuttingDown is in the message of a kubelet's Ready condition while a graceful shutdown of its machine is in progress. Nothing else shows it:
// pods get no deletionTimestamp, and their status does not change until their containers have exited.
const shuttingDown = "node is shutting down"

// ShuttingDown reports whether the kubelet has announced that its machine is being shut down. The message is no API of Kubernetes: a wrong
// result may cost an idle runner, and never a job (EXCL-8).
func ShuttingDown(node *corev1.Node) bool {
	ready := condition(node, corev1.NodeReady)
	return ready != nil && announcesShutdown(ready)
}

func announcesShutdown(ready *corev1.NodeCondition) bool {
	return ready.Status == corev1.ConditionFalse && ready.Reason == "KubeletNotReady" && strings.Contains(ready.Message, shuttingDown)
}

// UnreadyFor is how long a node must have been silent before its runners that show no work are replaced elsewhere. Their last status may be
// outdated, and they would hold their places for ever; it is as long as Kubernetes leaves pods on such nodes. They are replaced a few at a
// time, because the fault may be the control plane's.
const UnreadyFor = 5 * time.Minute

// UnreadySince is when the node became not ready, as it reported or because its heartbeats stopped; zero for a node that is ready, or has
// never reported.
func UnreadySince(node *corev1.Node) time.Time {
	if ready := condition(node, corev1.NodeReady); ready != nil && ready.Status != corev1.ConditionTrue {
		return ready.LastTransitionTime.Time
	}
	return time.Time{}
}

func condition(node *corev1.Node, kind corev1.NodeConditionType) *corev1.NodeCondition {
	for i := range node.Status.Conditions {
		if node.Status.Conditions[i].Type == kind {
			return &node.Status.Conditions[i]
		}
	}
	return nil
}
