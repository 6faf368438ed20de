package incidents

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/internal/dev/github/standin"
	"github.com/bullpen-ci/bullpen/internal/fleet"
	"github.com/bullpen-ci/bullpen/internal/github"
	"github.com/bullpen-ci/bullpen/internal/runnerpod"
	"github.com/bullpen-ci/bullpen/internal/server/dispatch"
	"github.com/bullpen-ci/bullpen/internal/server/events/intake"
	server "github.com/bullpen-ci/bullpen/internal/server/http"
	"github.com/bullpen-ci/bullpen/internal/server/ledger"
	"github.com/bullpen-ci/bullpen/test/kit/await"
	"github.com/bullpen-ci/bullpen/test/kit/dispatchtest"
	"github.com/bullpen-ci/bullpen/test/kit/postgrestest"
	"github.com/bullpen-ci/bullpen/test/kit/rig"
)

const (
	hookSecret = "incidents"
	controller = "system:serviceaccount:bullpen-system:bullpen-controller"
	patience   = 30 * time.Second // bounds what a loaded machine with two cores may take
	interval   = 15 * time.Millisecond
)

// quiet is the log of all parts.
var quiet = slog.New(slog.DiscardHandler)

// world is a server's real parts on a real ledger, with the GitHub stand-in; pods poll with the agent's own code and run the
// development runner. Kubernetes is in memory (cluster_test.go).
type world struct {
	t       *testing.T
	clock   *clock
	url     string // of the ledger
	store   *ledger.Store
	github  *standin.Local
	forge   *github.Client // an onlooker's own
	cluster *dispatchtest.Cluster
	hooks   *httptest.Server // where webhooks arrive
	last    int64            // the last account's installation

	mu       sync.Mutex
	replicas []*replica
	serving  *replica
	accept   atomic.Bool // whether webhooks are accepted at once, and forgotten
}

// worldOptions change a world before it begins.
type worldOptions struct {
	github   func(*standin.Options)
	dispatch func(*dispatch.Options) // of every replica
	accounts []string                // organizations that have the App; each has a repository app
}

func newWorld(t *testing.T, change ...func(*worldOptions)) *world {
	t.Helper()
	options := worldOptions{accounts: []string{"acme"}}
	for _, f := range change {
		f(&options)
	}
	w := &world{t: t, clock: newClock(), cluster: dispatchtest.NewCluster(), last: int64(100 + len(options.accounts))}
	w.url = postgrestest.NewDatabase(t, ledger.Migrate)
	var err error
	w.store, err = ledger.Open(t.Context(), w.url, 8)
	require.NoError(t, err)
	t.Cleanup(w.store.Close)
	w.startGitHub(options)
	w.forge = w.client(http.DefaultTransport)
	w.hooks = httptest.NewServer(http.HandlerFunc(w.takeHook))
	t.Cleanup(w.hooks.Close)
	w.pool("linux")
	w.serving = w.replica(options.dispatch)
	require.NoError(t, w.github.SetWebhook(w.hooks.URL+"/webhooks/github", hookSecret))
	for i := range options.accounts {
		require.NoError(t, w.github.Admin.Announce(t.Context(), int64(101+i)))
	}
	w.eventually("the accounts are known", func() bool {
		return w.count(`SELECT count(*) FROM accounts WHERE installation_id IS NOT NULL`) == int64(len(options.accounts))
	})
	return w
}

func (w *world) startGitHub(options worldOptions) {
	w.t.Helper()
	with := standin.Options{
		WebhookSecret: hookSecret, RunnerKeys: 1, OfflineAfter: time.Hour, Now: w.clock.Now, After: w.clock.After,
		Registration: standin.RateLimit{Limit: 1_000_000}, Core: standin.RateLimit{Limit: 1_000_000},
	}
	for i, login := range options.accounts {
		with.Installations = append(with.Installations, standin.Installation{ID: int64(101 + i), Account: login, Repositories: []string{"app"}})
	}
	if options.github != nil {
		options.github(&with)
	}
	var err error
	w.github, err = standin.Start(context.Background(), with)
	require.NoError(w.t, err)
	w.t.Cleanup(w.github.Close)
}

func (w *world) client(transport http.RoundTripper) *github.Client {
	w.t.Helper()
	made, err := github.New(github.Options{
		BaseURL: w.github.URL + "/api/v3", AppID: 1, PrivateKey: w.github.AppKeyPEM, Now: w.clock.Now, Transport: transport,
	})
	require.NoError(w.t, err)
	return made
}

// takeHook passes a webhook to the server that is up; without one GitHub meets what an ingress answers.
func (w *world) takeHook(answer http.ResponseWriter, r *http.Request) {
	w.mu.Lock()
	up := w.serving
	w.mu.Unlock()
	if w.accept.Load() {
		return
	}
	if up == nil {
		answer.WriteHeader(http.StatusBadGateway)
		return
	}
	up.public.ServeHTTP(answer, r)
}

// replica is one server.
type replica struct {
	dispatcher *dispatch.Dispatcher
	public     http.Handler
	internal   *httptest.Server
	metrics    *prometheus.Registry
	wires      []*rig.Wire
	end        context.CancelFunc
	running    sync.WaitGroup
}

// replica starts a server that can be killed.
func (w *world) replica(change func(*dispatch.Options)) *replica {
	w.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	database, url := rig.DatabaseWire(w.t, w.url)
	toGitHub := rig.NewWire(w.t, "tcp", strings.TrimPrefix(w.github.URL, "http://"))
	r := &replica{end: cancel, wires: []*rig.Wire{database, toGitHub}, metrics: prometheus.NewRegistry()}
	store, err := ledger.Open(ctx, url, 8)
	require.NoError(w.t, err)
	through := http.DefaultTransport.(*http.Transport).Clone()
	through.DialContext = func(ctx context.Context, network, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, network, toGitHub.Addr())
	}
	options := dispatch.Options{
		Store: store, Forge: w.client(through), Cluster: w.cluster, Metrics: r.metrics, Log: quiet,
		Now: w.clock.Now, After: w.clock.After, Jitter: func() float64 { return 0 },
	}
	if change != nil {
		change(&options)
	}
	r.dispatcher, err = dispatch.New(options)
	require.NoError(w.t, err)
	payloads, err := intake.New(intake.Options{Store: store, Log: quiet, Metrics: r.metrics})
	require.NoError(w.t, err)
	secrets, err := github.NewWebhookSecrets(hookSecret, "")
	require.NoError(w.t, err)
	handlers, err := server.New(server.Options{
		Dispatcher: r.dispatcher, Intake: payloads, Identities: identities{w.cluster}, WebhookSecrets: secrets, ControllerPrincipal: controller,
		Ready: store.Ping, Now: w.clock.Now, Log: quiet,
	})
	require.NoError(w.t, err)
	r.public = handlers.Public()
	r.internal = httptest.NewServer(handlers.Internal())
	r.running.Go(func() { _ = r.dispatcher.Run(ctx) })
	r.running.Go(func() { ledger.Listen(ctx, url, r.dispatcher, quiet) })
	w.cluster.Watch(r.dispatcher)
	w.mu.Lock()
	w.replicas = append(w.replicas, r)
	w.mu.Unlock()
	w.t.Cleanup(func() {
		r.kill()
		await.Return(w.t, r.running.Wait, "the replica ends")
		r.internal.Close()
		store.Close()
		through.CloseIdleConnections()
	})
	return r
}

// kill ends a server as kill -9 does: its clients find the connection broken, and nothing that it does from here on reaches
// them. It may be called twice.
func (r *replica) kill() {
	for _, wire := range r.wires {
		wire.Cut()
	}
	r.internal.CloseClientConnections()
	r.end()
}

// killServer kills the server that is up; newServer starts its successor.
func (w *world) killServer() {
	w.mu.Lock()
	up := w.serving
	w.serving = nil
	w.mu.Unlock()
	up.kill()
}

func (w *world) newServer(change ...func(*dispatch.Options)) *replica {
	w.t.Helper()
	r := w.replica(func(o *dispatch.Options) {
		for _, f := range change {
			f(o)
		}
	})
	w.mu.Lock()
	defer w.mu.Unlock()
	w.serving = r
	return r
}

func (w *world) up() *replica {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.serving
}

// RoundTrip brings a pod's request to the server that is up, as a Service does.
func (w *world) RoundTrip(r *http.Request) (*http.Response, error) {
	up := w.up()
	if up == nil {
		return nil, io.ErrUnexpectedEOF
	}
	r = r.Clone(r.Context())
	r.URL.Host = strings.TrimPrefix(up.internal.URL, "http://")
	return http.DefaultTransport.RoundTrip(r)
}

// pool makes a pool that serves its own name.
func (w *world) pool(name string) dispatch.PoolRef {
	pool := dispatch.Pool{
		Namespace: "runners", Name: name, Labels: []string{name}, Platform: fleet.Linux,
		Shape: fleet.Shape{MilliCPU: 1000, MemoryMB: 1024}, RunnerGroupID: 1,
	}
	w.cluster.PutPool(pool)
	return pool.Ref()
}

// run is a workflow run whose jobs run until they are released.
type run struct {
	w    *world
	jobs []int64
	gate string
	id   int64
}

const workflow = `
name: incident
on: workflow_dispatch
jobs:
  build:
    runs-on: %s
    strategy: {matrix: {n: [%s]}}
    steps: [{run: "until [ -e %s ]; do sleep 0.01; done"}]
`

// submit starts a run with that number of jobs for an account.
func (w *world) submit(account, label string, jobs int) *run {
	w.t.Helper()
	numbers := make([]string, jobs)
	for i := range numbers {
		numbers[i] = fmt.Sprint(i)
	}
	gate := filepath.Join(w.t.TempDir(), "go")
	runs, err := w.github.Admin.Submit(w.t.Context(), standin.Submission{
		FileName: "incident.yaml", Repo: account + "/app", Content: fmt.Sprintf(workflow, label, strings.Join(numbers, ","), gate),
	})
	require.NoError(w.t, err)
	require.Len(w.t, runs, 1)
	return &run{w: w, jobs: runs[0].Jobs, gate: gate, id: runs[0].ID}
}

// release lets the jobs end.
func (r *run) release() {
	r.w.t.Helper()
	touch(r.w.t, r.gate)
}

// known waits until the ledger has the jobs.
func (r *run) known() *run {
	r.w.t.Helper()
	r.w.eventually("the jobs are known", func() bool {
		return r.w.count(`SELECT count(*) FROM workflow_jobs WHERE id = ANY ($1)`, r.jobs) == int64(len(r.jobs))
	})
	return r
}

// succeed waits until all jobs have ended well, at GitHub and in the ledger.
func (r *run) succeed() {
	r.w.t.Helper()
	r.w.eventually("the jobs succeed", func() bool {
		for _, id := range r.jobs {
			if r.w.job(id).Conclusion != "success" || r.w.state(id) != fleet.JobCompleted {
				return false
			}
		}
		return true
	})
	for _, id := range r.jobs {
		require.Equal(r.w.t, 1, r.w.job(id).Acquisitions, "job %d ran once", id)
	}
}

// running waits until all jobs run, and the ledger knows on which runners.
func (r *run) running() {
	r.w.t.Helper()
	r.w.eventually("the jobs run", func() bool {
		for _, id := range r.jobs {
			if r.w.state(id) != fleet.JobExecuting {
				return false
			}
		}
		return true
	})
}

func (w *world) job(id int64) standin.JobView {
	w.t.Helper()
	view, err := w.github.Admin.Job(w.t.Context(), id)
	require.NoError(w.t, err)
	return view
}

func (w *world) state(id int64) fleet.JobState {
	w.t.Helper()
	state, err := w.store.JobState(w.t.Context(), id)
	require.NoError(w.t, err)
	return state
}

func (w *world) claim(p *pod) dispatch.Claim {
	w.t.Helper()
	claim, err := w.store.Claim(w.t.Context(), p.UID)
	require.NoError(w.t, err)
	return claim
}

func (w *world) fault(f standin.Fault) standin.Fault {
	w.t.Helper()
	added, err := w.github.Admin.AddFault(w.t.Context(), f)
	require.NoError(w.t, err)
	return added
}

// struck is how often a fault has struck.
func (w *world) struck(f standin.Fault) int {
	w.t.Helper()
	faults, err := w.github.Admin.Faults(w.t.Context())
	require.NoError(w.t, err)
	for _, other := range faults {
		if other.ID == f.ID {
			return other.Hits
		}
	}
	return 0
}

func (w *world) heal() {
	w.t.Helper()
	require.NoError(w.t, w.github.Admin.RemoveFault(w.t.Context(), 0))
}

func (w *world) runners() []standin.RunnerView {
	w.t.Helper()
	runners, err := w.github.Admin.Runners(w.t.Context())
	require.NoError(w.t, err)
	return runners
}

func (w *world) eventually(what string, check func() bool) {
	w.t.Helper()
	require.Eventually(w.t, check, patience, interval, what)
}

// uncharged are the runners that run a job at GitHub while no live claim stands for them: nothing protects their pods, and
// their accounts are not charged.
func (w *world) uncharged() []string {
	w.t.Helper()
	var found []string
	for _, runner := range w.runners() {
		uid, ours := runnerpod.PodUID(runner.Name)
		if !runner.Busy || !ours {
			continue
		}
		claim, err := w.store.Claim(w.t.Context(), uid)
		require.NoError(w.t, err)
		if !claim.State.Live() {
			found = append(found, runner.Name)
		}
	}
	return found
}

// leaked are the pods that carry an owner's label without a live claim: busy by their labels, and owned by none.
func (w *world) leaked() []string {
	w.t.Helper()
	var found []string
	for _, p := range w.cluster.Pods() {
		claim, err := w.store.Claim(w.t.Context(), p.UID)
		require.NoError(w.t, err)
		if p.OwnerLabel != "" && !claim.State.Live() {
			found = append(found, p.Name)
		}
	}
	return found
}
