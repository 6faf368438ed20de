package catchup_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/internal/fleet"
	"github.com/bullpen-ci/bullpen/internal/github"
	"github.com/bullpen-ci/bullpen/internal/server/events/intake"
)

// A repository that was given back unheard would hold its jobs until they are given up.
func TestDeliveries_RECV7_RECV8_ARepositoryThatWasGivenBackUnheardHoldsNoJob(t *testing.T) {
	w := newWorld(t, nil)
	account, err := w.store.Account(t.Context(), "acme")
	require.NoError(t, err)
	body := func(action, added, removed string) []byte {
		return fmt.Appendf(nil, `{"action":%q,"installation":{"id":11,"account":{"id":%d,"login":"acme","type":%q}},
			"repositories_added":[%s],"repositories_removed":[%s]}`, action, account.ID, account.Kind, added, removed)
	}
	const app = `{"id":1,"full_name":"acme/app"}`
	before := w.attempts()
	_, ids := w.submit("acme/app", 1)
	w.settled(before + 1)
	taken := w.intake.Take(t.Context(), intake.Delivery{
		GUID: "taken", Event: "installation_repositories", Body: body("removed", "", app), At: w.clock.Now(),
	})
	require.Equal(t, intake.Recorded, taken.Outcome)
	held := func() int64 {
		is, err := w.store.Account(t.Context(), "acme")
		require.NoError(t, err)
		return is.Blocked
	}
	require.EqualValues(t, 1, held())

	lost := func(id int64, guid, action string) github.Delivery {
		return github.Delivery{
			ID: id, GUID: guid, Event: "installation_repositories", Action: action, StatusCode: 502, DeliveredAt: w.clock.Now(),
		}
	}
	listed := github.DeliveryPage{Deliveries: []github.Delivery{lost(900_002, "given", "added"), lost(900_001, "taken before", "removed")}}
	w.forge.page = func(string, string) (github.DeliveryPage, error) { return listed, nil }
	w.forge.deliver = func(int64) error { return nil } // and fails again
	w.forge.payload = func(int64) (github.Payload, error) {
		return github.Payload{GUID: "given", Event: "installation_repositories", Body: body("added", app, "")}, nil
	}
	w.read()
	w.clock.Advance(10 * time.Minute)
	w.read()
	require.Zero(t, held())
	require.Equal(t, fleet.JobQueued, w.state(ids[0]))
	calls := w.forge.called()
	require.Zero(t, count(calls, "redeliver 900001")+count(calls, "payload 900001"), "told late it would hold the job for good")
}
