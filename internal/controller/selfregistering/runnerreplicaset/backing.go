package runnerreplicaset

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/bullpen-ci/bullpen/api/v1alpha1"
	"github.com/bullpen-ci/bullpen/internal/controller/selfregistering/registered"
	"github.com/bullpen-ci/bullpen/internal/controller/selfregistering/runnerowner"
	"github.com/bullpen-ci/bullpen/internal/plan/lifecycle"
	"github.com/bullpen-ci/bullpen/internal/runnerpod"
)

// Options configures the controller.
type Options struct {
	// Service is registered.Service. Required.
	Service runnerowner.Service
	// Pod is what every runner pod has in common. Required.
	Pod runnerpod.Options
	// Registry takes the metrics, and Log what no Event or condition says. Required.
	Registry prometheus.Registerer
	Log      *slog.Logger
	// Now is the clock; the default is time.Now.
	Now func() time.Time
	// NewSuffix ends the names of Runners, with at most seven characters; the default is random.
	NewSuffix func() string
}

// Setup adds the controller to the manager, whose cache must hold RunnerReplicaSets, Runners, and the pods of self-registering
// runners.
func Setup(mgr manager.Manager, options Options) error {
	if options.NewSuffix == nil {
		options.NewSuffix = func() string { return rand.String(6) }
	}
	return runnerowner.Setup(mgr, runnerowner.Options{
		Backing: &backing{client: mgr.GetClient(), reader: mgr.GetAPIReader(), pod: options.Pod, newSuffix: options.NewSuffix},
		Service: options.Service, Registry: options.Registry, Log: options.Log, Now: options.Now,
	})
}

type backing struct {
	client    client.Client
	reader    client.Reader // past the cache
	pod       runnerpod.Options
	newSuffix func() string
}

var _ runnerowner.Backing = (*backing)(nil)

func (*backing) Kind() string               { return "runnerreplicaset" }
func (*backing) NewOwner() client.Object    { return &v1alpha1.RunnerReplicaSet{} }
func (*backing) NewMember() client.Object   { return &v1alpha1.Runner{} }
func (*backing) PodOf(member string) string { return member }
func (*backing) MemberOf(pod string) string { return pod }
func setOf(o *runnerowner.Owner) *v1alpha1.RunnerReplicaSet {
	set, _ := o.Object.(*v1alpha1.RunnerReplicaSet)
	return set
}

// TemplateHash tells the Runners of different templates apart.
func TemplateHash(template *v1alpha1.RunnerTemplateSpec, options runnerpod.Options) (string, error) {
	return runnerpod.RegisteredHash(&template.Spec, options, template.Metadata)
}

// Check says why no pod can be built from a template; nil where one can.
func Check(namespace, name string, template *v1alpha1.RunnerTemplateSpec, options runnerpod.Options) error {
	_, err := registered.BuildPod(registered.Identity{
		Namespace: namespace, Name: name + "-check", Spec: &template.Spec, RunnerName: name + "-check", TemplateHash: "check",
	}, options)
	return err
}

func (b *backing) Load(ctx context.Context, key types.NamespacedName) (*runnerowner.Owner, error) {
	var set v1alpha1.RunnerReplicaSet
	if err := b.client.Get(ctx, key, &set); err != nil {
		return nil, client.IgnoreNotFound(err)
	}
	hash, err := TemplateHash(&set.Spec.Template, b.pod)
	if err != nil {
		return nil, err
	}
	// A deployment makes a set for each template, and another for what a new version of the product makes of it: a set of a
	// deployment does not roll by itself.
	if label := set.Labels[runnerpod.LabelTemplateHash]; label != "" && ownedBy(&set, v1alpha1.KindRunnerDeployment) {
		hash = label
	}
	surge, unavailable := runnerowner.Limits(v1alpha1.RunnerRollout{}, int(ptr.Deref(set.Spec.Replicas, 1)))
	o := &runnerowner.Owner{
		Object: &set, Desired: int(ptr.Deref(set.Spec.Replicas, 1)), TemplateHash: hash, Ephemeral: registered.Ephemeral(&set.Spec.Template.Spec),
		MaxSurge: surge, MaxUnavailable: unavailable, ScaledAt: timeOf(set.Spec.ScaledAt), CompleteAt: timeOf(set.Status.CompleteAt),
		RegistrationTimeout: ptr.Deref(set.Spec.Template.Spec.RegistrationTimeout, metav1.Duration{}).Duration,
		RecreationHold:      ptr.Deref(set.Spec.RecreationHold, metav1.Duration{Duration: 10 * time.Minute}).Duration,
		Invalid:             Check(set.Namespace, set.Name, &set.Spec.Template, b.pod), Protected: controllerutil.ContainsFinalizer(&set, runnerpod.FinalizerRegistration),
		Conditions: set.Status.Conditions,
	}
	return o, nil
}

func ownedBy(object metav1.Object, kind string) bool {
	owner := metav1.GetControllerOfNoCopy(object)
	return owner != nil && owner.Kind == kind
}

func timeOf(t *metav1.Time) time.Time { return ptr.Deref(t, metav1.Time{}).Time }

func (*backing) Observe(object client.Object) (runnerowner.Member, bool) {
	runner, is := object.(*v1alpha1.Runner)
	if !is {
		return runnerowner.Member{}, false
	}
	owner := metav1.GetControllerOfNoCopy(runner)
	if owner == nil || owner.Kind != v1alpha1.KindRunnerReplicaSet || owner.APIVersion != v1alpha1.GroupVersion.String() {
		return runnerowner.Member{}, false // F 2.8: a label alone makes no member
	}
	m := runnerowner.Member{
		Namespace: runner.Namespace, Name: runner.Name, UID: string(runner.UID), ResourceVersion: runner.ResourceVersion,
		OwnerName: owner.Name, OwnerUID: string(owner.UID), TemplateHash: runner.Labels[runnerpod.LabelTemplateHash],
		Created: runner.CreationTimestamp.Time, RunnerName: runner.Status.RunnerName,
		Started: runner.Status.PodUID != "", Ended: runner.Status.Stage == lifecycle.StageFinished.String(),
		PodRefused: registered.RefusalIn(runner.Status.Conditions),
	}
	if runner.DeletionTimestamp != nil {
		m.Deleting = runner.DeletionTimestamp.Time
	}
	for _, kind := range []string{v1alpha1.ConditionRegistered, v1alpha1.ConditionValid} {
		if c := meta.FindStatusCondition(runner.Status.Conditions, kind); c != nil && c.Status == metav1.ConditionFalse && !m.Started {
			m.Waiting = c.Message
		}
	}
	return m, true
}

func (b *backing) Names(_ context.Context, o *runnerowner.Owner, n int, taken func(string) bool) ([]string, error) {
	names, given := make([]string, 0, n), map[string]bool{}
	for len(names) < n {
		name := o.Object.GetName() + "-" + b.newSuffix()
		if !taken(name) && !given[name] {
			names, given[name] = append(names, name), true
		}
	}
	return names, nil
}

func (b *backing) Create(ctx context.Context, o *runnerowner.Owner, name string) (string, error) {
	set := setOf(o)
	template := set.Spec.Template.DeepCopy()
	runner := &v1alpha1.Runner{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: set.Namespace, Name: name, Labels: map[string]string{}, Annotations: runnerpod.WithoutOwnershipMarks(template.Metadata.Annotations),
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(set, v1alpha1.GroupVersion.WithKind(v1alpha1.KindRunnerReplicaSet))},
		},
		Spec: template.Spec,
	}
	maps.Copy(runner.Labels, runnerpod.WithoutOwnershipMarks(template.Metadata.Labels)) // RUN-9
	runner.Labels[runnerpod.LabelReplicaSet], runner.Labels[runnerpod.LabelTemplateHash] = set.Name, o.TemplateHash
	runner.Labels[runnerpod.LabelSelfRegistering] = "true"
	if deployment := set.Labels[runnerpod.LabelDeployment]; deployment != "" {
		runner.Labels[runnerpod.LabelDeployment] = deployment
	}
	err := b.client.Create(ctx, runner)
	if !apierrors.IsAlreadyExists(err) {
		return string(runner.UID), err
	}
	if err := b.reader.Get(ctx, client.ObjectKeyFromObject(runner), runner); err != nil {
		return "", fmt.Errorf("reading Runner %s, which exists: %w", name, err)
	}
	if m, ours := b.Observe(runner); !ours || m.OwnerUID != string(set.UID) {
		return "", fmt.Errorf("%w: Runner %s belongs to another owner", runnerowner.ErrTaken, name)
	}
	return string(runner.UID), nil
}

// Tend has nothing to do: a Runner's controller registers it.
func (*backing) Tend(context.Context, *runnerowner.Owner, runnerowner.Member, *registered.View) (runnerowner.Tended, error) {
	return runnerowner.Tended{}, nil
}

// Remove deletes a Runner as it was observed. Its own controller then asks the fence again, removes the pod and releases the Runner
// (RUN-2), so that this is safe at any time.
func (b *backing) Remove(ctx context.Context, r runnerowner.Removal) (lifecycle.Answer, error) {
	if !r.Exists || !r.Member.Deleting.IsZero() {
		return lifecycle.Answer{}, nil
	}
	uid, version := types.UID(r.Member.UID), r.Member.ResourceVersion
	runner := &v1alpha1.Runner{ObjectMeta: metav1.ObjectMeta{Namespace: r.Member.Namespace, Name: r.Member.Name}}
	err := b.client.Delete(ctx, runner, client.Preconditions{UID: &uid, ResourceVersion: &version})
	if err != nil && !apierrors.IsNotFound(err) {
		return lifecycle.Answer{}, fmt.Errorf("deleting Runner %s: %w", r.Member.Name, err)
	}
	return lifecycle.Answer{}, nil
}

func (b *backing) Hold(ctx context.Context, o *runnerowner.Owner) error {
	return b.patchFinalizer(ctx, o, controllerutil.AddFinalizer)
}

func (b *backing) Release(ctx context.Context, o *runnerowner.Owner) error {
	set := setOf(o)
	var runners v1alpha1.RunnerList
	if err := b.reader.List(ctx, &runners, client.InNamespace(set.Namespace), client.MatchingLabels{runnerpod.LabelReplicaSet: set.Name}); err != nil {
		return fmt.Errorf("listing the Runners of %s: %w", set.Name, err)
	}
	for i := range runners.Items {
		if m, ours := b.Observe(&runners.Items[i]); ours && m.OwnerUID == string(set.UID) {
			return errLagging // the watch will show it
		}
	}
	return b.patchFinalizer(ctx, o, controllerutil.RemoveFinalizer)
}

var errLagging = errors.New("the cache has not synced all Runners yet")

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

// WriteStatus writes all of it, and not the difference: that would leave out every number that has always been 0, and show blanks.
func (b *backing) WriteStatus(ctx context.Context, o *runnerowner.Owner, s runnerowner.Status) error {
	set := setOf(o)
	status := v1alpha1.RunnerReplicaSetStatus{
		RunnerCounts: s.Counts, ObservedGeneration: s.Generation, TemplateHash: s.TemplateHash,
		Selector: runnerpod.LabelReplicaSet + "=" + set.Name, Conditions: s.Conditions,
	}
	if !s.CompleteAt.IsZero() {
		status.CompleteAt = ptr.To(s.CompleteAt)
	}
	patch, err := runnerowner.StatusPatch(status)
	if err != nil {
		return err
	}
	target := &v1alpha1.RunnerReplicaSet{ObjectMeta: metav1.ObjectMeta{Namespace: set.Namespace, Name: set.Name}}
	return b.client.Status().Patch(ctx, target, client.RawPatch(types.MergePatchType, patch))
}
