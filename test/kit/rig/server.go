package rig

import (
	"cmp"
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/rest"

	"github.com/bullpen-ci/bullpen/internal/github"
	"github.com/bullpen-ci/bullpen/internal/server/cluster"
	"github.com/bullpen-ci/bullpen/internal/server/dispatch"
	"github.com/bullpen-ci/bullpen/internal/server/events/intake"
	"github.com/bullpen-ci/bullpen/internal/server/events/roster"
	server "github.com/bullpen-ci/bullpen/internal/server/http"
	"github.com/bullpen-ci/bullpen/internal/server/ledger"
	"github.com/bullpen-ci/bullpen/internal/server/periodic"
	"github.com/bullpen-ci/bullpen/internal/server/recovery"
)

// front is where pods, the controller and GitHub reach the server, whichever it is just now.
type front struct {
	public, internal *httptest.Server

	mu     sync.Mutex
	server *handlers // nil: there is none
	kill   func()    // of a mortal one
}

type handlers struct{ public, internal http.Handler }

// pass brings a request to the server that there is; without one the connection breaks.
func (fr *front) pass(of func(*handlers) http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fr.mu.Lock()
		up := fr.server
		fr.mu.Unlock()
		if up == nil {
			panic(http.ErrAbortHandler)
		}
		of(up).ServeHTTP(w, r)
	})
}

// openFront makes the addresses, and the ledger behind them.
func (f *Fleet) openFront() {
	store, err := ledger.Open(f.ctx, f.options.Database, 16)
	require.NoError(f.tb, err)
	f.tb.Cleanup(store.Close)
	require.NoError(f.tb, ledger.Migrate(f.ctx, f.options.Database))
	f.Store = store
	f.front = &front{}
	f.front.public = httptest.NewServer(f.front.pass(func(h *handlers) http.Handler { return h.public }))
	f.front.internal = httptest.NewServer(f.countInternal(f.front.pass(func(h *handlers) http.Handler { return h.internal })))
	f.public, f.internal = f.front.public.URL, f.front.internal.URL
	f.tb.Cleanup(func() { // before the store is closed, and after everything has stopped
		f.stop()
		f.front.public.Close()
		f.front.internal.Close()
	})
}

// announce has GitHub send its webhooks here, and announce the App's installations.
func (f *Fleet) announce() {
	require.NoError(f.tb, f.GitHub.SetWebhook(f.public+"/webhooks/github", hookSecret))
	for i := range max(f.options.Accounts, 1) {
		require.NoError(f.tb, f.GitHub.Admin.Announce(f.ctx, int64(100+i)))
	}
}

// ways are how a server reaches the ledger, GitHub and the API server.
type ways struct {
	ctx      context.Context //nolint:containedctx // the life of the server
	database string
	store    *ledger.Store
	github   http.RoundTripper
	cluster  func(http.RoundTripper) http.RoundTripper
}

// waysOf are direct ones, or, for a mortal server, such as can be cut.
func (f *Fleet) waysOf() ways {
	if !f.options.Mortal {
		return ways{ctx: f.ctx, database: f.options.Database, store: f.Store, cluster: func(next http.RoundTripper) http.RoundTripper { return next }}
	}
	ctx, end := context.WithCancel(f.ctx)
	wire, url := DatabaseWire(f.tb, f.options.Database)
	toGitHub := NewWire(f.tb, "tcp", strings.TrimPrefix(f.GitHub.URL, "http://"))
	store, err := ledger.Open(f.ctx, url, 16)
	require.NoError(f.tb, err)
	f.tb.Cleanup(store.Close)
	through := http.DefaultTransport.(*http.Transport).Clone()
	through.DialContext = func(ctx context.Context, network, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, network, toGitHub.Addr())
	}
	f.front.mu.Lock()
	defer f.front.mu.Unlock()
	f.front.kill = func() {
		wire.Cut()
		toGitHub.Cut()
		end()
	}
	return ways{ctx: ctx, database: url, store: store, github: through, cluster: untilEnd(ctx)}
}

var errDead = errors.New("the process that asks has been killed")

// untilEnd lets requests through as long as ctx is not done.
func untilEnd(ctx context.Context) func(http.RoundTripper) http.RoundTripper {
	return func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(r *http.Request) (*http.Response, error) {
			if ctx.Err() != nil {
				return nil, errDead
			}
			return next.RoundTrip(r)
		})
	}
}

// StartServer runs a server as `bullpen server` does.
func (f *Fleet) StartServer() {
	f.tb.Helper()
	by := f.waysOf()
	config := f.as(Server, serviceAccounts+serverName, "system:serviceaccounts", "system:authenticated")
	config.Wrap(by.cluster)
	config.QPS, config.Burst = 200, 400
	view, dispatcher, look := f.dispatcher(by, config)
	again := f.startPasses(by, look, view.Synced)
	payloads, err := intake.New(intake.Options{Store: by.store, Log: f.options.Log})
	require.NoError(f.tb, err)
	secrets, err := github.NewWebhookSecrets(hookSecret, "")
	require.NoError(f.tb, err)
	made, err := server.New(server.Options{
		Dispatcher: dispatcher, Intake: payloads, Identities: view, WebhookSecrets: secrets,
		ControllerPrincipal: serviceAccounts + controllerName, Ready: by.store.Ping, CheckPod: again.CheckPod, Log: f.options.Log,
	})
	require.NoError(f.tb, err)
	f.parts.Go(func() {
		if err := view.Run(by.ctx, dispatcher); err != nil {
			f.tb.Errorf("the server's view: %v", err)
		}
	})
	f.parts.Go(func() {
		if err := dispatcher.Run(by.ctx); err != nil && by.ctx.Err() == nil {
			f.tb.Errorf("the dispatcher: %v", err)
		}
	})
	f.parts.Go(func() { ledger.Listen(by.ctx, by.database, dispatcher, f.options.Log) })
	require.Eventually(f.tb, view.Synced, time.Minute, 10*time.Millisecond)
	f.front.mu.Lock()
	defer f.front.mu.Unlock()
	f.front.server = &handlers{made.Public(), made.Internal()}
}

func (f *Fleet) dispatcher(by ways, config *rest.Config) (*cluster.View, *dispatch.Dispatcher, *recovery.Recovery) {
	view, err := cluster.New(cluster.Options{Config: config, Namespace: f.Namespace, Log: f.options.Log})
	require.NoError(f.tb, err)
	forge, err := github.New(github.Options{
		BaseURL: f.GitHub.URL + "/api/v3", AppID: 1, PrivateKey: f.GitHub.AppKeyPEM, Log: f.options.Log, Transport: by.github,
	})
	require.NoError(f.tb, err)
	lists, err := roster.New(roster.Options{
		Forge: forge, Ledger: by.store, ByRepository: view.RegistersAtRepositories, Log: f.options.Log,
	})
	require.NoError(f.tb, err)
	var look *recovery.Recovery
	options := dispatch.Options{
		Store: by.store, Forge: forge, Cluster: view, Roster: lists, Log: f.options.Log, MintTimeout: f.options.MintTimeout,
		Now:      f.options.Now,
		CheckPod: func(ctx context.Context, podUID string) error { return look.CheckPod(ctx, podUID) }, // made before it runs
	}
	if f.options.Dispatch != nil {
		f.options.Dispatch(&options)
	}
	dispatcher, err := dispatch.New(options)
	require.NoError(f.tb, err)
	look, err = recovery.New(recovery.Options{
		Ledger: by.store, Cluster: view, GitHub: forge, Claims: dispatcher, Roster: lists, Patience: f.options.RecoveryPatience, Log: f.options.Log,
		Now: f.options.Now,
	})
	require.NoError(f.tb, err)
	return view, dispatcher, look
}

// startPasses runs what the server does again and again.
func (f *Fleet) startPasses(by ways, look *recovery.Recovery, synced func() bool) *periodic.Runner {
	pool, err := ledger.OpenPool(f.ctx, by.database, periodic.MinConnections)
	require.NoError(f.tb, err)
	f.tb.Cleanup(pool.Close)
	every := recovery.DefaultEvery
	if f.options.RecoveryPatience > 0 {
		every = max(f.options.RecoveryPatience/5, time.Second)
	}
	every = cmp.Or(f.options.RecoveryEvery, every)
	again, err := periodic.New(periodic.Options{
		Pool: pool, Check: look.CheckPod, Log: f.options.Log,
		Passes: []periodic.Pass{{Name: "recovery", Every: every, Timeout: time.Minute, Run: func(ctx context.Context) error {
			if !synced() {
				return nil
			}
			return look.Pass(ctx)
		}}},
	})
	require.NoError(f.tb, err)
	f.parts.Go(func() {
		if err := again.Run(by.ctx); err != nil && by.ctx.Err() == nil {
			f.tb.Errorf("the passes: %v", err)
		}
	})
	return again
}

// KillServer ends a mortal server as kill -9 does: every connection of it breaks, and nothing that it does from here on
// reaches a client.
func (f *Fleet) KillServer() {
	f.front.mu.Lock()
	f.front.server = nil
	kill := f.front.kill
	f.front.mu.Unlock()
	kill()
	f.front.public.CloseClientConnections()
	f.front.internal.CloseClientConnections()
}
