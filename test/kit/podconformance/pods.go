package podconformance

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/remotecommand"
	"k8s.io/utils/ptr"
)

// change changes a pod before it is created.
type change func(*corev1.Pod)

// live is a pod that was created.
type live struct {
	*T
	pod  *corev1.Pod // as created
	seen int         // versions of it that await has passed
}

// sh is a container that runs a script.
func sh(name, script string) corev1.Container {
	return corev1.Container{Name: name, Command: []string{"/bin/sh", "-c", script}}
}

// forever keeps a shell running until a signal, which its trap handles at once: a shell handles none while a child runs in its foreground.
const forever = `while :; do sleep 0.05; done`

// create creates a pod of these containers on the node. A kubelet needs no scheduler for a pod with a node name.
func (t *T) create(containers []corev1.Container, changes ...change) *live {
	name := strings.ToLower(strings.ReplaceAll(t.row.name, "/", "-"))
	if len(t.created) > 0 {
		name = fmt.Sprintf("%s-%d", name, len(t.created)+1)
	}
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.PodSpec{
			NodeName: t.env.Node, RestartPolicy: corev1.RestartPolicyNever, Containers: containers,
			AutomountServiceAccountToken: ptr.To(false), EnableServiceLinks: ptr.To(false), TerminationGracePeriodSeconds: ptr.To(int64(2)),
			Tolerations: []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
		},
	}
	for _, c := range changes {
		c(pod)
	}
	for _, list := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range list {
			list[i].Image, list[i].ImagePullPolicy = t.env.Image, corev1.PullIfNotPresent
		}
	}
	made, err := t.env.Kube.CoreV1().Pods(t.namespace).Create(t.ctx, pod, metav1.CreateOptions{})
	require.NoError(t, err)
	t.created = append(t.created, made.Name)
	return &live{T: t, pod: made}
}

// run creates a pod with one container that runs the script.
func (t *T) run(script string, changes ...change) *live {
	return t.create([]corev1.Container{sh("main", script)}, changes...)
}

// prints requires that a pod with this script succeeds and what it prints.
func (t *T) prints(want, script string, changes ...change) {
	require.Equal(t, want, strings.TrimSpace(t.run(script, changes...).output()))
}

// cleanUp deletes the row's pods: other rows need the node's room.
func (t *T) cleanUp() {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.ctx), 10*time.Second)
	defer cancel()
	for _, name := range t.created {
		err := t.env.Kube.CoreV1().Pods(t.namespace).Delete(ctx, name, metav1.DeleteOptions{GracePeriodSeconds: ptr.To(int64(1))})
		if err != nil && !apierrors.IsNotFound(err) {
			t.Errorf("deleting pod %s: %v", name, err)
		}
	}
}

// await returns the first version of the pod, from the last one awaited on, for which ok returns true. The object as it was deleted is its
// last version.
func (p *live) await(what string, ok func(*corev1.Pod) bool) *corev1.Pod {
	var last *corev1.Pod
	for {
		all, gone, changed := p.history.since(p.pod.UID, p.seen)
		for _, version := range all {
			if last = version; ok(version) {
				return version
			}
			p.refused(version)
			p.seen++
		}
		if gone {
			p.fatalf("the pod was deleted before it was %s: %s", what, describe(last))
		}
		select {
		case <-changed:
		case <-p.ctx.Done():
			p.fatalf("the pod never was %s: %s", what, describe(last))
		}
	}
}

// refused ends the row when the node refuses the pod with the sentence of the known difference.
func (p *live) refused(pod *corev1.Pod) {
	sentence := p.known[p.row.name].Refusal
	if sentence == "" {
		return
	}
	for _, c := range allStatuses(pod) {
		if c.State.Waiting != nil && strings.Contains(c.State.Waiting.Message, sentence) {
			p.fatalf("refused: %s", c.State.Waiting.Message)
		}
	}
}

// awaitGone returns the pod as it was deleted.
func (p *live) awaitGone() *corev1.Pod {
	for {
		all, gone, changed := p.history.since(p.pod.UID, 0)
		if gone {
			return all[len(all)-1]
		}
		select {
		case <-changed:
		case <-p.ctx.Done():
			p.fatalf("the pod was never deleted: %s", describe(all[len(all)-1]))
		}
	}
}

func ended(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}

// awaitEnd returns the pod in its terminal phase.
func (p *live) awaitEnd() *corev1.Pod { return p.await("over", ended) }

func (p *live) awaitRunning() *corev1.Pod {
	pod := p.await("running", func(pod *corev1.Pod) bool { return pod.Status.Phase == corev1.PodRunning || ended(pod) })
	require.Equal(p, corev1.PodRunning, pod.Status.Phase, describe(pod))
	return pod
}

// output requires that the pod succeeds and returns what its container main has written.
func (p *live) output() string {
	pod := p.awaitEnd()
	text, err := p.tryLog("main", nil)
	require.Equal(p, corev1.PodSucceeded, pod.Status.Phase, "%s%s", describe(pod), text)
	require.NoError(p, err)
	return text
}

// logLimit bounds how long a node may take to show what a container has written.
const logLimit = 20 * time.Second

func (p *live) log(container string, change func(*corev1.PodLogOptions)) string {
	text, err := p.tryLog(container, change)
	require.NoError(p, err)
	return text
}

func (p *live) tryLog(container string, change func(*corev1.PodLogOptions)) (string, error) {
	ctx, cancel := context.WithTimeout(p.ctx, logLimit)
	defer cancel()
	options := corev1.PodLogOptions{Container: container}
	if change != nil {
		change(&options)
	}
	// DoRaw would drop the node's message from an error.
	stream, err := p.env.Kube.CoreV1().Pods(p.namespace).GetLogs(p.pod.Name, &options).Stream(ctx)
	if err != nil {
		return "", err
	}
	defer func() { _ = stream.Close() }()
	text, err := io.ReadAll(stream)
	return string(text), err
}

// awaitLog follows the log of the container main until it has the line.
func (p *live) awaitLog(line string) {
	ctx, cancel := context.WithTimeout(p.ctx, rowLimit/2)
	defer cancel()
	stream, err := p.env.Kube.CoreV1().Pods(p.namespace).GetLogs(p.pod.Name, &corev1.PodLogOptions{Container: "main", Follow: true}).Stream(ctx)
	require.NoError(p, err)
	defer func() { _ = stream.Close() }()
	lines := bufio.NewScanner(stream)
	for lines.Scan() {
		if lines.Text() == line {
			return
		}
	}
	p.fatalf("the log ended without the line %q: %v", line, lines.Err())
}

// delete deletes the pod with its own grace period and returns when that was.
func (p *live) delete() time.Time {
	at := time.Now()
	require.NoError(p, p.env.Kube.CoreV1().Pods(p.namespace).Delete(p.ctx, p.pod.Name, metav1.DeleteOptions{}))
	return at
}

// exec runs a command in the container main and returns its output.
func (p *live) exec(stdin string, command ...string) (stdout, stderr string, err error) {
	ctx, cancel := context.WithTimeout(p.ctx, rowLimit/2)
	defer cancel()
	request := p.env.Kube.CoreV1().RESTClient().Post().Resource("pods").Namespace(p.namespace).Name(p.pod.Name).SubResource("exec").
		VersionedParams(&corev1.PodExecOptions{Container: "main", Command: command, Stdin: stdin != "", Stdout: true, Stderr: true}, scheme.ParameterCodec)
	executor, err := remotecommand.NewSPDYExecutor(p.env.Config, http.MethodPost, request.URL())
	require.NoError(p, err)
	var out, errs bytes.Buffer
	streams := remotecommand.StreamOptions{Stdout: &out, Stderr: &errs}
	if stdin != "" {
		streams.Stdin = strings.NewReader(stdin)
	}
	err = executor.StreamWithContext(ctx, streams)
	return out.String(), errs.String(), err
}

func allStatuses(pod *corev1.Pod) []corev1.ContainerStatus {
	return append(append([]corev1.ContainerStatus{}, pod.Status.InitContainerStatuses...), pod.Status.ContainerStatuses...)
}

// status is that of a container, its zero value when there is none yet.
func status(pod *corev1.Pod, name string) corev1.ContainerStatus {
	for _, c := range allStatuses(pod) {
		if c.Name == name {
			return c
		}
	}
	return corev1.ContainerStatus{}
}

// terminated is how a container ended, the zero value while it has not. Its ExitCode is then -1.
func terminated(pod *corev1.Pod, name string) corev1.ContainerStateTerminated {
	if state := status(pod, name).State.Terminated; state != nil {
		return *state
	}
	return corev1.ContainerStateTerminated{ExitCode: -1}
}

func waiting(pod *corev1.Pod, name string) corev1.ContainerStateWaiting {
	if state := status(pod, name).State.Waiting; state != nil {
		return *state
	}
	return corev1.ContainerStateWaiting{}
}

// condition is "Status Reason Message", without what is empty.
func condition(pod *corev1.Pod, kind corev1.PodConditionType) string {
	for _, c := range pod.Status.Conditions {
		if c.Type == kind {
			return strings.TrimSpace(fmt.Sprintf("%s %s %s", c.Status, c.Reason, c.Message))
		}
	}
	return ""
}

// mounted adds a volume to the pod and mounts it in every container at the path.
func mounted(name, path string, source corev1.VolumeSource) change {
	return func(pod *corev1.Pod) {
		pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: name, VolumeSource: source})
		for _, list := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
			for i := range list {
				list[i].VolumeMounts = append(list[i].VolumeMounts, corev1.VolumeMount{Name: name, MountPath: path})
			}
		}
	}
}

// shared mounts an emptyDir at /shared in every container. Init containers must have been added before.
func shared(pod *corev1.Pod) {
	mounted("shared", "/shared", corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}})(pod)
}

// initContainers adds init containers.
func initContainers(containers ...corev1.Container) change {
	return func(pod *corev1.Pod) { pod.Spec.InitContainers = append(pod.Spec.InitContainers, containers...) }
}

// inMain changes the container main, which is the first.
func inMain(f func(c *corev1.Container)) change {
	return func(pod *corev1.Pod) { f(&pod.Spec.Containers[0]) }
}

// secured sets the pod's security context.
func secured(context corev1.PodSecurityContext) change {
	return func(pod *corev1.Pod) { pod.Spec.SecurityContext = &context }
}

func grace(seconds int64) change {
	return func(pod *corev1.Pod) { pod.Spec.TerminationGracePeriodSeconds = &seconds }
}
