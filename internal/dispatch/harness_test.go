package dispatch_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/internal/dispatch"
	"github.com/bullpen-ci/bullpen/internal/fleet"
	"github.com/bullpen-ci/bullpen/internal/postgres"
	"github.com/bullpen-ci/bullpen/internal/testkit/postgrestest"
)

func TestMain(m *testing.M) { postgrestest.Main(m) }

// harness is a real ledger with one or more replicas on it, a GitHub and a cluster in memory, and timers that fire
// only when a test says so.
type harness struct {
	t       *testing.T
	url     string
	store   *postgres.Store
	forge   *forge
	cluster *cluster
	timers  *timers
	seq     int64
}

var acme = dispatch.Account{ID: 1, Login: "acme", InstallationID: 101}

func newHarness(t *testing.T) *harness {
	t.Helper()
	url := postgrestest.NewDatabase(t, postgres.Migrate)
	store, err := postgres.Open(t.Context(), url, 0)
	require.NoError(t, err)
	t.Cleanup(store.Close)
	h := &harness{t: t, url: url, store: store, forge: newForge(), cluster: newCluster(), timers: &timers{}}
	h.install(acme)
	h.cluster.putPool(linuxPool("linux"))
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
	wg.Go(func() { postgres.Listen(ctx, h.url, listening, slog.New(slog.DiscardHandler)) })
	h.t.Cleanup(func() { cancel(); wg.Wait() })
	<-listening.ready
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
	h.cluster.putPod(pod)
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
		answer, err := d.Poll(ctx, pod)
		out <- polled{answer, err}
	}()
	return out
}

// served polls until there is a configuration, as the agent does.
func (h *harness) served(d *dispatch.Dispatcher, pod dispatch.Pod) dispatch.Answer {
	h.t.Helper()
	for range 20 {
		answer, err := d.Poll(h.t.Context(), pod)
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
	held, err := d.Acknowledge(h.t.Context(), pod, answer.Generation)
	require.NoError(h.t, err)
	require.True(h.t, held)
	h.forge.start(answer.JIT.Name)
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

// forge is a GitHub in memory: it removes what is idle and refuses what is busy.
type forge struct {
	mu      sync.Mutex
	nextID  int64
	runners map[string]*runner
	mints   int
	removed []string

	beforeMint func(name string)
	onMint     func(name string) error // an error after the effect, if any, that effect had
	refuse     error                   // a definite refusal of every mint
	unread     error                   // what every read answers
	removeErr  error
	onFind     func(ctx context.Context, name string)
	rate       *fleet.RateState // what is left of the budget of mints
}

type runner struct {
	id   int64
	busy bool
}

func newForge() *forge { return &forge{runners: map[string]*runner{}} }

func (f *forge) Mint(_ context.Context, _ int64, req fleet.MintRequest) (fleet.JIT, error) {
	f.mu.Lock()
	before := f.beforeMint
	f.mu.Unlock()
	if before != nil {
		before(req.Name)
	}
	f.mu.Lock()
	f.mints++
	if f.rate != nil {
		f.rate.Remaining--
	}
	if f.refuse != nil {
		defer f.mu.Unlock()
		return fleet.JIT{}, f.refuse
	}
	if _, taken := f.runners[req.Name]; taken {
		defer f.mu.Unlock()
		return fleet.JIT{}, fleet.ErrNameTaken
	}
	f.nextID++
	id := f.nextID
	f.runners[req.Name] = &runner{id: id}
	onMint := f.onMint
	f.mu.Unlock()
	if onMint != nil {
		if err := onMint(req.Name); err != nil {
			return fleet.JIT{}, err
		}
	}
	return fleet.JIT{RunnerID: id, Name: req.Name, Encoded: fleet.NewSecret("jit-of-" + req.Name)}, nil
}

func (f *forge) RemoveRunner(_ context.Context, _ int64, _ fleet.Scope, id int64) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.removeErr != nil {
		return f.removeErr
	}
	for name, r := range f.runners {
		if r.id == id {
			if r.busy {
				return fleet.ErrRunnerBusy
			}
			delete(f.runners, name)
			f.removed = append(f.removed, name)
			return nil
		}
	}
	return fleet.ErrNotFound
}

func (f *forge) FindRunner(ctx context.Context, _ int64, _ fleet.Scope, name string) (fleet.Registration, error) {
	f.mu.Lock()
	onFind := f.onFind
	f.mu.Unlock()
	if onFind != nil {
		onFind(ctx, name)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.unread != nil {
		return fleet.Registration{}, f.unread
	}
	r, ok := f.runners[name]
	if !ok {
		return fleet.Registration{}, fleet.ErrNotFound
	}
	return fleet.Registration{ID: r.id, Name: name, Busy: r.busy, Online: r.busy}, nil
}

func (f *forge) ControlRead(context.Context, int64, fleet.Scope) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.unread
}

func (f *forge) MintRate(installationID int64) (fleet.RateState, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.rate == nil || installationID != acme.InstallationID {
		return fleet.RateState{}, false
	}
	return *f.rate, true
}

func (f *forge) start(name string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.runners[name].busy = true
}

func (f *forge) set(change func(*forge)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change(f)
}

func (f *forge) alive() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	var names []string
	for name := range f.runners {
		names = append(names, name)
	}
	return names
}

func (f *forge) minted() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.mints
}

// cluster is what the watch shows, in memory.
type cluster struct {
	mu       sync.Mutex
	pools    map[dispatch.PoolRef]dispatch.Pool
	pods     map[string]dispatch.Pod
	stamps   []string
	stampErr error
	onStamp  func()
}

var errAPIServer = errors.New("the API server does not answer")

func newCluster() *cluster {
	return &cluster{pools: map[dispatch.PoolRef]dispatch.Pool{}, pods: map[string]dispatch.Pod{}}
}

func (c *cluster) putPool(p dispatch.Pool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.pools[p.Ref()] = p
}

func (c *cluster) putPod(p dispatch.Pod) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.pods[p.UID] = p
}

func (c *cluster) repair() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stampErr = nil
}

func (c *cluster) dropPod(p dispatch.Pod) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.pods, p.UID)
}

func (c *cluster) Pool(ref dispatch.PoolRef) (dispatch.Pool, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	p, ok := c.pools[ref]
	return p, ok
}

func (c *cluster) Pools() []dispatch.Pool {
	c.mu.Lock()
	defer c.mu.Unlock()
	var pools []dispatch.Pool
	for _, p := range c.pools {
		pools = append(pools, p)
	}
	return pools
}

func (c *cluster) Pod(uid string) (dispatch.Pod, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	p, ok := c.pods[uid]
	return p, ok
}

func (c *cluster) Pods() []dispatch.Pod {
	c.mu.Lock()
	defer c.mu.Unlock()
	var pods []dispatch.Pod
	for _, p := range c.pods {
		pods = append(pods, p)
	}
	return pods
}

func (c *cluster) StampOwner(_ context.Context, pod dispatch.Pod, login string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stamps = append(c.stamps, pod.UID+"="+login)
	if c.onStamp != nil {
		c.onStamp()
	}
	if c.stampErr != nil {
		return c.stampErr
	}
	p := c.pods[pod.UID]
	p.OwnerLabel = login
	c.pods[pod.UID] = p
	return nil
}

func (c *cluster) Gone(_ context.Context, _, _, uid string) (bool, error) {
	_, ok := c.Pod(uid)
	return !ok, nil
}

func (c *cluster) stamped() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]string(nil), c.stamps...)
}
