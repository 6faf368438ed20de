package nodes

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/bullpen-ci/bullpen/internal/runnerpod"
)

// Annotations of a Node that the controller has cordoned: for which MacHost (namespace/name), and when (RFC 3339). Only a Node with the
// first may be uncordoned: the controller leaves a Node alone that another client has cordoned.
const (
	AnnotationCordonedBy = "bullpen.dev/cordoned-by"
	AnnotationCordonedAt = "bullpen.dev/cordoned-at"
)

// marks are those of the two that the node has.
func marks(node *corev1.Node) map[string]string {
	by, marked := node.Annotations[AnnotationCordonedBy]
	if !marked {
		return nil
	}
	return map[string]string{AnnotationCordonedBy: by, AnnotationCordonedAt: node.Annotations[AnnotationCordonedAt]}
}

// TrimNode removes the fields of a node that Bullpen does not read, before the node enters a cache (P8): images, addresses of other nodes than Macs, managed fields,
// and heartbeat times, so that a heartbeat is no change. Other objects are returned unchanged.
func TrimNode(object any) (any, error) {
	node, ok := object.(*corev1.Node)
	if !ok {
		return object, nil
	}
	offered := corev1.ResourceList{}
	for _, name := range []corev1.ResourceName{
		corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourcePods, corev1.ResourceEphemeralStorage, runnerpod.ResourceMacOSVM,
	} {
		if quantity, known := node.Status.Allocatable[name]; known {
			offered[name] = quantity
		}
	}
	var conditions []corev1.NodeCondition
	for _, c := range node.Status.Conditions {
		if _, pressure := pressures[c.Type]; pressure || c.Type == corev1.NodeReady {
			kept := corev1.NodeCondition{Type: c.Type, Status: c.Status, Reason: c.Reason, LastTransitionTime: c.LastTransitionTime}
			if c.Type == corev1.NodeReady && announcesShutdown(&c) {
				kept.Message = shuttingDown // the rest of the message may change all the time
			}
			conditions = append(conditions, kept)
		}
	}
	var addresses []corev1.NodeAddress
	if node.Labels[corev1.LabelOSStable] == "darwin" {
		addresses = node.Status.Addresses
	}
	return &corev1.Node{
		TypeMeta: node.TypeMeta,
		ObjectMeta: metav1.ObjectMeta{
			Name: node.Name, UID: node.UID, ResourceVersion: node.ResourceVersion, Labels: node.Labels, Annotations: marks(node),
			CreationTimestamp: node.CreationTimestamp, DeletionTimestamp: node.DeletionTimestamp,
		},
		Spec:   corev1.NodeSpec{Unschedulable: node.Spec.Unschedulable, Taints: node.Spec.Taints},
		Status: corev1.NodeStatus{Allocatable: offered, Conditions: conditions, Addresses: addresses},
	}, nil
}

// Same reports whether two trimmed observations of one node have no difference that Bullpen uses.
func Same(a, b *corev1.Node) bool {
	return a.Name == b.Name && a.UID == b.UID && a.DeletionTimestamp.Equal(b.DeletionTimestamp) &&
		equality.Semantic.DeepEqual(a.Labels, b.Labels) &&
		equality.Semantic.DeepEqual(a.Spec, b.Spec) && equality.Semantic.DeepEqual(a.Status, b.Status)
}
