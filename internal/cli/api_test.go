package cli_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/api/adminapi"
	"github.com/bullpen-ci/bullpen/internal/cli"
	"github.com/bullpen-ci/bullpen/internal/server/admin"
	"github.com/bullpen-ci/bullpen/internal/server/dispatch"
	"github.com/bullpen-ci/bullpen/internal/server/ledger"
	"github.com/bullpen-ci/bullpen/test/kit/apicontract"
	"github.com/bullpen-ci/bullpen/test/kit/await"
	"github.com/bullpen-ci/bullpen/test/kit/postgrestest"
)

func TestMain(m *testing.M) { postgrestest.Main(m) }

// allowAll is an authorizer that grants every right to the token's user.
type allowAll struct{}

func (allowAll) Identify(_ context.Context, token string) (admin.User, error) {
	if token != "ada's" {
		return admin.User{}, admin.ErrRejected
	}
	return admin.User{Name: "ada", Credential: "JTI=1"}, nil
}

func (allowAll) Allowed(context.Context, admin.User, admin.Right) (bool, error) {
	return true, nil
}

// desk is the admin API on a real ledger, and its client.
type desk struct {
	*cli.Client
	t     *testing.T
	url   string
	store *ledger.Store
	fleet *knownFleet
}

func newDesk(t *testing.T) *desk {
	t.Helper()
	store, err := ledger.Open(t.Context(), postgrestest.NewDatabase(t, ledger.Migrate), 0)
	require.NoError(t, err)
	t.Cleanup(store.Close)
	store.UseRepositoryCaps()
	fleet := newKnownFleet()
	fleet.backlog = store
	api, err := admin.New(admin.Options{Store: store, Access: allowAll{}, Fleet: fleet})
	require.NoError(t, err)
	server := httptest.NewServer(apicontract.Checked(t, api.Handler()))
	t.Cleanup(server.Close)
	d := &desk{t: t, url: server.URL, store: store, fleet: fleet}
	d.Client, err = cli.NewClient(server.URL, func(context.Context) (string, error) { return "ada's", nil }, 0)
	require.NoError(t, err)
	d.install("created", 1, "acme")
	return d
}

func (d *desk) install(action string, id int64, login string) {
	d.t.Helper()
	_, err := d.store.RecordInstallation(d.t.Context(), dispatch.Delivery{Event: "installation", At: time.Now()}, dispatch.Installation{
		Action: action, Account: dispatch.Account{ID: id, Login: login, InstallationID: 100 + id},
	})
	require.NoError(d.t, err)
}

// raw sends what the client would not.
func (d *desk) raw(method, path, ifMatch, body string) (int, string) {
	d.t.Helper()
	req, err := http.NewRequestWithContext(d.t.Context(), method, d.url+path, strings.NewReader(body))
	require.NoError(d.t, err)
	req.Header.Set("Authorization", "Bearer ada's")
	if ifMatch != "" {
		req.Header.Set("If-Match", ifMatch)
	}
	resp, err := await.HTTP.Do(req)
	require.NoError(d.t, err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	require.NoError(d.t, err)
	return resp.StatusCode, string(text)
}

func ptr(n int64) *int64 { return &n }

func jobs(n int64) adminapi.ChangeLimits {
	return adminapi.ChangeLimits{Platforms: map[string]adminapi.LimitsChange{"linux": {Jobs: ptr(n)}}, Reason: "tests"}
}

// Two administrators who read the same state do not overwrite each other.
func TestAPI_TwoAdministratorsDoNotOverwriteEachOther(t *testing.T) {
	d := newDesk(t)
	read, err := d.Account(t.Context(), "acme")
	require.NoError(t, err)
	first, err := d.ChangeLimits(t.Context(), "acme", read.ETag(), jobs(7))
	require.NoError(t, err)
	require.EqualValues(t, 7, first.Budgets[0].Limits.Jobs)
	_, err = d.ChangeLimits(t.Context(), "acme", read.ETag(), jobs(9))
	var refused *cli.APIError
	require.ErrorAs(t, err, &refused)
	require.Equal(t, http.StatusPreconditionFailed, refused.Status)
	again, err := d.Account(t.Context(), "acme")
	require.NoError(t, err)
	require.EqualValues(t, 7, again.Budgets[0].Limits.Jobs)
	require.NotEqual(t, read.ETag(), again.ETag())
	status, _ := d.raw("POST", "/api/v1/accounts/acme:suspend", read.ETag(), "")
	require.Equal(t, http.StatusPreconditionFailed, status)
	status, _ = d.raw("DELETE", "/api/v1/accounts/acme", read.ETag(), "")
	require.Equal(t, http.StatusPreconditionFailed, status)

	events, err := d.Audit(t.Context(), cli.AuditFilter{Account: "acme", Most: 10})
	require.NoError(t, err)
	require.Len(t, events, 2)
	require.Equal(t, []string{"ada", "JTI=1", "set_limits", "acme", "tests"},
		[]string{events[0].Actor, events[0].Credential, events[0].Action, events[0].Account, events[0].Reason})
}

// Bad input is one sentence that says what to do, and changes nothing.
func TestAPI_BadInput(t *testing.T) {
	d := newDesk(t)
	long := `{"reason":"` + strings.Repeat("x", 501) + `"}`
	limits := "/api/v1/accounts/acme/limits"
	for _, c := range []struct {
		method, path, ifMatch, body string
		status                      int
		says                        string
	}{
		{"PATCH", limits, "", `{}`, 428, "If-Match"},
		{"PATCH", limits, "x", `{}`, 400, "If-Match must be the ETag"},
		{"PATCH", limits, "*", ``, 400, "invalid JSON in the request body"},
		{"PATCH", limits, "*", `{}`, 400, "no limits to change"},
		{"PATCH", limits, "*", `{"platforms":{"linux":{}}}`, 400, "no limit to change"},
		{"PATCH", limits, "*", `{"platforms":{"windows":{"jobs":1}}}`, 400, "unknown platform"},
		{"PATCH", limits, "*", `{"platforms":{"linux":{"jobs":-1}}}`, 400, "limits must be from 0 to"},
		{"PATCH", limits, "*", `{"platforms":{"linux":{"jobs":1099511627777}}}`, 400, "limits must be from 0 to"},
		{"PATCH", limits, "*", `{"platforms":{"linux":{"job":1}}}`, 400, "unknown field"},
		{"PATCH", limits, "*", `{"platforms":{"linux":{"jobs":1}}} x`, 400, "invalid JSON in the request body"},
		{"PATCH", "/api/v1/accounts/nobody/limits", "*", `{"platforms":{"linux":{"jobs":1}}}`, 404, `account \"nobody\" not found`},
		{"POST", "/api/v1/accounts/acme:suspend", "", long, 400, "the reason is too long"},
		{"POST", "/api/v1/accounts/acme:suspend", "", `[]`, 400, "invalid JSON in the request body"},
		{"POST", "/api/v1/accounts/acme:explode", "", ``, 404, "unknown verb"},
		{"POST", "/api/v1/accounts/acme", "", ``, 404, "unknown verb"},
		{"DELETE", "/api/v1/accounts/acme", "", ``, 409, "the App is still installed"},
		{"GET", "/api/v1/accounts/@x", "", ``, 404, "not found"},
		{"GET", "/api/v1/accounts/%00", "", ``, 404, "not found"},
		{"GET", "/api/v1/accounts?limit=0", "", ``, 400, "limit must be from 1 to 500"},
		{"GET", "/api/v1/accounts?limit=501", "", ``, 400, "limit must be from 1 to 500"},
		{"GET", "/api/v1/accounts?after=x@y", "", ``, 400, "after must be"},
		{"GET", "/api/v1/audit?before=-1", "", ``, 400, "before must be"},
		{"GET", "/api/v1/nothing", "", ``, 404, "path not found"},
	} {
		status, text := d.raw(c.method, c.path, c.ifMatch, c.body)
		require.Equal(t, c.status, status, "%s %s %s: %s", c.method, c.path, c.body, text)
		require.Contains(t, text, c.says, "%s %s %s", c.method, c.path, c.body)
	}
	events, err := d.Audit(t.Context(), cli.AuditFilter{Most: 10})
	require.NoError(t, err)
	require.Len(t, events, 1, "the installation alone")
}

// Lists longer than a page are read whole, in order, regardless of new items.
func TestAPI_Pages(t *testing.T) {
	d := newDesk(t)
	for id := int64(2); id <= 12; id++ {
		d.install("created", id, fmt.Sprintf("Org-%02d", id))
	}
	seen, after := []string{}, ""
	for range 20 {
		accounts, next, err := d.store.Accounts(t.Context(), admin.AccountQuery{After: after, Most: 5})
		require.NoError(t, err)
		for _, a := range accounts {
			seen = append(seen, a.Login)
		}
		if after = next; after == "" {
			break
		}
	}
	require.Len(t, seen, 12)
	require.IsIncreasing(t, append([]string{}, strings.Fields(strings.ToLower(strings.Join(seen, " ")))...))
	all, err := d.Accounts(t.Context(), false)
	require.NoError(t, err)
	require.Len(t, all, 12)
	for range 9 {
		_, err := d.Suspend(t.Context(), "@2", "")
		require.NoError(t, err)
		_, err = d.Resume(t.Context(), "org-02", "")
		require.NoError(t, err)
	}
	events, err := d.Audit(t.Context(), cli.AuditFilter{Most: 25})
	require.NoError(t, err)
	require.Len(t, events, 25)
	for i := 1; i < len(events); i++ {
		require.Less(t, events[i].ID, events[i-1].ID)
	}
	d.install("deleted", 2, "Org-02")
	require.NoError(t, d.DeleteAccount(t.Context(), "org-02", "gone", true))
	events, err = d.Audit(t.Context(), cli.AuditFilter{Account: "ORG-02", Most: 2})
	require.NoError(t, err)
	require.Equal(t, adminapi.ActionPurge, events[0].Action, "the log outlives what it tells of")
}
