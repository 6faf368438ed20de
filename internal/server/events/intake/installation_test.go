package intake_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/api/adminapi"
	"github.com/bullpen-ci/bullpen/internal/server/events/intake"
)

// GitHub's events about installations reach the account, from the payload to the ledger.
func TestTake_InstallationEvents(t *testing.T) {
	in, store, _ := newIntake(t)
	n := 0
	take := func(event, body string, want intake.Outcome) {
		t.Helper()
		n++
		got := in.Take(t.Context(), intake.Delivery{GUID: fmt.Sprint("g", n), Event: event, Body: []byte(body), At: time.Now()})
		require.Equal(t, want, got.Outcome, "%+v", got)
	}
	installation := func(action string, id int, more string) {
		t.Helper()
		take("installation", fmt.Sprintf(`{"action":%q,"installation":{"id":%d,"account":{"id":5,"login":"acme","type":"Organization"}%s}}`,
			action, id, more), intake.Recorded)
	}
	repositories := func(action, field string, want intake.Outcome) {
		t.Helper()
		take("installation_repositories", fmt.Sprintf(`{"action":%q,"installation":{"id":42,"account":{"id":5,"login":"acme","type":"Organization"}},
			%q:[{"full_name":"acme/app"}]}`, action, field), want)
	}
	is := func(want adminapi.AccountState, held int64) {
		t.Helper()
		a, err := store.Account(t.Context(), "acme")
		require.NoError(t, err)
		require.Equal(t, want, a.State)
		require.Equal(t, held, a.Blocked)
	}
	suspended := `,"suspended_at":"2026-01-02T03:04:05Z"`
	installation("created", 42, "")
	take("workflow_job", string(payload("queued", 1, "")), intake.Recorded)
	is(adminapi.AccountActive, 0)
	installation("suspend", 42, suspended)
	installation("new_permissions_accepted", 42, suspended)
	is(adminapi.AccountSuspended, 0)
	installation("unsuspend", 42, "")
	is(adminapi.AccountActive, 0)
	repositories("removed", "repositories_removed", intake.Recorded)
	is(adminapi.AccountActive, 1)
	repositories("added", "repositories_added", intake.Recorded)
	is(adminapi.AccountActive, 0)
	repositories("removed", "repositories_added", intake.Ignored)
	repositories("moved", "repositories_removed", intake.Ignored)
	installation("deleted", 42, "")
	is(adminapi.AccountUninstalled, 0)
	installation("created", 42, "")
	is(adminapi.AccountUninstalled, 0)
	installation("created", 43, "")
	is(adminapi.AccountActive, 0)
}
