package catchup_test

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/internal/fleet"
	"github.com/bullpen-ci/bullpen/internal/github"
	"github.com/bullpen-ci/bullpen/internal/server/events/catchup"
)

// The mode without any webhooks: GitHub has no address, every attempt fails, and only the ledger says what was taken.
func TestPoll_RECV8_JobsAreTakenFromTheListAlone(t *testing.T) {
	w := newWorld(t, func(o *catchup.Options) { o.Poll = true })
	require.NoError(t, w.in.SetWebhook("", ""))
	w.read()
	before := w.attempts()
	run, ids := w.submit("acme/app", 3)
	w.settled(before + 3)
	w.clock.Advance(10 * time.Second)
	w.read()
	require.Equal(t, map[fleet.JobState]int{fleet.JobQueued: 3}, w.states(ids))
	require.NoError(t, w.in.CancelRun(run))
	w.settled(before + 6)
	w.clock.Advance(10 * time.Second)
	w.read()
	require.Equal(t, map[fleet.JobState]int{fleet.JobCancelled: 3}, w.states(ids))
	calls := w.forge.called()
	require.Zero(t, count(calls, "redeliver"), "no pool could take it")
	for range 5 {
		w.clock.Advance(10 * time.Minute)
		w.read()
	}
	require.Zero(t, count(w.forge.called(), "payload"), "once each")
	require.Zero(t, w.counted("redelivered"), "nothing was lost")
}

// Any server may answer at the App's webhook URL: only the ledger knows what was accepted.
func TestPoll_RECV8_AnotherServersSuccessCountsForNothing(t *testing.T) {
	w := newWorld(t, func(o *catchup.Options) { o.Poll = true })
	welcome := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer welcome.Close()
	require.NoError(t, w.in.SetWebhook(welcome.URL, ""))
	before := w.attempts()
	_, ids := w.submit("acme/app", 2)
	w.settled(before + 2)
	w.read()
	require.Equal(t, map[fleet.JobState]int{fleet.JobQueued: 2}, w.states(ids))
}

// A job that has ended before the first reading is never queued: its end is taken first.
func TestPoll_CLAIM4_TheNewestOfAJobComesFirst(t *testing.T) {
	w := newWorld(t, func(o *catchup.Options) { o.Poll = true })
	require.NoError(t, w.in.SetWebhook("", ""))
	before := w.attempts()
	run, ids := w.submit("acme/app", 1)
	w.clock.Advance(time.Minute)
	require.NoError(t, w.in.CancelRun(run))
	w.settled(before + 2)
	var order []string
	w.forge.payload = func(id int64) (github.Payload, error) {
		payload, err := w.forge.Client.Payload(t.Context(), id)
		event, bad := github.ParseWebhook(payload.Event, payload.Body)
		require.NoError(t, bad)
		if job, ok := event.(*github.WorkflowJobEvent); ok {
			order = append(order, job.Action+" while "+string(w.state(ids[0])))
		}
		return payload, err
	}
	w.read()
	require.Equal(t, []string{"completed while ", "queued while cancelled"}, order)
	require.Equal(t, fleet.JobCancelled, w.state(ids[0]))
}

func TestPoll_LooksSoonerWhileThereIsNews(t *testing.T) {
	w := newWorld(t, func(o *catchup.Options) { o.Poll = true })
	w.forge.page = func(_, etag string) (github.DeliveryPage, error) {
		return github.DeliveryPage{ETag: "same", Unchanged: etag == "same"}, nil
	}
	looks := func(seconds int) int {
		w.forge.called()
		for range seconds / 2 {
			w.read()
			w.clock.Advance(2 * time.Second)
		}
		return count(w.forge.called(), "page")
	}
	looks(60)
	idle := looks(60)
	w.forge.page = func(string, string) (github.DeliveryPage, error) { return github.DeliveryPage{ETag: "other"}, nil }
	looks(60)
	busy := looks(60)
	require.Equal(t, 10, idle)
	require.Equal(t, 30, busy)
}
