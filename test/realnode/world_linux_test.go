package realnode

import (
	"context"
	"log/slog"
	"net"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/bullpen-ci/bullpen/internal/dev/controlplane"
	"github.com/bullpen-ci/bullpen/internal/dev/github/standin"
	"github.com/bullpen-ci/bullpen/internal/dev/realnode"
	"github.com/bullpen-ci/bullpen/test/kit"
	"github.com/bullpen-ci/bullpen/test/kit/await"
	"github.com/bullpen-ci/bullpen/test/kit/postgrestest"
)

const (
	root       = "../.."
	repository = "registry.test/bullpen"
	nodeName   = "machine"

	systemNamespace  = "bullpen-system"
	runnersNamespace = "bullpen-runners"
	// outside holds the Services that lead out of the cluster: to the database, to GitHub, and to the gate that holds jobs.
	outside = "outside"
)

// world is a cluster of one node, a GitHub and a database, and nothing of Bullpen.
type world struct {
	testing.TB
	cluster  *realnode.Cluster
	node     *realnode.Node
	kube     kubernetes.Interface
	dir      string // bin/, work/, state/, …
	github   *standin.Local
	gate     *gate
	witness  *witness
	database string // its URL, as this machine has it
	account  *account
	registry *jobRegistry
}

// requireMachine skips the test for users who cannot run a node. Root can: what is missing is a failure.
func requireMachine(t testing.TB) {
	t.Helper()
	if err := realnode.CheckMachine(); err != nil {
		if os.Getuid() == 0 {
			t.Fatal(err)
		}
		t.Skip(err)
	}
}

func newWorld(t testing.TB) *world {
	t.Helper()
	requireMachine(t)
	w := &world{TB: t, account: &account{stopped: map[string]bool{}, ran: map[string]bool{}}}
	var err error
	w.dir, err = os.MkdirTemp("", "bullpen-realnode-")
	require.NoError(t, err)
	t.Cleanup(func() {
		if t.Failed() && os.Getenv(kit.EnvKeep) != "" {
			t.Logf("logs and files are kept in %s", w.dir)
			return
		}
		require.NoError(t, os.RemoveAll(w.dir))
	})
	require.NoError(t, os.Mkdir(filepath.Join(w.dir, "work"), 0o755))
	built := make(chan error, 1)
	go func() { built <- build(t.Context(), w.dir, "v1", "v2") }()
	w.gate = openGate(t)
	w.database = postgrestest.NewDatabase(t, nil)
	w.startCluster()
	require.NoError(t, <-built) // bounded: the compiler ends with the test's context
	require.NoError(t, os.Symlink(w.cluster.Plane().Kubectl(), filepath.Join(w.dir, "bin", "kubectl")))
	w.importImages(w.node, "v1", "v2")
	w.startGitHub()
	w.startServices()
	w.registry = newRegistry(t)
	w.witness = watch(t, w.kube)
	w.prepareFiles()
	return w
}

// startCluster starts a control plane and a node. Logs and data are within w.dir.
func (w *world) startCluster() {
	ctx, cancel := context.WithTimeout(w.Context(), patience)
	defer cancel()
	var err error
	w.cluster, err = realnode.Start(ctx, realnode.Options{
		StateDir: filepath.Join(w.dir, "state"), ControlPlane: controlplane.Options{FastUnsafe: true, AssetsDir: kit.AssetsOrFail(w.TB), StartTimeout: patience}, Log: w.log("cluster"),
	})
	require.NoError(w, err)
	w.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(w.Context()), time.Minute)
		defer cancel()
		if w.Failed() && os.Getenv(kit.EnvKeep) != "" && w.node != nil {
			require.NoError(w, os.CopyFS(filepath.Join(w.dir, "node-log"), os.DirFS(filepath.Dir(w.node.LogPath(realnode.Kubelet)))))
		}
		require.NoError(w, w.cluster.Stop(ctx))
	})
	w.node, err = w.cluster.AddNode(ctx, nodeName)
	require.NoError(w, err)
	w.kube, err = kubernetes.NewForConfig(w.cluster.Plane().AdminConfig())
	require.NoError(w, err)
}

// importImages gives a node the product's images and the runners'.
func (w *world) importImages(node *realnode.Node, versions ...string) {
	runner := filepath.Join(w.dir, "runner.tar")
	out, err := os.Create(runner)
	require.NoError(w, err)
	require.NoError(w, runnerImage(w.TB, w.dir).Write(out))
	require.NoError(w, out.Close())
	archives := []string{runner}
	for _, version := range versions {
		archives = append(archives, filepath.Join(w.dir, "bullpen-"+version+".oci.tar"))
	}
	for _, archive := range archives {
		in, err := os.Open(archive)
		require.NoError(w, err)
		require.NoError(w, node.Import(w.Context(), in))
		require.NoError(w, in.Close())
	}
	require.NoError(w, os.Remove(runner))
}

// background runs a part of the world until the test's end, and waits for it then.
func (w *world) background(part func(ctx context.Context)) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(w.Context()))
	var done sync.WaitGroup
	done.Go(func() { part(ctx) })
	w.Cleanup(func() {
		cancel()
		await.Return(w, done.Wait, "a part in the background ends")
	})
}

func (w *world) startGitHub() {
	way := listen(w.TB)
	w.background(func(ctx context.Context) {
		forward(ctx, way, func(ctx context.Context) (net.Conn, error) {
			service, err := w.kube.CoreV1().Services(systemNamespace).Get(ctx, "bullpen-webhooks", metav1.GetOptions{})
			if err != nil {
				return nil, err
			}
			return w.cluster.Dial(ctx, net.JoinHostPort(service.Spec.ClusterIP, "80"))
		})
	})
	w.run("head -c 32 /dev/urandom | base64 > webhook-secret") // as the App's owner does, who gives it to GitHub
	secret, err := os.ReadFile(filepath.Join(w.dir, "work", "webhook-secret"))
	require.NoError(w, err)
	w.github, err = standin.Start(context.WithoutCancel(w.Context()), standin.Options{
		URL: "http://github." + outside + ".svc", WebhookURL: "http://" + way.Addr().String() + "/webhooks/github", WebhookSecret: strings.TrimSpace(string(secret)),
		ShuffleAssignment: true,
		Installations:     []standin.Installation{{ID: 7, Account: "acme", Repositories: []string{"app"}}},
	})
	require.NoError(w, err)
	w.Cleanup(w.github.Close)
}

// Addresses outside of the cluster. Policies let runners reach GitHub and the gate, which are in no private range.
var (
	githubAt    = netip.MustParseAddr("11.0.0.2")
	gateAt      = netip.MustParseAddr("11.0.0.3")
	databaseAt  = netip.MustParseAddr("11.0.0.4")
	jobImagesAt = netip.MustParseAddr("11.0.0.6")
)

// startServices makes the Services that lead out of the cluster: names without a selector, with the addresses as endpoints.
func (w *world) startServices() {
	ctx := w.Context()
	_, err := w.kube.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: outside}}, metav1.CreateOptions{})
	require.NoError(w, err)
	database, err := url.Parse(w.database)
	require.NoError(w, err)
	databaseTo := database.Host
	if socket := database.Query().Get("host"); socket != "" {
		databaseTo = "unix:" + filepath.Join(socket, ".s.PGSQL.5432")
	}
	w.serve("github", netip.AddrPortFrom(githubAt, 80), strings.TrimPrefix(w.github.URL, "http://"))
	w.serve("gate", netip.AddrPortFrom(gateAt, 80), w.gate.listener.Addr().String())
	w.serve("database", netip.AddrPortFrom(databaseAt, 5432), databaseTo)
}

// serve makes a Service that leads to an address outside of the cluster, and from there to one of this machine.
func (w *world) serve(service string, at netip.AddrPort, to string) {
	ctx := context.WithoutCancel(w.Context())
	require.NoError(w, w.cluster.Address(at.Addr()))
	require.NoError(w, w.cluster.Forward(ctx, at, to))
	port := int32(at.Port())
	_, err := w.kube.CoreV1().Services(outside).Create(ctx, &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: service}, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Name: "it", Port: port}}},
	}, metav1.CreateOptions{})
	require.NoError(w, err)
	name := "it"
	_, err = w.kube.DiscoveryV1().EndpointSlices(outside).Create(ctx, &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Name: service, Labels: map[string]string{discoveryv1.LabelServiceName: service}},
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports:       []discoveryv1.EndpointPort{{Name: &name, Port: &port}},
		Endpoints:   []discoveryv1.Endpoint{{Addresses: []string{at.Addr().String()}}},
	}, metav1.CreateOptions{})
	require.NoError(w, err)
}

// log writes to a file that is kept when the test fails and EnvKeep is set.
func (w *world) log(part string) *slog.Logger {
	file, err := os.Create(filepath.Join(w.dir, part+".log"))
	require.NoError(w, err)
	w.Cleanup(func() { _ = file.Close() })
	return slog.New(slog.NewTextHandler(file, nil))
}
