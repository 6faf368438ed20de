package realnode

import (
	"bytes"
	"context"
	"io/fs"
	"log/slog"
	"net/netip"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bullpen-ci/bullpen/api/v1alpha1"
	"github.com/bullpen-ci/bullpen/internal/controller"
	"github.com/bullpen-ci/bullpen/internal/dev/controlplane"
	"github.com/bullpen-ci/bullpen/internal/dev/controlplane/assets"
	"github.com/bullpen-ci/bullpen/internal/dev/realnode"
	"github.com/bullpen-ci/bullpen/internal/runnerpod"
	"github.com/bullpen-ci/bullpen/test/kit"
	"github.com/bullpen-ci/bullpen/test/kit/registrytest"
)

const (
	buildKitRef, builderRef = "registry.test/buildkit:v1", "registry.test/builder:v1"
	// cacheAt is where builds find a registry.
	cacheAt = "11.0.0.9:80"
)

// building is what the job does: it builds as a workflow may, by buildctl and by docker buildx, whose builder is there already. A file ends it.
const building = `set -eu
mkdir -p /tmp/context/root/usr && cd /tmp/context
cp -a /usr/bin /usr/lib /usr/lib64 root/usr && cp -a /bin /lib /lib64 root
cat >Dockerfile <<'END'
FROM scratch AS base
COPY root /
RUN ["/bin/bash", "-c", "read -r inside outside count </proc/self/uid_map; (( outside > 0 )) && mkdir /made && [[ ! -g /made && -G /made ]] && echo user $UID of $count >/built"]
FROM scratch
COPY --from=base /built /built
END
buildctl build --progress plain --frontend dockerfile.v0 --local context=. --local dockerfile=. \
  --output type=image,name=` + cacheAt + `/built:v1,push=true,registry.insecure=true --export-cache type=registry,ref=` + cacheAt + `/cache:v1,mode=max,registry.insecure=true
buildctl prune --all >/tmp/pruned
buildx build --progress plain --cache-from type=registry,ref=` + cacheAt + `/cache:v1,registry.insecure=true --output type=local,dest=/tmp/out . 2>&1
echo "built: $(cat /tmp/out/built)"
buildx create --driver remote --name another
buildx build --builder another --progress plain --output type=oci,dest=/tmp/image.tar .
(( $(wc -c </tmp/image.tar) > 1000 )) && echo "all built"
until [ -e /tmp/end ]; do sleep 0.1; done
`

// A job builds images with the container runtime's own seccomp profile and without a privileged container, as root of the user namespace of
// its pod. The daemon begins with the first build, outlives TERM, and ends with the runner.
func TestBuildKit_NET7_JOB2_OnAKubelet(t *testing.T) {
	requireMachine(t)
	t.Parallel()
	programs := buildKitPrograms(t)
	ctx, cancel := context.WithTimeout(t.Context(), 3*patience)
	defer cancel()
	b := newBuildNode(ctx, t, programs)
	registry := registrytest.Start(t, registrytest.Options{})
	cache := netip.MustParseAddrPort(cacheAt)
	require.NoError(t, b.cluster.Address(cache.Addr()))
	require.NoError(t, b.cluster.Forward(ctx, cache, registry.Host))
	b.buildsAndRunsActions(ctx)
	pod := b.pod(ctx, "builds", nil)
	defer func() {
		if t.Failed() {
			for _, c := range []string{runnerpod.ContainerRunner, runnerpod.ContainerBuildKit} {
				t.Logf("%s:\n%s", c, b.log(ctx, pod, c))
			}
		}
	}()
	var text string
	require.Eventually(t, func() bool {
		text = b.log(ctx, pod, runnerpod.ContainerRunner)
		return strings.Contains(text, "all built") || strings.Contains(text, "runner exited")
	}, 2*patience, interval, "the builds")
	require.Contains(t, text, "all built")
	require.Contains(t, text, "built: user 0 of 65536", "root, of the pod's own user namespace")
	require.Regexp(t, `CACHED|importing cache manifest`, text)
	require.Equal(t, 1, strings.Count(b.log(ctx, pod, runnerpod.ContainerBuildKit), "BuildKit is starting"))
	b.onlyTheDaemonHasACapability(ctx, pod)

	require.NoError(t, b.kube.CoreV1().Pods(b.namespace).Delete(ctx, pod.Name, metav1.DeleteOptions{}))
	again := `cd /tmp/context && echo >root/new && buildx build --progress plain --output type=local,dest=/tmp/after . 2>&1 && cat /tmp/after/built`
	require.Contains(t, b.exec(ctx, pod, runnerpod.ContainerRunner, again), "user 0 of", "the job goes on in a pod that is being deleted, and so do its builds (JOB-2)")
	ended := time.Now()
	b.exec(ctx, pod, runnerpod.ContainerRunner, ": >/tmp/end")
	require.Eventually(t, func() bool {
		_, err := b.kube.CoreV1().Pods(b.namespace).Get(ctx, pod.Name, metav1.GetOptions{})
		return apierrors.IsNotFound(err)
	}, patience, interval, "the pod ends with its runner, whose grace period is an hour")
	t.Logf("the pod was gone %.1fs after its runner's end", time.Since(ended).Seconds())
}

// onlyTheDaemonHasACapability: what the builds need is in no other container's reach.
func (b *buildNode) onlyTheDaemonHasACapability(ctx context.Context, pod *corev1.Pod) {
	said := b.exec(ctx, pod, runnerpod.ContainerRunner, `while read -r name value; do case $name in CapBnd:|Seccomp:) echo $name $value;; esac; done </proc/self/status`)
	require.Contains(b, said, "CapBnd: 0000000000000000")
	require.Contains(b, said, "Seccomp: 2", "a filter")
	require.NotContains(b, b.exec(ctx, pod, runnerpod.ContainerRunner, `echo /bullpen/*`), "token")
}

// buildKitPrograms compiles the daemon and its clients, and returns their directory.
func buildKitPrograms(t *testing.T) string {
	dir := t.TempDir()
	for _, pkg := range []string{"github.com/moby/buildkit/cmd/buildkitd", "github.com/moby/buildkit/cmd/buildctl", "github.com/docker/buildx/cmd/buildx"} {
		require.NoError(t, compile(t.Context(), filepath.Join(dir, path.Base(pkg)), filepath.Join("tools", "buildkit"), "-ldflags=-s -w", pkg))
	}
	return dir
}

type buildNode struct {
	*testing.T
	cluster   *realnode.Cluster
	kube      kubernetes.Interface
	client    client.Client
	namespace string
}

func newBuildNode(ctx context.Context, t *testing.T, programs string) *buildNode {
	parts, err := assets.FindNode(assets.Options{})
	require.NoError(t, err)
	dir := t.TempDir()
	require.NoError(t, compile(ctx, filepath.Join(dir, "bullpen-agent"), ".", "-tags=production", "./cmd/bullpen-agent"))
	cluster, err := realnode.Start(ctx, realnode.Options{
		StateDir: t.TempDir(), ControlPlane: controlplane.Options{FastUnsafe: true, AssetsDir: kit.AssetsOrFail(t)},
		Log: slog.New(slog.NewTextHandler(t.Output(), nil)),
	})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, cluster.Stop(context.WithoutCancel(ctx))) })
	node, err := cluster.AddNode(ctx, "one")
	require.NoError(t, err)
	runc, err := realnode.HostProgram(filepath.Join(parts, "runc"), "/usr/bin/buildkit-runc")
	require.NoError(t, err)
	look, err := realnode.HostPrograms("bash")
	require.NoError(t, err)
	tools, err := realnode.HostPrograms("bash", "cat", "cp", "mkdir", "rm", "touch", "wc", "sleep")
	require.NoError(t, err)
	passwd := realnode.File{Path: "/etc/passwd", Content: []byte("root:x:0:0:root:/:/\nrunner:x:1001:1001:runner:/tmp:/\n"), Mode: 0o644}
	tmp := realnode.File{Path: "/tmp", Mode: 0o777 | fs.ModeSticky}
	for _, i := range []realnode.Image{
		{Ref: agentRef, User: "1001:1001", Files: []realnode.File{passwd, tmp, {Path: runnerpod.DefaultAgentCommand, From: filepath.Join(dir, "bullpen-agent")}}},
		{Ref: buildKitRef, Env: []string{"PATH=/usr/bin"}, Files: append(slices.Concat(look, runc), passwd, tmp,
			realnode.File{Path: "/usr/bin/buildkitd", From: filepath.Join(programs, "buildkitd")},
			realnode.File{Path: "/usr/bin/buildctl", From: filepath.Join(programs, "buildctl")})},
		{Ref: builderRef, User: "1001:1001", Env: []string{"PATH=/usr/local/bin:/usr/bin", "HOME=/tmp"}, Files: append(tools, passwd, tmp,
			realnode.File{Path: "/usr/local/bin/buildctl", From: filepath.Join(programs, "buildctl")},
			realnode.File{Path: "/usr/local/bin/buildx", From: filepath.Join(programs, "buildx")})},
	} {
		var archive bytes.Buffer
		require.NoError(t, i.Write(&archive))
		require.NoError(t, node.Import(ctx, &archive))
	}
	admin := cluster.Plane().AdminConfig()
	b := &buildNode{T: t, cluster: cluster, namespace: "runners"}
	b.kube, err = kubernetes.NewForConfig(admin)
	require.NoError(t, err)
	b.client, err = client.New(admin, client.Options{Scheme: controller.NewScheme()})
	require.NoError(t, err)
	require.NoError(t, b.client.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: b.namespace}}))
	return b
}

// pod makes the pod of a pool's runner. Its supervisor has a configuration at once.
func (b *buildNode) pod(ctx context.Context, name string, jobs *v1alpha1.JobContainers) *corev1.Pod {
	pool := &v1alpha1.RunnerPool{
		ObjectMeta: metav1.ObjectMeta{Namespace: b.namespace, Name: "builders", UID: "1"},
		Spec: v1alpha1.RunnerPoolSpec{
			Platform: v1alpha1.PlatformLinux, Labels: []string{"builders"}, Replicas: ptr.To[int32](0),
			Resources: v1alpha1.RunnerResources{CPU: resource.MustParse("1"), Memory: resource.MustParse("1Gi")},
			Template: v1alpha1.RunnerTemplate{
				Image: builderRef, Command: []string{"bash"}, TerminationGracePeriodSeconds: ptr.To[int64](3600), JobContainers: jobs,
				Build: v1alpha1.BuildWithBuildKit, BuildKit: &v1alpha1.BuildKit{Image: buildKitRef, Storage: ptr.To(resource.MustParse("2Gi"))},
			},
		},
	}
	pod, account, err := runnerpod.Build(pool, runnerpod.Options{DispatchURL: "http://127.0.0.1:1", AgentImage: agentRef, JobContainersKey: "unused"}, name)
	require.NoError(b, err)
	for i := range pod.Spec.Containers {
		if c := &pod.Spec.Containers[i]; c.Name == runnerpod.ContainerRunner {
			c.Command = []string{"bash", "-c", `echo x >/tmp/jit && exec "$0" run --jit-file /tmp/jit --status-dir /bullpen/shared -- bash -c "$1"`, c.Command[0], building}
		}
	}
	pod.Spec.SecurityContext.FSGroup = ptr.To[int64](1001)  // as with job containers: it must not get into layers
	pod.OwnerReferences, account.OwnerReferences = nil, nil // no controller of pools runs here
	require.NoError(b, b.client.Create(ctx, account))
	require.NoError(b, b.client.Create(ctx, pod))
	return pod
}

// log is what a container has written; empty before it has started.
func (b *buildNode) log(ctx context.Context, pod *corev1.Pod, container string) string {
	text, err := b.kube.CoreV1().Pods(b.namespace).GetLogs(pod.Name, &corev1.PodLogOptions{Container: container}).DoRaw(ctx)
	if apierrors.IsBadRequest(err) {
		return ""
	}
	require.NoError(b, err)
	return string(text)
}

// exec runs a script in a container.
func (b *buildNode) exec(ctx context.Context, pod *corev1.Pod, container, script string) string {
	b.Helper()
	plane := b.cluster.Plane()
	output, err := exec.CommandContext(ctx, plane.Kubectl(), "--kubeconfig="+plane.AdminKubeconfig(), "--namespace="+b.namespace, "exec", pod.Name, "--container="+container,
		"--", "bash", "-c", script).CombinedOutput()
	require.NoError(b, err, string(output))
	return string(output)
}
