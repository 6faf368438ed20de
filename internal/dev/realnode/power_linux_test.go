package realnode

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/bullpen-ci/bullpen/test/kit/await"
)

// A node that is powered off waits for its pods, is gone then, and has its disk when it starts again.
func TestNode_ShutsDownAndStartsAgain(t *testing.T) {
	w := newWorld(t)
	node, err := w.cluster.AddNodeWith(w.ctx, "one", NodeOptions{ShutdownGracePeriod: time.Minute})
	require.NoError(t, err)
	w.importHost(node)
	patient := func(pod *corev1.Pod) { *pod.Spec.TerminationGracePeriodSeconds = 60 }
	w.run("patient", `trap "echo asked; sleep 2; echo done; exit 0" TERM; echo ready; while :; do sleep 0.1; done`, patient)
	w.phase("patient", corev1.PodRunning)

	off := make(chan error, 1)
	go func() { off <- node.PowerOff(w.ctx) }()
	require.NoError(t, await.ReceiveWithin(t, 4*time.Minute, off, "the node is off"))
	require.True(t, node.init.Exited())
	require.Error(t, node.PowerOff(w.ctx), "it is off")

	require.NoError(t, node.Boot(w.ctx))
	require.Error(t, node.Boot(w.ctx), "it runs")
	w.run("after", "true", nil) // by the image from before
	w.phase("after", corev1.PodSucceeded)
	// A kubelet that has just started serves no log until it has listed its pods, as it has by now.
	require.Equal(t, "ready\nasked\ndone\n", w.logs("patient"), "its log is on the node's disk")
	require.NoError(t, w.kube.CoreV1().Pods("default").Delete(w.ctx, "patient", metav1.DeleteOptions{}))
}

func TestNode_WithoutAGracePeriodKnowsOfNoShutdown(t *testing.T) {
	require.ErrorContains(t, (&Node{layout: layout{name: "one"}}).PowerOff(context.Background()), "without a ShutdownGracePeriod")
}
