package podconformance

import (
	"strings"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
)

// The rules are in "Init Containers".
var inits = []row{
	{
		name: "Init/Order", fact: "init containers run one after the other, and then all others start",
		run: func(t *T) {
			t.prints("one\ntwo", "cat /shared/order", initContainers(
				sh("first", "sleep 0.5; echo one >> /shared/order"), sh("second", "echo two >> /shared/order")), shared)
		},
	},
	{
		name: "Init/Waits", fact: "until they have ended, the pod is `Pending`, and others wait as `PodInitializing`",
		run: func(t *T) {
			p := t.run("true", initContainers(sh("first", "while [ ! -e /shared/go ]; do sleep 0.1; done")), shared)
			pod := p.await("initializing", func(pod *corev1.Pod) bool { return ended(pod) || status(pod, "first").State.Running != nil })
			require.Equal(t, corev1.PodPending, pod.Status.Phase)
			require.Equal(t, "PodInitializing", waiting(pod, "main").Reason)
			require.Equal(t, "False ContainersNotInitialized containers with incomplete status: [first]", condition(pod, corev1.PodInitialized))
			require.Equal(t, "False ContainersNotReady containers with unready status: [main]", condition(pod, corev1.ContainersReady))
		},
	},
	{
		name: "Init/Failure", fact: "an init container that fails fails a pod with `restartPolicy: Never`, and nothing else starts",
		run: func(t *T) {
			pod := t.run("true", initContainers(sh("first", "exit 0"), sh("second", "exit 3"), sh("third", "true"))).awaitEnd()
			require.Equal(t, corev1.PodFailed, pod.Status.Phase)
			require.Equal(t, "3 Error", codeAndReason(terminated(pod, "second")))
			require.Equal(t, "PodInitializing", waiting(pod, "third").Reason)
			require.Equal(t, "PodInitializing", waiting(pod, "main").Reason)
			require.Equal(t, "False ContainersNotInitialized containers with incomplete status: [second third]", condition(pod, corev1.PodInitialized))
		},
	},
	{
		// The kubelet's UpdatePodStatus in prober_manager.go.
		name: "Init/CompletedIsReady", fact: "an init container that has succeeded is `ready`, and not `started`",
		run: func(t *T) {
			pod := t.run("true", initContainers(sh("first", "true"))).awaitEnd()
			first := status(pod, "first")
			require.True(t, first.Ready)
			require.False(t, ptr.Deref(first.Started, true))
			require.Equal(t, "0 Completed", codeAndReason(terminated(pod, "first")))
		},
	},
}

// The rules are in "Sidecar Containers": an init container with restartPolicy Always.
var sidecars = []row{
	{
		name: "Sidecars/StartInOrder", fact: "a sidecar has started, by its startup probe, before the next container starts",
		run: func(t *T) {
			slow := sidecar("slow", "sleep 2; touch /shared/up; "+forever)
			slow.StartupProbe = execProbe("test -e /shared/up")
			slow.StartupProbe.FailureThreshold = 1000
			t.prints("first slow", "ls /shared | tr '\\n' ' '", initContainers(slow, sh("first", "[ -e /shared/up ] && touch /shared/first; mv /shared/up /shared/slow")), shared)
		},
	},
	{
		name: "Sidecars/EndInReverseOrder", fact: "sidecars end after the other containers, the last one first, and their exit codes do not count",
		run: func(t *T) {
			p := t.run("echo main > /shared/order",
				initContainers(sidecar("a", "trap 'echo a >> /shared/order; cat /shared/order; exit 5' TERM; "+forever), sidecar("b", "trap 'echo b >> /shared/order; exit 6' TERM; "+forever)),
				shared, grace(20))
			pod := p.awaitEnd()
			require.Equal(t, corev1.PodSucceeded, pod.Status.Phase)
			require.Equal(t, "main b a", strings.Join(strings.Fields(p.log("a", nil)), " "))
			require.EqualValues(t, 5, terminated(pod, "a").ExitCode)
		},
	},
	{
		name: "Sidecars/Restarted", fact: "a sidecar that exits is restarted, also with `restartPolicy: Never`",
		run: func(t *T) {
			p := t.run("sleep 10", initContainers(sidecar("side", "[ -e /shared/once ] && exec sleep 1000; touch /shared/once; sleep 2; exit 1")), shared)
			require.Positive(t, status(p.awaitEnd(), "side").RestartCount)
		},
	},
}

func sidecar(name, script string) corev1.Container {
	c := sh(name, script)
	c.RestartPolicy = ptr.To(corev1.ContainerRestartPolicyAlways)
	return c
}

// execProbe runs a script each second. A loaded node may take its time to start it.
func execProbe(script string) *corev1.Probe {
	return &corev1.Probe{
		PeriodSeconds: 1, TimeoutSeconds: 20, FailureThreshold: 1, ProbeHandler: corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{"/bin/sh", "-c", script}}},
	}
}
