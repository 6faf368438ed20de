package onebox

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/bullpen-ci/bullpen/internal/dev/controlplane"
	"github.com/bullpen-ci/bullpen/internal/dev/github/standin"
	"github.com/bullpen-ci/bullpen/internal/dev/postgres"
	"github.com/bullpen-ci/bullpen/internal/lib/childproc"
)

// Box is everything that runs in one state directory. Its methods may be called concurrently.
type Box struct {
	opts      Options
	layout    Layout
	lock      *os.File
	owner     childproc.Process // this process
	began     time.Time         // no runner of an earlier run is left since then
	log       *slog.Logger
	logFile   *os.File
	record    *record
	addresses addresses

	// ctx is the life of what runs beside the parts: watchers and the renewal of tokens.
	ctx      context.Context
	cancel   context.CancelFunc
	watchers sync.WaitGroup

	plane      *controlplane.ControlPlane
	containers *containers // nil: runners are processes
	database   *database
	kube       kubernetes.Interface
	parts      map[string]*supervised
	ready      map[string]readiness

	up       atomic.Bool // everything was ready once
	stopOnce sync.Once
	stopErr  error
}

// ErrInterrupted reports that the start, or the demonstration, was interrupted, and that nothing is left running.
var ErrInterrupted = errors.New("interrupted; nothing is left running")

// Start starts everything in the state directory and returns when all parts are ready. Processes that a killed owner of the directory left
// are stopped first. ctx bounds the start only; Stop stops what runs.
//
// Errors to distinguish: ErrInterrupted, *InUseError, *StaleFolderError, assets.ErrMissing, pgserver.ErrNotInstalled. Each is one
// sentence that says what to do.
func Start(ctx context.Context, opts Options) (*Box, error) {
	opts, err := opts.withDefaults()
	if err != nil {
		return nil, err
	}
	starting, cancel := context.WithTimeout(ctx, opts.StartTimeout)
	defer cancel()
	b, err := open(starting, opts)
	if err != nil {
		return nil, err
	}
	if err := b.bringUp(starting); err != nil {
		return nil, b.stopAfter(ctx, err)
	}
	return b, nil
}

// stopAfter stops everything after an error, which is the interruption itself when ctx has ended.
func (b *Box) stopAfter(ctx context.Context, err error) error {
	stopping, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopPatience)
	defer cancel()
	stopped := b.Stop(stopping)
	if err != nil && ctx.Err() != nil && stopped == nil {
		return ErrInterrupted
	}
	return errors.Join(err, stopped)
}

// stopPatience bounds a stop; what has not ended by then is killed.
const stopPatience = 90 * time.Second

// open locks the directory and stops what a killed owner left.
func open(ctx context.Context, opts Options) (*Box, error) {
	layout, err := NewLayout(opts.StateDir)
	if err != nil {
		return nil, err
	}
	if _, err := layout.check(); err != nil {
		return nil, err
	}
	if err := layout.checkKind(opts.Containers); err != nil {
		return nil, err
	}
	if opts.DatabaseURL == "" { // before anything is created
		if err := postgres.CheckDir(layout.Dir); err != nil {
			return nil, err
		}
	}
	lock, err := layout.lock()
	if err != nil {
		return nil, err
	}
	owner, err := childproc.Identify("up", os.Getpid())
	if err != nil {
		_ = lock.Close()
		return nil, fmt.Errorf("identifying this process: %w", err)
	}
	b := &Box{
		opts: opts, layout: layout, lock: lock, owner: owner, record: &record{path: layout.recordFile()},
		parts: map[string]*supervised{}, ready: map[string]readiness{},
	}
	b.ctx, b.cancel = context.WithCancel(context.WithoutCancel(ctx))
	err = b.prepare(ctx)
	if err != nil {
		b.cancel()
		_ = lock.Close()
		return nil, err
	}
	return b, nil
}

func (b *Box) prepare(ctx context.Context) error {
	if err := b.layout.prepare(os.Geteuid() == 0, b.opts.Containers); err != nil {
		return err
	}
	ended, err := clearLeftovers(ctx, b.layout, b.opts.Binary)
	if err != nil {
		return err
	}
	b.began = b.opts.Now()
	if ended > 0 {
		b.report(Event{Kind: EventNote, Message: fmt.Sprintf("the last run was killed: stopped %d of its processes and pods", ended)})
	}
	if b.addresses, err = chooseAddresses(b.layout, b.opts); err != nil {
		return err
	}
	if err := makeSecrets(b.layout); err != nil {
		return err
	}
	b.logFile, err = os.OpenFile(b.layout.Log("up"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("opening the log: %w", err)
	}
	b.log = slog.New(slog.NewTextHandler(b.logFile, nil))
	return nil
}

func (b *Box) report(event Event) {
	event.Time = b.opts.Now()
	b.opts.Report(event)
	if event.Kind == EventStarted && b.up.Load() {
		b.refreshStatus()
	}
}

func (b *Box) note(message string) { b.report(Event{Kind: EventNote, Message: message}) }

// refreshStatus writes the status file. It is for the CLI and scripts; nothing here depends on it.
func (b *Box) refreshStatus() {
	if err := writeJSON(b.layout.statusFile(), b.Where()); err != nil {
		b.log.Warn("writing the status failed", "error", err)
	}
}

func (b *Box) bringUp(ctx context.Context) error {
	b.report(Event{Kind: EventNote, Message: "state directory " + b.layout.Dir})
	if err := b.startInfrastructure(ctx); err != nil {
		return err
	}
	admin := b.plane.AdminConfig()
	var err error
	if b.kube, err = kubernetes.NewForConfig(admin); err != nil {
		return fmt.Errorf("making a Kubernetes client: %w", err)
	}
	apply, err := newApplier(admin)
	if err != nil {
		return err
	}
	if err := apply.install(ctx, b.opts.Containers); err != nil {
		return err
	}
	if err := b.startIdentities(ctx); err != nil {
		return err
	}
	if err := b.startFleet(ctx, apply); err != nil {
		return err
	}
	if err := apply.applyPools(ctx, b.opts.Pools, b.note); err != nil {
		return err
	}
	if err := apply.endDrain(ctx); err != nil {
		return err
	}
	where := b.Where()
	if err := writeJSON(b.layout.statusFile(), where); err != nil {
		return err
	}
	b.up.Store(true)
	b.report(Event{Kind: EventReady, Message: "Bullpen is up.", Where: &where})
	return nil
}

func (b *Box) startIdentities(ctx context.Context) error {
	if err := writeKubeconfigs(b.layout, b.plane); err != nil {
		return err
	}
	ids := newIdentities(b.layout, b.kube, b.report, b.opts.Now)
	if !b.opts.Containers { // a kubelet gets its certificate from package realnode
		if err := ids.letNodeAsk(ctx, b.layout, b.plane.AdminConfig()); err != nil {
			return err
		}
	}
	end, err := ids.issue(ctx)
	if err != nil {
		return err
	}
	b.watchers.Go(func() { ids.keep(b.ctx, end) })
	approver := newApprover(b.kube, b.log)
	b.watchers.Go(func() { approver.run(b.ctx) })
	return nil
}

// startParts starts our own processes side by side and waits until each is ready.
func (b *Box) startParts(ctx context.Context) error {
	s := b.setting()
	server := s.serverCommand()
	if b.opts.ListenDatabaseURL != "" {
		// A URL that holds a password is no argument; the environment of a process is its owner's to read alone.
		server.Env = append(server.Env, "BULLPEN_LISTEN_DATABASE_URL="+b.opts.ListenDatabaseURL)
	}
	commands := []Command{server, s.controllerCommand()}
	if !b.opts.Containers {
		commands = append(commands, s.nodeCommand())
	}
	if b.opts.Macs {
		if err := prepareMac(b.layout); err != nil {
			return err
		}
		commands = append(commands, s.macCommand())
		b.ready[partMac] = all(nodeReady(b.kube, MacNodeName), servingReady(b.addresses.MacKubelet, b.plane.AdminConfig().CAData))
	}
	b.ready[partServer] = httpReady(b.addresses.url(b.addresses.Webhooks) + "/readyz")
	b.ready[partController] = httpReady(b.addresses.url(b.addresses.ControllerHealth) + "/readyz")
	b.ready[partNode] = all(nodeReady(b.kube, NodeName), servingReady(b.addresses.Kubelet, b.plane.AdminConfig().CAData))
	if b.opts.App == nil {
		commands = append([]Command{s.standInCommand()}, commands...)
		admin, err := b.adminClient()
		if err != nil {
			return err
		}
		b.ready[partGitHub] = func(ctx context.Context, _ time.Time) error {
			_, err := admin.State(ctx)
			return err
		}
	}
	for _, command := range commands {
		part, err := supervise(b.ctx, command, b.record, b.report, b.opts.Now)
		if err != nil {
			return err
		}
		b.parts[command.Name] = part
	}
	for _, command := range commands {
		part := b.parts[command.Name]
		if err := part.awaitReady(ctx, b.ready[command.Name]); err != nil {
			return err
		}
		c, _, _ := part.state()
		b.report(Event{Kind: EventStarted, Part: command.Name, PID: c.PID(), Log: command.LogPath,
			Message: fmt.Sprintf("%-14s pid %d", command.Name, c.PID())})
	}
	return nil
}

func (b *Box) adminClient() (*standin.AdminClient, error) {
	token, err := readSecret(b.layout.secret("admin-token"))
	if err != nil {
		return nil, err
	}
	return &standin.AdminClient{URL: b.addresses.url(b.addresses.GitHub), Token: token, HTTP: boundedClient()}, nil
}

// GitHub speaks to the stand-in; it fails when a real App is used.
func (b *Box) GitHub() (*standin.AdminClient, error) {
	if b.opts.App != nil {
		return nil, errors.New("no stand-in to submit workflows to: a real GitHub App is used. Push to a repository that has the App installed")
	}
	return b.adminClient()
}

// AdminConfig connects to the cluster as an administrator.
func (b *Box) AdminConfig() *rest.Config { return b.plane.AdminConfig() }

// Where has the URLs and paths of what runs.
func (b *Box) Where() Where {
	w := Where{
		StateDir: b.layout.Dir, PID: os.Getpid(), Owner: b.owner, Labels: map[string][]string{}, Kubernetes: b.plane.URL(), Kubeconfig: b.plane.AdminKubeconfig(), Kubectl: b.plane.Kubectl(),
		Webhooks: b.addresses.url(b.addresses.Webhooks) + "/webhooks/github", Admin: b.addresses.url(b.addresses.Admin),
		Dispatch: dispatchFor(b.opts.Containers, b.addresses), NodeInit: b.containers.init(), Drain: b.opts.Drain,
		Metrics: map[string]string{
			partServer:     b.addresses.url(b.addresses.ServerMetrics) + "/metrics",
			partController: b.addresses.url(b.addresses.ControllerMetrics) + "/metrics",
		},
		Logs: b.layout.path("logs"), StandIn: b.opts.App == nil, Processes: map[string]int{},
	}
	if b.opts.App == nil {
		w.GitHub, w.Repository = b.addresses.url(b.addresses.GitHub), standInRepository
	} else {
		w.GitHub = b.opts.App.api()
	}
	for _, pool := range b.opts.Pools {
		w.Pools, w.Labels[pool.GetName()] = append(w.Pools, pool.GetName()), labelsOf(pool)
	}
	for name, part := range b.parts {
		if c, _, _ := part.state(); c != nil {
			w.Processes[name] = c.PID()
		}
	}
	for component, pid := range b.plane.Pids() {
		w.Processes[string(component)] = pid
	}
	if pid := b.database.pid(); pid != 0 {
		w.Processes[partPostgres] = pid
	}
	return w
}

// Replacement is one restart that was asked for.
type Replacement struct {
	Part   string        `json:"part"`
	Signal string        `json:"signal"`
	OldPID int           `json:"oldPid"`
	NewPID int           `json:"newPid"`
	Took   time.Duration `json:"took"`
}

// Replace ends one of our own processes ("server", "controller", "node", "node-mac", "github"), or a program of the node with containers ("kubelet",
// "containerd"), with SIGTERM or, hard, with SIGKILL, and returns when its successor is ready.
func (b *Box) Replace(ctx context.Context, name string, hard bool) (Replacement, error) {
	if b.containers != nil && (name == partKubelet || name == partContainerd) {
		_, word := termination(hard)
		began := b.opts.Now()
		oldPID, newPID, err := b.containers.replace(ctx, name, hard)
		return Replacement{Part: name, Signal: word, OldPID: oldPID, NewPID: newPID, Took: b.opts.Now().Sub(began)}, err
	}
	part := b.parts[name]
	if part == nil {
		return Replacement{}, fmt.Errorf("unknown process %q to restart", name)
	}
	signal, word := termination(hard)
	began := b.opts.Now()
	oldPID, newPID, err := part.replace(ctx, signal)
	if err != nil {
		return Replacement{}, err
	}
	if err := part.awaitReady(ctx, b.ready[name]); err != nil {
		return Replacement{}, err
	}
	b.refreshStatus()
	return Replacement{Part: name, Signal: word, OldPID: oldPID, NewPID: newPID, Took: b.opts.Now().Sub(began)}, nil
}

// Stop ends everything in an order in which nothing is replaced, or lacks what it needs, on the way: the controller,
// the node agent, the runner pods, the server, GitHub, the control plane, the database. When it returns no process is
// left; what takes longer than ctx is killed. A second Stop does nothing.
func (b *Box) Stop(ctx context.Context) error {
	b.stopOnce.Do(func() { b.stopErr = b.stop(ctx) })
	return b.stopErr
}

func (b *Box) stop(ctx context.Context) error {
	if b.up.Load() {
		b.report(Event{Kind: EventStopping, Message: "Stopping everything."})
	}
	var errs []error
	for _, name := range []string{partController, partNode, partMac} {
		b.stopPart(name)
	}
	errs = append(errs, b.containers.stopNode(context.WithoutCancel(ctx)))
	if _, err := endPods(context.WithoutCancel(ctx), b.layout, b.opts.Binary); err != nil {
		errs = append(errs, err)
	}
	for _, name := range []string{partServer, partGitHub} {
		b.stopPart(name)
	}
	b.cancel()
	b.watchers.Wait()
	switch {
	case b.containers != nil:
		errs = append(errs, b.containers.stop(ctx))
	case b.plane != nil:
		errs = append(errs, b.plane.Stop(ctx))
	}
	errs = append(errs, b.database.stop(ctx))
	if left := b.record.alive(); len(left) > 0 {
		errs = append(errs, fmt.Errorf("process %d (%s) is still running", left[0].PID, left[0].Name))
	} else {
		_ = os.Remove(b.layout.recordFile())
	}
	_ = os.Remove(b.layout.statusFile())
	if b.logFile != nil {
		errs = append(errs, b.logFile.Close())
	}
	errs = append(errs, b.lock.Close())
	err := errors.Join(errs...)
	if err == nil && b.up.Load() {
		b.report(Event{Kind: EventStopped, Message: "Everything has stopped."})
	}
	return err
}

func (b *Box) stopPart(name string) {
	if part := b.parts[name]; part != nil {
		part.stop()
	}
}
