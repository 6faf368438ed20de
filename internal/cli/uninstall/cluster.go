package uninstall

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"

	"github.com/bullpen-ci/bullpen/api/v1alpha1"
	"github.com/bullpen-ci/bullpen/internal/cli/reach"
	"github.com/bullpen-ci/bullpen/internal/plan/lifecycle"
	"github.com/bullpen-ci/bullpen/internal/runnerpod"
	"github.com/bullpen-ci/bullpen/internal/runnerpod/podsigns"
)

// leaseName is that of the controllers (controller.LeaseName, which this package may not import).
const leaseName = "bullpen-controller"

// kinds are the owners of runners, those first that make others.
var kinds = []struct{ kind, plural string }{
	{v1alpha1.KindRunnerPool, "runnerpools"},
	{v1alpha1.KindRunnerDeployment, "runnerdeployments"},
	{v1alpha1.KindRunnerSet, "runnersets"},
	{v1alpha1.KindRunnerReplicaSet, "runnerreplicasets"},
	{v1alpha1.KindRunner, "runners"},
}

// cluster reads and writes without a cache.
type cluster struct {
	kube              kubernetes.Interface
	objects           dynamic.Interface
	namespace, system string
	assumed           bool // system is a default
	alive             liveness
}

func newCluster(config *rest.Config, o Options) (*cluster, error) {
	config = rest.CopyConfig(config)
	config.QPS, config.Burst, config.RateLimiter = 50, 200, nil // a fleet has thousands of runners
	kube, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("making a Kubernetes client: %w", err)
	}
	objects, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("making a Kubernetes client: %w", err)
	}
	return &cluster{kube: kube, objects: objects, namespace: o.Namespace, system: o.SystemNamespace, assumed: o.SystemAssumed, alive: liveness{patience: o.Patience}}, nil
}

// liveness judges by what changes, and not by the clock of another machine.
type liveness struct {
	patience time.Duration
	renewed  time.Time // what the Lease said
	seen     time.Time // when that was first seen
	running  bool
}

func (l *liveness) see(renewed, now time.Time) Liveness {
	switch {
	case l.seen.IsZero():
		l.renewed, l.seen = renewed, now
	case !renewed.Equal(l.renewed):
		l.renewed, l.seen, l.running = renewed, now, true
	}
	switch {
	case now.Sub(l.seen) >= l.patience:
		return Gone
	case l.running:
		return Running
	default:
		return Unknown
	}
}

func (c *cluster) controller(ctx context.Context, now time.Time) (Liveness, error) {
	lease, err := c.kube.CoordinationV1().Leases(c.system).Get(ctx, leaseName, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		if err := c.elsewhere(ctx); err != nil {
			return Unknown, err
		}
		return c.alive.see(time.Time{}, now), nil
	}
	if err != nil {
		return Unknown, reach.Cluster("reading the controllers' Lease in "+c.system, err)
	}
	return c.alive.see(ptr.Deref(lease.Spec.RenewTime, metav1.MicroTime{}).Time, now), nil
}

// elsewhere fails if controllers have run in another namespace than the default. Without the right to list Leases the check is skipped.
func (c *cluster) elsewhere(ctx context.Context) error {
	if !c.assumed {
		return nil
	}
	leases, err := c.kube.CoordinationV1().Leases(metav1.NamespaceAll).List(ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + leaseName})
	if err != nil || len(leases.Items) == 0 {
		return nil //nolint:nilerr // an extra check
	}
	return fmt.Errorf("no controller found in namespace %s, but one in %s: %w", c.system, leases.Items[0].Namespace, ErrOtherNamespace)
}

// observe reads the owners before the runners: a runner that is made in between has an owner that is seen.
func (c *cluster) observe(ctx context.Context, now time.Time) (State, error) {
	var s State
	var err error
	if s.Controller, err = c.controller(ctx, now); err != nil {
		return s, err
	}
	for _, kind := range kinds {
		list, err := c.of(kind.plural).List(ctx, metav1.ListOptions{})
		if apierrors.IsNotFound(err) {
			continue // the kind is not served: its definition is gone, and its objects with it
		}
		if err != nil {
			return s, reach.Cluster("listing "+kind.plural+" in "+c.namespace, err)
		}
		for i := range list.Items {
			s.Owners = append(s.Owners, ownerOf(kind.kind, &list.Items[i]))
		}
	}
	runners := metav1.ListOptions{LabelSelector: runnerpod.LabelRunner + "=true"}
	pods, err := c.kube.CoreV1().Pods(c.namespace).List(ctx, runners)
	if err != nil {
		return s, reach.Cluster("listing runners in "+c.namespace, err)
	}
	for i := range pods.Items {
		s.Runners = append(s.Runners, runnerOf(&pods.Items[i]))
	}
	accounts, err := c.kube.CoreV1().ServiceAccounts(c.namespace).List(ctx, runners)
	if err != nil {
		return s, reach.Cluster("listing the runners' ServiceAccounts in "+c.namespace, err)
	}
	for i := range accounts.Items {
		s.Accounts = append(s.Accounts, accounts.Items[i].Name)
	}
	sets, err := c.kube.AppsV1().StatefulSets(c.namespace).List(ctx, metav1.ListOptions{LabelSelector: runnerpod.LabelSelfRegistering + "=true"})
	if err != nil {
		return s, reach.Cluster("listing the runners' StatefulSets in "+c.namespace, err)
	}
	for i := range sets.Items {
		s.StatefulSets = append(s.StatefulSets, sets.Items[i].Name)
	}
	return s, nil
}

func (c *cluster) of(plural string) dynamic.ResourceInterface {
	return c.objects.Resource(v1alpha1.GroupVersion.WithResource(plural)).Namespace(c.namespace)
}

// gcFinalizers are Kubernetes' own, which its garbage collector removes.
var gcFinalizers = []string{metav1.FinalizerDeleteDependents, metav1.FinalizerOrphanDependents}

func ownerOf(kind string, object *unstructured.Unstructured) Owner {
	o := Owner{Kind: kind, Name: object.GetName(), UID: string(object.GetUID()), Deleting: object.GetDeletionTimestamp() != nil}
	for _, finalizer := range object.GetFinalizers() {
		switch {
		case ours(finalizer):
			o.Protected = true
		case !slices.Contains(gcFinalizers, finalizer):
			o.Foreign = append(o.Foreign, finalizer)
		}
	}
	return o
}

func runnerOf(pod *corev1.Pod) Runner {
	poller, runner := podsigns.Container(pod, runnerpod.ContainerPoller), podsigns.Container(pod, runnerpod.ContainerRunner)
	_, taken := podsigns.Taken(pod, runner)
	signs := lifecycle.Signs{ // EXCL-4
		Owner:       pod.Labels[runnerpod.LabelOwner],
		PollerEnded: podsigns.PollerEnded(poller),
		NotReady:    taken,
	}
	over := pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
	return Runner{
		Name: pod.Name, UID: string(pod.UID), ResourceVersion: pod.ResourceVersion, Pool: pod.Labels[runnerpod.LabelPool], Node: pod.Spec.NodeName,
		Ended: over && !podsigns.Collected(pod), Lost: over && podsigns.Collected(pod), Deleting: pod.DeletionTimestamp != nil,
		Protected: slices.Contains(pod.Finalizers, runnerpod.FinalizerRegistration), Work: signs.Work(),
	}
}

// deleteOwner begins the drain of a pool, or of runners that register themselves.
func (c *cluster) deleteOwner(ctx context.Context, o Owner) error {
	uid := types.UID(o.UID)
	err := c.of(pluralOf(o.Kind)).Delete(ctx, o.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}})
	return unlessMoved(err, "deleting %s %s", o.Kind, o.Name)
}

func pluralOf(kind string) string {
	for _, one := range kinds {
		if one.kind == kind {
			return one.plural
		}
	}
	return ""
}

// removePod deletes a runner as it was observed: one that has ended, or that the server has granted. It keeps its grace period (EXCL-2).
func (c *cluster) removePod(ctx context.Context, r Runner) error {
	uid, version := types.UID(r.UID), r.ResourceVersion
	err := c.kube.CoreV1().Pods(c.namespace).Delete(ctx, r.Name, metav1.DeleteOptions{
		Preconditions: &metav1.Preconditions{UID: &uid, ResourceVersion: &version}, // EXCL-2
	})
	return unlessMoved(err, "deleting runner %s", r.Name)
}

// releasePod removes the finalizer of a runner that has exited.
func (c *cluster) releasePod(ctx context.Context, r Runner) error {
	pod, err := c.kube.CoreV1().Pods(c.namespace).Get(ctx, r.Name, metav1.GetOptions{})
	if err != nil || string(pod.UID) != r.UID {
		return unlessMoved(err, "reading runner %s", r.Name)
	}
	patch, err := withoutOurs(pod.UID, pod.ResourceVersion, pod.Finalizers)
	if err != nil {
		return err
	}
	_, err = c.kube.CoreV1().Pods(c.namespace).Patch(ctx, r.Name, types.MergePatchType, patch, metav1.PatchOptions{})
	return unlessMoved(err, "removing the finalizer of runner %s", r.Name)
}

func (c *cluster) deleteAccount(ctx context.Context, name string) error {
	return unlessMoved(c.kube.CoreV1().ServiceAccounts(c.namespace).Delete(ctx, name, metav1.DeleteOptions{}), "deleting the ServiceAccount %s", name)
}

// releaseOwner removes our finalizer, and no other.
func (c *cluster) releaseOwner(ctx context.Context, o Owner) error {
	objects := c.of(pluralOf(o.Kind))
	object, err := objects.Get(ctx, o.Name, metav1.GetOptions{})
	if err != nil || string(object.GetUID()) != o.UID {
		return unlessMoved(err, "reading %s %s", o.Kind, o.Name)
	}
	patch, err := withoutOurs(object.GetUID(), object.GetResourceVersion(), object.GetFinalizers())
	if err != nil {
		return err
	}
	_, err = objects.Patch(ctx, o.Name, types.MergePatchType, patch, metav1.PatchOptions{})
	return unlessMoved(err, "removing the finalizer of %s %s", o.Kind, o.Name)
}

func withoutOurs(uid types.UID, version string, finalizers []string) ([]byte, error) {
	left := slices.DeleteFunc(slices.Clone(finalizers), ours)
	if left == nil {
		left = []string{}
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": uid, "resourceVersion": version, "finalizers": left}})
	if err != nil {
		return nil, fmt.Errorf("encoding a change of finalizers: %w", err)
	}
	return patch, nil
}

// unlessMoved wraps an error. An object that is gone or has changed is read again in the next round.
func unlessMoved(err error, what string, args ...any) error {
	if err == nil || apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	}
	return reach.Cluster(fmt.Sprintf(what, args...), err)
}
