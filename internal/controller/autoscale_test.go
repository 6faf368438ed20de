package controller_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bullpen-ci/bullpen/api/runnerapi"
	"github.com/bullpen-ci/bullpen/api/v1alpha1"
	"github.com/bullpen-ci/bullpen/test/kit/await"
)

// newScalingBench is a bench whose autoscaler looks often, and a node for the pools that are made on.
func newScalingBench(t *testing.T, cores string) *bench {
	b := newBench(t)
	b.stop()
	b.scaleEvery = 50 * time.Millisecond
	b.env.RegisterNode(t, b.namespace, func(node *corev1.Node) {
		node.Labels["fleet"] = b.namespace
		for _, offered := range []corev1.ResourceList{node.Status.Capacity, node.Status.Allocatable} {
			offered[corev1.ResourceCPU] = resource.MustParse(cores)
			offered[corev1.ResourceMemory] = resource.MustParse("100Gi")
		}
	})
	b.keepReady(b.namespace)
	b.start()
	return b
}

// keepReady beats the heart of a node until the test ends, or the control plane would take it for lost.
func (b *bench) keepReady(node string) {
	ctx, cancel := context.WithCancel(context.Background())
	var beating sync.WaitGroup
	beating.Go(func() {
		for {
			select {
			case <-ctx.Done():
				return
			case now := <-time.After(5 * time.Second):
				beat := fmt.Sprintf(`{"status":{"conditions":[{"type":"Ready","status":"True","lastHeartbeatTime":%q}]}}`, now.UTC().Format(time.RFC3339))
				_, err := b.env.Kube.CoreV1().Nodes().Patch(ctx, node, types.StrategicMergePatchType, []byte(beat), metav1.PatchOptions{}, "status")
				if err != nil && ctx.Err() == nil {
					b.t.Logf("the node's heart stops: %v", err)
				}
			}
		}
	})
	b.t.Cleanup(func() {
		cancel()
		await.Return(b.t, beating.Wait, "the heartbeats stop")
	})
}

// shrunk waits until the pool has exactly n pods. Deleted pods disappear from the node when a test acts as its kubelet.
func (b *bench) shrunk(pool string, n int) []corev1.Pod {
	b.t.Helper()
	var left []corev1.Pod
	b.eventually("pods of "+pool, func() bool {
		left = b.pods(pool)
		for i := range left {
			if left[i].DeletionTimestamp != nil {
				require.NoError(b.t, client.IgnoreNotFound(b.kubelet.Delete(b.t.Context(), &left[i], client.GracePeriodSeconds(0))))
			}
		}
		return len(left) == n
	})
	return left
}

// scaled makes a pool of one-core runners that autoscales on the bench's node, shrinking after times that a test can wait.
func (b *bench) scaled(name string, minIdle, most int32, change ...func(*v1alpha1.RunnerPool)) {
	b.t.Helper()
	b.pool(name, 1, append([]func(*v1alpha1.RunnerPool){func(p *v1alpha1.RunnerPool) {
		p.Spec.Template.NodeSelector = map[string]string{"fleet": b.namespace}
		p.Spec.Autoscaling = &v1alpha1.Autoscaling{
			Enabled: true, MinIdle: ptr.To(minIdle), MaxReplicas: ptr.To(most),
			ScaleDownCooldown: &metav1.Duration{}, Stabilization: &metav1.Duration{Duration: 2 * time.Second},
		}
	}}, change...)...)
}

func (b *bench) ask(pool string, demand runnerapi.PoolSignals) { b.server.ask(pool, demand) }

// passes waits until the autoscaler has asked the server n more times.
func (b *bench) passes(n int) {
	b.t.Helper()
	from := b.server.timesLooked()
	b.eventually("passes of the autoscaler", func() bool { return b.server.timesLooked() >= from+n })
}

func (b *bench) desired(pool string, n int32) {
	b.t.Helper()
	b.eventually("the desired number", func() bool { return ptr.Deref(b.get(pool).Status.DesiredReplicas, -1) == n })
}

// A queue makes a pool grow at once; quiet makes it shrink when window and cooldown are over, and never below its busy
// runners; to zero and back.
func TestAutoscale_SCALE3_GrowsAtOnceAndShrinksAfterTheWindow(t *testing.T) {
	b := newScalingBench(t, "50")
	b.scaled("burst", 0, 10)
	b.desired("burst", 0)
	require.Empty(t, b.pods("burst"), "spec.replicas, which is 1, is not used")

	b.ask("burst", runnerapi.PoolSignals{Queued: 30})
	b.havePods("burst", 10)
	b.desired("burst", 10)
	names := b.podNames("burst")
	b.makeIdle(names...)
	b.makeBusy(names[0])
	b.ask("burst", runnerapi.PoolSignals{Occupied: 1, Claimed: 1})
	quiet := time.Now()
	b.passes(3)
	if time.Since(quiet) < 2*time.Second {
		require.Len(t, b.havePods("burst", 10), 10, "not before the window is over")
	}
	b.shrunk("burst", 1)
	require.GreaterOrEqual(t, time.Since(quiet), 2*time.Second, "SCALE-3")
	require.Equal(t, names[:1], b.podNames("burst"), "the busy one stays")

	b.ask("burst", runnerapi.PoolSignals{})
	b.desired("burst", 0)
	require.Equal(t, names[:1], b.podNames("burst"), "busy is busy, whatever is desired")
	b.finish(names[0])
	b.shrunk("burst", 0)
	require.EqualValues(t, 1, *b.get("burst").Spec.Replicas, "only its owner writes the spec")

	b.ask("burst", runnerapi.PoolSignals{Blocked: map[runnerapi.BlockedReason]int{runnerapi.BlockedLimit: 7}})
	b.havePods("burst", 1)
	b.passes(3)
	b.havePods("burst", 1)
}

// POOL-8: signals that cannot be read change nothing, however long, also over a restart, and the pool says so.
func TestAutoscale_POOL8_ADeafControllerLeavesTheNumberAlone(t *testing.T) {
	b := newScalingBench(t, "50")
	b.scaled("deaf", 1, 10)
	b.ask("deaf", runnerapi.PoolSignals{Occupied: 3})
	b.desired("deaf", 4)
	b.havePods("deaf", 4)
	names := b.podNames("deaf")
	b.makeIdle(names...)
	b.server.setUnsure(true)
	b.ask("deaf", runnerapi.PoolSignals{})
	b.eventually("it says that it cannot see", func() bool {
		c := b.condition("deaf", v1alpha1.ConditionScalingActive)
		return c != nil && c.Status == metav1.ConditionFalse && strings.Contains(c.Message, "no database")
	})
	until := time.Now().Add(3 * time.Second)
	for time.Now().Before(until) {
		b.passes(5)
	}
	b.restart()
	b.passes(5)
	require.EqualValues(t, 4, *b.get("deaf").Status.DesiredReplicas)
	require.Equal(t, names, b.podNames("deaf"))

	b.server.setUnsure(false)
	seen := time.Now()
	b.desired("deaf", 1)
	require.GreaterOrEqual(t, time.Since(seen), time.Second, "what was not watched was not idle: the window begins with the restart")
	b.shrunk("deaf", 1)
	b.eventually("and that it sees again", func() bool {
		c := b.condition("deaf", v1alpha1.ConditionScalingActive)
		return c != nil && c.Status == metav1.ConditionTrue
	})
}

// SCALE-1: what one pool keeps warm yields to the jobs of another that shares its node, and comes back when they are over.
func TestAutoscale_SCALE1_TwoPoolsShareANode(t *testing.T) {
	b := newScalingBench(t, "6500m")
	b.scaled("warm", 9, 9)
	b.desired("warm", 6)
	b.havePods("warm", 6)
	b.makeIdle(b.podNames("warm")...)
	b.scaled("jobs", 0, 9)
	b.ask("jobs", runnerapi.PoolSignals{Queued: 4})
	b.havePods("jobs", 4)
	b.desired("warm", 2)
	b.eventually("and says what is in its way", func() bool {
		c := b.condition("warm", v1alpha1.ConditionStarved)
		return c != nil && c.Status == metav1.ConditionTrue && strings.Contains(c.Message, "CPU")
	})
	b.shrunk("warm", 2)
	b.eventually("the jobs' runners have their places", func() bool {
		for _, pod := range b.pods("jobs") {
			if pod.Spec.NodeName != b.namespace {
				return false
			}
		}
		return true
	})
	b.ask("jobs", runnerapi.PoolSignals{})
	b.makeIdle(b.podNames("jobs")...)
	b.shrunk("jobs", 0)
	b.havePods("warm", 6)
}
