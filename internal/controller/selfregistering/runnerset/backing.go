package runnerset

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/bullpen-ci/bullpen/api/v1alpha1"
	"github.com/bullpen-ci/bullpen/internal/controller/removal"
	"github.com/bullpen-ci/bullpen/internal/controller/selfregistering/registered"
	"github.com/bullpen-ci/bullpen/internal/controller/selfregistering/runnerowner"
	"github.com/bullpen-ci/bullpen/internal/plan/lifecycle"
	"github.com/bullpen-ci/bullpen/internal/runnerpod"
)

// Service is what this package needs of registered.Service.
type Service interface {
	runnerowner.Service
	Prepare(ctx context.Context, i registered.Identity, pod *registered.View, podExisted bool) (registered.Prepared, error)
	Unregister(ctx context.Context, i registered.Identity, runnerID int64, podExisted, ended bool) lifecycle.Answer
}

// MostStatefulSets is how many there may be before none is added (K 4.4).
const MostStatefulSets = 1000

// Options configures the controller.
type Options struct {
	// Service is registered.Service. Required.
	Service Service
	// Pod is what every runner pod has in common. Required.
	Pod runnerpod.Options
	// Most is how many StatefulSets there may be before none is added; the default is MostStatefulSets.
	Most int
	// Registry takes the metrics, and Log what no Event or condition says. Required.
	Registry prometheus.Registerer
	Log      *slog.Logger
	// Now is the clock; the default is time.Now.
	Now func() time.Time
}

// Setup adds the controller to the manager, whose cache must hold RunnerSets, and of self-registering runners the StatefulSets and
// the pods.
func Setup(mgr manager.Manager, options Options) error {
	if options.Most <= 0 {
		options.Most = MostStatefulSets
	}
	if options.Service == nil {
		return errors.New("runnerset: Service is required")
	}
	return runnerowner.Setup(mgr, runnerowner.Options{
		Backing: &backing{
			client: mgr.GetClient(), reader: mgr.GetAPIReader(), service: options.Service, pod: options.Pod,
			remover: &removal.Remover{Client: mgr.GetClient(), Fence: options.Service},
		},
		Service: options.Service, Most: options.Most, Registry: options.Registry, Log: options.Log, Now: options.Now,
	})
}

type backing struct {
	client  client.Client
	reader  client.Reader // past the cache
	service Service
	pod     runnerpod.Options
	remover *removal.Remover
}

var _ runnerowner.Backing = (*backing)(nil)

// podSuffix ends the name of the one pod of a StatefulSet.
const podSuffix = "-0"

func (*backing) Kind() string               { return "runnerset" }
func (*backing) NewOwner() client.Object    { return &v1alpha1.RunnerSet{} }
func (*backing) NewMember() client.Object   { return &appsv1.StatefulSet{} }
func (*backing) PodOf(member string) string { return member + podSuffix }
func (*backing) MemberOf(pod string) string { return strings.TrimSuffix(pod, podSuffix) }

func setOf(o *runnerowner.Owner) *v1alpha1.RunnerSet {
	set, _ := o.Object.(*v1alpha1.RunnerSet)
	return set
}

func (b *backing) Load(ctx context.Context, key types.NamespacedName) (*runnerowner.Owner, error) {
	var set v1alpha1.RunnerSet
	if err := b.client.Get(ctx, key, &set); err != nil {
		return nil, client.IgnoreNotFound(err)
	}
	hash, err := runnerpod.RegisteredHash(&set.Spec.RunnerSpec, b.pod, set.Spec.VolumeClaimTemplates)
	if err != nil {
		return nil, err
	}
	desired := runnerowner.Desired(set.Spec.Replicas, set.Spec.Autoscaling, set.Status.Autoscaling, int(set.Status.Replicas))
	surge, unavailable := runnerowner.Limits(set.Spec.Rollout, desired)
	o := &runnerowner.Owner{
		Object: &set, Desired: desired, TemplateHash: hash, Ephemeral: registered.Ephemeral(&set.Spec.RunnerSpec),
		MaxSurge: surge, MaxUnavailable: unavailable, CompleteAt: timeOf(set.Status.CompleteAt),
		RegistrationTimeout: ptr.Deref(set.Spec.RegistrationTimeout, metav1.Duration{}).Duration,
		RecreationHold:      ptr.Deref(set.Spec.RecreationHold, metav1.Duration{Duration: 10 * time.Minute}).Duration,
		Protected:           controllerutil.ContainsFinalizer(&set, runnerpod.FinalizerRegistration), Conditions: set.Status.Conditions,
		Scaling: runnerowner.Scaling{Spec: set.Spec.Autoscaling, Status: set.Status.Autoscaling},
	}
	if set.Spec.Credentials != nil {
		o.Secret = set.Spec.Credentials.SecretName
	}
	if set.Spec.Autoscaling != nil && set.Status.Autoscaling != nil {
		o.ScaledAt = timeOf(set.Status.Autoscaling.ScaledAt)
	}
	_, o.Invalid = registered.BuildPod(b.identity(&set, set.Name+"-0", "", "check", "check"), b.pod)
	return o, nil
}

func timeOf(t *metav1.Time) time.Time { return ptr.Deref(t, metav1.Time{}).Time }

func (*backing) Observe(object client.Object) (runnerowner.Member, bool) {
	sts, is := object.(*appsv1.StatefulSet)
	if !is {
		return runnerowner.Member{}, false
	}
	owner := metav1.GetControllerOfNoCopy(sts)
	if owner == nil || owner.Kind != v1alpha1.KindRunnerSet || owner.APIVersion != v1alpha1.GroupVersion.String() {
		return runnerowner.Member{}, false // F 2.8: a label alone makes no member
	}
	m := runnerowner.Member{
		Namespace: sts.Namespace, Name: sts.Name, UID: string(sts.UID), ResourceVersion: sts.ResourceVersion,
		OwnerName: owner.Name, OwnerUID: string(owner.UID), TemplateHash: sts.Labels[runnerpod.LabelTemplateHash],
		Created: sts.CreationTimestamp.Time, RunnerName: sts.Annotations[runnerpod.AnnotationRunnerName],
		Started: ptr.Deref(sts.Spec.Replicas, 1) > 0,
	}
	if m.Started && sts.Status.ObservedGeneration >= sts.Generation && sts.Status.Replicas == 0 { // K 8.7: a quota, or an admission policy
		m.Waiting = "StatefulSet " + sts.Name + " cannot create its pod: see its Events"
	}
	if sts.DeletionTimestamp != nil {
		m.Deleting = sts.DeletionTimestamp.Time
	}
	return m, true
}

// Names are <set>-<number>: the lowest that are free, those first whose volumes wait for a runner.
func (b *backing) Names(ctx context.Context, o *runnerowner.Owner, n int, taken func(string) bool) ([]string, error) {
	set := setOf(o)
	var names []string
	given := map[string]bool{}
	give := func(name string) {
		if len(names) < n && !given[name] && !taken(name) {
			names, given[name] = append(names, name), true
		}
	}
	if len(set.Spec.VolumeClaimTemplates) > 0 {
		claims, err := b.claims(ctx, set)
		if err != nil {
			return nil, err
		}
		for _, number := range numbersOf(set, claims) {
			give(fmt.Sprintf("%s-%d", set.Name, number))
		}
	}
	for number := 0; len(names) < n; number++ {
		give(fmt.Sprintf("%s-%d", set.Name, number))
	}
	return names, nil
}

// claims lists the volume claims that runners of the set have, or have left.
func (b *backing) claims(ctx context.Context, set *v1alpha1.RunnerSet) ([]metav1.PartialObjectMetadata, error) {
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("PersistentVolumeClaimList"))
	err := b.reader.List(ctx, list, client.InNamespace(set.Namespace), client.MatchingLabels{runnerpod.LabelRunnerSet: set.Name})
	if err != nil {
		return nil, fmt.Errorf("listing the volume claims of %s: %w", set.Name, err)
	}
	return list.Items, nil
}

// identity is one runner of the set. uid is the StatefulSet's; instance is what that selects its pod by.
func (b *backing) identity(set *v1alpha1.RunnerSet, name, uid, runnerName, instance string) registered.Identity {
	i := registered.Identity{
		Namespace: set.Namespace, Name: name, StatefulSet: true, RunnerName: runnerName, Spec: &set.Spec.RunnerSpec,
		Owner:  *metav1.NewControllerRef(&metav1.ObjectMeta{Name: name, UID: types.UID(uid)}, appsv1.SchemeGroupVersion.WithKind("StatefulSet")),
		Labels: map[string]string{runnerpod.LabelRunnerSet: set.Name, runnerpod.LabelStatefulSet: instance},
	}
	for _, claim := range set.Spec.VolumeClaimTemplates {
		i.Claims = append(i.Claims, claim.Name)
	}
	return i
}

// Remove deletes the StatefulSet as it was observed, and leaves its pod: package removal deletes that, behind the fence, so that it is not
// deleted with the StatefulSet if it is busy after all (RUN-2, F 4.5).
func (b *backing) Remove(ctx context.Context, r runnerowner.Removal) (lifecycle.Answer, error) {
	done := lifecycle.Answer{Verdict: lifecycle.Granted}
	if r.Exists && r.Member.Deleting.IsZero() {
		if r.Pod == nil && r.Owner != nil { // no pod will ever remove a registration that was made for it
			i := b.identity(setOf(r.Owner), r.Member.Name, r.Member.UID, r.Member.RunnerName, "")
			done = b.service.Unregister(ctx, i, 0, false, r.Over)
			if done.Verdict == lifecycle.Busy || done.Verdict == lifecycle.Unknown && !r.Left {
				return done, lifecycle.ErrNotNow
			}
		}
		if err := b.removeSecret(ctx, r.Member.Namespace, r.Member.Name, ""); err != nil {
			return lifecycle.Answer{}, err
		}
		uid, version := types.UID(r.Member.UID), r.Member.ResourceVersion
		sts := &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Namespace: r.Member.Namespace, Name: r.Member.Name}}
		err := b.client.Delete(ctx, sts, client.Preconditions{UID: &uid, ResourceVersion: &version}, client.PropagationPolicy(metav1.DeletePropagationOrphan))
		if err != nil && !apierrors.IsNotFound(err) {
			return lifecycle.Answer{}, fmt.Errorf("deleting StatefulSet %s: %w", r.Member.Name, err)
		}
	}
	if r.Pod == nil || !r.Pod.Deleting.IsZero() {
		return done, nil
	}
	grant := removal.Grant{Proof: r.Proof, Lost: r.Lost, NodeGone: r.NodeGone}
	if r.Granted {
		grant.UID = r.Pod.UID
	}
	return b.remover.Remove(ctx, r.Pod.Removal(), grant)
}

// removeSecret deletes the Secret of a StatefulSet of that name, unless it is that of the one with the UID to keep. A StatefulSet
// that is deleted without its pod leaves its Secret behind as well, and its name is used again.
func (b *backing) removeSecret(ctx context.Context, namespace, name, keep string) error {
	var secret corev1.Secret
	err := b.reader.Get(ctx, types.NamespacedName{Namespace: namespace, Name: registered.SecretName(name)}, &secret)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("reading the Secret of StatefulSet %s: %w", name, err)
	}
	owner := metav1.GetControllerOfNoCopy(&secret)
	ours := secret.Labels[runnerpod.LabelSelfRegistering] == "true" && (owner == nil || owner.Kind == "StatefulSet")
	if !ours || keep != "" && owner != nil && string(owner.UID) == keep {
		return nil
	}
	target := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: secret.Name}}
	err = b.client.Delete(ctx, target, client.Preconditions{UID: &secret.UID})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("deleting the Secret of StatefulSet %s: %w", name, err)
	}
	return nil
}

func (b *backing) Hold(ctx context.Context, o *runnerowner.Owner) error {
	return b.patchFinalizer(ctx, o, controllerutil.AddFinalizer)
}

var errLagging = errors.New("the cache has not synced all StatefulSets yet")

// Release deletes the volumes, too, if the set says so: nothing of it uses them any more.
func (b *backing) Release(ctx context.Context, o *runnerowner.Owner) error {
	set := setOf(o)
	var list appsv1.StatefulSetList
	if err := b.reader.List(ctx, &list, client.InNamespace(set.Namespace), client.MatchingLabels{runnerpod.LabelRunnerSet: set.Name}); err != nil {
		return fmt.Errorf("listing the StatefulSets of %s: %w", set.Name, err)
	}
	for i := range list.Items {
		if m, ours := b.Observe(&list.Items[i]); ours && m.OwnerUID == string(set.UID) {
			return errLagging // the watch will show it
		}
	}
	if set.Spec.VolumeRetention == v1alpha1.VolumesDeleted {
		claims, err := b.claims(ctx, set)
		if err != nil {
			return err
		}
		for i := range claims {
			if err := b.removeClaim(ctx, &claims[i]); err != nil {
				return err
			}
		}
	}
	return b.patchFinalizer(ctx, o, controllerutil.RemoveFinalizer)
}

// removeClaim deletes a volume claim of a set that is gone and says so.
func (b *backing) removeClaim(ctx context.Context, claim *metav1.PartialObjectMetadata) error {
	target := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: claim.Namespace, Name: claim.Name}}
	err := b.client.Delete(ctx, target, client.Preconditions{UID: ptr.To(claim.UID)})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("deleting volume claim %s: %w", claim.Name, err)
	}
	return nil
}

func (b *backing) patchFinalizer(ctx context.Context, o *runnerowner.Owner, change func(client.Object, string) bool) error {
	base := setOf(o)
	changed := base.DeepCopy()
	if !change(changed, runnerpod.FinalizerRegistration) {
		return nil
	}
	if err := b.client.Patch(ctx, changed, client.MergeFromWithOptions(base, client.MergeFromWithOptimisticLock{})); err != nil {
		return fmt.Errorf("changing the finalizers of %s: %w", base.Name, err)
	}
	return nil
}

// WriteStatus writes all of it but the autoscaler's part.
func (b *backing) WriteStatus(ctx context.Context, o *runnerowner.Owner, s runnerowner.Status) error {
	set := setOf(o)
	status := v1alpha1.RunnerSetStatus{
		RunnerCounts: s.Counts, ObservedGeneration: s.Generation, TemplateHash: s.TemplateHash, Conditions: s.Conditions,
		DesiredReplicas: ptr.To(int32(s.Desired)), UpdatedReplicas: int32(s.Updated), Selector: runnerpod.LabelRunnerSet + "=" + set.Name,
	}
	if !s.CompleteAt.IsZero() {
		status.CompleteAt = ptr.To(s.CompleteAt)
	}
	patch, err := runnerowner.StatusPatch(status)
	if err != nil {
		return err
	}
	target := &v1alpha1.RunnerSet{ObjectMeta: metav1.ObjectMeta{Namespace: set.Namespace, Name: set.Name}}
	return b.client.Status().Patch(ctx, target, client.RawPatch(types.MergePatchType, patch))
}
