package node_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/bullpen-ci/bullpen/internal/node/sandbox"
	"github.com/bullpen-ci/bullpen/internal/node/sandbox/synthetic"
)

func TestOrphan_WhatTheAPIServerDoesNotKnowIsEnded(t *testing.T) {
	f := newFixture(t)
	machine := synthetic.NewMachine(nil)
	machine.Intrude(sandbox.PodRef{UID: "stranger", Namespace: f.ns, Name: "stranger"})
	sb := synthetic.New(machine)
	orphan := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: f.ns, Name: "orphan", UID: "orphan-uid"}}
	require.NoError(t, sb.Prepare(t.Context(), orphan))
	require.NoError(t, sb.Start(t.Context(), orphan, sandbox.Container{Name: "main"}))
	asked := make(chan string, 1)
	f.run(gated{Sandbox: sb, asked: asked})
	require.Equal(t, "orphan-uid", f.receive(asked))
	require.Eventually(t, func() bool { return !machine.Has("orphan-uid") }, patience, 10*time.Millisecond)
	require.True(t, machine.Has("stranger"), "NODE-7")
}

// unreadable is a sandbox whose first list fails: too many files are open, a disk does not answer.
type unreadable struct {
	sandbox.Sandbox
	failed atomic.Bool
}

func (u *unreadable) List(ctx context.Context) ([]sandbox.PodRef, error) {
	if u.failed.CompareAndSwap(false, true) {
		return nil, errors.New("input/output error")
	}
	return u.Sandbox.List(ctx)
}

func TestOrphan_IsEndedAlthoughTheFirstLookFails(t *testing.T) {
	f := newFixture(t)
	machine := synthetic.NewMachine(nil)
	sb := &unreadable{Sandbox: synthetic.New(machine)}
	orphan := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: f.ns, Name: "orphan", UID: "orphan-uid"}}
	require.NoError(t, sb.Prepare(t.Context(), orphan))
	require.NoError(t, sb.Start(t.Context(), orphan, sandbox.Container{Name: "main"}))
	f.run(sb)
	require.Eventually(t, func() bool { return !machine.Has("orphan-uid") }, patience, 10*time.Millisecond)
}
