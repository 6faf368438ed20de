package podsigns

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/bullpen-ci/bullpen/internal/runnerpod"
)

func TestEnded_POD3_R10_WhateverWasInjected(t *testing.T) {
	running := corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}
	waiting := corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{}}
	exit := func(code int32) corev1.ContainerState {
		return corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: code}}
	}
	pod := func(phase corev1.PodPhase, states map[string]corev1.ContainerState) *corev1.Pod {
		p := &corev1.Pod{Status: corev1.PodStatus{Phase: phase}}
		for name, state := range states {
			p.Status.ContainerStatuses = append(p.Status.ContainerStatuses, corev1.ContainerStatus{Name: name, State: state})
		}
		return p
	}
	type states = map[string]corev1.ContainerState
	const poller, runner = runnerpod.ContainerPoller, runnerpod.ContainerRunner
	collected := pod(corev1.PodFailed, states{poller: exit(0), runner: exit(0)})
	collected.Status.Conditions = []corev1.PodCondition{{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: ReasonPodGC}}
	for name, c := range map[string]struct {
		pod                     *corev1.Pod
		ended, attended, failed bool
	}{
		"a sidecar goes on":          {pod(corev1.PodRunning, states{poller: exit(0), runner: exit(0), "istio-proxy": running}), true, true, false},
		"after a failed runner":      {pod(corev1.PodRunning, states{poller: exit(0), runner: exit(1), "istio-proxy": running}), true, true, true},
		"after a failed poller":      {pod(corev1.PodRunning, states{poller: exit(1), runner: exit(0), "istio-proxy": running}), true, true, true},
		"the runner works":           {pod(corev1.PodRunning, states{poller: exit(0), runner: running, "istio-proxy": exit(0)}), false, false, false},
		"the runner has not started": {pod(corev1.PodRunning, states{poller: exit(0), runner: waiting}), false, false, false},
		"the runner has ended alone": {pod(corev1.PodRunning, states{poller: running, runner: exit(1)}), false, false, false},
		"no word of the runner":      {pod(corev1.PodRunning, states{poller: exit(0), "istio-proxy": running}), false, false, false},
		"no word of anything":        {pod(corev1.PodPending, nil), false, false, false},
		"by its phase":               {pod(corev1.PodSucceeded, states{poller: exit(0), runner: exit(0)}), true, false, false},
		"by its phase, failed":       {pod(corev1.PodFailed, nil), true, false, true},
		"only because its node went": {collected, false, false, true},
	} {
		require.Equal(t, c.ended, Ended(c.pod), name)
		require.Equal(t, c.attended, Attended(c.pod), name)
		if c.ended {
			require.Equal(t, c.failed, Failed(c.pod), name)
		}
	}
}
