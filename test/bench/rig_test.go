package bench

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/bullpen-ci/bullpen/api/runnerapi"
	pgserver "github.com/bullpen-ci/bullpen/internal/dev/postgres"
	"github.com/bullpen-ci/bullpen/internal/fleet"
	"github.com/bullpen-ci/bullpen/internal/github"
	"github.com/bullpen-ci/bullpen/internal/server/cluster"
	"github.com/bullpen-ci/bullpen/internal/server/dispatch"
	"github.com/bullpen-ci/bullpen/internal/server/events/intake"
	server "github.com/bullpen-ci/bullpen/internal/server/http"
	postgres "github.com/bullpen-ci/bullpen/internal/server/ledger"
	"github.com/bullpen-ci/bullpen/test/kit/await"
)

const hookSecret = "bench"

var unlimited = fleet.Limits{MilliCPU: 1 << 40, MemoryMB: 1 << 40, Jobs: 1 << 40}

// database is one durable Postgres for the whole run: what a commit costs is the limit that the rows are held to.
var database *pgserver.Server

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	if url := os.Getenv(pollerEnv); url != "" {
		pollForever(url)
		return 0
	}
	ctrllog.SetLogger(logr.Discard()) // without one controller-runtime complains
	dir, err := os.MkdirTemp("", "bullpen-bench-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() { _ = os.RemoveAll(dir) }()
	if err := os.Chmod(dir, 0o711); err != nil { //nolint:gosec // Postgres runs as another user when we are root
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	database, err = pgserver.Start(context.Background(), pgserver.Options{Dir: dir + "/pg"})
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		return 1
	}
	defer func() { _ = database.Stop(context.Background()) }()
	code := m.Run()
	printTable()
	if err := writeResults(*resultsFile, time.Now()); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		return 1
	}
	return code
}

// rig is the real ledger, dispatcher, GitHub client and HTTP server. Kubernetes is in memory: what it costs is
// measured elsewhere, and a token review is remembered for a minute anyway.
type rig struct {
	tb         testing.TB
	store      *postgres.Store
	dispatcher *dispatch.Dispatcher
	public     *httptest.Server
	internal   *httptest.Server
	client     *http.Client
	url        string

	mu   sync.Mutex
	pods map[string]dispatch.Pod
	seq  int
}

// newDatabase makes an empty one, and returns its URL.
func newDatabase(tb testing.TB) string {
	tb.Helper()
	name := "bench_" + strings.ToLower(rand.Text()[:10])
	createDatabase(tb, name)
	return database.DatabaseURL(name)
}

func openStore(tb testing.TB) (*postgres.Store, string) {
	tb.Helper()
	url := newDatabase(tb)
	require.NoError(tb, postgres.Migrate(context.Background(), url))
	store, err := postgres.Open(context.Background(), url, 32)
	require.NoError(tb, err)
	tb.Cleanup(store.Close)
	return store, url
}

func newRig(tb testing.TB, forge dispatch.Forge) *rig {
	tb.Helper()
	store, url := openStore(tb)
	r := &rig{tb: tb, store: store, url: url, pods: map[string]dispatch.Pod{}}
	var err error
	r.dispatcher, err = dispatch.New(dispatch.Options{Store: store, Forge: forge, Cluster: r})
	require.NoError(tb, err)
	payloads, err := intake.New(intake.Options{Store: store})
	require.NoError(tb, err)
	secrets, err := github.NewWebhookSecrets(hookSecret, "")
	require.NoError(tb, err)
	srv, err := server.New(server.Options{
		Dispatcher: r.dispatcher, Intake: payloads, Identities: r, WebhookSecrets: secrets, ControllerPrincipal: "nobody",
		Ready: func(context.Context) error { return nil },
	})
	require.NoError(tb, err)
	r.public, r.internal = httptest.NewServer(srv.Public()), httptest.NewServer(srv.Internal())
	r.client = &http.Client{Timeout: 10 * time.Minute, Transport: &http.Transport{MaxIdleConnsPerHost: 4096}}
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { _ = r.dispatcher.Run(ctx) })
	wg.Go(func() { postgres.Listen(ctx, url, r.dispatcher, discard) })
	tb.Cleanup(func() {
		cancel()
		await.Return(tb, wg.Wait, "the server ends")
		r.client.CloseIdleConnections()
		r.public.Close()
		r.internal.Close()
	})
	return r
}

// Review takes a pod's UID for its token.
func (r *rig) Review(_ context.Context, token, _ string) (cluster.Identity, error) {
	return cluster.Identity{PodUID: token}, nil
}

func (r *rig) Runner(id cluster.Identity) (dispatch.Pod, bool) { return r.Pod(id.PodUID) }

func (r *rig) Pool(ref dispatch.PoolRef) (dispatch.Pool, bool) {
	return r.Pools()[0], ref.Name == "linux"
}

func (r *rig) Pools() []dispatch.Pool {
	return []dispatch.Pool{{
		Namespace: "runners", Name: "linux", Labels: []string{"linux-4cpu"}, Platform: fleet.Linux,
		Shape: fleet.Shape{MilliCPU: 4000, MemoryMB: 16384}, RunnerGroupID: 1,
	}}
}

func (r *rig) Pod(uid string) (dispatch.Pod, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	pod, ok := r.pods[uid]
	return pod, ok
}

func (r *rig) Pods() []dispatch.Pod                                             { return nil }
func (r *rig) StampOwner(context.Context, dispatch.Pod, dispatch.Account) error { return nil }
func (r *rig) NoteOwner(context.Context, dispatch.Pod, dispatch.Account) error  { return nil }
func (r *rig) Gone(context.Context, string, string, string) (bool, error)       { return false, nil }

func (r *rig) newPod() dispatch.Pod {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.seq++
	pod := dispatch.Pod{
		Namespace: "runners", Name: fmt.Sprintf("linux-%06d", r.seq), UID: uuid.NewString(),
		Pool: dispatch.PoolRef{Namespace: "runners", Name: "linux"},
	}
	r.pods[pod.UID] = pod
	return pod
}

func (r *rig) install(accounts ...dispatch.Account) {
	r.tb.Helper()
	for _, a := range accounts {
		_, err := r.store.RecordInstallation(context.Background(),
			dispatch.Delivery{GUID: uuid.NewString(), Event: "installation", At: time.Now()},
			dispatch.Installation{Action: "created", Account: a})
		require.NoError(r.tb, err)
		require.NoError(r.tb, r.store.SetLimits(context.Background(), a.ID, fleet.Linux, unlimited))
	}
}

// hook delivers a workflow_job webhook over HTTP, as GitHub does.
func (r *rig) hook(action string, job int64, account dispatch.Account, runner string) {
	body := fmt.Appendf(nil, `{"action":%q,"workflow_job":{"id":%d,"run_id":1,"run_attempt":1,"name":"build","labels":["linux-4cpu"],
		"runner_name":%q,"conclusion":"success","created_at":%q},"repository":{"id":3,"full_name":"%s/app",
		"owner":{"id":%d,"login":%q,"type":"Organization"}},"installation":{"id":%d}}`,
		action, job, runner, time.Now().UTC().Format(time.RFC3339), account.Login, account.ID, account.Login, account.InstallationID)
	req, err := http.NewRequest(http.MethodPost, r.public.URL+"/webhooks/github", bytes.NewReader(body))
	require.NoError(r.tb, err)
	req.Header.Set(github.HeaderEvent, "workflow_job")
	req.Header.Set(github.HeaderDelivery, uuid.NewString())
	req.Header.Set(github.HeaderSignature, github.Sign(hookSecret, body))
	resp, err := r.client.Do(req)
	require.NoError(r.tb, err)
	_, _ = io.Copy(io.Discard, resp.Body)
	require.NoError(r.tb, resp.Body.Close())
	require.Equal(r.tb, http.StatusOK, resp.StatusCode)
}

// jit is a configuration in an agent's hands.
type jit struct {
	pod dispatch.Pod
	runnerapi.Dispatch
	at time.Time
}

// agent polls for one pod over HTTP until it has its configuration or ctx ends.
func (r *rig) agent(ctx context.Context, pod dispatch.Pod, out chan<- jit) {
	for ctx.Err() == nil {
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, r.internal.URL+runnerapi.PathDispatch, strings.NewReader("{}"))
		if err != nil {
			return
		}
		req.Header.Set("Authorization", "Bearer "+pod.UID)
		resp, err := r.client.Do(req)
		if err != nil {
			continue
		}
		got := jit{pod: pod}
		ok := resp.StatusCode == http.StatusOK && json.NewDecoder(resp.Body).Decode(&got.Dispatch) == nil
		got.at = time.Now()
		_ = resp.Body.Close()
		if ok {
			out <- got
			return
		}
	}
}
