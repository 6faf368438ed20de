package admin

import (
	"context"
	"net/http"
	"net/url"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/api/adminapi"
)

func TestAuditQuery_ReadsFilters(t *testing.T) {
	day := time.Date(2026, 11, 20, 0, 0, 0, 0, time.UTC)
	for text, want := range map[string]AuditQuery{
		"":                                  {Most: adminapi.DefaultPage},
		"account=acme&limit=7":              {Account: "acme", Most: 7},
		"pool=runners/linux&before=9":       {Pool: "runners/linux", Before: 9, Most: adminapi.DefaultPage},
		"since=2026-11-20":                  {Since: day, Most: adminapi.DefaultPage},
		"until=2026-11-20T01:00:00%2B01:00": {Until: day, Most: adminapi.DefaultPage},
	} {
		values, err := url.ParseQuery(text)
		require.NoError(t, err)
		query, err := auditQuery(values)
		require.NoError(t, err, text)
		require.True(t, query.Until.Equal(want.Until), text)
		query.Until, want.Until = time.Time{}, time.Time{}
		require.Equal(t, want, query, text)
	}
	for text, says := range map[string]string{
		"account=acme&pool=linux": "exclude each other", "since=yesterday": "since must be a time", "until=24h": "until must be a time",
		"before=0": "before must be", "limit=0": "limit must be",
	} {
		values, err := url.ParseQuery(text)
		require.NoError(t, err)
		_, err = auditQuery(values)
		var invalid *InvalidError
		require.ErrorAs(t, err, &invalid, text)
		require.Contains(t, invalid.Sentence, says, text)
	}
}

// auditStore has changes of one pool that was deleted, long ago.
type auditStore struct {
	Store
	Fleet
}

func (auditStore) Audit(_ context.Context, q AuditQuery) ([]adminapi.AuditEvent, error) {
	if q.Account == "unknown" {
		return nil, ErrNotFound
	}
	if q.Pool != "gone" || !q.Since.IsZero() {
		return nil, nil
	}
	return []adminapi.AuditEvent{{ID: 3, Actor: adminapi.ActorKubernetes, Manager: "helm", Action: adminapi.ActionPoolScale, Pool: "runners/gone"}}, nil
}

func (auditStore) DescribePools() []adminapi.Pool {
	return []adminapi.Pool{{Namespace: "runners", Name: "linux"}}
}

// An unknown account or pool is an error, as for other requests; one that exists, or had changes, is not.
func TestAudit_UnknownNamesAreNotFound(t *testing.T) {
	for path, c := range map[string]struct {
		status int
		says   string
	}{
		"?account=unknown":            {http.StatusNotFound, `account \"unknown\" not found: list accounts with`},
		"?account=acme":               {http.StatusOK, `"events":[]`},
		"?pool=nothing":               {http.StatusNotFound, `pool \"nothing\" not found, and not in the audit log`},
		"?pool=other/linux":           {http.StatusNotFound, "not found"},
		"?pool=linux":                 {http.StatusOK, `"events":[]`},
		"?pool=runners/linux":         {http.StatusOK, `"events":[]`},
		"?pool=gone":                  {http.StatusOK, `"pool":"runners/gone"`},
		"?pool=gone&since=2026-11-20": {http.StatusOK, `"events":[]`},
		"?since=24h":                  {http.StatusBadRequest, "since must be a time"},
	} {
		o := &oracle{yes: true}
		o.Store, o.Fleet = auditStore{}, auditStore{}
		w := o.ask(t, http.MethodGet, adminapi.PathAudit+path, "Bearer t")
		require.Equal(t, c.status, w.Code, path)
		require.Contains(t, w.Body.String(), c.says, path)
	}
}

// Whom the cluster verified, and whom the client stated, go into the change as they are.
func TestChange_HasTheUserBehindTheToken(t *testing.T) {
	now := time.Unix(1, 0)
	r := request{user: User{Name: "sa", Requester: "ada", Stated: "", Credential: "JTI=1"}, name: "acme"}
	require.Equal(t, Change{Account: "acme", Actor: "sa", Requester: "ada", Credential: "JTI=1", Reason: "why", Version: 2, At: now}, r.change("why", 2, now))
	r.user.Requester, r.user.Stated = "", "grace"
	require.Equal(t, "grace", r.change("", 0, now).Stated)
	require.Empty(t, r.change("", 0, now).Requester)
}
