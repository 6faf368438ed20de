package pool

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/bullpen-ci/bullpen/api/v1alpha1"
	"github.com/bullpen-ci/bullpen/internal/runnerpod"
)

// RUN-7: GitHub refuses the version in the pool's image. Each runner has been given a configuration then and its job waits on, so that a
// condition says so, and the next ones are started more and more slowly, until the template is another or a runner does its job.
func TestVersions_RUN7_ARefusedVersionIsSaidAndSlowsThePoolDown(t *testing.T) {
	s, names := newTracker().pool(key), counter()
	end := func(now time.Time, code int32, owner string) time.Duration {
		name := s.plan(wishFor(1), names, 10, now).create[0]
		s.createAnswered(name, "uid-"+name, created, now)
		s.podSeen(named(name), now)
		over := named(name, func(p *corev1.Pod) {
			p.Status.Phase = corev1.PodFailed
			p.Status.ContainerStatuses[0].State, p.Status.ContainerStatuses[1].State = ended(0), ended(code)
			if owner != "" {
				p.Labels[runnerpod.LabelOwner] = owner
			}
		})
		s.podSeen(over, now)
		s.podSeen(over, now) // again: nothing is counted twice
		s.podGone(name, "uid-"+name, now)
		s.change(name, now, func(m *member) { m.reported, m.account = true, false })
		return s.holdUntil.Sub(now)
	}
	now := t0
	before := &v1alpha1.RunnerPoolStatus{TemplateHash: "hash"}
	on := func() *metav1.Condition {
		f := facts{wish: wishFor(1), counts: s.counts("hash")}
		status, _ := statusOf(poolFor(), before, f, now)
		before = &status
		return meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionOutdated)
	}
	require.LessOrEqual(t, end(now, 1, "acme"), time.Duration(0))
	require.Nil(t, on(), "what was never on is not mentioned")
	require.Equal(t, time.Second, end(now, 7, "acme"))
	now = now.Add(time.Second)
	require.Equal(t, 2*time.Second, end(now, 7, "acme"))
	require.Equal(t, metav1.ConditionTrue, on().Status)
	require.Contains(t, on().Message, "Set a newer image")

	now = now.Add(2 * time.Second)
	require.LessOrEqual(t, end(now, 0, ""), time.Duration(0))
	require.Equal(t, metav1.ConditionTrue, on().Status, "one that had no job shows nothing")
	s.versions = versions{}
	require.Equal(t, metav1.ConditionTrue, on().Status, "a restart turns nothing")
	require.LessOrEqual(t, end(now, 0, "acme"), time.Duration(0))
	require.Equal(t, metav1.ConditionFalse, on().Status)

	require.Equal(t, time.Second, end(now, 7, "acme"), "counted anew")
	require.Equal(t, metav1.ConditionTrue, on().Status)
	other := facts{wish: wishFor(1), counts: s.counts("other")}
	other.wish.TemplateHash = "other"
	status, _ := statusOf(poolFor(), before, other, now)
	require.True(t, meta.IsStatusConditionFalse(status.Conditions, v1alpha1.ConditionOutdated), "another template")
}
