package node

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"pgregory.net/rapid"

	"github.com/bullpen-ci/bullpen/internal/node/sandbox"
)

func podWith(init, main []string) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Generation: 2}}
	for _, name := range init {
		pod.Spec.InitContainers = append(pod.Spec.InitContainers, corev1.Container{Name: name})
	}
	for _, name := range main {
		pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{Name: name})
	}
	return pod
}

var (
	t0       = time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC)
	isUp     = containerObserved{stage: running, startedAt: t0, ready: true}
	notReady = containerObserved{stage: running, startedAt: t0}
	done     = containerObserved{stage: exited, exit: sandbox.Exit{StartedAt: t0, FinishedAt: t0.Add(time.Minute)}}
	failed   = containerObserved{stage: exited, exit: sandbox.Exit{Code: 1}}
	lost     = containerObserved{stage: exited, exit: sandbox.Exit{Code: 137, Unknown: true, Reason: "ContainerStatusUnknown"}}
	// A back end that got it wrong: unknown, with a code that looks like success.
	lostWithZero = containerObserved{stage: exited, exit: sandbox.Exit{Unknown: true}}
)

func TestPhase(t *testing.T) {
	for name, test := range map[string]struct {
		seen     map[string]containerObserved
		stopping bool
		want     corev1.PodPhase
	}{
		"nothing yet":                      {want: corev1.PodPending},
		"init runs":                        {seen: map[string]containerObserved{"i": isUp}, want: corev1.PodPending},
		"init failed":                      {seen: map[string]containerObserved{"i": failed}, want: corev1.PodFailed},
		"one of two up":                    {seen: map[string]containerObserved{"i": done, "a": isUp}, want: corev1.PodPending},
		"one of two up, other over":        {seen: map[string]containerObserved{"i": done, "a": isUp, "b": done}, want: corev1.PodRunning},
		"deleted while one is up":          {seen: map[string]containerObserved{"i": done, "a": isUp}, stopping: true, want: corev1.PodRunning},
		"one of two over":                  {seen: map[string]containerObserved{"i": done, "a": done, "b": isUp}, want: corev1.PodRunning},
		"one failed, other runs":           {seen: map[string]containerObserved{"i": done, "a": failed, "b": isUp}, want: corev1.PodRunning},
		"both over":                        {seen: map[string]containerObserved{"i": done, "a": done, "b": done}, want: corev1.PodSucceeded},
		"one failed":                       {seen: map[string]containerObserved{"i": done, "a": done, "b": failed}, want: corev1.PodFailed},
		"NODE4 one lost":                   {seen: map[string]containerObserved{"i": done, "a": done, "b": lost}, want: corev1.PodFailed},
		"NODE4 lost, code 0":               {seen: map[string]containerObserved{"i": done, "a": done, "b": lostWithZero}, want: corev1.PodFailed},
		"NODE4 lost init":                  {seen: map[string]containerObserved{"i": lostWithZero}, want: corev1.PodFailed},
		"deleted before it began":          {stopping: true, want: corev1.PodFailed},
		"deleted while it runs":            {seen: map[string]containerObserved{"i": done, "a": isUp, "b": done}, stopping: true, want: corev1.PodRunning},
		"deleted in between":               {seen: map[string]containerObserved{"i": done, "a": done}, stopping: true, want: corev1.PodFailed},
		"deleted during init":              {seen: map[string]containerObserved{"i": isUp}, stopping: true, want: corev1.PodPending},
		"deleted, but had succeeded first": {seen: map[string]containerObserved{"i": done, "a": done, "b": done}, stopping: true, want: corev1.PodSucceeded},
	} {
		st := podStatus(podWith([]string{"i"}, []string{"a", "b"}), observed{containers: test.seen, stopping: test.stopping, now: t0})
		require.Equal(t, test.want, st.Phase, name)
	}
}

func TestStatusOfContainersAndConditions(t *testing.T) {
	pod := podWith([]string{"i"}, []string{"a", "b"})
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionTrue}}
	o := observed{containers: map[string]containerObserved{"i": done, "a": isUp, "b": notReady}, prepared: true, machine: machine{HostIP: "h", PodIP: "p"}, now: t0}
	st := podStatus(pod, o)
	require.Equal(t, corev1.ConditionTrue, st.Conditions[0].Status, "what others put there stays")
	require.Equal(t, map[corev1.PodConditionType]corev1.ConditionStatus{
		corev1.PodScheduled: "True", corev1.PodReadyToStartContainers: "True", corev1.PodInitialized: "True", corev1.ContainersReady: "False", corev1.PodReady: "False",
	}, conditionsOf(st))
	require.Equal(t, int64(2), st.ObservedGeneration)
	require.Equal(t, "Completed", st.InitContainerStatuses[0].State.Terminated.Reason)
	require.Equal(t, t0.Add(time.Minute).Unix(), st.InitContainerStatuses[0].State.Terminated.FinishedAt.Unix())
	require.True(t, st.ContainerStatuses[0].Ready)
	require.False(t, st.ContainerStatuses[1].Ready)

	pod.Status = st
	o.containers["b"] = isUp
	o.now = t0.Add(time.Hour)
	later := podStatus(pod, o)
	require.Equal(t, corev1.ConditionTrue, conditionsOf(later)[corev1.PodReady])
	for i, c := range later.Conditions {
		moved := c.Type == corev1.PodReady || c.Type == corev1.ContainersReady
		require.Equal(t, moved, !c.LastTransitionTime.Equal(&st.Conditions[i].LastTransitionTime), c.Type)
	}
}

func TestAFinalWordStands(t *testing.T) {
	pod := podWith(nil, []string{"a"})
	pod.Status = podStatus(pod, observed{containers: map[string]containerObserved{"a": failed}, now: t0})
	require.Equal(t, corev1.PodFailed, pod.Status.Phase)
	again := podStatus(pod, observed{containers: map[string]containerObserved{"a": done}, now: t0})
	require.Equal(t, pod.Status.ContainerStatuses, again.ContainerStatuses)
	require.Equal(t, corev1.PodFailed, again.Phase)
}

func TestRefusalIsShownInEveryContainer(t *testing.T) {
	st := podStatus(podWith([]string{"i"}, []string{"a"}), observed{refusal: &sandbox.InvalidError{Reason: "CreateContainerConfigError", Message: "because"}, now: t0})
	require.Equal(t, corev1.PodPending, st.Phase)
	require.Equal(t, "because", st.InitContainerStatuses[0].State.Waiting.Message)
	require.Equal(t, "CreateContainerConfigError", st.ContainerStatuses[0].State.Waiting.Reason)
}

func conditionsOf(st corev1.PodStatus) map[corev1.PodConditionType]corev1.ConditionStatus {
	m := map[corev1.PodConditionType]corev1.ConditionStatus{}
	for _, c := range st.Conditions {
		m[c.Type] = c.Status
	}
	return m
}

// A status that is written is not written again: otherwise each write would bring the next.
func TestStatusIsStable(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		pod := podWith([]string{"i"}, []string{"a", "b"})
		o := observed{containers: map[string]containerObserved{}, prepared: rapid.Bool().Draw(t, "prepared"), stopping: rapid.Bool().Draw(t, "stopping"), now: t0}
		for _, name := range []string{"i", "a", "b"} {
			o.containers[name] = rapid.SampledFrom([]containerObserved{{}, isUp, notReady, done, failed, lost}).Draw(t, name)
		}
		pod.Status = podStatus(pod, o)
		o.now = t0.Add(time.Hour)
		if again := podStatus(pod, o); !equality.Semantic.DeepEqual(pod.Status, again) {
			t.Fatalf("%+v became %+v", pod.Status, again)
		}
	})
}

// The deadline fails the pod when its containers have ended, however they did.
func TestStatus_DeadlineExceeded(t *testing.T) {
	pod := podWith(nil, []string{"a", "b"})
	o := observed{containers: map[string]containerObserved{"a": done, "b": isUp}, stopping: true, expired: true, now: t0}
	st := podStatus(pod, o)
	require.Equal(t, corev1.PodRunning, st.Phase, "one still runs")
	require.Empty(t, st.Reason)
	o.containers["b"] = done
	st = podStatus(pod, o)
	require.Equal(t, corev1.PodFailed, st.Phase)
	require.Equal(t, "DeadlineExceeded", st.Reason)
	pod.Status = st
	require.Equal(t, "DeadlineExceeded", podStatus(pod, o).Reason)

	pod.Status = corev1.PodStatus{Phase: corev1.PodSucceeded}
	require.Empty(t, podStatus(pod, o).Reason, "it was over before")
}

func TestStatus_ConditionsSayWhichContainers(t *testing.T) {
	pod := podWith([]string{"i", "j"}, []string{"a", "b"})
	pod.Spec.ReadinessGates = []corev1.PodReadinessGate{{ConditionType: "example.com/gate"}}
	o := observed{containers: map[string]containerObserved{"i": done}, now: t0}
	say := func() map[corev1.PodConditionType]string {
		pod.Status = podStatus(pod, o)
		said := map[corev1.PodConditionType]string{}
		for _, c := range pod.Status.Conditions {
			said[c.Type] = strings.TrimSpace(string(c.Status) + " " + c.Reason + " " + c.Message)
		}
		return said
	}
	said := say()
	require.Equal(t, "True", said[corev1.PodScheduled], "a pod that is bound to the node is scheduled")
	require.Equal(t, "False ContainersNotInitialized containers with incomplete status: [j]", said[corev1.PodInitialized])
	require.Equal(t, "False ContainersNotReady containers with unready status: [a b]", said[corev1.PodReady])
	require.True(t, pod.Status.InitContainerStatuses[0].Ready, "an init container that has succeeded is ready")
	require.False(t, pod.Status.InitContainerStatuses[1].Ready)

	o.containers["j"], o.containers["a"], o.containers["b"] = done, isUp, notReady
	said = say()
	require.Equal(t, "True", said[corev1.PodInitialized])
	require.Equal(t, "False ContainersNotReady containers with unready status: [b]", said[corev1.ContainersReady])
	o.containers["b"] = isUp
	said = say()
	require.Equal(t, "True", said[corev1.ContainersReady])
	require.Equal(t, `False ReadinessGatesNotReady corresponding condition of pod readiness gate "example.com/gate" does not exist.`, said[corev1.PodReady])
	pod.Status.Conditions = append(pod.Status.Conditions, corev1.PodCondition{Type: "example.com/gate", Status: corev1.ConditionFalse})
	require.Equal(t, `False ReadinessGatesNotReady the status of pod readiness gate "example.com/gate" is not "True", but False`, say()[corev1.PodReady])

	o.containers["a"], o.containers["b"] = done, done
	said = say()
	require.Equal(t, "True PodCompleted", said[corev1.PodInitialized])
	require.Equal(t, "False PodCompleted", said[corev1.PodReady])
}

func TestStatus_SidecarsRunBesideTheOthers(t *testing.T) {
	pod := podWith([]string{"s", "i"}, []string{"a"})
	pod.Spec.InitContainers[0].RestartPolicy = ptr.To(corev1.ContainerRestartPolicyAlways)
	starting := containerObserved{stage: running, startedAt: t0, starting: true}
	for _, test := range []struct {
		what    string
		s, i, a containerObserved
		phase   corev1.PodPhase
		say     string // the condition Initialized
	}{
		{"it starts", starting, containerObserved{}, containerObserved{}, corev1.PodPending, "containers with incomplete status: [s i]"},
		{"it has started", isUp, containerObserved{}, containerObserved{}, corev1.PodPending, "containers with incomplete status: [i]"},
		{"it exits before the others start", failed, done, containerObserved{}, corev1.PodFailed, "containers with incomplete status: [s]"},
		{"all run", isUp, done, isUp, corev1.PodRunning, ""},
		{"it exits beside the others", failed, done, isUp, corev1.PodRunning, ""},
		{"the others have exited", isUp, done, done, corev1.PodRunning, ""},
		{"its exit code does not count", failed, done, done, corev1.PodSucceeded, ""},
		{"theirs do", done, done, failed, corev1.PodFailed, ""},
	} {
		st := podStatus(pod, observed{containers: map[string]containerObserved{"s": test.s, "i": test.i, "a": test.a}, prepared: true, now: t0})
		require.Equal(t, test.phase, st.Phase, test.what)
		for _, c := range st.Conditions {
			if c.Type == corev1.PodInitialized {
				require.Equal(t, test.say, c.Message, test.what)
			}
		}
	}
	st := podStatus(pod, observed{containers: map[string]containerObserved{"s": notReady, "i": done, "a": isUp}, now: t0})
	require.Equal(t, corev1.ConditionFalse, conditionsOf(st)[corev1.PodReady], "the sidecar is not ready")
}
