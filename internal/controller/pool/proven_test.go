package pool

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/bullpen-ci/bullpen/internal/controller/removal"
	"github.com/bullpen-ci/bullpen/internal/plan/lifecycle"
)

// The server's proof that a runner's work is over is a reason to ask, never to delete: the fence must give it again.
func TestLost_EXCL4_WhoseWorkIsOverByTheServersProof(t *testing.T) {
	s := newTracker().pool(key)
	s.podSeen(named("pool-a", pollerEnded), t0)
	s.podSeen(named("pool-b", pollerEnded), t0)
	plan := func() work { return s.plan(wishFor(2), counter(), 0, t0) }
	require.False(t, plan().ask)
	s.condemn(map[string]string{"uid-pool-a": "its job has completed"}, t0)
	w := plan()
	require.True(t, w.ask)
	require.Len(t, w.plan.Ask, 1)
	require.Equal(t, lifecycle.ReasonRecovery, w.plan.Ask[0].Reason)
	require.Equal(t, "its job has completed", w.plan.Ask[0].Detail)
	require.True(t, w.plan.Ask[0].Runner.Ref("ns", "pool").Lost)
	asks := s.questions.take()
	q := &removals{reader: &reads{}}
	require.Empty(t, q.stillGone(t.Context(), s, asks)[0].Detail, "its node has no say in it")

	s.recordAnswers(asks, []lifecycle.Answer{{Verdict: lifecycle.Granted}}, t0)
	s.questions.done()
	require.Empty(t, plan().remove, "a grant without the proof")
	s.recordAnswers(asks, []lifecycle.Answer{{Verdict: lifecycle.Granted, Proof: "its job has completed"}}, t0)
	require.Equal(t, []string{"pool-a"}, plan().remove)
	m, _ := s.copyOf("pool-a")
	require.False(t, m.vanished(t0), "its node confirms the deletion")

	s.condemn(map[string]string{"uid-pool-b": "by mistake"}, t0)
	s.condemn(nil, t0)
	require.Equal(t, 1, s.counts("hash").of[lifecycle.StageBusy])
}

// TEN-5: a pod that is being deleted already, with hours for its job, is asked for once more when that is over, and deleted with a short
// grace period; then it is left to its node.
func TestLost_TEN5_WhatIsDeletedWithHoursIsHastened(t *testing.T) {
	s := newTracker().pool(key)
	slow := leavingPod(6*time.Hour, pollerEnded)
	s.podSeen(slow, t0)
	plan := func() work { return s.plan(wishFor(1), counter(), 0, t0) }
	require.False(t, plan().ask, "its job may go on")
	s.condemn(map[string]string{slow.uid: "its job has completed"}, t0)
	require.True(t, plan().ask)
	asks := s.questions.take()
	require.True(t, asks[0].Runner.Ref("ns", "pool").Lost)
	s.recordAnswers(asks, []lifecycle.Answer{{Verdict: lifecycle.Granted, Proof: "its job has completed"}}, t0)
	s.questions.done()
	require.Equal(t, []string{slow.name}, plan().remove)
	m, _ := s.copyOf(slow.name)
	require.True(t, m.undeleted(t0))

	s.change(slow.name, t0, func(m *member) { m.hastened = true; m.leave.Accepted(t0) })
	m, _ = s.copyOf(slow.name)
	require.False(t, m.undeleted(t0), "once")
	require.False(t, plan().ask)

	granted, idle := newTracker().pool(key), leavingPod(6*time.Hour) // as one that has no job, and then it hangs
	granted.podSeen(idle, t0)
	granted.change(idle.name, t0, func(m *member) {
		m.leave.Removal = lifecycle.RemovalGranted
		m.leave.Accepted(t0)
	})
	granted.condemn(map[string]string{idle.uid: "its job has completed"}, t0)
	require.True(t, granted.plan(wishFor(1), counter(), 0, t0).ask, "a grant without a proof shortens nothing")

	soon := newTracker().pool(key)
	soon.podSeen(leavingPod(30*time.Second, pollerEnded), t0)
	soon.condemn(map[string]string{slow.uid: "its job has completed"}, t0)
	require.False(t, soon.plan(wishFor(1), counter(), 0, t0).ask, "it goes soon enough")
}

// TEN-5: a pod whose work is proven over has no hours to end in, also if it is being deleted with hours already. Without a proof it has.
func TestRemove_TEN5_AProofShortensTheGracePeriod(t *testing.T) {
	var graces []int64
	s := newShop(t, interceptor.Funcs{Delete: func(ctx context.Context, c client.WithWatch, object client.Object, options ...client.DeleteOption) error {
		if _, isPod := object.(*corev1.Pod); isPod {
			all := (&client.DeleteOptions{}).ApplyOptions(options)
			graces = append(graces, ptr.Deref(all.GracePeriodSeconds, -1))
		}
		return c.Delete(ctx, object, options...)
	}})
	for _, proof := range []string{"", "its job has completed"} {
		v := s.runner()
		s.server.verdict = lifecycle.Granted
		_, err := s.removals.remover.Remove(t.Context(), v.pod(false), removal.Grant{UID: v.uid, Proof: proof})
		require.NoError(t, err)
	}
	require.Equal(t, []int64{-1, removal.ProvenGrace}, graces)
}
