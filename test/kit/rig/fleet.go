package rig

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bullpen-ci/bullpen/api/runnerapi"
	"github.com/bullpen-ci/bullpen/api/v1alpha1"
	"github.com/bullpen-ci/bullpen/internal/controller"
	"github.com/bullpen-ci/bullpen/internal/controller/serverclient"
	"github.com/bullpen-ci/bullpen/internal/dev/github/standin"
	"github.com/bullpen-ci/bullpen/internal/dev/onebox"
	"github.com/bullpen-ci/bullpen/internal/node"
	"github.com/bullpen-ci/bullpen/internal/node/sandbox"
	"github.com/bullpen-ci/bullpen/internal/node/sandbox/synthetic"
	"github.com/bullpen-ci/bullpen/internal/runnerpod"
	"github.com/bullpen-ci/bullpen/internal/server/dispatch"
	"github.com/bullpen-ci/bullpen/internal/server/ledger"
	"github.com/bullpen-ci/bullpen/test/kit"
	"github.com/bullpen-ci/bullpen/test/kit/await"
)

const (
	systemNamespace = onebox.SystemNamespace
	controllerName  = "bullpen-controller"
	serverName      = "bullpen-server"
	serviceAccounts = "system:serviceaccount:" + systemNamespace + ":"
	hookSecret      = "rig"
)

// Options of Start.
type Options struct {
	// Cluster is the control plane. Required.
	Cluster *kit.Env
	// Database is the URL of an empty database. Required.
	Database string
	// Nodes is how many node agents there are; PodsEach is how many pods each has room for. Required.
	Nodes    int
	PodsEach int64
	// CPUs is how many each node has; 10,000 when empty.
	CPUs string
	// Accounts is how many organizations have the App installed: org-1, org-2, …, each with a repository app. The
	// default is one.
	Accounts int
	// RecoveryPatience is how long something must look wrong before it is repaired; recovery's own default when zero.
	RecoveryPatience time.Duration
	// RecoveryEvery is how often recovery looks; a fifth of RecoveryPatience, or its own default, when zero.
	RecoveryEvery time.Duration
	// Now is the clock that the server judges claims by; the real one when nil.
	Now func() time.Time
	// OnDelete, if set, is called before each deletion of a pod that the controller asks for, with its preconditions.
	OnDelete func(name string, conditions *metav1.Preconditions)
	// OnGranted, if set, is called when the server has granted the removal of a pod, before the controller knows.
	OnGranted func(uid string)
	// Mortal lets the server be killed and replaced, at the price of a detour of what it says.
	Mortal bool
	// MintTimeout of the server; its default when zero. The claims of a server that was killed are free after twice that.
	MintTimeout time.Duration
	// Between, if set, gets the runners' namespace and the address (host:port) of what the server offers to pods, once
	// before the first pod; pods ask at the URL that it returns, each over connections of its own.
	Between func(ctx context.Context, namespace, server string) (url string)
	// GitHub, if set, returns what a pod's runner speaks to GitHub by, until ctx ends; one client for all by default.
	GitHub func(ctx context.Context, pod *corev1.Pod) *http.Client
	// Dispatch, if set, changes every server before it starts.
	Dispatch func(*dispatch.Options)
	// Sandbox, if set, changes what a node, counted from 0, starts containers with.
	Sandbox func(node int, made sandbox.Sandbox) sandbox.Sandbox
	// Binary, if set, is an executable of the product: the server and the controller are processes of it, so that the
	// memory and processor time of each can be measured. Their requests are not counted then, and nothing above that
	// changes them has a meaning.
	Binary string
	// Log of all parts; discarded when nil.
	Log *slog.Logger
}

// Fleet is a whole Bullpen that runs. All of it ends with the test.
type Fleet struct {
	Namespace string
	Admin     client.WithWatch
	Store     *ledger.Store
	GitHub    *standin.Local
	Calls     Calls

	tb       testing.TB
	options  Options
	ctx      context.Context
	stop     func() // everything, once
	parts    sync.WaitGroup
	pods     *pods
	machines []*synthetic.Machine

	processes      []Process
	front          *front // where the server is reached
	public         string // its URL, as GitHub knows it
	internal       string // and as the controller does
	dispatchURL    string // where pods reach it
	controllerEnds func() // ends the controller, and waits
}

// Start brings everything up; the nodes are ready when it returns.
func Start(tb testing.TB, options Options) *Fleet {
	tb.Helper()
	if options.Log == nil {
		options.Log = slog.New(slog.DiscardHandler)
	}
	f := &Fleet{tb: tb, options: options, pods: newPods(), Namespace: options.Cluster.Namespace(tb)}
	f.pods.own = options.GitHub
	ctx, cancel := context.WithCancel(context.Background())
	f.ctx = ctx
	tb.TempDir() // the first one decides when all are removed: after what is registered below has run
	f.Admin = options.Cluster.Client(tb, v1alpha1.AddToScheme)
	options.Cluster.ShippedRoles(tb, f.Namespace)
	f.stop = sync.OnceFunc(func() {
		cancel()
		ended := make(chan error, 1)
		go func() { f.parts.Wait(); ended <- nil }()
		if err := await.Result(ended, "the parts of the fleet end"); err != nil {
			tb.Error(err)
		}
		for _, m := range f.machines {
			m.Off()
		}
		f.removeNodes() // or the next fleet of this control plane gets pods on machines that are off
	})
	tb.Cleanup(f.stop)
	f.startGitHub()
	f.openFront()
	if options.Binary != "" {
		f.pods.shareConnections()
		f.startApart()
	}
	f.dispatchURL = f.internal
	if options.Between != nil {
		f.pods.apart = true
		f.dispatchURL = options.Between(ctx, f.Namespace, strings.TrimPrefix(f.internal, "http://"))
	}
	if options.Binary == "" {
		f.StartServer()
	}
	f.announce()
	if options.Binary == "" {
		f.StartController()
	}
	for i := range options.Nodes {
		f.machines = append(f.machines, f.startNode(i))
	}
	f.awaitNodes()
	return f
}

// Context ends with the fleet.
func (f *Fleet) Context() context.Context { return f.ctx }

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

// countInternal counts what pods and the controller ask of the server.
func (f *Fleet) countInternal(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		noted := &statusWriter{ResponseWriter: w, status: http.StatusOK}
		if r.URL.Path == runnerapi.PathRetire && f.options.OnGranted != nil {
			noted.granted = f.options.OnGranted
		}
		next.ServeHTTP(noted, r)
		component := Controller
		if r.URL.Path == runnerapi.PathDispatch || r.URL.Path == runnerapi.PathAcknowledge {
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
	var retired runnerapi.RetireResponse
	if w.granted != nil && json.Unmarshal(answer, &retired) == nil {
		for _, a := range retired.Answers {
			if a.Verdict == runnerapi.Granted {
				w.granted(a.UID)
			}
		}
	}
	return w.ResponseWriter.Write(answer)
}

// Unwrap is for http.ResponseController.
func (w *statusWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w *statusWriter) WriteHeader(status int) {
	w.status = status
	w.ResponseWriter.WriteHeader(status)
}

// StartController runs the controller, until StopController or the end of the test.
func (f *Fleet) StartController() {
	f.tb.Helper()
	tokenFile := f.controllerToken()
	fence, err := serverclient.New(serverclient.Options{BaseURL: f.internal, TokenFile: tokenFile})
	require.NoError(f.tb, err)
	config := f.as(Controller, serviceAccounts+controllerName, "system:serviceaccounts", "system:authenticated")
	if f.options.OnDelete != nil {
		config.Wrap(beforeDeletion(f.options.OnDelete))
	}
	options := controller.Options{
		Config: config, Namespace: f.Namespace, Server: fence, Registry: prometheus.NewRegistry(), Log: f.options.Log,
		Pod: runnerpod.Options{DispatchURL: f.dispatchURL, AgentImage: "agent:1"},
	}
	ctx, cancel := context.WithCancel(f.ctx)
	ended := make(chan struct{})
	f.controllerEnds = func() { cancel(); await.Receive(f.tb, ended, "the controller ends") }
	f.parts.Go(func() {
		defer close(ended)
		defer cancel()
		if err := controller.Run(ctx, options); err != nil {
			f.tb.Errorf("the controller: %v", err)
		}
	})
}

// controllerToken is a file with what the controller shows the server.
func (f *Fleet) controllerToken() string {
	f.tb.Helper()
	token, _, err := onebox.IssueToken(f.ctx, f.options.Cluster.Kube, controllerName, runnerapi.AudienceServer, 4*time.Hour)
	require.NoError(f.tb, err)
	return f.secret("token", token)
}

// StopController ends the controller, as a deploy does, and returns when it has ended.
func (f *Fleet) StopController() { f.controllerEnds() }

// startNode runs a node agent with a machine of its own behind it.
func (f *Fleet) startNode(i int) *synthetic.Machine {
	machine := synthetic.NewMachine(nil)
	f.pods.install(machine)
	name := f.NodeName(i)
	containers := sandbox.Sandbox(synthetic.New(machine))
	if f.options.Sandbox != nil {
		containers = f.options.Sandbox(i, containers)
	}
	agent, err := node.New(node.Options{
		Name: name, Config: f.as(NodeAgent, "system:node:"+name, "system:nodes"), StateDir: f.tb.TempDir(),
		Sandbox: containers, SandboxName: "synthetic", MinDiskFree: node.DiskReserve{Bytes: 1 << 28}, Log: f.options.Log, Labels: map[string]string{labelFleet: f.Namespace},
		Capacity: corev1.ResourceList{
			corev1.ResourceCPU: resource.MustParse(cmp.Or(f.options.CPUs, "10000")), corev1.ResourceMemory: resource.MustParse("100Ti"),
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

// NodeName is the name of a node, counted from 0.
func (f *Fleet) NodeName(i int) string { return f.nodeName(strconv.Itoa(i + 1)) }

func (f *Fleet) nodeName(number string) string { return f.Namespace + "-node-" + number }

func (f *Fleet) removeNodes() {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(f.ctx), 30*time.Second)
	defer cancel()
	for i := range f.machines {
		gone := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: f.NodeName(i)}}
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
