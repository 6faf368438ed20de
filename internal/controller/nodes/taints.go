package nodes

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	scheduling "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/klog/v2"
)

// DefaultDisruptionTaints are the taints by which widely used tools say that they are about to take a node away, for ParseTaints. Only the
// effects NoSchedule and NoExecute count, see Taints.
//
// Left out are taints that announce no removal: those of nodes that are silent, short of something or not set up yet (other
// node.kubernetes.io/…), and those of nodes that may be taken some time, which have the effect PreferNoSchedule
// (DeletionCandidateOfClusterAutoscaler, kured's, kops', Cluster API's outdated revision).
func DefaultDisruptionTaints() []string {
	return []string{
		"karpenter.sh/disrupted",                        // Karpenter, v1
		"karpenter.sh/disruption",                       // Karpenter, v1beta1
		"ToBeDeletedByClusterAutoscaler",                // the cluster autoscaler
		"aws-node-termination-handler/*",                // spot interruptions, maintenance and scale-in at AWS
		"cloud.google.com/impending-node-termination",   // GKE: a spot or preempted machine has seconds left
		"remediator.aks.microsoft.com/unschedulable",    // AKS: a node under repair, or that Azure is about to remove
		"remediator.kubernetes.azure.com/unschedulable", // its newer name
		"node.cloudprovider.kubernetes.io/shutdown",     // a cloud's controller: the machine is shut down
		"node.kubernetes.io/out-of-service",             // an administrator: the machine is off
		"autoscaling.cast.ai/draining",                  // CAST AI
		"medik8s.io/*",                                  // the node maintenance and remediation operators
		"kubevirt.io/drain",                             // KubeVirt's taint for nodes that are drained
	}
}

// Taints are the taints by which other tools say that they take a node away. Idle runners leave a node that has one of them, as they leave
// a cordoned one.
//
// A taint that new runners may be placed under (PreferNoSchedule) is none of them: a runner that left would be replaced on the same node,
// again and again. The zero value is no taints. It does not change, and may be shared.
type Taints struct{ patterns []taintPattern }

// taintPattern is a key, or what a key begins with, and a value unless any will do.
type taintPattern struct {
	key, value      string
	prefix, valueed bool
}

// ParseTaints reads taints in the form KEY or KEY=VALUE. A key that ends in * stands for all with that prefix.
func ParseTaints(texts []string) (Taints, error) {
	var t Taints
	for _, text := range texts {
		pattern, err := parseTaint(strings.TrimSpace(text))
		if err != nil {
			return Taints{}, err
		}
		t.patterns = append(t.patterns, pattern)
	}
	return t, nil
}

// DefaultTaints are those of DefaultDisruptionTaints.
func DefaultTaints() Taints {
	t, err := ParseTaints(DefaultDisruptionTaints())
	if err != nil {
		panic(err) // a test reads them
	}
	return t
}

func parseTaint(text string) (taintPattern, error) {
	var p taintPattern
	p.key, p.value, p.valueed = strings.Cut(text, "=")
	if p.key, p.prefix = strings.CutSuffix(p.key, "*"); p.prefix && len(p.key) < 3 {
		return p, fmt.Errorf("the taint %q is too broad: write more of the key before the *", text)
	}
	if strings.Contains(text, ":") {
		return p, fmt.Errorf("the taint %q names an effect: leave it out, NoSchedule and NoExecute always count and PreferNoSchedule never does", text)
	}
	key := p.key
	if p.prefix {
		key = strings.TrimSuffix(key, "/") // a prefix may end at the slash
	}
	if problems := validation.IsQualifiedName(key); len(problems) > 0 {
		return p, fmt.Errorf("the taint %q has no key as taints have: %s", text, problems[0])
	}
	if problems := validation.IsValidLabelValue(p.value); len(problems) > 0 {
		return p, fmt.Errorf("the taint %q has no value as taints have: %s", text, problems[0])
	}
	return p, nil
}

// Announce reports whether the taint announces the removal of its node.
func (t Taints) Announce(taint *corev1.Taint) bool {
	if taint.Effect != corev1.TaintEffectNoSchedule && taint.Effect != corev1.TaintEffectNoExecute {
		return false
	}
	return slices.ContainsFunc(t.patterns, func(p taintPattern) bool {
		if p.valueed && p.value != taint.Value {
			return false
		}
		return p.key == taint.Key || p.prefix && strings.HasPrefix(taint.Key, p.key)
	})
}

// Departure is why runners should leave a node. It is comparable; the zero value is a node that stays.
type Departure struct {
	node              string
	deleted, cordoned bool
	// shutdown: its kubelet has announced that the machine is being shut down.
	shutdown bool
	// taints are those that announce the removal, as kubectl writes them, one a line.
	taints string
}

// DepartureOf returns whether, and how, a node is being removed.
func DepartureOf(node *corev1.Node, announcing Taints) Departure {
	var taints []string
	for i := range node.Spec.Taints {
		if announcing.Announce(&node.Spec.Taints[i]) {
			taints = append(taints, node.Spec.Taints[i].ToString())
		}
	}
	d := Departure{
		deleted: node.DeletionTimestamp != nil, cordoned: node.Spec.Unschedulable, shutdown: ShuttingDown(node), taints: strings.Join(taints, "\n"),
	}
	if d != (Departure{}) {
		d.node = node.Name
	}
	return d
}

// ShutDown reports whether the node's kubelet has announced that the machine is being shut down.
func (d Departure) ShutDown() bool { return d.shutdown }

// For says in a sentence why a runner with these tolerations leaves the node; empty when it does not. A runner that tolerates the node's
// cordon or taint stays until the node itself is deleted or shut down: its replacement would be placed there again.
func (d Departure) For(tolerations []corev1.Toleration) string {
	switch {
	case d == (Departure{}):
		return ""
	case d.deleted:
		return fmt.Sprintf("node %s is being deleted", d.node)
	case d.shutdown:
		return fmt.Sprintf("node %s is shutting down", d.node)
	case d.cordoned && !ToleratesCordon(tolerations):
		return fmt.Sprintf("node %s is cordoned", d.node)
	case d.taints == "":
		return ""
	}
	for text := range strings.SplitSeq(d.taints, "\n") {
		if taint := readTaint(text); !scheduling.TolerationsTolerateTaint(klog.Logger{}, tolerations, &taint, false) {
			return fmt.Sprintf("node %s has the taint %s and is being removed", d.node, text)
		}
	}
	return ""
}

// readTaint reads what Taint.ToString has written.
func readTaint(text string) corev1.Taint {
	text, effect, _ := strings.Cut(text, ":")
	key, value, _ := strings.Cut(text, "=")
	return corev1.Taint{Key: key, Value: value, Effect: corev1.TaintEffect(effect)}
}

// MatterForDepartures keeps of a pod's tolerations those that could make a Departure mean nothing, so that a cache need not hold the others.
// Nearly all pods have none.
func MatterForDepartures(tolerations []corev1.Toleration) []corev1.Toleration {
	var kept []corev1.Toleration
	for _, t := range tolerations {
		switch t.Key {
		case corev1.TaintNodeNotReady, corev1.TaintNodeUnreachable, corev1.TaintNodeMemoryPressure, corev1.TaintNodeDiskPressure,
			corev1.TaintNodePIDPressure, corev1.TaintNodeNetworkUnavailable:
		default:
			kept = append(kept, t)
		}
	}
	return kept
}
