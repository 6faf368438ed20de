package http_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/internal/fleet"
	"github.com/bullpen-ci/bullpen/internal/github"
	"github.com/bullpen-ci/bullpen/test/kit/ledgertest"
)

// signed is a body that GitHub has signed, and the event that it was signed for.
type signed struct{ event, body string }

// everySigned are bodies of every event that Bullpen reads, with all that GitHub puts into them, and of others that an App may be subscribed to.
func everySigned() []signed {
	const (
		sender       = `"sender":{"id":1,"login":"acme","type":"Organization"}`
		account      = `"account":{"id":1,"login":"acme","type":"Organization"}`
		repository   = `"repository":{"id":3,"full_name":"acme/app","owner":{"id":1,"login":"acme","type":"Organization"}}`
		organization = `"organization":{"id":1,"login":"acme"}`
		app          = repository + "," + organization + "," + sender + `,"installation":{"id":101,"node_id":"x"}`
		list         = `[{"id":3,"full_name":"acme/app"}]`
	)
	job := func(id int64, action, more string) signed {
		return signed{"workflow_job", fmt.Sprintf(`{"action":%q,"workflow_job":{"id":%d,"run_id":1,"name":"build","labels":["linux-4cpu"],
			"created_at":"2026-01-02T03:04:05Z"%s},%s}`, action, id, more, app)}
	}
	installation := func(action, more string) signed {
		return signed{"installation", fmt.Sprintf(`{"action":%q,"installation":{"id":101,%s%s},"repositories":%s,%s}`, action, account, more, list, sender)}
	}
	repositories := func(action, added, removed string) signed {
		return signed{"installation_repositories", fmt.Sprintf(
			`{"action":%q,"installation":{"id":101,%s},"repositories_added":%s,"repositories_removed":%s,"repository_selection":"selected",%s}`,
			action, account, added, removed, sender)}
	}
	return []signed{
		installation("created", ""),
		job(1, "queued", ""),
		job(2, "waiting", ""),
		job(3, "in_progress", `,"runner_id":7,"runner_name":"elsewhere"`),
		job(4, "completed", `,"runner_id":8,"runner_name":"elsewhere-2","conclusion":"success"`),
		{"repository", fmt.Sprintf(`{"action":"deleted",%s}`, app)},
		{"check_run", fmt.Sprintf(`{"action":"created","check_run":{"id":1,"status":"queued"},%s}`, app)},
		{"workflow_run", fmt.Sprintf(`{"action":"completed","workflow_run":{"id":1,"conclusion":"success"},"workflow":{"id":1},%s}`, app)},
		{"meta", fmt.Sprintf(`{"action":"deleted","hook_id":1,"hook":{"id":1},%s}`, app)},
		{"installation_target", fmt.Sprintf(`{"action":"renamed",%s,"changes":{},%s,"installation":{"id":101}}`, account, organization)},
		repositories("removed", "[]", list),
		repositories("added", list, "[]"),
		installation("suspend", `,"suspended_at":"2026-01-02T03:04:05Z"`),
		installation("unsuspend", ""),
		installation("deleted", ""),
	}
}

// everything is all that deliveries can move in the ledger. Unless exact, without columns that say when or how often, and without the audit's list of
// what GitHub has said.
func (w *world) everything(exact bool) string {
	w.t.Helper()
	columns, tables := "to_jsonb(x)", []string{
		"accounts", "account_limits", "label_sets", "job_lanes", "workflow_jobs", "job_tombstones", "runner_claims", "runner_registrations",
		"runner_sessions", "runner_adoptions", "repositories", "removed_repositories", "ended_installations", "audit_events",
	}
	if !exact {
		columns += " - '{updated_at,seen_at,ended_at,removed_at,installation_changed_at,version}'::text[]"
		tables = tables[:len(tables)-1]
	}
	var all strings.Builder
	for _, table := range tables {
		rows := ledgertest.Text(w.t, w.url, "SELECT coalesce(string_agg(r, E'\\n' ORDER BY r), '') FROM (SELECT ("+columns+")::text AS r FROM "+table+" x) t")
		fmt.Fprintf(&all, "%s\n%s\n", table, rows)
	}
	return all.String()
}

// NET-6: GitHub signs the body, and neither the event's header nor the delivery's. A body that is replayed under another event moves
// nothing. Replayed under its own event and another delivery, it says again what it said, and a job that has ended stays ended. Another body under a
// delivery that was recorded moves nothing.
func TestWebhook_NET6_AReplayedBodySaysNothingElseUnderOtherHeaders(t *testing.T) {
	w := newWorld(t)
	bodies := everySigned()
	headers := []string{"workflow_job", "installation", "installation_repositories", "ping", "repository", "Workflow_Job"}
	replayUnderOthers := func(at string) {
		t.Helper()
		before := w.everything(true)
		for _, one := range bodies {
			for _, event := range headers {
				if event == one.event {
					continue
				}
				w.hook(event, one.body)
				require.Equal(t, before, w.everything(true), "%s: a body of %s under %s: %s", at, one.event, event, one.body)
			}
		}
	}
	replayUnderOthers("in an empty ledger")
	for i, one := range bodies {
		guid := fmt.Sprintf("own-%d", i)
		same := func(r *http.Request) { r.Header.Set(github.HeaderDelivery, guid) }
		status, text := w.hook(one.event, one.body, same)
		require.Less(t, status, 300, text)
		if i == 4 {
			replayUnderOthers("with jobs in every state")
			require.Equal(t, fleet.JobQueued, w.state(1))
			require.Equal(t, fleet.JobCompleted, w.state(4))
		}
		before := w.everything(false)
		if github.IsWebhookEvent(one.event) { // others are not recorded, and their delivery may come again as something else
			for _, other := range bodies {
				w.hook(other.event, other.body, same)
				require.Equal(t, before, w.everything(false), "%s under the delivery of %s", other.body, one.body)
			}
		}
		w.hook(one.event, one.body)
		require.Equal(t, before, w.everything(false), "the same body under another delivery: %s", one.body)
	}
	replayUnderOthers("after the installation has ended")
	w.hook(bodies[1].event, strings.Replace(bodies[1].body, `"id":1,`, `"id":4,`, 1))
	require.Equal(t, fleet.JobCompleted, w.state(4), "queued, said again of a job that has ended")
}
