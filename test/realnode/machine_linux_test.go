package realnode

import (
	"context"
	"strings"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/bullpen-ci/bullpen/internal/dev/realnode"
	"github.com/bullpen-ci/bullpen/test/kit/await"
)

const (
	otherName = "other"
	// onLostNode is the job that runs on the machine that loses its power.
	onLostNode = "on-a-lost-node"
)

const lostWorkflow = `
name: lost
on: [workflow_dispatch]
jobs:
  ` + onLostNode + `:
    runs-on: bullpen
    steps:
      - run: |
          exec 3<>/dev/tcp/gate.outside.svc/80
          echo ` + onLostNode + ` >&3
          read -r word <&3
`

// loseMachine has a second node that shuts down while jobs run, as `systemctl poweroff` does, starts again, loses its power, and starts again.
func (w *world) loseMachine() {
	ctx, cancel := context.WithTimeout(w.Context(), 2*patience)
	defer cancel()
	other, err := w.cluster.AddNodeWith(ctx, otherName, realnode.NodeOptions{ShutdownGracePeriod: time.Hour})
	require.NoError(w, err)
	w.importImages(other, "v1")
	w.shutDown(other)
	w.boot(other)
	w.cutPower(other)
	w.boot(other)
	w.awaitFreed()
	w.moveRunners(otherName) // which takes pods as before

	w.moveRunners(nodeName)
	w.eventually("no runner is left on "+otherName, func() bool { return len(w.runnersOn(otherName)) == 0 })
	require.NoError(w, other.Stop(w.Context()))
	require.NoError(w, w.kube.CoreV1().Nodes().Delete(w.Context(), otherName, metav1.DeleteOptions{}))
}

// moveRunners has the pool's idle runners on one node. The other is cordoned.
func (w *world) moveRunners(to string) {
	from := nodeName
	if to == nodeName {
		from = otherName
	}
	w.kubectlOrFail("uncordon", to)
	w.kubectlOrFail("cordon", from)
	w.eventually("idle runners are on "+to, func() bool {
		for _, pod := range w.runnersOn(from) {
			if pod.DeletionTimestamp == nil && isIdle(&pod) {
				return false
			}
		}
		idle := 0
		for _, pod := range w.runnersOn(to) {
			if isIdle(&pod) {
				idle++
			}
		}
		return idle >= held
	})
}

// shutDown powers a node off while jobs run on it. The kubelet sends TERM to all pods and waits: idle runners exit, jobs continue.
func (w *world) shutDown(node *realnode.Node) {
	w.moveRunners(node.Name())
	w.submit("hold.yaml", holdWorkflow, held)
	w.awaitHeld()
	w.eventually("all of the jobs run on "+node.Name(), func() bool { return w.busyOn(node.Name()) == held })
	w.kubectlOrFail("uncordon", nodeName) // for the runners in place of the idle ones
	off := make(chan error, 1)
	w.background(func(context.Context) {
		ctx, cancel := context.WithTimeout(w.Context(), 2*patience)
		defer cancel()
		off <- node.PowerOff(ctx)
	})
	w.eventually("idle runners have left the node that shuts down", func() bool {
		for _, pod := range w.runnersOn(node.Name()) {
			if pod.Status.Phase == corev1.PodRunning && !isBusy(&pod) {
				return false
			}
		}
		return strings.Contains(w.readyMessage(node.Name()), "node is shutting down")
	})
	require.Empty(w, off, "the shutdown waits for jobs that run")
	require.Equal(w, held, w.gate.count(), "connections of jobs on a node that shuts down")
	w.gate.open("go")
	require.NoError(w, await.ReceiveWithin(w, 2*patience, off, "the node shuts down"))
	w.awaitJobs("the jobs of a node that shut down", 0)
}

// cutPower kills a node with a job and idle runners on it, while jobs run on the other node. Only that job fails, and GitHub is what says so.
func (w *world) cutPower(node *realnode.Node) {
	w.moveRunners(node.Name())
	w.submit("lost.yaml", lostWorkflow, 1)
	w.eventually("a job runs on "+node.Name(), func() bool { return w.gate.holds(onLostNode) && w.busyOn(node.Name()) == 1 })
	w.moveRunners(nodeName)
	w.submit("hold.yaml", holdWorkflow, held)
	w.eventually("jobs wait at the gate", func() bool { return w.gate.count() == held+1 })

	node.Kill(w.Context())
	w.gate.drop(onLostNode)
	for _, job := range w.jobs() {
		if job.Key == onLostNode {
			require.NoError(w, w.github.Admin.LoseJob(w.Context(), job.ID)) // GitHub waits ten minutes for the runner
		}
	}
	require.Equal(w, held, w.gate.count(), "connections of jobs on the other node")
	w.gate.open("go")
	w.awaitJobs("the jobs of a node beside one that lost its power", 0)
}

// boot starts a node again and waits until the runners that it had are gone: the kubelet finds their containers ended.
func (w *world) boot(node *realnode.Node) {
	ctx, cancel := context.WithTimeout(w.Context(), patience)
	defer cancel()
	before := map[string]bool{}
	for _, pod := range w.runnersOn(node.Name()) {
		before[string(pod.UID)] = true
	}
	require.NoError(w, node.Boot(ctx))
	w.eventually("the runners from before the start of "+node.Name()+" are replaced", func() bool {
		for _, pod := range w.runnersOn(node.Name()) {
			if before[string(pod.UID)] {
				return false
			}
		}
		return true
	})
}

// awaitFreed waits until no claim is left of jobs that are over.
func (w *world) awaitFreed() {
	w.eventually("no claim is left", func() bool { return len(w.liveClaims()) == 0 })
}

func (w *world) busyOn(node string) int {
	busy := 0
	for _, pod := range w.runnersOn(node) {
		if isBusy(&pod) {
			busy++
		}
	}
	return busy
}

func (w *world) runnersOn(node string) []corev1.Pod {
	var on []corev1.Pod
	for _, pod := range w.runners() {
		if pod.Spec.NodeName == node {
			on = append(on, pod)
		}
	}
	return on
}

// readyMessage is what the kubelet says of its node.
func (w *world) readyMessage(name string) string {
	node, err := w.kube.CoreV1().Nodes().Get(w.Context(), name, metav1.GetOptions{})
	require.NoError(w, err)
	for _, condition := range node.Status.Conditions {
		if condition.Type == corev1.NodeReady {
			return condition.Message
		}
	}
	return ""
}
