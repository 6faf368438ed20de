//go:build kubelet

package jobcontainers

import (
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/bullpen-ci/bullpen/api/v1alpha1"
	"github.com/bullpen-ci/bullpen/internal/controller"
	"github.com/bullpen-ci/bullpen/internal/controller/jobcontainers"
	"github.com/bullpen-ci/bullpen/internal/dev/controlplane"
	"github.com/bullpen-ci/bullpen/internal/dev/netns"
	"github.com/bullpen-ci/bullpen/internal/dev/realnode"
	"github.com/bullpen-ci/bullpen/internal/jobcontainer"
	"github.com/bullpen-ci/bullpen/internal/jobcontainer/courier"
	"github.com/bullpen-ci/bullpen/internal/jobcontainer/ephemeral"
	"github.com/bullpen-ci/bullpen/internal/jobcontainer/image"
	"github.com/bullpen-ci/bullpen/internal/jobcontainer/letter"
	"github.com/bullpen-ci/bullpen/internal/runnerpod"
	"github.com/bullpen-ci/bullpen/test/kit"
	"github.com/bullpen-ci/bullpen/test/kit/await"
)

const (
	rowsNamespace = "runners"
	rowsPatience  = 5 * time.Minute
	agentRef      = "registry.test/agent:v1"
	runnerRef     = "registry.test/runner:v1"
)

func init() {
	k := &kubelets{}
	backend, stopBackend = k, func() {
		if k.stop != nil {
			k.stop()
		}
	}
}

// kubelets is the back end that has a kubelet, containerd, couriers and the controller. The images have programs of this machine.
type kubelets struct {
	once    sync.Once
	cluster *realnode.Cluster
	node    *realnode.Node
	client  client.Client
	key     *letter.PrivateKey
	stop    func()
	err     error

	pods   atomic.Int64
	images sync.Map // of each pool: map[string]Image
}

// kubeletPod is a pod of it.
type kubeletPod struct {
	backend *kubelets
	name    string
	uid     string
	process int // PID of the runner's container on this machine
}

// Start starts a pod of a pool of its own.
func (k *kubelets) Start(t *testing.T, images ...Image) Pod {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("a node takes root")
	}
	t.Parallel()
	k.once.Do(func() { k.err = k.boot(kit.AssetsOrFail(t), program(t, "bullpen-agent"), program(t, "row")) })
	require.NoError(t, k.err)
	name := fmt.Sprintf("rows-%d", k.pods.Add(1))
	byName, nonRoot := map[string]Image{}, false
	for _, i := range images {
		byName[i.Name] = i
		nonRoot = nonRoot || i.NonRoot
		if i.Refusal != "" || i.Pull != "" {
			t.Skip("the texts of registries are the subject of internal/jobcontainer/image")
		}
	}
	k.images.Store(name, byName)
	p := &kubeletPod{backend: k}
	p.create(t, name, nonRoot)
	for _, dir := range []string{"_temp/_runner_hook_responses", "_temp/_github_home", "_temp/_github_workflow", "_temp/_runner_file_commands", "_actions", "_tool", "app/app"} {
		output, code := p.Runner(t, "/bin/mkdir", "-p", runnerWork+"/"+dir, "/home/runner/_diag")
		require.Zero(t, code, output)
	}
	return p
}

// create makes the pod as the controller of pools does, but for the runner, which holds the volume in place of its supervisor.
func (p *kubeletPod) create(t *testing.T, name string, nonRoot bool) {
	t.Helper()
	k, ctx := p.backend, await.Context(t)
	pool := &v1alpha1.RunnerPool{
		ObjectMeta: metav1.ObjectMeta{Namespace: rowsNamespace, Name: name},
		Spec: v1alpha1.RunnerPoolSpec{
			Platform: v1alpha1.PlatformLinux, Labels: []string{name}, Replicas: ptr.To[int32](0),
			Resources: v1alpha1.RunnerResources{CPU: resource.MustParse("1"), Memory: resource.MustParse("512Mi")},
			Template: v1alpha1.RunnerTemplate{
				Image: runnerRef, Command: []string{Program, "hold"}, JobContainers: &v1alpha1.JobContainers{}, TerminationGracePeriodSeconds: ptr.To[int64](3600),
			},
		},
	}
	if nonRoot {
		pool.Spec.Template.JobContainers.SecurityProfile = v1alpha1.ProfileRestricted
	}
	require.NoError(t, k.client.Create(ctx, pool))
	pod, account, err := runnerpod.Build(pool, runnerpod.Options{DispatchURL: "http://127.0.0.1:1", AgentImage: agentRef, JobContainersKey: k.key.Public()}, "abcd1234")
	require.NoError(t, err)
	for i := range pod.Spec.Containers {
		c := &pod.Spec.Containers[i]
		if c.Name == runnerpod.ContainerRunner {
			c.Command = []string{Program, "hold"}
		}
		c.Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("10m"), corev1.ResourceMemory: resource.MustParse("16Mi")}
	}
	pod.OwnerReferences, account.OwnerReferences = nil, nil // no controller of pools runs here
	require.NoError(t, k.client.Create(ctx, account))
	require.NoError(t, k.client.Create(ctx, pod))
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("%+v", p.read(t).Status)
		}
		require.NoError(t, k.client.Delete(context.WithoutCancel(ctx), pod))
	})
	p.name, p.uid = pod.Name, string(pod.UID)
	require.Eventually(t, func() bool { return p.read(t).Status.Phase == corev1.PodRunning && p.findRunner() }, rowsPatience, 50*time.Millisecond, "the pod runs")
}

// findRunner finds the process of the runner's container, by its cgroup.
func (p *kubeletPod) findRunner() bool {
	files, _ := filepath.Glob("/proc/[0-9]*/cgroup") // the pattern is valid
	for _, file := range files {
		groups, err := os.ReadFile(file)
		if err != nil || !bytes.Contains(groups, []byte("pod"+p.uid)) {
			continue
		}
		line, err := os.ReadFile(filepath.Join(filepath.Dir(file), "cmdline"))
		if err == nil && string(line) == Program+"\x00hold\x00" {
			p.process, err = strconv.Atoi(filepath.Base(filepath.Dir(file)))
			return err == nil
		}
	}
	return false
}

func (p *kubeletPod) read(t *testing.T) *corev1.Pod {
	t.Helper()
	var pod corev1.Pod
	require.NoError(t, p.backend.client.Get(context.WithoutCancel(t.Context()), client.ObjectKey{Namespace: rowsNamespace, Name: p.name}, &pod))
	return &pod
}

// within is a program in the namespaces of the runner's container, as its user.
func (p *kubeletPod) within(env []string, argv ...string) *exec.Cmd {
	args := append([]string{
		"--target=" + strconv.Itoa(p.process), "--mount", "--net", "--uts", "--ipc", "--root", "--wdns=/home/runner", "--setgid=" + strconv.Itoa(runnerUser), "--setuid=" + strconv.Itoa(runnerUser), "--",
	}, argv...)
	command := exec.Command("/usr/bin/nsenter", args...)
	command.Env = append(append(runnerEnvironment(), courier.EnvPublicKey+"="+p.backend.key.Public()), env...)
	return command
}

// Runner runs a program.
func (p *kubeletPod) Runner(t *testing.T, argv ...string) (string, int) {
	t.Helper()
	command := p.within(nil, argv...)
	var output buffer
	command.Stdout, command.Stderr = &output, &output
	require.NoError(t, command.Start())
	await.Return(t, func() { _ = command.Wait() }, "the program exits: "+strings.Join(argv, " "))
	return output.String(), command.ProcessState.ExitCode()
}

// volume is a volume's directory on this machine.
func (p *kubeletPod) volume(name string) string {
	node := filepath.Dir(filepath.Dir(p.backend.node.LogPath(realnode.Kubelet)))
	return filepath.Join(node, "kubelet", "pods", p.uid, "volumes", "kubernetes.io~empty-dir", name)
}

func place(t *testing.T, file, content string, mode uint32) {
	t.Helper()
	require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o755))
	require.NoError(t, os.WriteFile(file, []byte(content), os.FileMode(mode)))
	require.NoError(t, os.Chmod(file, os.FileMode(mode)))
	require.NoError(t, os.Chown(file, runnerUser, runnerUser))
}

// WriteWork writes a file as the runner's user.
func (p *kubeletPod) WriteWork(t *testing.T, name, content string, mode uint32) {
	t.Helper()
	place(t, filepath.Join(p.volume(runnerpod.VolumeWork), name), content, mode)
}

// WriteRunner writes a file below /home/runner, of the container.
func (p *kubeletPod) WriteRunner(t *testing.T, name, content string) {
	t.Helper()
	place(t, fmt.Sprintf("/proc/%d/root/home/runner/%s", p.process, name), content, 0o644)
}

// WriteExternals writes a program for node actions.
func (p *kubeletPod) WriteExternals(t *testing.T, name, content string) {
	t.Helper()
	place(t, filepath.Join(p.volume(runnerpod.VolumeExternals), name), content, 0o755)
}

// Within runs do in the pod's network namespace.
func (p *kubeletPod) Within(t *testing.T, do func() error) {
	t.Helper()
	require.NoError(t, netns.Within(fmt.Sprintf("/proc/%d/ns/net", p.process), do))
}

// Containers are those of the job, by the order of the pod's spec.
func (p *kubeletPod) Containers() []string {
	var pod corev1.Pod
	if err := p.backend.client.Get(context.Background(), client.ObjectKey{Namespace: rowsNamespace, Name: p.name}, &pod); err != nil {
		return nil
	}
	v, _ := ephemeral.Read(&pod)
	var names []string
	for _, c := range v.Containers {
		names = append(names, c.Name)
	}
	return names
}

// Alive goes by what the kubelet reports.
func (p *kubeletPod) Alive(container string) bool {
	var pod corev1.Pod
	if err := p.backend.client.Get(context.Background(), client.ObjectKey{Namespace: rowsNamespace, Name: p.name}, &pod); err != nil {
		return true
	}
	v, _ := ephemeral.Read(&pod)
	for _, c := range v.Containers {
		if c.Name == container {
			return c.State.Terminated == nil
		}
	}
	return false
}

// Left are files in the snapshots of containerd.
func (p *kubeletPod) Left(t *testing.T, name string) []string {
	t.Helper()
	node := p.backend.node
	output, err := node.Command(await.Context(t), "/usr/bin/find", node.Snapshots(), "-name", name).CombinedOutput()
	require.NoError(t, err, string(output))
	return strings.Fields(string(output))
}

// LimitsMemory does nothing: the containers that the pod begins with have limits, and so has the pod.
func (p *kubeletPod) LimitsMemory(*testing.T) {}

// Explain is what the controller does.
func (p *kubeletPod) Explain(t *testing.T, _ letter.Failure) {
	t.Skip("a kubelet says it only of a container whose guard the kernel has killed for memory, and it prefers the guard's children")
}

// Kill is for rows that Explain has skipped.
func (p *kubeletPod) Kill(t *testing.T, container string) { t.Fatalf("nothing kills %s", container) }

// Requests are those that couriers have carried.
func (p *kubeletPod) Requests() []jobcontainer.Request {
	var pod corev1.Pod
	if err := p.backend.client.Get(context.Background(), client.ObjectKey{Namespace: rowsNamespace, Name: p.name}, &pod); err != nil {
		return nil
	}
	v, _ := ephemeral.Read(&pod)
	var requests []jobcontainer.Request
	seen := map[string]bool{}
	for last := 1; last <= len(v.Couriers); last++ {
		one := v
		one.Couriers = v.Couriers[:last]
		id, total, parts, ok := one.Parts()
		if !ok || seen[id] {
			continue
		}
		text, whole := letter.Join(id, total, parts)
		if !whole {
			continue
		}
		if request, err := p.backend.key.Open(text); err == nil {
			seen[id], requests = true, append(requests, request)
		}
	}
	return requests
}

// Hook runs the hook to its end.
func (p *kubeletPod) Hook(_ context.Context, t *testing.T, call Call) Answer {
	t.Helper()
	return p.StartHook(t, call).Wait(t)
}

// StartHook starts the hook that the pod has, as the worker does.
func (p *kubeletPod) StartHook(t *testing.T, call Call) Running {
	t.Helper()
	response := responseFile(t, call.Stdin)
	p.WriteWork(t, response, "", 0o644)
	command := p.within(call.Environment, "/usr/bin/bash", "-e", runnerpod.ContainerHook)
	command.Stdin = bytes.NewReader(append(bytes.Clone(call.Stdin), '\n'))
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	return startHook(t, command, filepath.Join(p.volume(runnerpod.VolumeWork), response), command.Start)
}

// Resolve is what a registry would say of a row's image: the image of this machine's programs that has what the row wants.
func (k *kubelets) Resolve(_ context.Context, query image.Query) (image.Resolved, error) {
	known, _ := k.images.Load(query.Tenant)
	images, _ := known.(map[string]Image)
	i, ok := images[query.Image]
	if !ok {
		return image.Resolved{}, fmt.Errorf("image %s of %s: %w", query.Image, query.Tenant, fs.ErrNotExist)
	}
	config := i.Config
	if config.OS == "" {
		config.OS, config.Architecture = "linux", architecture
	}
	return image.Resolved{Reference: refOf(i), Config: config}, nil
}

// refOf names the image on the node.
func refOf(i Image) string {
	kind, os := "full", "none"
	switch {
	case i.Bare:
		kind = "bare"
	case len(i.Config.Volumes) > 0:
		kind = "volumes"
	}
	for line := range strings.Lines(i.OSRelease) {
		if id, ok := strings.CutPrefix(strings.TrimSpace(line), "ID="); ok {
			os = id
		}
	}
	return "registry.test/" + kind + "-" + os + ":v1"
}

// boot starts the node with its images, and the controller.
func (k *kubelets) boot(assets, agent, row string) error {
	if err := realnode.CheckMachine(); err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "rows")
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), rowsPatience)
	defer cancel()
	log := slog.New(slog.DiscardHandler)
	k.cluster, err = realnode.Start(ctx, realnode.Options{StateDir: dir, ControlPlane: controlplane.Options{FastUnsafe: true, AssetsDir: assets}, Log: log})
	if err != nil {
		return err
	}
	k.stop = func() {
		if err := k.cluster.Stop(context.Background()); err != nil {
			fmt.Fprintln(os.Stderr, "stopping the node:", err)
		}
		_ = os.RemoveAll(dir)
	}
	if k.node, err = k.cluster.AddNode(ctx, "one"); err != nil {
		return err
	}
	if err := k.importImages(ctx, agent, row); err != nil {
		return err
	}
	admin := k.cluster.Plane().AdminConfig()
	if _, err := envtest.InstallCRDs(admin, envtest.CRDInstallOptions{Paths: []string{"../../charts/bullpen/crds"}}); err != nil {
		return err
	}
	if k.client, err = client.New(admin, client.Options{Scheme: controller.NewScheme()}); err != nil {
		return err
	}
	if k.key, err = letter.NewPrivateKey(); err != nil {
		return err
	}
	if err := k.client.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: rowsNamespace}}); err != nil {
		return err
	}
	mgr, err := manager.New(admin, manager.Options{
		Scheme: controller.NewScheme(), Metrics: metricsserver.Options{BindAddress: "0"},
		Cache:  cache.Options{ByObject: map[client.Object]cache.ByObject{&corev1.Pod{}: {Namespaces: map[string]cache.Config{rowsNamespace: {}}}}},
		Client: client.Options{Cache: &client.CacheOptions{DisableFor: []client.Object{&corev1.Pod{}}}},
	})
	if err != nil {
		return err
	}
	if err := jobcontainers.Setup(mgr, jobcontainers.Options{Key: k.key, Images: k, Registry: prometheus.NewRegistry(), Log: log}); err != nil {
		return err
	}
	running, end := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- mgr.Start(running) }()
	stopNode := k.stop
	k.stop = func() {
		end()
		<-done // bounded: the manager stops within its own limit
		stopNode()
	}
	return nil
}

func (k *kubelets) importImages(ctx context.Context, agent, row string) error {
	programs, err := realnode.HostPrograms(strings.Fields(`bash sh cat chmod cp echo env false getent git grep id ls mkdir printf pwd rm sleep test touch true`)...)
	if err != nil {
		return err
	}
	text := func(path, content string) realnode.File {
		return realnode.File{Path: path, Content: []byte(content), Mode: 0o644}
	}
	base := []realnode.File{
		{Path: Program, From: row}, {Path: "/tmp", Mode: 0o777 | fs.ModeSticky}, {Path: "/home/runner", Owner: runnerUser},
		text("/etc/passwd", "root:x:0:0:root:/root:/bin/sh\nrunner:x:1001:1001::/home/runner:/bin/sh\nworker:x:1234:1234::/home/worker:/bin/sh\n"),
		text("/etc/group", "root:x:0:\nrunner:x:1001:\nworker:x:1234:\n"),
	}
	full := append(programs, base...)
	path := []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
	images := []realnode.Image{
		{Ref: agentRef, User: "1001:1001", Files: append([]realnode.File{{Path: runnerpod.DefaultAgentCommand, From: agent}}, base...)},
		{Ref: runnerRef, User: "1001:1001", Files: full, Env: path},
		{Ref: refOf(Image{}), Files: full, Env: path},
		{Ref: refOf(Image{Bare: true}), Files: base, Env: path},
	}
	volumes := realnode.Image{Ref: refOf(Image{Config: jobcontainer.ImageConfig{Volumes: []string{"/"}}}), Files: slices.Clone(full), Env: path}
	for declared, file := range declaredVolumes {
		volumes.Volumes = append(volumes.Volumes, declared)
		if volumes.Files = append(volumes.Files, realnode.File{Path: declared}); file != "" {
			volumes.Files = append(volumes.Files, text(declared+"/"+file, ""))
		}
	}
	images = append(images, volumes)
	for _, id := range []string{"debian", "alpine"} {
		release := "ID=" + id + "\n"
		images = append(images, realnode.Image{Ref: refOf(Image{OSRelease: release}), Files: append([]realnode.File{text("/etc/os-release", release)}, full...), Env: path})
	}
	for _, i := range images {
		var archive bytes.Buffer
		if err := i.Write(&archive); err != nil {
			return err
		}
		if err := k.node.Import(ctx, &archive); err != nil {
			return err
		}
	}
	return nil
}
