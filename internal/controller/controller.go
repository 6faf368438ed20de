package controller

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"time"

	"github.com/go-logr/logr"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/bullpen-ci/bullpen/api/v1alpha1"
	"github.com/bullpen-ci/bullpen/internal/controller/autoscaler"
	"github.com/bullpen-ci/bullpen/internal/controller/machost"
	"github.com/bullpen-ci/bullpen/internal/controller/nodeload"
	"github.com/bullpen-ci/bullpen/internal/controller/nodes"
	"github.com/bullpen-ci/bullpen/internal/controller/pool"
	"github.com/bullpen-ci/bullpen/internal/controller/selfregistering/runnerscaler"
	"github.com/bullpen-ci/bullpen/internal/plan/lifecycle"
	"github.com/bullpen-ci/bullpen/internal/runnerpod"
)

// LeaseName is the Lease of the leader election; the controller's role names it.
const LeaseName = "bullpen-controller"

// ServerClient is what the controller needs of the server.
type ServerClient interface {
	lifecycle.Fence
	pool.Reporter
	autoscaler.Source
	runnerscaler.Source
}

// Options configures the controller process.
type Options struct {
	// Config reaches the API server. Required.
	Config *rest.Config
	// Namespace of the pools and their pods. Required.
	Namespace string
	// Server answers for the fence, takes reports, and says what pools are asked for. Required.
	Server ServerClient
	// Pod is what every runner pod has in common. Required.
	Pod runnerpod.Options
	// MetricsAddress and HealthAddress are listened on; empty for neither.
	MetricsAddress, HealthAddress string
	// LeaderElect makes of several controllers one at a time work, by a Lease in LeaseNamespace.
	LeaderElect    bool
	LeaseNamespace string
	// Workers is how many API requests of one kind are under way at once; 0 for the default.
	Workers int
	// OrphanGrace is how old a ServiceAccount without a pod must be to be deleted; 0 for the default.
	OrphanGrace time.Duration
	// DisruptionTaints are the taints by which other tools say that they take a node away, as nodes.ParseTaints reads them; nil:
	// nodes.DefaultDisruptionTaints. With none, idle runners leave cordoned and deleted nodes alone.
	DisruptionTaints []string
	// ScaleEvery is the time between two passes of the autoscaler while there is something to scale; 0 for the default.
	ScaleEvery time.Duration
	// Macs enables the MacHost reconciler; nil disables it.
	Macs *MacOptions
	// SelfRegistering enables the reconcilers of self-registering runners; nil disables them.
	SelfRegistering *SelfRegisteringOptions
	// JobContainers enables containers of jobs; nil disables them.
	JobContainers *JobContainersOptions
	// Registry takes the metrics; the default is the one that MetricsAddress serves.
	Registry prometheus.Registerer
	// Now is the clock; the default is time.Now.
	Now func() time.Time
	// Log is required.
	Log *slog.Logger
}

// MacOptions configure what prepares Macs.
type MacOptions struct {
	// Bootstrapper makes the attempts. Required.
	Bootstrapper machost.Bootstrapper
	// BinarySHA256 is of the bullpen binary that they bring along. Required.
	BinarySHA256 string
	// SecretsNamespace is where the Secrets are that MacHosts name. Required.
	SecretsNamespace string
	// Attempts is how many are under way at once; 0 for the default.
	Attempts int
}

func (o Options) validate() error {
	switch {
	case o.Config == nil:
		return errors.New("controller: no configuration of the API server")
	case o.Namespace == "":
		return errors.New("controller: no namespace: name the one that holds the pools")
	case o.Server == nil || o.Log == nil:
		return errors.New("controller: Server and Log are required")
	case o.LeaderElect && o.LeaseNamespace == "":
		return errors.New("controller: leader election needs the namespace of its Lease")
	}
	return o.Pod.Validate()
}

func (o Options) disruptionTaints() (nodes.Taints, error) {
	if o.DisruptionTaints == nil {
		return nodes.DefaultTaints(), nil
	}
	taints, err := nodes.ParseTaints(o.DisruptionTaints)
	if err != nil {
		return nodes.Taints{}, fmt.Errorf("controller: %w", err)
	}
	return taints, nil
}

// DefaultRegistry is what MetricsAddress serves: for metrics of what is made before Run.
func DefaultRegistry() prometheus.Registerer { return ctrlmetrics.Registry }

// NewScheme knows the kinds that the controller reads and writes.
func NewScheme() *runtime.Scheme {
	scheme := runtime.NewScheme()
	utilruntime.Must(clientgoscheme.AddToScheme(scheme))
	utilruntime.Must(v1alpha1.AddToScheme(scheme))
	return scheme
}

// Run reconciles until ctx ends, or leadership or a listener is lost; the first is no error.
func Run(ctx context.Context, options Options) error {
	mgr, err := newManager(options)
	if err != nil {
		return err
	}
	options.Log.Info("starting controller", "namespace", options.Namespace, "leaderElection", options.LeaderElect)
	if err := mgr.Start(ctx); err != nil {
		return fmt.Errorf("running the controller: %w", err)
	}
	return nil
}

func newManager(options Options) (manager.Manager, error) {
	if err := options.validate(); err != nil {
		return nil, err
	}
	if options.Registry == nil {
		options.Registry = ctrlmetrics.Registry
	}
	mgr, err := manager.New(unlimited(options.Config), managerOptions(options))
	if unreached := (*url.Error)(nil); errors.As(err, &unreached) {
		return nil, fmt.Errorf("connecting to the API server %s: %w. Check that it is up and that the URL is correct.", options.Config.Host, unreached.Err)
	}
	if err != nil {
		return nil, fmt.Errorf("preparing the controller: %w", err)
	}
	if err := mgr.AddHealthzCheck("ping", healthz.Ping); err != nil {
		return nil, fmt.Errorf("adding the health check: %w", err)
	}
	if err := mgr.AddReadyzCheck("ping", healthz.Ping); err != nil {
		return nil, fmt.Errorf("adding the readiness check: %w", err)
	}
	taints, err := options.disruptionTaints()
	if err != nil {
		return nil, err
	}
	if options.JobContainers != nil {
		if options.Pod.JobContainersKey, err = setupJobContainers(mgr, options); err != nil {
			return nil, err
		}
	}
	loads := nodeload.New()
	scaler, err := autoscaler.Setup(mgr, autoscaler.Options{
		Source: options.Server, Namespace: options.Namespace, Pod: options.Pod, Busy: options.ScaleEvery,
		Registry: options.Registry, Log: options.Log,
	})
	if err != nil {
		return nil, err
	}
	if err := setupPools(mgr, scaler, taints, loads, options); err != nil {
		return nil, err
	}
	if options.SelfRegistering != nil {
		if err := setupSelfRegistering(mgr, taints, loads, options); err != nil {
			return nil, err
		}
	}
	if options.Macs == nil {
		return mgr, nil
	}
	return mgr, machost.Setup(mgr, machost.Options{
		Bootstrapper: options.Macs.Bootstrapper, BinarySHA256: options.Macs.BinarySHA256, Namespace: options.Namespace, SecretsNamespace: options.Macs.SecretsNamespace,
		Attempts: options.Macs.Attempts, Registry: options.Registry, Log: options.Log, Now: options.Now,
	})
}

func setupPools(mgr manager.Manager, scaler *autoscaler.Autoscaler, taints nodes.Taints, loads *nodeload.Book, options Options) error {
	logs, err := newPodLogs(options.Config)
	if err != nil {
		return err
	}
	prepulls, err := newPrepullCache(mgr, options.Namespace)
	if err != nil {
		return err
	}
	return pool.Setup(mgr, pool.Options{
		Fence: options.Server, Reporter: options.Server, Logs: logs, Scaler: scaler, Wakes: scaler.Wakes(), Pod: options.Pod,
		Workers: options.Workers, OrphanGrace: options.OrphanGrace, DisruptionTaints: &taints, Loads: loads, Prepulls: prepulls,
		Registry: options.Registry, Log: options.Log, Now: options.Now,
	})
}

// unlimited removes the client's own rate limit: the bounded number of workers is the limit, and the API server has priority and fairness.
func unlimited(c *rest.Config) *rest.Config {
	c = rest.CopyConfig(c)
	c.QPS = -1
	if c.UserAgent == "" {
		c.UserAgent = "bullpen-controller"
	}
	return c
}

func managerOptions(options Options) manager.Options {
	ours := labels.SelectorFromSet(labels.Set{runnerpod.LabelRunner: "true"})
	prepulled := labels.NewSelector().Add(prepullLabel())
	selfRegistering := labels.SelectorFromSet(labels.Set{runnerpod.LabelSelfRegistering: "true"})
	return manager.Options{
		Scheme: NewScheme(),
		Logger: logr.FromSlogHandler(options.Log.Handler()),
		Cache: cache.Options{
			DefaultNamespaces: map[string]cache.Config{options.Namespace: {}},
			DefaultTransform:  cache.TransformStripManagedFields(),
			ByObject: map[client.Object]cache.ByObject{
				&corev1.Pod{}:            {Label: ours, Transform: trimPod, UnsafeDisableDeepCopy: ptr.To(true)},
				&corev1.ServiceAccount{}: {Label: ours, UnsafeDisableDeepCopy: ptr.To(true)},
				&corev1.Node{}:           {Transform: nodes.TrimNode, UnsafeDisableDeepCopy: ptr.To(true)},
				&appsv1.StatefulSet{}:    {Label: selfRegistering},
				&appsv1.DaemonSet{}:      {Label: prepulled},
			},
		},
		Client:                        client.Options{Cache: &client.CacheOptions{DisableFor: []client.Object{&corev1.Pod{}, &corev1.ServiceAccount{}}}},
		Controller:                    config.Controller{SkipNameValidation: ptr.To(true)}, // tests run several in one process
		Metrics:                       metricsserver.Options{BindAddress: orNone(options.MetricsAddress)},
		HealthProbeBindAddress:        orNone(options.HealthAddress),
		LeaderElection:                options.LeaderElect,
		LeaderElectionID:              LeaseName,
		LeaderElectionNamespace:       options.LeaseNamespace,
		LeaderElectionReleaseOnCancel: true, // the process ends right after
		GracefulShutdownTimeout:       ptr.To(10 * time.Second),
	}
}

// orNone is an address to listen on, in the words of the library, for which "0" is none.
func orNone(address string) string {
	if address == "" {
		return "0"
	}
	return address
}

// SetLibraryLog makes the libraries underneath log to log; without it they complain, or write in a form of their own. It
// is for the process, once, before Run.
func SetLibraryLog(log *slog.Logger) {
	klog.SetSlogLogger(log)
	ctrllog.SetLogger(logr.FromSlogHandler(log.Handler()))
}

// CheckAddress says in a sentence what is wrong with an address to listen on.
func CheckAddress(flag, address string) error {
	if address == "" {
		return nil
	}
	if _, _, err := net.SplitHostPort(address); err != nil {
		return fmt.Errorf("--%s %q is not a host:port, such as 127.0.0.1:9090 or :9090", flag, address)
	}
	return nil
}
