package registered

import (
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/bullpen-ci/bullpen/internal/controller/nodes"
	"github.com/bullpen-ci/bullpen/internal/plan/lifecycle"
	"github.com/bullpen-ci/bullpen/internal/runnerpod"
	"github.com/bullpen-ci/bullpen/internal/runnerpod/podsigns"
	"github.com/bullpen-ci/bullpen/test/kit"
)

func TestMain(m *testing.M) { os.Exit(kit.Main(m)) }

var born = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

func at(seconds int) metav1.Time {
	return metav1.NewTime(born.Add(time.Duration(seconds) * time.Second))
}

// idlePod is a pod whose ephemeral runner waits for a job.
func idlePod(change ...func(*corev1.Pod)) *corev1.Pod {
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "ns", Name: "r", UID: "uid", ResourceVersion: "7", CreationTimestamp: at(0),
			Labels: map[string]string{
				runnerpod.LabelRunner: "true", runnerpod.LabelSelfRegistering: "true", runnerpod.LabelEphemeral: "true", runnerpod.LabelTemplateHash: "h",
			},
			Annotations: map[string]string{
				runnerpod.AnnotationRunnerName: "r-abcde", runnerpod.AnnotationRunnerID: "7",
				runnerpod.AnnotationRegistration: `{"repository":"acme/app","repositoryID":4711,"credentials":"pat","timeoutSeconds":300}`,
			},
			Finalizers:      []string{runnerpod.FinalizerRegistration},
			OwnerReferences: []metav1.OwnerReference{{Kind: "Runner", Name: "r", UID: "owner", Controller: ptr.To(true)}},
		},
		Spec: corev1.PodSpec{NodeName: "node"},
		Status: corev1.PodStatus{
			Phase: corev1.PodRunning,
			Conditions: []corev1.PodCondition{
				{Type: corev1.PodScheduled, Status: corev1.ConditionTrue, LastTransitionTime: at(5)},
				{Type: corev1.ContainersReady, Status: corev1.ConditionTrue, LastTransitionTime: at(20)},
			},
			ContainerStatuses: []corev1.ContainerStatus{{
				Name: runnerpod.ContainerRunner, Ready: true, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: at(10)}},
			}},
		},
	}
	for _, c := range change {
		c(p)
	}
	return p
}

func static(p *corev1.Pod) {
	p.Labels[runnerpod.LabelEphemeral] = "false"
	delete(p.Annotations, runnerpod.AnnotationRunnerID)
}

func known(p *corev1.Pod) {
	p.Annotations[runnerpod.AnnotationRegistered] = at(30).UTC().Format(time.RFC3339)
	p.Annotations[runnerpod.AnnotationRunnerID] = "7"
}

// unseen is a pod whose runner GitHub's list did not show, which was read late enough.
func unseen(p *corev1.Pod) {
	p.Annotations[runnerpod.AnnotationUnseen] = at(320).UTC().Format(time.RFC3339)
}

func busy(p *corev1.Pod) {
	p.Status.ContainerStatuses[0].Ready = false
	p.Status.Conditions[1] = corev1.PodCondition{Type: corev1.ContainersReady, Status: corev1.ConditionFalse, LastTransitionTime: at(60)}
}

// withIdle gives the pod the container whose exit shows its job.
func withIdle(state corev1.ContainerState) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Status.ContainerStatuses = append(p.Status.ContainerStatuses, corev1.ContainerStatus{Name: runnerpod.ContainerIdle, Ready: state.Running != nil, State: state})
	}
}

var (
	idleRuns  = corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: at(10)}}
	idleEnded = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Reason: "Completed", FinishedAt: at(60)}}
)

func pending(p *corev1.Pod) {
	p.Spec.NodeName = ""
	p.Status = corev1.PodStatus{Phase: corev1.PodPending, Conditions: []corev1.PodCondition{
		{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: "Unschedulable", Message: "0/1 nodes are available\nmore"},
	}}
}

func starting(p *corev1.Pod) {
	p.Status.Phase = corev1.PodPending
	p.Status.Conditions[1] = corev1.PodCondition{Type: corev1.ContainersReady, Status: corev1.ConditionFalse, LastTransitionTime: at(5)}
	p.Status.ContainerStatuses[0] = corev1.ContainerStatus{Name: runnerpod.ContainerRunner, State: corev1.ContainerState{
		Waiting: &corev1.ContainerStateWaiting{Reason: "ErrImagePull", Message: "no such image"},
	}}
}

func exited(code int32) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Status.ContainerStatuses[0] = corev1.ContainerStatus{Name: runnerpod.ContainerRunner, State: corev1.ContainerState{
			Terminated: &corev1.ContainerStateTerminated{ExitCode: code, Reason: "Completed", FinishedAt: at(90)},
		}}
	}
}

// startedAgain is how a StatefulSet's pod looks whose runner has ended.
func startedAgain(p *corev1.Pod) {
	p.Status.ContainerStatuses[0].LastTerminationState.Terminated = &corev1.ContainerStateTerminated{ExitCode: 0, FinishedAt: at(90)}
}

func phase(phase corev1.PodPhase) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Status.Phase = phase }
}

func deleting(p *corev1.Pod) {
	p.DeletionTimestamp, p.DeletionGracePeriodSeconds = ptr.To(at(160)), ptr.To[int64](60) // since 100
}

func granted(p *corev1.Pod) {
	p.Annotations[runnerpod.AnnotationUnregistered] = at(95).UTC().Format(time.RFC3339)
}

func collectedPod(p *corev1.Pod) {
	p.Status.Phase = corev1.PodFailed
	p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: podsigns.ReasonPodGC})
}

func ofStatefulSet(p *corev1.Pod) { p.OwnerReferences[0].Kind = kindStatefulSet }

func all(changes ...func(*corev1.Pod)) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		for _, c := range changes {
			c(p)
		}
	}
}

func tolerant(p *corev1.Pod) {
	p.Spec.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
}

var (
	cordonedNode = nodes.DepartureOf(&corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "node"}, Spec: corev1.NodeSpec{Unschedulable: true},
	}, nodes.DefaultTaints())
	disruptedNode = nodes.DepartureOf(&corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "node"},
		Spec:       corev1.NodeSpec{Taints: []corev1.Taint{{Key: "karpenter.sh/disrupted", Effect: corev1.TaintEffectNoSchedule}}},
	}, nodes.DefaultTaints())
)

// Each state of a pod with its stage and its explanation.
func TestRunner_RUN7_EXCL4_EveryStateHasAStage(t *testing.T) {
	now := at(200).Time
	lost := Place{Absent: now.Add(-lostAfter)}
	type expected struct {
		stage   lifecycle.Stage
		removal lifecycle.Removal
		since   int // seconds; -1: zero
		shown   lifecycle.Stage
		unfit   lifecycle.Reason
		waiting string
	}
	for name, c := range map[string]struct {
		pod   func(*corev1.Pod)
		place Place
		now   time.Time
		want  expected
	}{
		"waits for a node":                           {pod: pending, want: expected{stage: lifecycle.StageStarting, since: -1, waiting: "Unschedulable: 0/1 nodes are available"}},
		"waits for its image":                        {pod: starting, want: expected{stage: lifecycle.StageStarting, since: 5, waiting: "runner: ErrImagePull: no such image"}},
		"idle":                                       {pod: known, want: expected{stage: lifecycle.StageIdle, since: 20}},
		"idle, not yet heard of":                     {pod: func(*corev1.Pod) {}, want: expected{stage: lifecycle.StageIdle, since: 20}},
		"idle, by its container":                     {pod: all(known, withIdle(idleRuns)), want: expected{stage: lifecycle.StageIdle, since: 20}},
		"busy, by its container":                     {pod: all(known, withIdle(idleEnded)), want: expected{stage: lifecycle.StageBusy, since: -1}},
		"its container idle starts":                  {pod: all(known, withIdle(corev1.ContainerState{})), want: expected{stage: lifecycle.StageStarting, since: 5}},
		"ephemeral, never heard of":                  {pod: unseen, now: at(320).Time, want: expected{stage: lifecycle.StageIdle, since: 20, unfit: ReasonRegistrationTimeout}},
		"static, registering":                        {pod: static, want: expected{stage: lifecycle.StageStarting, since: 5}},
		"static, a second too early":                 {pod: static, now: at(319).Time, want: expected{stage: lifecycle.StageStarting, since: 5}},
		"static, registration timed out":             {pod: all(static, unseen), now: at(320).Time, want: expected{stage: lifecycle.StageStarting, since: 5, unfit: ReasonRegistrationTimeout}},
		"static, and no list could be read (POOL-8)": {pod: static, now: at(9999).Time, want: expected{stage: lifecycle.StageStarting, since: 5}},
		"static, seen after all":                     {pod: all(static, unseen, known), now: at(9999).Time, want: expected{stage: lifecycle.StageIdle, since: 20}},
		"static, idle":                               {pod: all(static, known), now: at(9999).Time, want: expected{stage: lifecycle.StageIdle, since: 20}},
		"busy":                                       {pod: busy, want: expected{stage: lifecycle.StageBusy, since: -1}},
		"busy and granted":                           {pod: all(busy, granted), want: expected{stage: lifecycle.StageBusy, removal: lifecycle.RemovalGranted, since: -1}},
		"busy and being deleted":                     {pod: all(busy, deleting), want: expected{stage: lifecycle.StageBusy, since: -1}},
		"not ready, and never was":                   {pod: all(busy, func(p *corev1.Pod) { p.Status.Conditions[1].LastTransitionTime = at(5) }), want: expected{stage: lifecycle.StageStarting, since: 5}},
		"idle and granted":                           {pod: all(known, granted), want: expected{stage: lifecycle.StageTerminating, removal: lifecycle.RemovalGranted, since: 95, shown: lifecycle.StageIdle}},
		"idle and being deleted":                     {pod: all(known, deleting), want: expected{stage: lifecycle.StageTerminating, removal: lifecycle.RemovalDeleting, since: 100, shown: lifecycle.StageIdle}},
		"pending and being deleted":                  {pod: all(pending, deleting), want: expected{stage: lifecycle.StageTerminating, removal: lifecycle.RemovalDeleting, since: 100, shown: lifecycle.StageStarting, waiting: "Unschedulable: 0/1 nodes are available"}},
		"succeeded":                                  {pod: all(exited(0), phase(corev1.PodSucceeded)), want: expected{stage: lifecycle.StageFinished, since: -1}},
		"failed":                                     {pod: all(exited(1), phase(corev1.PodFailed)), want: expected{stage: lifecycle.StageFinished, since: -1}},
		"ended beside a sidecar":                     {pod: exited(0), want: expected{stage: lifecycle.StageFinished, since: -1}},
		"started again by Kubernetes":                {pod: startedAgain, want: expected{stage: lifecycle.StageFinished, since: -1}},
		"ended, and its node is gone":                {pod: exited(0), place: lost, want: expected{stage: lifecycle.StageFinished, since: -1}},
		"node gone a moment ago":                     {pod: known, place: Place{Absent: now.Add(-vanishedAfter + 1)}, want: expected{stage: lifecycle.StageIdle, since: 20}},
		"node gone":                                  {pod: known, place: Place{Absent: now.Add(-vanishedAfter)}, want: expected{stage: lifecycle.StageIdle, since: 20, unfit: lifecycle.ReasonLost}},
		"busy, node gone a while":                    {pod: busy, place: Place{Absent: now.Add(-lostAfter + 1)}, want: expected{stage: lifecycle.StageBusy, since: -1}},
		"lost":                                       {pod: busy, place: lost, want: expected{stage: lifecycle.StageLost, since: -1}},
		"lost and granted":                           {pod: all(busy, granted), place: lost, want: expected{stage: lifecycle.StageLost, removal: lifecycle.RemovalGranted, since: 95}},
		"called failed by the collector":             {pod: all(busy, collectedPod), want: expected{stage: lifecycle.StageBusy, since: -1}},
		"node cordoned":                              {pod: known, place: Place{Departure: cordonedNode}, want: expected{stage: lifecycle.StageIdle, since: 20, unfit: lifecycle.ReasonNodeCordoned}},
		"node tainted by Karpenter":                  {pod: known, place: Place{Departure: disruptedNode}, want: expected{stage: lifecycle.StageIdle, since: 20, unfit: lifecycle.ReasonNodeCordoned}},
		"busy on a tainted node":                     {pod: busy, place: Place{Departure: disruptedNode}, want: expected{stage: lifecycle.StageBusy, since: -1}},
		"started on tainted nodes too":               {pod: all(known, tolerant), place: Place{Departure: disruptedNode}, want: expected{stage: lifecycle.StageIdle, since: 20}},
		"started on cordoned nodes too":              {pod: all(known, tolerant), place: Place{Departure: cordonedNode}, want: expected{stage: lifecycle.StageIdle, since: 20}},
		"busy on a cordoned node":                    {pod: busy, place: Place{Departure: cordonedNode}, want: expected{stage: lifecycle.StageBusy, since: -1}},
	} {
		t.Run(name, func(t *testing.T) {
			when := c.now
			if when.IsZero() {
				when = now
			}
			pod := idlePod(c.pod)
			v := Observe(pod)
			r := v.Runner(c.place, 0, when)
			require.Equal(t, "r", r.Name)
			require.Equal(t, "uid", r.UID)
			require.Equal(t, "h", r.TemplateHash)
			require.True(t, r.Created.Equal(born))
			since := time.Time{}
			if c.want.since >= 0 {
				since = at(c.want.since).Time
			}
			require.Equal(t, c.want.stage.String(), r.Stage.String())
			require.Equal(t, c.want.removal, r.Removal)
			require.True(t, since.Equal(r.Since), "since %s", r.Since)
			require.Equal(t, c.want.shown, r.Shown)
			require.Equal(t, c.want.unfit, r.Unfit.Reason)
			require.Equal(t, c.want.waiting, r.Waiting)

			trimmed, err := TrimPod(pod)
			require.NoError(t, err)
			require.Equal(t, v, Observe(trimmed.(*corev1.Pod)), "P8: what the cache leaves out is not read") //nolint:forcetypeassert // it is one
		})
	}
}

func TestObserve_TEN6_AnEvictionIsToldInASentence(t *testing.T) {
	pod := &corev1.Pod{Status: corev1.PodStatus{
		Phase: corev1.PodFailed, Reason: "Evicted", Message: "Container runner exceeded its local ephemeral storage limit \"10Gi\". ",
		ContainerStatuses: []corev1.ContainerStatus{{
			Name: runnerpod.ContainerRunner, State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 137}},
		}},
	}}
	v := Observe(pod)
	require.Contains(t, v.End.Evicted, `it exceeded its limit of ephemeral storage: Container runner exceeded its local ephemeral storage limit "10Gi". Raise its limit`)
	trimmed, err := TrimPod(pod)
	require.NoError(t, err)
	require.Equal(t, v, Observe(trimmed.(*corev1.Pod)), "P8") //nolint:forcetypeassert // it is one
}

func TestObserve_ReadsWhereARunnerIsRegisteredFromThePodAlone(t *testing.T) {
	v := Observe(idlePod())
	require.Equal(t, "r-abcde", v.RunnerName)
	require.EqualValues(t, 7, v.RunnerID)
	require.Equal(t, "acme/app", v.Target.Repository)
	require.EqualValues(t, 4711, v.Target.RepositoryID)
	require.Equal(t, "pat", v.Credentials.Secret)
	require.Equal(t, "ns", v.Credentials.Namespace)
	require.True(t, v.Protected)
	require.Equal(t, Owner{"Runner", "r", "owner"}, v.Owner)
	broken := Observe(idlePod(func(p *corev1.Pod) { p.Annotations[runnerpod.AnnotationRegistration] = "{" }))
	require.Empty(t, broken.RunnerName, "nothing is guessed")
}

// Exit code 7 is GitHub's word that the runner is too old. [K] 8.1: exit code 0 is success whatever other containers say.
func TestObserve_ExitCodes(t *testing.T) {
	require.True(t, ptr.To(Observe(idlePod(exited(7), phase(corev1.PodFailed)))).End.Outdated())
	sidecarFailed := Observe(idlePod(exited(0), phase(corev1.PodFailed), func(p *corev1.Pod) {
		p.Status.ContainerStatuses = append(p.Status.ContainerStatuses, corev1.ContainerStatus{Name: "side", State: corev1.ContainerState{
			Terminated: &corev1.ContainerStateTerminated{ExitCode: 137, FinishedAt: at(99)},
		}})
	}))
	require.True(t, sidecarFailed.End.Succeeded())
	require.False(t, sidecarFailed.End.Outdated())
	twice := Observe(idlePod(exited(143), startedAgain))
	require.True(t, twice.End.Succeeded(), "the first end is the runner's; what came after did nothing")
}

// What a runner that shows no work shows on a node that has been silent for long may be long past; a busy one is never doubted, and
// what has ended has.
func TestRunner_POOL6_EXCL4_ASilentNodePutsInDoubtWhatShowsNoWork(t *testing.T) {
	now := at(1000).Time
	silent := Place{Unready: now.Add(-nodes.UnreadyFor)}
	doubted := func(place Place, change ...func(*corev1.Pod)) bool {
		v := Observe(idlePod(change...))
		return v.Runner(place, time.Hour, now).Doubt.Reason == lifecycle.ReasonNodeNotReady
	}
	require.True(t, doubted(silent, known))
	require.False(t, doubted(silent, busy))
	require.False(t, doubted(silent, exited(0)))
	require.False(t, doubted(Place{Unready: silent.Unready.Add(time.Second)}, known), "not yet")
	require.False(t, doubted(Place{}, known))
	require.Equal(t, now.Add(time.Second), Place{Unready: silent.Unready.Add(time.Second)}.Next(now), "and then somebody looks")

	node := &corev1.Node{Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{
		{Type: corev1.NodeReady, Status: corev1.ConditionUnknown, LastTransitionTime: metav1.NewTime(at(7).Time)},
	}}}
	require.Equal(t, Place{Unready: at(7).UTC()}, placeOf(node, nodes.DefaultTaints()))
	node.Status.Conditions[0].Status = corev1.ConditionTrue
	require.Zero(t, placeOf(node, nodes.DefaultTaints()))
}

// What our finalizer waits for, in every state of a pod. PR #1179 follow-ups 7ff5b7da and 23c8fe4a: a pod that was never
// started blocked for ever; 759349de: one that had failed.
func TestLeaving_RUN2_7ff5b7da_23c8fe4a_EveryStateHasAWayOut(t *testing.T) {
	now := at(200).Time
	lost := Place{Absent: now.Add(-lostAfter)}
	for name, c := range map[string]struct {
		pod   func(*corev1.Pod)
		place Place
		want  departure
	}{
		"idle":                           {known, Place{}, stays},
		"busy":                           {busy, Place{}, stays},
		"never started, deleted":         {all(pending, deleting), Place{}, isAsked},
		"waits for its image, deleted":   {all(starting, deleting), Place{}, isAsked},
		"idle, deleted":                  {all(known, deleting), Place{}, stays},
		"busy, deleted":                  {all(busy, deleting), Place{}, stays},
		"deleted, and unregistered":      {all(known, deleting, granted), Place{}, unregistered},
		"its job is done":                {all(exited(0), phase(corev1.PodSucceeded)), Place{}, unregistered},
		"stopped after its deletion":     {all(exited(0), deleting, func(p *corev1.Pod) { p.Status.ContainerStatuses[0].State.Terminated.FinishedAt = at(101) }), Place{}, isAsked},
		"its job was done, then deleted": {all(exited(0), deleting), Place{}, unregistered},
		"failed":                         {all(exited(1), phase(corev1.PodFailed)), Place{}, isAsked},
		"a static one has ended":         {all(static, exited(0)), Place{}, isAsked},
		"evicted before it started":      {all(pending, phase(corev1.PodFailed)), Place{}, isAsked},
		"deleted, and its node is gone":  {all(busy, deleting), lost, isForced},
		"collected":                      {all(busy, deleting, collectedPod), lost, isForced},
		"its node is gone":               {busy, lost, stays}, // its owner asks for it
		"of a StatefulSet, done":         {all(ofStatefulSet, exited(0), phase(corev1.PodSucceeded)), Place{}, stays},
		"of a StatefulSet, deleted":      {all(ofStatefulSet, known, deleting, granted), Place{}, stays},
	} {
		v := Observe(idlePod(c.pod))
		require.Equal(t, c.want, leaving(&v, c.place, now), name)
	}
}

// RECV-5: a terminated container beside the runner keeps the pod's Ready condition false. The runner's start time must still be known:
// otherwise the runner never times out, and is never removed.
func TestObserve_RECV5_AContainerThatHasEndedHidesNotSinceWhenTheRunnerIsUp(t *testing.T) {
	v := Observe(idlePod(static, func(p *corev1.Pod) {
		p.Status.Conditions[1] = corev1.PodCondition{Type: corev1.ContainersReady, Status: corev1.ConditionFalse, LastTransitionTime: at(5)}
	}))
	require.True(t, v.Ready)
	require.Equal(t, at(10).Time, v.ReadySince)
	require.Equal(t, at(310).Time, v.Overdue(0))
	require.Equal(t, at(20).Time, Observe(idlePod()).ReadySince)
}

// RUN-2: an idle runner ends with code 0, too, when its node shuts down or evicts it. Its registration is removed like any other.
func TestLeaving_RUN2_APodThatTheKubeletHasEndedIsAskedAbout(t *testing.T) {
	v := Observe(idlePod(exited(0), phase(corev1.PodSucceeded)))
	require.Equal(t, unregistered, leaving(&v, Place{}, at(200).Time))
	v = Observe(idlePod(exited(0), phase(corev1.PodFailed), func(p *corev1.Pod) { p.Status.Reason = "Terminated" }))
	require.Equal(t, isAsked, leaving(&v, Place{}, at(200).Time))
}
