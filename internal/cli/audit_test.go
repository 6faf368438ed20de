package cli_test

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/api/adminapi"
	"github.com/bullpen-ci/bullpen/internal/cli"
	"github.com/bullpen-ci/bullpen/internal/cli/commandline"
)

func TestWhen_TakesDurationsDatesAndTimes(t *testing.T) {
	now := time.Date(2026, 11, 26, 12, 0, 0, 0, time.UTC)
	for text, want := range map[string]time.Time{
		"24h": now.Add(-24 * time.Hour), "90m": now.Add(-90 * time.Minute), "7d": now.Add(-7 * 24 * time.Hour), "0d": now, "0": now,
		"2026-11-20":                time.Date(2026, 11, 20, 0, 0, 0, 0, time.Local),
		"2026-11-20T20:35:14Z":      time.Date(2026, 11, 20, 20, 35, 14, 0, time.UTC),
		"2026-11-20T20:35:14+02:00": time.Date(2026, 11, 20, 18, 35, 14, 0, time.UTC),
	} {
		when := cli.When{Now: func() time.Time { return now }}
		require.NoError(t, when.Set(text), text)
		require.True(t, want.Equal(when.At), "%s: %s", text, when.At)
		require.Equal(t, text, when.String())
	}
	for _, bad := range []string{"", "yesterday", "-1h", "-1d", "d", "1.5d", "2026-13-01", "2026-11-20 20:35", "99999999d"} {
		var when cli.When
		var must commandline.ValueError
		require.ErrorAs(t, when.Set(bad), &must, bad)
		require.Contains(t, must.Must, "24h or 7d")
		require.True(t, when.At.IsZero())
	}
}

// Filters go to the server, with each page.
func TestAudit_SendsItsFilters(t *testing.T) {
	var asked []url.Values
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked = append(asked, r.URL.Query())
		list := adminapi.AuditList{Events: []adminapi.AuditEvent{{ID: int64(10 - len(asked))}}}
		if len(asked) == 1 {
			list.Next = 9
		}
		_ = json.NewEncoder(w).Encode(list)
	}))
	defer server.Close()
	client, err := cli.NewClient(server.URL, func(context.Context) (string, error) { return "t", nil }, 0)
	require.NoError(t, err)
	filter := cli.AuditFilter{Pool: "linux", Most: 5}
	require.NoError(t, filter.Since.Set("2026-11-20T20:35:14Z"))
	events, err := client.Audit(t.Context(), filter)
	require.NoError(t, err)
	require.Len(t, events, 2)
	require.Equal(t, []url.Values{
		{"pool": {"linux"}, "since": {"2026-11-20T20:35:14Z"}, "limit": {"5"}},
		{"pool": {"linux"}, "since": {"2026-11-20T20:35:14Z"}, "limit": {"4"}, "before": {"9"}},
	}, asked)
}

// The table names the person, and marks a name that the cluster did not verify.
func TestAuditTable_NamesThePerson(t *testing.T) {
	const account = "system:serviceaccount:bullpen-system:bullpen-admin"
	for want, event := range map[string]adminapi.AuditEvent{
		"ada":                                    {Actor: account, User: "ada", Account: "acme"},
		"grace":                                  {Actor: "grace", Account: "acme"},
		account:                                  {Actor: account, Account: "acme"},
		"github":                                 {Actor: adminapi.ActorGitHub, Account: "acme"},
		account + " (stated by the client: ada)": {Actor: account, StatedUser: "ada", Account: "acme"},
		"kubernetes (unknown client)":            {Actor: adminapi.ActorKubernetes, Pool: "runners/linux"},
		"kubernetes (kubectl-edit)":              {Actor: adminapi.ActorKubernetes, Manager: "kubectl-edit", Pool: "runners/linux"},
		"lin":                                    {Actor: adminapi.ActorKubernetes, User: "lin", Manager: "bullpen-pool", Pool: "runners/linux"},
	} {
		var out bytes.Buffer
		events := []adminapi.AuditEvent{event.Named()}
		require.NoError(t, cli.Print(&out, cli.FormatTable, events, cli.AuditTable(events)))
		require.Contains(t, out.String(), "ACCOUNT OR POOL")
		require.Contains(t, out.String(), want+"  ")
		require.Contains(t, out.String(), event.Account+event.Pool)
		out.Reset()
		require.NoError(t, cli.Print(&out, cli.FormatWide, events, cli.AuditTable(events)))
		require.Contains(t, out.String(), event.Actor, "the ServiceAccount is not lost")
		require.Contains(t, out.String(), event.Manager)
	}
}

// CHANGE has the fields that changed, in the units that users write.
func TestAuditTable_ShowsTheFieldsThatChanged(t *testing.T) {
	event := adminapi.AuditEvent{
		Before: json.RawMessage(`{"linux":{"milliCpu":16000,"jobs":20}}`), After: json.RawMessage(`{"linux":{"milliCpu":16000,"jobs":40}}`),
	}
	var out bytes.Buffer
	require.NoError(t, cli.Print(&out, cli.FormatTable, []adminapi.AuditEvent{event}, cli.AuditTable([]adminapi.AuditEvent{event})))
	require.Contains(t, out.String(), "linux jobs: 20 → 40")
	require.NotContains(t, out.String(), "CPU")
}
