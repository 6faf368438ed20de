package controller_test

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	policyv1beta1 "k8s.io/api/policy/v1beta1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bullpen-ci/bullpen/internal/dev/controlplane"
	"github.com/bullpen-ci/bullpen/internal/runnerpod"
	"github.com/bullpen-ci/bullpen/test/kit"
)

// Kubernetes' own deletions of pods, each for real.

func (y *yard) evict(pod *corev1.Pod, options *metav1.DeleteOptions) error {
	return y.env.Kube.PolicyV1().Evictions(pod.Namespace).Evict(y.t.Context(), &policyv1.Eviction{
		ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name}, DeleteOptions: options,
	})
}

// owner makes an object that owns pods, and the change that makes a pod its own.
func (y *yard) owner(name string) (*corev1.ConfigMap, func(*corev1.Pod)) {
	y.t.Helper()
	owner := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: y.namespace, Name: name}}
	require.NoError(y.t, y.admin.Create(y.t.Context(), owner))
	return owner, func(pod *corev1.Pod) {
		pod.OwnerReferences = []metav1.OwnerReference{{
			APIVersion: "v1", Kind: "ConfigMap", Name: owner.Name, UID: owner.UID,
			Controller: ptr.To(true), BlockOwnerDeletion: ptr.To(true),
		}}
	}
}

// EXCL-2: what a deleted owner leaves is the controller's to remove, whatever it shows and however the owner was deleted.
func TestRunner_EXCL2_TheGarbageCollectorTakesNone(t *testing.T) {
	for name, policy := range map[string]metav1.DeletionPropagation{
		"background": metav1.DeletePropagationBackground, "foreground": metav1.DeletePropagationForeground,
	} {
		t.Run(name, func(t *testing.T) {
			y := newYard(t)
			owner, its := y.owner("owner")
			pods := []*corev1.Pod{y.runner("busy", working, its), y.runner("unused", idle, its)}
			account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{
				Namespace: y.namespace, Name: "account", Labels: map[string]string{runnerpod.LabelRunner: "true"}, OwnerReferences: pods[1].OwnerReferences,
			}}
			require.NoError(t, y.admin.Create(t.Context(), account))
			require.NoError(t, y.admin.Delete(t.Context(), owner, client.PropagationPolicy(policy)))
			for _, object := range []client.Object{pods[0], pods[1], account} {
				y.eventually("the collector has tried and was refused", func() bool {
					return collectorWasRefused(t, y.env, y.namespace, object.GetName()) || y.gone(object)
				})
				require.False(t, y.gone(object))
			}
			y.untouched(pods[0])
			y.untouched(pods[1])
			allowed := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"annotations":{"bullpen.dev/allow-deletion":"the controller is gone"}}}`))
			require.NoError(t, y.admin.Patch(t.Context(), account, allowed))
			y.eventually("it tries again, and takes what it is allowed", func() bool { return y.gone(account) })
		})
	}
}

// collectorWasRefused looks into the log of kube-controller-manager for the refusal of one object's collection.
func collectorWasRefused(t *testing.T, env *kit.Env, namespace, name string) bool {
	t.Helper()
	log, err := os.ReadFile(env.Plane.LogPath(controlplane.ControllerManager))
	require.NoError(t, err)
	// Of several policies that refuse, the API server names one, in the order of a map.
	return strings.Contains(string(log), namespace+"/"+name+" is removed when its pool is drained") ||
		strings.Contains(string(log), "kubectl annotate pod -n "+namespace+" "+name+" ")
}

func TestBusyRunner_EXCL7_ANamespaceWaitsForItsEnd(t *testing.T) {
	y := newYard(t)
	busy := y.runner("busy", working)
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: y.namespace}}
	require.NoError(t, y.admin.Delete(t.Context(), namespace))
	y.eventually("the namespace says what is in its way", func() bool {
		require.NoError(t, y.admin.Get(t.Context(), client.ObjectKeyFromObject(namespace), namespace))
		for _, c := range namespace.Status.Conditions {
			if c.Type == corev1.NamespaceDeletionContentFailure && c.Status == corev1.ConditionTrue {
				return strings.Contains(c.Message, "this runner is busy")
			}
		}
		return false
	})
	y.untouched(busy)
	y.become(busy, ended(corev1.PodSucceeded))
	y.eventually("it goes when the job is done", func() bool {
		return apierrors.IsNotFound(y.admin.Get(t.Context(), client.ObjectKeyFromObject(namespace), namespace))
	})
}

// Deleting a Node object while its machine and the job on it continue. The pod garbage collector would delete the pods after a quarantine
// of 40 s. (The collector runs every 20 s and has no flag for the interval, so this test is slow.)
func TestBusyRunner_EXCL7_ThePodGarbageCollectorLeavesItAlone(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	node := y.env.RegisterNode(t, "forgotten", nil)
	busy, unused := y.runner("busy", working, on(node.Name)), y.runner("unused", idle, on(node.Name))
	require.NoError(t, y.admin.Delete(t.Context(), node))
	y.eventually("the idle one is collected", func() bool { return y.gone(unused) })
	y.eventually("the collector has tried to end the busy one", func() bool {
		log, err := os.ReadFile(y.env.Plane.LogPath(controlplane.ControllerManager))
		require.NoError(t, err)
		for line := range strings.Lines(string(log)) {
			if strings.Contains(line, "only its node may report its exit") && strings.Contains(line, y.namespace) {
				return true
			}
		}
		return !busyRuns(y, busy) // it was let: the rest of this test says so
	})
	y.untouched(busy)
}

func busyRuns(y *yard, pod *corev1.Pod) bool {
	var now corev1.Pod
	err := y.admin.Get(y.t.Context(), client.ObjectKeyFromObject(pod), &now)
	return err == nil && now.DeletionTimestamp == nil && now.Status.Phase == corev1.PodRunning
}

// disrupted reports whether a component of the control plane has marked the pod as one that it is about to delete.
func (y *yard) disrupted(pod *corev1.Pod, reason string) bool {
	var now corev1.Pod
	if err := y.admin.Get(y.t.Context(), client.ObjectKeyFromObject(pod), &now); err != nil {
		return true // further than marked
	}
	for _, c := range now.Status.Conditions {
		if c.Type == corev1.DisruptionTarget && c.Reason == reason {
			return true
		}
	}
	return false
}

func TestBusyRunner_EXCL7_ATaintDoesNotEvictIt(t *testing.T) {
	y := newYard(t)
	node := y.env.RegisterNode(t, "tainted", nil)
	busy, unused := y.runner("busy", working, on(node.Name)), y.runner("unused", idle, on(node.Name))
	base := node.DeepCopy()
	node.Spec.Taints = append(node.Spec.Taints, corev1.Taint{Key: "maintenance", Effect: corev1.TaintEffectNoExecute})
	require.NoError(t, y.admin.Patch(t.Context(), node, client.MergeFrom(base)))
	marked := func(pod *corev1.Pod) func() bool {
		return func() bool { return y.disrupted(pod, "DeletionByTaintManager") }
	}
	leaves := func(pod *corev1.Pod) func() bool { return func() bool { return !busyRuns(y, pod) } }
	y.eventually("the busy one is meant too", marked(busy))
	y.eventually("the idle one is evicted", leaves(unused))
	last := y.runner("last", idle, on(node.Name))
	y.eventually("and what came after it", leaves(last))
	y.untouched(busy)
}

func TestBusyRunner_EXCL7_TheSchedulerDoesNotPreemptIt(t *testing.T) {
	y := newYard(t)
	small := func(node *corev1.Node) {
		room := corev1.ResourceList{
			corev1.ResourceCPU: resource.MustParse("2"), corev1.ResourceMemory: resource.MustParse("4Gi"), corev1.ResourcePods: resource.MustParse("9"),
		}
		node.Status.Capacity, node.Status.Allocatable = room, room
	}
	node := y.env.RegisterNode(t, "crowded", small)
	needs := func(cpu string) func(*corev1.Pod) {
		return func(pod *corev1.Pod) {
			pod.Spec.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu)}
		}
	}
	busy := y.runner("busy", working, on(node.Name), needs("2"))
	urgent := &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: "urgent-" + y.namespace}, Value: 1000}
	require.NoError(t, y.admin.Create(t.Context(), urgent))
	y.eventually("admission knows the class, which it learns by a watch", func() bool {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: y.namespace, Name: "first"}, Spec: corev1.PodSpec{
			PriorityClassName: urgent.Name, Containers: []corev1.Container{{Name: "any", Image: "none"}}, AutomountServiceAccountToken: ptr.To(false),
		}}
		return y.admin.Create(t.Context(), pod, client.DryRunAll) == nil
	})
	rival := y.runner("rival", func(*corev1.Pod) {}, needs("1"), func(pod *corev1.Pod) {
		pod.Labels = nil
		pod.Spec.PriorityClassName, pod.Spec.SchedulerName = urgent.Name, corev1.DefaultSchedulerName
		pod.Spec.NodeSelector = map[string]string{corev1.LabelHostname: node.Name}
	})
	y.eventually("the busy one is chosen as the victim", func() bool { return y.disrupted(busy, "PreemptionByScheduler") })
	placed := func() bool {
		require.NoError(t, y.admin.Get(t.Context(), client.ObjectKeyFromObject(rival), rival))
		return rival.Spec.NodeName != ""
	}
	require.False(t, placed())
	y.untouched(busy)
	y.become(busy, ended(corev1.PodSucceeded))
	y.eventually("the rival comes when the job is done", placed)
}

// known waits until the API server's own cache, by which it judges evictions, shows a pod as it is: until a condition holds of a dry run.
func (y *yard) known(pod *corev1.Pod, condition func() bool) {
	y.t.Helper()
	y.eventually("the API server knows "+pod.Name, condition)
}

// keepsItsGrace requires that an eviction with a grace period of its own is refused.
func (y *yard) keepsItsGrace(pod *corev1.Pod, grace int64) {
	y.t.Helper()
	options := metav1.DeleteOptions{GracePeriodSeconds: &grace}
	y.known(pod, func() bool {
		try := options
		try.DryRun = []string{metav1.DryRunAll}
		return apierrors.IsForbidden(y.evict(pod, &try))
	})
	refusedAs(y.t, y.evict(pod, &options), "must not shorten the grace period")
}

// evictions that clients of the eviction API ask for, each as it does.
func (y *yard) evictions(pod *corev1.Pod) map[string]error {
	uid := pod.UID
	return map[string]error{
		"kubectl drain": y.evict(pod, nil),
		"Karpenter":     y.evict(pod, &metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}}),
		"by UID and version": y.evict(pod, &metav1.DeleteOptions{
			Preconditions: &metav1.Preconditions{UID: &uid, ResourceVersion: ptr.To(pod.ResourceVersion)},
		}),
	}
}

// budgetOf waits until a budget has been computed for exactly that many pods.
func (y *yard) budgetOf(name string, pods int32) {
	y.t.Helper()
	y.eventually("the budget "+name+" has counted them", func() bool {
		var budget policyv1.PodDisruptionBudget
		require.NoError(y.t, y.admin.Get(y.t.Context(), client.ObjectKey{Namespace: y.namespace, Name: name}, &budget))
		return budget.Status.ObservedGeneration == budget.Generation && budget.Status.ExpectedPods == pods && budget.Status.DisruptionsAllowed == 0
	})
}

// POOL-9: evictions, as kubectl drain and the autoscalers of clusters ask for them. Busy runners stay, by whatever sign they are busy; what is
// refused by the budget is asked for again.
func TestBusyRunner_EXCL7_POOL9_RunnersThatRunAreNotEvicted(t *testing.T) {
	y := newYard(t)
	node := y.env.RegisterNode(t, "drained", nil)
	labelled := []*corev1.Pod{y.runner("owned", owned, on(node.Name)), y.runner("working", working, on(node.Name))}
	unlabelled := []*corev1.Pod{y.runner("polled", pollerEnded, on(node.Name)), y.runner("taken", takenRunner, on(node.Name))}
	registered := func(pod *corev1.Pod) { pod.Labels[runnerpod.LabelSelfRegistering] = "true" }
	self := []*corev1.Pod{
		y.runner("self-idle", idle, on(node.Name), registered), y.runner("self-taken", takenRunner, on(node.Name), registered),
		y.runner("self-booting", bootingRunner, on(node.Name), registered),
	}
	for range 3 { // idle runners beside them do not make a budget of the busy ones
		y.runner("waiting-"+runnerpod.NewSuffix(), idle, on(node.Name))
	}
	starting := y.runner("starting", pending, on(node.Name))
	done, failed := y.runner("done", ended(corev1.PodSucceeded), on(node.Name)), y.runner("failed", ended(corev1.PodFailed), on(node.Name))
	y.budgetOf("bullpen-runner-evictions", 4)
	y.budgetOf("bullpen-registered-evictions", 3)
	for _, pod := range append(labelled, self...) {
		for who, err := range y.evictions(pod) {
			require.True(t, apierrors.IsTooManyRequests(err), "%s by %s: %v", pod.Name, who, err)
		}
		y.untouched(pod)
	}
	for _, pod := range unlabelled {
		y.known(pod, func() bool {
			return apierrors.IsForbidden(y.evict(pod, &metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}}))
		})
		for who, err := range y.evictions(pod) {
			require.True(t, apierrors.IsForbidden(err), "%s by %s: %v", pod.Name, who, err)
			require.ErrorContains(t, err, "this runner is busy")
			require.ErrorContains(t, err, "kubectl annotate pod -n "+y.namespace+" "+pod.Name+` bullpen.dev/allow-deletion="say why"`)
		}
		y.untouched(pod)
	}
	for _, pod := range []*corev1.Pod{starting, done} {
		require.NoError(t, y.evict(pod, nil), pod.Name)
	}
	y.eventually("one that has ended may be evicted in any way", func() bool {
		return y.evict(failed, &metav1.DeleteOptions{GracePeriodSeconds: ptr.To[int64](0)}) == nil
	})
	require.True(t, apierrors.IsNotFound(y.evict(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: y.namespace, Name: "gone"}},
		&metav1.DeleteOptions{GracePeriodSeconds: ptr.To[int64](600)})), "R5: the cluster autoscaler gets not found")
	foreign := y.runner("foreign", working, func(pod *corev1.Pod) { delete(pod.Labels, runnerpod.LabelRunner) }, on(node.Name))
	require.NoError(t, y.evict(foreign, &metav1.DeleteOptions{GracePeriodSeconds: ptr.To[int64](30)}), "a pod that is no runner")
	y.env.AllowDeletion(t, y.namespace, unlabelled[0].Name)
	y.eventually("one that may be deleted may be evicted", func() bool { return y.evict(unlabelled[0], nil) == nil })
}

// R5: a node with idle runners alone has no pod whose budget forbids its disruption, and none that the cluster autoscaler keeps a node for. So
// Karpenter and the cluster autoscaler choose it.
func TestIdleRunner_R5_POOL9_HoldsNoNode(t *testing.T) {
	y := newYard(t)
	node := y.env.RegisterNode(t, "spare", nil)
	waiting := y.runner("waiting", idle, on(node.Name))
	booting := y.runner("booting", bootingRunner, on(node.Name))
	var budgets policyv1.PodDisruptionBudgetList
	require.NoError(t, y.admin.List(t.Context(), &budgets, client.InNamespace(y.namespace)))
	require.NotEmpty(t, budgets.Items)
	for _, pod := range []*corev1.Pod{waiting, booting} {
		for i := range budgets.Items {
			selector, err := metav1.LabelSelectorAsSelector(budgets.Items[i].Spec.Selector)
			require.NoError(t, err)
			require.False(t, selector.Matches(labels.Set(pod.Labels)), "%s is covered by %s", pod.Name, budgets.Items[i].Name)
		}
	}

	// The cluster autoscaler asks for a grace period of its own, which could be shorter than a job that has just begun. It is refused, and asks
	// again until the pod is gone, as the controller removes it.
	for _, pod := range []*corev1.Pod{waiting, booting} {
		y.keepsItsGrace(pod, 600)
		refusedAs(t, y.env.Kube.CoreV1().Pods(y.namespace).EvictV1beta1(t.Context(), &policyv1beta1.Eviction{
			ObjectMeta:    metav1.ObjectMeta{Namespace: y.namespace, Name: pod.Name},
			DeleteOptions: &metav1.DeleteOptions{GracePeriodSeconds: ptr.To[int64](600)},
		}), "must not shorten the grace period")
		y.untouched(pod)
	}
}

// R5, EXCL-7: the eviction of a runner that looks idle is a deletion with its whole grace period, which no client can shorten. A job that it was given in
// the same moment runs in it.
func TestIdleRunner_R5_EXCL7_AnEvictionLeavesItsWholeGracePeriod(t *testing.T) {
	y := newYard(t)
	node := y.env.RegisterNode(t, "consolidated", nil)
	pod := y.runner("waiting", idle, on(node.Name))
	uid := pod.UID
	karpenter := &metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}}
	require.NoError(t, y.evict(pod, karpenter))
	require.NoError(t, y.admin.Get(t.Context(), client.ObjectKeyFromObject(pod), pod))
	require.NotNil(t, pod.DeletionTimestamp)
	require.EqualValues(t, 6*60*60, *pod.DeletionGracePeriodSeconds)
	deadline := pod.DeletionTimestamp

	y.become(pod, working) // it had been given a job: what shows that comes later
	require.NoError(t, y.evict(pod, karpenter), "evicting it once more changes nothing")
	for name, grace := range map[string]int64{"by force": 0, "Karpenter at the end of a terminationGracePeriod": 120} {
		require.True(t, apierrors.IsForbidden(y.admin.Delete(t.Context(), pod.DeepCopy(), client.GracePeriodSeconds(grace))), name)
	}
	y.keepsItsGrace(pod, 600)
	require.NoError(t, y.admin.Get(t.Context(), client.ObjectKeyFromObject(pod), pod))
	require.Equal(t, deadline, pod.DeletionTimestamp)
	require.Equal(t, corev1.PodRunning, pod.Status.Phase)
}
