package rig

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bullpen-ci/bullpen/api/v1alpha1"
	"github.com/bullpen-ci/bullpen/internal/clusterview"
	"github.com/bullpen-ci/bullpen/internal/controller"
	"github.com/bullpen-ci/bullpen/internal/controller/serverclient"
	"github.com/bullpen-ci/bullpen/internal/dispatch"
	"github.com/bullpen-ci/bullpen/internal/dispatchapi"
	"github.com/bullpen-ci/bullpen/internal/github"
	"github.com/bullpen-ci/bullpen/internal/github/standin"
	"github.com/bullpen-ci/bullpen/internal/node"
	"github.com/bullpen-ci/bullpen/internal/node/sandbox/synthetic"
	"github.com/bullpen-ci/bullpen/internal/postgres"
	"github.com/bullpen-ci/bullpen/internal/runnerpod"
	"github.com/bullpen-ci/bullpen/internal/server"
	"github.com/bullpen-ci/bullpen/internal/testkit"
)

const (
	systemNamespace = "bullpen-system"
	controllerName  = "bullpen-controller"
	serverName      = "bullpen-server"
	serviceAccounts = "system:serviceaccount:" + systemNamespace + ":"
	hookSecret      = "rig"
)

// Options of Start.
type Options struct {
	// Cluster is the control plane. Required.
	Cluster *testkit.Env
	// Database is the URL of an empty database. Required.
	Database string
	// Nodes is how many node agents there are; PodsEach is how many pods each has room for. Required.
	Nodes    int
	PodsEach int64
	// Accounts is how many organizations have the App installed: org-1, org-2, …, each with a repository app. The
	// default is one.
	Accounts int
	// OnDelete, if set, is called before each deletion of a pod that the controller asks for, with its preconditions.
	OnDelete func(name string, conditions *metav1.Preconditions)
	// OnGranted, if set, is called when the server has granted the removal of a pod, before the controller knows.
	OnGranted func(uid string)
	// Log of all parts; discarded when nil.
	Log *slog.Logger
}

// Fleet is a whole Bullpen that runs. All of it ends with the test.
type Fleet struct {
	Namespace string
	Admin     client.WithWatch
	Store     *postgres.Store
	GitHub    *standin.Local
	Calls     Calls

	tb       testing.TB
	options  Options
	ctx      context.Context
	stop     func() // everything, once
	parts    sync.WaitGroup
	pods     *pods
	machines []*synthetic.Machine
}

// Start brings everything up; the nodes are ready when it returns.
func Start(tb testing.TB, options Options) *Fleet {
	tb.Helper()
	if options.Log == nil {
		options.Log = slog.New(slog.DiscardHandler)
	}
	f := &Fleet{tb: tb, options: options, pods: newPods(), Namespace: options.Cluster.Namespace(tb)}
	ctx, cancel := context.WithCancel(context.Background())
	f.ctx = ctx
	tb.TempDir() // the first one decides when all are removed: after what is registered below has run
	f.Admin = options.Cluster.Client(tb, v1alpha1.AddToScheme)
	options.Cluster.ShippedRoles(tb, f.Namespace)
	f.stop = sync.OnceFunc(func() {
		cancel()
		f.parts.Wait()
		for _, m := range f.machines {
			m.Off()
		}
		f.removeNodes() // or the next fleet of this control plane gets pods on machines that are off
	})
	tb.Cleanup(f.stop)
	f.startGitHub()
	internal := f.startServer()
	f.startController(internal)
	for i := range options.Nodes {
		f.machines = append(f.machines, f.startNode(i))
	}
	f.awaitNodes()
	return f
}

// as is a client configuration of a component, whose requests are counted.
func (f *Fleet) as(component, user string, groups ...string) *rest.Config {
	config := f.options.Cluster.As(f.tb, user, groups...)
	config.Wrap(f.Calls.kubernetes(component))
	return config
}

func (f *Fleet) startGitHub() {
	options := standin.Options{
		WebhookSecret: hookSecret, ShuffleAssignment: true, OfflineAfter: 10 * time.Minute,
		Registration: standin.RateLimit{Limit: 1_000_000}, Core: standin.RateLimit{Limit: 1_000_000},
	}
	for i := range max(f.options.Accounts, 1) {
		options.Installations = append(options.Installations, standin.Installation{
			ID: int64(100 + i), Account: fmt.Sprintf("org-%d", i+1), Repositories: []string{"app"},
		})
	}
	var err error
	f.GitHub, err = standin.Start(f.ctx, options)
	require.NoError(f.tb, err)
	f.tb.Cleanup(f.GitHub.Close)
}

// startServer runs one server as `bullpen server` does, and returns its internal address.
func (f *Fleet) startServer() string {
	store, err := postgres.Open(f.ctx, f.options.Database, 16)
	require.NoError(f.tb, err)
	f.tb.Cleanup(store.Close)
	require.NoError(f.tb, postgres.Migrate(f.ctx, f.options.Database))
	f.Store = store
	config := f.as(Server, serviceAccounts+serverName, "system:serviceaccounts", "system:authenticated")
	config.QPS, config.Burst = 200, 400
	view, err := clusterview.New(clusterview.Options{Config: config, Namespace: f.Namespace, Log: f.options.Log})
	require.NoError(f.tb, err)
	forge, err := github.New(github.Options{BaseURL: f.GitHub.URL + "/api/v3", AppID: 1, PrivateKey: f.GitHub.AppKeyPEM, Log: f.options.Log})
	require.NoError(f.tb, err)
	dispatcher, err := dispatch.New(dispatch.Options{Store: store, Forge: forge, Cluster: view, Log: f.options.Log})
	require.NoError(f.tb, err)
	handlers, err := server.New(server.Options{
		Dispatcher: dispatcher, Store: store, Identities: view, WebhookSecret: hookSecret,
		ControllerPrincipal: serviceAccounts + controllerName, Ready: store.Ping, Log: f.options.Log,
	})
	require.NoError(f.tb, err)
	public, internal := httptest.NewServer(handlers.Public()), httptest.NewServer(f.countInternal(handlers.Internal()))
	f.parts.Go(func() {
		if err := view.Run(f.ctx, dispatcher); err != nil {
			f.tb.Errorf("the server's view: %v", err)
		}
	})
	f.parts.Go(func() {
		if err := dispatcher.Run(f.ctx); err != nil && f.ctx.Err() == nil {
			f.tb.Errorf("the dispatcher: %v", err)
		}
	})
	f.parts.Go(func() { postgres.Listen(f.ctx, f.options.Database, dispatcher, f.options.Log) })
	f.tb.Cleanup(func() { // before the store is closed, and once nothing runs any more
		f.stop()
		public.Close()
		internal.Close()
	})
	require.Eventually(f.tb, view.Synced, time.Minute, 10*time.Millisecond)
	require.NoError(f.tb, f.GitHub.SetWebhook(public.URL+"/webhooks/github", hookSecret))
	for i := range max(f.options.Accounts, 1) {
		require.NoError(f.tb, f.GitHub.Admin.Announce(f.ctx, int64(100+i)))
	}
	return internal.URL
}

// countInternal counts what pods and the controller ask of the server.
func (f *Fleet) countInternal(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		noted := &statusWriter{ResponseWriter: w, status: http.StatusOK}
		if r.URL.Path == dispatchapi.PathRetire && f.options.OnGranted != nil {
			noted.granted = f.options.OnGranted
		}
		next.ServeHTTP(noted, r)
		component := Controller
		if r.URL.Path == dispatchapi.PathDispatch || r.URL.Path == dispatchapi.PathAcknowledge {
			component = Poller
		}
		f.Calls.Count(Call{component, r.Method, fmt.Sprintf("%s → %d", r.URL.Path, noted.status)})
	})
}

type statusWriter struct {
	http.ResponseWriter
	status  int
	granted func(uid string) // of an answer to PathRetire
}

// Write passes on the answer, which the server writes in one piece.
func (w *statusWriter) Write(answer []byte) (int, error) {
	var retired dispatchapi.RetireResponse
	if w.granted != nil && json.Unmarshal(answer, &retired) == nil {
		for _, a := range retired.Answers {
			if a.Verdict == dispatchapi.Granted {
				w.granted(a.UID)
			}
		}
	}
	return w.ResponseWriter.Write(answer)
}

func (w *statusWriter) WriteHeader(status int) {
	w.status = status
	w.ResponseWriter.WriteHeader(status)
}

func (f *Fleet) startController(internal string) {
	tokenFile := filepath.Join(f.tb.TempDir(), "token")
	issued, err := f.options.Cluster.Kube.CoreV1().ServiceAccounts(systemNamespace).CreateToken(f.ctx, controllerName,
		&authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
			Audiences: []string{dispatchapi.AudienceServer}, ExpirationSeconds: ptr.To[int64](4 * 3600),
		}}, metav1.CreateOptions{})
	require.NoError(f.tb, err)
	require.NoError(f.tb, os.WriteFile(tokenFile, []byte(issued.Status.Token), 0o600))
	fence, err := serverclient.New(serverclient.Options{BaseURL: internal, TokenFile: tokenFile})
	require.NoError(f.tb, err)
	config := f.as(Controller, serviceAccounts+controllerName, "system:serviceaccounts", "system:authenticated")
	if f.options.OnDelete != nil {
		config.Wrap(beforeDeletion(f.options.OnDelete))
	}
	options := controller.Options{
		Config: config, Namespace: f.Namespace, Server: fence, Registry: prometheus.NewRegistry(), Log: f.options.Log,
		Pod: runnerpod.Options{DispatchURL: internal, AgentImage: "agent:1"},
	}
	f.parts.Go(func() {
		if err := controller.Run(f.ctx, options); err != nil {
			f.tb.Errorf("the controller: %v", err)
		}
	})
}

// startNode runs a node agent with a machine of its own behind it.
func (f *Fleet) startNode(i int) *synthetic.Machine {
	machine := synthetic.NewMachine(nil)
	f.pods.install(machine)
	name := f.nodeName(strconv.Itoa(i + 1))
	agent, err := node.New(node.Options{
		Name: name, Config: f.as(NodeAgent, "system:node:"+name, "system:nodes"), StateDir: f.tb.TempDir(),
		Sandbox: synthetic.New(machine), SandboxName: "synthetic", Log: f.options.Log,
		Capacity: corev1.ResourceList{
			corev1.ResourceCPU: resource.MustParse("10000"), corev1.ResourceMemory: resource.MustParse("100Ti"),
			corev1.ResourcePods: *resource.NewQuantity(f.options.PodsEach, resource.DecimalSI), corev1.ResourceEphemeralStorage: resource.MustParse("100Ti"),
		},
	})
	require.NoError(f.tb, err)
	f.parts.Go(func() {
		if err := agent.Run(f.ctx); err != nil {
			f.tb.Errorf("node agent %s: %v", name, err)
		}
	})
	return machine
}

func (f *Fleet) nodeName(number string) string { return f.Namespace + "-node-" + number }

func (f *Fleet) removeNodes() {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(f.ctx), 30*time.Second)
	defer cancel()
	for i := range f.machines {
		gone := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: f.nodeName(strconv.Itoa(i + 1))}}
		if err := client.IgnoreNotFound(f.Admin.Delete(ctx, gone)); err != nil {
			f.tb.Errorf("removing node %s: %v", gone.Name, err)
		}
	}
}

func (f *Fleet) awaitNodes() {
	require.Eventually(f.tb, func() bool {
		var nodes corev1.NodeList
		if f.Admin.List(f.ctx, &nodes) != nil {
			return false
		}
		ready := 0
		for i := range nodes.Items {
			if len(nodes.Items[i].Spec.Taints) == 0 && strings.HasPrefix(nodes.Items[i].Name, f.nodeName("")) {
				ready++
			}
		}
		return ready >= f.options.Nodes
	}, time.Minute, 20*time.Millisecond, "the nodes never got ready")
}
