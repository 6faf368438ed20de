package github

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/internal/fleet"
	"github.com/bullpen-ci/bullpen/test/kit/await"
)

var enterprise = fleet.Scope{Enterprise: "big"}

// routes answers by method and address, and 404 otherwise.
func routes(answers map[string]http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		answer, ok := answers[r.Method+" "+strings.TrimPrefix(r.URL.Path, "/api/v3")]
		if !ok {
			answer = status(404, `{"message":"Not Found"}`)
		}
		answer(w, r)
	}
}

func TestScopes_EachHasItsAddresses(t *testing.T) {
	for scope, at := range map[fleet.Scope]string{org: "/orgs/acme", repo: "/repos/acme/app", enterprise: "/enterprises/big"} {
		t.Run(scope.String(), func(t *testing.T) {
			f := newForge(t, routes(map[string]http.HandlerFunc{
				"POST " + at + "/actions/runners/generate-jitconfig": status(201, mintedBody),
				"POST " + at + "/actions/runners/registration-token": status(201, `{"token":"LLBF","expires_at":"2999-01-02T03:04:05Z"}`),
				"GET " + at + "/actions/runners":                     status(200, `{"total_count":1,"runners":[{"id":23,"name":"bp-x-1","status":"online","busy":true}]}`),
				"GET " + at + "/actions/runners/23":                  status(200, `{"id":23,"name":"bp-x-1","status":"online","busy":true}`),
				"DELETE " + at + "/actions/runners/23":               status(204, ``),
			}))
			client := newTestClient(t, f, nil)
			want := fleet.Registration{ID: 23, Name: "bp-x-1", Online: true, Busy: true}

			jit, err := client.Mint(t.Context(), 42, fleet.MintRequest{Scope: scope, Name: "bp-x-1"})
			require.NoError(t, err)
			require.Equal(t, int64(23), jit.RunnerID)
			token, err := client.RegistrationToken(t.Context(), 42, scope)
			require.NoError(t, err)
			require.Equal(t, "LLBF", token.Value.Reveal())
			require.Equal(t, 2999, token.ExpiresAt.Year())
			found, err := client.Runner(t.Context(), 42, scope, 23)
			require.NoError(t, err)
			require.Equal(t, want, found)
			found, err = client.FindRunner(t.Context(), 42, scope, "bp-x-1")
			require.NoError(t, err)
			require.Equal(t, want, found)
			require.NoError(t, client.ListRunners(t.Context(), 42, scope, func(r fleet.Registration) bool {
				require.Equal(t, want, r)
				return true
			}))
			roster, err := client.Roster(t.Context(), 42, scope)
			require.NoError(t, err)
			require.True(t, roster.Complete)
			require.NoError(t, client.ControlRead(t.Context(), 42, scope))
			require.NoError(t, client.RemoveRunner(t.Context(), 42, scope, 23))
		})
	}
}

func TestScopes_NamesThatWouldChangeTheAddressAreRefused(t *testing.T) {
	f := newForge(t, status(200, `{}`))
	client := newTestClient(t, f, nil)
	for _, scope := range []fleet.Scope{
		{}, {Owner: ".."}, {Owner: "a/b"}, {Owner: "a", Repo: "."}, {Enterprise: ".."}, {Enterprise: "a/b"}, {Enterprise: "a?b"},
		{Enterprise: "big", Owner: "acme"}, {Enterprise: "big", Repo: "app"}, {Repo: "app"},
	} {
		_, err := client.Mint(t.Context(), 42, fleet.MintRequest{Scope: scope, Name: "n"})
		require.ErrorIs(t, err, fleet.ErrRejected, "%+v", scope)
		_, err = client.RegistrationToken(t.Context(), 42, scope)
		require.ErrorIs(t, err, fleet.ErrRejected, "%+v", scope)
		_, err = client.RunnerGroup(t.Context(), 42, scope, "x")
		require.ErrorIs(t, err, fleet.ErrRejected, "%+v", scope)
		_, err = client.InstallationFor(t.Context(), scope)
		require.ErrorIs(t, err, fleet.ErrRejected, "%+v", scope)
		require.ErrorIs(t, client.RemoveRunner(t.Context(), 42, scope, 5), fleet.ErrRejected, "%+v", scope)
	}
	require.Zero(t, f.calls.Load())
}

func TestRegistrationToken_AnswersWithoutAValidOneAreUncertain(t *testing.T) {
	clk := newClock()
	past := clk.after(-1).UTC().Format(time.RFC3339)
	for name, answer := range map[string]http.HandlerFunc{
		"empty": status(201, ``), "null": status(201, `null`), "no token": status(201, `{"expires_at":"2999-01-02T03:04:05Z"}`),
		"no end": status(201, `{"token":"LLBF"}`), "expired": status(201, `{"token":"LLBF","expires_at":"`+past+`"}`),
	} {
		t.Run(name, func(t *testing.T) {
			client := newTestClient(t, newForge(t, answer), func(o *Options) { o.Now = clk.read })
			_, err := client.RegistrationToken(t.Context(), 42, org)
			require.ErrorIs(t, err, fleet.ErrUncertain)
			require.NotContains(t, err.Error(), "LLBF")
		})
	}
}

func TestRegistrationToken_HasALimitOfItsOwn(t *testing.T) {
	clk := newClock()
	f := newForge(t, func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "registration-token") {
			status(403, `{}`, "X-RateLimit-Remaining", "0", "X-RateLimit-Reset", clk.at(90), "X-RateLimit-Resource", "tokens")(w, r)
			return
		}
		if r.Method == http.MethodDelete {
			status(204, ``)(w, r)
			return
		}
		status(201, mintedBody)(w, r)
	})
	client := newTestClient(t, f, func(o *Options) { o.Now = clk.read })
	for range 2 {
		_, err := client.RegistrationToken(t.Context(), 42, org)
		var limited *fleet.RateLimitedError
		require.ErrorAs(t, err, &limited)
		require.Equal(t, clk.after(90).Unix(), limited.Until.Unix())
	}
	require.Equal(t, int64(1), f.calls.Load(), "what is known to be refused is not sent")
	_, err := client.Mint(t.Context(), 42, fleet.MintRequest{Scope: org, Name: "n"})
	require.NoError(t, err)
	require.NoError(t, client.RemoveRunner(t.Context(), 42, org, 5))
}

func TestInstallationFor_IsLookedUpOnce(t *testing.T) {
	clk := newClock()
	f := newForge(t, func(w http.ResponseWriter, r *http.Request) {
		if !strings.HasPrefix(r.Header.Get("Authorization"), "Bearer ey") {
			w.WriteHeader(http.StatusTeapot) // the App itself is to ask, not an installation
			return
		}
		routes(map[string]http.HandlerFunc{
			"GET /orgs/acme/installation":      status(200, `{"id":42}`),
			"GET /repos/acme/app/installation": status(200, `{"id":43}`),
			"GET /orgs/null/installation":      status(200, `null`),
		})(w, r)
	})
	client := newTestClient(t, f, func(o *Options) { o.Now = clk.read })
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			if id, err := client.InstallationFor(context.Background(), fleet.Scope{Owner: "Acme"}); id != 42 && err == nil {
				t.Error(id, err)
			}
		})
	}
	await.Return(t, all.Wait, "the concurrent calls return")
	id, err := client.InstallationFor(t.Context(), repo)
	require.NoError(t, err)
	require.Equal(t, int64(43), id)
	_, err = client.InstallationFor(t.Context(), fleet.Scope{Owner: "other"})
	require.ErrorIs(t, err, fleet.ErrNotFound)
	_, err = client.InstallationFor(t.Context(), fleet.Scope{Owner: "null"})
	require.ErrorIs(t, err, fleet.ErrUncertain)
	_, err = client.InstallationFor(t.Context(), enterprise)
	require.ErrorIs(t, err, fleet.ErrRejected)
}

func TestLookups_AreBoundedRememberedAndForgotten(t *testing.T) {
	clk := newClock()
	var asked int
	l := newLookups[int, int](clk.read)
	get := func(key int, err error) {
		_, got := l.get(t.Context(), key, isNotFound, func() (int, error) { asked++; return key, err })
		require.Equal(t, err, got)
	}
	for key := range mostLookups + 1 {
		get(key, nil)
	}
	require.Len(t, l.byKey, mostLookups)
	require.Equal(t, mostLookups, l.order.Len())
	asked = 0
	get(mostLookups, nil)
	require.Zero(t, asked)
	get(0, nil)
	require.Equal(t, 1, asked, "the longest unused was forgotten")
	clk.set(clk.after(601))
	get(0, nil)
	require.Equal(t, 2, asked, "ten minutes later")

	asked = 0
	get(-1, fleet.ErrUncertain)
	get(-1, fleet.ErrUncertain)
	require.Equal(t, 2, asked, "what says nothing is not remembered")
	l.forget(-1)
	l.forget(-2)
	get(-1, fleet.ErrNotFound)
	get(-1, fleet.ErrNotFound)
	require.Equal(t, 3, asked)

	held := l.entry(5)
	held.turn <- struct{}{}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := l.get(ctx, 5, isNotFound, func() (int, error) { asked++; return 0, nil })
	require.True(t, isLimited(err), "who gives up waiting has sent nothing")
	require.Equal(t, 3, asked)
}

func TestRepository_IsFoundUnderAnyNameItHad(t *testing.T) {
	f := newForge(t, routes(map[string]http.HandlerFunc{
		"GET /repos/acme/app":   status(301, ``, "Location", "/api/v3/repositories/77"),
		"GET /repositories/77":  status(200, `{"id":77,"full_name":"acme/renamed"}`),
		"GET /repos/acme/empty": status(200, `{}`),
	}))
	client := newTestClient(t, f, nil)
	for range 2 {
		found, err := client.Repository(t.Context(), 42, "acme/app")
		require.NoError(t, err)
		require.Equal(t, fleet.Repository{Name: "acme/renamed", ID: 77}, found)
	}
	require.Equal(t, int64(2), f.calls.Load())
	_, err := client.Repository(t.Context(), 42, "acme/empty")
	require.ErrorIs(t, err, fleet.ErrUncertain)
	_, err = client.Repository(t.Context(), 42, "acme/none")
	require.ErrorIs(t, err, fleet.ErrNotFound)
	for _, bad := range []string{"acme", "a/b/c", "enterprises/big", "a/.."} {
		_, err = client.Repository(t.Context(), 42, bad)
		require.ErrorIs(t, err, fleet.ErrRejected, bad)
	}
}

func TestWebURL(t *testing.T) {
	for api, want := range map[string]string{
		"https://api.github.com": "https://github.com", "https://api.acme.ghe.com": "https://acme.ghe.com",
		"https://github.acme.example/api/v3": "https://github.acme.example", "http://127.0.0.1:99/api/v3": "http://127.0.0.1:99",
		"https://api.acme.example": "https://api.acme.example",
	} {
		client, err := New(Options{BaseURL: api, Token: fleet.NewSecret("ghp_x")})
		require.NoError(t, err)
		require.Equal(t, want+"/acme/app", client.WebURL(repo))
		require.Equal(t, want+"/enterprises/big", client.WebURL(enterprise))
		require.Equal(t, want+"/acme", client.WebURL(org))
	}
}

// FuzzPlaces: no answer to a lookup of places causes a panic, and what is accepted of it is complete.
func FuzzPlaces(f *testing.F) {
	f.Add([]byte(`{"id":1,"full_name":"acme/app"}`), 200)
	f.Add([]byte(`{"token":"LLBF","expires_at":"2999-01-02T03:04:05Z"}`), 201)
	f.Add([]byte(`{"total_count":1,"runner_groups":[null,{"id":2,"name":"x"}]}`), 200)
	f.Add([]byte(`null`), 200)
	var now func() *http.Response // what is answered
	client, err := New(Options{
		BaseURL: "https://github.example/api/v3", AppID: 7, PrivateKey: testKey(), Transport: roundTripper(func(req *http.Request) (*http.Response, error) {
			if strings.HasSuffix(req.URL.Path, "/access_tokens") {
				return &http.Response{StatusCode: 201, Request: req, Body: io.NopCloser(strings.NewReader(
					`{"token":"token-1","expires_at":"` + time.Now().Add(time.Hour).UTC().Format(time.RFC3339) + `"}`))}, nil
			}
			response := now()
			response.Request = req
			return response, nil
		}),
	})
	require.NoError(f, err)
	f.Fuzz(func(t *testing.T, body []byte, code int) {
		if code < 200 || code > 599 {
			code = 200
		}
		in, err := client.cache.get(42)
		require.NoError(t, err)
		for _, one := range []*installation{client.own, in} {
			one.rates, one.circuit, one.places = newRates(), &circuit{}, newPlaceCircuits() // what came before would hold
		}
		client.groups, client.installations = newLookups[groupKey, int64](time.Now), newLookups[string, int64](time.Now)
		client.repositories = newLookups[repositoryKey, fleet.Repository](time.Now)
		now = func() *http.Response {
			return &http.Response{StatusCode: code, Body: io.NopCloser(bytes.NewReader(body)), Header: http.Header{}}
		}
		if token, err := client.RegistrationToken(t.Context(), 42, org); err == nil {
			require.NotEmpty(t, token.Value.Reveal())
			require.True(t, token.ExpiresAt.After(time.Now()))
		}
		if id, err := client.RunnerGroup(t.Context(), 42, org, "x"); err == nil {
			require.Positive(t, id)
		}
		if id, err := client.InstallationFor(t.Context(), org); err == nil {
			require.Positive(t, id)
		}
		if found, err := client.Repository(t.Context(), 42, "acme/app"); err == nil {
			scope, bad := repositoryScope("", found.Name)
			require.NoError(t, bad)
			require.NotEmpty(t, scope.Repo)
			require.Positive(t, found.ID)
		}
	})
}

func TestToken_SpeaksForItselfAlone(t *testing.T) {
	f := newForge(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer ghp_hunter2" {
			w.WriteHeader(http.StatusTeapot)
			return
		}
		routes(map[string]http.HandlerFunc{
			"GET /repos/acme/app/actions/runs":        status(200, `{"total_count":1,"workflow_runs":[{"id":5,"status":"queued"}]}`, "X-RateLimit-Remaining", "9", "X-RateLimit-Limit", "10"),
			"GET /repos/acme/app/actions/runs/5/jobs": status(200, `{"total_count":1,"jobs":[{"id":6,"status":"queued","labels":["x"]}]}`),
			"GET /enterprises/big/actions/runners":    status(200, `{"total_count":0,"runners":[]}`),
		})(w, r)
	})
	client := newTokenClient(t, f, nil)
	runs, next, err := client.Runs(t.Context(), OwnToken, "acme/app", RunQueued, 1)
	require.NoError(t, err)
	require.Zero(t, next)
	require.Equal(t, int64(5), runs[0].ID)
	jobs, _, err := client.RunJobs(t.Context(), OwnToken, "acme/app", 5, 1)
	require.NoError(t, err)
	require.Equal(t, int64(6), jobs[0].ID)
	require.NoError(t, client.ControlRead(t.Context(), OwnToken, enterprise))
	require.Zero(t, f.tokens.Load(), "no installation's token is asked for")
	rate, known := client.ReadRate(OwnToken)
	require.True(t, known)
	require.Equal(t, 9, rate.Remaining)
	require.Equal(t, 9, client.Limits()[0].Remaining)

	sent := f.calls.Load()
	require.Error(t, client.ControlRead(t.Context(), 42, org), "it has no installations")
	_, err = client.Installations(t.Context())
	require.ErrorIs(t, err, fleet.ErrRejected)
	_, err = client.InstallationFor(t.Context(), org)
	require.ErrorIs(t, err, fleet.ErrRejected)
	require.Error(t, client.UseKey(t.Context(), testKey()))
	require.Equal(t, sent, f.calls.Load())
	require.Error(t, newTestClient(t, f, nil).ControlRead(t.Context(), OwnToken, org), "an App needs an installation")
}

func newTokenClient(t *testing.T, f *forge, change func(*Options)) *Client {
	t.Helper()
	return newTestClient(t, f, func(o *Options) {
		o.AppID, o.PrivateKey, o.Token = 0, nil, fleet.NewSecret("ghp_hunter2")
		if change != nil {
			change(o)
		}
	})
}

// A token that is refused cannot be renewed. Going on with it would have GitHub bar its owner.
func TestToken_RefusedIsLeftAloneLikeAnInstallationThatFails(t *testing.T) {
	clk := newClock()
	f := newForge(t, status(401, `{"message":"Bad credentials"}`))
	client := newTokenClient(t, f, func(o *Options) { o.Now, o.Jitter = clk.read, func() float64 { return 1 } })
	for n := range circuitTrips {
		err := client.RemoveRunner(t.Context(), OwnToken, org, 5)
		require.ErrorIs(t, err, ErrUnauthorized)
		require.ErrorIs(t, err, fleet.ErrForbidden)
		require.Equal(t, int64(n+1), f.calls.Load(), "it is not repeated")
	}
	err := client.RemoveRunner(t.Context(), OwnToken, org, 5)
	var limited *fleet.RateLimitedError
	require.ErrorAs(t, err, &limited)
	require.Equal(t, ResourceCircuit, limited.Resource)
	require.Equal(t, int64(circuitTrips), f.calls.Load())
	clk.set(clk.after(31))
	f.answer = status(204, ``)
	require.NoError(t, client.RemoveRunner(t.Context(), OwnToken, org, 5))
}

func TestToken_LimitsHoldAsForInstallations(t *testing.T) {
	clk := newClock()
	f := newForge(t, status(403, `{}`, "Retry-After", "30"))
	client := newTokenClient(t, f, func(o *Options) { o.Now = clk.read })
	require.True(t, isLimited(client.RemoveRunner(t.Context(), OwnToken, org, 5)))
	require.True(t, isLimited(client.RemoveRunner(t.Context(), OwnToken, org, 5)))
	require.Equal(t, int64(1), f.calls.Load())
}

func TestUnauthorized_DiffersFromForbidden(t *testing.T) {
	f := newForge(t, status(403, `{}`))
	require.NotErrorIs(t, newTestClient(t, f, nil).RemoveRunner(t.Context(), 42, org, 5), ErrUnauthorized)
	f.answer = status(401, `{}`)
	require.ErrorIs(t, newTestClient(t, f, nil).RemoveRunner(t.Context(), 42, org, 5), ErrUnauthorized)
	for _, code := range []int{401, 403, 404} {
		f.token = status(code, `{}`)
		require.ErrorIs(t, newTestClient(t, f, nil).RemoveRunner(t.Context(), 42, org, 5), ErrUnauthorized, strconv.Itoa(code))
	}
}

func TestToken_NET3_IsNeverShown(t *testing.T) {
	var log bytes.Buffer
	registry := prometheus.NewRegistry()
	f := newForge(t, status(500, `{}`))
	client := newTokenClient(t, f, func(o *Options) { o.Log, o.Registerer = slog.New(slog.NewTextHandler(&log, nil)), registry })
	_, failed := client.RegistrationToken(t.Context(), OwnToken, org)
	require.Error(t, failed)
	f.Close()
	_, cut := client.RegistrationToken(t.Context(), OwnToken, org)
	require.Error(t, cut)
	f.answer = status(201, `{"token":"ghp_hunter2","expires_at":5}`)
	families, err := registry.Gather()
	require.NoError(t, err)
	shown := fmt.Sprintf("%s %v %v %+v %#v %v", log.String(), failed, cut, client.options.Token, client.options.Token, families)
	require.NotContains(t, shown, "hunter2")

	for want, options := range map[string]Options{
		"holds spaces": {Token: fleet.NewSecret("ghp hunter2\n")},
		"one of them":  {Token: fleet.NewSecret("hunter2"), AppID: 7},
	} {
		_, err := New(options)
		require.ErrorContains(t, err, want)
		require.NotContains(t, err.Error(), "hunter2")
	}
}

func TestLimits_AreTheNearestOfAllInstallations(t *testing.T) {
	left := map[string]string{"token token-1": "50", "token token-2": "7", "token token-3": "80"}
	f := newForge(t, func(w http.ResponseWriter, r *http.Request) {
		status(204, ``, "X-RateLimit-Remaining", left[r.Header.Get("Authorization")], "X-RateLimit-Limit", "100")(w, r)
	})
	client := newTestClient(t, f, nil)
	for id := range int64(3) {
		require.NoError(t, client.RemoveRunner(t.Context(), id+1, org, 5))
	}
	limits := client.Limits()
	require.Len(t, limits, 1)
	require.Equal(t, 7, limits[0].Remaining)
}

func TestMetrics_AreSharedByClients(t *testing.T) {
	registry := prometheus.NewRegistry()
	shared, err := NewMetrics(registry)
	require.NoError(t, err)
	f := newForge(t, status(204, ``))
	one := newTestClient(t, f, func(o *Options) { o.Metrics, o.Registerer = shared, registry })
	other := newTokenClient(t, f, func(o *Options) { o.Metrics = shared })
	require.NoError(t, one.RemoveRunner(t.Context(), 42, org, 5))
	require.NoError(t, other.RemoveRunner(t.Context(), OwnToken, org, 5))
	families, err := registry.Gather()
	require.NoError(t, err)
	require.Contains(t, fmt.Sprint(families), `value:2`)
}
