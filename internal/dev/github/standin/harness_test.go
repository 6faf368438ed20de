package standin_test

import (
	"context"
	"crypto/rsa"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/bradleyfalzon/ghinstallation/v2"
	"github.com/golang-jwt/jwt/v4"
	"github.com/google/go-github/v88/github"
	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/internal/dev/github/standin"
	"github.com/bullpen-ci/bullpen/test/kit/await"
)

const (
	hookSecret = "a hook's secret"
	waitFor    = 20 * time.Second
	look       = 5 * time.Millisecond
)

// clock is a clock that tests move.
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

// hook is one webhook as a receiver saw it.
type hook struct {
	Event, Action, GUID string
	Header              http.Header
	Body                []byte
	Job                 *github.WorkflowJobEvent
}

// receiver collects webhooks; answer, if set, decides the status.
type receiver struct {
	*httptest.Server
	mu     sync.Mutex
	hooks  []hook
	answer func(hook) int
}

func newReceiver(t testing.TB) *receiver {
	r := &receiver{}
	r.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		body, _ := io.ReadAll(req.Body)
		h := hook{Event: req.Header.Get("X-GitHub-Event"), GUID: req.Header.Get("X-GitHub-Delivery"), Header: req.Header.Clone(), Body: body}
		var event github.WorkflowJobEvent
		if json.Unmarshal(body, &event) == nil {
			h.Action, h.Job = event.GetAction(), &event
		}
		r.mu.Lock()
		r.hooks = append(r.hooks, h)
		answer := r.answer
		r.mu.Unlock()
		if answer != nil {
			w.WriteHeader(answer(h))
		}
	}))
	t.Cleanup(r.Close)
	return r
}

func (r *receiver) got(event, action string) []hook {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []hook
	for _, h := range r.hooks {
		if h.Event == event && (action == "" || h.Action == action) {
			out = append(out, h)
		}
	}
	return out
}

// appKey is the App's key of all tests: making one takes long.
var appKey = func() func() (*rsa.PublicKey, []byte, error) {
	type pair struct {
		public  *rsa.PublicKey
		private []byte
	}
	once := sync.OnceValues(func() (pair, error) {
		public, private, err := standin.GenerateAppKey()
		return pair{public, private}, err
	})
	return func() (*rsa.PublicKey, []byte, error) {
		p, err := once()
		return p.public, p.private, err
	}
}()

// world is a stand-in with a receiver, a clock that tests move, and clients of its REST API.
type world struct {
	t     testing.TB
	ctx   context.Context
	clock *clock
	hooks *receiver
	in    *standin.Local
	app   *github.Client
	org   *github.Client // as acme's installation
	user  *github.Client // as octo's installation
}

// datedSigner dates what the App signs by the stand-in's clock.
type datedSigner struct {
	key *rsa.PrivateKey
	now func() time.Time
}

func (d datedSigner) Sign(claims jwt.Claims) (string, error) {
	if own, ok := claims.(*jwt.RegisteredClaims); ok {
		at := d.now().Truncate(time.Second)
		own.IssuedAt, own.ExpiresAt = jwt.NewNumericDate(at), jwt.NewNumericDate(at.Add(time.Minute))
	}
	return jwt.NewWithClaims(jwt.SigningMethodRS256, claims).SignedString(d.key)
}

func newWorld(t testing.TB, change func(*standin.Options)) *world {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	w := &world{t: t, ctx: ctx, clock: &clock{now: time.Now()}, hooks: newReceiver(t)}
	opts := standin.Options{
		Installations: []standin.Installation{
			{ID: 11, Account: "acme", Repositories: []string{"app", "lib"}},
			{ID: 12, Account: "octo", Type: "User", Repositories: []string{"solo"}},
		},
		WebhookURL: w.hooks.URL, WebhookSecret: hookSecret, Now: w.clock.Now, RunnerKeys: 1,
	}
	public, private, err := appKey()
	require.NoError(t, err)
	opts.AppKey = public
	if change != nil {
		change(&opts)
	}
	in, err := standin.Start(ctx, opts)
	require.NoError(t, err)
	w.in = in
	t.Cleanup(func() {
		cancel()
		in.Close()
	})
	key, err := jwt.ParseRSAPrivateKeyFromPEM(private)
	require.NoError(t, err)
	apps, err := ghinstallation.NewAppsTransportWithOptions(http.DefaultTransport, 1, ghinstallation.WithSigner(datedSigner{key, opts.Now}))
	require.NoError(t, err)
	apps.BaseURL = in.URL + "/api/v3"
	w.app = w.client(apps)
	w.org = w.client(ghinstallation.NewFromAppsTransport(apps, 11))
	w.user = w.client(ghinstallation.NewFromAppsTransport(apps, 12))
	return w
}

func (w *world) client(transport http.RoundTripper) *github.Client {
	c, err := github.NewClient(github.WithHTTPClient(&http.Client{Timeout: await.Limit, Transport: transport}), github.WithEnterpriseURLs(w.in.URL, w.in.URL),
		github.WithDisableRateLimitCheck())
	require.NoError(w.t, err)
	return c
}

func (w *world) submit(content string) standin.RunView {
	w.t.Helper()
	runs, err := w.in.Submit(standin.Submission{FileName: "ci.yaml", Content: content, Repo: "acme/app"})
	require.NoError(w.t, err)
	require.Len(w.t, runs, 1)
	return runs[0]
}

func (w *world) jobs(run standin.RunView) []standin.JobView {
	w.t.Helper()
	jobs, err := w.in.Admin.Jobs(w.ctx, run.ID, "")
	require.NoError(w.t, err)
	return jobs
}

func (w *world) job(run standin.RunView, name string) standin.JobView {
	w.t.Helper()
	for _, j := range w.jobs(run) {
		if j.Name == name {
			return j
		}
	}
	require.Failf(w.t, "no such job", "%q", name)
	return standin.JobView{}
}

// eventually waits for a condition at the outer edge: HTTP between goroutines.
func (w *world) eventually(condition func() bool, what string) {
	w.t.Helper()
	require.Eventually(w.t, condition, waitFor, look, what)
}

func (w *world) mint(name string, labels ...string) *runner {
	w.t.Helper()
	r, _ := w.mintConfig(name, labels...)
	return r
}

// mintConfig also returns the encoded JIT configuration.
func (w *world) mintConfig(name string, labels ...string) (*runner, string) {
	w.t.Helper()
	config, _, err := w.org.Actions.GenerateOrgJITConfig(w.ctx, "acme", &github.GenerateJITConfigRequest{
		Name: name, RunnerGroupID: 1, Labels: labels,
	})
	require.NoError(w.t, err)
	return newRunner(w.t, config), config.GetEncodedJITConfig()
}

func writeFile(path, text string) error { return os.WriteFile(path, []byte(text), 0o600) }
