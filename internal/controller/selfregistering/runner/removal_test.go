package runner_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/bullpen-ci/bullpen/api/v1alpha1"
	"github.com/bullpen-ci/bullpen/internal/controller/selfregistering/registered"
	"github.com/bullpen-ci/bullpen/internal/controller/selfregistering/registration"
	"github.com/bullpen-ci/bullpen/internal/plan/lifecycle"
	"github.com/bullpen-ci/bullpen/internal/runnerpod"
	"github.com/bullpen-ci/bullpen/test/kit/await"
	"github.com/bullpen-ci/bullpen/test/kit/registeredtest"
)

// stopped acts as the kubelet of a pod that was asked to stop.
func (b *bench) stopped(name string) {
	b.t.Helper()
	if pod := b.pod(name); pod != nil && pod.DeletionTimestamp != nil {
		b.finish(name, 0)
	}
	b.settle(name)
}

func TestRunner_RUN2_EXCL2_GoesWhenGitHubHasRemovedIt(t *testing.T) {
	b := newBench(t)
	r := b.idle("r")
	var atGitHub, pods []bool
	b.refuse = func(what string, _ client.Object) error {
		if what == "delete Pod" {
			_, known := b.github.Get(r.Status.RunnerName)
			atGitHub, pods = append(atGitHub, known), append(pods, b.pod("r").Annotations[runnerpod.AnnotationUnregistered] != "")
		}
		return nil
	}
	b.delete(r)
	b.settle("r")
	b.stopped("r")
	require.Equal(t, []bool{false}, atGitHub, "unregistered first, then deleted, once")
	require.Equal(t, []bool{true}, pods, "what GitHub has granted is written on the pod")
	require.True(t, b.gone("r"))
	require.Nil(t, b.pod("r"))
	require.Equal(t, 1, b.github.Calls(registeredtest.Remove), "a grant is asked for once")
}

// PR #1179 follow-up c4b24f83: a removal was given up after a minute, and the job killed.
func TestRunner_RUN2_c4b24f83_ABusyRunnerIsWaitedForWithoutADeadline(t *testing.T) {
	for name, kind := range map[string]func(*v1alpha1.Runner){"ephemeral": func(*v1alpha1.Runner) {}, "static": static} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			r := b.idle("r", kind)
			b.makeBusy("r")
			b.github.Change(r.Status.RunnerName, func(r *registeredtest.Runner) { r.Busy = true })
			b.delete(r)
			for range 30 {
				b.pass(6 * time.Hour)
				b.settle("r")
				require.Nil(t, b.pod("r").DeletionTimestamp)
			}
			blocked := b.condition("r", v1alpha1.ConditionRemovalBlocked)
			require.Equal(t, metav1.ConditionTrue, blocked.Status)
			require.Contains(t, blocked.Message, "a job has started in it")
			require.Zero(t, b.github.Calls(registeredtest.Remove), "the pod's own sign is asked before GitHub")
			b.github.Drop(r.Status.RunnerName)
			b.finish("r", 0)
			b.settle("r")
			require.True(t, b.gone("r"))
			require.Nil(t, b.pod("r"))
		})
	}
}

// PR #1179 follow-up 9628bb29: 422 answers ate the rate limit.
func TestFence_RUN2_9628bb29_ABusyEphemeralRunnerIsAskedAboutOnceAndAStaticOneOncePerMinute(t *testing.T) {
	for name, c := range map[string]struct {
		kind func(*v1alpha1.Runner)
		most int
	}{"ephemeral": {func(*v1alpha1.Runner) {}, 1}, "static": {static, 61}} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			r := b.idle("r", c.kind)
			b.github.Change(r.Status.RunnerName, func(r *registeredtest.Runner) { r.Busy = true }) // and the pod does not show it yet
			b.delete(r)
			for range 120 {
				b.round("r")
				b.pass(30 * time.Second)
			}
			require.LessOrEqual(t, b.github.Calls(registeredtest.Remove), c.most, "in an hour")
			require.Greater(t, b.github.Calls(registeredtest.Remove)*2, c.most, "and not given up")
			require.Nil(t, b.pod("r").DeletionTimestamp)
			b.github.Change(r.Status.RunnerName, func(r *registeredtest.Runner) { r.Busy = false })
			b.makeBusy("r") // its job reaches it after all
			b.settle("r")
			b.finish("r", 0)
			b.settle("r")
			require.True(t, b.gone("r"))
		})
	}
}

// PR #1179 follow-up f153870f: a 403 blocked for ever. The meaning of a 403 beside a control read is tested in package registration. A
// runner that GitHub lists and does not remove may receive a job at any moment: it stays, a condition says why, and the wait ends with its
// end.
func TestRunner_EXCL6_f153870f_AForbiddenRemovalKeepsARunnerUntilItHasEnded(t *testing.T) {
	b := newBench(t)
	r := b.idle("r")
	b.github.AnswerRemovals(func(subject registration.Subject) *lifecycle.Answer {
		if subject.Ended {
			return &lifecycle.Answer{Verdict: lifecycle.Granted, Detail: "GitHub goes on listing it", Proof: "its container exited"}
		}
		return &lifecycle.Answer{Detail: "GitHub denies its removal with these credentials"}
	})
	b.delete(r)
	for range 30 {
		b.pass(6 * time.Hour)
		b.settle("r")
		require.Nil(t, b.pod("r").DeletionTimestamp)
	}
	require.Contains(t, b.condition("r", v1alpha1.ConditionRemovalBlocked).Message, "denies its removal with these credentials")
	b.finish("r", 0)
	b.settle("r")
	require.True(t, b.gone("r"))
}

func TestFence_EXCL3_WhatIsNotKnownDeletesNothingAndIsAskedMoreAndMoreSlowly(t *testing.T) {
	b := newBench(t)
	r := b.idle("r")
	b.github.Fault(func(op registeredtest.Op, _ string) error {
		if op == registeredtest.Remove {
			return errors.New("502 from GitHub")
		}
		return nil
	})
	b.delete(r)
	for range 120 {
		b.round("r")
		b.pass(30 * time.Second)
	}
	require.Nil(t, b.pod("r").DeletionTimestamp)
	require.Contains(t, b.condition("r", v1alpha1.ConditionRemovalBlocked).Message, "502")
	calls := b.github.Calls(registeredtest.Remove)
	require.LessOrEqual(t, calls, 20)
	require.GreaterOrEqual(t, calls, 10)

	until := b.now().Add(40 * time.Minute)
	b.github.Fault(nil)
	b.github.AnswerRemovals(func(registration.Subject) *lifecycle.Answer {
		if b.now().Before(until) {
			return &lifecycle.Answer{Detail: "rate limited", NotBefore: until}
		}
		return nil
	})
	b.restart()
	calls = b.github.Calls(registeredtest.Remove)
	for range 30 {
		b.round("r")
		b.pass(time.Minute)
	}
	require.Equal(t, calls+1, b.github.Calls(registeredtest.Remove), "[F] 5.7: the reset time is honoured")
	b.pass(15 * time.Minute)
	b.settle("r")
	b.stopped("r")
	require.True(t, b.gone("r"))
}

// PR #1179 follow-up a3072c11: runners were unregistered before they had registered, and took jobs afterwards.
func TestFence_a3072c11_AStaticRunnerThatIsRegisteringIsNotAskedAbout(t *testing.T) {
	b := newBench(t)
	b.runner("r", static)
	b.settle("r")
	b.makeIdle("r")
	b.settle("r")
	b.delete(b.get("r"))
	for range 9 {
		b.settle("r")
		require.NotNil(t, b.pod("r"))
		require.Nil(t, b.pod("r").DeletionTimestamp)
		b.pass(time.Minute)
	}
	require.Zero(t, b.github.Calls(registeredtest.Remove))
	require.Contains(t, b.condition("r", v1alpha1.ConditionRemovalBlocked).Message, "registering")
	b.pass(2 * time.Minute) // the registration has timed out
	b.settle("r")
	require.NotZero(t, b.github.Calls(registeredtest.Remove))
	b.stopped("r")
	require.True(t, b.gone("r"))
}

// PR #1179 follow-ups 7ff5b7da and 23c8fe4a: a pod that waited, for a volume or a node, blocked for ever.
func TestRunner_7ff5b7da_23c8fe4a_APodThatNeverStartedGoesAtOnce(t *testing.T) {
	for name, kind := range map[string]func(*v1alpha1.Runner){"ephemeral": func(*v1alpha1.Runner) {}, "static": static} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.runner("r", kind)
			b.settle("r")
			b.delete(b.get("r"))
			b.settle("r")
			require.True(t, b.gone("r"))
			require.Nil(t, b.pod("r"))
			require.Zero(t, b.github.Len())
		})
	}
	t.Run("and was never made", func(t *testing.T) {
		b := newBench(t)
		b.refuse = func(what string, _ client.Object) error {
			if what == "create Pod" {
				return errors.New("no etcd")
			}
			return nil
		}
		b.runner("r")
		b.round("r")
		require.Equal(t, 1, b.github.Len())
		b.delete(b.get("r"))
		b.settle("r")
		require.True(t, b.gone("r"))
		require.Zero(t, b.github.Len())
	})
}

// PR #1179 follow-up efb7fca3: a deleted pod blocked, because its runner's id was no longer known.
func TestRunner_efb7fca3_AVanishedPodBlocksNobodyAndIsStillUnregistered(t *testing.T) {
	for name, kind := range map[string]func(*v1alpha1.Runner){"ephemeral": func(*v1alpha1.Runner) {}, "static": static} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			r := b.idle("r", kind)
			b.edit("r", func(*v1alpha1.Runner) {})
			forgotten := b.get("r")
			base := forgotten.DeepCopy()
			forgotten.Status.RunnerID = 0
			require.NoError(t, b.admin.Status().Patch(t.Context(), forgotten, client.MergeFrom(base)))
			b.vanish("r")
			b.restart()
			b.settle("r")
			require.True(t, b.gone("r"))
			require.Equal(t, []string{r.Status.RunnerName}, b.github.Removed(), "found by its name")
		})
	}
}

// A pod of which the owner is gone by force is removed as its owner would.
func TestPods_RUN2_EXCL2_AnOrphanIsUnregisteredAndRemoved(t *testing.T) {
	b := newBench(t)
	r := b.idle("r")
	b.makeBusy("r")
	b.github.Change(r.Status.RunnerName, func(r *registeredtest.Runner) { r.Busy = true })
	base := r.DeepCopy()
	r.Finalizers = nil
	require.NoError(t, b.admin.Patch(t.Context(), r, client.MergeFrom(base)))
	b.delete(r)
	require.Eventually(t, func() bool { return b.gone("r") }, 30*time.Second, 10*time.Millisecond)
	for range 5 {
		b.settle("r")
		b.pass(time.Hour)
	}
	require.Nil(t, b.pod("r").DeletionTimestamp, "it works")
	b.makeIdle("r") // its job was taken back
	b.github.Change(r.Status.RunnerName, func(r *registeredtest.Runner) { r.Busy = false })
	b.settle("r")
	b.stopped("r")
	require.Nil(t, b.pod("r"))
	require.Equal(t, []string{r.Status.RunnerName}, b.github.Removed())
}

// A pod that changes between the read and the write is read again, soon, and no failure is reported.
func TestPods_AChangeInBetweenIsNoFailure(t *testing.T) {
	b := newBench(t)
	b.idle("r")
	b.delete(b.pod("r"))
	b.finish("r", 0)
	conflict := apierrors.NewConflict(corev1.Resource("pods"), "r", nil)
	b.mu.Lock()
	patches := 0
	b.refuse = func(write string, _ client.Object) error {
		if write == "patch Pod" {
			patches++
		}
		if patches == 2 { // the first records that GitHub has removed its registration
			return conflict
		}
		return nil
	}
	b.mu.Unlock()
	request := reconcile.Request{NamespacedName: key(b.namespace, "r")}
	result, err := b.service.Reconcile(t.Context(), request)
	require.NoError(t, err)
	require.Positive(t, result.RequeueAfter)
	require.Less(t, result.RequeueAfter, time.Second)
	require.NotNil(t, b.pod("r"))
	b.mu.Lock()
	b.refuse = nil
	b.mu.Unlock()
	b.settle("r")
	require.Nil(t, b.pod("r"))
}

// place binds a pod to a node.
func (b *bench) place(name, node string) {
	b.t.Helper()
	pod := b.pod(name)
	require.NoError(b.t, b.admin.SubResource("binding").Create(b.t.Context(), pod, &corev1.Binding{Target: corev1.ObjectReference{Kind: "Node", Name: node}}))
}

// POOL-7: of a runner whose node is gone, busy or not, GitHub's word decides, and only a clear no about the node counts.
func TestRunner_POOL7_EXCL3_ARunnerOfAVanishedNodeGoesOnProofOnly(t *testing.T) {
	b := newBench(t)
	node := b.env.RegisterNode(t, "node-of-"+b.namespace, func(n *corev1.Node) {
		n.Spec.Taints = []corev1.Taint{{Key: "test", Value: b.namespace, Effect: corev1.TaintEffectNoSchedule}}
	})
	b.runner("r")
	b.settle("r")
	b.place("r", node.Name)
	b.makeIdle("r")
	r := b.get("r")
	b.github.Change(r.Status.RunnerName, func(r *registeredtest.Runner) { r.Online, r.Busy = true, true })
	b.settle("r")
	b.makeBusy("r")
	b.settle("r")
	require.NoError(t, b.env.Kube.CoreV1().Nodes().Delete(t.Context(), node.Name, metav1.DeleteOptions{}))
	b.settle("r")
	require.Equal(t, "busy", b.get("r").Status.Stage, "a node that is registered again within seconds costs no runner (NODE-8)")
	b.pass(2 * time.Minute)
	b.settle("r")
	require.Equal(t, "lost", b.get("r").Status.Stage)
	require.False(t, b.get("r").DeletionTimestamp.IsZero(), "nobody owns it")
	for range 10 {
		b.pass(time.Minute)
		b.settle("r")
	}
	require.NotNil(t, b.pod("r"), "GitHub says that it works")
	require.Nil(t, b.pod("r").DeletionTimestamp)
	require.LessOrEqual(t, b.github.Calls(registeredtest.Remove), 11, "once per minute")

	b.github.Change(r.Status.RunnerName, func(r *registeredtest.Runner) { r.Busy = false }) // it has given the job up
	b.pass(2 * time.Minute)
	b.settle("r")
	require.Nil(t, b.pod("r"), "there is no kubelet to wait for")
	require.True(t, b.gone("r"))
	require.Equal(t, []string{r.Status.RunnerName}, b.github.Removed())
}

// A GitHub that hangs for one set of credentials delays no other.
func TestFence_AGitHubThatHangsDelaysNoOther(t *testing.T) {
	b := newBench(t)
	slow := registration.Credentials{Namespace: b.namespace, Secret: "slow"}
	var refs []lifecycle.RunnerRef
	for i := range 12 {
		name := fmt.Sprintf("s%d", i)
		b.idle(name, func(r *v1alpha1.Runner) { r.Spec.Credentials = &v1alpha1.GitHubCredentials{SecretName: slow.Secret} })
		refs = append(refs, lifecycle.RunnerRef{Namespace: b.namespace, Name: name, UID: string(b.pod(name).UID)})
	}
	b.idle("quick")
	release := b.github.Hang(slow)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	done := make(chan []lifecycle.Answer, 1)
	go func() { done <- b.service.Ask(ctx, refs) }()
	answers := b.service.Ask(t.Context(), []lifecycle.RunnerRef{{Namespace: b.namespace, Name: "quick", UID: string(b.pod("quick").UID)}})
	require.Equal(t, lifecycle.Granted, answers[0].Verdict)
	select {
	case <-done:
		t.Fatal("the other one hangs still")
	default:
	}
	// With all slots taken, one more request with these credentials is refused at once instead of hanging with them.
	require.Eventually(t, func() bool { return b.github.Hanging() == 8 }, 30*time.Second, 10*time.Millisecond)
	more := b.service.Ask(t.Context(), refs[11:])
	require.Equal(t, lifecycle.Unknown, more[0].Verdict)
	require.Contains(t, more[0].Detail, "too many requests in flight")
	require.True(t, more[0].NotBefore.After(b.now()))
	release()
	require.Len(t, await.Receive(t, done, "the fence answers"), 12)
}

// [K] 5.11: what jobs made in containerMode Kubernetes goes first, and a failure is tried again after half a minute.
func TestPods_HelpersOfJobsGoBeforeTheRunner(t *testing.T) {
	b := newBench(t)
	r := b.idle("r", func(r *v1alpha1.Runner) {
		r.Spec.ContainerMode = v1alpha1.ContainerModeKubernetes
		r.Spec.Kubernetes = &v1alpha1.KubernetesMode{ServiceAccountName: "default", WorkVolumeClaim: corev1.PersistentVolumeClaimSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Resources:   corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
		}}
	})
	labels := map[string]string{runnerpod.LabelHookPod: "r"}
	job := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: b.namespace, Name: "r-workflow", Labels: labels}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}}}
	other := job.DeepCopy()
	other.Name, other.Labels = "other-workflow", map[string]string{runnerpod.LabelHookPod: "other"}
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: b.namespace, Name: "r-job", Labels: labels}}
	for _, o := range []client.Object{job, other, secret} {
		require.NoError(t, b.admin.Create(t.Context(), o))
	}
	fail := true
	b.refuse = func(what string, o client.Object) error {
		if what == "delete Pod" && o.GetName() == "r-workflow" && fail {
			return errors.New("not now")
		}
		return nil
	}
	b.github.Drop(r.Status.RunnerName)
	b.finish("r", 0)
	b.settle("r")
	require.Contains(t, b.pod("r").Finalizers, runnerpod.FinalizerRegistration)
	result, err := b.service.Reconcile(t.Context(), reconcile.Request{NamespacedName: key(b.namespace, "r")})
	require.NoError(t, err)
	require.InDelta(t, 30, result.RequeueAfter.Seconds(), 1)
	fail = false
	b.settle("r")
	require.Nil(t, b.pod("r"))
	require.Nil(t, b.pod("r-workflow"))
	require.NotNil(t, b.pod("other-workflow"))
	require.Error(t, b.admin.Get(t.Context(), key(b.namespace, "r-job"), secret))
}

// Credentials that are gone hold nothing for ever: neither a pod whose runner has ended, nor a Runner without one.
func TestRunner_UninstallingLeavesNoStuckFinalizer(t *testing.T) {
	b := newBench(t)
	b.idle("ended")
	b.runner("bare", func(r *v1alpha1.Runner) { r.Spec.Template.Spec.NodeSelector = map[string]string{"no key!": "x"} })
	b.settle("bare")
	require.Nil(t, b.pod("bare"))
	b.github.Fault(func(op registeredtest.Op, _ string) error {
		if op == registeredtest.For {
			return registration.ErrCredentials
		}
		return nil
	})
	b.finish("ended", 1)
	b.delete(b.get("ended"))
	b.delete(b.get("bare"))
	for _, name := range []string{"ended", "bare"} {
		b.settle(name)
		require.False(t, b.gone(name))
	}
	b.events()
	b.pass(11 * time.Minute)
	for _, name := range []string{"ended", "bare"} {
		b.settle(name)
		require.True(t, b.gone(name), name)
		require.Nil(t, b.pod(name))
	}
	recorded := b.events()
	require.Len(t, recorded, 2)
	require.Contains(t, recorded[0]+recorded[1], "RegistrationLeft")

	b.github.Fault(nil)
	b.idle("works")
	b.makeBusy("works")
	b.github.Fault(func(registeredtest.Op, string) error { return registration.ErrCredentials })
	b.delete(b.get("works"))
	for range 10 {
		b.pass(time.Hour)
		b.settle("works")
	}
	require.Nil(t, b.pod("works").DeletionTimestamp, "RUN-2: what has not ended is waited for without a deadline")
}

// Prepare runs once per pod, and never for a pod that has existed.
func TestPrepare_RUN7_NeverMintsForAPodThatHasExisted(t *testing.T) {
	b := newBench(t)
	r := b.runner("r")
	identity := registered.Identity{
		Namespace: b.namespace, Name: "r", Spec: &r.Spec, RunnerName: "r-abcde",
		Owner: metav1.OwnerReference{APIVersion: "bullpen.dev/v1alpha1", Kind: "Runner", Name: "r", UID: r.UID, Controller: ptr.To(true)},
	}
	_, err := b.service.Prepare(t.Context(), identity, nil, true)
	require.ErrorIs(t, err, registered.ErrSpent)
	identity.Spec = r.Spec.DeepCopy()
	identity.Spec.Ephemeral = ptr.To(false)
	_, err = b.service.Prepare(t.Context(), identity, nil, true)
	require.ErrorIs(t, err, registered.ErrSpent)
	require.Zero(t, b.github.Calls(registeredtest.For))
	identity.Spec.Ephemeral = nil
	first, err := b.service.Prepare(t.Context(), identity, nil, false)
	require.NoError(t, err)
	second, err := b.service.Prepare(t.Context(), identity, nil, true)
	require.NoError(t, err)
	require.Equal(t, first, second)
	require.Equal(t, 1, b.github.Calls(registeredtest.JIT))
}
