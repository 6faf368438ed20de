package controller_test

import (
	"bytes"
	"context"
	"os/exec"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bullpen-ci/bullpen/api/v1alpha1"
	"github.com/bullpen-ci/bullpen/internal/fleet"
	"github.com/bullpen-ci/bullpen/internal/runnerpod"
	"github.com/bullpen-ci/bullpen/test/kit/await"
)

// Actions of users and of Kubernetes on a pool with busy runners, on a real API server with its real garbage collector.

// alive fails the test unless each runner exists and its deletion has not been requested.
func (b *bench) alive(pool string, names ...string) {
	b.t.Helper()
	pods := b.pods(pool)
	for _, name := range names {
		at := slices.IndexFunc(pods, func(pod corev1.Pod) bool { return pod.Name == name })
		require.GreaterOrEqual(b.t, at, 0, "%s is gone", name)
		require.Nil(b.t, pods[at].DeletionTimestamp, "%s is being deleted", name)
	}
}

// EXCL-2, POOL-2: with foreground deletion the garbage collector deletes the dependents that block a pool's deletion before the pool, at
// once. A runner that received a job a moment ago looks idle: only the fence knows, and the collector does not ask it. Runners do not block:
// the collector leaves the pool to its own finalizer. The runner's ServiceAccount stays as long as the runner (POOL-1).
func TestPool_EXCL2_POOL2_ForegroundDeletionTakesNoRunnerThatWasJustClaimed(t *testing.T) {
	b := newBench(t)
	pool := b.pool("fore", 3)
	b.havePods("fore", 3)
	names := b.podNames("fore")
	b.makeIdle(names...)
	b.server.claim(b.uid(names[2]), fleet.ClaimMinted)
	require.NoError(t, b.admin.Delete(t.Context(), pool, client.PropagationPolicy(metav1.DeletePropagationForeground)))
	b.eventually("the controller removes unclaimed runners", func() bool { return slices.Equal(b.podNames("fore"), names[2:]) })
	b.eventually("with its ServiceAccounts", func() bool { return slices.Equal(b.accountNames("fore"), names[2:]) })
	b.eventually("the collector has done its part", func() bool {
		return !slices.Contains(b.get("fore").Finalizers, metav1.FinalizerDeleteDependents)
	})
	b.restart()
	b.pool("sign", 1)
	b.havePods("sign", 1)
	b.alive("fore", names[2])
	require.Equal(t, names[2:], b.accountNames("fore"))
	b.finish(names[2])
	b.eventually("all of it goes", func() bool {
		return b.poolGone("fore") && len(b.podNames("fore")) == 0 && len(b.accountNames("fore")) == 0
	})
}

// A pool whose finalizers are removed by force disappears at once. Its runners are still drained.
func TestPool_POOL2_AForcedDeletionKillsNobody(t *testing.T) {
	b := newBench(t)
	pool := b.pool("forced", 2)
	b.havePods("forced", 2)
	names := b.podNames("forced")
	b.makeIdle(names...)
	b.makeBusy(names[0])
	b.eventually("seen", func() bool { s := b.get("forced").Status; return s.Idle == 1 && s.Busy == 1 })
	b.stop() // its finalizers are removed without the controller
	require.NoError(t, b.admin.Delete(t.Context(), pool))
	b.freePools()
	b.eventually("the pool is gone", func() bool { return b.poolGone("forced") })
	b.start()
	b.eventually("the idle runner goes", func() bool { return slices.Equal(b.podNames("forced"), names[:1]) })
	b.alive("forced", names[0])
	b.finish(names[0])
	b.eventually("and the busy one when its job is done", func() bool {
		return len(b.podNames("forced")) == 0 && len(b.accountNames("forced")) == 0
	})
}

// POOL-2: a rename creates a new pool and deletes the old one in the same moment, as Helm does. The new pool serves the label at once, and
// the job of the old one continues; and so it does when the rename is reverted.
func TestPool_POOL2_ARenameMidJobAndItsRollback(t *testing.T) {
	b := newBench(t)
	sameLabel := func(p *v1alpha1.RunnerPool) { p.Spec.Labels = []string{"linux-4cpu"} }
	old := b.pool("old", 2, sameLabel)
	b.havePods("old", 2)
	first := b.podNames("old")
	b.makeIdle(first...)
	b.makeBusy(first[0])

	b.pool("new", 2, sameLabel)
	require.NoError(t, b.admin.Delete(t.Context(), old))
	b.havePods("new", 2)
	b.makeIdle(b.podNames("new")...)
	b.eventually("the old pool keeps its busy runner only", func() bool { return slices.Equal(b.podNames("old"), first[:1]) })
	b.eventually("the new pool serves", func() bool { return b.get("new").Status.Idle == 2 })
	second := b.podNames("new")
	b.makeBusy(second[0])

	// Back again: the old name is still taken by the pool that drains, and Kubernetes says so.
	again := newPool(b.namespace, "old", 2)
	sameLabel(again)
	require.True(t, apierrors.IsAlreadyExists(b.admin.Create(t.Context(), again.DeepCopy())))
	b.alive("old", first[0])
	b.finish(first[0])
	b.eventually("the old pool goes with its last runner", func() bool { return b.poolGone("old") })
	require.NoError(t, b.admin.Create(t.Context(), again))
	require.NoError(t, b.admin.Delete(t.Context(), b.get("new")))
	b.havePods("old", 2)
	b.eventually("the new pool keeps its busy runner only", func() bool { return slices.Equal(b.podNames("new"), second[:1]) })
	b.alive("new", second[0])
	b.finish(second[0])
	b.eventually("and goes with it", func() bool { return b.poolGone("new") })
}

// POOL-5: a template that is rolled back in the middle of its roll ends as it began: with the first template, at its
// number, and with its busy runners untouched all the way.
func TestPool_POOL5_ATemplateRolledBackMidRollKillsNobody(t *testing.T) {
	b := newBench(t)
	b.pool("back", 4)
	b.havePods("back", 4)
	names := b.podNames("back")
	b.makeIdle(names...)
	b.makeBusy(names[3])
	image := func(image string) func(*v1alpha1.RunnerPool) {
		return func(p *v1alpha1.RunnerPool) { p.Spec.Template.Image = image }
	}
	of := func(image string) (n int) {
		for _, pod := range b.pods("back") {
			b.alive("back", names[3])
			if pod.DeletionTimestamp == nil && pod.Spec.Containers[0].Image == image {
				n++
			}
			if pod.Status.Phase == corev1.PodPending {
				// The roll back may have taken it since it was listed.
				require.NoError(t, client.IgnoreNotFound(b.tryReport(pod.Name, corev1.PodRunning, running(), running(), true)))
			}
		}
		return n
	}
	b.edit("back", image("runner:2"))
	b.eventually("the roll is under way", func() bool { return of("runner:2") > 0 })
	b.edit("back", image("runner:1"))
	b.eventually("all are of the first template again", func() bool { return of("runner:2") == 0 && of("runner:1") == 4 })
	b.eventually("and nothing is left to do", func() bool {
		s := b.get("back").Status
		return s.Idle == 3 && s.Busy == 1 && s.Terminating == 0 && s.Starting == 0
	})
	require.Contains(t, b.podNames("back"), names[3])
}

// POOL-9: the real kubectl drains a node. It cordons the node, is refused the eviction of the busy runner, and asks again;
// the idle ones leave, and it is through when the busy one's job is.
func TestPool_POOL9_KubectlDrainWaitsForTheJob(t *testing.T) {
	b := newBench(t)
	node := b.env.RegisterNode(t, "drained-"+b.namespace, func(n *corev1.Node) { n.Labels["drained"] = b.namespace })
	b.pool("kd", 2, func(p *v1alpha1.RunnerPool) { p.Spec.Template.NodeSelector = map[string]string{"drained": b.namespace} })
	b.havePods("kd", 2)
	names := b.podNames("kd")
	b.eventually("placed", func() bool {
		return !slices.ContainsFunc(b.pods("kd"), func(pod corev1.Pod) bool { return pod.Spec.NodeName != node.Name })
	})
	b.makeIdle(names...)
	b.makeBusy(names[0])
	b.own(names[0])
	b.eventually("seen", func() bool { s := b.get("kd").Status; return s.Idle == 1 && s.Busy == 1 })

	var said bytes.Buffer
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()
	drain := exec.CommandContext(ctx, b.env.Plane.Kubectl(), "--kubeconfig", b.env.Plane.AdminKubeconfig(),
		"drain", node.Name, "--delete-emptydir-data", "--ignore-daemonsets", "--pod-selector="+runnerpod.LabelRunner+"=true")
	drain.Stdout, drain.Stderr = &said, &said
	require.NoError(t, drain.Start())
	ended := make(chan error, 1)
	go func() { ended <- drain.Wait() }()
	b.eventually("the idle runner leaves, and another waits for a node", func() bool {
		for _, pod := range b.pods("kd") {
			if pod.Name == names[1] && pod.DeletionTimestamp != nil { // its kubelet has stopped it
				require.NoError(t, client.IgnoreNotFound(b.kubelet.Delete(t.Context(), &pod, client.GracePeriodSeconds(0))))
			}
		}
		now := b.podNames("kd")
		return len(now) == 2 && slices.Contains(now, names[0]) && !slices.Contains(now, names[1])
	})
	b.alive("kd", names[0])
	select {
	case err := <-ended:
		require.FailNow(t, "the drain did not wait", "%v: %s", err, said.String())
	default:
	}
	b.finish(names[0])
	require.NoError(t, await.ReceiveWithin(t, 5*time.Minute, ended, "the drain ends"), "%s", &said)
	require.Contains(t, said.String(), "node/"+node.Name+" drained")
	b.eventually("the end of the job was reported", func() bool {
		report, reported := b.server.reportOf(names[0])
		return reported && report.ExitCode != nil && *report.ExitCode == 0
	})
}
