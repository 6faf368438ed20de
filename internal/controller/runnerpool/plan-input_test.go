package runnerpool

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"github.com/bullpen-ci/bullpen/api/v1alpha1"
	"github.com/bullpen-ci/bullpen/internal/lifecycle"
	"github.com/bullpen-ci/bullpen/internal/runnerpod"
)

var t0 = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func runs() corev1.ContainerState {
	return corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(t0)}}
}

func ended(code int32) corev1.ContainerState {
	return corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: code, Reason: "Error", FinishedAt: metav1.NewTime(t0.Add(time.Hour))}}
}

// idlePod is a runner that can take work; change spoils it.
func idlePod(change ...func(*corev1.Pod)) *corev1.Pod {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "ns", Name: "pool-aaaaaaaa", UID: "uid", ResourceVersion: "7", CreationTimestamp: metav1.NewTime(t0.Add(-time.Minute)),
			Labels: map[string]string{runnerpod.LabelRunner: "true", runnerpod.LabelPool: "pool", runnerpod.LabelTemplateHash: "hash"},
		},
		Spec: corev1.PodSpec{NodeName: "node"},
		Status: corev1.PodStatus{
			Phase: corev1.PodRunning,
			Conditions: []corev1.PodCondition{
				{Type: corev1.PodScheduled, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(t0.Add(-time.Second))},
				{Type: corev1.ContainersReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(t0)},
			},
			ContainerStatuses: []corev1.ContainerStatus{
				{Name: runnerpod.ContainerPoller, Ready: true, State: runs()},
				{Name: runnerpod.ContainerRunner, Ready: true, State: runs()},
			},
		},
	}
	for _, c := range change {
		c(pod)
	}
	return pod
}

func notReady(at time.Time) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Status.ContainerStatuses[1].Ready = false
		p.Status.Conditions[1] = corev1.PodCondition{Type: corev1.ContainersReady, Status: corev1.ConditionFalse, LastTransitionTime: metav1.NewTime(at)}
	}
}

func TestObserve_EXCL4_AnyOneSignOfWorkIsBusy(t *testing.T) {
	for _, c := range []struct {
		name   string
		pod    *corev1.Pod
		stage  lifecycle.Stage
		work   bool
		defect bool
	}{
		{name: "idle", pod: idlePod(), stage: lifecycle.StageIdle},
		{name: "owner label", stage: lifecycle.StageBusy, work: true,
			pod: idlePod(func(p *corev1.Pod) { p.Labels[runnerpod.LabelOwner] = "acme" })},
		{name: "poller has ended well", stage: lifecycle.StageBusy, work: true,
			pod: idlePod(func(p *corev1.Pod) { p.Status.ContainerStatuses[0].State = ended(0) })},
		{name: "poller has crashed", stage: lifecycle.StageBusy, work: true,
			pod: idlePod(func(p *corev1.Pod) { p.Status.ContainerStatuses[0].State = ended(1) })},
		{name: "runner was ready and is not", pod: idlePod(notReady(t0.Add(5 * time.Second))), stage: lifecycle.StageBusy, work: true},
		{name: "runner was never ready", pod: idlePod(notReady(t0.Add(-time.Second))), stage: lifecycle.StageBooting},
		{name: "being deleted, and working", stage: lifecycle.StageBusy, work: true,
			pod: idlePod(func(p *corev1.Pod) {
				p.Labels[runnerpod.LabelOwner] = "acme"
				p.DeletionTimestamp = ptr.To(metav1.NewTime(t0))
			})},
		{name: "being deleted", stage: lifecycle.StageLeaving,
			pod: idlePod(func(p *corev1.Pod) { p.DeletionTimestamp = ptr.To(metav1.NewTime(t0)) })},
		{name: "waits for a node", stage: lifecycle.StageBooting,
			pod: idlePod(func(p *corev1.Pod) {
				p.Spec.NodeName, p.Status = "", corev1.PodStatus{Phase: corev1.PodPending}
			})},
		{name: "runner has ended, poller goes on", stage: lifecycle.StageBooting, defect: true,
			pod: idlePod(func(p *corev1.Pod) {
				p.Status.ContainerStatuses[1].State = ended(1)
				p.Status.ContainerStatuses[1].Ready = false
			})},
		{name: "ended", stage: lifecycle.StageFinished,
			pod: idlePod(func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed })},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newTracker().pool(key)
			s.podSeen(observe(c.pod), t0)
			r, ok := s.runners.Get(c.pod.Name)
			require.True(t, ok)
			require.Equal(t, c.stage.String(), r.Stage.String())
			require.Equal(t, c.work, s.members[c.pod.Name].work() != "")
			require.Equal(t, c.defect, r.Unfit != (lifecycle.Unfit{}))

			trimmed, err := TrimPod(c.pod)
			require.NoError(t, err)
			require.Equal(t, observe(c.pod), observe(trimmed.(*corev1.Pod)), "the trimmed cache loses nothing that is read")
		})
	}
}

// What a single observation cannot show is remembered: a runner that was ready and is not has been given a job, even
// where the back end keeps no transition times.
func TestObserve_EXCL4_NoLongerReadyIsRemembered(t *testing.T) {
	s := newTracker().pool(key)
	s.podSeen(observe(idlePod()), t0)
	s.podSeen(observe(idlePod(notReady(time.Time{}))), t0)
	r, _ := s.runners.Get("pool-aaaaaaaa")
	require.Equal(t, lifecycle.StageBusy, r.Stage)
	s.podSeen(observe(idlePod()), t0)
	r, _ = s.runners.Get("pool-aaaaaaaa")
	require.Equal(t, lifecycle.StageIdle, r.Stage, "a slow probe is no job")
}

func TestObserve_Ending(t *testing.T) {
	v := observe(idlePod(func(p *corev1.Pod) {
		p.Status.Phase = corev1.PodFailed
		p.Status.ContainerStatuses[0].State = ended(1)
		p.Status.ContainerStatuses[1].State = ended(3)
	}))
	require.Equal(t, ending{at: t0.Add(time.Hour), exitCode: 3, exited: true, reason: "Error"}, v.end)
	require.True(t, v.failed)
	v = observe(idlePod(func(p *corev1.Pod) {
		p.Status.Phase = corev1.PodFailed
		p.Status.Reason = "Evicted"
		p.Status.ContainerStatuses[0].State = ended(0)
	}))
	require.Equal(t, "Evicted", v.end.reason)
	require.False(t, v.end.exited, "NODE-4: an unknown exit is not success")
	require.False(t, v.failed, "it was given work")
}

func TestWishOf(t *testing.T) {
	pool := &v1alpha1.RunnerPool{}
	require.Equal(t, lifecycle.Wish{Desired: 1, TemplateHash: "h", StartTimeout: 10 * time.Minute, LeaveTimeout: leaveTimeout}, wishOf(pool, "h"))
	pool.Spec.Replicas = ptr.To[int32](50)
	pool.Spec.Rollout.MaxUnavailable = ptr.To(intstr.FromString("5%"))
	pool.Spec.Rollout.MaxSurge = ptr.To(intstr.FromString("5%"))
	pool.Spec.Provisioning.StartTimeout = &metav1.Duration{}
	pool.DeletionTimestamp = ptr.To(metav1.NewTime(t0))
	wish := wishOf(pool, "h")
	require.Equal(t, 2, wish.MaxUnavailable, "rounded down")
	require.Equal(t, 3, wish.MaxSurge, "rounded up")
	require.Zero(t, wish.StartTimeout)
	require.True(t, wish.Terminating)
	require.Zero(t, share(intstr.FromString("nonsense"), 10, false))
}
