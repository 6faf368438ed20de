package node_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/utils/ptr"

	"github.com/bullpen-ci/bullpen/internal/node"
	"github.com/bullpen-ci/bullpen/internal/node/sandbox"
	"github.com/bullpen-ci/bullpen/internal/node/sandbox/process"
	"github.com/bullpen-ci/bullpen/internal/runnerpod"
	"github.com/bullpen-ci/bullpen/test/kit"
	"github.com/bullpen-ci/bullpen/test/kit/await"
)

const patience = 30 * time.Second

// The test binary is also the shim, what enters an enclosure, and a node agent that can be killed.
func TestMain(m *testing.M) {
	if len(os.Args) == 3 && os.Args[1] == "shim" {
		if err := process.RunShim(os.Args[2]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	if len(os.Args) >= 3 && os.Args[1] == "enter" {
		command := os.Args[3:]
		if len(command) > 0 {
			command = command[1:] // "--"
		}
		fmt.Fprintln(os.Stderr, process.RunEnter(os.Args[2], command))
		os.Exit(128)
	}
	if len(os.Args) == 5 && os.Args[1] == "agent" {
		if err := agentThatIsKilled(os.Args[2], os.Args[3], os.Args[4]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(kit.Main(m))
}

func agentThatIsKilled(name, stateDir, kubeconfig string) error {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return err
	}
	sb, err := process.New(processOptions(stateDir))
	if err != nil {
		return err
	}
	agent, err := node.New(options(name, stateDir, config, sb))
	if err != nil {
		return err
	}
	return agent.Run(context.Background())
}

func processOptions(stateDir string) process.Options {
	return process.Options{StateDir: stateDir, ShimCommand: []string{os.Args[0], "shim"}}
}

func options(name, stateDir string, config *rest.Config, sb sandbox.Sandbox) node.Options {
	return node.Options{
		Name: name, Config: config, Sandbox: sb, SandboxName: "test", StateDir: stateDir,
		Labels: map[string]string{"pool": "ci"}, MinDiskFree: node.DiskReserve{Bytes: 1 << 28},
		Capacity: corev1.ResourceList{
			corev1.ResourceCPU: resource.MustParse("8"), corev1.ResourceMemory: resource.MustParse("16Gi"), corev1.ResourcePods: resource.MustParse("50"),
			corev1.ResourceEphemeralStorage: resource.MustParse("100Ti"),
		},
		LeaseRenewal: time.Second, StatusInterval: time.Second,
		Log: slog.New(slog.NewTextHandler(os.Stderr, nil)),
	}
}

// fixture is one node of the shared control plane.
type fixture struct {
	*testing.T
	env      *kit.Env
	kube     kubernetes.Interface
	name     string
	ns       string
	stateDir string
}

func newFixture(t *testing.T) *fixture {
	t.Parallel()
	return makeFixture(t)
}

func makeFixture(t *testing.T) *fixture {
	env := kit.Cluster(t)
	dir, err := os.MkdirTemp("", "bullpen-node-")
	require.NoError(t, err)
	f := &fixture{T: t, env: env, kube: env.Kube, name: "node-" + rand.String(6), ns: env.Namespace(t), stateDir: dir}
	t.Cleanup(func() {
		_, err := process.Cleanup(context.Background(), dir)
		require.NoError(t, err)
		require.NoError(t, os.RemoveAll(dir))
		err = f.kube.CoreV1().Nodes().Delete(context.Background(), f.name, metav1.DeleteOptions{})
		require.True(t, err == nil || apierrors.IsNotFound(err), "%v", err)
	})
	return f
}

// identity is the node's own: what it may do is what the Node authorizer and NodeRestriction allow.
func (f *fixture) identity() *rest.Config {
	return f.env.As(f.T, "system:node:"+f.name, "system:nodes")
}

func (f *fixture) process() sandbox.Sandbox {
	sb, err := process.New(processOptions(f.stateDir))
	require.NoError(f, err)
	return sb
}

// run starts a node agent, and returns what stops it.
func (f *fixture) run(sb sandbox.Sandbox, change ...func(*node.Options)) (stop func()) {
	f.Helper()
	opts := options(f.name, f.stateDir, f.identity(), sb)
	for _, c := range change {
		c(&opts)
	}
	agent, err := node.New(opts)
	require.NoError(f, err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- agent.Run(ctx) }()
	stopped := false
	stop = func() {
		if !stopped {
			stopped = true
			cancel()
			require.NoError(f, await.Result(done, "the agent stops"))
		}
	}
	f.Cleanup(stop)
	return stop
}

func sh(name, script string) corev1.Container {
	return corev1.Container{Name: name, Image: "ignored", Command: []string{"/bin/sh", "-c", script}}
}

// untilStopped waits for a file in the pod's shared volume.
const untilStopped = `while [ ! -e /shared/stop ]; do sleep 0.02; done`

func shared(c corev1.Container) corev1.Container {
	c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: "shared", MountPath: "/shared"})
	return c
}

func (f *fixture) create(change func(*corev1.Pod), containers ...corev1.Container) *corev1.Pod {
	f.Helper()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "pod-", Namespace: f.ns},
		Spec: corev1.PodSpec{
			NodeName: f.name, RestartPolicy: corev1.RestartPolicyNever, Containers: containers,
			AutomountServiceAccountToken:  ptr.To(false),
			TerminationGracePeriodSeconds: ptr.To(int64(20)),
			Volumes:                       []corev1.Volume{{Name: "shared", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}},
			Tolerations:                   []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
		},
	}
	if change != nil {
		change(pod)
	}
	made, err := f.kube.CoreV1().Pods(f.ns).Create(f.Context(), pod, metav1.CreateOptions{})
	require.NoError(f, err)
	return made
}

// volume is the host directory of the pod's shared volume.
func (f *fixture) volume(pod *corev1.Pod) string {
	return filepath.Join(f.stateDir, "volumes", string(pod.UID), "shared")
}

func (f *fixture) log(pod *corev1.Pod, container string) string {
	text, err := os.ReadFile(filepath.Join(f.stateDir, "pods", string(pod.UID), "logs", container+".log"))
	require.NoError(f, err)
	return string(text)
}

// await watches the pod until ok returns true. A deleted pod is nil.
func (f *fixture) await(pod *corev1.Pod, what string, ok func(*corev1.Pod) bool) *corev1.Pod {
	f.Helper()
	ctx, cancel := context.WithTimeout(f.Context(), patience)
	defer cancel()
	pods := f.kube.CoreV1().Pods(pod.Namespace)
	var last *corev1.Pod
	for ctx.Err() == nil {
		current, err := pods.Get(ctx, pod.Name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) || err == nil && current.UID != pod.UID {
			current, err = nil, nil
		}
		if ctx.Err() != nil {
			break
		}
		require.NoError(f, err)
		if last = current; ok(current) {
			return current
		}
		f.awaitEvent(ctx, pod, current)
	}
	require.Failf(f, "the pod never came to be "+what, "last seen: %s", describe(last))
	return nil
}

// awaitEvent returns at the pod's next change.
func (f *fixture) awaitEvent(ctx context.Context, pod, since *corev1.Pod) {
	if since == nil {
		<-ctx.Done()
		return
	}
	watch, err := f.kube.CoreV1().Pods(pod.Namespace).Watch(ctx, metav1.ListOptions{
		FieldSelector: fields.OneTermEqualSelector("metadata.name", pod.Name).String(), ResourceVersion: since.ResourceVersion,
	})
	if ctx.Err() != nil {
		return
	}
	require.NoError(f, err)
	defer watch.Stop()
	select {
	case <-watch.ResultChan():
	case <-ctx.Done():
	}
}

func describe(pod *corev1.Pod) string {
	if pod == nil {
		return "gone"
	}
	var b strings.Builder
	fmt.Fprintf(&b, "phase %s, finalizers %v, deleted %v\n", pod.Status.Phase, pod.Finalizers, pod.DeletionTimestamp)
	for _, c := range append(append([]corev1.ContainerStatus{}, pod.Status.InitContainerStatuses...), pod.Status.ContainerStatuses...) {
		fmt.Fprintf(&b, "  %s ready=%t waiting=%+v running=%+v terminated=%+v\n", c.Name, c.Ready, c.State.Waiting, c.State.Running, c.State.Terminated)
	}
	for _, c := range pod.Status.Conditions {
		fmt.Fprintf(&b, "  %s=%s %s\n", c.Type, c.Status, c.Reason)
	}
	return b.String()
}

func inPhase(phase corev1.PodPhase) func(*corev1.Pod) bool {
	return func(p *corev1.Pod) bool { return p != nil && p.Status.Phase == phase }
}

func isGone(p *corev1.Pod) bool { return p == nil }

func (f *fixture) awaitPhase(pod *corev1.Pod, phase corev1.PodPhase) *corev1.Pod {
	f.Helper()
	return f.await(pod, string(phase), inPhase(phase))
}

func (f *fixture) delete(pod *corev1.Pod, grace *int64) {
	f.Helper()
	err := f.kube.CoreV1().Pods(pod.Namespace).Delete(f.Context(), pod.Name, metav1.DeleteOptions{GracePeriodSeconds: grace})
	require.NoError(f, err)
}

func (f *fixture) finish(pod *corev1.Pod) {
	f.Helper()
	require.NoError(f, os.WriteFile(filepath.Join(f.volume(pod), "stop"), nil, 0o600))
}

func terminated(pod *corev1.Pod, name string) *corev1.ContainerStateTerminated {
	for _, c := range append(append([]corev1.ContainerStatus{}, pod.Status.InitContainerStatuses...), pod.Status.ContainerStatuses...) {
		if c.Name == name {
			return c.State.Terminated
		}
	}
	return nil
}

func condition(pod *corev1.Pod, kind corev1.PodConditionType) string {
	for _, c := range pod.Status.Conditions {
		if c.Type == kind {
			return string(c.Status)
		}
	}
	return ""
}

func TestAgent_RunsAPodAsAKubeletWould(t *testing.T) {
	f := newFixture(t)
	f.run(f.process())
	ctx := t.Context()
	_, err := f.kube.CoreV1().Secrets(f.ns).Create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "s"}, StringData: map[string]string{"key": "s3cret"}}, metav1.CreateOptions{})
	require.NoError(t, err)
	_, err = f.kube.CoreV1().ConfigMaps(f.ns).Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "c"}, Data: map[string]string{"A": "1", "B": "2"}}, metav1.CreateOptions{})
	require.NoError(t, err)

	first := shared(sh("first", "echo one > /shared/order"))
	second := shared(sh("second", "echo two >> /shared/order"))
	main := shared(sh("main", `cat /shared/order; echo "$NAME $KEY $CM_A $CPU"; cat /shared/order > "$DIR/copy"; cat /tokens/token > /shared/token; cat /conf/b; exit 3`))
	main.EnvFrom = []corev1.EnvFromSource{{Prefix: "CM_", ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: "c"}}}}
	main.Env = []corev1.EnvVar{
		{Name: "DIR", Value: "/shared"},
		{Name: "NAME", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.name"}}},
		{Name: "KEY", ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{LocalObjectReference: corev1.LocalObjectReference{Name: "s"}, Key: "key"}}},
		{Name: "CPU", ValueFrom: &corev1.EnvVarSource{ResourceFieldRef: &corev1.ResourceFieldSelector{Resource: "limits.cpu"}}},
	}
	main.VolumeMounts = append(main.VolumeMounts, corev1.VolumeMount{Name: "tokens", MountPath: "/tokens"}, corev1.VolumeMount{Name: "conf", MountPath: "/conf"})
	pod := f.create(func(p *corev1.Pod) {
		p.Spec.InitContainers = []corev1.Container{first, second}
		p.Spec.Volumes = append(p.Spec.Volumes,
			corev1.Volume{Name: "tokens", VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{
				{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Audience: "bullpen-dispatch", ExpirationSeconds: ptr.To(int64(3600)), Path: "token"}},
			}}}},
			corev1.Volume{Name: "conf", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{
				LocalObjectReference: corev1.LocalObjectReference{Name: "c"}, Items: []corev1.KeyToPath{{Key: "B", Path: "b"}},
			}}})
	}, main)

	pod = f.awaitPhase(pod, corev1.PodFailed)
	require.Contains(t, pod.Finalizers, runnerpod.FinalizerSandbox)
	require.Equal(t, int32(0), terminated(pod, "first").ExitCode)
	require.Equal(t, "Completed", terminated(pod, "second").Reason)
	require.Equal(t, int32(3), terminated(pod, "main").ExitCode)
	require.Equal(t, "Error", terminated(pod, "main").Reason)
	require.Equal(t, "127.0.0.1", pod.Status.PodIP)
	require.Equal(t, pod.Generation, pod.Status.ObservedGeneration)
	require.Equal(t, "True", condition(pod, corev1.PodInitialized))
	require.Equal(t, "False", condition(pod, corev1.PodReady))
	require.Equal(t, "one\ntwo\n"+pod.Name+" s3cret 1 8\n2", f.log(pod, "main"))

	token, err := os.ReadFile(filepath.Join(f.volume(pod), "token"))
	require.NoError(t, err)
	user := f.reviewToken(string(token), "bullpen-dispatch")
	require.Equal(t, "system:serviceaccount:"+f.ns+":default", user.Username)
	require.Equal(t, string(pod.UID), user.Extra["authentication.kubernetes.io/pod-uid"][0])
}
