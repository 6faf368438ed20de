package podconformance

import (
	"strconv"
	"strings"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
)

// Reasons and codes are in "Pod Lifecycle" and in containerd's CRI plug-in: Completed, Error, and StartError with code 128.
var exits = []row{
	{
		name: "Exit/Completed", fact: "code 0 is `Completed`, and the pod has succeeded",
		run: func(t *T) {
			pod := t.run("exit 0").awaitEnd()
			end := terminated(pod, "main")
			require.Equal(t, corev1.PodSucceeded, pod.Status.Phase)
			require.Equal(t, "0 Completed", codeAndReason(end))
			// A runtime notes the start when it has returned: a container that exits at once may have finished before it.
			require.False(t, end.StartedAt.IsZero() || end.FinishedAt.IsZero())
			require.Equal(t, status(pod, "main").ContainerID, end.ContainerID)
			require.Empty(t, end.Message)
		},
	},
	{
		name: "Exit/Error", fact: "another code is `Error`, and the pod has failed",
		run: func(t *T) {
			pod := t.run("exit 3").awaitEnd()
			require.Equal(t, corev1.PodFailed, pod.Status.Phase)
			require.Equal(t, "3 Error", codeAndReason(terminated(pod, "main")))
		},
	},
	{
		name: "Exit/MissingCommand", fact: "a command that does not exist is `StartError` with code 128, and the message names it",
		run: func(t *T) {
			pod := t.create([]corev1.Container{{Name: "main", Command: []string{"no-such-program"}}}).awaitEnd()
			require.Equal(t, corev1.PodFailed, pod.Status.Phase)
			require.Equal(t, "128 StartError", codeAndReason(terminated(pod, "main")))
			require.Contains(t, terminated(pod, "main").Message, "no-such-program")
		},
	},
	{
		name: "Exit/OneOfTwo", fact: "a pod runs until its last container has exited, and has failed if one has",
		run: func(t *T) {
			p := t.create([]corev1.Container{sh("main", "while [ ! -e /shared/stop ]; do sleep 0.1; done; sleep 3"), sh("other", "exit 2")}, shared)
			pod := p.await("half over", func(pod *corev1.Pod) bool {
				return ended(pod) || status(pod, "main").State.Running != nil && terminated(pod, "other").ExitCode == 2
			})
			require.Equal(t, corev1.PodRunning, pod.Status.Phase)
			_, _, err := p.exec("", "touch", "/shared/stop") // which returns before the container exits
			require.NoError(t, err)
			pod = p.awaitEnd()
			require.Equal(t, corev1.PodFailed, pod.Status.Phase)
			require.Equal(t, "0 Completed", codeAndReason(terminated(pod, "main")))
		},
	},
	{
		// active_deadline.go in the kubelet: the deadline counts from status.startTime.
		name: "Exit/ActiveDeadline", fact: "after `activeDeadlineSeconds` the containers are stopped, and the pod has failed with reason `DeadlineExceeded`",
		run: func(t *T) {
			// No version of it need say that it runs: the node may take most of the time to start it, and reports what is there then.
			p := t.run(`trap 'exit 4' TERM; `+forever, func(pod *corev1.Pod) { pod.Spec.ActiveDeadlineSeconds = ptr.To[int64](20) })
			pod := p.await("over", func(pod *corev1.Pod) bool { return ended(pod) && terminated(pod, "main").ExitCode >= 0 })
			require.Equal(t, corev1.PodFailed, pod.Status.Phase)
			require.Equal(t, "DeadlineExceeded", pod.Status.Reason)
			require.Equal(t, "Pod was active on the node longer than the specified deadline", pod.Status.Message)
			require.EqualValues(t, 4, terminated(pod, "main").ExitCode)
		},
	},
}

// Messages are in "Determine the Reason for Pod Failure". The kubelet keeps the last 4096 bytes of the file, or of the log the last 80 lines and
// of those the last 2048 bytes.
var messages = []row{
	{
		name: "Message/File", fact: "what is written to `/dev/termination-log` is the message, for any user",
		run: func(t *T) {
			t.message("done", `printf done > /dev/termination-log; exit 1`, secured(corev1.PodSecurityContext{RunAsUser: ptr.To[int64](12345)}))
		},
	},
	{
		name: "Message/OwnPath", fact: "`terminationMessagePath` is another path for it, also on success",
		run: func(t *T) {
			t.message("done", `printf done > /tmp/message`, inMain(func(c *corev1.Container) { c.TerminationMessagePath = "/tmp/message" }))
		},
	},
	{
		name: "Message/Limit", fact: "its last 4096 bytes count",
		run: func(t *T) {
			t.message(strings.Repeat("x", 4093)+"end", `{ printf %05000d 0 | tr 0 x; printf end; } > /dev/termination-log`)
		},
	},
	{
		name: "Message/LogOnError", fact: "with `FallbackToLogsOnError` a failed container without a message has the last 80 lines of its log",
		run: func(t *T) {
			var want strings.Builder
			for i := range 80 {
				want.WriteString(strings.Repeat("a", i%3) + "\n")
			}
			t.message(want.String(), `i=0; while [ $i -lt 7 ]; do echo early; i=$((i+1)); done; i=0
				while [ $i -lt 80 ]; do case $((i%3)) in 0) echo;; 1) echo a;; 2) echo aa;; esac; i=$((i+1)); done; exit 1`, fallback)
		},
	},
	{
		name: "Message/LogLimit", fact: "of these lines the last 2048 bytes",
		run: func(t *T) {
			t.message(strings.Repeat("x", 2047)+"\n", `printf %03000d 0 | tr 0 x; echo; exit 1`, fallback)
		},
	},
	{
		name: "Message/NoLogOnSuccess", fact: "a container that succeeded has no message from its log",
		run: func(t *T) { t.message("", `echo fine`, fallback) },
	},
}

func fallback(pod *corev1.Pod) {
	pod.Spec.Containers[0].TerminationMessagePolicy = corev1.TerminationMessageFallbackToLogsOnError
}

func (t *T) message(want, script string, changes ...change) {
	require.Equal(t, want, terminated(t.run(script, changes...).awaitEnd(), "main").Message)
}

// Grace periods are in "Pod Lifecycle" (Termination of Pods) and in the kubelet's killContainer: the preStop hook's time counts, and at least two
// seconds are left after TERM.
var graces = []row{
	{
		name: "Grace/Handled", fact: "TERM comes first, and the last status before the object's removal has the exit code",
		run: func(t *T) {
			p := t.runUp(`trap 'exit 4' TERM`, grace(30))
			p.delete()
			pod := p.awaitGone()
			require.Equal(t, "4 Error", codeAndReason(terminated(pod, "main")), describe(pod))
			require.Equal(t, corev1.PodFailed, pod.Status.Phase)
		},
	},
	{
		name: "Grace/Succeeded", fact: "a deleted pod whose containers exit with 0 has succeeded, whatever its `restartPolicy`",
		run: func(t *T) {
			p := t.runUp(`trap 'exit 0' TERM`, grace(30), func(pod *corev1.Pod) { pod.Spec.RestartPolicy = corev1.RestartPolicyAlways })
			p.delete()
			require.Equal(t, corev1.PodSucceeded, p.awaitGone().Status.Phase)
		},
	},
	{
		// The runtime reports no signal to the kubelet, only 128 and its number.
		name: "Grace/Ignored", fact: "KILL comes at the end of the grace period: code 137, and no `signal`",
		run: func(t *T) {
			p := t.runUp(`trap '' TERM`, grace(3))
			at := p.delete()
			end := terminated(p.awaitGone(), "main")
			t.took(at, end, 3*time.Second)
			require.Equal(t, "137 Error", codeAndReason(end))
			require.Zero(t, end.Signal)
		},
	},
	{
		// The kernel ignores a signal for process 1 that it does not handle.
		name: "Grace/NoHandler", fact: "a program that does not handle TERM runs until KILL",
		run: func(t *T) {
			p := t.runUp(``, grace(3))
			p.delete()
			require.Equal(t, "137 Error", codeAndReason(terminated(p.awaitGone(), "main")))
		},
	},
	{
		name: "Grace/PreStopSleep", fact: "a `preStop` sleep delays TERM",
		run: func(t *T) {
			p := t.runUp(`trap 'exit 4' TERM`, grace(30), preStop(corev1.LifecycleHandler{Sleep: &corev1.SleepAction{Seconds: 3}}))
			at := p.delete()
			end := terminated(p.awaitGone(), "main")
			require.Equal(t, "4 Error", codeAndReason(end))
			t.took(at, end, 3*time.Second)
		},
	},
	{
		name: "Grace/PreStopExec", fact: "a `preStop` command has run before TERM comes",
		run: func(t *T) {
			p := t.runUp(`trap '[ -e /shared/hook ] && exit 5; exit 6' TERM`, grace(30), shared,
				preStop(corev1.LifecycleHandler{Exec: &corev1.ExecAction{Command: []string{"touch", "/shared/hook"}}}))
			p.delete()
			require.Equal(t, "5 Error", codeAndReason(terminated(p.awaitGone(), "main")))
		},
	},
	{
		name: "Grace/PreStopCounts", fact: "the time of a `preStop` hook is part of the grace period",
		run: func(t *T) {
			// The container notes the time twice a second, and TERM without another process. It has six seconds after TERM, or twenty if the
			// hook did not count.
			p := t.runUp(`trap 'echo term >>/dev/termination-log' TERM; (while :; do date "+alive %s" >>/dev/termination-log; sleep 0.5; done) &`, grace(20),
				preStop(corev1.LifecycleHandler{Exec: &corev1.ExecAction{Command: []string{"sleep", "14"}}}))
			p.delete()
			end := terminated(p.awaitGone(), "main")
			require.Equal(t, "137 Error", codeAndReason(end))
			before, after, termed := strings.Cut(end.Message, "term\n")
			require.True(t, termed, end.Message)
			require.LessOrEqual(t, lastNote(before+after)-lastNote(before), 13, end.Message)
		},
	},
	{
		name: "Grace/PreStopHangs", fact: "a `preStop` hook that does not return is abandoned at the end of the grace period, and TERM comes",
		run: func(t *T) {
			p := t.runUp(`trap 'exit 4' TERM`, grace(3), preStop(corev1.LifecycleHandler{Exec: &corev1.ExecAction{Command: []string{"sleep", "1000"}}}))
			at := p.delete()
			end := terminated(p.awaitGone(), "main")
			require.Equal(t, "4 Error", codeAndReason(end))
			t.took(at, end, 3*time.Second)
		},
	},
	{
		name: "Grace/PreStopFails", fact: "a `preStop` command that fails changes nothing",
		run: func(t *T) {
			p := t.runUp(`trap 'exit 4' TERM`, grace(30), preStop(corev1.LifecycleHandler{Exec: &corev1.ExecAction{Command: []string{"/no/such/program"}}}))
			p.delete()
			end := terminated(p.awaitGone(), "main")
			require.Equal(t, "4 Error", codeAndReason(end))
		},
	},
	{
		name: "Deletion/NoFinalizer", fact: "a pod has no finalizer",
		run: func(t *T) {
			require.Empty(t, t.run("exit 0").awaitEnd().Finalizers)
		},
	},
}

// runUp creates a pod whose container runs the preparation, and then until a signal. It returns when the preparation is done.
func (t *T) runUp(preparation string, changes ...change) *live {
	p := t.run(preparation+"\necho up\n"+forever, changes...)
	p.awaitRunning()
	p.awaitLog("up")
	return p
}

func preStop(handler corev1.LifecycleHandler) change {
	return inMain(func(c *corev1.Container) { c.Lifecycle = &corev1.Lifecycle{PreStop: &handler} })
}

// took requires that a container had so much time from a deletion to its end. Statuses have whole seconds, so one second less will do. A loaded node
// may take longer.
func (t *T) took(since time.Time, end corev1.ContainerStateTerminated, atLeast time.Duration) {
	require.GreaterOrEqual(t, end.FinishedAt.Sub(since), atLeast-time.Second)
}

func codeAndReason(end corev1.ContainerStateTerminated) string {
	return strings.TrimSpace(strconv.Itoa(int(end.ExitCode)) + " " + end.Reason)
}

// lastNote is the last time of a container's notes "alive SECONDS".
func lastNote(notes string) int {
	lines := strings.Split(strings.TrimSpace(notes), "\n")
	_, second, _ := strings.Cut(lines[len(lines)-1], " ")
	at, _ := strconv.Atoi(second)
	return at
}
