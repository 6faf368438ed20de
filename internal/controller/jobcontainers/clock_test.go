package jobcontainers

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The clock of a node decides neither that a request is too old, nor that a courier is too young to be replaced.
func TestDecide_TheClockOfANodeIsBounded(t *testing.T) {
	for offset, want := range map[time.Duration]time.Duration{-time.Hour: 0, -clockSlack: -clockSlack, -time.Second: -time.Second, 0: 0, time.Second: time.Second, time.Hour: 0} {
		f := newFixture(t)
		f.sends("courier", "r-1", f.seal(oneServed), 0, 4096)
		f.pod.ManagedFields = []metav1.ManagedFieldsEntry{{Subresource: "status", Time: &metav1.Time{Time: noon}}}
		for i := range f.pod.Status.ContainerStatuses {
			if ended := f.pod.Status.ContainerStatuses[i].State.Terminated; ended != nil {
				ended.FinishedAt = metav1.NewTime(noon.Add(offset))
			}
		}
		require.Equal(t, noon.Add(want), f.decide(time.Second).asked, offset)
		f.state("courier", corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 1, FinishedAt: metav1.NewTime(noon.Add(offset))}})
		require.Equal(t, revive, f.decide(revivalDelay+time.Second).action, offset)
	}
}
