package machost

import (
	"context"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/bullpen-ci/bullpen/api/v1alpha1"
	"github.com/bullpen-ci/bullpen/internal/controller/nodes"
)

type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]

const wakeDelay = 200 * time.Millisecond

func wakeEvents() handler.TypedEventHandler[types.NamespacedName, reconcile.Request] {
	return handler.TypedFuncs[types.NamespacedName, reconcile.Request]{
		GenericFunc: func(_ context.Context, e event.TypedGenericEvent[types.NamespacedName], q queue) {
			q.AddAfter(reconcile.Request{NamespacedName: e.Object}, wakeDelay) // steps come in quick succession, and each look may write
		},
	}
}

// farewells say, when a MacHost is deleted, what stays.
func (r *Reconciler) farewells() handler.TypedEventHandler[*v1alpha1.MacHost, reconcile.Request] {
	return handler.TypedFuncs[*v1alpha1.MacHost, reconcile.Request]{
		DeleteFunc: func(_ context.Context, e event.TypedDeleteEvent[*v1alpha1.MacHost], _ queue) { r.events.left(e.Object) },
	}
}

// configEvents enqueue the hosts whose configuration has changed.
func (r *Reconciler) configEvents() handler.TypedEventHandler[*corev1.ConfigMap, reconcile.Request] {
	seen := func(ctx context.Context, config *corev1.ConfigMap, q queue) {
		var hosts v1alpha1.MacHostList
		if err := r.client.List(ctx, &hosts, client.InNamespace(config.Namespace)); err != nil {
			r.options.Log.Warn("finding the MacHosts of a ConfigMap failed; they are reconciled within a minute", "configmap", config.Name, "error", err)
			return
		}
		for i := range hosts.Items {
			if ref := hosts.Items[i].Spec.ConfigRef; ref != nil && ref.Name == config.Name {
				q.Add(reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&hosts.Items[i])})
			}
		}
	}
	return handler.TypedFuncs[*corev1.ConfigMap, reconcile.Request]{
		CreateFunc: func(ctx context.Context, e event.TypedCreateEvent[*corev1.ConfigMap], q queue) {
			seen(ctx, e.Object, q)
		},
		UpdateFunc: func(ctx context.Context, e event.TypedUpdateEvent[*corev1.ConfigMap], q queue) {
			seen(ctx, e.ObjectNew, q)
		},
		DeleteFunc: func(ctx context.Context, e event.TypedDeleteEvent[*corev1.ConfigMap], q queue) {
			seen(ctx, e.Object, q)
		},
	}
}

// nodeEvents enqueue a host whose Node is created, deleted or changed; and the host that an annotation of the Node names, which may be
// gone. A node that is no Mac costs nothing.
func (r *Reconciler) nodeEvents() handler.TypedEventHandler[*corev1.Node, reconcile.Request] {
	seen := func(ctx context.Context, node *corev1.Node, q queue) {
		if by, marked := node.Annotations[nodes.AnnotationCordonedBy]; marked {
			if namespace, name, _ := strings.Cut(by, "/"); namespace == r.options.Namespace { // another namespace's are another release's
				q.Add(reconcile.Request{NamespacedName: types.NamespacedName{Namespace: namespace, Name: name}})
			}
		}
		var hosts v1alpha1.MacHostList
		if err := r.client.List(ctx, &hosts, client.UnsafeDisableDeepCopy); err != nil {
			r.options.Log.Warn("finding the MacHost of a Node failed; it is reconciled within a minute", "node", node.Name, "error", err)
			return
		}
		for i := range hosts.Items {
			if nodeNameOf(&hosts.Items[i]) == node.Name {
				q.Add(reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&hosts.Items[i])})
			}
		}
	}
	return handler.TypedFuncs[*corev1.Node, reconcile.Request]{
		CreateFunc: func(ctx context.Context, e event.TypedCreateEvent[*corev1.Node], q queue) { seen(ctx, e.Object, q) },
		UpdateFunc: func(ctx context.Context, e event.TypedUpdateEvent[*corev1.Node], q queue) {
			if !nodes.Same(e.ObjectOld, e.ObjectNew) || e.ObjectOld.Annotations[nodes.AnnotationCordonedBy] != e.ObjectNew.Annotations[nodes.AnnotationCordonedBy] {
				seen(ctx, e.ObjectNew, q)
			}
		},
		DeleteFunc: func(ctx context.Context, e event.TypedDeleteEvent[*corev1.Node], q queue) { seen(ctx, e.Object, q) },
	}
}

func markedBy(node *corev1.Node, key types.NamespacedName) bool {
	return node.Annotations[nodes.AnnotationCordonedBy] == mark(key)
}
