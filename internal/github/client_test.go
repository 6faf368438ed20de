package github

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/internal/fleet"
	"github.com/bullpen-ci/bullpen/test/kit/await"
)

var testKey = sync.OnceValue(func() []byte {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		panic(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)})
})

var (
	org  = fleet.Scope{Owner: "acme"}
	repo = fleet.Scope{Owner: "acme", Repo: "app"}
)

// forge answers like GitHub: it issues tokens, and has one handler for everything else.
type forge struct {
	*httptest.Server
	tokens  atomic.Int64 // handed out
	refused atomic.Int64 // tokens up to this one are not accepted
	calls   atomic.Int64 // other than for tokens
	answer  http.HandlerFunc
	token   http.HandlerFunc // instead of handing one out
}

func newForge(t *testing.T, answer http.HandlerFunc) *forge {
	t.Helper()
	f := &forge{answer: answer}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /api/v3/app/installations/{id}/access_tokens", func(w http.ResponseWriter, r *http.Request) {
		if f.token != nil {
			f.token(w, r)
			return
		}
		w.WriteHeader(http.StatusCreated)
		_, _ = fmt.Fprintf(w, `{"token":"token-%d","expires_at":%q}`, f.tokens.Add(1),
			time.Now().Add(time.Hour).UTC().Format(time.RFC3339))
	})
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		f.calls.Add(1)
		number, isToken := strings.CutPrefix(r.Header.Get("Authorization"), "token token-")
		if n, err := strconv.ParseInt(number, 10, 64); isToken && err == nil && n <= f.refused.Load() {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		f.answer(w, r)
	})
	f.Server = httptest.NewServer(mux)
	t.Cleanup(f.Close)
	return f
}

// clock is set by tests.
type clock struct{ now atomic.Pointer[time.Time] }

func newClock() *clock {
	c := &clock{}
	c.set(time.Unix(1_800_000_000, 0))
	return c
}
func (c *clock) set(t time.Time)       { c.now.Store(&t) }
func (c *clock) read() time.Time       { return *c.now.Load() }
func (c *clock) at(s int) string       { return strconv.FormatInt(c.read().Unix()+int64(s), 10) }
func (c *clock) after(s int) time.Time { return c.read().Add(time.Duration(s) * time.Second) }

func newTestClient(t *testing.T, f *forge, change func(*Options)) *Client {
	t.Helper()
	options := Options{BaseURL: f.URL + "/api/v3", AppID: 7, PrivateKey: testKey(), Timeout: 5 * time.Second}
	if change != nil {
		change(&options)
	}
	client, err := New(options)
	require.NoError(t, err)
	return client
}

func status(code int, body string, headers ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		for i := 0; i+1 < len(headers); i += 2 {
			w.Header().Set(headers[i], headers[i+1])
		}
		w.WriteHeader(code)
		_, _ = io.WriteString(w, body)
	}
}

const mintedBody = `{"runner":{"id":23,"name":"bp-x-1","os":"unknown","status":"offline","busy":false},` +
	`"encoded_jit_config":"c2VjcmV0LWppdA=="}`

func TestMint_SendsWhatGitHubExpects(t *testing.T) {
	for scope, path := range map[fleet.Scope]string{
		org:  "/api/v3/orgs/acme/actions/runners/generate-jitconfig",
		repo: "/api/v3/repos/acme/app/actions/runners/generate-jitconfig",
	} {
		t.Run(scope.String(), func(t *testing.T) {
			f := newForge(t, func(w http.ResponseWriter, r *http.Request) {
				var body map[string]any
				if r.Method != http.MethodPost || r.URL.Path != path || r.Header.Get("Authorization") != "token token-1" ||
					json.NewDecoder(r.Body).Decode(&body) != nil {
					w.WriteHeader(http.StatusTeapot)
					return
				}
				w.Header().Set("X-Seen", fmt.Sprint(body))
				want := `map[labels:[l1 l2] name:bp-x-1 runner_group_id:1 work_folder:_work]`
				if fmt.Sprint(body) != want {
					w.WriteHeader(http.StatusTeapot)
					return
				}
				w.WriteHeader(http.StatusCreated)
				_, _ = io.WriteString(w, mintedBody)
			})
			jit, err := newTestClient(t, f, nil).Mint(t.Context(), 42, fleet.MintRequest{
				Scope: scope, Name: "bp-x-1", Labels: []string{"l1", "l2"}, WorkFolder: "_work",
			})
			require.NoError(t, err)
			require.Equal(t, int64(23), jit.RunnerID)
			require.Equal(t, "bp-x-1", jit.Name)
			require.Equal(t, "c2VjcmV0LWppdA==", jit.Encoded.Reveal())
		})
	}
}

func TestAnswers_BecomeFleetErrors(t *testing.T) {
	clk := newClock()
	limit := func(after string) []string {
		return []string{"X-RateLimit-Remaining", "0", "X-RateLimit-Limit", "10", "X-RateLimit-Resource",
			ResourceRegistration, "X-RateLimit-Reset", after}
	}
	cases := []struct {
		name    string
		answer  http.HandlerFunc
		mint    error
		remove  error
		limited time.Time // for both, instead
	}{
		{name: "401", answer: status(401, `{}`), mint: fleet.ErrForbidden, remove: fleet.ErrForbidden},
		{name: "403", answer: status(403, `{"message":"no"}`), mint: fleet.ErrForbidden, remove: fleet.ErrForbidden},
		{name: "403 not JSON", answer: status(403, `<html>`), mint: fleet.ErrForbidden, remove: fleet.ErrForbidden},
		{name: "404", answer: status(404, `{}`), mint: fleet.ErrNotFound, remove: fleet.ErrNotFound},
		{name: "409", answer: status(409, `{}`), mint: fleet.ErrNameTaken, remove: fleet.ErrRejected},
		{name: "422", answer: status(422, `{}`), mint: fleet.ErrRejected, remove: fleet.ErrRunnerBusy},
		{name: "400", answer: status(400, `{}`), mint: fleet.ErrRejected, remove: fleet.ErrRejected},
		{name: "408", answer: status(408, `{}`), mint: fleet.ErrUncertain, remove: fleet.ErrUncertain},
		{name: "500", answer: status(500, `{}`), mint: fleet.ErrUncertain, remove: fleet.ErrUncertain},
		{name: "502 not JSON", answer: status(502, `<html>`), mint: fleet.ErrUncertain, remove: fleet.ErrUncertain},
		{name: "202", answer: status(202, `{}`), mint: fleet.ErrUncertain, remove: fleet.ErrUncertain},
		{name: "EXCL6 200, a proxy's page", answer: status(200, `<html>Sign in</html>`), mint: fleet.ErrUncertain, remove: fleet.ErrUncertain},
		{name: "EXCL6 200, no body", answer: status(200, ``), mint: fleet.ErrUncertain, remove: fleet.ErrUncertain},
		{name: "EXCL6 200, another object", answer: status(200, `{"status":"ok"}`), mint: fleet.ErrUncertain, remove: fleet.ErrUncertain},
		{name: "EXCL6 205", answer: status(205, ``), mint: fleet.ErrUncertain, remove: fleet.ErrUncertain},
		{name: "redirect elsewhere", answer: status(307, ``, "Location", "http://127.0.0.1:1/"),
			mint: fleet.ErrRejected, remove: fleet.ErrRejected},
		{name: "primary limit", answer: status(403, `{}`, limit(clk.at(90))...), limited: clk.after(90)},
		{name: "primary limit 429", answer: status(429, `{}`, limit(clk.at(90))...), limited: clk.after(90)},
		{name: "limit without reset", answer: status(403, `{}`, "X-RateLimit-Remaining", "0"), limited: clk.after(60)},
		{name: "reset in the past", answer: status(403, `{}`, limit(clk.at(-5))...), limited: clk.after(1)},
		{name: "reset beyond reason", answer: status(403, `{}`, limit(clk.at(1e9))...), limited: clk.after(7200)},
		{name: "retry-after", answer: status(403, `{}`, "Retry-After", "30"), limited: clk.after(30)},
		{name: "429 bare", answer: status(429, ``), limited: clk.after(60)},
		{name: "retry-after beyond reason", answer: status(429, ``, "Retry-After", "999999999"), limited: clk.after(7200)},
		{name: "secondary by its text", limited: clk.after(60), answer: status(403,
			`{"documentation_url":"https://docs.github.com/rest/overview#secondary-rate-limits"}`)},
	}
	for _, one := range cases {
		t.Run(one.name, func(t *testing.T) {
			t.Parallel()
			f := newForge(t, one.answer)
			check := func(err, want error) {
				t.Helper()
				if one.limited.IsZero() {
					require.ErrorIs(t, err, want)
					for _, other := range []error{
						fleet.ErrForbidden, fleet.ErrNotFound, fleet.ErrRejected, fleet.ErrRunnerBusy, fleet.ErrNameTaken,
						fleet.ErrUncertain,
					} {
						if !errors.Is(want, other) {
							require.NotErrorIs(t, err, other)
						}
					}
					doubtful := errors.Is(want, fleet.ErrUncertain) || errors.Is(want, fleet.ErrRunnerBusy)
					require.Equal(t, !doubtful, fleet.Definite(err))
					return
				}
				var limited *fleet.RateLimitedError
				require.ErrorAs(t, err, &limited)
				require.Equal(t, one.limited.Unix(), limited.Until.Unix())
			}
			now := func(o *Options) { o.Now = clk.read }
			_, err := newTestClient(t, f, now).Mint(t.Context(), 42, fleet.MintRequest{Scope: org, Name: "n"})
			check(err, one.mint)
			check(newTestClient(t, f, now).RemoveRunner(t.Context(), 42, org, 5), one.remove)
		})
	}
}

func TestMint_NoAnswerIsUncertain(t *testing.T) {
	cases := map[string]http.HandlerFunc{
		"connection cut": func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
		"answer cut": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "500")
			w.WriteHeader(http.StatusCreated)
			_, _ = io.WriteString(w, mintedBody[:60])
		},
		"no answer in time": func(_ http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body) // only then does the server notice that the client is gone
			<-r.Context().Done()
		},
		"empty answer":     status(201, ``),
		"null answer":      status(201, `null`),
		"no configuration": status(201, `{"runner":{"id":23}}`),
		"no runner":        status(201, `{"encoded_jit_config":"eA=="}`),
	}
	for name, answer := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newForge(t, answer)
			client := newTestClient(t, f, func(o *Options) {
				o.Timeout = time.Minute
				if name == "no answer in time" {
					o.Timeout = time.Second // the request still has to arrive
				}
			})
			_, err := client.Mint(t.Context(), 42, fleet.MintRequest{Scope: org, Name: "n"})
			require.ErrorIs(t, err, fleet.ErrUncertain)
			require.False(t, fleet.Definite(err))
			require.Equal(t, int64(1), f.calls.Load(), "a mint is never repeated")
		})
	}
	t.Run("nobody listens", func(t *testing.T) {
		f := newForge(t, nil)
		client := newTestClient(t, f, nil)
		f.Close()
		_, err := client.Mint(t.Context(), 42, fleet.MintRequest{Scope: org, Name: "n"})
		require.ErrorIs(t, err, fleet.ErrUncertain)
	})
	t.Run("the caller gives up", func(t *testing.T) {
		f := newForge(t, cases["no answer in time"])
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		_, err := newTestClient(t, f, nil).Mint(ctx, 42, fleet.MintRequest{Scope: org, Name: "n"})
		require.ErrorIs(t, err, fleet.ErrUncertain)
		require.ErrorIs(t, err, context.DeadlineExceeded)
	})
}

func TestToken_RefusalIsNeverNotFound_EXCL6(t *testing.T) {
	for code, want := range map[int]error{
		401: fleet.ErrForbidden, 403: fleet.ErrForbidden, 404: fleet.ErrForbidden, 422: fleet.ErrForbidden,
		500: fleet.ErrUncertain,
	} {
		t.Run(strconv.Itoa(code), func(t *testing.T) {
			f := newForge(t, nil)
			f.token = status(code, `{}`)
			err := newTestClient(t, f, nil).RemoveRunner(t.Context(), 42, org, 5)
			require.ErrorIs(t, err, want)
			require.NotErrorIs(t, err, fleet.ErrNotFound)
			require.Zero(t, f.calls.Load())
		})
	}
	f := newForge(t, nil)
	f.token = status(429, ``, "Retry-After", "5")
	var limited *fleet.RateLimitedError
	require.ErrorAs(t, newTestClient(t, f, nil).RemoveRunner(t.Context(), 42, org, 5), &limited)
}

func TestToken_IsSharedAndRenewedWhenRefused(t *testing.T) {
	f := newForge(t, status(200, `{"total_count":0,"runners":[]}`))
	client := newTestClient(t, f, nil)
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() { _ = client.ControlRead(context.Background(), 42, org) })
	}
	await.Return(t, all.Wait, "the concurrent calls return")
	require.Equal(t, int64(1), f.tokens.Load())

	f.refused.Store(1) // the server has forgotten every token so far
	for range 8 {
		all.Go(func() {
			if err := client.ControlRead(context.Background(), 42, org); err != nil {
				t.Error(err)
			}
		})
	}
	await.Return(t, all.Wait, "the concurrent calls return")
	require.Equal(t, int64(2), f.tokens.Load(), "one renewal for all")

	f.refused.Store(1000)
	before := f.calls.Load()
	require.ErrorIs(t, client.ControlRead(t.Context(), 42, org), fleet.ErrForbidden)
	require.Equal(t, before+2, f.calls.Load(), "a refused token is renewed once per call")
}

func TestRedirect_TokenNeverReachesAnotherHost(t *testing.T) {
	var leaked atomic.Bool
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { leaked.Store(true) }))
	t.Cleanup(other.Close)
	f := newForge(t, status(302, ``, "Location", other.URL))
	require.ErrorIs(t, newTestClient(t, f, nil).ControlRead(t.Context(), 42, org), fleet.ErrRejected)
	require.False(t, leaked.Load())
}

func TestRates_BucketsAreApart(t *testing.T) {
	clk := newClock()
	f := newForge(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-RateLimit-Limit", "100")
		w.Header().Set("X-RateLimit-Reset", clk.at(600))
		if r.Method == http.MethodPost {
			w.Header().Set("X-RateLimit-Resource", "a_bucket_of_its_own")
			w.Header().Set("X-RateLimit-Remaining", "0")
			w.WriteHeader(http.StatusCreated)
			_, _ = io.WriteString(w, mintedBody)
			return
		}
		w.Header().Set("X-RateLimit-Resource", ResourceCore)
		w.Header().Set("X-RateLimit-Remaining", "77")
		w.WriteHeader(http.StatusNoContent)
	})
	client := newTestClient(t, f, func(o *Options) { o.Now = clk.read })
	_, known := client.MintRate(42)
	require.False(t, known)
	ask := fleet.MintRequest{Scope: org, Name: "n"}
	_, err := client.Mint(t.Context(), 42, ask)
	require.NoError(t, err, "the last one of the window")
	sent := f.calls.Load()

	_, err = client.Mint(t.Context(), 42, ask)
	var limited *fleet.RateLimitedError
	require.ErrorAs(t, err, &limited)
	require.Equal(t, "a_bucket_of_its_own", limited.Resource)
	require.True(t, fleet.Definite(err))
	require.Equal(t, sent, f.calls.Load(), "what is known to be refused is not sent")

	require.NoError(t, client.RemoveRunner(t.Context(), 42, org, 5), "another bucket is another matter")
	_, err = client.Mint(t.Context(), 43, ask)
	require.NoError(t, err, "another installation is another matter")

	state, known := client.MintRate(42)
	require.True(t, known)
	require.Equal(t, fleet.RateState{Resource: "a_bucket_of_its_own", Limit: 100, Reset: clk.after(600)}, state)
	state, known = client.RateState(42, ResourceCore)
	require.True(t, known)
	require.Equal(t, 77, state.Remaining)

	clk.set(clk.after(601))
	_, err = client.Mint(t.Context(), 42, ask)
	require.NoError(t, err, "a new window")
}

func TestRates_SecondaryLimitStopsTheWholeInstallation(t *testing.T) {
	clk := newClock()
	var limiting atomic.Bool
	limiting.Store(true)
	f := newForge(t, func(w http.ResponseWriter, r *http.Request) {
		if limiting.Load() {
			w.Header().Set("Retry-After", "30")
			w.WriteHeader(http.StatusForbidden)
			return
		}
		w.WriteHeader(http.StatusNoContent)
	})
	client := newTestClient(t, f, func(o *Options) { o.Now = clk.read })
	require.Error(t, client.RemoveRunner(t.Context(), 42, org, 5))
	limiting.Store(false)
	_, err := client.Mint(t.Context(), 42, fleet.MintRequest{Scope: org, Name: "n"})
	var limited *fleet.RateLimitedError
	require.ErrorAs(t, err, &limited)
	require.Equal(t, ResourceSecondary, limited.Resource)
	require.Equal(t, int64(1), f.calls.Load())
	clk.set(clk.after(30))
	require.NoError(t, client.RemoveRunner(t.Context(), 42, org, 5))
}

func TestRates_OvertakingAnswersKeepTheLeast(t *testing.T) {
	clk := newClock()
	header := func(remaining, reset string) http.Header {
		h := http.Header{}
		h.Set("X-RateLimit-Remaining", remaining)
		h.Set("X-RateLimit-Reset", reset)
		return h
	}
	limits := newRates()
	see := func(remaining int, reset int) int {
		limits.observe(classRead, header(strconv.Itoa(remaining), clk.at(reset)), clk.read())
		state, _ := limits.get(ResourceCore)
		return state.Remaining
	}
	require.Equal(t, 10, see(10, 100))
	require.Equal(t, 8, see(8, 101))
	require.Equal(t, 8, see(9, 100), "an answer that was overtaken")
	require.Equal(t, 50, see(50, 3700), "the next window")
	require.Equal(t, 50, see(3, 100), "a straggler of the last window")
	require.Equal(t, 50, see(-1, 100))
}

func TestCache_ForgetsTheLongestUnused(t *testing.T) {
	f := newForge(t, status(200, `{"total_count":0,"runners":[]}`))
	client := newTestClient(t, f, func(o *Options) { o.MaxInstallations = 2 })
	for _, id := range []int64{1, 2, 1, 3, 1} {
		require.NoError(t, client.ControlRead(t.Context(), id, org))
	}
	require.Equal(t, int64(3), f.tokens.Load(), "1 stayed, 2 went")
	require.NoError(t, client.ControlRead(t.Context(), 2, org))
	require.Equal(t, int64(4), f.tokens.Load())
	require.Len(t, client.cache.all(), 2)
}

func TestNew_BadOptionsAreExplained(t *testing.T) {
	for want, options := range map[string]Options{
		"address":    {BaseURL: "ftp://x", AppID: 1, PrivateKey: testKey()},
		"App's id":   {PrivateKey: testKey()},
		"PEM":        {AppID: 1, PrivateKey: []byte("hunter2")},
		"not an RSA": {AppID: 1, PrivateKey: pem.EncodeToMemory(&pem.Block{Type: "X", Bytes: []byte("hunter2")})},
	} {
		_, err := New(options)
		require.ErrorContains(t, err, want)
		require.NotContains(t, err.Error(), "hunter2")
	}
	_, err := New(Options{AppID: 1, PrivateKey: testKey(), BaseURL: "https://user:hunter2@x"})
	require.NotContains(t, fmt.Sprint(err), "hunter2")
}

func TestSecrets_NET3_NeitherJITNorTokenIsShown(t *testing.T) {
	var log bytes.Buffer
	registry := prometheus.NewRegistry()
	var broken atomic.Bool
	f := newForge(t, func(w http.ResponseWriter, r *http.Request) {
		if broken.Load() {
			w.WriteHeader(http.StatusCreated)
			_, _ = io.WriteString(w, mintedBody[:len(mintedBody)-3])
			return
		}
		w.WriteHeader(http.StatusCreated)
		_, _ = io.WriteString(w, mintedBody)
	})
	client := newTestClient(t, f, func(o *Options) {
		o.Log = slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))
		o.Registerer = registry
	})
	ask := fleet.MintRequest{Scope: org, Name: "n"}
	_, err := client.Mint(t.Context(), 42, ask)
	require.NoError(t, err)
	f.refused.Store(1)
	jit, err := client.Mint(t.Context(), 42, ask)
	require.NoError(t, err)
	broken.Store(true)
	_, failed := client.Mint(t.Context(), 42, ask)
	require.Error(t, failed)
	families, err := registry.Gather()
	require.NoError(t, err)
	shown := fmt.Sprintf("%s %v %+v %#v %v %v", log.String(), jit, jit, jit, failed, families)
	require.NotContains(t, shown, "c2VjcmV0")
	require.NotContains(t, shown, "token-")
	require.Contains(t, log.String(), "installation=42")
}
