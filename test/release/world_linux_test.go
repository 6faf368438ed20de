package release

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

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/bullpen-ci/bullpen/internal/dev/controlplane"
	"github.com/bullpen-ci/bullpen/internal/dev/github/standin"
	"github.com/bullpen-ci/bullpen/internal/node"
	"github.com/bullpen-ci/bullpen/internal/node/sandbox/process"
	"github.com/bullpen-ci/bullpen/test/kit"
	"github.com/bullpen-ci/bullpen/test/kit/podnetwork"
	"github.com/bullpen-ci/bullpen/test/kit/postgrestest"
	"github.com/bullpen-ci/bullpen/test/kit/serviceproxy"
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

// nameserver is an address of the Services' range that is not assigned automatically.
var nameserver = netip.MustParseAddr("10.111.0.10")

// world is a cluster of one node, a GitHub and a database, and nothing of Bullpen.
type world struct {
	*testing.T
	cluster  *kit.Env
	dir      string // bin/, images/, work/, …
	network  *podnetwork.Network
	github   *standin.Local
	gate     *gate
	witness  *witness
	database string // its URL, as this machine has it
	ran      map[string]bool
}

func newWorld(t *testing.T) *world {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("pods with networks and files of their own take root: run this test as root on Linux (CI does)")
	}
	w := &world{T: t, cluster: kit.Bare(t), ran: map[string]bool{}}
	var err error
	w.dir, err = files()
	require.NoError(t, err)
	t.Cleanup(func() {
		if t.Failed() && os.Getenv(kit.EnvKeep) != "" {
			t.Logf("logs and files are kept in %s", w.dir)
			return
		}
		require.NoError(t, os.RemoveAll(w.dir))
	})
	require.NoError(t, build(t.Context(), w.dir, "v1", "v2"))
	require.NoError(t, os.Symlink(w.cluster.Plane.Kubectl(), filepath.Join(w.dir, "bin", "kubectl")))
	machine := filepath.Join(w.dir, "images", "registry.test", "machine", "v1")
	require.NoError(t, os.MkdirAll(filepath.Dir(machine), 0o755))
	require.NoError(t, os.Symlink("/", machine))

	require.NoError(t, os.Mkdir(filepath.Join(w.dir, "work"), 0o755))
	w.gate = openGate(t)
	w.database = postgrestest.NewDatabase(t, nil)
	w.startGitHub()
	w.network, err = podnetwork.Open(podnetwork.Options{StateDir: filepath.Join(w.dir, "net"), Services: netip.MustParsePrefix(controlplane.ServiceRange)})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, w.network.Destroy()) })
	w.startServices()
	w.startNode()
	w.witness = watch(t, w.cluster.Kube)
	w.prepareFiles()
	return w
}

// background runs a part of the world until the test's end, and waits for it then.
func (w *world) background(part func(ctx context.Context)) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(w.Context()))
	var done sync.WaitGroup
	done.Go(func() { part(ctx) })
	w.Cleanup(func() {
		cancel()
		done.Wait()
	})
}

func (w *world) startGitHub() {
	way := listen(w.T)
	w.background(func(ctx context.Context) {
		forward(ctx, way, func(ctx context.Context) (net.Conn, error) {
			service, err := w.cluster.Kube.CoreV1().Services(systemNamespace).Get(ctx, "bullpen-webhooks", metav1.GetOptions{})
			if err != nil {
				return nil, err
			}
			return w.network.DialContext(ctx, "tcp", net.JoinHostPort(service.Spec.ClusterIP, "80"))
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

// startServices makes the Services that lead to this machine, and everything that Services need.
func (w *world) startServices() {
	ctx := w.Context()
	_, err := w.cluster.Kube.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: outside}}, metav1.CreateOptions{})
	require.NoError(w, err)
	local := map[string]string{"default/kubernetes": strings.TrimPrefix(w.cluster.Plane.URL(), "https://")}
	database, err := url.Parse(w.database)
	require.NoError(w, err)
	databaseAt := database.Host
	if socket := database.Query().Get("host"); socket != "" {
		databaseAt = "unix:" + filepath.Join(socket, ".s.PGSQL.5432")
	}
	for name, service := range map[string]struct {
		port int32
		at   string
	}{
		"github":   {80, strings.TrimPrefix(w.github.URL, "http://")},
		"gate":     {80, w.gate.listener.Addr().String()},
		"database": {5432, databaseAt},
	} {
		_, err := w.cluster.Kube.CoreV1().Services(outside).Create(ctx, &corev1.Service{
			ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: service.port}}},
		}, metav1.CreateOptions{})
		require.NoError(w, err)
		local[outside+"/"+name] = service.at
	}
	proxy, err := serviceproxy.New(serviceproxy.Options{
		Config: w.cluster.As(w.T, "system:kube-proxy"), Network: w.network, Local: local, Nameserver: nameserver, Log: w.log("proxy"),
	})
	require.NoError(w, err)
	w.background(func(ctx context.Context) {
		if err := proxy.Run(ctx); err != nil {
			w.Errorf("the proxy of Services: %v", err)
		}
	})
}

func (w *world) startNode() {
	binary, state := filepath.Join(w.dir, "bin", "bullpen"), filepath.Join(w.dir, "node")
	log := w.log("node")
	sandbox, err := process.New(process.Options{
		StateDir: state, ShimCommand: []string{binary, "node", "shim"}, Binary: binary, Log: log,
		Enclosure: &process.Enclosure{
			Network: w.network, Images: filepath.Join(w.dir, "images"), Nameserver: nameserver, EnterCommand: []string{binary, "node", "enter"},
		},
	})
	require.NoError(w, err)
	agent, err := node.New(node.Options{
		Name: nodeName, Config: w.cluster.As(w.T, "system:node:"+nodeName, "system:nodes"), Sandbox: sandbox, SandboxName: "process",
		StateDir: state, Log: log, Dial: w.network.DialContext, MinDiskFree: node.DiskReserve{Bytes: 1 << 28},
		APIService: netip.AddrPortFrom(netip.MustParseAddr(controlplane.ServiceAddress), 443),
		Capacity: corev1.ResourceList{
			corev1.ResourceCPU: resource.MustParse("64"), corev1.ResourceMemory: resource.MustParse("256Gi"), corev1.ResourcePods: resource.MustParse("60"),
			corev1.ResourceEphemeralStorage: resource.MustParse("100Ti"),
		},
	})
	require.NoError(w, err)
	w.Cleanup(func() {
		_, err := process.Cleanup(context.WithoutCancel(w.Context()), state)
		require.NoError(w, err)
	})
	w.background(func(ctx context.Context) {
		if err := agent.Run(ctx); err != nil {
			w.Errorf("the node agent: %v", err)
		}
	})
}

// log writes to a file that is kept when the test fails and EnvKeep is set.
func (w *world) log(part string) *slog.Logger {
	file, err := os.Create(filepath.Join(w.dir, part+".log"))
	require.NoError(w, err)
	w.Cleanup(func() { _ = file.Close() })
	return slog.New(slog.NewTextHandler(file, nil))
}
