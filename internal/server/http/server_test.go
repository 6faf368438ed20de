package http_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/api/runnerapi"
	"github.com/bullpen-ci/bullpen/internal/fleet"
	"github.com/bullpen-ci/bullpen/internal/github"
	"github.com/bullpen-ci/bullpen/internal/server/cluster"
	"github.com/bullpen-ci/bullpen/internal/server/dispatch"
	"github.com/bullpen-ci/bullpen/internal/server/events/intake"
	server "github.com/bullpen-ci/bullpen/internal/server/http"
	"github.com/bullpen-ci/bullpen/internal/server/ledger"
	"github.com/bullpen-ci/bullpen/test/kit/await"
	"github.com/bullpen-ci/bullpen/test/kit/dispatchtest"
	"github.com/bullpen-ci/bullpen/test/kit/postgrestest"
)

func TestMain(m *testing.M) { postgrestest.Main(m) }

const (
	secret    = "s3cret"
	principal = "system:serviceaccount:bullpen-system:bullpen-controller"
)

// world is a server on a real ledger, with tokens and pods that the test makes up.
type world struct {
	t      *testing.T
	url    string // the ledger's
	store  *ledger.Store
	intake *failingStore

	dispatcher *dispatch.Dispatcher

	tokens    map[string]token
	pods      map[string]dispatch.Pod
	hold      chan time.Time
	gate      gate
	labelling chan struct{} // labels are written once it is closed; nil: at once
	log       lockedBuffer

	public, internal *httptest.Server
	unready          error
	stopped          atomic.Pointer[time.Time] // the server's clock; nil: it runs

	secrets *github.WebhookSecrets
	metrics *prometheus.Registry
}

type token struct {
	audience string
	id       cluster.Identity
}

func newWorld(t *testing.T) *world {
	t.Helper()
	url := postgrestest.NewDatabase(t, ledger.Migrate)
	store, err := ledger.Open(t.Context(), url, 0)
	require.NoError(t, err)
	t.Cleanup(store.Close)
	w := &world{
		t: t, url: url, store: store, intake: &failingStore{IntakeStore: store}, tokens: map[string]token{},
		pods: map[string]dispatch.Pod{}, hold: make(chan time.Time),
	}
	log := slog.New(slog.NewJSONHandler(&w.log, nil))
	d, err := dispatch.New(dispatch.Options{
		Store: store, Forge: dispatchtest.InstantGitHub{}, Cluster: w, Log: log, Gate: &w.gate,
		After: func(time.Duration) <-chan time.Time { return w.hold },
	})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { _ = d.Run(ctx) })
	t.Cleanup(func() { cancel(); await.Return(t, wg.Wait, "the server stops") })
	payloads, err := intake.New(intake.Options{Store: w.intake, Log: log})
	require.NoError(t, err)
	w.dispatcher, w.metrics = d, prometheus.NewRegistry()
	w.secrets, err = github.NewWebhookSecrets(secret, "")
	require.NoError(t, err)
	srv, err := server.New(server.Options{
		Dispatcher: d, Intake: payloads, Identities: w, WebhookSecrets: w.secrets, ControllerPrincipal: principal, Log: log, Metrics: w.metrics,
		Ready: func(context.Context) error { return w.unready }, Now: w.now,
	})
	require.NoError(t, err)
	w.public, w.internal = httptest.NewServer(srv.Public()), httptest.NewServer(srv.Internal())
	t.Cleanup(w.public.Close)
	t.Cleanup(w.internal.Close)
	w.tokens["controller"] = token{runnerapi.AudienceServer, cluster.Identity{Username: principal}}
	return w
}

func (w *world) now() time.Time {
	if at := w.stopped.Load(); at != nil {
		return *at
	}
	return time.Now()
}

// lockedBuffer is written to by parts that continue while it is read.
type lockedBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// failingStore is the ledger with a transaction that can be made to fail.
type failingStore struct {
	dispatch.IntakeStore
	err error
}

func (f *failingStore) RecordJob(ctx context.Context, d dispatch.Delivery, ev dispatch.JobEvent) (dispatch.Recorded, error) {
	if f.err != nil {
		return dispatch.Recorded{}, f.err
	}
	return f.IntakeStore.RecordJob(ctx, d, ev)
}

func (w *world) Review(_ context.Context, text, audience string) (cluster.Identity, error) {
	t, ok := w.tokens[text]
	if !ok || t.audience != audience {
		return cluster.Identity{}, cluster.ErrRejected
	}
	return t.id, nil
}

func (w *world) Runner(id cluster.Identity) (dispatch.Pod, bool) {
	pod, ok := w.pods[id.PodUID]
	return pod, ok
}

func (w *world) Pool(ref dispatch.PoolRef) (dispatch.Pool, bool) {
	for _, p := range w.Pools() {
		if p.Ref() == ref {
			return p, true
		}
	}
	return dispatch.Pool{}, false
}

func (w *world) Pools() []dispatch.Pool {
	return []dispatch.Pool{{
		Namespace: "runners", Name: "linux", Labels: []string{"linux-4cpu"}, Platform: fleet.Linux,
		Shape: fleet.Shape{MilliCPU: 1000, MemoryMB: 1024},
	}}
}
func (w *world) Pod(uid string) (dispatch.Pod, bool) { p, ok := w.pods[uid]; return p, ok }
func (w *world) Pods() []dispatch.Pod                { return nil }
func (w *world) StampOwner(context.Context, dispatch.Pod, dispatch.Account) error {
	if w.labelling != nil {
		await.OrEnd(w.t, w.labelling)
	}
	return nil
}
func (w *world) NoteOwner(context.Context, dispatch.Pod, dispatch.Account) error { return nil }
func (w *world) Gone(context.Context, string, string, string) (bool, error)      { return false, nil }

func (w *world) pod(name string) dispatch.Pod {
	pod := dispatch.Pod{
		Namespace: "runners", Name: name, UID: uuid.NewString(), Pool: dispatch.PoolRef{Namespace: "runners", Name: "linux"},
	}
	w.pods[pod.UID] = pod
	w.tokens["token-of-"+name] = token{runnerapi.AudienceDispatch, cluster.Identity{
		Username: "system:serviceaccount:runners:" + name, PodName: name, PodUID: pod.UID,
	}}
	return pod
}

func (w *world) call(base, path, bearer string, body any) (int, string) {
	w.t.Helper()
	raw, err := json.Marshal(body)
	require.NoError(w.t, err)
	req, err := http.NewRequestWithContext(w.t.Context(), http.MethodPost, base+path, bytes.NewReader(raw))
	require.NoError(w.t, err)
	if bearer != "" {
		req.Header.Set("Authorization", "Bearer "+bearer)
	}
	return w.do(req)
}

func (w *world) do(req *http.Request) (int, string) {
	w.t.Helper()
	resp, err := await.HTTP.Do(req)
	require.NoError(w.t, err)
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	require.NoError(w.t, err)
	return resp.StatusCode, string(text)
}

func (w *world) hook(event, body string, change ...func(*http.Request)) (int, string) {
	w.t.Helper()
	req, err := http.NewRequestWithContext(w.t.Context(), http.MethodPost, w.public.URL+"/webhooks/github", strings.NewReader(body))
	require.NoError(w.t, err)
	req.Header.Set(github.HeaderEvent, event)
	req.Header.Set(github.HeaderDelivery, uuid.NewString())
	req.Header.Set(github.HeaderSignature, github.Sign(secret, []byte(body)))
	for _, f := range change {
		f(req)
	}
	return w.do(req)
}

func queued(id int64) string {
	return fmt.Sprintf(`{"action":"queued","workflow_job":{"id":%d,"run_id":1,"name":"build","labels":["linux-4cpu"],
		"created_at":"2026-01-02T03:04:05Z"},"repository":{"id":3,"full_name":"acme/app",
		"owner":{"id":1,"login":"acme","type":"Organization"}},"installation":{"id":101}}`, id)
}

func (w *world) state(id int64) fleet.JobState {
	w.t.Helper()
	state, err := w.store.JobState(w.t.Context(), id)
	require.NoError(w.t, err)
	return state
}

// CLAIM-7: the number of a request is read, and one that is read too late is sent back.
func TestDispatch_CLAIM7_AnEarlierRequestTakesNothingOver(t *testing.T) {
	w := newWorld(t)
	status, _ := w.hook("workflow_job", queued(1))
	require.Equal(t, http.StatusOK, status)
	pod := w.pod("linux-a")
	ask := func(sequence int64) int {
		status, _ := w.call(w.internal.URL, runnerapi.PathDispatch, "token-of-"+pod.Name, runnerapi.Poll{Sequence: sequence})
		return status
	}
	require.Equal(t, http.StatusOK, ask(6))
	require.Equal(t, http.StatusServiceUnavailable, ask(5))
	require.Equal(t, http.StatusOK, ask(7))
	status, _ = w.call(w.internal.URL, runnerapi.PathDispatch, "token-of-"+pod.Name, "not an object")
	require.Equal(t, http.StatusBadRequest, status)
}

// NET-3, NET-4: the identity is read from the token alone; nothing in the request makes it another pod or
// pool.
func TestDispatch_NET4_IdentityComesFromTheTokenAlone(t *testing.T) {
	w := newWorld(t)
	status, _ := w.hook("workflow_job", queued(1))
	require.Equal(t, http.StatusOK, status)
	mine, other := w.pod("linux-mine"), w.pod("linux-other")

	for name, bearer := range map[string]string{"no token": "", "unknown": "made-up", "wrong audience": "controller"} {
		status, text := w.call(w.internal.URL, runnerapi.PathDispatch, bearer, struct{}{})
		require.Equal(t, http.StatusUnauthorized, status, "%s: %s", name, text)
	}
	w.tokens["unbound"] = token{runnerapi.AudienceDispatch, cluster.Identity{Username: "system:serviceaccount:runners:x"}}
	status, _ = w.call(w.internal.URL, runnerapi.PathDispatch, "unbound", struct{}{})
	require.Equal(t, http.StatusForbidden, status)
	require.Equal(t, fleet.JobQueued, w.state(1))

	status, text := w.call(w.internal.URL, runnerapi.PathDispatch, "token-of-linux-mine",
		map[string]string{"pod": other.Name, "pod_uid": other.UID, "pool": "another"})
	require.Equal(t, http.StatusOK, status, text)
	claim, err := w.store.Claim(t.Context(), mine.UID)
	require.NoError(t, err)
	require.Equal(t, fleet.ClaimMinted, claim.State)
	claim, err = w.store.Claim(t.Context(), other.UID)
	require.NoError(t, err)
	require.Equal(t, fleet.ClaimNone, claim.State, "another pod's token never claims for this pod")

	var served runnerapi.Dispatch
	require.NoError(t, json.Unmarshal([]byte(text), &served))
	require.Equal(t, dispatchtest.InstantJIT, served.JITConfig)
	status, _ = w.call(w.internal.URL, runnerapi.PathAcknowledge, "token-of-linux-other", runnerapi.Acknowledge{Generation: served.Generation})
	require.Equal(t, http.StatusConflict, status)
	status, _ = w.call(w.internal.URL, runnerapi.PathAcknowledge, "token-of-linux-mine", runnerapi.Acknowledge{Generation: served.Generation})
	require.Equal(t, http.StatusOK, status)
	status, _ = w.call(w.internal.URL, runnerapi.PathDispatch, "token-of-linux-mine", struct{}{})
	require.Equal(t, http.StatusGone, status)
	require.NotContains(t, w.log.String(), dispatchtest.InstantJIT, "NET-3")
	require.NotContains(t, w.log.String(), "token-of-", "NET-3")
}

// TEN-8: the pod learns at once that its acknowledgement is recorded, and that it may start its runner when its label is written.
func TestAcknowledge_TEN8_TheAnswerEndsWithTheLabel(t *testing.T) {
	w := newWorld(t)
	w.labelling = make(chan struct{})
	status, _ := w.hook("workflow_job", queued(1))
	require.Equal(t, http.StatusOK, status)
	pod := w.pod("linux-mine")
	status, text := w.call(w.internal.URL, runnerapi.PathDispatch, "token-of-linux-mine", struct{}{})
	require.Equal(t, http.StatusOK, status, text)
	var served runnerapi.Dispatch
	require.NoError(t, json.Unmarshal([]byte(text), &served))

	raw, err := json.Marshal(runnerapi.Acknowledge{Generation: served.Generation})
	require.NoError(t, err)
	req, err := http.NewRequestWithContext(await.Context(t), http.MethodPost, w.internal.URL+runnerapi.PathAcknowledge, bytes.NewReader(raw))
	require.NoError(t, err)
	req.Header.Set("Authorization", "Bearer token-of-linux-mine")
	answer, err := await.HTTP.Do(req) // returns with the status
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, answer.StatusCode)
	claim, err := w.store.Claim(t.Context(), pod.UID)
	require.NoError(t, err)
	require.True(t, claim.Acknowledged)
	ended := make(chan error, 1)
	go func() { _, err := io.Copy(io.Discard, answer.Body); ended <- err }()
	require.Empty(t, ended, "the runner would start before its label is written")
	close(w.labelling)
	require.NoError(t, await.Receive(t, ended, "the answer ends"))
	require.NoError(t, answer.Body.Close())
}

// NET-5: retire and pods/stopped are for exactly the controller's principal.
func TestInternal_NET5_OnlyTheControllersPrincipal(t *testing.T) {
	w := newWorld(t)
	pod := w.pod("linux-a")
	retire := runnerapi.RetireRequest{Pods: []runnerapi.PodRef{{Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID, Pool: "linux"}}}
	stopped := runnerapi.PodStopped{Pod: retire.Pods[0], EndedAt: time.Now()}
	w.tokens["somebody"] = token{runnerapi.AudienceServer, cluster.Identity{Username: principal + "-2"}}
	for bearer, want := range map[string]int{
		"": http.StatusUnauthorized, "token-of-linux-a": http.StatusUnauthorized, "somebody": http.StatusForbidden,
	} {
		for path, body := range map[string]any{runnerapi.PathRetire: retire, runnerapi.PathPodsStopped: stopped} {
			status, _ := w.call(w.internal.URL, path, bearer, body)
			require.Equal(t, want, status, "%s as %q", path, bearer)
		}
	}
	claim, err := w.store.Claim(t.Context(), pod.UID)
	require.NoError(t, err)
	require.Equal(t, fleet.ClaimNone, claim.State)

	status, text := w.call(w.internal.URL, runnerapi.PathRetire, "controller", retire)
	require.Equal(t, http.StatusOK, status, text)
	require.Contains(t, text, `"granted"`)
	status, _ = w.call(w.internal.URL, runnerapi.PathPodsStopped, "controller", stopped)
	require.Equal(t, http.StatusNoContent, status)
	status, _ = w.call(w.internal.URL, runnerapi.PathRetire, "controller", runnerapi.RetireRequest{Pods: []runnerapi.PodRef{{Name: "x"}}})
	require.Equal(t, http.StatusBadRequest, status)
	status, _ = w.call(w.internal.URL, runnerapi.PathRetire, "controller", "junk")
	require.Equal(t, http.StatusBadRequest, status)
}

func (w *world) get(path, bearer string) (int, string) {
	w.t.Helper()
	req, err := http.NewRequestWithContext(w.t.Context(), http.MethodGet, w.internal.URL+path, nil)
	require.NoError(w.t, err)
	if bearer != "" {
		req.Header.Set("Authorization", "Bearer "+bearer)
	}
	return w.do(req)
}

// NET-5: only the controller's principal gets the demand, for the asking alone.
func TestSignals_NET5_OnlyTheControllersPrincipal(t *testing.T) {
	w := newWorld(t)
	status, _ := w.hook("workflow_job", queued(1))
	require.Equal(t, http.StatusOK, status)
	w.pod("linux-a")
	w.tokens["somebody"] = token{runnerapi.AudienceServer, cluster.Identity{Username: principal + "-2"}}
	for bearer, want := range map[string]int{
		"": http.StatusUnauthorized, "token-of-linux-a": http.StatusUnauthorized, "somebody": http.StatusForbidden,
	} {
		status, text := w.get(runnerapi.PathSignals, bearer)
		require.Equal(t, want, status, "as %q", bearer)
		require.NotContains(t, text, "pools", "as %q", bearer)
	}
	status, _ = w.call(w.internal.URL, runnerapi.PathSignals, "controller", struct{}{})
	require.Equal(t, http.StatusMethodNotAllowed, status)

	status, text := w.get(runnerapi.PathSignals, "controller")
	require.Equal(t, http.StatusOK, status, text)
	var signals runnerapi.Signals
	require.NoError(t, json.Unmarshal([]byte(text), &signals))
	require.WithinDuration(t, time.Now(), signals.At, time.Minute)
	require.Len(t, signals.Pools, 1)
	require.Equal(t, "linux", signals.Pools[0].Name)
	require.Equal(t, 1, signals.Pools[0].Queued)
}

// POOL-8: what cannot be read whole is answered 503 with a sentence, never as less demand than there is.
func TestSignals_POOL8_NothingIsKnownOrEverything(t *testing.T) {
	w := newWorld(t)
	w.unready = errors.New("the watch has not delivered its first list yet")
	status, text := w.get(runnerapi.PathSignals, "controller")
	require.Equal(t, http.StatusServiceUnavailable, status)
	require.Contains(t, text, "first list")
	w.unready = nil
	w.store.Close()
	status, text = w.get(runnerapi.PathSignals, "controller")
	require.Equal(t, http.StatusServiceUnavailable, status)
	require.Contains(t, text, "demand is unknown")
	require.NotContains(t, text, "closed pool", "the cause is for the log")
	require.Contains(t, w.log.String(), "closed pool")
	require.NotContains(t, text, "pools\"")
}

func TestPublic_ServesNothingInternal(t *testing.T) {
	w := newWorld(t)
	w.pod("linux-a")
	status, _ := w.call(w.public.URL, runnerapi.PathDispatch, "token-of-linux-a", struct{}{})
	require.Equal(t, http.StatusNotFound, status)
}
