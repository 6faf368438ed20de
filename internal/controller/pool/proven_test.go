package pool

import (
	"context"
	"errors"
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

// TEN-5, POOL-10: a deletion that the API server refuses shows in a condition, with the reason, a minute after the first attempt: also that
// of a pod that has hours for its job already.
func TestRemove_TEN5_POOL10_ARefusedDeletionIsSeen(t *testing.T) {
	for name, deleted := range map[string]bool{"not deleted": false, "deleted with hours": true} {
		t.Run(name, func(t *testing.T) {
			refused := true
			s := newShop(t, interceptor.Funcs{Delete: func(ctx context.Context, c client.WithWatch, object client.Object, options ...client.DeleteOption) error {
				if _, isPod := object.(*corev1.Pod); isPod && refused {
					return errors.New("admission webhook \"guard.example\" denied the request")
				}
				return c.Delete(ctx, object, options...)
			}})
			v := s.runner()
			if deleted { // as by another client; its kubelet waits for the job
				v.deleting, v.deadline = s.now(), s.now().Add(6*time.Hour)
			}
			over := "its job has completed"
			s.server.verdict = lifecycle.Granted
			s.state.podSeen(v, s.now())
			s.state.condemn(map[string]string{v.uid: over}, s.now())
			s.state.change(v.name, s.now(), func(m *member) {
				m.leave.Removal, m.leave.Proof, m.leave.Since = lifecycle.RemovalGranted, over, s.now()
			})
			_, err := s.removals.step(t.Context(), s.state, v.name)
			require.Error(t, err)
			_, err = s.removals.step(t.Context(), s.state, v.name)
			require.Error(t, err)

			m, _ := s.state.copyOf(v.name)
			require.Empty(t, s.state.plan(wishFor(0), counter(), 10, m.refused.Due().Add(-1)).stuck)
			w := s.state.plan(wishFor(0), counter(), 10, m.refused.Due())
			require.Len(t, w.stuck, 1)
			require.Contains(t, w.stuck[0].String(), `(its deletion fails: `)
			require.Contains(t, w.stuck[0].String(), `admission webhook "guard.example" denied the request`)
			c := s.state.counts("hash")
			require.Equal(t, 1, c.stuck)
			list := conditionsOf(poolFor(), nil, facts{wish: wishFor(0), counts: c}, s.now()).list
			require.Regexp(t, `^1 pod not deleted in time: \S+ \(its deletion fails: .*guard\.example`, messageOf(list, "StuckTerminating"), "and not that it terminates")

			refused = false
			_, err = s.removals.step(t.Context(), s.state, v.name)
			require.NoError(t, err)
			require.Zero(t, s.state.counts("hash").stuck, "it is deleted, and has its grace period")
		})
	}
}
