package realnode

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/bullpen-ci/bullpen/api/v1alpha1"
	"github.com/bullpen-ci/bullpen/internal/controller"
	"github.com/bullpen-ci/bullpen/internal/controller/jobcontainers"
	"github.com/bullpen-ci/bullpen/internal/dev/controlplane"
	"github.com/bullpen-ci/bullpen/internal/dev/realnode"
	"github.com/bullpen-ci/bullpen/internal/jobcontainer"
	"github.com/bullpen-ci/bullpen/internal/jobcontainer/courier"
	"github.com/bullpen-ci/bullpen/internal/jobcontainer/image"
	"github.com/bullpen-ci/bullpen/internal/jobcontainer/letter"
	"github.com/bullpen-ci/bullpen/internal/runnerpod"
	"github.com/bullpen-ci/bullpen/test/kit"
	"github.com/bullpen-ci/bullpen/test/kit/await"
)

// imported resolves images to those that the node has, or that no registry has.
type imported map[string]string

func (i imported) Resolve(_ context.Context, query image.Query) (image.Resolved, error) {
	return image.Resolved{Reference: i[query.Image], Config: jobcontainer.ImageConfig{OS: "linux", Cmd: []string{"run"}}}, nil
}

// said is a line of the program asker.
type said struct {
	What     string
	Seconds  float64
	Response jobcontainer.Response
	Failure  letter.Failure
	Error    string
}

// TestJobContainers_JOB2_JOB4_OnAKubelet: a request leaves a pod by the exit of a container and its response comes back, as a kubelet reports
// and starts containers: a guard listens, a pull that fails is reported, and a pod that is being deleted refuses at once and ends.
func TestJobContainers_JOB2_JOB4_OnAKubelet(t *testing.T) {
	requireMachine(t)
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()
	j := newJobNode(ctx, t)
	pod := j.runner(ctx, "abcd1234", "500m", "/asker")
	j.running(ctx, pod)
	lines := j.follow(ctx, pod)

	first := await.ReceiveWithin(t, patience, lines, "the first response")
	require.Empty(t, first.Error+first.Response.Refusal)
	require.Equal(t, "job-1-0", first.Response.Containers[0].Name)
	require.Equal(t, "guard", await.ReceiveWithin(t, patience, lines, "the guard listens").What)
	missing := await.ReceiveWithin(t, patience, lines, "the second response")
	require.Empty(t, missing.Error+missing.Response.Refusal)
	failure := await.ReceiveWithin(t, patience, lines, "the failed pull")
	require.Equal(t, missing.Response.Containers[0].Name, failure.Failure.Container)
	require.Contains(t, failure.Failure.Text, "could not be pulled")
	again := await.ReceiveWithin(t, patience, lines, "the first response again")
	require.Equal(t, first.Response, again.Response)
	t.Logf("response after %.2fs, failure of a pull after %.2fs", first.Seconds, failure.Seconds)

	deleted := time.Now()
	require.NoError(t, j.kube.CoreV1().Pods(j.namespace).Delete(ctx, pod.Name, metav1.DeleteOptions{}))
	refused := await.ReceiveWithin(t, patience, lines, "the refusal")
	require.Equal(t, courier.DeletedText, refused.Response.Refusal)
	require.Less(t, refused.Seconds, 60.0, "long before the request would be given up")
	require.Eventually(t, func() bool {
		_, err := j.kube.CoreV1().Pods(j.namespace).Get(ctx, pod.Name, metav1.GetOptions{})
		return apierrors.IsNotFound(err)
	}, patience, interval, "the pod ends with its runner, whose grace period is an hour (JOB-2)")
	t.Logf("the pod was gone %.1fs after its deletion", time.Since(deleted).Seconds())
}

type jobNode struct {
	testing.TB
	admin     *rest.Config
	kube      kubernetes.Interface
	client    client.Client
	key       *letter.PrivateKey
	namespace string
	memory    string // of a runner
}

const askerRef, agentRef = "registry.test/asker:v1", "registry.test/agent:v1"

// newJobNode starts a node with the images, and the controller of job containers.
func newJobNode(ctx context.Context, t testing.TB) *jobNode {
	dir := t.TempDir()
	for program, source := range map[string]string{"bullpen-agent": "./cmd/bullpen-agent", "asker": "./test/realnode/asker"} {
		require.NoError(t, compile(ctx, filepath.Join(dir, program), ".", "-tags=production", source))
	}
	log := slog.New(slog.NewTextHandler(t.Output(), nil))
	cluster, err := realnode.Start(ctx, realnode.Options{
		StateDir: t.TempDir(), ControlPlane: controlplane.Options{FastUnsafe: true, AssetsDir: kit.AssetsOrFail(t)}, Log: log,
	})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, cluster.Stop(context.WithoutCancel(ctx))) })
	node, err := cluster.AddNode(ctx, "one")
	require.NoError(t, err)
	passwd := realnode.File{Path: "/etc/passwd", Content: []byte("root:x:0:0:root:/:/\nrunner:x:1001:1001:runner:/:/\n"), Mode: 0o644}
	work := realnode.File{Path: "/tmp", Mode: 0o777 | fs.ModeSticky}
	for _, i := range []realnode.Image{
		{Ref: askerRef, User: "1001:1001", Files: []realnode.File{passwd, work, {Path: "/asker", From: filepath.Join(dir, "asker")}}},
		{Ref: agentRef, User: "1001:1001", Files: []realnode.File{passwd, work, {Path: runnerpod.DefaultAgentCommand, From: filepath.Join(dir, "bullpen-agent")}}},
	} {
		var archive bytes.Buffer
		require.NoError(t, i.Write(&archive))
		require.NoError(t, node.Import(ctx, &archive))
	}
	admin := cluster.Plane().AdminConfig()
	_, err = envtest.InstallCRDs(admin, envtest.CRDInstallOptions{Paths: []string{filepath.Join(root, "charts", "bullpen", "crds")}})
	require.NoError(t, err)
	j := &jobNode{TB: t, admin: admin, namespace: "runners", memory: "256Mi"}
	j.kube, err = kubernetes.NewForConfig(admin)
	require.NoError(t, err)
	j.client, err = client.New(admin, client.Options{Scheme: controller.NewScheme()})
	require.NoError(t, err)
	j.key, err = letter.NewPrivateKey()
	require.NoError(t, err)
	require.NoError(t, j.client.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: j.namespace}}))

	mgr, err := manager.New(admin, manager.Options{
		Scheme: controller.NewScheme(), Metrics: metricsserver.Options{BindAddress: "0"}, Controller: config.Controller{SkipNameValidation: ptr.To(true)},
		Cache:  cache.Options{ByObject: map[client.Object]cache.ByObject{&corev1.Pod{}: {Namespaces: map[string]cache.Config{j.namespace: {}}}}},
		Client: client.Options{Cache: &client.CacheOptions{DisableFor: []client.Object{&corev1.Pod{}}}},
	})
	require.NoError(t, err)
	images := imported{"job": askerRef, "missing": "registry.invalid/none@sha256:" + strings.Repeat("a", 64)}
	require.NoError(t, jobcontainers.Setup(mgr, jobcontainers.Options{Key: j.key, Images: images, Registry: prometheus.NewRegistry(), Log: log}))
	running, stop := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() { done <- mgr.Start(running) }()
	t.Cleanup(func() { stop(); require.NoError(t, await.Result(done, "the controller stops")) })
	return j
}

// runner makes the pod of a pool's runner, in which a command runs in place of the supervisor.
func (j *jobNode) runner(ctx context.Context, name, cpu string, command ...string) *corev1.Pod {
	pool := &v1alpha1.RunnerPool{
		ObjectMeta: metav1.ObjectMeta{Namespace: j.namespace, Name: "jobs-" + name},
		Spec: v1alpha1.RunnerPoolSpec{
			Platform: v1alpha1.PlatformLinux, Labels: []string{"jobs"}, Replicas: ptr.To[int32](0),
			Resources: v1alpha1.RunnerResources{CPU: resource.MustParse(cpu), Memory: resource.MustParse(j.memory)},
			Template: v1alpha1.RunnerTemplate{
				Image: askerRef, Command: []string{"/asker"}, JobContainers: &v1alpha1.JobContainers{}, TerminationGracePeriodSeconds: ptr.To[int64](3600),
			},
		},
	}
	require.NoError(j, j.client.Create(ctx, pool))
	pod, account, err := runnerpod.Build(pool, runnerpod.Options{
		DispatchURL: "http://127.0.0.1:1", AgentImage: agentRef, JobContainersKey: j.key.Public(),
	}, name)
	require.NoError(j, err)
	for i := range pod.Spec.Containers {
		switch c := &pod.Spec.Containers[i]; c.Name {
		case runnerpod.ContainerRunner:
			c.Command = command
		case runnerpod.ContainerPoller, runnerpod.ContainerIdle: // they have exited when a job runs
			c.Image, c.Command, c.Args = askerRef, []string{"/asker", "nothing"}, nil
		}
	}
	pod.OwnerReferences, account.OwnerReferences = nil, nil // no controller of pools runs here
	require.NoError(j, j.client.Create(ctx, account))
	require.NoError(j, j.client.Create(ctx, pod))
	return pod
}

// running returns when a pod runs.
func (j *jobNode) running(ctx context.Context, pod *corev1.Pod) {
	require.Eventually(j, func() bool {
		read, err := j.kube.CoreV1().Pods(j.namespace).Get(ctx, pod.Name, metav1.GetOptions{})
		require.NoError(j, err)
		*pod = *read
		return pod.Status.Phase == corev1.PodRunning
	}, patience, interval, "the pod runs")
}

// follow reads what asker prints.
func (j *jobNode) follow(ctx context.Context, pod *corev1.Pod) <-chan said {
	lines, ended := make(chan said, 16), make(chan struct{})
	stream, err := j.kube.CoreV1().Pods(j.namespace).GetLogs(pod.Name, &corev1.PodLogOptions{Container: runnerpod.ContainerRunner, Follow: true}).Stream(ctx)
	require.NoError(j, err)
	go func() {
		defer close(ended)
		scanner := bufio.NewScanner(io.TeeReader(stream, os.Stderr))
		for scanner.Scan() {
			var l said
			if json.Unmarshal(scanner.Bytes(), &l) == nil {
				lines <- l
			}
		}
	}()
	j.Cleanup(func() { _ = stream.Close(); await.Receive(j, ended, "the log ends") })
	return lines
}
