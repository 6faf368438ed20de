package realnode

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/bullpen-ci/bullpen/internal/dev/controlplane"
	"github.com/bullpen-ci/bullpen/test/kit/await"
)

const hostImage = "bullpen.local/host:1"

// stranger stands for a host on the internet: it is in no private range.
var stranger = netip.MustParseAddr("11.0.0.2")

type world struct {
	*testing.T
	ctx     context.Context //nolint:containedctx // bounds every call of the test
	cluster *Cluster
	kube    kubernetes.Interface
	state   string
}

// requireMachine skips the test where nodes cannot run. For root that is a failure, as in CI: what is missing can be installed.
func requireMachine(t *testing.T) {
	t.Helper()
	err := CheckMachine()
	switch {
	case err == nil:
	case os.Geteuid() == 0:
		t.Fatal(err)
	default:
		t.Skip(err)
	}
}

// newWorld is a cluster without a node. change may change its options.
func newWorld(t *testing.T, change ...func(*Options)) *world {
	t.Helper()
	requireMachine(t)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	t.Cleanup(cancel)
	w := &world{T: t, ctx: ctx, state: t.TempDir()}
	w.start(change...)
	return w
}

// start starts the cluster in the state directory, also again.
func (w *world) start(change ...func(*Options)) {
	w.Helper()
	opts := Options{StateDir: w.state, ControlPlane: controlplane.Options{FastUnsafe: true}, Log: slog.New(slog.NewTextHandler(w.Output(), nil))}
	for _, c := range change {
		c(&opts)
	}
	cluster, err := Start(w.ctx, opts)
	require.NoError(w, err)
	w.cluster = cluster
	w.Cleanup(func() { require.NoError(w, cluster.Stop(context.WithoutCancel(w.ctx))) })
	w.kube, err = kubernetes.NewForConfig(w.cluster.Plane().AdminConfig())
	require.NoError(w, err)
}

// addNode starts a node that has the image of this machine's shell.
func (w *world) addNode(name string) *Node {
	w.Helper()
	node, err := w.cluster.AddNode(w.ctx, name)
	require.NoError(w, err)
	w.importHost(node)
	return node
}

func (w *world) importHost(node *Node) {
	w.Helper()
	files, err := HostPrograms("sh", "sleep", "cat", "id", "stat", "ls", "env", "bash", "timeout", "getent")
	require.NoError(w, err)
	var archive bytes.Buffer
	require.NoError(w, Image{Ref: hostImage, Files: files, Env: []string{"PATH=/usr/bin:/bin"}}.Write(&archive))
	require.NoError(w, node.Import(w.ctx, &archive))
}

func (w *world) run(name string, script string, change func(*corev1.Pod)) *corev1.Pod {
	w.Helper()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default", Labels: map[string]string{"app": name}},
		Spec: corev1.PodSpec{
			RestartPolicy:                 corev1.RestartPolicyNever,
			TerminationGracePeriodSeconds: new(int64),
			Containers:                    []corev1.Container{{Name: "main", Image: hostImage, ImagePullPolicy: corev1.PullNever, Command: []string{"/bin/bash", "-c", script}}},
		},
	}
	if change != nil {
		change(pod)
	}
	created, err := w.kube.CoreV1().Pods("default").Create(w.ctx, pod, metav1.CreateOptions{})
	require.NoError(w, err)
	return created
}

func (w *world) phase(name string, phase corev1.PodPhase) *corev1.Pod {
	w.Helper()
	var pod *corev1.Pod
	require.Eventually(w, func() bool {
		var err error
		pod, err = w.kube.CoreV1().Pods("default").Get(w.ctx, name, metav1.GetOptions{})
		return err == nil && pod.Status.Phase == phase
	}, time.Minute, 50*time.Millisecond, "pod %s is %s", name, phase)
	return pod
}

func (w *world) logs(name string) string {
	w.Helper()
	stream, err := w.kube.CoreV1().Pods("default").GetLogs(name, &corev1.PodLogOptions{}).Stream(w.ctx)
	require.NoError(w, err)
	defer stream.Close()
	text, err := io.ReadAll(stream)
	require.NoError(w, err)
	return string(text)
}

func TestNode_RunsPodsAndLeavesNothing(t *testing.T) {
	w := newWorld(t)
	node := w.addNode("one")
	listener, err := w.cluster.Listen(w.ctx, netip.AddrPortFrom(Gateway(), 8080))
	require.NoError(t, err)
	go answer(listener, "machine")
	defer listener.Close()

	w.run("hello", `id -u; getent hosts kubernetes.default; exec 3<>/dev/tcp/10.112.0.1/8080; cat <&3`, nil)
	w.phase("hello", corev1.PodSucceeded)
	said := w.logs("hello")
	require.Contains(t, said, "0\n")
	require.Contains(t, said, "10.111.0.1")
	require.Contains(t, said, "machine")

	require.NoError(t, w.cluster.Stop(w.ctx))
	await.Receive(t, node.Done(), "the node has ended")
	remains, err := Remains(w.state)
	require.NoError(t, err)
	require.Empty(t, remains)
	for _, pattern := range []string{w.cluster.sockets, cgroupMount + w.cluster.cgroup(), cgroupMount + "/*" + w.cluster.cgroup(), filepath.Join(w.state, "nodes"), filepath.Join(w.state, "network")} {
		left, err := filepath.Glob(pattern)
		require.NoError(t, err)
		require.Empty(t, left)
	}
	mounts, err := os.ReadFile("/proc/self/mounts")
	require.NoError(t, err)
	require.NotContains(t, string(mounts), w.state)
}

func answer(listener net.Listener, with string) {
	for {
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		fmt.Fprint(conn, with)
		_ = conn.Close()
	}
}

func TestNodes_PodsReachEachOtherAsPoliciesSay(t *testing.T) {
	w := newWorld(t)
	w.addNode("one")
	w.addNode("two")
	require.NoError(t, w.cluster.Address(stranger))
	listener, err := w.cluster.Listen(w.ctx, netip.AddrPortFrom(stranger, 443))
	require.NoError(t, err)
	go answer(listener, "internet")
	defer listener.Close()

	on := func(node string) func(*corev1.Pod) { return func(p *corev1.Pod) { p.Spec.NodeName = node } }
	w.run("server", `mkdir -p /tmp; sleep 600`, on("one"))
	server := w.phase("server", corev1.PodRunning)
	_ = server
	policy := &networkingv1.NetworkPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: "closed"},
		Spec: networkingv1.NetworkPolicySpec{
			PodSelector: metav1.LabelSelector{MatchLabels: map[string]string{"app": "closed"}},
			PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeEgress},
			Egress:      []networkingv1.NetworkPolicyEgressRule{{To: []networkingv1.NetworkPolicyPeer{{IPBlock: &networkingv1.IPBlock{CIDR: "11.0.0.0/8"}}}}},
		},
	}
	_, err = w.kube.NetworkingV1().NetworkPolicies("default").Create(w.ctx, policy, metav1.CreateOptions{})
	require.NoError(t, err)
	ask := fmt.Sprintf(`sleep 2; for a in 11.0.0.2/443 %s/6443; do if timeout 2 bash -c "exec 3<>/dev/tcp/$a" 2>/dev/null; then echo "$a open"; else echo "$a closed"; fi; done`, Gateway())
	w.run("closed", ask, on("two"))
	w.run("open", ask, on("two"))
	w.phase("closed", corev1.PodSucceeded)
	w.phase("open", corev1.PodSucceeded)
	require.Equal(t, "11.0.0.2/443 open\n10.112.0.1/6443 open\n", w.logs("open"))
	require.Equal(t, "11.0.0.2/443 open\n10.112.0.1/6443 closed\n", w.logs("closed"))
}

func TestImage_HasWhatAProgramNeeds(t *testing.T) {
	files, err := HostPrograms("sh")
	require.NoError(t, err)
	var paths []string
	for _, f := range files {
		paths = append(paths, f.Path)
	}
	all := strings.Join(paths, "\n")
	require.Contains(t, all, "/usr/bin/sh")
	require.Contains(t, all, "libc.so")
	require.Contains(t, all, "ld-linux")
}
