package runnerdeployment

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/bullpen-ci/bullpen/api/v1alpha1"
	"github.com/bullpen-ci/bullpen/internal/controller/queues"
	"github.com/bullpen-ci/bullpen/internal/controller/selfregistering/runnerowner"
	"github.com/bullpen-ci/bullpen/internal/controller/selfregistering/runnerreplicaset"
	"github.com/bullpen-ci/bullpen/internal/runnerpod"
)

// Name of the controller, in logs and Events.
const Name = "runnerdeployment"

// Options configures the controller.
type Options struct {
	// Pod is what every runner pod has in common. Required.
	Pod runnerpod.Options
	// Log takes what no Event or condition says. Required.
	Log *slog.Logger
	// Now is the clock; the default is time.Now.
	Now func() time.Time
}

// Reconciler reconciles RunnerDeployments.
type Reconciler struct {
	options Options
	client  client.Client
	reader  client.Reader // past the cache
	events  events.EventRecorder
}

// Setup adds the controller to the manager, whose cache must hold RunnerDeployments and RunnerReplicaSets.
func Setup(mgr manager.Manager, options Options) error {
	if options.Log == nil {
		return errors.New("runnerdeployment: Log is required")
	}
	if options.Now == nil {
		options.Now = time.Now
	}
	r := &Reconciler{options: options, client: mgr.GetClient(), reader: mgr.GetAPIReader(), events: mgr.GetEventRecorder(Name)}
	err := builder.ControllerManagedBy(mgr).Named(Name).
		For(&v1alpha1.RunnerDeployment{}).Owns(&v1alpha1.RunnerReplicaSet{}).
		WithOptions(queues.Options(4)).
		Complete(r)
	if err != nil {
		return fmt.Errorf("building the controller of %s: %w", Name, err)
	}
	return nil
}

// Reconcile brings one deployment closer to its spec: it reads its sets, plans the rollout, and carries that out.
func (r *Reconciler) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	var d v1alpha1.RunnerDeployment
	if err := r.client.Get(ctx, request.NamespacedName, &d); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	if d.DeletionTimestamp == nil && !controllerutil.ContainsFinalizer(&d, runnerpod.FinalizerRegistration) {
		if err := r.patchFinalizer(ctx, &d, controllerutil.AddFinalizer); err != nil {
			return reconcile.Result{}, client.IgnoreNotFound(err)
		}
	}
	sets, err := r.sets(ctx, &d)
	if err != nil {
		return reconcile.Result{}, err
	}
	hash, err := runnerreplicaset.TemplateHash(&d.Spec.Template, r.options.Pod)
	if err != nil {
		return reconcile.Result{}, err
	}
	wish := wishOf(&d, hash, existing(sets))
	invalid := runnerreplicaset.Check(d.Namespace, d.Name, &d.Spec.Template, r.options.Pod)
	var plan Rollout
	if invalid == nil || wish.Terminating { // a template that nothing can be built from is no reason to touch what serves
		plan = PlanRollout(wish, views(sets))
	}
	if err := r.act(ctx, &d, sets, wish, plan); err != nil {
		return reconcile.Result{}, err
	}
	if plan.Done {
		return reconcile.Result{}, r.release(ctx, &d)
	}
	return reconcile.Result{}, r.writeStatus(ctx, &d, statusOf(&d, wish, sets, invalid, r.options.Now()))
}

// wishOf reads what the deployment wants.
func wishOf(d *v1alpha1.RunnerDeployment, hash string, existing int) Wish {
	wish := Wish{
		Hash: hash, Terminating: d.DeletionTimestamp != nil,
		Desired: runnerowner.Desired(d.Spec.Replicas, d.Spec.Autoscaling, d.Status.Autoscaling, existing),
	}
	wish.MaxSurge, wish.MaxUnavailable = runnerowner.Limits(d.Spec.Rollout, wish.Desired)
	return wish
}

// sets are those that the deployment owns: by owner reference, and not by a label, which any user may remove (F 2.8).
func (r *Reconciler) sets(ctx context.Context, d *v1alpha1.RunnerDeployment) ([]v1alpha1.RunnerReplicaSet, error) {
	var list v1alpha1.RunnerReplicaSetList
	if err := r.client.List(ctx, &list, client.InNamespace(d.Namespace)); err != nil {
		return nil, fmt.Errorf("listing the sets of %s: %w", d.Name, err)
	}
	return ownedBy(d, list.Items), nil
}

func ownedBy(d *v1alpha1.RunnerDeployment, sets []v1alpha1.RunnerReplicaSet) []v1alpha1.RunnerReplicaSet {
	var owned []v1alpha1.RunnerReplicaSet
	for i := range sets {
		if metav1.IsControlledBy(&sets[i], d) {
			owned = append(owned, sets[i])
		}
	}
	slices.SortFunc(owned, func(a, b v1alpha1.RunnerReplicaSet) int {
		return a.CreationTimestamp.Compare(b.CreationTimestamp.Time)
	})
	return owned
}

func existing(sets []v1alpha1.RunnerReplicaSet) int {
	n := 0
	for i := range sets {
		n += int(sets[i].Status.Replicas)
	}
	return n
}

func views(sets []v1alpha1.RunnerReplicaSet) []Set {
	seen := make([]Set, 0, len(sets))
	for i := range sets {
		s := &sets[i]
		seen = append(seen, Set{
			Name: s.Name, Hash: s.Labels[runnerpod.LabelTemplateHash], Created: s.CreationTimestamp.Time, Deleting: s.DeletionTimestamp != nil,
			Replicas: int(ptr.Deref(s.Spec.Replicas, 1)), Observed: int(s.Status.Replicas + s.Status.Finished),
			Serving: int(s.Status.Idle + s.Status.Busy), Busy: int(s.Status.Busy), Current: s.Status.ObservedGeneration == s.Generation,
		})
	}
	return seen
}

// act carries a rollout out, and copies to the sets the fields that they take from the deployment.
func (r *Reconciler) act(ctx context.Context, d *v1alpha1.RunnerDeployment, sets []v1alpha1.RunnerReplicaSet, wish Wish, plan Rollout) error {
	if plan.Create {
		if err := r.create(ctx, d, nameOf(d, wish.Hash, sets), wish.Hash, plan.New); err != nil {
			return err
		}
	}
	for i := range sets {
		set := &sets[i]
		changed := set.DeepCopy()
		replicas, asked := plan.Replicas[set.Name]
		if asked {
			changed.Spec.Replicas = ptr.To(int32(replicas))
		}
		if set.Labels[runnerpod.LabelTemplateHash] == wish.Hash { // e2c8163b, af96de61: a newer need alone reaches the set
			changed.Spec.ScaledAt, changed.Spec.RecreationHold = scaledAt(d), d.Spec.RecreationHold
		}
		if err := r.patchSet(ctx, d, set, changed); err != nil {
			return err
		}
	}
	for _, name := range plan.Delete {
		at := slices.IndexFunc(sets, func(s v1alpha1.RunnerReplicaSet) bool { return s.Name == name })
		if err := r.removeSet(ctx, d, &sets[at]); err != nil {
			return err
		}
	}
	return nil
}

// scaledAt is when the autoscaler last found the number to be needed; nil where there is none that chooses it.
func scaledAt(d *v1alpha1.RunnerDeployment) *metav1.Time {
	if d.Spec.Autoscaling == nil || d.Status.Autoscaling == nil {
		return nil
	}
	return d.Status.Autoscaling.ScaledAt
}

// nameLength is how much of a template's hash the name of its set has.
const nameLength = 8

// nameOf names a new set by a part of its template's hash: the first part that no other set's name has, such as one being deleted.
func nameOf(d *v1alpha1.RunnerDeployment, hash string, sets []v1alpha1.RunnerReplicaSet) string {
	for part := range slices.Chunk([]byte(hash), nameLength) {
		name := d.Name + "-" + string(part)
		if !slices.ContainsFunc(sets, func(s v1alpha1.RunnerReplicaSet) bool { return s.Name == name }) {
			return name
		}
	}
	return d.Name + "-" + hash[:nameLength]
}

func (r *Reconciler) create(ctx context.Context, d *v1alpha1.RunnerDeployment, name, hash string, replicas int) error {
	template := d.Spec.Template.DeepCopy()
	set := &v1alpha1.RunnerReplicaSet{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: d.Namespace, Name: name, Labels: map[string]string{},
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(d, v1alpha1.GroupVersion.WithKind(v1alpha1.KindRunnerDeployment))},
		},
		Spec: v1alpha1.RunnerReplicaSetSpec{
			Replicas: ptr.To(int32(replicas)), ScaledAt: scaledAt(d), RecreationHold: d.Spec.RecreationHold, Template: *template,
		},
	}
	maps.Copy(set.Labels, runnerpod.WithoutOwnershipMarks(template.Metadata.Labels)) // RUN-9
	set.Labels[runnerpod.LabelDeployment], set.Labels[runnerpod.LabelTemplateHash] = d.Name, hash
	err := r.client.Create(ctx, set)
	if apierrors.IsAlreadyExists(err) {
		return r.isOurs(ctx, d, set)
	}
	if err != nil {
		r.event(d, corev1.EventTypeWarning, "CreateFailed", "Create", "Error creating RunnerReplicaSet %s: %s", set.Name, err)
		return fmt.Errorf("creating set %s: %w", set.Name, err)
	}
	r.event(d, corev1.EventTypeNormal, "Rollout", "Create", "Created RunnerReplicaSet %s for %d runners of the current template", set.Name, replicas)
	return nil
}

// isOurs looks past the cache at a set of which the API server says that it exists: the cache lags, or it is another's.
func (r *Reconciler) isOurs(ctx context.Context, d *v1alpha1.RunnerDeployment, set *v1alpha1.RunnerReplicaSet) error {
	var there v1alpha1.RunnerReplicaSet
	if err := r.reader.Get(ctx, client.ObjectKeyFromObject(set), &there); err != nil {
		return fmt.Errorf("reading set %s, which exists: %w", set.Name, err)
	}
	if metav1.IsControlledBy(&there, d) && there.Labels[runnerpod.LabelTemplateHash] == set.Labels[runnerpod.LabelTemplateHash] {
		return nil // the watch will show it
	}
	r.event(d, corev1.EventTypeWarning, "NameTaken", "Create", "RunnerReplicaSet %s exists and belongs to another owner or template: delete or rename it", set.Name)
	return fmt.Errorf("creating set %s: %w", set.Name, errNameTaken)
}

var errNameTaken = errors.New("its name is taken")

// patchSet asks a set for something else, as it was observed and not otherwise.
func (r *Reconciler) patchSet(ctx context.Context, d *v1alpha1.RunnerDeployment, set, changed *v1alpha1.RunnerReplicaSet) error {
	from, to := ptr.Deref(set.Spec.Replicas, 1), ptr.Deref(changed.Spec.Replicas, 1)
	hold, want := ptr.Deref(set.Spec.RecreationHold, metav1.Duration{}), ptr.Deref(changed.Spec.RecreationHold, metav1.Duration{})
	if set.DeletionTimestamp != nil || from == to && hold == want && set.Spec.ScaledAt.Equal(changed.Spec.ScaledAt) {
		return nil
	}
	if err := r.client.Patch(ctx, changed, client.MergeFromWithOptions(set, client.MergeFromWithOptimisticLock{})); err != nil {
		return fmt.Errorf("changing set %s: %w", set.Name, err)
	}
	if from != to {
		r.event(d, corev1.EventTypeNormal, "Rollout", "Scale", "Scaled RunnerReplicaSet %s from %d to %d runners", set.Name, from, to)
	}
	return nil
}

// removeSet deletes a set that has no runner, as it was observed and not otherwise (RUN-3). Its own finalizer holds one that has
// after all.
func (r *Reconciler) removeSet(ctx context.Context, d *v1alpha1.RunnerDeployment, set *v1alpha1.RunnerReplicaSet) error {
	err := r.client.Delete(ctx, set.DeepCopy(), client.Preconditions{UID: &set.UID, ResourceVersion: &set.ResourceVersion})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("deleting set %s: %w", set.Name, err)
	}
	r.event(d, corev1.EventTypeNormal, "Rollout", "Delete", "Deleted RunnerReplicaSet %s, which has no runners left", set.Name)
	return nil
}

var errLagging = errors.New("the cache has not synced all RunnerReplicaSets yet")

// release removes a deployment's finalizer when no set is left, also past the cache.
func (r *Reconciler) release(ctx context.Context, d *v1alpha1.RunnerDeployment) error {
	var list v1alpha1.RunnerReplicaSetList
	if err := r.reader.List(ctx, &list, client.InNamespace(d.Namespace)); err != nil {
		return fmt.Errorf("listing the sets of %s: %w", d.Name, err)
	}
	if len(ownedBy(d, list.Items)) > 0 {
		return errLagging
	}
	return client.IgnoreNotFound(r.patchFinalizer(ctx, d, controllerutil.RemoveFinalizer))
}

func (r *Reconciler) patchFinalizer(ctx context.Context, d *v1alpha1.RunnerDeployment, change func(client.Object, string) bool) error {
	changed := d.DeepCopy()
	if !change(changed, runnerpod.FinalizerRegistration) {
		return nil
	}
	if err := r.client.Patch(ctx, changed, client.MergeFromWithOptions(d, client.MergeFromWithOptimisticLock{})); err != nil {
		return fmt.Errorf("changing the finalizers of %s: %w", d.Name, err)
	}
	return nil
}

func (r *Reconciler) event(d *v1alpha1.RunnerDeployment, kind, reason, action, note string, args ...any) {
	r.events.Eventf(d, nil, kind, reason, action, note, args...)
}

// writeStatus writes all of it but the autoscaler's part, if it has changed.
func (r *Reconciler) writeStatus(ctx context.Context, d *v1alpha1.RunnerDeployment, status v1alpha1.RunnerDeploymentStatus) error {
	if same(d.Status, status) {
		return nil
	}
	patch, err := runnerowner.StatusPatch(status)
	if err != nil {
		return err
	}
	target := &v1alpha1.RunnerDeployment{ObjectMeta: metav1.ObjectMeta{Namespace: d.Namespace, Name: d.Name}}
	if err := r.client.Status().Patch(ctx, target, client.RawPatch(types.MergePatchType, patch)); err != nil {
		return client.IgnoreNotFound(fmt.Errorf("writing the status of %s: %w", d.Name, err))
	}
	return nil
}
