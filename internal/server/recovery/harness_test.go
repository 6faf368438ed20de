package recovery_test

import (
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/internal/dev/github/standin"
	devrunner "github.com/bullpen-ci/bullpen/internal/dev/runner"
	"github.com/bullpen-ci/bullpen/internal/fleet"
	"github.com/bullpen-ci/bullpen/internal/github"
	"github.com/bullpen-ci/bullpen/internal/server/admin"
	"github.com/bullpen-ci/bullpen/internal/server/dispatch"
	"github.com/bullpen-ci/bullpen/internal/server/events/intake"
	"github.com/bullpen-ci/bullpen/internal/server/events/roster"
	"github.com/bullpen-ci/bullpen/internal/server/ledger"
	"github.com/bullpen-ci/bullpen/internal/server/recovery"
	"github.com/bullpen-ci/bullpen/test/kit/await"
	"github.com/bullpen-ci/bullpen/test/kit/postgrestest"
)

func TestMain(m *testing.M) { postgrestest.Main(m) }

const patience = recovery.DefaultPatience

// world is a real ledger and a dispatcher on it, a GitHub that runs in the process with real runners, a cluster in memory,
// and a clock that a test moves.
type world struct {
	t        *testing.T
	url      string
	store    *ledger.Store
	gh       *standin.Local
	forge    *github.Client
	cluster  *cluster
	d        *dispatch.Dispatcher
	lists    *roster.Reader
	r        *recovery.Recovery
	registry *prometheus.Registry
	log      *lockedLog

	mu   sync.Mutex
	now  time.Time
	real func() time.Time         // instead of now: the database's time, as a server knows it
	lose func(action string) bool // which webhooks never arrive

	installed atomic.Int64 // events of installations that were taken

	others []standin.Installation // besides acme's
}

type option func(*recovery.Options)

func newWorld(t *testing.T, options ...option) *world {
	t.Helper()
	w := openWorld(t)
	w.start(options...)
	return w
}

// openWorld has a database, and nothing that runs.
func openWorld(t *testing.T) *world {
	t.Helper()
	w := &world{
		t: t, url: postgrestest.NewDatabase(t, ledger.Migrate), cluster: newCluster(), registry: prometheus.NewRegistry(),
		now: time.Now().Truncate(time.Microsecond), log: &lockedLog{},
	}
	var err error
	w.store, err = ledger.Open(t.Context(), w.url, 0)
	require.NoError(t, err)
	t.Cleanup(w.store.Close)
	return w
}

func (w *world) start(options ...option) {
	t := w.t
	t.Helper()
	w.cluster.putPool(dispatch.Pool{
		Namespace: "runners", Name: "linux", Labels: []string{"linux"}, Platform: fleet.Linux,
		Shape: fleet.Shape{MilliCPU: 1000, MemoryMB: 1024}, RunnerGroupID: 1,
	})
	w.startGitHub()
	log := slog.New(slog.NewTextHandler(w.log, nil))
	lists, err := roster.New(roster.Options{Forge: w.forge, Ledger: w.store, Now: w.clock, Log: log})
	require.NoError(t, err)
	w.d, err = dispatch.New(dispatch.Options{
		Store: w.store, Forge: w.forge, Cluster: w.cluster, Roster: lists, Log: log, Now: w.clock, Jitter: func() float64 { return 0 },
	})
	require.NoError(t, err)
	w.lists = lists
	w.r = w.recovery(w.clock, options...)
	ctx, cancel := context.WithCancel(context.Background())
	var parts sync.WaitGroup
	parts.Go(func() { _ = w.d.Run(ctx) })
	parts.Go(func() { ledger.Listen(ctx, w.url, w.d, slog.New(slog.DiscardHandler)) })
	t.Cleanup(func() { cancel(); await.Return(w.t, parts.Wait, "the parts stop") })
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(w.log.String())
		}
	})
}

// recovery is that of a replica which takes this for the time.
func (w *world) recovery(now func() time.Time, options ...option) *recovery.Recovery {
	w.t.Helper()
	opt := recovery.Options{
		Ledger: w.store, Cluster: w.cluster, GitHub: w.forge, Claims: w.d, Roster: w.lists, Log: slog.New(slog.NewTextHandler(w.log, nil)),
		Metrics: w.registry, Now: now,
	}
	for _, change := range options {
		change(&opt)
	}
	r, err := recovery.New(opt)
	require.NoError(w.t, err)
	return r
}

func (w *world) startGitHub() {
	w.t.Helper()
	const secret = "hook"
	in, err := intake.New(intake.Options{Store: w.store, Log: slog.New(slog.NewTextHandler(w.log, nil))})
	require.NoError(w.t, err)
	hooks := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		w.mu.Lock()
		lost := w.lose
		w.mu.Unlock()
		for _, action := range []string{"queued", "in_progress", "completed"} {
			if lost != nil && strings.Contains(string(body), `"action":"`+action+`"`) && lost(action) {
				return // GitHub counts it as arrived
			}
		}
		taken := in.Take(r.Context(), intake.Delivery{
			GUID: r.Header.Get(github.HeaderDelivery), Event: r.Header.Get(github.HeaderEvent), Body: body, At: w.clock(),
		})
		switch {
		case taken.Outcome == intake.Failed:
			rw.WriteHeader(http.StatusServiceUnavailable)
		case r.Header.Get(github.HeaderEvent) == "installation":
			w.installed.Add(1)
		}
	}))
	w.t.Cleanup(hooks.Close)
	ctx, cancel := context.WithCancel(context.Background())
	w.t.Cleanup(cancel)
	w.gh, err = standin.Start(ctx, standin.Options{
		WebhookSecret: secret, WebhookURL: hooks.URL, OfflineAfter: 100 * time.Millisecond, AcquireWithin: time.Minute,
		Installations: append([]standin.Installation{{ID: 101, Account: "acme", Repositories: []string{"app"}}}, w.others...),
	})
	require.NoError(w.t, err)
	w.t.Cleanup(w.gh.Close)
	w.forge, err = github.New(github.Options{BaseURL: w.gh.URL + "/api/v3", AppID: 1, PrivateKey: w.gh.AppKeyPEM, Now: w.clock})
	require.NoError(w.t, err)
}

func (w *world) clock() time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.real != nil {
		return w.real()
	}
	return w.now
}

func (w *world) advance(d time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.now = w.now.Add(d)
}

func (w *world) losing(actions ...string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lose = func(action string) bool { return slices.Contains(actions, action) }
}

func (w *world) eventually(what string, check func() bool) {
	w.t.Helper()
	require.Eventually(w.t, check, 20*time.Second, 5*time.Millisecond, what)
}

// pass runs one pass, and returns what it recovered, by kind.
func (w *world) pass() map[string]int {
	w.t.Helper()
	before := w.counted("bullpen_recoveries_total")
	require.NoError(w.t, w.r.Pass(w.t.Context()))
	return minus(w.counted("bullpen_recoveries_total"), before)
}

func (w *world) check(pod recovery.Pod) map[string]int {
	w.t.Helper()
	before := w.counted("bullpen_recoveries_total")
	require.NoError(w.t, w.r.CheckPod(w.t.Context(), pod.UID))
	return minus(w.counted("bullpen_recoveries_total"), before)
}

// notice runs a pass that finds nothing to do but sees what pods show: from then on it has lasted (RECV-1).
func (w *world) notice() {
	w.t.Helper()
	require.Empty(w.t, w.pass())
}

func minus(after, before map[string]int) map[string]int {
	out := map[string]int{}
	for label, n := range after {
		if n != before[label] {
			out[label] = n - before[label]
		}
	}
	return out
}

// counted reads a counter by its one label.
func (w *world) counted(name string) map[string]int {
	w.t.Helper()
	families, err := w.registry.Gather()
	require.NoError(w.t, err)
	out := map[string]int{}
	for _, family := range families {
		for _, series := range family.GetMetric() {
			if family.GetName() == name {
				out[series.GetLabel()[0].GetValue()] = int(series.GetCounter().GetValue())
			}
			if family.GetName()+"_sum" == name {
				out[series.GetLabel()[0].GetValue()] = int(series.GetHistogram().GetSampleSum())
			}
		}
	}
	return out
}

func (w *world) skipped() map[string]int { return w.counted("bullpen_recovery_skipped_total") }

// submit starts a job at GitHub that runs until release is called, and waits until it is queued here.
func (w *world) submit() (jobID int64, release func()) {
	w.t.Helper()
	gate := filepath.Join(w.t.TempDir(), "gate")
	_, err := w.gh.Admin.Submit(w.t.Context(), standin.Submission{FileName: "ci.yaml", Repo: "acme/app", Content: fmt.Sprintf(`
name: ci
on: workflow_dispatch
jobs:
  build:
    runs-on: linux
    steps: [{run: "while [ ! -e %s ]; do sleep 0.02; done"}]
`, gate)})
	require.NoError(w.t, err)
	jobs, err := w.gh.Admin.Jobs(w.t.Context(), 0, "queued")
	require.NoError(w.t, err)
	for _, job := range jobs {
		jobID = max(jobID, job.ID)
	}
	require.NotZero(w.t, jobID, "GitHub has queued it")
	w.eventually("the job is queued", func() bool { return w.jobState(jobID) == fleet.JobQueued })
	return jobID, func() { require.NoError(w.t, os.WriteFile(gate, nil, 0o600)) }
}

func (w *world) jobState(id int64) fleet.JobState {
	w.t.Helper()
	state, err := w.store.JobState(w.t.Context(), id)
	require.NoError(w.t, err)
	return state
}

func (w *world) claim(pod recovery.Pod) dispatch.Claim {
	w.t.Helper()
	claim, err := w.store.Claim(w.t.Context(), pod.UID)
	require.NoError(w.t, err)
	return claim
}

// pod adds a healthy runner pod that polls.
func (w *world) pod(change ...func(*recovery.Pod)) recovery.Pod {
	pod := recovery.Pod{
		Pod: dispatch.Pod{
			Namespace: "runners", Name: "linux-" + strings.ToLower(rand.Text()[:8]), UID: uuid.NewString(),
			Pool: dispatch.PoolRef{Namespace: "runners", Name: "linux"},
		},
		Runner: recovery.Ready, Since: w.clock(), ResourceVersion: "1",
	}
	for _, f := range change {
		f(&pod)
	}
	w.cluster.put(pod)
	return pod
}

// served polls for the pod until it has a configuration.
func (w *world) served(pod recovery.Pod) dispatch.Answer {
	w.t.Helper()
	var answer dispatch.Answer
	w.eventually("a configuration", func() bool {
		var err error
		answer, err = w.d.Poll(w.t.Context(), pod.Pod, 0)
		return err == nil && answer.Reply == dispatch.ReplyServe
	})
	return answer
}

// delivered serves the pod, which acknowledges: its poller has ended and its runner has the configuration, and no job yet.
func (w *world) delivered(pod recovery.Pod) dispatch.Answer {
	w.t.Helper()
	answer := w.served(pod)
	won, err := w.d.Acknowledge(w.t.Context(), pod.Pod, answer.Generation)
	require.NoError(w.t, err)
	require.True(w.t, won)
	w.d.Label(w.t.Context(), pod.Pod)
	require.Equal(w.t, "acme", w.cluster.get(pod.UID).OwnerLabel)
	w.cluster.change(pod.UID, func(p *recovery.Pod) {
		p.Poller, p.PollerEnded, p.Since = recovery.Delivered, true, w.clock()
	})
	return answer
}

// runner runs a real runner with the configuration, until stop is called or it has run a job; ended tells.
func (w *world) runner(answer dispatch.Answer) (stop func(), ended <-chan error) {
	w.t.Helper()
	runner, err := devrunner.New(devrunner.Options{JIT: answer.JIT.Encoded.Reveal(), WorkDir: w.t.TempDir()})
	require.NoError(w.t, err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	var wait sync.WaitGroup
	wait.Go(func() { done <- runner.Run(ctx) })
	stop = func() { cancel(); await.Return(w.t, wait.Wait, "the parts stop") }
	w.t.Cleanup(stop)
	return stop, done
}

// registered waits until GitHub shows the runner in that state.
func (w *world) registered(name string, like func(standin.RunnerView) bool) {
	w.t.Helper()
	w.eventually("GitHub shows the runner", func() bool {
		runners, err := w.gh.Admin.Runners(w.t.Context())
		if err != nil {
			return false
		}
		for _, one := range runners {
			if one.Name == name {
				return like(one)
			}
		}
		return false
	})
}

// works has the pod show that a job has started in it.
func (w *world) works(pod recovery.Pod) {
	w.cluster.change(pod.UID, func(p *recovery.Pod) { p.Runner, p.Since = recovery.NotReady, w.clock() })
}

// freed waits until the pod of a claim whose registrations recovery has removed has certainly shown its sign: without one
// the claim ends.
func (w *world) freed(pod recovery.Pod) {
	w.t.Helper()
	require.True(w.t, w.claim(pod).State.Live(), "no claim ends with its registration")
	require.Empty(w.t, w.pass(), "its pod may not show yet what has started")
	w.advance(patience / 5)
	require.Equal(w.t, map[string]int{"unregistered_runner": 1}, w.pass())
	require.Equal(w.t, fleet.ClaimSpent, w.claim(pod).State)
	require.NotEmpty(w.t, w.claim(pod).Proof)
}

func busy(r standin.RunnerView) bool { return r.Busy }
func idle(r standin.RunnerView) bool { return r.Online && !r.Busy }

func (w *world) runnersAtGitHub() int {
	w.t.Helper()
	runners, err := w.gh.Admin.Runners(w.t.Context())
	require.NoError(w.t, err)
	return len(runners)
}

// terminal: everything in the pod has ended.
func (w *world) terminal(pod recovery.Pod) {
	w.cluster.change(pod.UID, func(p *recovery.Pod) { p.Terminal = true })
}

// lockedLog is written by many.
type lockedLog struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *lockedLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *lockedLog) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// usage is what is counted of all sessions, over all pools: how many there were, of how many jobs, and how long those ran.
func (w *world) usage() (sessions, jobs int64, ran float64) {
	w.t.Helper()
	now := w.clock().UTC()
	month := time.Date(now.Year(), now.Month(), 1, 0, 0, 0, 0, time.UTC)
	all, _, err := w.store.Usage(w.t.Context(), admin.UsageQuery{Since: month.AddDate(0, -1, 0), Before: month.AddDate(0, 1, 0), Now: now})
	require.NoError(w.t, err)
	for _, u := range all {
		sessions, jobs, ran = sessions+u.Sessions, jobs+u.Jobs, ran+u.JobSeconds
	}
	return sessions, jobs, ran
}
