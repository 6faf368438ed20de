package controller_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	policyv1beta1 "k8s.io/api/policy/v1beta1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bullpen-ci/bullpen/internal/fleet"
	"github.com/bullpen-ci/bullpen/internal/runnerpod"
)

// taint puts a taint on a node, as tools that disrupt nodes do.
func (y *fleetBench) taint(name string, taint corev1.Taint) {
	y.t.Helper()
	require.NoError(y.t, retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		var node corev1.Node
		if err := y.admin.Get(y.t.Context(), client.ObjectKey{Name: name}, &node); err != nil {
			return err
		}
		node.Spec.Taints = append(node.Spec.Taints, taint)
		return y.admin.Update(y.t.Context(), &node)
	}))
}

// stopDeleted is what kubelets do with idle runners that are being deleted. The pod may be gone.
func (y *fleetBench) stopDeleted(pod *corev1.Pod) {
	y.t.Helper()
	y.server.claim(string(pod.UID), fleet.ClaimSpent)
	require.NoError(y.t, client.IgnoreNotFound(y.tryReport(pod.Name, corev1.PodSucceeded, exited(0), exited(0), false)))
	require.NoError(y.t, client.IgnoreNotFound(y.kubelet.Delete(y.t.Context(), pod.DeepCopy(), client.GracePeriodSeconds(0))))
}

// R5: each taint by which a tool says that it takes a node away, as that tool writes it. Idle runners leave and are replaced elsewhere, and the
// busy one stays.
func TestPool_R5_EXCL4_ANodeThatAToolTakesAwayIsLeftByIdleRunnersAlone(t *testing.T) {
	y := newFleetBench(t)
	node := y.node("0")
	y.fleetPool("taken", 3)
	busy := y.onNodes("taken", 3)[0].Name
	y.makeBusy(busy)
	y.eventually("seen", func() bool { s := y.get("taken").Status; return s.Idle == 2 && s.Busy == 1 })
	for i, taint := range []corev1.Taint{
		{Key: "karpenter.sh/disrupted", Effect: corev1.TaintEffectNoSchedule},
		{Key: "karpenter.sh/disruption", Value: "disrupting", Effect: corev1.TaintEffectNoSchedule},
		{Key: "ToBeDeletedByClusterAutoscaler", Value: "1732590000", Effect: corev1.TaintEffectNoSchedule},
		{Key: "aws-node-termination-handler/spot-itn", Value: "i-0abc", Effect: corev1.TaintEffectNoSchedule},
		{Key: "cloud.google.com/impending-node-termination", Effect: corev1.TaintEffectNoSchedule},
		{Key: "node.cloudprovider.kubernetes.io/shutdown", Effect: corev1.TaintEffectNoSchedule},
	} {
		next := y.node(fmt.Sprint(i + 1))
		y.taint(node.Name, taint)
		var there []string
		y.eventually("left for "+taint.ToString(), func() bool {
			there = nil
			for _, pod := range y.pods("taken") {
				switch {
				case pod.Name == busy:
					require.Nil(t, pod.DeletionTimestamp, "the busy one stays")
				case pod.DeletionTimestamp != nil:
					y.stopDeleted(&pod)
				case pod.Spec.NodeName == next.Name:
					there = append(there, pod.Name)
				}
			}
			return len(there) == 2
		})
		y.makeIdle(there...)
		y.eventually("idle again", func() bool { s := y.get("taken").Status; return s.Idle == 2 && s.Busy == 1 })
		node = next
	}
	require.Contains(t, y.podNames("taken"), busy)
}

// R5: Karpenter's way with a node, from its taint to its evictions, in the worst case: the node's runner was claimed a moment ago, and shows
// nothing of it yet. The fence keeps it from the controller; the eviction, which no policy can refuse, is a deletion with the whole grace period, in
// which the job runs to its end and is reported.
func TestPool_R5_EXCL1_EXCL7_ARunnerThatWasJustClaimedKeepsItsJobWhenKarpenterTakesTheNode(t *testing.T) {
	y := newFleetBench(t)
	node := y.node("first")
	y.fleetPool("claimed", 2)
	pods := y.onNodes("claimed", 2)
	claimed, waiting := pods[0], pods[1]
	y.node("second")
	y.server.claim(string(claimed.UID), fleet.ClaimMinted)
	y.taint(node.Name, corev1.Taint{Key: "karpenter.sh/disrupted", Effect: corev1.TaintEffectNoSchedule})
	y.eventually("the idle one leaves", func() bool {
		pod, there := y.podOf(waiting.Name)
		if there && pod.DeletionTimestamp != nil {
			y.stopDeleted(&pod)
		}
		return !there
	})
	pod, there := y.podOf(claimed.Name)
	require.True(t, there)
	require.Nil(t, pod.DeletionTimestamp, "EXCL-1: the claim came first")

	uid := claimed.UID
	require.NoError(t, y.env.Kube.PolicyV1().Evictions(y.namespace).Evict(t.Context(), &policyv1.Eviction{
		ObjectMeta:    metav1.ObjectMeta{Namespace: y.namespace, Name: claimed.Name},
		DeleteOptions: &metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}},
	}))
	y.report(claimed.Name, corev1.PodRunning, exited(0), running(), false) // its job begins
	y.eventually("the pool has seen it", func() bool { return y.get("claimed").Status.Busy == 1 })
	pod, there = y.podOf(claimed.Name)
	require.True(t, there)
	require.EqualValues(t, runnerpod.DefaultGraceSeconds, *pod.DeletionGracePeriodSeconds, "its grace period was not cut")
	y.finish(claimed.Name)
	y.eventually("its end is reported", func() bool {
		report, reported := y.server.reportOf(claimed.Name)
		return reported && report.ExitCode != nil && *report.ExitCode == 0
	})
}

// R5: the cluster autoscaler's way with a node. It asks for a grace period of its own, is refused, and repeats its eviction until the pod is gone,
// which the controller has seen to.
func TestPool_R5_EXCL7_TheClusterAutoscalersEvictionsEndWhenTheFenceHasLetTheRunnerGo(t *testing.T) {
	y := newFleetBench(t)
	node := y.node("first")
	y.fleetPool("scaled", 1)
	waiting := y.onNodes("scaled", 1)[0]
	require.Equal(t, "true", waiting.Annotations["cluster-autoscaler.kubernetes.io/safe-to-evict"], "or it would not choose the node")
	require.NotContains(t, waiting.Annotations, "karpenter.sh/do-not-disrupt")
	y.node("second")
	y.taint(node.Name, corev1.Taint{Key: "ToBeDeletedByClusterAutoscaler", Value: "1732590000", Effect: corev1.TaintEffectNoSchedule})
	y.eventually("it is gone", func() bool {
		if pod, there := y.podOf(waiting.Name); there && pod.DeletionTimestamp != nil {
			y.stopDeleted(&pod)
		}
		err := y.env.Kube.CoreV1().Pods(y.namespace).EvictV1beta1(t.Context(), &policyv1beta1.Eviction{
			ObjectMeta:    metav1.ObjectMeta{Namespace: y.namespace, Name: waiting.Name},
			DeleteOptions: &metav1.DeleteOptions{GracePeriodSeconds: ptr.To[int64](600)},
		})
		require.True(t, apierrors.IsForbidden(err) || apierrors.IsNotFound(err), "%v", err)
		return apierrors.IsNotFound(err)
	})
	y.havePods("scaled", 1)
}

// SCALE-5: a pool that shrinks leaves nodes one after the other.
func TestPool_SCALE5_R5_AShrinkingPoolLeavesTheEmptiestNode(t *testing.T) {
	y := newFleetBench(t)
	full := y.node("full")
	y.fleetPool("shrinks", 3)
	y.onNodes("shrinks", 3)
	y.taint(full.Name, corev1.Taint{Key: "full", Effect: corev1.TaintEffectNoSchedule}) // no more runners there, and none leaves
	few := y.node("few")
	y.scale("shrinks", 4)
	y.onNodes("shrinks", 4)
	y.scale("shrinks", 3)
	y.eventually("the youngest is taken, for it alone holds its node", func() bool {
		for _, pod := range y.pods("shrinks") {
			require.False(t, pod.Spec.NodeName == full.Name && pod.DeletionTimestamp != nil)
			if pod.Spec.NodeName == few.Name && pod.DeletionTimestamp != nil {
				return true
			}
		}
		return false
	})
}
