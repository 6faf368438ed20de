package realnode

import (
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/bullpen-ci/bullpen/internal/runnerpod"
	"github.com/bullpen-ci/bullpen/test/kit"
)

// removeRunners deletes and evicts busy and idle runners, as the table of docs/guides/busy-runners.md says.
func (w *world) removeRunners() {
	w.duringJobs("deletions and evictions", func() {
		busy := w.await("a busy runner that shows it", isBusy)
		for what, options := range map[string]metav1.DeleteOptions{
			"deletion": {}, "deletion by force": {GracePeriodSeconds: new(int64)}, "deletion that is dry run": {DryRun: []string{metav1.DryRunAll}},
		} {
			w.requireRefused(what+" of a busy runner", w.delete(busy, options))
		}
		require.True(w, apierrors.IsTooManyRequests(w.evict(busy)), "eviction of a busy runner")
		w.requireRefused("another image of a busy runner", w.setImage(busy))
		now, err := w.kube.CoreV1().Pods(runnersNamespace).Get(w.Context(), busy.Name, metav1.GetOptions{})
		require.NoError(w, err)
		require.Equal(w, busy.UID, now.UID)
		require.Nil(w, now.DeletionTimestamp)

		idle := w.await("an idle runner", isIdle)
		w.requireRefused("deletion by force of an idle runner", w.delete(idle, metav1.DeleteOptions{GracePeriodSeconds: new(int64)}))
		require.NoError(w, w.delete(idle, metav1.DeleteOptions{}))
		w.awaitGone(idle)
		idle = w.await("another idle runner", isIdle)
		require.NoError(w, w.evict(idle))
		w.awaitGone(idle)
		w.await("an idle runner in its place", isIdle)
	})
}

func (w *world) delete(pod corev1.Pod, options metav1.DeleteOptions) error {
	options.Preconditions = &metav1.Preconditions{UID: &pod.UID}
	return w.kube.CoreV1().Pods(pod.Namespace).Delete(w.Context(), pod.Name, options)
}

// evict asks as kubectl drain and Karpenter do.
func (w *world) evict(pod corev1.Pod) error {
	return w.kube.PolicyV1().Evictions(pod.Namespace).Evict(w.Context(), &policyv1.Eviction{
		ObjectMeta:    metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name},
		DeleteOptions: &metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &pod.UID}},
	})
}

func (w *world) setImage(pod corev1.Pod) error {
	patch := []byte(`{"spec":{"containers":[{"name":"` + runnerpod.ContainerRunner + `","image":"registry.test/other:v1"}]}}`)
	_, err := w.kube.CoreV1().Pods(pod.Namespace).Patch(w.Context(), pod.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{})
	return err
}

// requireRefused requires an admission policy's refusal: 403 or 422, by the policy.
func (w *world) requireRefused(what string, err error) {
	w.Helper()
	require.True(w, apierrors.IsForbidden(err) || apierrors.IsInvalid(err), "%s: %v", what, err)
}

// isBusy is a runner whose server and kubelet both show its job.
func isBusy(pod *corev1.Pod) bool {
	return pod.DeletionTimestamp == nil && pod.Status.Phase == corev1.PodRunning && kit.Owned(pod)
}

// isIdle is a runner that may be given a job.
func isIdle(pod *corev1.Pod) bool {
	if pod.DeletionTimestamp != nil || kit.Owned(pod) || pod.Status.Phase != corev1.PodRunning {
		return false
	}
	for _, condition := range pod.Status.Conditions {
		if condition.Type == corev1.PodReady {
			return condition.Status == corev1.ConditionTrue
		}
	}
	return false
}

// await returns a runner for which all hold.
func (w *world) await(what string, holds ...func(*corev1.Pod) bool) corev1.Pod {
	w.Helper()
	var found *corev1.Pod
	w.eventually(what, func() bool {
		pods := w.runners()
	pods:
		for i := range pods {
			for _, hold := range holds {
				if !hold(&pods[i]) {
					continue pods
				}
			}
			found = &pods[i]
			return true
		}
		return false
	})
	return *found
}

func (w *world) awaitGone(pod corev1.Pod) {
	w.Helper()
	w.eventually(pod.Name+" is gone", func() bool {
		now, err := w.kube.CoreV1().Pods(pod.Namespace).Get(w.Context(), pod.Name, metav1.GetOptions{})
		return apierrors.IsNotFound(err) || err == nil && now.UID != pod.UID
	})
}
