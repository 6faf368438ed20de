package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"os"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/sync/errgroup"

	"github.com/bullpen-ci/bullpen/internal/github"
	"github.com/bullpen-ci/bullpen/internal/lib/credential"
	"github.com/bullpen-ci/bullpen/internal/lib/faultpoint"
	"github.com/bullpen-ci/bullpen/internal/lib/httpserver"
	"github.com/bullpen-ci/bullpen/internal/server/admin"
	"github.com/bullpen-ci/bullpen/internal/server/clock"
	"github.com/bullpen-ci/bullpen/internal/server/cluster"
	"github.com/bullpen-ci/bullpen/internal/server/console"
	"github.com/bullpen-ci/bullpen/internal/server/dispatch"
	"github.com/bullpen-ci/bullpen/internal/server/events/catchup"
	"github.com/bullpen-ci/bullpen/internal/server/events/installations"
	"github.com/bullpen-ci/bullpen/internal/server/events/intake"
	"github.com/bullpen-ci/bullpen/internal/server/events/roster"
	"github.com/bullpen-ci/bullpen/internal/server/history"
	server "github.com/bullpen-ci/bullpen/internal/server/http"
	"github.com/bullpen-ci/bullpen/internal/server/ledger"
	"github.com/bullpen-ci/bullpen/internal/server/periodic"
	"github.com/bullpen-ci/bullpen/internal/server/periodic/retention"
	"github.com/bullpen-ci/bullpen/internal/server/poolaudit"
	"github.com/bullpen-ci/bullpen/internal/server/recovery"
	"github.com/bullpen-ci/bullpen/internal/server/restore/epoch"
	"github.com/bullpen-ci/bullpen/internal/server/tracing"
)

type serverConfig struct {
	listen, internalListen, metricsListen string
	admin                                 adminConfig
	database                              databaseConfig
	kubeconfig, namespace                 string
	macHosts                              bool
	github                                githubFlags
	appID                                 int64
	keyFile                               string
	webhooks                              webhookConfig
	principal                             string
	recoveryPatience, recoveryEvery       time.Duration
	recoveryOff                           []string
	keep                                  retention.Policy
	githubPoints                          int
	epoch                                 epochConfig
	traces                                traceConfig
	oidc                                  oidcConfig
	outside                               outsideConfig
}

func newServerCommand() *cobra.Command {
	var cfg serverConfig
	cmd := &cobra.Command{
		Use:   "server",
		Short: "Receive webhooks and dispatch jobs to idle runners",
		Long: `The server receives GitHub's webhooks, keeps the queue and the claims in PostgreSQL, and responds to the polls of
runner pods. Replicas are stateless: run any number of them on one database.

Lost webhooks are recovered from GitHub's list of deliveries, and unreported jobs by a sweep of its queue. If GitHub
cannot reach the server at all, --webhooks=poll reads all webhooks from that list, some seconds later.

The App's private key, the webhook secrets and the database's certificates are reloaded when their files change
(docs/guides/credentials.md).

It migrates the database's schema when it starts. BULLPEN_DATABASE_URL or --database-url-file names the database. If
that is a connection pooler in transaction mode, BULLPEN_LISTEN_DATABASE_URL must be the URL of PostgreSQL itself, because
notifications and migrations need a session.`,
		Example: `  BULLPEN_DATABASE_URL=postgres://bullpen@db/bullpen bullpen server \
    --github-app-id 12345 --github-private-key-file app.pem --webhook-secret-file secret

  # Behind a firewall without inbound connections
  BULLPEN_DATABASE_URL=postgres://bullpen@db/bullpen bullpen server \
    --github-app-id 12345 --github-private-key-file app.pem --webhooks=poll`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return runServer(cmd.Context(), cfg) },
	}
	cfg.flags(cmd.Flags())
	cmd.AddCommand(newServerMigrateCommand())
	return cmd
}

func (cfg *serverConfig) flags(f *pflag.FlagSet) {
	f.StringVar(&cfg.listen, "listen", ":8080", "listen address for GitHub's webhooks and health checks")
	f.StringVar(&cfg.internalListen, "internal-listen", ":8081", "listen address for runner pods and the controller")
	f.StringVar(&cfg.metricsListen, "metrics-listen", ":9090", "listen address for Prometheus metrics; empty: disabled")
	cfg.database.flags(f)
	f.Int32Var(&cfg.database.maxConns, "database-connections", 16, "maximum number of database connections")
	f.StringVar(&cfg.kubeconfig, "kubeconfig", "", "kubeconfig (default: the pod's ServiceAccount)")
	f.StringVar(&cfg.namespace, "runner-namespace", "bullpen-runners", "namespace of runner pods and pools")
	f.BoolVar(&cfg.macHosts, "mac-hosts", false, "show MacHosts in the administrators' API")
	cfg.github.register(f)
	f.Int64Var(&cfg.appID, "github-app-id", 0, "ID of the GitHub App")
	f.StringVar(&cfg.keyFile, "github-private-key-file", "", "the App's private key (PEM)")
	cfg.webhooks.flags(f)
	f.StringVar(&cfg.principal, "controller-principal", "system:serviceaccount:bullpen-system:bullpen-controller",
		"the only principal that is allowed to retire pods")
	f.DurationVar(&cfg.recoveryPatience, "recovery-patience", recovery.DefaultPatience,
		"how long an inconsistency must last before recovery repairs it; all of recovery's timeouts derive from it")
	f.DurationVar(&cfg.recoveryEvery, "recovery-every", recovery.DefaultEvery, "interval of recovery passes")
	f.StringSliceVar(&cfg.recoveryOff, "recovery-off", nil,
		"kinds of recovery to disable, separated by commas (see docs/reference/recovery.md)")
	cfg.admin.flags(f)
	keepFlags(f, &cfg.keep)
	f.IntVar(&cfg.githubPoints, "github-points-per-minute", 0, "request quota of a replica at GitHub, in points per minute and "+
		"installation: a read costs 1, a registration or removal 5 (default 900 at api.github.com, unlimited elsewhere; -1: unlimited)")
	cfg.epoch.flags(f)
	cfg.traces.flags(f)
	cfg.oidc.flags(f)
	cfg.outside.flags(f)
}

// replica is one server: its parts, wired and not yet running.
type replica struct {
	cfg           serverConfig
	log           *slog.Logger
	registry      *prometheus.Registry
	listenURL     string
	store         *ledger.Store
	clock         *clock.Clock
	view          *cluster.View
	dispatcher    *dispatch.Dispatcher
	intake        *intake.Intake
	recovery      *recovery.Recovery
	retention     *retention.Retention
	history       *history.Recorder
	catchup       *catchup.CatchUp
	passes        *periodic.Runner
	keeper        *epoch.Keeper
	http          *server.Server
	authors       *cluster.Authors // nil: names of users are not verified
	admin         *admin.API
	poolAudit     *poolaudit.Auditor
	console       *console.Console
	installations *installations.Pass
	forge         *github.Client
	credentials   *credential.Keeper
	secrets       *github.WebhookSecrets
	githubCA      []credential.Source
	repositories  *installations.Repositories
	tracer        *tracing.Tracer // nil without a collector of traces
	closers       []func()        // called in reverse by close
}

// runServer wires one replica and serves until ctx ends.
func runServer(ctx context.Context, cfg serverConfig) error {
	r := &replica{cfg: cfg, log: slog.New(slog.NewJSONHandler(os.Stderr, nil)), registry: prometheus.NewRegistry()}
	defer r.close()
	if err := r.wire(ctx); err != nil {
		return err
	}
	return r.serve(ctx)
}

// close closes the database connections.
func (r *replica) close() {
	for _, closer := range slices.Backward(r.closers) {
		closer()
	}
}

// wire makes the parts of a replica, and starts none.
func (r *replica) wire(ctx context.Context) error {
	cfg := r.cfg
	r.registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	url, err := cfg.database.url()
	if err != nil {
		return err
	}
	if err := cfg.webhooks.check(); err != nil {
		return err
	}
	if r.view, err = newView(cfg, r); err != nil {
		return err
	}
	if err := r.openLedger(ctx, url); err != nil {
		return err
	}
	r.closers = append(r.closers, r.store.Close)
	if r.tracer, err = newTracer(ctx, cfg, r); err != nil {
		return err
	}
	forge, err := newForge(ctx, cfg, r)
	if err != nil {
		return err
	}
	r.forge = forge
	if r.credentials, err = newCredentials(ctx, r); err != nil {
		return err
	}
	if r.admin, err = newAdminAPI(cfg, r); err != nil {
		return err
	}
	if r.poolAudit, err = newPoolAudit(cfg, r); err != nil {
		return err
	}
	if r.console, err = newConsole(cfg, r); err != nil {
		return err
	}
	if r.installations, err = installations.New(installations.Options{Forge: forge, Store: r.store, Log: r.log, Now: r.clock.Now}); err != nil {
		return err
	}
	if r.repositories, err = installations.NewRepositories(installations.RepositoriesOptions{
		Forge: forge, Store: r.store, Log: r.log, Now: r.clock.Now,
	}); err != nil {
		return err
	}
	if err := r.wireDispatch(forge); err != nil {
		return err
	}
	return r.wirePasses(ctx, forge)
}

// wireDispatch makes what takes events in, hands jobs out and puts right what went wrong.
func (r *replica) wireDispatch(forge *github.Client) error {
	cfg := r.cfg
	lists, err := roster.New(roster.Options{
		Forge: forge, Ledger: r.store, ByRepository: r.registersAtRepositories, Log: r.log, Now: r.clock.Now,
	})
	if err != nil {
		return err
	}
	owners, err := intake.NewOwners(intake.OwnersOptions{Store: r.store, GitHub: forge, Log: r.log, Now: r.clock.Now})
	if err != nil {
		return err
	}
	if r.intake, err = intake.New(intake.Options{
		Store: r.store, Owners: owners, Log: r.log, Metrics: r.registry, Tracer: r.tracer,
	}); err != nil {
		return err
	}
	if r.keeper, err = newKeeper(cfg, r, forge, lists); err != nil {
		return err
	}
	outside, err := cfg.outside.runners()
	if err != nil {
		return err
	}
	if r.dispatcher, err = dispatch.New(dispatch.Options{
		Store: r.store, Forge: forge, Cluster: r.view, Roster: lists, Gate: r.keeper, Log: r.log, Metrics: r.registry,
		Tracer: r.tracer, Now: r.clock.Now, Outside: outside,
		CheckPod: func(ctx context.Context, podUID string) error { return r.passes.CheckPod(ctx, podUID) }, // there are passes before it runs
	}); err != nil {
		return err
	}
	r.recovery, err = newRecovery(cfg, r, forge, lists)
	return err
}

// wirePasses makes what is done again and again, and what answers to the outside, which can ask for a check.
func (r *replica) wirePasses(ctx context.Context, forge *github.Client) (err error) {
	cfg := r.cfg
	if r.catchup, err = newCatchUp(r, forge); err != nil {
		return err
	}
	pool, err := ledger.OpenPool(ctx, r.listenURL, passConnections)
	if err != nil {
		return err
	}
	r.closers = append(r.closers, pool.Close)
	if r.retention, err = newRetention(cfg, r); err != nil {
		return err
	}
	if r.history, err = newHistory(r); err != nil {
		return err
	}
	if r.passes, err = periodic.New(periodic.Options{
		Pool: pool, Passes: unlessFrozen(r.keeper, r.onTime(r.passList())), Check: checkUnlessFrozen(r.keeper, r.recovery.CheckPod), Log: r.log, Metrics: r.registry,
	}); err != nil {
		return err
	}
	r.http, err = server.New(server.Options{
		Dispatcher: r.dispatcher, Intake: r.intake, Identities: r.view, WebhookSecrets: r.secrets, NoWebhooks: cfg.webhooks.poll(),
		ControllerPrincipal: cfg.principal, Ready: r.ready, CheckPod: r.passes.CheckPod, Tails: r.store, Log: r.log, Metrics: r.registry, Now: r.clock.Now,
	})
	return err
}

// passConnections are the passes' own: four that run at a time, each holding a lock, and the queue's.
const passConnections = 8

// passList is what this replica does again and again.
func (r *replica) passList() []periodic.Pass {
	return slices.Concat(r.accountPasses(), r.catchup.Passes(), []periodic.Pass{
		{Name: "recovery", Every: r.cfg.recoveryEvery, Run: r.recovery.Pass},
		{Name: "retention", Every: 15 * time.Minute, Timeout: 5 * time.Minute, Run: r.retention.Run},
		{Name: "samples", Every: history.Every, Run: r.history.Run},
	})
}

// onTime has each pass begin with the database's word on the time: what it judges by age was written by that (RECV-2, RECV-4).
func (r *replica) onTime(list []periodic.Pass) []periodic.Pass {
	for i := range list {
		list[i].Run = r.clock.Before(list[i].Run)
	}
	return list
}

func newRecovery(cfg serverConfig, r *replica, forge *github.Client, lists *roster.Reader) (*recovery.Recovery, error) {
	off := make([]recovery.Kind, len(cfg.recoveryOff))
	for i, kind := range cfg.recoveryOff {
		off[i] = recovery.Kind(kind)
	}
	return recovery.New(recovery.Options{
		Ledger: r.store, Cluster: r.view, GitHub: forge, Claims: r.dispatcher, Roster: lists, Patience: cfg.recoveryPatience,
		Off: off, Log: r.log.With("component", "recovery"), Metrics: r.registry, Now: r.clock.Now, Start: rand.Float64(),
	})
}

func newView(cfg serverConfig, r *replica) (*cluster.View, error) {
	rest, err := clusterConfig(cfg.kubeconfig)
	if err != nil {
		return nil, err
	}
	rest.QPS, rest.Burst = 200, 400 // one token review per poll and minute, one label per job
	rest.UserAgent = "bullpen-server"
	return cluster.New(cluster.Options{
		Config: rest, Namespace: cfg.namespace, MacHosts: cfg.macHosts, Log: r.log,
		PoolSpecChanged: func() { r.poolAudit.Changed() }, // it is made before the watch runs
	})
}

// openLedger connects, sets the clock by it and has it know what accounts may have.
func (r *replica) openLedger(ctx context.Context, url string) error {
	defaults, err := r.cfg.admin.defaultLimits()
	if err != nil {
		return err
	}
	if r.listenURL, err = r.cfg.database.listenURL(url); err != nil {
		return err
	}
	store, err := openStore(ctx, url, r.listenURL, r.cfg.database.maxConns)
	if err != nil {
		return err
	}
	if r.clock, err = clock.New(ctx, clock.Options{Read: store.Now, Wall: faultpoint.Now, Log: r.log, Metrics: r.registry}); err != nil {
		store.Close()
		return err
	}
	if route := store.Route(); route != ledger.RouteDirect {
		r.log.InfoContext(ctx, "the database is reached through a connection pooler", "tracks_prepared_statements", route == ledger.RoutePrepared)
	}
	store.UseDefaultLimits(defaults)
	if r.cfg.admin.repositoryCaps {
		store.UseRepositoryCaps()
	}
	r.store = store
	return nil
}

// openStore connects and brings the schema up to date.
func openStore(ctx context.Context, url, listenURL string, maxConns int32) (*ledger.Store, error) {
	store, err := ledger.Open(ctx, url, maxConns)
	if err != nil {
		return nil, err
	}
	if err := ledger.Migrate(ctx, listenURL); err != nil {
		store.Close()
		return nil, err
	}
	return store, nil
}

// ready says what the replica still waits for.
func (r *replica) ready(ctx context.Context) error {
	if !r.view.Synced() {
		return errors.New("the watch of the cluster has not synced yet")
	}
	if err := r.store.Ping(ctx); err != nil {
		return ledger.ErrUnreachable
	}
	return nil
}

func newForge(ctx context.Context, cfg serverConfig, r *replica) (*github.Client, error) {
	api, err := cfg.github.api()
	if err != nil {
		return nil, err
	}
	if cfg.keyFile == "" {
		return nil, errors.New("no GitHub App: set --github-app-id and --github-private-key-file. Both are on the App's settings page")
	}
	key, err := os.ReadFile(cfg.keyFile)
	if err != nil {
		return nil, fmt.Errorf("reading the App's private key (--github-private-key-file): %w", err)
	}
	transport, sources, err := cfg.github.trust(ctx)
	if err != nil {
		return nil, err
	}
	r.githubCA = sources
	return github.New(github.Options{
		BaseURL: api, AppID: cfg.appID, PrivateKey: key, Points: cfg.githubPoints, Transport: transport,
		Log: r.log, Registerer: r.registry, Now: r.clock.Now,
	})
}

// newCredentials keeps what the server proves itself and GitHub with as the files are, from now on.
func newCredentials(ctx context.Context, r *replica) (*credential.Keeper, error) {
	sources := []credential.Source{{
		Name: "github_private_key", Files: []credential.File{{Path: r.cfg.keyFile}},
		Use: func(ctx context.Context, contents [][]byte) error { return r.forge.UseKey(ctx, contents[0]) },
	}}
	r.secrets = &github.WebhookSecrets{}
	if !r.cfg.webhooks.poll() {
		sources = append(sources, r.cfg.webhooks.credential(r.secrets))
	}
	sources = append(sources, r.githubCA...)
	sources = append(sources, r.cfg.database.credential()...)
	keeper, err := credential.New(credential.Options{Sources: sources, Log: r.log, Metrics: r.registry, Now: r.clock.Now})
	if err != nil {
		return nil, err
	}
	return keeper, keeper.Start(ctx)
}

// serve runs every part until ctx ends or one fails.
func (r *replica) serve(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return r.view.Run(ctx, r.dispatcher) })
	group.Go(func() error { return r.dispatcher.Run(ctx) })
	group.Go(func() error { r.poolAudit.Run(ctx); return nil })
	group.Go(func() error { r.clock.Run(ctx); return nil })
	group.Go(func() error { r.credentials.Run(ctx); return nil })
	group.Go(func() error { return r.keeper.Run(ctx) })
	group.Go(func() error { return r.passes.Run(ctx) })
	group.Go(func() error { ledger.Listen(ctx, r.listenURL, r.dispatcher, r.log); return nil })
	group.Go(func() error { return r.console.Run(ctx) })
	listen := func(flag, address string, handler http.Handler) {
		group.Go(func() error { return listenAndServe(ctx, flag, address, handler, onlyKnown, r.log) })
	}
	group.Go(func() error {
		return listenAndServe(ctx, "--listen", r.cfg.listen, r.http.Public(), httpserver.Public, r.log)
	})
	listen("--internal-listen", r.cfg.internalListen, r.http.Internal())
	if r.cfg.admin.listen != "" {
		listen("--admin-listen", r.cfg.admin.listen, r.adminHandler())
	}
	if r.cfg.metricsListen != "" {
		metrics := http.NewServeMux()
		metrics.Handle("GET /metrics", promhttp.HandlerFor(r.registry, promhttp.HandlerOpts{}))
		listen("--metrics-listen", r.cfg.metricsListen, metrics)
	}
	return group.Wait()
}
