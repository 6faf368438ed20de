package controlplane

import (
	"context"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"k8s.io/client-go/rest"

	"github.com/bullpen-ci/bullpen/internal/dev/controlplane/assets"
	"github.com/bullpen-ci/bullpen/internal/lib/childproc"
)

// ErrInUse reports that another process runs a control plane in the state directory.
var ErrInUse = errors.New("state directory in use")

// ErrStopped is returned by operations on a control plane that Stop has been called on.
var ErrStopped = errors.New("control plane stopped")

// Component is one process of the control plane, by its executable's name.
type Component string

// The components, in the order in which they start.
const (
	Etcd              Component = "etcd"
	APIServer         Component = "kube-apiserver"
	ControllerManager Component = "kube-controller-manager"
	Scheduler         Component = "kube-scheduler"
)

// Components are all components in the order in which they start; they stop in the reverse order.
func Components() []Component { return []Component{Etcd, APIServer, ControllerManager, Scheduler} }

// Options configure Start. Only StateDir is required.
type Options struct {
	// AssetsDir holds the executables. Empty: found by assets.Find.
	AssetsDir string
	// StateDir keeps keys, data, logs and the record of what runs. It is created, and made private to the user.
	StateDir string
	// Log gets starts, stops and failures; discarded when nil.
	Log *slog.Logger
	// FastUnsafe skips fsync in etcd and stops without grace. For state that is thrown away: data outlives the
	// processes, but not a crash of the machine.
	FastUnsafe bool
	// StartTimeout bounds the wait for each component to become healthy. Zero: one minute.
	StartTimeout time.Duration
	// StopGrace bounds the wait of each component's orderly end, after which it is killed. Zero: 15 seconds.
	StopGrace time.Duration
	// Now is the clock of the certificates. Nil: time.Now.
	Now func() time.Time
	// ExtraArgs are added at the end of a component's arguments (a later flag wins over an earlier one).
	ExtraArgs map[Component][]string
}

func (o Options) withDefaults() (Options, error) {
	if o.StateDir == "" {
		return o, errors.New("starting the control plane: a state directory is required")
	}
	for component := range o.ExtraArgs {
		switch component {
		case Etcd, APIServer, ControllerManager, Scheduler:
		default:
			return o, fmt.Errorf("starting the control plane: arguments for %q, which is not a component", component)
		}
	}
	var err error
	if o.StateDir, err = filepath.Abs(o.StateDir); err != nil {
		return o, fmt.Errorf("resolving the state directory: %w", err)
	}
	if o.AssetsDir, err = Find(assets.Options{Dir: o.AssetsDir}); err != nil {
		return o, err
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.StartTimeout == 0 {
		o.StartTimeout = time.Minute
	}
	if o.StopGrace == 0 {
		o.StopGrace = 15 * time.Second
	}
	if o.FastUnsafe {
		o.StopGrace = 0
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	return o, nil
}

// Find returns the directory of executables that Start would use; see assets.Find.
func Find(o assets.Options) (string, error) { return assets.Find(o) }

// ControlPlane is a running control plane. Its methods may be called concurrently.
type ControlPlane struct {
	opts Options
	pki  *pki
	lock *os.File

	done     chan struct{}
	doneOnce sync.Once
	watchers sync.WaitGroup

	// operation serialises starting and stopping of components.
	operation sync.Mutex

	mu       sync.Mutex // guards what follows
	ports    ports
	settled  bool // the first start is over: clients know the ports, which are fixed from now on
	children map[Component]*childproc.Child
	stopped  bool
	err      error
}

// failedStartGrace bounds the orderly end of a start that has failed or was called off. An API server that is coming up
// ignores SIGTERM, and etcd's data outlives a kill.
const failedStartGrace = 3 * time.Second

// Start starts every component in opts.StateDir and returns when all of them are healthy. Processes that an earlier, killed owner of the
// directory left running are killed first. ctx bounds the start only; Stop ends the control plane. The error is ErrInUse when another
// process owns the directory, assets.ErrMissing when there are no executables.
func Start(ctx context.Context, opts Options) (*ControlPlane, error) {
	opts, err := opts.withDefaults()
	if err != nil {
		return nil, err
	}
	if err := makePrivateDirs(opts.StateDir); err != nil {
		return nil, err
	}
	lock, err := lockState(opts.StateDir)
	if err != nil {
		return nil, err
	}
	c := &ControlPlane{opts: opts, lock: lock, done: make(chan struct{}), children: map[Component]*childproc.Child{}}
	if err := c.bringUp(ctx); err != nil {
		stopCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), failedStartGrace)
		defer cancel()
		return nil, errors.Join(err, c.Stop(stopCtx))
	}
	return c, nil
}

func (c *ControlPlane) bringUp(ctx context.Context) error {
	if err := killRecorded(ctx, c.recordPath(), c.opts.Log); err != nil {
		return err
	}
	var err error
	if c.pki, err = loadPKI(filepath.Join(c.opts.StateDir, "pki"), c.opts.Now); err != nil {
		return err
	}
	if c.ports, err = choosePorts(c.portsPath()); err != nil {
		return err
	}
	for _, component := range Components() {
		if err := c.StartComponent(ctx, component); err != nil {
			return err
		}
	}
	if err := c.letAskNodes(ctx); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.settled = true
	return nil
}

func makePrivateDirs(state string) error {
	for _, dir := range []string{state, filepath.Join(state, "pki"), filepath.Join(state, "kubeconfig"), filepath.Join(state, "log"), filepath.Join(state, "etcd")} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return fmt.Errorf("creating the state directory: %w", err)
		}
	}
	if err := os.Chmod(state, 0o700); err != nil { // it holds the authority's key, whatever it was made as
		return fmt.Errorf("making the state directory private: %w", err)
	}
	return nil
}

// StartComponent starts a component that is not running, on the same ports and data as before, and returns when it
// is healthy. It does nothing when the component runs.
func (c *ControlPlane) StartComponent(ctx context.Context, component Component) error {
	c.operation.Lock()
	defer c.operation.Unlock()
	c.mu.Lock()
	running, stopped := c.children[component], c.stopped
	c.mu.Unlock()
	if stopped {
		return fmt.Errorf("starting %s: %w", component, ErrStopped)
	}
	if running != nil && !running.Exited() {
		return nil
	}
	const attempts = 4
	for attempt := 1; ; attempt++ {
		err := c.launch(ctx, component)
		if err == nil {
			return nil
		}
		// A port that was free when it was chosen may have been taken since: choose again.
		if attempt == attempts || ctx.Err() != nil || !c.replaceTakenPorts(component) {
			return err
		}
		c.opts.Log.Info("port already in use, choosing another", "component", string(component))
	}
}

// launch starts the component's process once and waits until it is healthy; otherwise it leaves no process behind.
func (c *ControlPlane) launch(ctx context.Context, component Component) error {
	plan, err := c.plan(component)
	if err != nil {
		return err
	}
	logPath := c.LogPath(component)
	began := time.Now()
	command := exec.Command(filepath.Join(c.opts.AssetsDir, string(component)), plan.args...) //nolint:noctx // it outlives the context of its start; Stop ends it
	started, err := childproc.StartLogged(command, logPath, syscall.SIGKILL)
	if err != nil {
		return fmt.Errorf("starting %s: %w", component, err)
	}
	c.mu.Lock()
	c.children[component] = started
	c.mu.Unlock()
	if err := c.writeRecord(); err != nil {
		started.Stop(ctx, syscall.SIGKILL, 0)
		return err
	}
	waitCtx, cancel := context.WithTimeout(ctx, c.opts.StartTimeout)
	defer cancel()
	if err := waitHealthy(waitCtx, plan.healthy, started.Done()); err != nil {
		started.Stop(ctx, syscall.SIGKILL, 0)
		return fmt.Errorf("waiting for %s to become healthy: %w (its log: %s)", component, err, logPath)
	}
	c.opts.Log.Info("started", "component", string(component), "pid", started.PID(), "took", time.Since(began).Round(time.Millisecond).String())
	c.watch(component, started)
	return nil
}

// watch reports an unexpected exit.
func (c *ControlPlane) watch(component Component, started *childproc.Child) {
	c.watchers.Go(func() {
		<-started.Done()
		if started.Stopping() {
			return
		}
		err := fmt.Errorf("%s ended unexpectedly: %s (its log: %s)", component, started.Outcome(), c.LogPath(component))
		c.mu.Lock()
		if c.err == nil {
			c.err = err
		}
		c.mu.Unlock()
		c.doneOnce.Do(func() { close(c.done) })
	})
}

// StopComponent stops one component and leaves the others running, as an outage of it would. It does nothing when
// the component does not run.
func (c *ControlPlane) StopComponent(ctx context.Context, component Component) error {
	c.operation.Lock()
	defer c.operation.Unlock()
	return c.stopComponent(ctx, component)
}

func (c *ControlPlane) stopComponent(ctx context.Context, component Component) error {
	c.mu.Lock()
	running := c.children[component]
	c.mu.Unlock()
	if running == nil {
		return nil
	}
	killed := running.Stop(ctx, syscall.SIGTERM, c.opts.StopGrace)
	c.opts.Log.Info("stopped", "component", string(component), "pid", running.PID(), "killed", killed)
	c.mu.Lock()
	delete(c.children, component)
	c.mu.Unlock()
	return c.writeRecord()
}

// Restart stops a component and starts it again.
func (c *ControlPlane) Restart(ctx context.Context, component Component) error {
	if err := c.StopComponent(ctx, component); err != nil {
		return err
	}
	return c.StartComponent(ctx, component)
}

// Stop ends every component in the reverse order of their start, and gives the state directory free. When it returns no
// process is left: one that outlasts the grace, or ctx, is killed. A second Stop does nothing.
func (c *ControlPlane) Stop(ctx context.Context) error {
	c.operation.Lock()
	defer c.operation.Unlock()
	c.mu.Lock()
	again := c.stopped
	c.stopped = true
	c.mu.Unlock()
	if again {
		return nil
	}
	var errs []error
	order := Components()
	for i := len(order) - 1; i >= 0; i-- {
		errs = append(errs, c.stopComponent(ctx, order[i]))
	}
	c.watchers.Wait()
	c.doneOnce.Do(func() { close(c.done) })
	errs = append(errs, c.lock.Close())
	return errors.Join(errs...)
}

// Done is closed when a component ends unexpectedly, or after Stop.
func (c *ControlPlane) Done() <-chan struct{} { return c.done }

// Err is the first unexpected end of a component, or nil.
func (c *ControlPlane) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// Pids are the process ids of the running components.
func (c *ControlPlane) Pids() map[Component]int {
	c.mu.Lock()
	defer c.mu.Unlock()
	pids := make(map[Component]int, len(c.children))
	for component, running := range c.children {
		if !running.Exited() {
			pids[component] = running.PID()
		}
	}
	return pids
}

// LogPath is the file that a component writes its log to; it is appended to by every start.
func (c *ControlPlane) LogPath(component Component) string {
	return filepath.Join(c.opts.StateDir, "log", string(component)+".log")
}

// ClientAuthority is the file (PEM) of the authority that signs the clients' certificates: what a node verifies the API server's with.
func (c *ControlPlane) ClientAuthority() string { return c.pki.path("ca.crt") }

// Kubectl is the path of the kubectl that belongs to this control plane.
func (c *ControlPlane) Kubectl() string { return filepath.Join(c.opts.AssetsDir, "kubectl") }

// URL is the API server's address.
func (c *ControlPlane) URL() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.ports.url(c.ports.APIServer)
}

// AdminConfig is a client configuration that may do everything, without a limit on requests.
func (c *ControlPlane) AdminConfig() *rest.Config { return c.restConfig(c.pki.admin) }

// AdminKubeconfig is the path of a kubeconfig file (0600) with the rights of AdminConfig.
func (c *ControlPlane) AdminKubeconfig() string { return c.kubeconfigPath("admin") }

// Identity makes a client configuration for a user in groups, with a fresh certificate signed by the cluster's authority (valid for a
// year). Its rights are up to RBAC and the node authorizer: a node agent is the user system:node:NAME in the group system:nodes.
func (c *ControlPlane) Identity(user string, groups ...string) (*rest.Config, error) {
	if user == "" {
		return nil, errors.New("issuing an identity: a user name is required")
	}
	leaf, err := c.pki.cluster.issueClient(user, groups, c.opts.Now())
	if err != nil {
		return nil, fmt.Errorf("issuing an identity for %s: %w", user, err)
	}
	return c.restConfig(leaf), nil
}

// ServingCertificate issues a certificate (PEM, valid for a year) for a server at the addresses, such as a kubelet, signed by the authority
// with which the API server verifies nodes.
func (c *ControlPlane) ServingCertificate(name string, addresses ...netip.Addr) (cert, key []byte, err error) {
	template := &x509.Certificate{
		Subject: pkix.Name{CommonName: name}, DNSNames: []string{name}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	for _, a := range addresses {
		template.IPAddresses = append(template.IPAddresses, a.AsSlice())
	}
	issued, err := c.pki.cluster.issue(template, c.opts.Now())
	if err != nil {
		return nil, nil, fmt.Errorf("issuing a serving certificate for %s: %w", name, err)
	}
	return issued.cert, issued.key, nil
}

func (c *ControlPlane) restConfig(leaf pair) *rest.Config {
	return &rest.Config{
		Host: c.URL(),
		QPS:  -1,
		TLSClientConfig: rest.TLSClientConfig{
			CAData:   c.pki.cluster.cert,
			CertData: leaf.cert,
			KeyData:  leaf.key,
		},
	}
}

func (c *ControlPlane) kubeconfigPath(name string) string {
	return filepath.Join(c.opts.StateDir, "kubeconfig", name+".kubeconfig")
}
func (c *ControlPlane) recordPath() string { return filepath.Join(c.opts.StateDir, "children.json") }
func (c *ControlPlane) portsPath() string  { return filepath.Join(c.opts.StateDir, "ports.json") }
