package controller_test

import (
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bullpen-ci/bullpen/api/v1alpha1"
)

// isOn waits until a condition of the pool is on, or off, and returns it.
func (b *bench) isOn(pool, kind string, on bool) *metav1.Condition {
	b.t.Helper()
	var found *metav1.Condition
	b.eventually(pool+" is "+kind, func() bool {
		found = b.condition(pool, kind)
		return (found != nil && found.Status == metav1.ConditionTrue) == on
	})
	return found
}

// event waits for an Event about the pool with that reason, whose note holds the text.
func (b *bench) event(pool, reason, text string) eventsv1.Event {
	b.t.Helper()
	var found eventsv1.Event
	b.eventually("an Event "+reason+" about "+pool, func() bool {
		var events eventsv1.EventList
		require.NoError(b.t, b.admin.List(b.t.Context(), &events, client.InNamespace(b.namespace)))
		for _, e := range events.Items {
			if e.Regarding.Name == pool && e.Reason == reason && strings.Contains(e.Note, text) {
				found = e
				return true
			}
		}
		return false
	})
	return found
}

func labelled(labels ...string) func(*v1alpha1.RunnerPool) {
	return func(p *v1alpha1.RunnerPool) { p.Spec.Labels = labels }
}

// Two live pools with the same label name each other; a changed label or a deleted pool clears the conflict on the other without a change
// to it.
func TestPool_CLAIM12_LabelConflictIsSeenAndHealsByItself(t *testing.T) {
	b := newBench(t)
	b.pool("one", 0, labelled("Big-Linux"))
	b.pool("two", 0, labelled("big-linux", "gpu"))
	require.Contains(t, b.isOn("one", v1alpha1.ConditionLabelConflict, true).Message, "pool two also has label big-linux")
	require.Contains(t, b.isOn("two", v1alpha1.ConditionLabelConflict, true).Message, "pool one also has label big-linux")
	b.event("one", v1alpha1.ConditionLabelConflict, "Jobs with this label stay queued")

	b.edit("two", labelled("small-linux", "gpu"))
	b.isOn("one", v1alpha1.ConditionLabelConflict, false)
	b.isOn("two", v1alpha1.ConditionLabelConflict, false)
	b.edit("two", labelled("big-linux"))
	b.isOn("one", v1alpha1.ConditionLabelConflict, true)

	// A rename: the pool of the old name is being deleted and has a busy runner, the one of the new name serves already.
	b.scale("two", 1)
	busy := b.havePods("two", 1)[0].Name
	b.makeIdle(busy)
	b.makeBusy(busy)
	require.NoError(t, b.admin.Delete(t.Context(), b.get("two")))
	b.isOn("two", v1alpha1.ConditionDraining, true)
	b.isOn("one", v1alpha1.ConditionLabelConflict, false)
	b.event("two", v1alpha1.ConditionDraining, "the pool is being deleted")
	b.restart()
	b.pool("three", 0, labelled("BIG-LINUX"))
	require.NotContains(t, b.isOn("one", v1alpha1.ConditionLabelConflict, true).Message, "pool two", "one that is being deleted does not count")
	require.NoError(t, b.admin.Delete(t.Context(), b.get("three")))
	b.isOn("one", v1alpha1.ConditionLabelConflict, false)
	b.finish(busy)
	b.eventually("gone", func() bool { return b.poolGone("two") && b.poolGone("three") })
}

// A completed pod that a foreign finalizer keeps is reported: a condition and an Event name the pod and the finalizer, and both end when
// the pod is deleted. Its replacement was created long before.
func TestPool_POOL10_APodThatDoesNotGoIsSeen(t *testing.T) {
	b := newBench(t)
	b.stop()
	var ahead atomic.Int64
	options := b.options()
	options.Now = func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }
	b.stop = b.run(options)
	b.pool("stuck", 1)
	name := b.havePods("stuck", 1)[0].Name
	hold := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":["example.com/holds"]}}`))
	require.NoError(t, b.admin.Patch(t.Context(), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: b.namespace, Name: name}}, hold))
	b.makeIdle(name)
	b.makeBusy(name)
	b.finish(name)
	b.havePods("stuck", 1)
	b.eventually("it is being deleted", func() bool {
		return slices.ContainsFunc(b.pods("stuck"), func(p corev1.Pod) bool { return p.Name == name && p.DeletionTimestamp != nil })
	})
	require.Nil(t, b.condition("stuck", v1alpha1.ConditionStuckTerminating))
	ahead.Store(int64(2 * time.Minute))
	b.scale("stuck", 2) // a pass, without waiting for the minute to pass
	c := b.isOn("stuck", v1alpha1.ConditionStuckTerminating, true)
	require.Contains(t, c.Message, "1 pod not deleted in time: "+name)
	require.Contains(t, c.Message, "held by example.com/holds")
	recorded := b.event("stuck", "StuckTerminating", name)
	require.Equal(t, name, recorded.Related.Name)

	free := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))
	require.NoError(t, b.admin.Patch(t.Context(), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: b.namespace, Name: name}}, free))
	b.isOn("stuck", v1alpha1.ConditionStuckTerminating, false)
}

// A pool says that no node takes its runners, and in whose words.
func TestPool_StarvedRepeatsWhatTheSchedulerSays(t *testing.T) {
	b := newBench(t)
	b.pool("starved", 2, func(p *v1alpha1.RunnerPool) { p.Spec.Template.NodeSelector = map[string]string{"no": "node"} })
	b.eventually("the condition", func() bool { // until the scheduler has tried, the message is that there is no node
		c := b.condition("starved", v1alpha1.ConditionStarved)
		return c != nil && c.Status == metav1.ConditionTrue && c.Reason == "Unschedulable" &&
			strings.Contains(c.Message, "cannot be scheduled: Unschedulable: ")
	})
	require.Equal(t, []float64{1, 0}, []float64{b.gauge("bullpen_runnerpool_starved", "starved"), b.gauge("bullpen_runnerpool_saturated", "starved")})
	b.event("starved", v1alpha1.ConditionStarved, "no") // the first message, from the nodes or from the scheduler
}

// An autoscaler that has never seen what it decides on leaves a pool at the number in its status, within the ceiling, and
// says so.
func TestPool_SCALE3_TheLastNumberStandsUntilTheAutoscalerHasDecided(t *testing.T) {
	b := newBench(t)
	b.server.setUnsure(true)
	b.pool("scaled", 4)
	b.havePods("scaled", 4)
	b.eventually("the number is in the status", func() bool { return ptr.Deref(b.get("scaled").Status.DesiredReplicas, 0) == 4 })
	b.edit("scaled", func(p *v1alpha1.RunnerPool) {
		p.Spec.Autoscaling = &v1alpha1.Autoscaling{Enabled: true, MinIdle: ptr.To[int32](1), MaxReplicas: ptr.To[int32](9)}
	})
	b.eventually("it says so", func() bool {
		c := b.condition("scaled", v1alpha1.ConditionScalingActive)
		return c != nil && c.Status == metav1.ConditionFalse && strings.Contains(c.Message, "stays at 4")
	})
	b.restart()
	b.edit("scaled", func(p *v1alpha1.RunnerPool) { p.Spec.Autoscaling.MaxReplicas = ptr.To[int32](3) })
	b.havePods("scaled", 3)
	b.eventually("the ceiling", func() bool { return ptr.Deref(b.get("scaled").Status.DesiredReplicas, 0) == 3 })
}
