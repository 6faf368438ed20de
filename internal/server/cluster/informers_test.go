package cluster

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/bullpen-ci/bullpen/internal/runnerpod"
)

// CLAIM-6: only a poller that exited 0 has staged its answer; the trimmed pod of the watch still tells it apart.
func TestToPod_CLAIM6_OnlyAPollerThatExited0HasAcknowledged(t *testing.T) {
	ended := func(container string, code int32) corev1.ContainerStatus {
		return corev1.ContainerStatus{
			Name: container, State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: code}},
		}
	}
	for name, c := range map[string]struct {
		statuses []corev1.ContainerStatus
		want     bool
	}{
		"no status yet":            {nil, false},
		"the poller runs":          {[]corev1.ContainerStatus{{Name: runnerpod.ContainerPoller}}, false},
		"the poller failed":        {[]corev1.ContainerStatus{ended(runnerpod.ContainerPoller, 1)}, false},
		"the poller was stopped":   {[]corev1.ContainerStatus{ended(runnerpod.ContainerPoller, 143)}, false},
		"only the runner ended":    {[]corev1.ContainerStatus{ended(runnerpod.ContainerRunner, 0)}, false},
		"the poller has delivered": {[]corev1.ContainerStatus{ended(runnerpod.ContainerRunner, 1), ended(runnerpod.ContainerPoller, 0)}, true},
	} {
		trimmed, err := trimPod(&corev1.Pod{Status: corev1.PodStatus{ContainerStatuses: c.statuses}})
		require.NoError(t, err)
		require.Equal(t, c.want, toPod(trimmed.(*corev1.Pod)).PollerEnded, name) //nolint:forcetypeassert // it is one
	}
}
