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

// attended is a pod whose runner and poller have ended with these codes, and in which a sidecar goes on.
func attended(poller, runner int32) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		for i, code := range []int32{poller, runner} {
			p.Status.ContainerStatuses[i].State, p.Status.ContainerStatuses[i].Ready = ended(code), false
		}
		p.Status.ContainerStatuses = append(p.Status.ContainerStatuses, corev1.ContainerStatus{Name: "istio-proxy", Image: "x", Ready: true, State: runs()})
	}
}

func TestObserve_POD3_R10_TheEndOfItsContainersIsTheEndOfAPod(t *testing.T) {
	v := observe(idlePod(attended(0, 0)))
	require.True(t, v.terminal)
	require.True(t, v.attended)
	require.False(t, v.failed)
	require.Equal(t, ending{at: t0.Add(time.Hour), exited: true, reason: "Error"}, v.end)
	require.NoError(t, lifecycle.MayDelete(v.observed(true), lifecycle.Grant{}))
	require.True(t, observe(idlePod(attended(1, 1))).failed)
	require.False(t, observe(idlePod(attended(0, 1))).failed, "it was given work")
	trimmed, err := TrimPod(idlePod(attended(0, 0)))
	require.NoError(t, err)
	require.True(t, observe(trimmed.(*corev1.Pod)).attended, "the cache keeps what is read")

	busy := observe(idlePod(attended(0, 0), func(p *corev1.Pod) { p.Status.ContainerStatuses[1].State = runs() }))
	require.False(t, busy.terminal)
	require.ErrorIs(t, lifecycle.MayDelete(busy.observed(true), lifecycle.Grant{UID: busy.uid}), lifecycle.ErrVetoed)
}

// A place is free as soon as the runner has ended, and its pod is removed by the same pass.
func TestPlan_POD3_R10_AnAttendedPodIsReplaced(t *testing.T) {
	s := newTracker().pool(key)
	s.podSeen(named("pool-a", pollerEnded), t0)
	require.Empty(t, s.plan(wishFor(1), counter(), 10, t0).create)
	s.podSeen(named("pool-a", attended(0, 0)), t0)
	w := s.plan(wishFor(1), counter(), 10, t0)
	require.Equal(t, []string{"pool-a"}, w.remove)
	require.Len(t, w.create, 1)
}

// Injected containers get no hours to stop in: neither when the fleet deletes the pod, nor when it was being deleted before its job ended.
func TestRemove_POD3_R10_WhatWasInjectedIsStopped(t *testing.T) {
	var graces []int64
	s := newShop(t, interceptor.Funcs{Delete: func(ctx context.Context, c client.WithWatch, object client.Object, options ...client.DeleteOption) error {
		if _, isPod := object.(*corev1.Pod); isPod {
			all := (&client.DeleteOptions{}).ApplyOptions(options)
			graces = append(graces, ptr.Deref(all.GracePeriodSeconds, -1))
		}
		return c.Delete(ctx, object, options...)
	}})
	s.server.verdict = lifecycle.Unknown
	v := s.runner(attended(0, 0))
	_, err := s.removals.remover.Remove(t.Context(), v.pod(true), removal.Grant{})
	require.NoError(t, err)
	require.Zero(t, s.server.asked, "no job can run in it")
	require.Equal(t, []int64{removal.EndedGrace}, graces)

	state := newTracker().pool(key)
	slow := leavingPod(6*time.Hour, pollerEnded)
	state.podSeen(slow, t0)
	plan := func() work { return state.plan(wishFor(1), counter(), 0, t0) }
	require.Empty(t, plan().remove, "its job may go on")
	state.podSeen(leavingPod(6*time.Hour, attended(0, 0)), t0)
	require.Equal(t, []string{slow.name}, plan().remove)
	m, _ := state.copyOf(slow.name)
	require.True(t, m.undeleted(t0))
	state.change(slow.name, t0, func(m *member) { m.hastened = true })
	m, _ = state.copyOf(slow.name)
	require.False(t, m.undeleted(t0), "once")
	state.podSeen(leavingPod(removal.EndedGrace*time.Second, attended(0, 0)), t0)
	m, _ = state.copyOf(slow.name)
	require.False(t, m.lingers(), "it goes soon enough")
}
