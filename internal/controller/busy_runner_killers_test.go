package controller_test

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bullpen-ci/bullpen/internal/dev/controlplane"
	"github.com/bullpen-ci/bullpen/internal/runnerpod"
	"github.com/bullpen-ci/bullpen/test/kit"
)

// What deletes pods in Kubernetes by itself, each for real.

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
	return strings.Contains(string(log), namespace+"/"+name+" goes when its pool is drained") ||
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

// A Node object that somebody deletes: after a quarantine of 40 s the pod garbage collector would take its pods, while
// the machine, and the job on it, run on. (The collector looks every 20 s and has no flag for it, so this takes a while.)
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
			if strings.Contains(line, "only its node says when it has ended") && strings.Contains(line, y.namespace) {
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

// disrupted says that a part of the control plane has marked the pod as one that it is about to delete.
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

// POOL-9: evictions, as kubectl drain and the autoscalers of clusters ask for them.
func TestBusyRunner_EXCL7_POOL9_RunnersThatRunAreNotEvicted(t *testing.T) {
	y := newYard(t)
	node := y.env.RegisterNode(t, "drained", nil)
	busy, waiting := y.runner("busy", working, on(node.Name)), y.runner("waiting", idle, on(node.Name))
	booting, starting := y.runner("booting", bootingRunner, on(node.Name)), y.runner("starting", pending, on(node.Name))
	done, failed := y.runner("done", ended(corev1.PodSucceeded), on(node.Name)), y.runner("failed", ended(corev1.PodFailed), on(node.Name))
	y.eventually("the budget has counted them", func() bool {
		var budget policyv1.PodDisruptionBudget
		require.NoError(t, y.admin.Get(t.Context(), client.ObjectKey{Namespace: y.namespace, Name: "bullpen-runner-evictions"}, &budget))
		return budget.Status.ObservedGeneration == budget.Generation && budget.Status.CurrentHealthy == 1
	})
	for _, pod := range []*corev1.Pod{busy, waiting, booting} {
		err := y.evict(pod, nil)
		require.True(t, apierrors.IsTooManyRequests(err), "%s: %v", pod.Name, err)
		y.untouched(pod)
	}
	for _, pod := range []*corev1.Pod{starting, done, failed} {
		require.NoError(t, y.evict(pod, nil), pod.Name)
	}
}
