package podconformance

import (
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/ptr"
)

// The rules are in "Liveness, Readiness, and Startup Probes".
var probes = []row{
	{
		name: "Probes/StartupGatesReadiness", fact: "a container is neither `started` nor `ready` before its startup probe succeeds",
		run: func(t *T) {
			p := t.run("while [ ! -e /shared/stop ]; do sleep 0.1; done", shared, inMain(func(c *corev1.Container) {
				c.StartupProbe, c.ReadinessProbe = execProbe("test -e /shared/started"), execProbe("true")
				c.StartupProbe.FailureThreshold = 1000
			}))
			p.awaitRunning()
			pod := p.await("running", func(pod *corev1.Pod) bool { return status(pod, "main").State.Running != nil })
			require.False(t, ptr.Deref(status(pod, "main").Started, true) || status(pod, "main").Ready)
			_, _, err := p.exec("", "touch", "/shared/started")
			require.NoError(t, err)
			p.await("ready", func(pod *corev1.Pod) bool {
				main := status(pod, "main")
				require.False(t, main.Ready && !ptr.Deref(main.Started, false), "ready before it has started")
				return main.Ready
			})
		},
	},
	{
		name: "Probes/Readiness", fact: "a readiness probe turns `Ready` on and off, and restarts nothing",
		run: func(t *T) {
			p := t.run(forever, shared, inMain(func(c *corev1.Container) { c.ReadinessProbe = execProbe("test -e /shared/ready") }))
			for _, step := range []struct{ command, want string }{
				{"true", "False ContainersNotReady containers with unready status: [main]"},
				{"touch /shared/ready", "True"},
				{"rm /shared/ready", "False ContainersNotReady containers with unready status: [main]"},
			} {
				p.awaitRunning()
				_, _, err := p.exec("", "/bin/sh", "-c", step.command)
				require.NoError(t, err)
				pod := p.await(step.want, func(pod *corev1.Pod) bool { return condition(pod, corev1.PodReady) == step.want })
				require.Equal(t, step.want, condition(pod, corev1.ContainersReady))
				require.Zero(t, status(pod, "main").RestartCount)
			}
		},
	},
	{
		name: "Probes/Liveness", fact: "a failed liveness probe stops the container with TERM and the grace period",
		run: func(t *T) {
			pod := t.run(`trap 'exit 5' TERM; `+forever, grace(30), inMain(func(c *corev1.Container) {
				c.LivenessProbe = execProbe("exit 1")
				c.LivenessProbe.InitialDelaySeconds = 2
			})).awaitEnd()
			require.Equal(t, corev1.PodFailed, pod.Status.Phase)
			require.Equal(t, "5 Error", codeAndReason(terminated(pod, "main")))
		},
	},
	{
		// Where no other container runs, and none is restarted, a kubelet stops the pod, with the pod's grace period (computePodActions).
		name: "Probes/LivenessGrace", fact: "a probe's own `terminationGracePeriodSeconds` overrides the pod's; KILL follows",
		run: func(t *T) {
			p := t.create([]corev1.Container{sh("main", `trap '' TERM; `+forever), sh("other", forever)}, grace(600), inMain(func(c *corev1.Container) {
				c.LivenessProbe = execProbe("exit 1")
				c.LivenessProbe.TerminationGracePeriodSeconds = ptr.To[int64](2)
			}))
			pod := p.await("without main", func(pod *corev1.Pod) bool { return terminated(pod, "main").ExitCode >= 0 })
			require.Equal(t, "137 Error", codeAndReason(terminated(pod, "main")))
		},
	},
	{
		name: "Probes/Startup", fact: "a startup probe that fails `failureThreshold` times stops the container",
		run: func(t *T) {
			pod := t.run(`trap 'exit 5' TERM; `+forever, grace(30), inMain(func(c *corev1.Container) {
				c.StartupProbe = execProbe("exit 1")
				c.StartupProbe.FailureThreshold = 3
			})).awaitEnd()
			require.Equal(t, corev1.PodFailed, pod.Status.Phase)
			require.Equal(t, "5 Error", codeAndReason(terminated(pod, "main")))
		},
	},
	{
		// ExpandContainerCommandOnlyStatic in the kubelet's container/helpers.go.
		name: "Probes/CommandIsExpanded", fact: "references in a probe's command are expanded",
		run: func(t *T) {
			p := t.run(forever, inMain(func(c *corev1.Container) {
				c.Env, c.ReadinessProbe = values("A", "1"), execProbe("")
				c.ReadinessProbe.Exec.Command = []string{"test", "$(A)", "=", "1"}
			}))
			p.await("ready", func(pod *corev1.Pod) bool { return ended(pod) || condition(pod, corev1.PodReady) == "True" })
		},
	},
	{
		// A refused connection is enough to see that the node tries: the image has no program that listens.
		name: "Probes/TCPSocket", fact: "a `tcpSocket` probe fails while the port is closed",
		run: func(t *T) {
			p := t.run(forever, inMain(func(c *corev1.Container) {
				c.ReadinessProbe = &corev1.Probe{PeriodSeconds: 1, ProbeHandler: corev1.ProbeHandler{TCPSocket: &corev1.TCPSocketAction{Port: intstr.FromInt32(9)}}}
			}))
			pod := p.awaitRunning()
			require.Equal(t, "False ContainersNotReady containers with unready status: [main]", condition(pod, corev1.PodReady))
		},
	},
	{
		// The kubelet's prober.go records each failed probe.
		name: "Probes/UnhealthyEvent", fact: "each failed probe is a Warning `Unhealthy`",
		run: func(t *T) {
			p := t.run("sleep 4; exit 0", inMain(func(c *corev1.Container) { c.ReadinessProbe = execProbe("echo not yet; exit 1") }))
			event := t.event(p, "Unhealthy")
			require.NotNil(t, event)
			require.Equal(t, corev1.EventTypeWarning, event.Type)
			require.Contains(t, event.Message, "Readiness probe failed: not yet")
		},
	},
}

// eventLimit is how long after a pod's end an Event of it may be written.
const eventLimit = 3 * time.Second

// event waits for an Event of the pod, until some seconds after the pod's end.
func (t *T) event(p *live, reason string) *corev1.Event {
	var found *corev1.Event
	events := t.env.Kube.CoreV1().Events(t.namespace)
	selector := fields.AndSelectors(fields.OneTermEqualSelector("involvedObject.uid", string(p.pod.UID)), fields.OneTermEqualSelector("reason", reason))
	stream, err := events.Watch(t.ctx, metav1.ListOptions{FieldSelector: selector.String()})
	require.NoError(t, err)
	defer stream.Stop()
	p.awaitEnd()
	limit := time.NewTimer(eventLimit)
	defer limit.Stop()
	for found == nil {
		select {
		case seen, open := <-stream.ResultChan():
			if !open || seen.Type == watch.Error {
				t.fatalf("watching Events failed: %v", seen.Object)
			}
			found, _ = seen.Object.(*corev1.Event)
		case <-limit.C:
			return nil
		}
	}
	return found
}
