package pool

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"github.com/bullpen-ci/bullpen/api/v1alpha1"
	"github.com/bullpen-ci/bullpen/internal/plan/lifecycle"
	"github.com/bullpen-ci/bullpen/internal/plan/poolspec"
	"github.com/bullpen-ci/bullpen/internal/runnerpod"
	"github.com/bullpen-ci/bullpen/internal/runnerpod/podsigns"
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

// withIdle gives the pod the container whose exit shows that a job has started.
func withIdle(state corev1.ContainerState) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Status.ContainerStatuses = append(p.Status.ContainerStatuses, corev1.ContainerStatus{Name: runnerpod.ContainerIdle, Ready: state.Running != nil, State: state})
	}
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
		{name: "runner was never ready", pod: idlePod(notReady(t0.Add(-time.Second))), stage: lifecycle.StageStarting},
		{name: "a job has started", pod: idlePod(withIdle(ended(0))), stage: lifecycle.StageBusy, work: true},
		{name: "what shows that none has, has crashed", pod: idlePod(withIdle(ended(137))), stage: lifecycle.StageBusy, work: true},
		{name: "no job has started", pod: idlePod(withIdle(runs())), stage: lifecycle.StageIdle},
		{name: "what shows that none has, is starting", pod: idlePod(withIdle(waits("ContainerCreating", ""))), stage: lifecycle.StageStarting},
		{name: "being deleted, and working", stage: lifecycle.StageBusy, work: true,
			pod: idlePod(func(p *corev1.Pod) {
				p.Labels[runnerpod.LabelOwner] = "acme"
				p.DeletionTimestamp = ptr.To(metav1.NewTime(t0))
			})},
		{name: "being deleted", stage: lifecycle.StageTerminating,
			pod: idlePod(func(p *corev1.Pod) { p.DeletionTimestamp = ptr.To(metav1.NewTime(t0)) })},
		{name: "waits for a node", stage: lifecycle.StageStarting,
			pod: idlePod(func(p *corev1.Pod) {
				p.Spec.NodeName, p.Status = "", corev1.PodStatus{Phase: corev1.PodPending}
			})},
		{name: "runner has ended, poller goes on", stage: lifecycle.StageStarting, defect: true,
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
// EXCL-4: a poller that never started has asked for no configuration. Its pod has no work, and can never take any.
func TestObserve_EXCL4_APollerThatNeverStartedIsADefect(t *testing.T) {
	unstarted := func(reason string) podView {
		trimmed, err := TrimPod(idlePod(func(p *corev1.Pod) {
			p.Status.ContainerStatuses[0].Ready = false
			p.Status.ContainerStatuses[0].State = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
				ExitCode: 128, Reason: reason, Message: "failed to create shim task: context canceled", FinishedAt: metav1.NewTime(t0),
			}}
		}))
		require.NoError(t, err)
		return observe(trimmed.(*corev1.Pod)) //nolint:forcetypeassert // it was one
	}
	v := unstarted("StartError")
	require.Empty(t, v.signs.Work())
	require.Equal(t, "the poller could not start: failed to create shim task: context canceled", v.defect)
	v = unstarted("Error")
	require.NotEmpty(t, v.signs.Work(), "whatever a poller that ran exited with")
	require.Empty(t, v.defect)
}

// A runner without its daemon takes no job. The reason is in the pod as the cache has it.
func TestObserve_ARunnerWithoutItsBuildKitIsNotKept(t *testing.T) {
	with := func(state corev1.ContainerState) lifecycle.Runner {
		trimmed, err := TrimPod(idlePod(withIdle(runs()), func(p *corev1.Pod) {
			p.Status.ContainerStatuses = append(p.Status.ContainerStatuses, corev1.ContainerStatus{Name: runnerpod.ContainerBuildKit, State: state})
		}))
		require.NoError(t, err)
		v := observe(trimmed.(*corev1.Pod)) //nolint:forcetypeassert // it was one
		require.Empty(t, v.observed(state.Waiting == nil).Signs.Work(), "it can be removed")
		s := newTracker().pool(key)
		s.podSeen(v, t0)
		r, found := s.runners.Get("pool-aaaaaaaa")
		require.True(t, found)
		return r
	}
	exited := func(code int32, message string) corev1.ContainerState {
		return corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: code, Reason: "Error", Message: message, FinishedAt: metav1.NewTime(t0)}}
	}
	require.Equal(t, lifecycle.StageIdle, with(runs()).Stage)
	require.Empty(t, with(runs()).Unfit)
	failed := with(exited(1, "the pod has no user namespace of its own\n"))
	require.Equal(t, lifecycle.Unfit{Reason: lifecycle.ReasonDefective, Detail: "the container buildkit has exited: the pod has no user namespace of its own"}, failed.Unfit)
	require.Equal(t, lifecycle.Unfit{Reason: lifecycle.ReasonDefective, Detail: "the container buildkit has exited"}, with(exited(0, "")).Unfit)
	pulling := with(waits("ImagePullBackOff", "no such image"))
	require.Equal(t, lifecycle.StageStarting, pulling.Stage, "it counts as none that serves, and is replaced after the start timeout")
	require.Contains(t, pulling.Waiting, "no such image")
}

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
	require.Equal(t, "evicted", v.end.evicted, "it may never have been started")
	require.False(t, v.end.exited, "NODE-4: an unknown exit is not success")
	require.False(t, v.failed, "it was given work")
}

// A kubelet that evicts a runner for its own disk leaves no other word of it than the pod's message (TEN-6).
func TestObserve_TEN6_AnEvictionIsToldInASentence(t *testing.T) {
	const limit = "Pod ephemeral local storage usage exceeds the total limit of containers 10368Mi. "
	evicted := func(message string, change ...func(*corev1.Pod)) *corev1.Pod {
		return idlePod(append([]func(*corev1.Pod){func(p *corev1.Pod) {
			p.Status.Phase, p.Status.Reason, p.Status.Message = corev1.PodFailed, "Evicted", message
			p.Status.ContainerStatuses[0].State, p.Status.ContainerStatuses[1].State = ended(0), ended(137)
		}}, change...)...)
	}
	forItsNode := func(p *corev1.Pod) {
		p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: corev1.PodReasonTerminationByKubelet})
	}
	for name, c := range map[string]struct {
		pod  *corev1.Pod
		want string
	}{
		"its own limit": {evicted(limit), "evicted: it exceeded its limit of ephemeral storage: Pod ephemeral local storage usage exceeds the total limit of containers 10368Mi. " +
			"Raise its limit of ephemeral storage (spec.resources.ephemeralStorage of a RunnerPool, or the sizeLimit of the volume), or make the job write less"},
		"its node": {evicted("The node was low on resource: ephemeral-storage. ", forItsNode),
			"evicted: its node was short of resources: The node was low on resource: ephemeral-storage. Look for pods on that node that use more than they request"},
		"it was never started": {evicted("The node had condition: [DiskPressure]. ", func(p *corev1.Pod) { p.Status.ContainerStatuses = nil }),
			"evicted: The node had condition: [DiskPressure]"},
		"it ended otherwise": {idlePod(func(p *corev1.Pod) { p.Status.Phase, p.Status.Message = corev1.PodFailed, limit }), ""},
	} {
		require.Equal(t, c.want, observe(c.pod).end.evicted, name)
		trimmed, err := TrimPod(c.pod)
		require.NoError(t, err)
		require.Equal(t, observe(c.pod), observe(trimmed.(*corev1.Pod)), "the trimmed cache loses nothing that is read: %s", name)
	}
}

// The clock of an idle runner begins when it became able to take work, whenever this process began to look.
func TestObserve_IdleSinceItBecameReady(t *testing.T) {
	s := newTracker().pool(key)
	since := func(pod *corev1.Pod, now time.Time) time.Time {
		s.podSeen(observe(pod), now)
		r, _ := s.runners.Get(pod.Name)
		require.Equal(t, lifecycle.StageIdle, r.Stage)
		return r.Since
	}
	require.Equal(t, t0, since(idlePod(), t0.Add(time.Hour)))
	mute := idlePod(func(p *corev1.Pod) { p.Status.Conditions = nil })
	require.Equal(t, t0.Add(time.Hour), since(mute, t0.Add(2*time.Hour)), "no transition time: since it was first seen")
	s.podSeen(observe(idlePod(notReady(time.Time{}))), t0.Add(3*time.Hour))
	require.Equal(t, t0.Add(4*time.Hour), since(mute, t0.Add(4*time.Hour)), "it was not ready meanwhile")
}

func waits(reason, message string) corev1.ContainerState {
	return corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: message}}
}

func TestObserve_POOL6_SaysWhatABootingRunnerWaitsFor(t *testing.T) {
	unplaced := func(p *corev1.Pod) {
		p.Spec.NodeName = ""
		p.Status = corev1.PodStatus{Phase: corev1.PodPending, Conditions: []corev1.PodCondition{{
			Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: "Unschedulable", Message: "0/3 nodes are available: 3 Insufficient cpu.\nmore",
		}}}
	}
	starting := func(agent, poller, runner corev1.ContainerState) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			p.Status = corev1.PodStatus{
				Phase:                 corev1.PodPending,
				InitContainerStatuses: []corev1.ContainerStatus{{Name: runnerpod.ContainerAgent, State: agent}},
				ContainerStatuses: []corev1.ContainerStatus{
					{Name: runnerpod.ContainerPoller, State: poller}, {Name: runnerpod.ContainerRunner, State: runner},
				},
			}
		}
	}
	initializing := waits("PodInitializing", "")
	for want, change := range map[string]func(*corev1.Pod){
		"": nil,
		"Unschedulable: 0/3 nodes are available: 3 Insufficient cpu.": unplaced,
		"agent: ImagePullBackOff: no such image":                      starting(waits("ImagePullBackOff", "no such image"), initializing, initializing),
		"runner: ErrImagePull":                                        starting(ended(0), waits("ContainerCreating", ""), waits("ErrImagePull", "")),
		"poller: PodInitializing":                                     starting(runs(), initializing, initializing),
		"runner: CreateContainerError: " + strings.Repeat("é", 132) + "…": starting(ended(0), runs(),
			waits("CreateContainerError", strings.Repeat("é", 5000))),
	} {
		pod := idlePod()
		if change != nil {
			change(pod)
		}
		v := observe(pod)
		require.LessOrEqual(t, len(v.waiting), podsigns.LongestWaiting+20)
		if !strings.HasSuffix(want, "…") {
			require.Equal(t, want, v.waiting)
		} else {
			require.True(t, strings.HasPrefix(v.waiting, want[:100]) && strings.HasSuffix(v.waiting, "é…"), v.waiting)
		}
		trimmed, err := TrimPod(pod)
		require.NoError(t, err)
		require.Equal(t, oneLine(v.waiting, 200), oneLine(observe(trimmed.(*corev1.Pod)).waiting, 200), "the trimmed cache loses nothing that is read")
	}
}

// The reason why a runner waits matters only to a timeout, which reads it when it is due.
func TestPodSeen_AChangeOfWhatItWaitsForStartsNoPass(t *testing.T) {
	s := newTracker().pool(key)
	pod := idlePod(notReady(t0.Add(-time.Second)), func(p *corev1.Pod) { p.Status.ContainerStatuses[1].State = waits("ErrImagePull", "") })
	require.True(t, s.podSeen(observe(pod), t0))
	pod.Status.ContainerStatuses[1].State = waits("ImagePullBackOff", "")
	require.False(t, s.podSeen(observe(pod), t0))
	r, _ := s.runners.Get(pod.Name)
	require.Equal(t, "runner: ImagePullBackOff", r.Waiting)
}

func TestWishOf(t *testing.T) {
	pool := &v1alpha1.RunnerPool{}
	wish := func() lifecycle.Wish { return wishOf(pool, "h", Decision{}, nil) }
	require.Equal(t, lifecycle.Wish{Desired: 1, TemplateHash: "h", StartTimeout: 10 * time.Minute,
		UnschedulableTimeout: 15 * time.Minute, LeaveTimeout: poolspec.LeaveTimeout}, wish())
	pool.Spec.Replicas = ptr.To[int32](50)
	pool.Spec.Rollout.MaxUnavailable = ptr.To(intstr.FromString("5%"))
	pool.Spec.Rollout.MaxSurge = ptr.To(intstr.FromString("5%"))
	pool.Spec.Provisioning.StartTimeout = &metav1.Duration{}
	pool.Spec.Provisioning.UnschedulableTimeout = &metav1.Duration{}
	pool.Spec.IdleTimeout = &metav1.Duration{Duration: time.Hour}
	pool.Spec.MaxRunnerAge = &metav1.Duration{Duration: 24 * time.Hour}
	require.Equal(t, lifecycle.Wish{Desired: 50, TemplateHash: "h", MaxUnavailable: 2, MaxSurge: 3,
		IdleTimeout: time.Hour, MaxAge: 24 * time.Hour, LeaveTimeout: poolspec.LeaveTimeout}, wish(), "rounded down, rounded up")
}

func TestWishOf_SCALE3_TheAutoscalersNumberWithinTheCeiling(t *testing.T) {
	pool := &v1alpha1.RunnerPool{}
	pool.Spec.Replicas = ptr.To[int32](7)
	pool.Spec.Rollout.MaxUnavailable = ptr.To(intstr.FromString("10%"))
	pool.Spec.Autoscaling = &v1alpha1.Autoscaling{MinIdle: ptr.To[int32](3), MaxReplicas: ptr.To[int32](40)}
	require.Equal(t, 7, wishOf(pool, "h", Decision{Decided: true, Desired: 20}, ptr.To[int32](9)).Desired, "it does not autoscale")
	pool.Spec.Autoscaling.Enabled = true
	for _, c := range []struct {
		decision Decision
		last     *int32
		want     int
	}{
		{Decision{}, nil, 3},
		{Decision{Desired: 30}, nil, 3},
		{Decision{Desired: 30}, ptr.To[int32](0), 0},
		{Decision{Desired: 30}, ptr.To[int32](9), 9},
		{Decision{Desired: 30}, ptr.To[int32](90), 40},
		{Decision{Desired: 30, Decided: true}, ptr.To[int32](9), 30},
		{Decision{Desired: 0, Decided: true}, ptr.To[int32](9), 0},
		{Decision{Desired: -1, Decided: true}, nil, 0},
		{Decision{Desired: 99, Decided: true}, nil, 40},
	} {
		require.Equal(t, c.want, wishOf(pool, "h", c.decision, c.last).Desired, "%+v", c)
	}
	require.Equal(t, 3, wishOf(pool, "h", Decision{Desired: 30, Decided: true}, nil).MaxUnavailable, "a share of the desired number")
	pool.Spec.Autoscaling.MaxReplicas = nil
	require.Equal(t, 9, wishOf(pool, "h", Decision{}, ptr.To[int32](9)).Desired, "no ceiling is not a ceiling of none")
}

// Whatever the autoscaler says, and whatever the status had.
func TestWishOf_POOL3_APoolThatIsBeingDeletedIsNeverRaised(t *testing.T) {
	pool := &v1alpha1.RunnerPool{}
	pool.DeletionTimestamp = ptr.To(metav1.NewTime(t0))
	pool.Spec.Replicas = ptr.To[int32](7)
	pool.Spec.Autoscaling = &v1alpha1.Autoscaling{Enabled: true, MaxReplicas: ptr.To[int32](40)}
	wish := wishOf(pool, "h", Decision{Decided: true, Desired: 20}, ptr.To[int32](9))
	require.True(t, wish.Terminating)
	require.Zero(t, wish.Desired)
}
