package dispatch_test

import (
	"cmp"
	"context"
	"crypto/rand"
	"flag"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/bullpen-ci/bullpen/internal/fleet"
	"github.com/bullpen-ci/bullpen/internal/server/dispatch"
	postgres "github.com/bullpen-ci/bullpen/internal/server/ledger"
	"github.com/bullpen-ci/bullpen/test/kit/await"
	"github.com/bullpen-ci/bullpen/test/kit/dispatchtest"
	"github.com/bullpen-ci/bullpen/test/kit/postgrestest"
)

func TestMain(m *testing.M) { postgrestest.Main(m) }

// harness is a real ledger with one or more replicas on it, a GitHub and a cluster in memory, and timers that fire
// only when a test says so.
type harness struct {
	t       *testing.T
	url     string
	store   *postgres.Store
	forge   *dispatchtest.GitHub
	cluster *dispatchtest.Cluster
	timers  *timers
	seq     int64
	listen  postgres.Listening // how replicas listen; its URL is the ledger's if it has none
}

// checkOnLedger is rapid.Check with fewer histories than usual, unless the command line sets their number: each is hundreds of statements,
// and a removed guard is found within the first twenty.
func checkOnLedger(t *testing.T, property func(*rapid.T)) {
	t.Helper()
	checks := flag.Lookup("rapid.checks")
	if checks.Value.String() == checks.DefValue {
		require.NoError(t, checks.Value.Set("25"))
		defer func() { _ = checks.Value.Set(checks.DefValue) }()
	}
	rapid.Check(t, property)
}

var acme = dispatch.Account{ID: 1, Login: "acme", InstallationID: 101}

// newGitHub is a GitHub whose one installation is acme's.
func newGitHub() *dispatchtest.GitHub {
	return dispatchtest.NewGitHub(fleet.Owner{ID: acme.ID, Login: acme.Login, InstallationID: acme.InstallationID})
}

func newHarness(t *testing.T) *harness {
	t.Helper()
	url := postgrestest.NewDatabase(t, postgres.Migrate)
	store, err := postgres.Open(t.Context(), url, 0)
	require.NoError(t, err)
	t.Cleanup(store.Close)
	store.UseRepositoryCaps()
	h := &harness{t: t, url: url, store: store, forge: newGitHub(), cluster: dispatchtest.NewCluster(), timers: &timers{}}
	h.install(acme)
	h.cluster.PutPool(linuxPool("linux"))
	return h
}

func linuxPool(name string, labels ...string) dispatch.Pool {
	if len(labels) == 0 {
		labels = []string{name}
	}
	return dispatch.Pool{
		Namespace: "runners", Name: name, Labels: labels, Platform: fleet.Linux,
		Shape: fleet.Shape{MilliCPU: 1000, MemoryMB: 1024}, RunnerGroupID: 1,
	}
}

// replica starts a dispatcher with its own LISTEN connection and stops both at the test's end.
func (h *harness) replica(change ...func(*dispatch.Options)) *dispatch.Dispatcher {
	h.t.Helper()
	opt := dispatch.Options{
		Store: h.store, Forge: h.forge, Cluster: h.cluster, After: h.timers.after,
		Jitter: func() float64 { return 0 }, Log: slog.New(slog.DiscardHandler),
	}
	for _, f := range change {
		f(&opt)
	}
	d, err := dispatch.New(opt)
	require.NoError(h.t, err)
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { _ = d.Run(ctx) })
	listening := &listening{Dispatcher: d, ready: make(chan struct{})}
	ear := h.listen
	ear.URL, ear.Listener, ear.Log = cmp.Or(ear.URL, h.url), listening, slog.New(slog.DiscardHandler)
	wg.Go(func() { ear.Run(ctx) })
	h.t.Cleanup(func() { cancel(); await.Return(h.t, wg.Wait, "the replica stops") })
	await.Receive(h.t, listening.ready, "the replica listens")
	return d
}

// listening tells when the LISTEN connection stands: nothing notified before is heard.
type listening struct {
	*dispatch.Dispatcher
	once  sync.Once
	ready chan struct{}
}

func (l *listening) Reconnected() {
	l.once.Do(func() { close(l.ready) })
	l.Dispatcher.Reconnected()
}

func (h *harness) install(a dispatch.Account) {
	h.t.Helper()
	_, err := h.store.RecordInstallation(h.t.Context(), h.delivery("installation"),
		dispatch.Installation{Action: "created", Account: a})
	require.NoError(h.t, err)
}

func (h *harness) delivery(event string) dispatch.Delivery {
	h.seq++
	return dispatch.Delivery{GUID: fmt.Sprintf("guid-%d", h.seq), Event: event, At: time.Now()}
}

// job makes an event of a job that asks for the pool "linux" unless labels say otherwise.
func job(kind fleet.JobEvent, id int64, change ...func(*dispatch.JobEvent)) dispatch.JobEvent {
	ev := dispatch.JobEvent{
		Kind: kind, Account: acme, JobID: id, Repository: "acme/app", RunID: 1, RunAttempt: 1, Name: "build",
		Workflow: "ci", HeadBranch: "main", HeadSHA: "abc", Labels: []string{"linux"},
		QueuedAt: time.Unix(1_700_000_000+id, 0), // older ids queue first
	}
	if kind == fleet.JobEventCompleted {
		ev.Conclusion = "success"
	}
	if kind == fleet.JobEventCancelled {
		ev.Conclusion = "cancelled"
	}
	for _, f := range change {
		f(&ev)
	}
	return ev
}

func by(runner string) func(*dispatch.JobEvent) {
	return func(ev *dispatch.JobEvent) { ev.RunnerName = runner }
}

func from(a dispatch.Account) func(*dispatch.JobEvent) {
	return func(ev *dispatch.JobEvent) { ev.Account = a; ev.Repository = a.Login + "/app" }
}

func labelled(labels ...string) func(*dispatch.JobEvent) {
	return func(ev *dispatch.JobEvent) { ev.Labels = labels }
}

func (h *harness) record(ev dispatch.JobEvent) dispatch.Recorded {
	h.t.Helper()
	rec, err := h.store.RecordJob(h.t.Context(), h.delivery("workflow_job"), ev)
	require.NoError(h.t, err)
	return rec
}

func (h *harness) queue(ids ...int64) {
	h.t.Helper()
	for _, id := range ids {
		h.record(job(fleet.JobEventQueued, id))
	}
}

func (h *harness) pod(pool string) dispatch.Pod {
	name := pool + "-" + strings.ToLower(rand.Text()[:8])
	pod := dispatch.Pod{
		Namespace: "runners", Name: name, UID: uuid.NewString(), Pool: dispatch.PoolRef{Namespace: "runners", Name: pool},
	}
	h.cluster.PutPod(pod)
	return pod
}

type polled struct {
	answer dispatch.Answer
	err    error
}

// poll starts a poll; the channel gives its answer.
func (h *harness) poll(ctx context.Context, d *dispatch.Dispatcher, pod dispatch.Pod) <-chan polled {
	out := make(chan polled, 1)
	go func() {
		answer, err := d.Poll(ctx, pod, 0)
		out <- polled{answer, err}
	}()
	return out
}

// served polls until there is a configuration, as the agent does.
func (h *harness) served(d *dispatch.Dispatcher, pod dispatch.Pod) dispatch.Answer {
	h.t.Helper()
	for range 20 {
		answer, err := d.Poll(await.Context(h.t), pod, 0)
		require.NoError(h.t, err)
		if answer.Reply == dispatch.ReplyServe {
			return answer
		}
		require.NotEqual(h.t, dispatch.ReplyGone, answer.Reply, "the pod was sent away")
	}
	h.t.Fatal("the pod was never served")
	return dispatch.Answer{}
}

// started serves a pod, acknowledges, and lets GitHub start the job on it.
func (h *harness) started(d *dispatch.Dispatcher, pod dispatch.Pod, jobID int64) dispatch.Answer {
	h.t.Helper()
	answer := h.served(d, pod)
	won, err := d.Acknowledge(h.t.Context(), pod, answer.Generation)
	require.NoError(h.t, err)
	require.True(h.t, won)
	d.Label(h.t.Context(), pod)
	h.forge.Start(answer.JIT.Name, 0)
	h.record(job(fleet.JobEventStarted, jobID, by(answer.JIT.Name)))
	return answer
}

func (h *harness) claim(pod dispatch.Pod) dispatch.Claim {
	h.t.Helper()
	c, err := h.store.Claim(h.t.Context(), pod.UID)
	require.NoError(h.t, err)
	return c
}

func (h *harness) jobState(id int64) fleet.JobState {
	h.t.Helper()
	state, err := h.store.JobState(h.t.Context(), id)
	require.NoError(h.t, err)
	return state
}

func (h *harness) eventually(what string, check func() bool) {
	h.t.Helper()
	require.Eventually(h.t, check, 10*time.Second, 2*time.Millisecond, what)
}

// timers hands out channels that fire when a test says so.
type timers struct {
	mu      sync.Mutex
	pending []timer
}

type timer struct {
	d  time.Duration
	ch chan time.Time
}

func (ts *timers) after(d time.Duration) <-chan time.Time {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	ch := make(chan time.Time, 1)
	ts.pending = append(ts.pending, timer{d, ch})
	return ch
}

// fire ends every pending wait of at least that long... and none shorter.
func (ts *timers) fire(d time.Duration) (fired int) {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	left := ts.pending[:0]
	for _, t := range ts.pending {
		if t.d != d {
			left = append(left, t)
			continue
		}
		t.ch <- time.Now()
		fired++
	}
	ts.pending = left
	return fired
}
