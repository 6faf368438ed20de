package node_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/bullpen-ci/bullpen/internal/node"
	"github.com/bullpen-ci/bullpen/internal/node/sandbox"
	"github.com/bullpen-ci/bullpen/internal/node/sandbox/synthetic"
	"github.com/bullpen-ci/bullpen/test/kit/await"
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

// unreadable is a sandbox whose first lists fail: too many files are open, a disk does not answer.
type unreadable struct {
	sandbox.Sandbox
	lists atomic.Int32
}

func (u *unreadable) List(ctx context.Context) ([]sandbox.PodRef, error) {
	if u.lists.Add(1) <= 2 { // the check of the node's name, and the first look for orphans
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

// busyOrphan is a pod that the API server does not know, on a machine of its own. Its container ignores TERM, as a runner with a job does;
// terminated is closed when it is sent.
func (f *fixture) busyOrphan(nodeName string) (machine *synthetic.Machine, sb sandbox.Sandbox, terminated chan struct{}) {
	machine, terminated = synthetic.NewMachine(nil), make(chan struct{})
	machine.Install("main", synthetic.Program{Run: func(ctx context.Context, terminate <-chan struct{}, _ *corev1.Pod, _ sandbox.Container) int32 {
		select {
		case <-terminate:
			close(terminated)
			<-ctx.Done()
		case <-ctx.Done():
		}
		return 137
	}})
	f.Cleanup(machine.Off)
	sb = synthetic.New(machine)
	orphan := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: f.ns, Name: "orphan", UID: "orphan-uid"},
		Spec:       corev1.PodSpec{NodeName: nodeName, TerminationGracePeriodSeconds: ptr.To(int64(3600))},
	}
	require.NoError(f, sb.Prepare(f.Context(), orphan))
	require.NoError(f, sb.Start(f.Context(), orphan, sandbox.Container{Name: "main"}))
	return machine, sb, terminated
}

// agent runs a node agent that is stopped with the test, and whose report the test reads.
func (f *fixture) agent(sb sandbox.Sandbox) *node.Agent {
	f.Helper()
	agent, err := node.New(options(f.name, f.stateDir, f.identity(), sb))
	require.NoError(f, err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- agent.Run(ctx) }()
	f.Cleanup(func() {
		cancel()
		require.NoError(f, await.Result(done, "the agent stops"))
	})
	return agent
}

// waitsFor waits until the report says that of the orphan.
func (f *fixture) waitsFor(agent *node.Agent, text string) (said string) {
	f.Helper()
	require.Eventually(f, func() bool {
		for _, p := range agent.Report().Pods {
			if said = strings.Join(p.WaitsFor, "; "); p.Phase == "Orphaned" && strings.Contains(said, text) {
				return true
			}
		}
		return false
	}, patience, 10*time.Millisecond, "the report says %q: %q", text, said)
	return said
}

// As after etcd was restored from an older backup: the pod's own grace period counts, which lasts as long as a job.
func TestOrphan_NODE3_ABusyOneHasThePodsOwnGracePeriod(t *testing.T) {
	f := newFixture(t)
	machine, sb, terminated := f.busyOrphan(f.name)
	agent := f.agent(sb)
	await.Receive(t, terminated, "the orphan is asked to stop")
	_, at, found := strings.Cut(f.waitsFor(agent, "killed at "), "killed at ")
	require.True(t, found)
	killAt, err := time.Parse(time.RFC3339, strings.TrimSuffix(strings.Fields(at)[0], ";")) // other waits may follow
	require.NoError(t, err)
	require.Greater(t, time.Until(killAt), 50*time.Minute)
	f.event("Node", f.name, "OrphanedPod", "killed after 1h0m0s")
	require.True(t, machine.Has("orphan-uid"))
}

// termless is a sandbox with records of an earlier release, until a pod is prepared again.
type termless struct {
	sandbox.Sandbox
	again    atomic.Bool
	prepared chan sandbox.Terms
}

func (s *termless) Inspect(ctx context.Context, podUID string) (sandbox.PodState, error) {
	state, err := s.Sandbox.Inspect(ctx, podUID)
	if !s.again.Load() {
		state.Terms = sandbox.Terms{}
	}
	return state, err
}

func (s *termless) Prepare(ctx context.Context, pod *corev1.Pod) error {
	err := s.Sandbox.Prepare(ctx, pod)
	if !s.again.Swap(true) {
		s.prepared <- sandbox.TermsOf(pod)
	}
	return err
}

// The API server loses the pod after an upgrade of the agent: only what was recorded before tells how long its job may take.
func TestAdopt_NODE3_RecordsTheTermsOfAnEarlierReleasesPod(t *testing.T) {
	f := newFixture(t)
	machine := synthetic.NewMachine(nil)
	machine.Install("main", synthetic.Program{Run: func(ctx context.Context, _ <-chan struct{}, _ *corev1.Pod, _ sandbox.Container) int32 {
		<-ctx.Done()
		return 137
	}})
	t.Cleanup(machine.Off)
	pod := f.create(func(p *corev1.Pod) { p.Spec.TerminationGracePeriodSeconds = ptr.To(int64(3600)) }, corev1.Container{Name: "main", Image: "none", Command: []string{"main"}})
	sb := &termless{Sandbox: synthetic.New(machine), prepared: make(chan sandbox.Terms, 1)}
	require.NoError(t, sb.Sandbox.Prepare(t.Context(), pod))
	require.NoError(t, sb.Start(t.Context(), pod, sandbox.Container{Name: "main"}))
	f.agent(sb)
	require.Equal(t, sandbox.Terms{Node: f.name, GracePeriodSeconds: ptr.To(int64(3600))}, await.Receive(t, sb.prepared, "the terms are recorded"))
	require.True(t, machine.Has(string(pod.UID)))
}

func TestRun_NODE3_RefusesTheStateOfAnotherNodeWhileItsPodsRun(t *testing.T) {
	f := newFixture(t)
	machine, sb, _ := f.busyOrphan("former-name")
	agent, err := node.New(options(f.name, f.stateDir, f.identity(), sb))
	require.NoError(t, err)
	err = agent.Run(await.Context(t))
	require.ErrorContains(t, err, f.ns+"/orphan")
	require.ErrorContains(t, err, "--name former-name")
	_, err = f.kube.CoreV1().Nodes().Get(t.Context(), f.name, metav1.GetOptions{})
	require.Error(t, err, "no node of the new name was registered")

	require.NoError(t, machine.Lose("orphan-uid", "main"))
	f.agent(sb)
	require.Eventually(t, func() bool { return !machine.Has("orphan-uid") }, patience, 10*time.Millisecond, "what no longer runs is removed")
}

// The records could not be listed at the start: the worker does not take the list of another node's pods for proof, either.
func TestOrphan_NODE3_OfAnotherNodeIsLeftRunning(t *testing.T) {
	f := newFixture(t)
	machine, sb, terminated := f.busyOrphan("former-name")
	agent := f.agent(&unreadable{Sandbox: sb})
	f.waitsFor(agent, "the pod is bound to node former-name")
	select {
	case <-terminated:
		t.Error("a pod of another node was asked to stop")
	default:
	}
	require.NoError(t, machine.Exit("orphan-uid", "main", 0))
	require.Eventually(t, func() bool { return !machine.Has("orphan-uid") }, patience, 10*time.Millisecond)
}
