package removal

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/bullpen-ci/bullpen/internal/lib/faultpoint"
	"github.com/bullpen-ci/bullpen/internal/plan/lifecycle"
	"github.com/bullpen-ci/bullpen/internal/runnerpod"
)

// Remover deletes runner pods. Nothing else in the system does (EXCL-2). It is safe for concurrent use.
type Remover struct {
	// Client reads pods past every cache, and writes them.
	Client client.Client
	Fence  lifecycle.Fence
}

// Pod is a runner pod as it was observed, however long ago.
type Pod struct {
	// Ref names it for the fence. Remove says by itself that a pod is lost where its Grant does.
	Ref lifecycle.RunnerRef
	// ResourceVersion is that of the observation.
	ResourceVersion string
	// Ended: no job can run in it.
	Ended bool
	// Grace is what a pod that has ended gets for containers beside the runner's, in seconds; 0 for EndedGrace.
	Grace int64
	// Signs of work that it showed.
	Signs lifecycle.Signs
}

func (p Pod) observed() lifecycle.Observed {
	return lifecycle.Observed{UID: p.Ref.UID, Ended: p.Ended, Signs: p.Signs}
}

// Grant is the fence's word that one pod, by UID, may be removed.
type Grant struct {
	UID, Proof string
	// Lost: the pod can no longer be asked, so the fence is asked for proof.
	Lost bool
	// NodeGone: no kubelet remains to confirm that the pod has stopped.
	NodeGone bool
}

// ProvenGrace is the grace period, in seconds, of a pod whose work is proven over: none of its processes belongs to a job. A stopped
// process, or one that hangs in its clean-up, would otherwise keep the machine for nothing (TEN-5).
const ProvenGrace = 60

// EndedGrace is the grace period, in seconds, of a pod whose runner has ended (POD-3). A kubelet has usually stopped all its containers;
// containers that others have injected receive SIGTERM, and SIGKILL if they do not exit.
const EndedGrace = 2

// Remove deletes the pod as it was observed: the only function in the whole system that deletes a runner pod (EXCL-2). A pod that has not
// ended needs a grant for its UID, and shows no sign of work in the observation (EXCL-4); the fence is asked once more right before. The
// preconditions make the API server refuse if the pod has changed in any way since it was observed, so that no sign of work can have
// appeared unseen. A pod that is already gone is success.
//
// A pod that has not ended keeps its own grace period: an idle runner stops at once, and if all of the above were wrong a job could still
// finish. With a proof that its work is over the grace period is ProvenGrace, also of a pod that is being deleted already. If the node is
// gone there is nothing to wait for, and our finalizer is removed with the pod. The answer is the fence's, when it was asked.
func (d *Remover) Remove(ctx context.Context, p Pod, g Grant) (lifecycle.Answer, error) {
	ref := p.Ref
	ref.Lost = g.Lost || g.Proof != ""
	granted := lifecycle.Grant{UID: g.UID, Proof: g.Proof}
	return lifecycle.Remove(ctx, d.Fence, ref, p.observed(), granted, func(ctx context.Context) error {
		faultpoint.Reached(faultpoint.RemovalGranted)
		uid, version := types.UID(ref.UID), p.ResourceVersion
		options := []client.DeleteOption{client.Preconditions{UID: &uid, ResourceVersion: &version}} // EXCL-2
		if works := p.Signs.Work() != "" && !p.Ended; works || g.NodeGone {
			var err error
			if version, err = d.makeDeletable(ctx, p, works, g); err != nil {
				return client.IgnoreNotFound(err)
			}
		}
		switch {
		case g.NodeGone:
			options = append(options, client.GracePeriodSeconds(0)) // no kubelet will ever say that it has stopped
		case p.Ended:
			options = append(options, client.GracePeriodSeconds(cmp.Or(p.Grace, EndedGrace))) // POD-3
		case g.Proof != "":
			options = append(options, client.GracePeriodSeconds(ProvenGrace)) // TEN-5
		}
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: ref.Namespace, Name: ref.Name}}
		err := d.Client.Delete(ctx, pod, options...)
		if err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("deleting pod %s: %w", ref.Name, err)
		}
		return nil
	})
}

// provenBegin is the prefix of the controller's values of AnnotationAllowDeletion; no other client writes it.
const provenBegin = "proven to the controller: "

// Protect removes the annotation that Remove wrote on a pod that is busy after all and was not deleted: with it, any client may delete the
// pod (EXCL-7). An administrator's annotation stays.
func (d *Remover) Protect(ctx context.Context, ref lifecycle.RunnerRef) error {
	var pod corev1.Pod
	if err := d.Client.Get(ctx, types.NamespacedName{Namespace: ref.Namespace, Name: ref.Name}, &pod); err != nil {
		return client.IgnoreNotFound(fmt.Errorf("reading pod %s: %w", ref.Name, err))
	}
	if string(pod.UID) != ref.UID || !strings.HasPrefix(pod.Annotations[runnerpod.AnnotationAllowDeletion], provenBegin) {
		return nil
	}
	base := pod.DeepCopy()
	delete(pod.Annotations, runnerpod.AnnotationAllowDeletion)
	if err := d.Client.Patch(ctx, &pod, client.MergeFromWithOptions(base, client.MergeFromWithOptimisticLock{})); err != nil {
		return client.IgnoreNotFound(fmt.Errorf("protecting pod %s again: %w", ref.Name, err))
	}
	return nil
}

// makeDeletable prepares a pod whose deletion needs more than an ordinary grant. If its node is gone, it removes the sandbox's finalizer,
// and no other: no kubelet remains to clean up (POOL-7). If the pod shows work, it records on the pod the proof that the work is over:
// without it no client may delete the pod, not even the controller (EXCL-7). It returns the pod's resulting resource version. A pod that
// has changed since it was observed is a conflict.
func (d *Remover) makeDeletable(ctx context.Context, p Pod, works bool, g Grant) (version string, err error) {
	var pod corev1.Pod
	key := types.NamespacedName{Namespace: p.Ref.Namespace, Name: p.Ref.Name}
	if err := d.Client.Get(ctx, key, &pod); err != nil { // the cache holds neither annotations nor most finalizers
		return "", fmt.Errorf("reading pod %s: %w", key.Name, err)
	}
	if string(pod.UID) != p.Ref.UID || pod.ResourceVersion != p.ResourceVersion {
		return "", apierrors.NewConflict(corev1.Resource("pods"), key.Name, errors.New("it has changed since it was observed"))
	}
	base := pod.DeepCopy()
	changed := g.NodeGone && controllerutil.RemoveFinalizer(&pod, runnerpod.FinalizerSandbox)
	if works && g.Proof != "" && pod.Annotations[runnerpod.AnnotationAllowDeletion] == "" {
		metav1.SetMetaDataAnnotation(&pod.ObjectMeta, runnerpod.AnnotationAllowDeletion, provenBegin+g.Proof)
		changed = true
	}
	if !changed {
		return pod.ResourceVersion, nil
	}
	if err := d.Client.Patch(ctx, &pod, client.MergeFromWithOptions(base, client.MergeFromWithOptimisticLock{})); err != nil {
		return "", fmt.Errorf("letting pod %s go: %w", key.Name, err)
	}
	return pod.ResourceVersion, nil
}
