package console_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/api/adminapi"
	"github.com/bullpen-ci/bullpen/api/runnerapi"
	"github.com/bullpen-ci/bullpen/internal/fleet"
	"github.com/bullpen-ci/bullpen/internal/server/admin"
	"github.com/bullpen-ci/bullpen/internal/server/console"
	"github.com/bullpen-ci/bullpen/internal/server/dispatch"
	"github.com/bullpen-ci/bullpen/internal/server/ledger"
	"github.com/bullpen-ci/bullpen/internal/server/why"
	"github.com/bullpen-ci/bullpen/test/kit/apicontract"
	"github.com/bullpen-ci/bullpen/test/kit/await"
	"github.com/bullpen-ci/bullpen/test/kit/postgrestest"
)

func TestMain(m *testing.M) { os.Exit(postgrestest.Alone(m.Run)) }

const (
	adas = "token-of-ada"  // may see everything
	bobs = "token-of-bob"  // is known, and may see nothing
	cleo = "token-of-cleo" // has the role bullpen-viewer: may see all but what jobs print, and change nothing
)

// cluster grants rights, and revokes them when a test asks it to.
type cluster struct {
	mu      sync.Mutex
	revoked bool            // Ada's token is no longer valid
	denied  bool            // Ada has no rights any more
	people  map[string]bool // who may do everything, by name and groups
}

func (c *cluster) set(change func(c *cluster)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	change(c)
}

func (c *cluster) Identify(_ context.Context, token string) (admin.User, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case token == adas && !c.revoked:
		return admin.User{Name: "ada", Credential: "JTI=1"}, nil
	case token == bobs:
		return admin.User{Name: "bob"}, nil
	case token == cleo:
		return admin.User{Name: "cleo"}, nil
	}
	return admin.User{}, admin.ErrRejected
}

func (c *cluster) Allowed(_ context.Context, user admin.User, right admin.Right) (bool, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if user.Name == "cleo" {
		return (right.Verb == "get" || right.Verb == "list") && right.Resource != adminapi.ResourceRunnerLogs, nil
	}
	return user.Name == "ada" && !c.denied || c.people[user.Name+" "+strings.Join(user.Groups, ",")], nil
}

// UIDs of pods.
const (
	podA = "00000000-0000-4000-8000-00000000000a"
	podB = "00000000-0000-4000-8000-00000000000b"
)

// oneFleet is what a server knows beside the ledger: one pool that hands out jobs, and two that do not.
type oneFleet struct {
	admin.Fleet
	unserved *atomic.Pointer[dispatch.Unserved]
}

var linux4 = dispatch.Pool{
	Namespace: "runners", Name: "linux-4", Labels: []string{"linux-4"}, Platform: fleet.Linux, Shape: fleet.Shape{MilliCPU: 4000, MemoryMB: 8192},
}

func (oneFleet) Pools() []dispatch.Pool { return []dispatch.Pool{linux4} }

func (oneFleet) PoolStatus(ref dispatch.PoolRef) (why.Pool, bool) {
	return why.Pool{Ref: linux4.Ref(), Platform: linux4.Platform, Shape: linux4.Shape, Desired: 3, Replicas: 3, Idle: 1, Busy: 2}, ref == linux4.Ref()
}

func (oneFleet) Backoff(dispatch.Account) (time.Time, bool) { return time.Time{}, false }

func (oneFleet) PoolRefused(dispatch.PoolRef, int64) (dispatch.PoolRefusal, bool) {
	return dispatch.PoolRefusal{}, false
}

func (oneFleet) DescribePools() []adminapi.Pool {
	return []adminapi.Pool{{
		Namespace: "runners", Name: "linux-4", Labels: linux4.Labels, Platform: "linux", MilliCPU: 4000, MemoryMB: 8192, Desired: 3, Idle: 1, Busy: 1, Starting: 1,
		Intake: "Open", Problems: []adminapi.Problem{{Condition: "Starved", Sentence: "pod linux-4-c cannot start: no node has 4 CPUs left"}},
	}, {
		Namespace: "runners", Name: "linux-8", Labels: []string{"linux-8"}, Platform: "linux", MilliCPU: 8000, MemoryMB: 16384, Intake: "Drained",
		Problems: []adminapi.Problem{{Condition: "Drained", Sentence: "the pool is drained: no jobs are assigned, and idle runners are removed"}},
	}, {
		Namespace: "runners", Name: "macs", Labels: []string{"macos-15"}, Platform: "macos", MilliCPU: 4000, MemoryMB: 8192, Desired: 2, Idle: 2, Intake: "Paused",
		Problems: []adminapi.Problem{{Condition: "Paused", Sentence: "the pool is paused: no jobs are assigned (ada, 2026-11-20: Xcode is replaced)"}},
	}}
}

func (oneFleet) PodsOfPool(ref dispatch.PoolRef) []admin.RunnerPod {
	if ref.Name != "" && ref != linux4.Ref() {
		return nil
	}
	pod := func(name, uid, node string) admin.RunnerPod {
		return admin.RunnerPod{
			Pod:  dispatch.Pod{Namespace: "runners", Name: "linux-4-" + name, UID: uid, Pool: linux4.Ref()},
			Node: node, CreatedAt: time.Now().Add(-3 * time.Minute), Ready: node != "",
		}
	}
	return []admin.RunnerPod{pod("b", podB, "node-1"), pod("c", "00000000-0000-4000-8000-00000000000c", ""), pod("d", "00000000-0000-4000-8000-00000000000d", "node-2")}
}

func (oneFleet) Hosts() ([]adminapi.Host, bool) {
	applied, next := time.Now().Add(-3*time.Hour), time.Now().Add(4*time.Minute)
	return []adminapi.Host{
		{
			Namespace: "runners", Name: "mini-2", Node: "mini-2", Pool: "minis", State: "Failed", Message: "step tart failed; it is tried again", Attempts: 2, AppliedAt: &applied,
			NextAttempt: &next, LastError: "checking tart: the file is another <i>than</i> it was", Problems: []adminapi.Problem{{Condition: "tart", Sentence: "another version is installed"}},
		},
		{Namespace: "runners", Name: "mini-1", Node: "mini-1", Pool: "minis", Ready: true, State: "Ready", AppliedAt: &applied},
	}, true
}

func (oneFleet) Demand(context.Context) ([]runnerapi.PoolSignals, error) {
	oldest := time.Now().Add(-2 * time.Minute)
	return []runnerapi.PoolSignals{{
		Namespace: "runners", Name: "linux-4", Queued: 4, OldestQueued: &oldest,
		Blocked: map[runnerapi.BlockedReason]int{runnerapi.BlockedLimit: 2},
	}}, nil
}

func (oneFleet) Lanes(context.Context) (map[dispatch.LaneRef]dispatch.LaneDemand, error) {
	return map[dispatch.LaneRef]dispatch.LaneDemand{
		{LabelKey: dispatch.LabelKey([]string{"linux-4"}), AccountID: 1}: {
			Platform: fleet.Linux, Queued: 4, Blocked: map[runnerapi.BlockedReason]int64{runnerapi.BlockedLimit: 2},
		},
	}, nil
}

func (oneFleet) Outside([]string) fleet.Outside { return fleet.OutsideNone }

func (f oneFleet) Unserved(context.Context) (dispatch.Unserved, error) {
	if f.unserved == nil || f.unserved.Load() == nil {
		return dispatch.Unserved{}, nil
	}
	return *f.unserved.Load(), nil
}

func (oneFleet) Frozen() (string, bool) { return "", false }

func (f oneFleet) Runner(namespace, name string) (dispatch.Pod, bool) {
	for _, pod := range f.PodsOfPool(linux4.Ref()) {
		if pod.Namespace == namespace && pod.Name == name {
			return pod.Pod, true
		}
	}
	return dispatch.Pod{}, false
}

func (oneFleet) ClaimChanged(string) {}

// counting is the admin API with a count of its requests.
type counting struct {
	http.Handler
	mu    sync.Mutex
	asked map[string]int
}

func (c *counting) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c.mu.Lock()
	c.asked[r.URL.Path]++
	c.mu.Unlock()
	c.Handler.ServeHTTP(w, r)
}

func (c *counting) count(path string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.asked[path]
}

// desk is the console on a real ledger.
type desk struct {
	t        *testing.T
	url      string
	store    *ledger.Store
	cluster  *cluster
	api      *counting
	counters *prometheus.Registry
	console  *console.Console
	unserved atomic.Pointer[dispatch.Unserved] // what no pool serves
	stop     func()                            // ends the console, and waits for it
}

func newDesk(t *testing.T, change ...func(*console.Options)) *desk {
	t.Helper()
	store, err := ledger.Open(t.Context(), postgrestest.NewDatabase(t, ledger.Migrate), 0)
	require.NoError(t, err)
	t.Cleanup(store.Close)
	d := &desk{t: t, store: store, cluster: &cluster{}, counters: prometheus.NewRegistry()}
	api, err := admin.New(admin.Options{
		Store: store, Access: d.cluster, Fleet: oneFleet{unserved: &d.unserved}, Trace: traced, GitHub: "https://ghes.example.com",
	})
	require.NoError(t, err)
	d.api = &counting{Handler: apicontract.Checked(t, api.Handler()), asked: map[string]int{}}
	opt := console.Options{
		API: d.api, Admission: api.Admission(), Secret: []byte("a secret that every replica has"), Counters: d.counters, Every: 100 * time.Millisecond,
		Version: "v9.8.7",
	}
	server := httptest.NewUnstartedServer(nil)
	d.url = "http://" + server.Listener.Addr().String()
	for _, c := range change {
		c(&opt)
	}
	if opt.OIDC != nil {
		opt.OIDC.Console = d.url
	}
	d.console, err = console.New(opt)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = d.console.Run(ctx)
	}()
	d.stop = func() { cancel(); await.Receive(t, ended, "the desk stops") }
	server.Config.Handler = d.console.Handler()
	server.Start()
	t.Cleanup(server.Close)
	t.Cleanup(d.stop) // before the server, which waits for its requests
	d.install(1, "acme")
	return d
}

// traced has two jobs traced, one of them by a server that knows a page for traces.
func traced(jobID int64) (id, link string) {
	switch jobID {
	case 1:
		return "4bf92f3577b34da6", "https://traces.example.com/4bf92f3577b34da6"
	case 7:
		return "00f067aa0ba902b7", ""
	default:
		return "", ""
	}
}

func (d *desk) install(id int64, login string) {
	d.t.Helper()
	_, err := d.store.RecordInstallation(d.t.Context(), dispatch.Delivery{Event: "installation", At: time.Now()}, dispatch.Installation{
		Action: "created", Account: dispatch.Account{ID: id, Login: login, InstallationID: 100 + id},
	})
	require.NoError(d.t, err)
}

// tell records what GitHub says of a job.
func (d *desk) tell(kind fleet.JobEvent, id int64, change ...func(*dispatch.JobEvent)) {
	d.t.Helper()
	now := time.Now()
	ev := dispatch.JobEvent{
		Kind: kind, Account: dispatch.Account{ID: 1, Login: "acme", InstallationID: 101}, JobID: id, Repository: "acme/app", RunID: 9, RunAttempt: 1,
		Name: fmt.Sprintf("build-%d", id), Workflow: "ci", HeadBranch: "main", HeadSHA: "abc", Labels: []string{"linux-4"}, QueuedAt: now.Add(-time.Minute),
	}
	switch kind {
	case fleet.JobEventStarted:
		ev.StartedAt, ev.RunnerName = now, "elsewhere"
	case fleet.JobEventCompleted:
		ev.StartedAt, ev.CompletedAt, ev.RunnerName, ev.Conclusion = now.Add(-20*time.Second), now, "elsewhere", "success"
	}
	for _, c := range change {
		c(&ev)
	}
	_, err := d.store.RecordJob(d.t.Context(), dispatch.Delivery{Event: "workflow_job", At: now}, ev)
	require.NoError(d.t, err)
}

// client is a browser without a screen: it keeps cookies, and follows nothing.
func (d *desk) ask(method, path, cookie, body string, change ...func(*http.Request)) *http.Response {
	d.t.Helper()
	req, err := http.NewRequestWithContext(d.t.Context(), method, d.url+path, strings.NewReader(body))
	require.NoError(d.t, err)
	if body != "" {
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	if cookie != "" {
		req.AddCookie(&http.Cookie{Name: "bullpen_session", Value: cookie})
	}
	for _, c := range change {
		c(req)
	}
	client := &http.Client{Timeout: await.Limit, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	resp, err := client.Do(req)
	require.NoError(d.t, err)
	d.t.Cleanup(func() { resp.Body.Close() })
	return resp
}

// session logs in and returns the cookie.
func (d *desk) session(token string) string {
	d.t.Helper()
	resp := d.ask("POST", "/ui/login", "", "token="+token)
	require.Equal(d.t, http.StatusSeeOther, resp.StatusCode)
	for _, cookie := range resp.Cookies() {
		if cookie.Name == "bullpen_session" {
			return cookie.Value
		}
	}
	require.Fail(d.t, "no cookie")
	return ""
}

// suspend changes something that the audit log has.
func (d *desk) suspend(login, reason string, on bool) {
	d.t.Helper()
	_, err := d.store.Pause(d.t.Context(), admin.Change{Account: login, Actor: "ada", Credential: "JTI=1", Reason: reason, At: time.Now()}, on)
	require.NoError(d.t, err)
}

func (d *desk) limit(login string, jobs int64) {
	d.t.Helper()
	_, err := d.store.ChangeLimits(d.t.Context(), admin.Change{Account: login, Actor: "ada", Credential: "JTI=1", Reason: "more of them", At: time.Now()},
		map[string]adminapi.LimitsChange{"linux": {Jobs: &jobs}})
	require.NoError(d.t, err)
}

// work has a pod claim the oldest job, GitHub register its runner, and the pod take its configuration.
func (d *desk) work(pod, uid string) {
	d.t.Helper()
	ctx := d.t.Context()
	_, err := d.store.ClaimBatch(ctx, dispatch.Batch{
		Pool: linux4, LabelKeys: []string{dispatch.LabelKey([]string{"linux-4"})}, Polls: []dispatch.Poll{{Namespace: "runners", PodName: pod, PodUID: uid}},
		Reserve: func(_ dispatch.Account, want int) int { return want }, Return: func(int64, int) {}, Lease: time.Minute, Now: time.Now(), Excluded: []int64{},
	})
	require.NoError(d.t, err)
	claim, err := d.store.Claim(ctx, uid)
	require.NoError(d.t, err)
	ok, err := d.store.Intend(ctx, uid, claim.Generation, pod+"-1", fleet.Scope{Owner: "acme"}, time.Now())
	require.NoError(d.t, err)
	require.True(d.t, ok)
	ok, err = d.store.RecordMint(ctx, uid, claim.Generation, 4711, time.Now())
	require.NoError(d.t, err)
	require.True(d.t, ok)
	_, err = d.store.Acknowledge(ctx, uid, claim.Generation, time.Now())
	require.NoError(d.t, err)
}
