package controller_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/util/retry"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bullpen-ci/bullpen/api/v1alpha1"
	"github.com/bullpen-ci/bullpen/internal/runnerpod"
)

func prepulled(p *v1alpha1.RunnerPool) {
	p.Spec.ImagePrepull = &v1alpha1.ImagePrepull{Enabled: true, MaxConcurrentPulls: ptr.To(intstr.FromString("100%"))}
}

// apart keeps the pool's runners on different nodes.
func apart(p *v1alpha1.RunnerPool) {
	p.Spec.Template.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{{
		TopologyKey: corev1.LabelHostname, LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{runnerpod.LabelPool: p.Name}},
	}}}}
}

// prepulls are the pre-pull pods that pull that image, by node. Those that are being deleted are removed, as kubelets do.
func (y *fleetBench) prepulls(pool, image string) map[string]corev1.Pod {
	y.t.Helper()
	var pods corev1.PodList
	require.NoError(y.t, y.admin.List(y.t.Context(), &pods, client.InNamespace(y.namespace), client.MatchingLabels{runnerpod.LabelPrepull: pool}))
	found := map[string]corev1.Pod{}
	for _, pod := range pods.Items {
		if pod.DeletionTimestamp != nil {
			require.NoError(y.t, client.IgnoreNotFound(y.kubelet.Delete(y.t.Context(), pod.DeepCopy(), client.GracePeriodSeconds(0))))
			continue
		}
		for _, c := range pod.Spec.InitContainers {
			if c.Image == image && pod.Spec.NodeName != "" {
				found[pod.Spec.NodeName] = pod
			}
		}
	}
	return found
}

// eachPulls waits until a pre-pull pod for that image is on each node.
func (y *fleetBench) eachPulls(pool, image string, nodes ...*corev1.Node) map[string]corev1.Pod {
	y.t.Helper()
	var pods map[string]corev1.Pod
	y.eventually("a pod that pulls "+image+" on each node", func() bool {
		pods = y.prepulls(pool, image)
		return len(pods) == len(nodes)
	})
	for _, node := range nodes {
		require.Contains(y.t, pods, node.Name)
	}
	return pods
}

// says writes a pre-pull pod's status as a kubelet would.
func (y *fleetBench) says(pod corev1.Pod, change func(*corev1.PodStatus)) {
	y.t.Helper()
	require.NoError(y.t, retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		if err := y.admin.Get(y.t.Context(), client.ObjectKeyFromObject(&pod), &pod); err != nil {
			return err
		}
		change(&pod.Status)
		return y.kubelet.Status().Update(y.t.Context(), &pod)
	}))
}

func hasPulled(s *corev1.PodStatus) {
	s.Phase, s.InitContainerStatuses = corev1.PodRunning, nil
	s.Conditions = append(s.Conditions, corev1.PodCondition{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.Now()})
}

func cannotPull(s *corev1.PodStatus) {
	s.InitContainerStatuses = []corev1.ContainerStatus{{Name: "image-1", Image: "runner:2", State: corev1.ContainerState{
		Waiting: &corev1.ContainerStateWaiting{Reason: "ErrImagePull", Message: "manifest unknown"},
	}}}
}

func (y *fleetBench) eventuallySays(pool string, status metav1.ConditionStatus, reason, message string) {
	y.t.Helper()
	y.eventually("ImagesPulled "+reason, func() bool {
		c := y.condition(pool, v1alpha1.ConditionImagesPulled)
		return c != nil && c.Status == status && c.Reason == reason && c.Message == message
	})
}

// runnersByNode are the pool's runners that are not being deleted. Those that are, are stopped as kubelets do.
func (y *fleetBench) runnersByNode(pool string) map[string]corev1.Pod {
	y.t.Helper()
	found := map[string]corev1.Pod{}
	for _, pod := range y.pods(pool) {
		switch {
		case pod.DeletionTimestamp != nil:
			y.stopDeleted(&pod)
		case pod.Status.Phase != corev1.PodSucceeded && pod.Spec.NodeName != "":
			found[pod.Spec.NodeName] = pod
		}
	}
	return found
}

// A roll begins on a node when its images are there. A node that cannot pull them keeps its idle runners, says why, and has its runners
// replaced when they end.
func TestPrepull_POOL5_ARollTakesTheNodesThatHaveTheImages(t *testing.T) {
	y := newFleetBench(t)
	with, without := y.node("with"), y.node("without")
	y.fleetPool("rolls", 2, prepulled, apart, func(p *v1alpha1.RunnerPool) { p.Spec.Rollout.MaxUnavailable = ptr.To(intstr.FromInt32(2)) })
	for _, pod := range y.eachPulls("rolls", "runner:1", with, without) {
		require.NotContains(t, pod.Labels, runnerpod.LabelPool, "POOL-2: a drained pool waits for no such pod")
		y.says(pod, hasPulled)
	}
	y.eventuallySays("rolls", metav1.ConditionTrue, "Pulled", "the images are on 2 of 2 nodes")
	y.onNodes("rolls", 2)
	before := y.runnersByNode("rolls")
	require.Len(t, before, 2)

	y.edit("rolls", func(p *v1alpha1.RunnerPool) { p.Spec.Template.Image = "runner:2" })
	pulling := y.eachPulls("rolls", "runner:2", with, without)
	y.says(pulling[without.Name], cannotPull)
	y.says(pulling[with.Name], hasPulled)
	var after map[string]corev1.Pod
	y.eventually("rolled where the images are", func() bool {
		after = y.runnersByNode("rolls")
		return after[with.Name].Name != "" && after[with.Name].Name != before[with.Name].Name
	})
	require.Equal(t, before[without.Name].Name, after[without.Name].Name)
	y.makeIdle(after[with.Name].Name)
	y.eventually("idle again", func() bool { return y.get("rolls").Status.Idle == 2 })
	y.eventuallySays("rolls", metav1.ConditionFalse, v1alpha1.ReasonPullFailed, "the images are on 1 of 2 nodes; failed on "+without.Name+": ErrImagePull: manifest unknown")
	require.Equal(t, before[without.Name].Name, y.runnersByNode("rolls")[without.Name].Name, "it still serves, with the template that it has")

	y.makeBusy(before[without.Name].Name)
	y.finish(before[without.Name].Name)
	y.eventually("what ends is replaced, images or not", func() bool {
		pod := y.runnersByNode("rolls")[without.Name]
		return pod.Name != "" && pod.Name != before[without.Name].Name && pod.Labels[runnerpod.LabelTemplateHash] == after[with.Name].Labels[runnerpod.LabelTemplateHash]
	})
	y.says(pulling[without.Name], hasPulled)
	y.eventuallySays("rolls", metav1.ConditionTrue, "Pulled", "the images are on 2 of 2 nodes")
}

// New runners go where the images are, although the other node is as empty.
func TestPrepull_NewRunnersPreferNodesWithTheImages(t *testing.T) {
	y := newFleetBench(t)
	without, with := y.node("first"), y.node("second")
	y.fleetPool("prefers", 0, prepulled)
	y.says(y.eachPulls("prefers", "runner:1", with, without)[with.Name], hasPulled)
	y.eventuallySays("prefers", metav1.ConditionFalse, "Pulling", "the images are on 1 of 2 nodes; see DaemonSet prefers-prepull")
	y.scale("prefers", 4)
	for _, pod := range y.onNodes("prefers", 4) {
		require.Equal(t, with.Name, pod.Spec.NodeName)
	}
}

// NET-8: under the role that is shipped, the DaemonSet is made with the pool, follows it, comes back when another client deletes it, and goes
// when it is no longer asked for or the pool is deleted.
func TestPrepull_NET8_TheDaemonSetFollowsItsPool(t *testing.T) {
	y := newFleetBench(t)
	node := y.node("one")
	read := func() (*appsv1.DaemonSet, bool) {
		var set appsv1.DaemonSet
		err := y.admin.Get(t.Context(), types.NamespacedName{Namespace: y.namespace, Name: "follows-prepull"}, &set)
		if apierrors.IsNotFound(err) {
			return nil, false
		}
		require.NoError(t, err)
		return &set, set.DeletionTimestamp == nil
	}
	y.fleetPool("follows", 0, prepulled)
	y.eachPulls("follows", "runner:1", node)
	made, there := read()
	require.True(t, there)
	require.True(t, metav1.IsControlledBy(made, y.get("follows")))
	require.Equal(t, y.namespace, made.Spec.Template.Spec.NodeSelector["fleet"])
	require.Equal(t, "100%", made.Spec.UpdateStrategy.RollingUpdate.MaxUnavailable.StrVal)

	y.edit("follows", func(p *v1alpha1.RunnerPool) { p.Spec.ImagePrepull.MaxConcurrentPulls = ptr.To(intstr.FromInt32(1)) })
	y.eventually("it follows", func() bool {
		set, there := read()
		return there && set.UID == made.UID && set.Spec.UpdateStrategy.RollingUpdate.MaxUnavailable.IntVal == 1
	})
	require.NoError(t, y.admin.Delete(t.Context(), made.DeepCopy()))
	y.eventually("it comes back", func() bool { set, there := read(); return there && set.UID != made.UID })
	y.edit("follows", func(p *v1alpha1.RunnerPool) { p.Spec.ImagePrepull.Enabled = false })
	y.eventually("it goes", func() bool { _, there := read(); return !there })
	y.eventually("and nothing is said of images", func() bool { return y.condition("follows", v1alpha1.ConditionImagesPulled) == nil })
	y.edit("follows", func(p *v1alpha1.RunnerPool) { p.Spec.ImagePrepull.Enabled = true })
	y.eventually("it is back", func() bool { _, there := read(); return there })
	require.NoError(t, y.admin.Delete(t.Context(), y.get("follows")))
	y.eventually("the pool goes, and it with it", func() bool { _, there := read(); return !there && y.poolGone("follows") })
}

// A controller that has just been started knows of no image, and rolls nothing until it has seen the pods.
func TestPrepull_POOL5_ARestartRollsNothingBeforeItHasSeenTheImages(t *testing.T) {
	y := newFleetBench(t)
	node := y.node("one")
	y.fleetPool("restarts", 1, prepulled)
	y.says(y.eachPulls("restarts", "runner:1", node)[node.Name], hasPulled)
	runner := y.onNodes("restarts", 1)[0]
	y.stop()
	y.edit("restarts", func(p *v1alpha1.RunnerPool) { p.Spec.Template.Image = "runner:2" })
	y.start()
	pulling := y.eachPulls("restarts", "runner:2", node)[node.Name]
	y.eventuallySays("restarts", metav1.ConditionFalse, "Pulling", "the images are on 0 of 1 node; see DaemonSet restarts-prepull")
	pod, there := y.podOf(runner.Name)
	require.True(t, there)
	require.Nil(t, pod.DeletionTimestamp)
	y.says(pulling, hasPulled)
	y.eventually("then it is rolled", func() bool {
		pod := y.runnersByNode("restarts")[node.Name]
		return pod.Name != "" && pod.Name != runner.Name
	})
}
