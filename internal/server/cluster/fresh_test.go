package cluster

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/bullpen-ci/bullpen/internal/runnerpod"
	"github.com/bullpen-ci/bullpen/internal/server/recovery"
)

// EXCL-6, POOL-7: what recovery uses. A pod that is marked failed because its node is gone has not been seen to end.
func TestFreshPod_EXCL6_POOL7_ReadsThePodsOwnSigns(t *testing.T) {
	noon := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	at := func(minutes int) metav1.Time { return metav1.NewTime(noon.Add(time.Duration(minutes) * time.Minute)) }
	running := corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: at(1)}}
	ended := func(code int32, minutes int) corev1.ContainerState {
		return corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: code, FinishedAt: at(minutes)}}
	}
	notReady := func(minutes int) corev1.PodCondition {
		return corev1.PodCondition{Type: corev1.ContainersReady, Status: corev1.ConditionFalse, LastTransitionTime: at(minutes)}
	}
	status := func(phase corev1.PodPhase, poller, runner corev1.ContainerState, ready bool, conditions ...corev1.PodCondition) corev1.PodStatus {
		return corev1.PodStatus{Phase: phase, Conditions: conditions, ContainerStatuses: []corev1.ContainerStatus{
			{Name: runnerpod.ContainerPoller, State: poller}, {Name: runnerpod.ContainerRunner, State: runner, Ready: ready},
		}}
	}
	with := func(s corev1.PodStatus, idle corev1.ContainerState) corev1.PodStatus {
		s.ContainerStatuses = append(s.ContainerStatuses, corev1.ContainerStatus{Name: runnerpod.ContainerIdle, State: idle})
		return s
	}
	byPodGC := corev1.PodCondition{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: "DeletionByPodGC"}
	for name, c := range map[string]struct {
		status   corev1.PodStatus
		poller   recovery.PollerIs
		runner   recovery.RunnerIs
		terminal bool
		since    int // minutes after noon
	}{
		"nothing is known yet":       {corev1.PodStatus{Phase: corev1.PodPending}, recovery.Polls, recovery.Starting, false, 0},
		"it starts":                  {status(corev1.PodRunning, running, running, false, notReady(0)), recovery.Polls, recovery.Starting, false, 0},
		"it waits":                   {status(corev1.PodRunning, running, running, true), recovery.Polls, recovery.Ready, false, 0},
		"a configuration is there":   {status(corev1.PodRunning, ended(0, 5), running, false, notReady(6)), recovery.Delivered, recovery.NotReady, false, 6},
		"no job has started":         {with(status(corev1.PodRunning, ended(0, 5), running, true, notReady(5)), running), recovery.Delivered, recovery.Ready, false, 5},
		"a job has started":          {with(status(corev1.PodRunning, ended(0, 5), running, true, notReady(5)), ended(0, 6)), recovery.Delivered, recovery.NotReady, false, 6},
		"it cannot tell":             {with(status(corev1.PodRunning, running, running, true, notReady(6)), ended(137, 6)), recovery.Polls, recovery.NotReady, false, 6},
		"idle has not started yet":   {with(status(corev1.PodRunning, running, running, true), corev1.ContainerState{}), recovery.Polls, recovery.Starting, false, 0},
		"its job has ended":          {with(status(corev1.PodRunning, ended(0, 5), ended(0, 9), false), ended(0, 6)), recovery.Delivered, recovery.Stopped, true, 9},
		"the poller has crashed":     {status(corev1.PodRunning, ended(137, 5), running, true), recovery.Failed, recovery.Ready, false, 5},
		"only the runner has ended":  {status(corev1.PodRunning, running, ended(1, 7), false), recovery.Polls, recovery.Stopped, false, 7},
		"it has ended":               {status(corev1.PodSucceeded, ended(0, 5), ended(0, 9), false), recovery.Delivered, recovery.Stopped, true, 9},
		"its node is gone":           {status(corev1.PodFailed, ended(0, 5), running, false, notReady(6), byPodGC), recovery.Delivered, recovery.NotReady, false, 6},
		"it failed, its node is not": {status(corev1.PodFailed, ended(1, 5), ended(1, 8), false), recovery.Failed, recovery.Stopped, true, 8},
	} {
		got := freshPod(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{CreationTimestamp: at(0)}, Status: c.status})
		require.Equal(t, c.poller, got.Poller, name)
		require.Equal(t, c.runner, got.Runner, name)
		require.Equal(t, c.terminal, got.Terminal, name)
		require.Equal(t, at(c.since).Time, got.Since, name)
	}
}
