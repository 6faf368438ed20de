package machost

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bullpen-ci/bullpen/api/v1alpha1"
	"github.com/bullpen-ci/bullpen/internal/controller/nodes"
	"github.com/bullpen-ci/bullpen/internal/runnerpod"
)

// seen is an object as it was last written, or as the cache has it, whichever is later: what this controller has just done must
// not be decided again because the cache lags.
type seen[T client.Object] map[types.NamespacedName]T

func (s seen[T]) wrote(object T) { s[client.ObjectKeyFromObject(object)] = object }

func (s seen[T]) later(cached T) T {
	key := client.ObjectKeyFromObject(cached)
	written, has := s[key]
	if !has {
		return cached
	}
	if written.GetUID() == cached.GetUID() && version(written) > version(cached) {
		return written
	}
	delete(s, key)
	return cached
}

// version is an object's resource version as a number, which versions of one object can be ordered by.
func version(object client.Object) uint64 {
	n, err := strconv.ParseUint(object.GetResourceVersion(), 10, 64)
	if err != nil {
		return 0 // then the cache counts
	}
	return n
}

// mark names the MacHost that has cordoned a Node: its namespace and name. It is set and removed in the same write as the cordon.
func mark(key types.NamespacedName) string { return key.String() }

// listNodes are all Nodes, by name, from the cache: a Node may keep the annotation of a MacHost that no longer names it.
func (r *Reconciler) listNodes(ctx context.Context) (map[string]*corev1.Node, error) {
	var list corev1.NodeList
	if err := r.client.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("listing nodes: %w", err)
	}
	found := make(map[string]*corev1.Node, len(list.Items))
	for i := range list.Items {
		node := r.nodes.later(&list.Items[i])
		found[node.Name] = node
	}
	return found, nil
}

// viewNode is what matters of a host's Node.
func (r *Reconciler) viewNode(ctx context.Context, host *v1alpha1.MacHost, node *corev1.Node, wantsNode bool) (nodeView, error) {
	view := nodeView{Wanted: wantsNode}
	if node == nil {
		return view, nil
	}
	view.Exists, view.Unschedulable = true, node.Spec.Unschedulable
	view.Ready = nodes.Ready(node)
	view.Mine = node.Annotations[nodes.AnnotationCordonedBy] == mark(client.ObjectKeyFromObject(host))
	if at, err := time.Parse(time.RFC3339, node.Annotations[nodes.AnnotationCordonedAt]); err == nil {
		view.CordonedAt = at
	}
	if !view.Unschedulable {
		return view, nil // its runners need not be counted
	}
	var pods corev1.PodList
	err := r.cache.List(ctx, &pods, client.InNamespace(host.Namespace), client.MatchingLabels{runnerpod.LabelRunner: "true"}, client.UnsafeDisableDeepCopy)
	if err != nil {
		return view, fmt.Errorf("listing the runners on %s: %w", node.Name, err)
	}
	for i := range pods.Items {
		pod := &pods.Items[i]
		if pod.Spec.NodeName == node.Name && pod.Status.Phase != corev1.PodSucceeded && pod.Status.Phase != corev1.PodFailed {
			view.Runners++
		}
	}
	return view, nil
}

// formerNode is the Node in service under which the Mac is still registered, if another MacHost once gave it another name: a Node that belongs to
// no MacHost, with the Mac's address or spec.nodeIP. A Mac has one node agent, so there is none while the Mac's own Node is ready.
func (r *Reconciler) formerNode(ctx context.Context, host *v1alpha1.MacHost, hosts []v1alpha1.MacHost, all map[string]*corev1.Node) (string, error) {
	if own := all[nodeNameOf(host)]; own != nil && nodes.Ready(own) {
		return "", nil
	}
	label := addressLabel(host)
	for _, name := range slices.Sorted(maps.Keys(all)) {
		node := all[name]
		same := node.Labels[v1alpha1.LabelMacAddress] == label || hasAddress(node, host.Spec.NodeIP)
		if !same || slices.ContainsFunc(hosts, func(h v1alpha1.MacHost) bool { return nodeNameOf(&h) == name }) {
			continue
		}
		view, err := r.viewNode(ctx, host, node, true)
		if err != nil {
			return "", err
		}
		if view.inService() {
			return name, nil
		}
	}
	return "", nil
}

func hasAddress(node *corev1.Node, address string) bool {
	return address != "" && slices.ContainsFunc(node.Status.Addresses, func(a corev1.NodeAddress) bool {
		return a.Type == corev1.NodeInternalIP && a.Address == address
	})
}

// setCordon cordons a Node for a host, or reverts that. The resource version must match: a concurrent change is observed first.
func (r *Reconciler) setCordon(ctx context.Context, key types.NamespacedName, node *corev1.Node, on bool) error {
	annotations := map[string]any{nodes.AnnotationCordonedBy: nil, nodes.AnnotationCordonedAt: nil}
	if on {
		annotations = map[string]any{nodes.AnnotationCordonedBy: mark(key), nodes.AnnotationCordonedAt: r.options.Now().UTC().Format(time.RFC3339)}
	}
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"resourceVersion": node.ResourceVersion, "annotations": annotations},
		"spec":     map[string]any{"unschedulable": on},
	})
	if err != nil {
		return fmt.Errorf("encoding the cordon of %s: %w", node.Name, err)
	}
	changed := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node.Name}}
	err = r.client.Patch(ctx, changed, client.RawPatch(types.MergePatchType, patch))
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return errLookAgain
	}
	if err != nil {
		return fmt.Errorf("cordoning node %s (%t): %w", node.Name, on, err)
	}
	trimmed, err := nodes.TrimNode(changed)
	if err != nil {
		return err
	}
	r.nodes.wrote(trimmed.(*corev1.Node))
	return nil
}

// turnOf is the other host of the pool that is drained, if any: by the marks on Nodes, of which every controller reads the same.
func turnOf(host *v1alpha1.MacHost, all map[string]*corev1.Node, hosts []v1alpha1.MacHost) string {
	for i := range hosts {
		other := &hosts[i]
		if other.Name == host.Name || other.Spec.Pool != host.Spec.Pool {
			continue
		}
		if node := all[nodeNameOf(other)]; node != nil && node.Annotations[nodes.AnnotationCordonedBy] == mark(client.ObjectKeyFromObject(other)) {
			return other.Name
		}
	}
	return ""
}

// conflictOf says which older host has the same Node or the same address; two would undo each other's work.
func conflictOf(host *v1alpha1.MacHost, hosts []v1alpha1.MacHost) *problem {
	for i := range hosts {
		other := &hosts[i]
		if other.UID == host.UID || !older(other, host) {
			continue
		}
		if nodeNameOf(other) == nodeNameOf(host) {
			return &problem{StateConflict, fmt.Sprintf("MacHost %s already uses the Node %s: set another nodeName, or delete one of them", other.Name, nodeNameOf(host))}
		}
		if other.Spec.Address == host.Spec.Address && other.Spec.Port == host.Spec.Port {
			return &problem{StateConflict, fmt.Sprintf("MacHost %s already uses the address %s: set another address, or delete one of them", other.Name, host.Spec.Address)}
		}
	}
	return nil
}

func older(a, b *v1alpha1.MacHost) bool {
	if !a.CreationTimestamp.Equal(&b.CreationTimestamp) {
		return a.CreationTimestamp.Before(&b.CreationTimestamp)
	}
	return a.Name < b.Name
}
