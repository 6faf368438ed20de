package runnerset

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bullpen-ci/bullpen/api/v1alpha1"
	"github.com/bullpen-ci/bullpen/internal/controller/selfregistering/registered"
	"github.com/bullpen-ci/bullpen/internal/controller/selfregistering/runnerowner"
	"github.com/bullpen-ci/bullpen/internal/plan/lifecycle"
	"github.com/bullpen-ci/bullpen/internal/runnerpod"
)

// Create makes a StatefulSet without a pod: its UID is what the Secret is owned by, and its annotation says by which name GitHub
// is asked, before GitHub is.
func (b *backing) Create(ctx context.Context, o *runnerowner.Owner, name string) (string, error) {
	set := setOf(o)
	sts, err := b.build(set, o.TemplateHash, name)
	if err != nil {
		return "", err
	}
	err = b.client.Create(ctx, sts)
	if !apierrors.IsAlreadyExists(err) {
		return string(sts.UID), err
	}
	if err := b.reader.Get(ctx, client.ObjectKeyFromObject(sts), sts); err != nil {
		return "", fmt.Errorf("reading StatefulSet %s, which exists: %w", name, err)
	}
	if m, ours := b.Observe(sts); !ours || m.OwnerUID != string(set.UID) {
		return "", fmt.Errorf("%w: StatefulSet %s belongs to another owner", runnerowner.ErrTaken, name)
	}
	return string(sts.UID), nil
}

func (b *backing) build(set *v1alpha1.RunnerSet, hash, name string) (*appsv1.StatefulSet, error) {
	runnerName := registered.NewRunnerName(name)
	i := b.identity(set, name, "", runnerName, runnerName)
	i.TemplateHash = hash
	pod, err := registered.BuildPod(i, b.pod)
	if err != nil {
		return nil, err
	}
	selector := map[string]string{runnerpod.LabelRunnerSet: set.Name, runnerpod.LabelStatefulSet: runnerName}
	sts := &appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: set.Namespace, Name: name, Annotations: map[string]string{runnerpod.AnnotationRunnerName: runnerName},
			Labels: map[string]string{
				runnerpod.LabelSelfRegistering: "true", runnerpod.LabelRunnerSet: set.Name, runnerpod.LabelTemplateHash: hash,
				runnerpod.LabelEphemeral: strconv.FormatBool(registered.Ephemeral(&set.Spec.RunnerSpec)),
			},
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(set, v1alpha1.GroupVersion.WithKind(v1alpha1.KindRunnerSet))},
		},
		Spec: appsv1.StatefulSetSpec{
			Replicas: ptr.To[int32](0), Selector: &metav1.LabelSelector{MatchLabels: selector}, Template: templateOf(pod),
			PodManagementPolicy:  appsv1.ParallelPodManagement,
			UpdateStrategy:       appsv1.StatefulSetUpdateStrategy{Type: appsv1.OnDeleteStatefulSetStrategyType}, // K 4.1: it has no meaning
			RevisionHistoryLimit: ptr.To[int32](1),
		},
	}
	for _, claim := range set.Spec.VolumeClaimTemplates {
		labels := runnerpod.WithoutOwnershipMarks(claim.Metadata.Labels) // RUN-9
		if labels == nil {
			labels = map[string]string{}
		}
		labels[runnerpod.LabelSelfRegistering], labels[runnerpod.LabelRunnerSet] = "true", set.Name
		sts.Spec.VolumeClaimTemplates = append(sts.Spec.VolumeClaimTemplates, corev1.PersistentVolumeClaim{
			ObjectMeta: metav1.ObjectMeta{Name: claim.Name, Labels: labels, Annotations: runnerpod.WithoutOwnershipMarks(claim.Metadata.Annotations)},
			Spec:       *claim.Spec.DeepCopy(),
		})
	}
	return sts, nil
}

func templateOf(pod *corev1.Pod) corev1.PodTemplateSpec {
	return corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: pod.Labels, Annotations: pod.Annotations, Finalizers: pod.Finalizers}, Spec: pod.Spec,
	}
}

// Tend registers the runner and then gives its StatefulSet the pod; later it renews the token of a static one. It waits for GitHub.
func (b *backing) Tend(ctx context.Context, o *runnerowner.Owner, m runnerowner.Member, pod *registered.View) (runnerowner.Tended, error) {
	if m.TemplateHash != o.TemplateHash {
		return runnerowner.Tended{}, nil // its template is no longer known: it is replaced, or stays as it is
	}
	var sts appsv1.StatefulSet
	if err := b.reader.Get(ctx, types.NamespacedName{Namespace: m.Namespace, Name: m.Name}, &sts); err != nil {
		return runnerowner.Tended{}, client.IgnoreNotFound(fmt.Errorf("reading StatefulSet %s: %w", m.Name, err))
	}
	if string(sts.UID) != m.UID {
		return runnerowner.Tended{}, nil
	}
	set, started := setOf(o), ptr.Deref(sts.Spec.Replicas, 1) > 0
	i := b.identity(set, m.Name, m.UID, sts.Annotations[runnerpod.AnnotationRunnerName], sts.Spec.Selector.MatchLabels[runnerpod.LabelStatefulSet])
	i.TemplateHash = m.TemplateHash
	if !started { // a former one of its name may have left its own
		if err := b.removeSecret(ctx, m.Namespace, m.Name, m.UID); err != nil {
			return runnerowner.Tended{}, err
		}
	}
	prepared, err := b.service.Prepare(ctx, i, pod, started)
	switch {
	case errors.Is(err, registered.ErrSpent):
		return runnerowner.Tended{Ended: true}, nil // RUN-7
	case errors.Is(err, registered.ErrRename) && started:
		return runnerowner.Tended{Unfit: lifecycle.Unfit{Reason: lifecycle.ReasonDefective, Detail: "GitHub knows another runner of its name"}}, nil
	case errors.Is(err, registered.ErrRename):
		return runnerowner.Tended{Next: time.Unix(1, 0)}, b.rename(ctx, &sts)
	case err != nil:
		return runnerowner.Tended{}, err
	}
	tended := runnerowner.Tended{Next: prepared.Next}
	if started {
		return tended, nil
	}
	i.RunnerID, i.Target = prepared.RunnerID, prepared.Target
	return tended, b.start(ctx, &sts, i)
}

// rename stores another name, by which GitHub is then asked.
func (b *backing) rename(ctx context.Context, sts *appsv1.StatefulSet) error {
	base := sts.DeepCopy()
	metav1.SetMetaDataAnnotation(&sts.ObjectMeta, runnerpod.AnnotationRunnerName, registered.NewRunnerName(sts.Name))
	return b.patch(ctx, sts, base)
}

// start has the StatefulSet make its pod, with what GitHub has said of the runner.
func (b *backing) start(ctx context.Context, sts *appsv1.StatefulSet, i registered.Identity) error {
	pod, err := registered.BuildPod(i, b.pod)
	if err != nil {
		return err
	}
	base := sts.DeepCopy()
	sts.Spec.Template, sts.Spec.Replicas = templateOf(pod), ptr.To[int32](1)
	return b.patch(ctx, sts, base)
}

func (b *backing) patch(ctx context.Context, sts, base *appsv1.StatefulSet) error {
	if err := b.client.Patch(ctx, sts, client.MergeFromWithOptions(base, client.MergeFromWithOptimisticLock{})); err != nil {
		return fmt.Errorf("changing StatefulSet %s: %w", sts.Name, err)
	}
	return nil
}

// numbersOf are the numbers of the runners that volume claims belong to, the lowest first. A claim is named
// <template>-<set>-<number>-0.
func numbersOf(set *v1alpha1.RunnerSet, claims []metav1.PartialObjectMetadata) []int {
	var numbers []int
	for i := range claims {
		for _, template := range set.Spec.VolumeClaimTemplates {
			rest, is := strings.CutPrefix(claims[i].Name, template.Name+"-"+set.Name+"-")
			rest, ends := strings.CutSuffix(rest, podSuffix)
			if number, err := strconv.Atoi(rest); is && ends && err == nil && number >= 0 && claims[i].DeletionTimestamp == nil {
				numbers = append(numbers, number)
			}
		}
	}
	slices.Sort(numbers)
	return slices.Compact(numbers)
}
