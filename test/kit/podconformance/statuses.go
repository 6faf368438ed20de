package podconformance

import (
	"strings"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
)

// Conditions, their reasons and messages are in "Pod Lifecycle" and in the kubelet's status/generate.go; phases are in getPhase of
// kubelet_pods.go.
var statuses = []row{
	{
		name: "Status/Running", fact: "a running pod has all conditions, addresses, a start time, and containers that are `started` and `ready`",
		run: func(t *T) {
			p := t.run(forever)
			p.awaitRunning()
			pod := p.await("ready", func(pod *corev1.Pod) bool { return condition(pod, corev1.PodReady) == "True" })
			for _, kind := range []corev1.PodConditionType{
				corev1.PodScheduled, corev1.PodReadyToStartContainers, corev1.PodInitialized, corev1.ContainersReady, corev1.PodReady,
			} {
				require.Equal(t, "True", condition(pod, kind), string(kind))
			}
			require.NotEmpty(t, pod.Status.HostIP)
			require.Equal(t, []corev1.HostIP{{IP: pod.Status.HostIP}}, pod.Status.HostIPs)
			require.NotEmpty(t, pod.Status.PodIP)
			require.Equal(t, []corev1.PodIP{{IP: pod.Status.PodIP}}, pod.Status.PodIPs)
			require.False(t, pod.Status.StartTime == nil || pod.Status.StartTime.Before(&pod.CreationTimestamp))
			require.Equal(t, pod.Generation, pod.Status.ObservedGeneration)
			main := status(pod, "main")
			require.True(t, main.Ready && ptr.Deref(main.Started, false))
			require.Zero(t, main.RestartCount)
			require.Regexp(t, `^[a-z]+://.+`, main.ContainerID)
			require.NotEmpty(t, main.Image)
			require.Empty(t, main.LastTerminationState)
			require.False(t, main.State.Running.StartedAt.IsZero())
		},
	},
	{
		name: "Status/Succeeded", fact: "a succeeded pod's conditions have reason `PodCompleted`; it stays initialized",
		run: func(t *T) {
			p := t.run("true")
			pod := p.awaitEnd()
			require.Equal(t, "True PodCompleted", condition(pod, corev1.PodInitialized))
			require.Equal(t, "False PodCompleted", condition(pod, corev1.ContainersReady))
			require.Equal(t, "False PodCompleted", condition(pod, corev1.PodReady))
			require.False(t, ptr.Deref(status(pod, "main").Started, true))
			p.await("torn down", func(pod *corev1.Pod) bool { return condition(pod, corev1.PodReadyToStartContainers) == "False" })
		},
	},
	{
		name: "Status/Failed", fact: "a failed pod's conditions have reason `PodFailed`",
		run: func(t *T) {
			pod := t.run("exit 1").awaitEnd()
			require.Equal(t, "True", condition(pod, corev1.PodInitialized))
			require.Equal(t, "False PodFailed", condition(pod, corev1.ContainersReady))
			require.Equal(t, "False PodFailed", condition(pod, corev1.PodReady))
		},
	},
	{
		name: "Status/PendingUntilAllStarted", fact: "a pod is `Pending` until its last container has started",
		run: func(t *T) {
			late := sh("late", "true")
			late.Env = []corev1.EnvVar{{Name: "A", ValueFrom: &corev1.EnvVarSource{ConfigMapKeyRef: &corev1.ConfigMapKeySelector{LocalObjectReference: named("late"), Key: "key"}}}}
			p := t.create([]corev1.Container{sh("main", forever), late})
			pod := p.await("half started", func(pod *corev1.Pod) bool {
				return status(pod, "main").State.Running != nil && waiting(pod, "late").Reason == "CreateContainerConfigError"
			})
			require.Equal(t, corev1.PodPending, pod.Status.Phase)
			require.Contains(t, waiting(pod, "late").Message, "late")
			_, err := t.env.Kube.CoreV1().ConfigMaps(t.namespace).Create(t.ctx, &corev1.ConfigMap{
				ObjectMeta: metav1.ObjectMeta{Name: "late"}, Data: map[string]string{"key": "value"},
			}, metav1.CreateOptions{})
			require.NoError(t, err)
			pod = p.await("started", func(pod *corev1.Pod) bool { return pod.Status.Phase != corev1.PodPending })
			require.Equal(t, corev1.PodRunning, pod.Status.Phase)
		},
	},
	{
		name: "Status/ReadinessGate", fact: "a readiness gate keeps the pod from being `Ready` until its condition is true",
		run: func(t *T) {
			p := t.run(forever, func(pod *corev1.Pod) {
				pod.Spec.ReadinessGates = []corev1.PodReadinessGate{{ConditionType: "example.com/gate"}}
			})
			pod := p.await("ready but for the gate", func(pod *corev1.Pod) bool { return condition(pod, corev1.ContainersReady) == "True" })
			require.Equal(t, `False ReadinessGatesNotReady corresponding condition of pod readiness gate "example.com/gate" does not exist.`, condition(pod, corev1.PodReady))
			_, err := t.env.Kube.CoreV1().Pods(t.namespace).Patch(t.ctx, pod.Name, types.StrategicMergePatchType,
				[]byte(`{"status":{"conditions":[{"type":"example.com/gate","status":"True"}]}}`), metav1.PatchOptions{}, "status")
			require.NoError(t, err)
			p.await("ready", func(pod *corev1.Pod) bool { return condition(pod, corev1.PodReady) == "True" })
		},
	},
	{
		name: "Status/Resources", fact: "a container's status has its `resources`",
		run: func(t *T) {
			p := t.run(forever, inMain(func(c *corev1.Container) {
				c.Resources.Requests = corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("16Mi")}
			}))
			p.awaitRunning()
			main := status(p.await("running", func(pod *corev1.Pod) bool { return status(pod, "main").Started != nil }), "main")
			require.NotNil(t, main.Resources)
			require.Equal(t, "16Mi", main.AllocatedResources.Memory().String())
		},
	},
	{
		name: "Status/User", fact: "a container's status has the user that it runs as",
		run: func(t *T) {
			pod := t.run("true", secured(corev1.PodSecurityContext{RunAsUser: ptr.To[int64](12345)})).awaitEnd()
			user := status(pod, "main").User
			require.NotNil(t, user)
			require.EqualValues(t, 12345, user.Linux.UID)
		},
	},
}

// The rules are in "Pod Lifecycle" (How Pods handle problems with containers).
var restarts = []row{
	{
		name: "Restart/OnFailure", fact: "`restartPolicy: OnFailure` restarts a container that fails, in place",
		run: func(t *T) {
			p := t.run("[ -e /shared/once ] && exit 0; touch /shared/once; exit 1", shared, restartPolicy(corev1.RestartPolicyOnFailure))
			pod := p.awaitEnd()
			require.Equal(t, corev1.PodSucceeded, pod.Status.Phase)
			require.EqualValues(t, 1, status(pod, "main").RestartCount)
			require.EqualValues(t, 1, status(pod, "main").LastTerminationState.Terminated.ExitCode)
		},
	},
	{
		name: "Restart/Always", fact: "`restartPolicy: Always` restarts a container that exits, also with code 0",
		run: func(t *T) {
			p := t.run("[ -e /shared/once ] && sleep 1000; touch /shared/once; exit 0", shared, restartPolicy(corev1.RestartPolicyAlways))
			pod := p.await("restarted", func(pod *corev1.Pod) bool {
				return ended(pod) || status(pod, "main").RestartCount > 0 && status(pod, "main").State.Running != nil
			})
			require.Equal(t, corev1.PodRunning, pod.Status.Phase)
			require.Equal(t, "Completed", status(pod, "main").LastTerminationState.Terminated.Reason)
		},
	},
}

func restartPolicy(policy corev1.RestartPolicy) change {
	return func(pod *corev1.Pod) { pod.Spec.RestartPolicy = policy }
}

// Options of logs are in the API reference of PodLogOptions.
var logs = []row{
	{
		name: "Logs/BothStreams", fact: "standard output and error are one log",
		run: func(t *T) {
			t.prints("out\nerr", "echo out; sleep 0.2; echo err >&2")
		},
	},
	{
		name: "Logs/Tail", fact: "`tailLines` returns the last lines, an unfinished one included",
		run: func(t *T) {
			p := t.run(`echo 1; echo 2; echo 3; printf 4`)
			p.awaitEnd()
			require.Equal(t, "3\n4", p.log("main", func(o *corev1.PodLogOptions) { o.TailLines = ptr.To[int64](2) }))
		},
	},
	{
		name: "Logs/LimitBytes", fact: "`limitBytes` cuts the log",
		run: func(t *T) {
			p := t.run(`echo 12345`)
			p.awaitEnd()
			require.Equal(t, "123", p.log("main", func(o *corev1.PodLogOptions) { o.LimitBytes = ptr.To[int64](3) }))
		},
	},
	{
		name: "Logs/Since", fact: "`sinceTime` leaves out what was written before",
		run: func(t *T) {
			p := t.run(`echo early; sleep 7; echo late`)
			p.awaitEnd()
			// A line's time is when the node read it. The API has whole seconds.
			first, _, _ := strings.Cut(p.log("main", func(o *corev1.PodLogOptions) { o.Timestamps = true }), " ")
			early, err := time.Parse(time.RFC3339Nano, first)
			require.NoError(t, err)
			require.Equal(t, "late\n", p.log("main", func(o *corev1.PodLogOptions) {
				o.SinceTime = ptr.To(metav1.NewTime(early.Truncate(time.Second).Add(time.Second)))
			}))
		},
	},
	{
		name: "Logs/Timestamps", fact: "`timestamps` puts a time before each line",
		run: func(t *T) {
			p := t.run(`echo one; echo two`)
			p.awaitEnd()
			require.Regexp(t, `^\d{4}-\d\d-\d\dT\S+ one\n\d{4}-\d\d-\d\dT\S+ two\n$`, p.log("main", func(o *corev1.PodLogOptions) { o.Timestamps = true }))
		},
	},
	{
		name: "Logs/Previous", fact: "`previous` returns the log of the container before its restart",
		run: func(t *T) {
			// The log is gone some time after the pod's end.
			p := t.run("[ -e /shared/once ] && sleep 1000; touch /shared/once; echo first; exit 1", shared, restartPolicy(corev1.RestartPolicyOnFailure))
			p.await("restarted", func(pod *corev1.Pod) bool {
				return ended(pod) || status(pod, "main").RestartCount > 0 && status(pod, "main").State.Running != nil
			})
			text, err := p.tryLog("main", func(o *corev1.PodLogOptions) { o.Previous = true })
			require.NoError(t, err)
			require.Equal(t, "first\n", text)
		},
	},
	{
		name: "Logs/NoPrevious", fact: "`previous` is an error where nothing was restarted",
		run: func(t *T) {
			p := t.run("true")
			p.awaitEnd()
			_, err := p.tryLog("main", func(o *corev1.PodLogOptions) { o.Previous = true })
			require.Error(t, err)
			require.Regexp(t, `previous (terminated )?container`, err.Error())
		},
	},
	{
		name: "Logs/BeforeStart", fact: "a container that has not started has no log: `is waiting to start`",
		run: func(t *T) {
			p := t.run("true", mounted("v", "/v", corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: named("none")}}))
			p.await("waiting", func(pod *corev1.Pod) bool { return waiting(pod, "main").Reason != "" })
			_, err := p.tryLog("main", nil)
			require.ErrorContains(t, err, "is waiting to start")
		},
	},
}

var commands = []row{
	{
		name: "Exec/ExitCode", fact: "a command's exit code is returned",
		run: func(t *T) {
			p := t.runUp("")
			_, _, err := p.exec("", "/bin/sh", "-c", "exit 7")
			require.ErrorContains(t, err, "exit code 7")
			_, _, err = p.exec("", "true")
			require.NoError(t, err)
		},
	},
	{
		name: "Exec/Streams", fact: "standard input, output and error are separate",
		run: func(t *T) {
			out, errs, err := t.runUp("").exec("ping", "/bin/sh", "-c", "cat; echo complaint >&2")
			require.NoError(t, err)
			require.Equal(t, "ping", out)
			require.Equal(t, "complaint\n", errs)
		},
	},
	{
		name: "Exec/InTheContainer", fact: "a command has the container's user, environment, directory and files",
		run: func(t *T) {
			p := t.runUp("touch /tmp/of-the-container", secured(corev1.PodSecurityContext{RunAsUser: ptr.To[int64](12345)}), inMain(func(c *corev1.Container) {
				c.Env, c.WorkingDir = values("A", "1"), "/usr"
			}))
			out, _, err := p.exec("", "/bin/sh", "-c", "id -u; pwd; echo $A; ls /tmp/of-the-container")
			require.NoError(t, err)
			require.Equal(t, "12345\n/usr\n1\n/tmp/of-the-container\n", out)
		},
	},
}
