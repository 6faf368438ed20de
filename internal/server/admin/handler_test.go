package admin

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/api/adminapi"
	"github.com/bullpen-ci/bullpen/test/kit/apicontract"
)

// oracle gives scripted answers; its store fails every call.
type oracle struct {
	Store
	Fleet
	identify, allowed error
	yes               bool
	asked             []Right
	reached           int
}

func (o *oracle) Identify(context.Context, string) (User, error) {
	return User{Name: "ada"}, o.identify
}

func (o *oracle) Allowed(_ context.Context, _ User, right Right) (bool, error) {
	o.asked = append(o.asked, right)
	return o.yes, o.allowed
}

func (o *oracle) Accounts(context.Context, AccountQuery) ([]adminapi.Account, string, error) {
	o.reached++
	return nil, "", errors.New("a secret of the database")
}

func (o *oracle) ask(t *testing.T, method, path, token string) *httptest.ResponseRecorder {
	t.Helper()
	metrics := prometheus.NewRegistry()
	api, err := New(Options{Store: o, Access: o, Fleet: o, Metrics: metrics, Version: "v1.2.3"})
	require.NoError(t, err)
	r := httptest.NewRequestWithContext(t.Context(), method, path, strings.NewReader(""))
	if token != "" {
		r.Header.Set("Authorization", token)
	}
	w := httptest.NewRecorder()
	apicontract.Checked(t, api.Handler()).ServeHTTP(w, r)
	counted, err := metrics.Gather()
	require.NoError(t, err)
	require.LessOrEqual(t, len(counted), 1)
	return w
}

// NET-5: nothing is served without a right, and each route asks for its own.
func TestRoutes_NET5_EachAsksForItsRight(t *testing.T) {
	want := map[string]Right{
		"GET /api/v1/accounts":                   {"list", "accounts", ""},
		"GET /api/v1/accounts/acme":              {"get", "accounts", "acme"},
		"PATCH /api/v1/accounts/acme/limits":     {"update", "accounts", "acme"},
		"POST /api/v1/accounts/acme:suspend":     {"update", "accounts", "acme"},
		"POST /api/v1/accounts/acme:resume":      {"update", "accounts", "acme"},
		"DELETE /api/v1/accounts/acme":           {"delete", "accounts", "acme"},
		"GET /api/v1/audit":                      {"list", "audits", ""},
		"GET /api/v1/jobs":                       {"list", "jobs", ""},
		"GET /api/v1/conclusions":                {"list", "jobs", ""},
		"GET /api/v1/jobs/7":                     {"get", "jobs", "7"},
		"GET /api/v1/jobs/7/why":                 {"get", "jobs", "7"},
		"GET /api/v1/usage":                      {"list", "usages", ""},
		"GET /api/v1/usage/days":                 {"list", "usages", ""},
		"POST /api/v1/runners/ns/linux-1/retire": {"retire", "runnerpods", "linux-1"},
		"GET /api/v1/pools":                      {"list", "pools", ""},
		"GET /api/v1/pools/runners/linux":        {"get", "pools", "linux"},
		"GET /api/v1/pools/ns/linux/history":     {"get", "pools", "linux"},
		"GET /api/v1/history":                    {"list", "pools", ""},
		"GET /api/v1/runners":                    {"list", "runnerpods", ""},
		"GET /api/v1/runners/ns/linux-1/log":     {"get", "runnerlogs", "linux-1"},
		"GET /api/v1/hosts":                      {"list", "hosts", ""},
	}
	patterns := map[string]bool{}
	for _, rt := range routes() {
		require.NotEmpty(t, rt.right.Verb)
		require.NotEmpty(t, rt.right.Resource)
		patterns[rt.pattern] = true
	}
	require.Len(t, patterns, 20, "a route was added or has gone: name it here with the right that it needs")
	for line, right := range want {
		method, path, _ := strings.Cut(line, " ")
		o := &oracle{}
		require.Equal(t, http.StatusForbidden, o.ask(t, method, path, "Bearer x").Code, line)
		require.Equal(t, []Right{right}, o.asked, line)
		require.Zero(t, o.reached)
	}
}

// NET-5: a failed check is no permission, and is distinguished from a denial; the database's own error text reaches no client.
func TestAdmit_NET5_WhatCannotBeAskedIsNoYes(t *testing.T) {
	for name, c := range map[string]struct {
		o      *oracle
		token  string
		status int
	}{
		"no token":                      {&oracle{yes: true}, "", http.StatusUnauthorized},
		"another scheme":                {&oracle{yes: true}, "Basic x", http.StatusUnauthorized},
		"an empty token":                {&oracle{yes: true}, "Bearer ", http.StatusUnauthorized},
		"rejected":                      {&oracle{yes: true, identify: ErrRejected}, "Bearer x", http.StatusUnauthorized},
		"nobody to ask who it is":       {&oracle{yes: true, identify: errors.New("away")}, "Bearer x", http.StatusServiceUnavailable},
		"nobody to ask what they may":   {&oracle{yes: true, allowed: errors.New("away")}, "Bearer x", http.StatusServiceUnavailable},
		"a no":                          {&oracle{}, "Bearer x", http.StatusForbidden},
		"a ledger that does not answer": {&oracle{yes: true}, "Bearer x", http.StatusServiceUnavailable},
	} {
		w := c.o.ask(t, http.MethodGet, "/api/v1/accounts", c.token)
		require.Equal(t, c.status, w.Code, name)
		require.NotContains(t, w.Body.String(), "secret", name)
		require.Equal(t, name == "a ledger that does not answer", c.o.reached == 1, name)
	}
}

// The version of the server is for those alone who have authenticated.
func TestAdmit_NET5_TheVersionIsNotForEverybody(t *testing.T) {
	for name, c := range map[string]struct {
		o     *oracle
		token string
		want  string
	}{
		"no token":          {&oracle{yes: true}, "", ""},
		"rejected":          {&oracle{yes: true, identify: ErrRejected}, "Bearer x", ""},
		"without the right": {&oracle{}, "Bearer x", "v1.2.3"},
		"with it":           {&oracle{yes: true}, "Bearer x", "v1.2.3"},
	} {
		require.Equal(t, c.want, c.o.ask(t, http.MethodGet, "/api/v1/accounts", c.token).Header().Get(adminapi.HeaderVersion), name)
	}
}

func FuzzIfMatch(f *testing.F) {
	for _, seed := range []string{"", "*", `"3"`, "3", `W/"3"`, `"-1"`, `"99999999999999999999"`} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		r := request{Request: &http.Request{Header: http.Header{"If-Match": {text}}}}
		version, given, err := ifMatch(r)
		if err == nil && given != (text != "") {
			t.Fatalf("%q: given %v", text, given)
		}
		if err == nil && version == 0 && text != "" && text != "*" {
			t.Fatalf("%q stands for any version", text)
		}
	})
}

// Months are read the way people write them; a page of too many is refused.
func TestMonths(t *testing.T) {
	now := time.Date(2026, 11, 23, 1, 0, 0, 0, time.UTC)
	month := func(year int, m time.Month) time.Time { return time.Date(year, m, 1, 0, 0, 0, 0, time.UTC) }
	for name, c := range map[string]struct {
		from, to      string
		since, before time.Time
	}{
		"this month":   {"", "", month(2026, 11), month(2026, 12)},
		"one by from":  {"2026-02", "", month(2026, 2), month(2026, 3)},
		"one by to":    {"", "2026-02", month(2026, 2), month(2026, 3)},
		"over a year":  {"2025-12", "2026-01", month(2025, 12), month(2026, 2)},
		"all that may": {"2025-01", "2026-12", month(2025, 1), month(2027, 1)},
	} {
		since, before, err := months(c.from, c.to, now)
		require.NoError(t, err, name)
		require.Equal(t, [2]time.Time{c.since, c.before}, [2]time.Time{since, before}, name)
	}
	for _, bad := range [][2]string{{"2026-13", ""}, {"", "november"}, {"2026-03", "2026-02"}, {"2025-01", "2027-01"}} {
		var invalid *InvalidError
		_, _, err := months(bad[0], bad[1], now)
		require.ErrorAs(t, err, &invalid, bad)
	}
}
