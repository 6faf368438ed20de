package catchup_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/internal/dev/github/standin"
	"github.com/bullpen-ci/bullpen/internal/fleet"
	"github.com/bullpen-ci/bullpen/internal/github"
	"github.com/bullpen-ci/bullpen/internal/server/dispatch"
	"github.com/bullpen-ci/bullpen/internal/server/events/catchup"
	"github.com/bullpen-ci/bullpen/internal/server/events/intake"
	"github.com/bullpen-ci/bullpen/internal/server/ledger"
	"github.com/bullpen-ci/bullpen/internal/server/recovery"
	"github.com/bullpen-ci/bullpen/test/kit/postgrestest"
)

func TestMain(m *testing.M) { postgrestest.Main(m) }

// clock is the passes' clock, which tests move.
type clock struct {
	mu  sync.Mutex
	now time.Time
}

func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *clock) Advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

// forge is the real client on the stand-in, of which single calls can be overridden, and all are counted.
type forge struct {
	*github.Client
	mu    sync.Mutex
	calls []string

	job      func(id int64) (github.WorkflowJob, error)
	readRuns func() error
	run      func(id int64) (github.Run, error)
	rerun    func(id int64) error // of a job, or of a run's failed jobs
	runs     func(repository, status string, page int) ([]github.Run, int, error)
	runJobs  func(runID int64) ([]github.WorkflowJob, int, error)
	page     func(cursor, etag string) (github.DeliveryPage, error)
	payload  func(id int64) (github.Payload, error)
	deliver  func(id int64) error
	appRate  *fleet.RateState
	rate     *fleet.RateState
}

func (f *forge) note(call string, args ...any) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls = append(f.calls, fmt.Sprintf(call, args...))
}

// called forgets the calls and returns them.
func (f *forge) called() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	calls := f.calls
	f.calls = nil
	return calls
}

func (f *forge) DeliveryPage(ctx context.Context, cursor, etag string) (github.DeliveryPage, error) {
	f.note("page %s", cursor)
	if f.page != nil {
		return f.page(cursor, etag)
	}
	return f.Client.DeliveryPage(ctx, cursor, etag)
}

func (f *forge) Payload(ctx context.Context, id int64) (github.Payload, error) {
	f.note("payload %d", id)
	if f.payload != nil {
		return f.payload(id)
	}
	return f.Client.Payload(ctx, id)
}

func (f *forge) Redeliver(ctx context.Context, id int64) error {
	f.note("redeliver %d", id)
	if f.deliver != nil {
		return f.deliver(id)
	}
	return f.Client.Redeliver(ctx, id)
}

func (f *forge) Job(ctx context.Context, installation int64, repository fleet.Repository, id int64) (github.WorkflowJob, error) {
	f.note("job %d", id)
	if f.job != nil {
		return f.job(id)
	}
	return f.Client.Job(ctx, installation, repository, id)
}

func (f *forge) ReadRuns(ctx context.Context, installation int64, repository fleet.Repository) error {
	f.note("read %s", repository.Name)
	if f.readRuns != nil {
		return f.readRuns()
	}
	return f.Client.ReadRuns(ctx, installation, repository)
}

func (f *forge) Runs(ctx context.Context, installation int64, repository, status string, page int) ([]github.Run, int, error) {
	f.note("runs %s %s %d", repository, status, page)
	if f.runs != nil {
		return f.runs(repository, status, page)
	}
	return f.Client.Runs(ctx, installation, repository, status, page)
}

func (f *forge) RunJobs(ctx context.Context, installation int64, repository string, runID int64, page int) ([]github.WorkflowJob, int, error) {
	f.note("jobs of %s %d", repository, runID)
	if f.runJobs != nil {
		return f.runJobs(runID)
	}
	return f.Client.RunJobs(ctx, installation, repository, runID, page)
}

func (f *forge) Run(ctx context.Context, installation int64, repository string, id int64) (github.Run, error) {
	f.note("run %d", id)
	if f.run != nil {
		return f.run(id)
	}
	return f.Client.Run(ctx, installation, repository, id)
}

func (f *forge) RerunJob(ctx context.Context, installation int64, repository string, id int64) error {
	f.note("rerun %d", id)
	if f.rerun != nil {
		return f.rerun(id)
	}
	return f.Client.RerunJob(ctx, installation, repository, id)
}

func (f *forge) RerunFailedJobs(ctx context.Context, installation int64, repository string, runID int64) error {
	f.note("rerun failed of %d", runID)
	if f.rerun != nil {
		return f.rerun(runID)
	}
	return f.Client.RerunFailedJobs(ctx, installation, repository, runID)
}

func (f *forge) AppRate() (fleet.RateState, bool) {
	if f.appRate != nil {
		return *f.appRate, true
	}
	return f.Client.AppRate()
}

func (f *forge) RateState(installation int64, resource string) (fleet.RateState, bool) {
	if f.rate != nil {
		return *f.rate, true
	}
	return f.Client.RateState(installation, resource)
}

// world is a stand-in, a ledger, and a server's webhook path that can be shut.
type world struct {
	t      *testing.T
	clock  *clock
	in     *standin.Local
	forge  *forge
	store  *ledger.Store
	url    string // of the ledger
	intake *intake.Intake
	c      *catchup.CatchUp
	log    bytes.Buffer

	mu     sync.Mutex
	counts map[string]int
	shut   bool // the server answers 503
}

const jobLabel = "linux-4"

func newWorld(t *testing.T, change func(*catchup.Options)) *world {
	t.Helper()
	return newWorldOn(t, standin.Options{Installations: []standin.Installation{
		{ID: 11, Account: "acme", Repositories: []string{"app", "lib", "web"}},
	}}, change)
}

// newWorldOn starts with everything that the stand-in tells at first recorded, and the clock moved on by a minute. GitHub
// stays in the present, because the App's tokens are checked against its clock.
func newWorldOn(t *testing.T, options standin.Options, change func(*catchup.Options)) *world {
	t.Helper()
	w := &world{t: t, clock: &clock{now: time.Now().Truncate(time.Second)}, counts: map[string]int{}}
	w.store = w.database()
	var err error
	w.intake, err = intake.New(intake.Options{Store: w.store})
	require.NoError(t, err)
	server := httptest.NewServer(http.HandlerFunc(w.webhook))
	t.Cleanup(server.Close)
	ctx, cancel := context.WithCancel(context.Background())
	options.RunnerKeys, options.WebhookURL, options.WebhookSecret = 1, server.URL, "secret"
	w.in, err = standin.Start(ctx, options)
	require.NoError(t, err)
	t.Cleanup(func() { cancel(); w.in.Close() })
	client, err := github.New(github.Options{BaseURL: w.in.URL + "/api/v3", AppID: 1, PrivateKey: w.in.AppKeyPEM})
	require.NoError(t, err)
	w.forge = &forge{Client: client}
	w.settled(len(options.Installations))
	w.c = w.catchUp(change)
	w.clock.Advance(time.Minute)
	return w
}

func (w *world) database() *ledger.Store {
	w.t.Helper()
	w.url = postgrestest.NewDatabase(w.t, ledger.Migrate)
	store, err := ledger.Open(w.t.Context(), w.url, 0)
	require.NoError(w.t, err)
	w.t.Cleanup(store.Close)
	return store
}

func (w *world) catchUp(change func(*catchup.Options)) *catchup.CatchUp {
	w.t.Helper()
	options := catchup.Options{
		Ledger: w.store, Forge: w.forge, Intake: w.intake, Now: w.clock.Now, Log: slog.New(slog.NewTextHandler(&locked{w: &w.log}, nil)),
		Pools: func() []dispatch.Pool {
			return []dispatch.Pool{{Namespace: "runners", Name: "p", Labels: []string{jobLabel}, Platform: fleet.Linux}}
		},
		Count: func(kind recovery.Kind) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.counts[string(kind)]++
		},
	}
	if change != nil {
		change(&options)
	}
	c, err := catchup.New(options)
	require.NoError(w.t, err)
	return c
}

type locked struct {
	mu sync.Mutex
	w  io.Writer
}

func (l *locked) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.w.Write(p)
}

func (w *world) webhook(rw http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	w.mu.Lock()
	shut := w.shut
	w.mu.Unlock()
	if err != nil || shut {
		rw.WriteHeader(http.StatusServiceUnavailable)
		return
	}
	if err := github.VerifySignature("secret", r.Header.Get(github.HeaderSignature), body); err != nil {
		rw.WriteHeader(http.StatusUnauthorized)
		return
	}
	result := w.intake.Take(r.Context(), intake.Delivery{
		GUID: r.Header.Get(github.HeaderDelivery), Event: r.Header.Get(github.HeaderEvent), Body: body, At: w.clock.Now(),
	})
	if result.Outcome == intake.Failed {
		rw.WriteHeader(http.StatusServiceUnavailable)
	}
}

func (w *world) close(shut bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.shut = shut
}

func (w *world) counted(kind string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.counts[kind]
}

func (w *world) fault(f standin.Fault) {
	w.t.Helper()
	_, err := w.in.Admin.AddFault(w.t.Context(), f)
	require.NoError(w.t, err)
}

func workflow(jobs int, labels string) string {
	text := "name: CI\non: [push]\njobs:\n"
	for i := range jobs {
		text += fmt.Sprintf("  j%d:\n    runs-on: [%s]\n    steps:\n      - run: \"true\"\n", i, labels)
	}
	return text
}

// submit starts a run with that number of jobs and returns their ids.
func (w *world) submit(repo string, jobs int, labels ...string) (run int64, ids []int64) {
	w.t.Helper()
	label := jobLabel
	if len(labels) > 0 {
		label = labels[0]
	}
	runs, err := w.in.Submit(standin.Submission{FileName: "ci.yaml", Repo: repo, Content: workflow(jobs, label)})
	require.NoError(w.t, err)
	list, err := w.in.Admin.Jobs(w.t.Context(), runs[0].ID, "")
	require.NoError(w.t, err)
	for _, j := range list {
		ids = append(ids, j.ID)
	}
	require.Len(w.t, ids, jobs)
	return runs[0].ID, ids
}

// settled waits until GitHub has finished the given number of delivery attempts.
func (w *world) settled(attempts int) {
	w.t.Helper()
	w.eventually(fmt.Sprintf("%d attempts have ended", attempts), func() bool {
		list, err := w.in.Admin.Deliveries(w.t.Context(), 100_000)
		return err == nil && len(list) >= attempts
	})
}

func (w *world) attempts() int {
	w.t.Helper()
	list, err := w.in.Admin.Deliveries(w.t.Context(), 100_000)
	require.NoError(w.t, err)
	return len(list)
}

func (w *world) state(id int64) fleet.JobState {
	w.t.Helper()
	state, err := w.store.JobState(w.t.Context(), id)
	require.NoError(w.t, err)
	return state
}

func (w *world) states(ids []int64) map[fleet.JobState]int {
	w.t.Helper()
	all := map[fleet.JobState]int{}
	for _, id := range ids {
		all[w.state(id)]++
	}
	return all
}

func (w *world) eventually(what string, check func() bool) {
	w.t.Helper()
	require.Eventually(w.t, check, 20*time.Second, 5*time.Millisecond, what)
}

// read runs the pass of the deliveries once.
func (w *world) read() {
	w.t.Helper()
	require.NoError(w.t, w.c.Deliveries(w.t.Context()))
}
