package podsigns

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

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

// EXCL-4: a job is shown by the exit of the container idle, and without that container, as in pods of earlier releases, by the readiness of
// the runner. What does not show that no job has started is not jobless.
func TestTaken_EXCL4_ByIdleOrByReadiness(t *testing.T) {
	noon := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	at := func(minutes int) metav1.Time { return metav1.NewTime(noon.Add(time.Duration(minutes) * time.Minute)) }
	running := corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: at(1)}}
	exit := func(code int32, minutes int) corev1.ContainerState {
		return corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: code, FinishedAt: at(minutes)}}
	}
	for name, c := range map[string]struct {
		runner         corev1.ContainerState
		ready          bool
		idle           *corev1.ContainerState
		unready        int // when ContainersReady became false
		taken, jobless bool
		since          int
	}{
		"idle runs":                  {runner: running, ready: true, idle: &running, jobless: true},
		"idle has exited":            {runner: running, ready: true, idle: ptr.To(exit(0, 7)), unready: 5, taken: true, since: 7},
		"idle has crashed":           {runner: running, ready: true, idle: ptr.To(exit(137, 7)), unready: 7, taken: true, since: 7},
		"idle has not started":       {runner: running, ready: true, idle: &corev1.ContainerState{}},
		"the runner has not started": {runner: corev1.ContainerState{}, idle: &running},
		"both have exited":           {runner: exit(0, 9), idle: ptr.To(exit(0, 7))},
		"former: ready":              {runner: running, ready: true, jobless: true},
		"former: no longer ready":    {runner: running, unready: 6, taken: true, since: 6},
		"former: not ready yet":      {runner: running, unready: 0},
		"former: has exited":         {runner: exit(0, 9), unready: 9},
	} {
		pod := &corev1.Pod{Status: corev1.PodStatus{
			ContainerStatuses: []corev1.ContainerStatus{{Name: runnerpod.ContainerRunner, State: c.runner, Ready: c.ready}},
			Conditions:        []corev1.PodCondition{{Type: corev1.ContainersReady, Status: corev1.ConditionFalse, LastTransitionTime: at(c.unready)}},
		}}
		if c.idle != nil {
			pod.Status.ContainerStatuses = append(pod.Status.ContainerStatuses, corev1.ContainerStatus{Name: runnerpod.ContainerIdle, State: *c.idle})
		}
		runner := Container(pod, runnerpod.ContainerRunner)
		since, taken := Taken(pod, runner)
		require.Equal(t, c.taken, taken, name)
		require.Equal(t, c.jobless, Jobless(pod, runner), name)
		if c.taken {
			require.Equal(t, at(c.since).Time, since, name)
		}
		_, none := Taken(pod, nil)
		require.False(t, none || Jobless(pod, nil), name)
	}
}
