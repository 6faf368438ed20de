package dispatch

import (
	"context"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
)

// A check that was dropped because too much is waiting is requested again by the next change of the pod.
func TestPodDeleted_EXCL8_ADroppedCheckIsRequestedAgain(t *testing.T) {
	d := &Dispatcher{
		opt:   Options{CheckPod: func(context.Context, string) error { return nil }},
		tasks: make(chan func(context.Context), 1), metrics: newMetrics(prometheus.NewRegistry()),
	}
	pod := Pod{UID: "uid", Name: "pool-a", Deleting: true}
	require.True(t, d.later(func(context.Context) {}))
	d.podDeleted(pod)
	<-d.tasks // bounded: it holds one task
	require.Empty(t, d.tasks, "it was dropped")

	d.podDeleted(pod)
	require.Len(t, d.tasks, 1)
	<-d.tasks // bounded: it holds one task
	d.podDeleted(pod)
	require.Empty(t, d.tasks, "one check for all changes")
}
