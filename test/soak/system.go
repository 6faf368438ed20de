package soak

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bullpen-ci/bullpen/api/v1alpha1"
	"github.com/bullpen-ci/bullpen/internal/controller"
	"github.com/bullpen-ci/bullpen/internal/dev/controlplane"
	"github.com/bullpen-ci/bullpen/internal/dev/onebox"
	"github.com/bullpen-ci/bullpen/test/soak/check"
	"github.com/bullpen-ci/bullpen/test/soak/schedule"
)

const (
	systemNamespace = onebox.SystemNamespace
	runnerNamespace = onebox.RunnerNamespace
)

// System is everything that a soak runs: two servers behind a balancer, a controller or two, two synthetic machines and one that
// runs processes, each with its node agent, Postgres, the control plane and GitHub. Start brings it up, Stop ends it.
type System struct {
	opts Options
	dir  string
	log  *slog.Logger

	ctx    context.Context // the life of everything
	cancel context.CancelFunc

	plane    *controlplane.ControlPlane
	admin    *rest.Config
	kube     kubernetes.Interface
	client   client.Client
	database *database
	disk     *disk // the database's own; nil: it has none
	github   *gitHub
	parts    map[string]*part
	hooks    *proxy            // GitHub → servers
	polls    *proxy            // pods and the controller → servers
	postgres map[string]*proxy // each server → Postgres
	args     *argumentWatch
	pods     *podWatch
	drainer  sync.WaitGroup
	changes  *fleetChanges
	// adminURL is the URL of the first server's admin API.
	adminURL string
	stopping sync.Once
	stopped  error

	portsMu sync.Mutex
}

// startTimeout bounds the start on a loaded machine with two cores.
const startTimeout = 4 * time.Minute

// Start brings everything up in the state directory, or resumes what an earlier soak left in it.
func Start(ctx context.Context, opts Options) (*System, error) {
	s := &System{opts: opts, dir: opts.Dir, log: opts.Log, parts: map[string]*part{}, postgres: map[string]*proxy{}, changes: newFleetChanges()}
	s.ctx, s.cancel = context.WithCancel(context.WithoutCancel(ctx))
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	if err := s.bringUp(ctx); err != nil {
		return nil, errors.Join(err, s.Stop(), s.unmount())
	}
	return s, nil
}

func (s *System) bringUp(ctx context.Context) error {
	if err := s.makeDirectories(); err != nil {
		return err
	}
	if err := s.startInfrastructure(ctx); err != nil {
		return err
	}
	if err := s.startServers(ctx); err != nil {
		return err
	}
	if err := s.startControllers(ctx); err != nil {
		return err
	}
	if err := s.startNodes(ctx); err != nil {
		return err
	}
	if err := s.applyPools(ctx); err != nil {
		return err
	}
	s.args = watchArguments(s.ctx, s.dir)
	s.pods = s.watchPods(s.ctx)
	s.drainer.Go(s.keepDraining)
	return nil
}

func (s *System) startInfrastructure(ctx context.Context) error {
	if s.opts.Disk {
		var err error
		if s.disk, err = mountDisk(ctx, s.path("postgres")); err != nil {
			return err
		}
	}
	policy := s.path("control-plane", "audit-policy.yaml")
	if err := os.WriteFile(policy, []byte(auditPolicy(s.opts.Requests)), 0o600); err != nil {
		return fmt.Errorf("writing the audit policy: %w", err)
	}
	var fromPlane error
	var starting sync.WaitGroup
	starting.Go(func() {
		s.plane, fromPlane = controlplane.Start(ctx, controlplane.Options{
			StateDir: s.path("control-plane"), Log: s.log, FastUnsafe: true, StartTimeout: startTimeout,
			ExtraArgs: map[controlplane.Component][]string{controlplane.APIServer: {
				"--audit-policy-file=" + policy, "--audit-log-path=" + filepath.Join(s.evidenceDir(), check.FileAudit),
				"--audit-log-maxsize=100000",
			}},
		})
	})
	var fromDatabase error
	s.database, fromDatabase = startDatabase(ctx, s.path("postgres"), filepath.Join(s.evidenceDir(), check.FileHistory))
	starting.Wait()
	if err := errors.Join(fromPlane, fromDatabase); err != nil {
		return err
	}
	s.admin = s.plane.AdminConfig()
	var err error
	if s.kube, err = kubernetes.NewForConfig(s.admin); err != nil {
		return fmt.Errorf("making a client of the cluster: %w", err)
	}
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		return fmt.Errorf("registering the kinds: %w", err)
	}
	if s.client, err = client.New(s.admin, client.Options{Scheme: scheme}); err != nil {
		return fmt.Errorf("making a client of the cluster: %w", err)
	}
	return onebox.Install(ctx, s.admin)
}

func (s *System) bullpen(args ...string) *exec.Cmd {
	command := exec.Command(s.opts.Binary, args...) //nolint:noctx // its part ends it
	command.Env = s.environment()
	return command
}

// bullpenOf is bullpen for a part of which there are two. Where requests are written down, the second one lists what it watches,
// as against an API server that cannot begin a watch with what there is.
func (s *System) bullpenOf(name string, args ...string) *exec.Cmd {
	command := s.bullpen(args...)
	if s.opts.Requests && (name == schedule.Server2 || name == schedule.Controller2) {
		command.Env = append(command.Env, "KUBE_FEATURE_WatchListClient=false")
	}
	return command
}

// startServers starts the proxies, GitHub and both servers.
func (s *System) startServers(ctx context.Context) error {
	behind, err := s.database.backend()
	if err != nil {
		return err
	}
	type listeners struct{ public, internal, metrics, admin string }
	at := map[string]listeners{}
	var public, internal []*backend
	for _, name := range []string{schedule.Server1, schedule.Server2} {
		if s.postgres[name], err = startProxy(ctx, s.keptAddress("postgres-"+name), behind); err != nil {
			return err
		}
		l := listeners{s.keptAddress(name), s.keptAddress(name + "-internal"), s.keptAddress(name + "-metrics"), s.keptAddress(name + "-admin")}
		at[name], s.adminURL = l, cmp.Or(s.adminURL, l.admin)
		ready := onebox.Answers("http://" + l.public + "/readyz")
		public = append(public, &backend{network: "tcp", address: l.public, ready: ready})
		internal = append(internal, &backend{network: "tcp", address: l.internal, ready: ready})
		dsn, err := s.database.through(s.postgres[name].Address)
		if err != nil {
			return err
		}
		if err := os.WriteFile(s.secret("database-"+name), []byte(dsn+"\n"), 0o600); err != nil {
			return fmt.Errorf("writing the database's URL: %w", err)
		}
	}
	if s.hooks, err = startProxy(ctx, s.keptAddress("hooks"), public...); err != nil {
		return err
	}
	if s.polls, err = startProxy(ctx, s.keptAddress("polls"), internal...); err != nil {
		return err
	}
	hookSecret, err := s.hookSecret()
	if err != nil {
		return err
	}
	if err := s.migrate(ctx); err != nil {
		return err
	}
	if err := s.writeIdentities(ctx); err != nil {
		return err
	}
	if s.github, err = s.startGitHub("http://"+s.hooks.Address+"/webhooks/github", hookSecret); err != nil {
		return err
	}
	for name, l := range at {
		_, err := s.startPart(name, 25*time.Second, func() *exec.Cmd {
			return s.bullpenOf(name, onebox.Server{
				Listen: l.public, Internal: l.internal, Admin: l.admin, Metrics: l.metrics,
				DatabaseURLFile: s.secret("database-" + name), Kubeconfig: s.identity("server"), RunnerNamespace: runnerNamespace,
				GitHubURL: s.github.url, AppID: 1, AppKeyFile: s.secret("app.pem"), WebhookSecretFile: s.secret("webhook-secret"),
				Flags: append([]string{
					"--recovery-patience=" + s.opts.RecoveryPatience.String(), "--recovery-every=" + s.opts.RecoveryEvery.String(),
					"--catch-up-every=" + s.opts.CatchUpEvery.String(),
				}, s.opts.ServerArgs...),
			}.Args()...)
		})
		if err != nil {
			return err
		}
	}
	for _, l := range at {
		if err := s.await(ctx, "the servers", onebox.Answers("http://"+l.public+"/readyz")); err != nil {
			return err
		}
	}
	return nil
}

// migrate brings the schema up to date and has Postgres keep its history, before the first write.
func (s *System) migrate(ctx context.Context) error {
	command := s.bullpen("server", "migrate", "--database-url-file="+s.secret("database-"+schedule.Server1))
	if output, err := command.CombinedOutput(); err != nil {
		return fmt.Errorf("migrating the database: %w: %s", err, output)
	}
	return s.database.observe(ctx)
}

// startControllers starts one controller, or two, of which the first is the leader.
func (s *System) startControllers(ctx context.Context) error {
	if err := s.startController(ctx, schedule.Controller); err != nil || !s.opts.TwoControllers {
		return err
	}
	leads := func(ctx context.Context) error {
		_, err := s.leader(ctx)
		return err
	}
	if err := s.await(ctx, "a controller that leads", leads); err != nil {
		return err
	}
	return s.startController(ctx, schedule.Controller2)
}

// leader is the Lease that says which controller works; an error if none does.
func (s *System) leader(ctx context.Context) (*coordinationv1.Lease, error) {
	lease, err := s.kube.CoordinationV1().Leases(systemNamespace).Get(ctx, controller.LeaseName, metav1.GetOptions{})
	if err == nil && ptr.Deref(lease.Spec.HolderIdentity, "") == "" {
		err = errors.New("the lease has no holder")
	}
	return lease, err
}

func (s *System) startController(ctx context.Context, name string) error {
	health, metrics := s.keptAddress(name+"-health"), s.keptAddress(name+"-metrics")
	_, err := s.startPart(name, 15*time.Second, func() *exec.Cmd {
		return s.bullpenOf(name, onebox.Controller{
			Kubeconfig: s.identity("controller"), ServerURL: "http://" + s.polls.Address, ServerTokenFile: s.secret("controller-server.token"),
			DispatchURL: "http://" + s.polls.Address, AgentImage: "bullpen", AgentCommand: s.opts.Agent,
			Health: health, Metrics: metrics, LeaderElection: s.opts.TwoControllers, Flags: s.opts.ControllerArgs,
		}.Args()...)
	})
	if err != nil {
		return err
	}
	return s.await(ctx, "the "+name, onebox.Answers("http://"+health+"/readyz"))
}

// Names of the processes that carry synthetic pods.
func machineOf(node string) string { return "machine-" + node }

func (s *System) startNodes(ctx context.Context) error {
	for _, node := range []string{schedule.Node1, schedule.Node2} {
		_, err := s.startPart(machineOf(node), 5*time.Second, func() *exec.Cmd {
			return s.child("machine", node, s.socket(node), filepath.Join(s.evidenceDir(), check.FileMachines))
		})
		if err != nil {
			return err
		}
		_, err = s.startPart(node, 5*time.Second, func() *exec.Cmd {
			return s.child("agent", node, s.socket(node), s.identity(node), s.nodeDir(node), strconv.Itoa(s.opts.Runners*2))
		})
		if err != nil {
			return err
		}
	}
	if s.opts.RealRunners > 0 {
		_, err := s.startPart(schedule.NodeReal, 15*time.Second, func() *exec.Cmd {
			return s.bullpen("node", "--sandbox=process", "--name="+schedule.NodeReal, "--min-disk-free=256Mi", "--kubeconfig="+s.identity(schedule.NodeReal),
				"--state-dir="+s.nodeDir(schedule.NodeReal), "--cpu=64", "--memory=256Gi", "--ephemeral-storage=100Ti", "--pods="+strconv.Itoa(s.opts.RealRunners*4),
				"--label=soak=real", "--kubelet-port=0")
		})
		if err != nil {
			return err
		}
	}
	return s.await(ctx, "the nodes", s.nodesReady)
}

// child is this executable in another role; see Child.
func (s *System) child(role string, args ...string) *exec.Cmd {
	command := exec.Command(s.opts.Self, args...) //nolint:noctx // its part ends it
	command.Env = append(s.environment(), envRole+"="+role)
	return command
}

// await asks again and again.
func (s *System) await(ctx context.Context, what string, ready func(context.Context) error) error {
	for {
		asking, cancel := context.WithTimeout(ctx, 5*time.Second)
		err := ready(asking)
		cancel()
		if err == nil {
			return nil
		}
		if !pause(ctx, 50*time.Millisecond) {
			return fmt.Errorf("waiting for %s (logs: %s): %w", what, s.path("logs"), err)
		}
	}
}

func (s *System) keepDraining() {
	for pause(s.ctx, 2*time.Second) {
		// Postgres may be unavailable right now; what it has written down stays until the next time.
		_ = s.database.drain(s.ctx)
	}
}

// Stop ends everything. No process is left when it returns. A second Stop does nothing.
func (s *System) Stop() error {
	s.stopping.Do(func() { s.stopped = s.stop() })
	return s.stopped
}

func (s *System) stop() error {
	ctx, cancel := context.WithTimeout(context.Background(), 90*time.Second)
	defer cancel()
	order := []string{schedule.Controller, schedule.Controller2, schedule.Node1, schedule.Node2, schedule.NodeReal,
		machineOf(schedule.Node1), machineOf(schedule.Node2), schedule.Server1, schedule.Server2}
	for _, name := range order {
		if p := s.parts[name]; p != nil {
			p.stop()
		}
	}
	var errs []error
	if s.opts.RealRunners > 0 && s.parts[schedule.NodeReal] != nil {
		if output, err := s.bullpen("node", "cleanup", "--state-dir="+s.nodeDir(schedule.NodeReal)).CombinedOutput(); err != nil {
			errs = append(errs, fmt.Errorf("ending the runners' processes: %w: %s", err, output))
		}
	}
	s.cancel()
	s.drainer.Wait()
	if s.args != nil {
		s.args.wait()
		s.pods.wait()
	}
	if s.github != nil {
		s.github.close()
	}
	for _, p := range append([]*proxy{s.hooks, s.polls}, slicesOf(s.postgres)...) {
		if p != nil {
			p.close()
		}
	}
	if s.plane != nil {
		errs = append(errs, s.plane.Stop(ctx))
	}
	if s.database != nil && s.database.server != nil {
		errs = append(errs, s.database.stop(ctx))
	}
	return errors.Join(errs...)
}

// unmount gives the database's directory back what is on its disk, after Stop: the checker reads the log that is there.
func (s *System) unmount() error {
	if s.disk == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	err := s.disk.unmount(ctx)
	s.disk = nil
	return err
}

func slicesOf(m map[string]*proxy) []*proxy {
	var all []*proxy
	for _, p := range m {
		all = append(all, p)
	}
	return all
}

// processesLeft are processes that name the state directory in their arguments or work in it.
func processesLeft(dir string) []string {
	var left []string
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	for _, directory := range dirs {
		pid := filepath.Base(directory)
		if pid == strconv.Itoa(os.Getpid()) {
			continue
		}
		args, err := os.ReadFile(filepath.Join(directory, "cmdline"))
		if err != nil {
			continue // it has ended
		}
		work, _ := os.Readlink(filepath.Join(directory, "cwd"))
		text := strings.ReplaceAll(strings.TrimRight(string(args), "\x00"), "\x00", " ")
		if strings.Contains(text, dir+"/") || work == dir || strings.HasPrefix(work, dir+"/") {
			left = append(left, pid+": "+text)
		}
	}
	slices.Sort(left)
	return left
}
