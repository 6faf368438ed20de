package onebox

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/bullpen-ci/bullpen/internal/runnerpod"
)

var (
	isRunning    = corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}
	isTerminated = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{}}
)

func runnerPod(name string, runner, poller corev1.ContainerState, ready bool) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, Namespace: RunnerNamespace, UID: types.UID("00000000-0000-0000-0000-" + (name + "000000000000")[:12]),
			Labels: map[string]string{runnerpod.LabelRunner: "true"},
		},
		Status: corev1.PodStatus{Phase: corev1.PodRunning, ContainerStatuses: []corev1.ContainerStatus{
			{Name: runnerpod.ContainerRunner, State: runner, Ready: ready}, {Name: runnerpod.ContainerPoller, State: poller},
		}},
	}
}

func TestStageOf(t *testing.T) {
	deleted := metav1.Now()
	for name, test := range map[string]struct {
		pod    *corev1.Pod
		change func(*corev1.Pod)
		want   stage
	}{
		"just made":                   {&corev1.Pod{}, nil, stageStarting},
		"not ready yet":               {runnerPod("a", isRunning, isRunning, false), nil, stageStarting},
		"warm":                        {runnerPod("a", isRunning, isRunning, true), nil, stageIdle},
		"its poller has ended":        {runnerPod("a", isRunning, isTerminated, false), nil, stageBusy},
		"it has an owner":             {runnerPod("a", isRunning, isRunning, true), func(p *corev1.Pod) { p.Labels[runnerpod.LabelOwner] = "acme" }, stageBusy},
		"busy and being deleted":      {runnerPod("a", isRunning, isTerminated, false), func(p *corev1.Pod) { p.DeletionTimestamp = &deleted }, stageBusy},
		"warm and being deleted":      {runnerPod("a", isRunning, isRunning, true), func(p *corev1.Pod) { p.DeletionTimestamp = &deleted }, stageTerminating},
		"its runner has ended":        {runnerPod("a", isTerminated, isRunning, false), nil, stageFinished},
		"terminal":                    {runnerPod("a", isTerminated, isTerminated, false), func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed }, stageFinished},
		"terminal, and being deleted": {&corev1.Pod{Status: corev1.PodStatus{Phase: corev1.PodSucceeded}}, func(p *corev1.Pod) { p.DeletionTimestamp = &deleted }, stageFinished},
	} {
		t.Run(name, func(t *testing.T) {
			if test.change != nil {
				test.change(test.pod)
			}
			require.Equal(t, test.want, stageOf(test.pod))
		})
	}
}

func TestPodWatchWitnessesDeletions(t *testing.T) {
	kube := fake.NewClientset(runnerPod("warm", isRunning, isRunning, true), runnerPod("busy", isRunning, isTerminated, false))
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	watch, err := watchPods(t.Context(), kube, func() time.Time { return now })
	require.NoError(t, err)
	defer watch.close()
	require.Equal(t, 1, countStage(watch.rows(), stageIdle))
	require.NoError(t, watch.awaitIdle(t.Context(), 1))

	marked := runnerPod("busy", isRunning, isTerminated, false)
	deleted := metav1.Now()
	marked.DeletionTimestamp, marked.Finalizers = &deleted, []string{"x"}
	_, err = kube.CoreV1().Pods(RunnerNamespace).Update(t.Context(), marked, metav1.UpdateOptions{})
	require.NoError(t, err)
	require.NoError(t, kube.CoreV1().Pods(RunnerNamespace).Delete(t.Context(), "warm", metav1.DeleteOptions{}))
	require.Eventually(t, func() bool { return len(watch.seenRemovals()) == 2 }, patience, interval)
	for _, removal := range watch.seenRemovals() {
		require.False(t, removal.Finished)
		require.Equal(t, now, removal.Seen)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	err = watch.await(ended, "a runner that nobody makes", func([]podRow) bool { return false })
	require.ErrorIs(t, err, context.Canceled)
	require.ErrorContains(t, err, "a runner that nobody makes (0 idle, 1 busy, 0 starting)")
	// Its disappearance in the end is the same deletion.
	require.NoError(t, kube.CoreV1().Pods(RunnerNamespace).Delete(t.Context(), "busy", metav1.DeleteOptions{}))
	require.Eventually(t, func() bool { return len(watch.rows()) == 0 }, patience, interval)
	require.Len(t, watch.seenRemovals(), 2)
}
