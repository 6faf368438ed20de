package node_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"

	"github.com/bullpen-ci/bullpen/internal/dev/controlplane"
	"github.com/bullpen-ci/bullpen/internal/node"
	"github.com/bullpen-ci/bullpen/internal/node/sandbox"
	"github.com/bullpen-ci/bullpen/internal/node/sandbox/synthetic"
	"github.com/bullpen-ci/bullpen/internal/runnerpod"
	"github.com/bullpen-ci/bullpen/test/kit/await"
)

// A node may not patch pods; only because its finalizer can be changed through the status can it hold them at all.
func TestNodeIdentityMayChangeItsFinalizerThroughTheStatusOnly(t *testing.T) {
	f := newFixture(t)
	f.run(synthetic.New(synthetic.NewMachine(nil)))
	pod := f.create(nil, sh("main", ""))
	pod = f.await(pod, "held", func(p *corev1.Pod) bool { return p != nil && len(p.Finalizers) > 0 })
	require.Equal(t, []string{runnerpod.FinalizerSandbox}, pod.Finalizers)
	kube, err := kubernetes.NewForConfig(f.identity())
	require.NoError(t, err)
	_, err = kube.CoreV1().Pods(f.ns).Patch(t.Context(), pod.Name, types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
	require.True(t, apierrors.IsForbidden(err), "%v", err)
}

func TestDelete_NODE1_APodThatHasSucceededGoes(t *testing.T) {
	f := newFixture(t)
	stop := f.run(f.process())
	quick := f.awaitPhase(f.create(nil, sh("main", "exit 0")), corev1.PodSucceeded)
	while := f.awaitPhase(f.create(nil, sh("main", "exit 0")), corev1.PodSucceeded)
	require.Contains(t, quick.Finalizers, runnerpod.FinalizerSandbox)
	f.delete(quick, nil)
	f.await(quick, "gone", isGone)

	stop()
	f.delete(while, nil)
	held := f.await(while, "held", func(p *corev1.Pod) bool { return p != nil && p.DeletionTimestamp != nil })
	require.Equal(t, corev1.PodSucceeded, held.Status.Phase)
	f.run(f.process())
	f.await(while, "gone", isGone)
	require.NoDirExists(t, filepath.Join(f.stateDir, "pods", string(while.UID)))
	require.NoDirExists(t, filepath.Join(f.stateDir, "volumes", string(while.UID)))
}

// The API server logs and counts a call that is cancelled as one that failed: a deletion's answer is waited for, although
// the watch has long shown that the pod has gone. And what goes with its finalizer is not deleted once more.
func TestDelete_AsksOnceAndWaitsForTheAnswer(t *testing.T) {
	f := newFixture(t)
	var answered, cancelled atomic.Int64
	f.run(f.process(), func(opts *node.Options) {
		opts.Config.Wrap(func(next http.RoundTripper) http.RoundTripper {
			return roundTrip(func(req *http.Request) (*http.Response, error) {
				if req.Method != http.MethodDelete {
					resp, err := next.RoundTrip(req)
					if err == nil && req.URL.Query().Get("watch") != "" {
						resp.Body = late{resp.Body}
					}
					return resp, err
				}
				resp, err := next.RoundTrip(req.WithContext(context.WithoutCancel(req.Context())))
				select {
				case <-req.Context().Done():
					cancelled.Add(1)
				case <-time.After(time.Second): // the watch is quicker by far
					answered.Add(1)
				}
				return resp, err
			})
		})
	})
	for range 5 {
		ended := f.awaitPhase(f.create(nil, sh("main", "exit 0")), corev1.PodSucceeded)
		f.delete(ended, nil)
		f.await(ended, "gone", isGone)
	}
	require.Zero(t, answered.Load()+cancelled.Load(), "they went with their finalizers")
	runs := f.awaitPhase(f.create(nil, sh("main", "sleep 1000")), corev1.PodRunning)
	f.delete(runs, ptr.To(int64(1)))
	f.await(runs, "gone", isGone)
	require.Eventually(t, func() bool { return answered.Load()+cancelled.Load() > 0 }, patience, 10*time.Millisecond)
	require.Equal(t, []int64{1, 0}, []int64{answered.Load(), cancelled.Load()})
}

// late is a watch that lags.
type late struct{ io.ReadCloser }

func (l late) Read(p []byte) (int, error) {
	n, err := l.ReadCloser.Read(p)
	<-time.After(100 * time.Millisecond)
	return n, err
}

type roundTrip func(*http.Request) (*http.Response, error)

func (r roundTrip) RoundTrip(req *http.Request) (*http.Response, error) { return r(req) }

// The remains of an agent that put terminal phases first: pods that have ended, that are being deleted, and that nothing on the node
// remembers, held by the finalizer alone.
func TestDelete_NODE1_PodsThatAnOlderAgentLeftStuckAreFreed(t *testing.T) {
	f := newFixture(t)
	var stuck []*corev1.Pod
	for _, phase := range []corev1.PodPhase{corev1.PodSucceeded, corev1.PodFailed, corev1.PodSucceeded} {
		pod := f.create(func(p *corev1.Pod) { p.Finalizers = []string{runnerpod.FinalizerSandbox} }, sh("main", "exit 0"))
		pod.Status = corev1.PodStatus{Phase: phase, ContainerStatuses: []corev1.ContainerStatus{{
			Name: "main", State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ContainerID: "process://long/gone"}},
		}}}
		_, err := f.kube.CoreV1().Pods(f.ns).UpdateStatus(t.Context(), pod, metav1.UpdateOptions{})
		require.NoError(t, err)
		f.delete(pod, nil)
		stuck = append(stuck, pod)
	}
	f.run(f.process())
	for _, pod := range stuck {
		f.await(pod, "gone", isGone)
	}
}

// gated wraps a sandbox and holds calls back.
type gated struct {
	sandbox.Sandbox
	remove chan struct{} // Remove waits for it, if not nil
	asked  chan string   // receives each call of Remove, if not nil
}

func (g gated) Remove(ctx context.Context, uid string) error {
	if g.asked != nil {
		g.asked <- uid
	}
	if g.remove != nil {
		select {
		case <-g.remove:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return g.Sandbox.Remove(ctx, uid)
}

func TestDelete_NODE2_TheSandboxIsGoneBeforeThePodIs(t *testing.T) {
	f := newFixture(t)
	machine := synthetic.NewMachine(nil)
	g := gated{Sandbox: synthetic.New(machine), remove: make(chan struct{}), asked: make(chan string, 10)}
	f.run(g)
	pod := f.awaitPhase(f.create(nil, sh("main", "")), corev1.PodRunning)
	f.delete(pod, nil)
	require.Equal(t, string(pod.UID), f.receive(g.asked))
	seen, err := f.kube.CoreV1().Pods(f.ns).Get(t.Context(), pod.Name, metav1.GetOptions{})
	require.NoError(t, err)
	require.Contains(t, seen.Finalizers, runnerpod.FinalizerSandbox)
	require.Equal(t, corev1.PodFailed, seen.Status.Phase, "its end was reported first")
	require.Equal(t, int32(143), terminated(seen, "main").ExitCode)
	// Even a deletion without grace cannot take the object.
	f.delete(pod, ptr.To(int64(0)))
	seen, err = f.kube.CoreV1().Pods(f.ns).Get(t.Context(), pod.Name, metav1.GetOptions{})
	require.NoError(t, err)
	require.Equal(t, pod.UID, seen.UID)
	close(g.remove)
	f.await(pod, "gone", isGone)
	require.False(t, machine.Has(string(pod.UID)))
}

func TestDelete_TheGracePeriodIsTheContainers(t *testing.T) {
	f := newFixture(t)
	f.run(f.process())
	polite := f.create(nil, shared(sh("main", `trap 'echo bye > /shared/bye; exit 0' TERM; : > /shared/up; while :; do sleep 0.02; done`)))
	deaf := f.create(nil, shared(sh("main", `trap '' TERM; : > /shared/up; while :; do sleep 0.02; done`)))
	for _, pod := range []*corev1.Pod{polite, deaf} {
		f.awaitPhase(pod, corev1.PodRunning)
		f.awaitFile(filepath.Join(f.volume(pod), "up"))
	}
	f.delete(polite, nil)
	over := f.await(polite, "over", func(p *corev1.Pod) bool { return p == nil || terminated(p, "main") != nil })
	if over != nil {
		require.Zero(t, terminated(over, "main").ExitCode)
	}
	f.await(polite, "gone", isGone)

	started := time.Now()
	f.delete(deaf, ptr.To(int64(3)))
	f.await(deaf, "gone", isGone)
	require.Greater(t, time.Since(started), 2900*time.Millisecond, "it had its three seconds")

	stubborn := f.create(nil, shared(sh("main", `trap '' TERM; : > /shared/up; while :; do sleep 0.02; done`)))
	f.awaitPhase(stubborn, corev1.PodRunning)
	f.awaitFile(filepath.Join(f.volume(stubborn), "up"))
	f.delete(stubborn, ptr.To(int64(3600)))
	f.delete(stubborn, ptr.To(int64(0)))
	f.await(stubborn, "gone", isGone)
}

func (f *fixture) receive(from <-chan string) string {
	f.Helper()
	select {
	case got := <-from:
		return got
	case <-time.After(patience):
		require.Fail(f, "nothing came")
		return ""
	}
}

func (f *fixture) awaitFile(path string) {
	f.Helper()
	require.Eventually(f, func() bool { _, err := os.Stat(path); return err == nil }, patience, 10*time.Millisecond, path)
}

func TestDelete_BeforeAnythingHasStarted(t *testing.T) {
	f := newFixture(t)
	f.run(synthetic.New(synthetic.NewMachine(nil)))
	pod := f.create(func(p *corev1.Pod) { p.Annotations = map[string]string{synthetic.AnnotationPrepare: "never"} }, sh("main", ""))
	f.await(pod, "held", func(p *corev1.Pod) bool { return p != nil && len(p.Finalizers) > 0 })
	f.delete(pod, nil)
	f.await(pod, "gone", isGone)
}

func TestRestart_NODE3_ANewAgentAdoptsWhatRuns(t *testing.T) {
	f := newFixture(t)
	stop := f.run(f.process())
	pod := f.awaitPhase(f.create(nil, shared(sh("main", untilStopped+"; exit 5"))), corev1.PodRunning)
	ended := f.awaitPhase(f.create(nil, shared(sh("main", untilStopped+"; exit 6"))), corev1.PodRunning)
	stop()
	f.finish(ended) // no agent watches
	f.run(f.process())
	require.Equal(t, int32(6), terminated(f.awaitPhase(ended, corev1.PodFailed), "main").ExitCode)

	same, err := f.kube.CoreV1().Pods(f.ns).Get(t.Context(), pod.Name, metav1.GetOptions{})
	require.NoError(t, err)
	require.Equal(t, pod.Status.ContainerStatuses, same.Status.ContainerStatuses, "it did not so much as notice")
	f.finish(pod)
	require.Equal(t, int32(5), terminated(f.awaitPhase(pod, corev1.PodFailed), "main").ExitCode)
}

func TestRestart_NODE3_KillNineOfTheAgentStopsNothing(t *testing.T) {
	f := newFixture(t)
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	require.NoError(t, controlplane.WriteKubeconfig(kubeconfig, f.identity()))
	agent := exec.Command(os.Args[0], "agent", f.name, f.stateDir, kubeconfig)
	agent.Stderr = os.Stderr
	agent.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	require.NoError(t, agent.Start())
	pod := f.awaitPhase(f.create(nil, shared(sh("main", untilStopped+"; exit 5"))), corev1.PodRunning)
	require.NoError(t, syscall.Kill(-agent.Process.Pid, syscall.SIGKILL))
	require.Error(t, agent.Wait())

	f.run(f.process())
	f.finish(pod)
	pod = f.awaitPhase(pod, corev1.PodFailed)
	require.Equal(t, int32(5), terminated(pod, "main").ExitCode)
}

func TestRestart_NODE4_WhatNobodySawEndHasFailed(t *testing.T) {
	f := newFixture(t)
	stop := f.run(f.process())
	pod := f.awaitPhase(f.create(nil, shared(sh("main", `echo $$$$ > /shared/p; mv /shared/p /shared/pid; `+untilStopped))), corev1.PodRunning)
	f.awaitFile(filepath.Join(f.volume(pod), "pid"))
	stop()
	// The shim, then its container: as if the machine had lost power.
	text, err := os.ReadFile(filepath.Join(f.volume(pod), "pid"))
	require.NoError(t, err)
	out, err := exec.CommandContext(await.Context(t), "ps", "-o", "ppid=", "-p", strings.TrimSpace(string(text))).Output()
	require.NoError(t, err)
	var shim int
	_, err = fmt.Sscan(string(out), &shim)
	require.NoError(t, err)
	require.NoError(t, syscall.Kill(shim, syscall.SIGKILL))

	f.run(f.process())
	pod = f.awaitPhase(pod, corev1.PodFailed)
	end := terminated(pod, "main")
	require.Equal(t, int32(137), end.ExitCode)
	require.Equal(t, "ContainerStatusUnknown", end.Reason)
}

func TestRestart_NODE4_WhatTheSandboxDoesNotKnowIsNotStartedAgain(t *testing.T) {
	f := newFixture(t)
	stop := f.run(synthetic.New(synthetic.NewMachine(nil)))
	pod := f.awaitPhase(f.create(nil, sh("main", "")), corev1.PodRunning)
	stop()
	empty := synthetic.NewMachine(nil) // the state directory was lost
	f.run(synthetic.New(empty))
	pod = f.awaitPhase(pod, corev1.PodFailed)
	require.Equal(t, "ContainerStatusUnknown", terminated(pod, "main").Reason)
	require.Zero(t, empty.Starts())
}

func TestPods_NODE6_AHangDelaysNeitherOtherPodsNorTheLease(t *testing.T) {
	f := newFixture(t)
	machine := synthetic.NewMachine(nil)
	g := gated{Sandbox: synthetic.New(machine), remove: make(chan struct{}), asked: make(chan string, 10)}
	f.run(g)
	slowStart := f.create(func(p *corev1.Pod) { p.Annotations = map[string]string{synthetic.AnnotationPrepare: "never"} }, sh("main", ""))
	f.await(slowStart, "held", func(p *corev1.Pod) bool { return p != nil && len(p.Finalizers) > 0 })
	slowStop := f.awaitPhase(f.create(nil, sh("main", "")), corev1.PodRunning)
	f.delete(slowStop, nil)
	f.receive(g.asked) // and it hangs there

	before := f.lease().Spec.RenewTime.Time
	other := f.awaitPhase(f.create(nil, sh("main", "")), corev1.PodRunning)
	require.NoError(t, machine.Exit(string(other.UID), "main", 0))
	f.awaitPhase(other, corev1.PodSucceeded)
	require.Eventually(t, func() bool { return f.lease().Spec.RenewTime.After(before) }, patience, 50*time.Millisecond)
	close(g.remove)
}

func (f *fixture) lease() *coordinationv1.Lease {
	f.Helper()
	var got *coordinationv1.Lease
	require.Eventually(f, func() (ok bool) {
		var err error
		got, err = f.kube.CoordinationV1().Leases(corev1.NamespaceNodeLease).Get(f.Context(), f.name, metav1.GetOptions{})
		return err == nil
	}, patience, 20*time.Millisecond)
	return got
}

func (f *fixture) node(ok func(*corev1.Node) bool) *corev1.Node {
	f.Helper()
	var last *corev1.Node
	require.Eventually(f, func() bool {
		n, err := f.kube.CoreV1().Nodes().Get(f.Context(), f.name, metav1.GetOptions{})
		last = n
		return err == nil && ok(n)
	}, patience, 20*time.Millisecond)
	return last
}

func nodeReady(n *corev1.Node) bool {
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

func TestNode_IsRegisteredAsAKubeletWould(t *testing.T) {
	f := newFixture(t)
	stop := f.run(synthetic.New(synthetic.NewMachine(nil)), func(o *node.Options) {
		o.Taints = []corev1.Taint{{Key: "dedicated", Value: "ci", Effect: corev1.TaintEffectNoSchedule}}
	})
	n := f.node(func(n *corev1.Node) bool {
		return nodeReady(n) && len(n.Spec.Taints) == 1 // the node controller has taken not-ready off
	})
	require.Equal(t, "dedicated", n.Spec.Taints[0].Key)
	require.Equal(t, "test", n.Labels[node.LabelSandbox])
	require.Equal(t, "ci", n.Labels["pool"])
	require.Equal(t, f.name, n.Labels[corev1.LabelHostname])
	require.NotEmpty(t, n.Labels[corev1.LabelArchStable])
	require.Equal(t, int64(50), n.Status.Allocatable.Pods().Value())
	require.Len(t, n.Status.Conditions, 4)
	require.NotEmpty(t, n.Status.NodeInfo.KernelVersion)

	// And the scheduler puts pods there.
	pod := f.create(func(p *corev1.Pod) {
		p.Spec.NodeName = ""
		p.Spec.NodeSelector = map[string]string{corev1.LabelHostname: f.name}
	}, sh("main", ""))
	require.Equal(t, f.name, f.awaitPhase(pod, corev1.PodRunning).Spec.NodeName)

	stop()
	f.run(synthetic.New(synthetic.NewMachine(nil)), func(o *node.Options) { o.Labels = map[string]string{"pool": "other"} })
	f.node(func(n *corev1.Node) bool { return n.Labels["pool"] == "other" })
}

func TestNode_NODE8_ADeletedNodeIsRegisteredAgainAndNothingStops(t *testing.T) {
	f := newFixture(t)
	// Slow on purpose: it must not take the next round to notice.
	f.run(synthetic.New(synthetic.NewMachine(nil)), func(o *node.Options) { o.StatusInterval = time.Hour })
	first := f.node(nodeReady)
	pod := f.awaitPhase(f.create(nil, sh("main", "")), corev1.PodRunning)
	deleted := time.Now()
	require.NoError(t, f.kube.CoreV1().Nodes().Delete(t.Context(), f.name, metav1.DeleteOptions{}))
	second := f.node(func(n *corev1.Node) bool { return n.UID != first.UID && nodeReady(n) })
	require.Less(t, time.Since(deleted), 10*time.Second)
	require.Eventually(t, func() bool {
		owners := f.lease().OwnerReferences
		return len(owners) == 1 && owners[0].UID == second.UID
	}, patience, 50*time.Millisecond)
	same, err := f.kube.CoreV1().Pods(f.ns).Get(t.Context(), pod.Name, metav1.GetOptions{})
	require.NoError(t, err)
	require.Equal(t, pod.Status.ContainerStatuses, same.Status.ContainerStatuses)
	require.Nil(t, same.DeletionTimestamp)
}

func TestBadPods_AreToldWhatIsWrongAndStayPending(t *testing.T) {
	f := newFixture(t)
	f.run(f.process())
	for want, pod := range map[string]*corev1.Pod{
		"has no command": f.create(nil, corev1.Container{Name: "main", Image: "x"}),
		"a probe that is none of": f.create(func(p *corev1.Pod) {
			p.Spec.Containers[0].ReadinessProbe = &corev1.Probe{ProbeHandler: corev1.ProbeHandler{GRPC: &corev1.GRPCAction{Port: 80}}}
		}, sh("main", "")),
	} {
		got := f.await(pod, "refused", func(p *corev1.Pod) bool {
			return p != nil && len(p.Status.ContainerStatuses) > 0 && p.Status.ContainerStatuses[0].State.Waiting != nil
		})
		require.Equal(t, corev1.PodPending, got.Status.Phase)
		require.Equal(t, "CreateContainerConfigError", got.Status.ContainerStatuses[0].State.Waiting.Reason)
		require.Contains(t, got.Status.ContainerStatuses[0].State.Waiting.Message, want)
		require.Contains(t, got.Status.ContainerStatuses[0].State.Waiting.Message, "spec.containers[0].")
		f.event("Pod", pod.Name, "CreateContainerConfigError", want)
		f.delete(got, nil)
		f.await(got, "gone", isGone)
	}
}

func TestMissingReferences_AreWaitedFor(t *testing.T) {
	f := newFixture(t)
	f.run(f.process())
	c := sh("main", `echo "$V"`)
	c.Env = []corev1.EnvVar{{Name: "V", ValueFrom: &corev1.EnvVarSource{ConfigMapKeyRef: &corev1.ConfigMapKeySelector{
		LocalObjectReference: corev1.LocalObjectReference{Name: "later"}, Key: "k",
	}}}}
	pod := f.create(nil, c)
	f.await(pod, "waiting for its ConfigMap", func(p *corev1.Pod) bool {
		return p != nil && len(p.Status.ContainerStatuses) > 0 && p.Status.ContainerStatuses[0].State.Waiting != nil &&
			p.Status.ContainerStatuses[0].State.Waiting.Reason == "CreateContainerConfigError"
	})
	_, err := f.kube.CoreV1().ConfigMaps(f.ns).Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "later"}, Data: map[string]string{"k": "v"}}, metav1.CreateOptions{})
	require.NoError(t, err)
	f.awaitPhase(pod, corev1.PodSucceeded)
	require.Equal(t, "v\n", f.log(pod, "main"))
}

func TestReadinessProbe_DecidesReady(t *testing.T) {
	f := newFixture(t)
	f.run(f.process())
	c := shared(sh("main", untilStopped))
	c.ReadinessProbe = &corev1.Probe{PeriodSeconds: 1, FailureThreshold: 1, ProbeHandler: corev1.ProbeHandler{
		Exec: &corev1.ExecAction{Command: []string{"test", "-e", "/shared/ready"}},
	}}
	pod := f.awaitPhase(f.create(nil, c), corev1.PodRunning)
	require.Equal(t, "False", condition(pod, corev1.PodReady))
	ready := filepath.Join(f.volume(pod), "ready")
	require.NoError(t, os.WriteFile(ready, nil, 0o600))
	f.await(pod, "ready", func(p *corev1.Pod) bool { return condition(p, corev1.PodReady) == "True" })
	require.NoError(t, os.Remove(ready))
	f.await(pod, "not ready again", func(p *corev1.Pod) bool { return condition(p, corev1.PodReady) == "False" })
	f.finish(pod)
	f.awaitPhase(pod, corev1.PodSucceeded)
}
