package catchup_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/bullpen-ci/bullpen/internal/dev/github/standin"
	"github.com/bullpen-ci/bullpen/internal/fleet"
	"github.com/bullpen-ci/bullpen/internal/github"
	"github.com/bullpen-ci/bullpen/internal/server/events/intake"
)

func count(calls []string, prefix string) int {
	n := 0
	for _, call := range calls {
		if strings.HasPrefix(call, prefix) {
			n++
		}
	}
	return n
}

func TestDeliveries_RECV8_AWebhookThatFailedIsDeliveredAgainOnce(t *testing.T) {
	w := newWorld(t, nil)
	w.fault(standin.Fault{Kind: "hook-drop", Event: "workflow_job", Action: "queued", Times: 1})
	before := w.attempts()
	_, ids := w.submit("acme/app", 2)
	w.settled(before + 2)
	require.Equal(t, map[fleet.JobState]int{fleet.JobAbsent: 1, fleet.JobQueued: 1}, w.states(ids))

	w.forge.called()
	w.read()
	require.Equal(t, 1, count(w.forge.called(), "redeliver"), "only the one that failed")
	w.eventually("it arrives", func() bool { return w.states(ids)[fleet.JobQueued] == 2 })
	require.Equal(t, 1, w.counted("redelivered"), "RECV-9")
	w.settled(before + 3)
	for range 3 {
		w.clock.Advance(time.Hour)
		w.read()
	}
	calls := w.forge.called()
	require.Zero(t, count(calls, "redeliver")+count(calls, "payload"), "%v", calls)
	require.Equal(t, 1, w.counted("redelivered"))
}

func TestDeliveries_RECV8_WhatRedeliveryDoesNotHealIsFetched(t *testing.T) {
	w := newWorld(t, nil)
	w.close(true) // GitHub cannot reach the server, today and later
	before := w.attempts()
	_, ids := w.submit("acme/app", 3)
	w.settled(before + 3)
	w.read()
	require.Equal(t, 3, count(w.forge.called(), "redeliver"))
	w.settled(before + 6)
	w.read()
	require.Zero(t, count(w.forge.called(), "redeliver"), "not yet again")
	w.clock.Advance(2 * time.Minute)
	w.read()
	calls := w.forge.called()
	require.Equal(t, 3, count(calls, "payload"), "%v", calls)
	require.Zero(t, count(calls, "redeliver"))
	require.Equal(t, map[fleet.JobState]int{fleet.JobQueued: 3}, w.states(ids))
	require.Equal(t, 3, w.counted("redelivered"), "RECV-9: once each")
}

// A server that was away for hours has everything within ten runs, and no run does more than its bound.
func TestDeliveries_RECV8_AnOutageOfHoursIsMadeGoodInBoundedSteps(t *testing.T) {
	w := newWorld(t, nil)
	w.close(true)
	before := w.attempts()
	var ids []int64
	for range 5 {
		_, more := w.submit("acme/app", 80)
		ids = append(ids, more...)
		w.clock.Advance(time.Hour)
	}
	w.settled(before + 400)
	w.close(false)
	passes := 0
	for ; w.states(ids)[fleet.JobAbsent] > 0; passes++ {
		require.Less(t, passes, 10, "%v", w.states(ids))
		seen := w.attempts()
		w.read()
		calls := w.forge.called()
		redelivered := count(calls, "redeliver")
		require.LessOrEqual(t, count(calls, "page"), 40)
		require.LessOrEqual(t, redelivered, 100)
		require.LessOrEqual(t, redelivered+count(calls, "payload"), 500)
		w.settled(seen + redelivered)
		w.clock.Advance(time.Minute)
	}
	require.Equal(t, map[fleet.JobState]int{fleet.JobQueued: 400}, w.states(ids))
	require.Equal(t, 400, w.counted("redelivered"), "RECV-9: once each")
	t.Logf("400 lost webhooks took %d runs", passes)
}

func TestDeliveries_WhatTheLedgerHasIsNotAskedFor(t *testing.T) {
	w := newWorld(t, nil)
	w.fault(standin.Fault{Kind: "hook-drop", Event: "workflow_job", Action: "queued", Times: 1})
	before := w.attempts()
	_, ids := w.submit("acme/app", 1)
	w.settled(before + 1)
	page, err := w.forge.DeliveryPage(t.Context(), "", "")
	require.NoError(t, err)
	lost := page.Deliveries[0]
	require.Equal(t, http.StatusBadGateway, lost.StatusCode)
	payload, err := w.forge.Payload(t.Context(), lost.ID)
	require.NoError(t, err)
	w.intake.Take(t.Context(), intakeOf(payload, w.clock.Now())) // our answer was lost, our transaction was not
	fresh, err := w.store.NoteMissing(t.Context(), []github.Delivery{lost}, w.clock.Now())
	require.NoError(t, err)
	require.Zero(t, fresh)
	w.forge.called()
	w.read()
	calls := w.forge.called()
	require.Zero(t, count(calls, "redeliver")+count(calls, "payload"), "%v", calls)
	require.Equal(t, fleet.JobQueued, w.state(ids[0]))
}

// What was late and not lost is not asked for once it has come.
func TestDeliveries_WhatHasArrivedSinceIsNotAskedFor(t *testing.T) {
	w := newWorld(t, nil)
	w.fault(standin.Fault{Kind: "hook-drop", Event: "workflow_job", Action: "queued", Times: 1})
	before := w.attempts()
	w.submit("acme/app", 1)
	w.settled(before + 1)
	w.forge.deliver = func(int64) error { return &fleet.RateLimitedError{Until: w.clock.Now()} }
	w.read()
	require.Equal(t, 1, count(w.forge.called(), "redeliver"))
	page, err := w.forge.Client.DeliveryPage(t.Context(), "", "")
	require.NoError(t, err)
	payload, err := w.forge.Client.Payload(t.Context(), page.Deliveries[0].ID)
	require.NoError(t, err)
	w.intake.Take(t.Context(), intakeOf(payload, w.clock.Now()))
	w.clock.Advance(time.Hour)
	w.read()
	calls := w.forge.called()
	require.Zero(t, count(calls, "redeliver")+count(calls, "payload"), "%v", calls)
}

func TestDeliveries_AllAttemptsOfAnEventCount(t *testing.T) {
	w := newWorld(t, nil)
	at := w.clock.Now()
	one := func(id int64, guid string, status int, again bool) github.Delivery {
		return github.Delivery{
			ID: id, GUID: guid, Event: "workflow_job", Action: "queued", StatusCode: status, Redelivery: again,
			DeliveredAt: at.Add(time.Duration(id-100) * time.Second),
		}
	}
	// None of these is in the ledger: what was taken and ignored leaves nothing there.
	pages := map[string]github.DeliveryPage{
		"": {Next: "older", Deliveries: []github.Delivery{
			one(90, "healed", 202, true), one(80, "failed", 500, true), one(70, "late failure", 500, true),
			one(68, "both here", 500, true), one(65, "both here", 200, false),
		}},
		"older": {Deliveries: []github.Delivery{
			one(60, "failed", 503, false), one(50, "late failure", 200, false), one(40, "healed", 0, false),
			{ID: 30, GUID: "of no use", Event: "star", StatusCode: 500, DeliveredAt: at},
		}},
	}
	w.forge.page = func(cursor, _ string) (github.DeliveryPage, error) { return pages[cursor], nil }
	w.forge.deliver = func(int64) error { return nil }
	w.read()
	calls := w.forge.called()
	require.Equal(t, 1, count(calls, "redeliver"), "%v", calls)
	require.Contains(t, calls, "redeliver 80", "the latest attempt")
}

// After a restore GitHub has seen successes that the ledger has lost.
func TestEverything_AfterARestoreSuccessesAreAskedForToo(t *testing.T) {
	w := newWorld(t, nil)
	w.read()
	before, backup := w.attempts(), time.Now() // GitHub's clock
	w.clock.Advance(10 * time.Minute)
	_, ids := w.submit("acme/app", 2)
	w.settled(before + 2)
	w.clock.Advance(10 * time.Minute)
	w.read()
	require.Equal(t, map[fleet.JobState]int{fleet.JobQueued: 2}, w.states(ids))
	position, err := w.store.DeliveryPosition(t.Context())
	require.NoError(t, err)

	w.store = w.database() // an older state of the database
	position.Version = 0
	saved, err := w.store.SaveDeliveryPosition(t.Context(), position)
	require.NoError(t, err)
	require.True(t, saved)
	w.intake, err = intake.New(intake.Options{Store: w.store})
	require.NoError(t, err)
	w.c = w.catchUp(nil)
	w.forge.called()
	w.read()
	require.Zero(t, count(w.forge.called(), "redeliver"), "GitHub saw no failure")
	require.Equal(t, map[fleet.JobState]int{fleet.JobAbsent: 2}, w.states(ids))

	require.NoError(t, w.c.Everything(t.Context(), backup))
	w.read()
	require.Equal(t, 3, count(w.forge.called(), "redeliver"), "the jobs', and the installation's of just before the backup")
	w.eventually("both arrive", func() bool { return w.states(ids)[fleet.JobQueued] == 2 })
	w.settled(before + 5)
	w.clock.Advance(10 * time.Minute)
	w.read()
	calls := w.forge.called()
	require.Zero(t, count(calls, "redeliver")+count(calls, "payload"), "it was asked for once: %v", calls)
}

// A restore may be noticed while a reading is under way: what the reading has skipped counts now.
func TestEverything_OverridesALookThatIsUnderWay(t *testing.T) {
	w := newWorld(t, nil)
	w.read()
	at := w.clock.Now().Add(-time.Minute)
	success := github.Delivery{ID: 9, GUID: "g", Event: "workflow_job", Action: "queued", StatusCode: 200, DeliveredAt: at}
	asked := false
	w.forge.page = func(cursor, _ string) (github.DeliveryPage, error) {
		if cursor == "" && !asked {
			asked = true
			require.NoError(t, w.c.Everything(t.Context(), at.Add(-time.Minute)))
		}
		return github.DeliveryPage{ETag: "x", Deliveries: []github.Delivery{success}}, nil
	}
	w.forge.deliver = func(int64) error { return nil }
	w.read()
	w.read()
	require.Equal(t, 1, count(w.forge.called(), "redeliver"))
	position, err := w.store.DeliveryPosition(t.Context())
	require.NoError(t, err)
	require.True(t, position.EverythingSince.IsZero(), "done, and not for ever")
}

func TestDeliveries_ACursorThatGitHubForgotIsNoTrap(t *testing.T) {
	w := newWorld(t, nil)
	at := w.clock.Now()
	require.NoError(t, w.store.ReadEverythingSince(t.Context(), at.Add(-time.Hour)))
	position, err := w.store.DeliveryPosition(t.Context())
	require.NoError(t, err)
	position.Cursor, position.Floor = "v1_forgotten", at.Add(-time.Hour)
	_, err = w.store.SaveDeliveryPosition(t.Context(), position)
	require.NoError(t, err)
	w.forge.page = func(cursor, _ string) (github.DeliveryPage, error) {
		if cursor != "" {
			return github.DeliveryPage{}, fleet.ErrRejected
		}
		return github.DeliveryPage{Deliveries: []github.Delivery{
			{ID: 1, GUID: "a", Event: "workflow_job", Action: "queued", StatusCode: 500, DeliveredAt: at},
		}}, nil
	}
	w.forge.deliver = func(int64) error { return nil }
	w.read()
	require.Equal(t, []string{"page v1_forgotten", "page ", "redeliver 1"}, w.forge.called())
	position, err = w.store.DeliveryPosition(t.Context())
	require.NoError(t, err)
	require.Equal(t, at.Unix(), position.ReadUntil.Unix())
	require.Empty(t, position.Cursor)
}

func TestDeliveries_UnchangedCostsNothing(t *testing.T) {
	w := newWorld(t, nil)
	w.read()
	rate, known := w.forge.Client.AppRate()
	require.True(t, known)
	for range 5 {
		w.clock.Advance(time.Minute)
		w.read()
	}
	after, _ := w.forge.Client.AppRate()
	require.Equal(t, rate.Remaining, after.Remaining)
	require.Equal(t, 6, count(w.forge.called(), "page"))
	w.forge.appRate = &fleet.RateState{Limit: 1000, Remaining: 110, Reset: w.clock.Now().Add(time.Hour)}
	w.c = w.catchUp(nil)
	for range 10 { // nor of the share that may be spent
		w.read()
	}
	require.Equal(t, 10, count(w.forge.called(), "page"))
}

func TestDeliveries_WhatGitHubForgotIsLetGo(t *testing.T) {
	w := newWorld(t, nil)
	at := w.clock.Now()
	listed := github.DeliveryPage{Deliveries: []github.Delivery{
		{ID: 1, GUID: "a", Event: "workflow_job", Action: "queued", StatusCode: 500, DeliveredAt: at},
		{ID: 2, GUID: "b", Event: "workflow_job", Action: "queued", StatusCode: 500, DeliveredAt: at},
	}}
	w.forge.page = func(string, string) (github.DeliveryPage, error) { return listed, nil }
	w.forge.deliver = func(id int64) error {
		if id == 1 {
			return fleet.ErrNotFound
		}
		return fleet.ErrUncertain
	}
	w.forge.payload = func(int64) (github.Payload, error) { return github.Payload{}, fleet.ErrUncertain }
	w.read()
	require.Equal(t, 2, count(w.forge.called(), "redeliver"))
	for range 12 {
		w.clock.Advance(time.Hour)
		w.read()
	}
	calls := w.forge.called()
	require.Zero(t, count(calls, "redeliver 1")+count(calls, "payload 1"))
	require.Equal(t, 12, count(calls, "payload 2"), "less and less often, but for as long as GitHub has it")
	listed = github.DeliveryPage{}
	w.clock.Advance(100 * time.Hour)
	w.read()
	require.Contains(t, w.log.String(), "not recovered while GitHub kept them")
	w.forge.called()
	w.clock.Advance(time.Hour)
	w.read()
	require.Zero(t, count(w.forge.called(), "payload"))
}

func TestDeliveries_WithoutGitHubNothingIsForgotten(t *testing.T) {
	w := newWorld(t, nil)
	w.fault(standin.Fault{Kind: "hook-drop", Event: "workflow_job", Action: "queued", Times: 5})
	before := w.attempts()
	_, ids := w.submit("acme/app", 5)
	w.settled(before + 5)
	w.forge.deliver = func(int64) error { return fleet.ErrUncertain }
	w.read()
	require.Equal(t, 3, count(w.forge.called(), "redeliver"), "who does not answer three times answers nobody")
	w.forge.deliver = func(int64) error { return &fleet.RateLimitedError{Until: w.clock.Now().Add(time.Minute)} }
	w.clock.Advance(time.Minute)
	w.read()
	require.Equal(t, 1, count(w.forge.called(), "redeliver"), "a limit holds for all")
	w.forge.deliver = nil
	for range 3 {
		w.clock.Advance(4 * time.Minute)
		w.read()
	}
	w.eventually("all arrive", func() bool { return w.states(ids)[fleet.JobQueued] == 5 })
}

func TestDeliveries_TheShareOfTheLimitIsKept(t *testing.T) {
	w := newWorld(t, nil)
	w.fault(standin.Fault{Kind: "hook-drop", Event: "workflow_job", Action: "queued"})
	before := w.attempts()
	w.submit("acme/app", 60)
	w.settled(before + 60)
	w.forge.deliver = func(int64) error { return nil }
	w.forge.appRate = &fleet.RateState{Limit: 1000, Remaining: 400, Reset: w.clock.Now().Add(30 * time.Minute)}
	w.forge.called()
	w.c = w.catchUp(nil)
	w.read() // 300 may be used: a tenth of it, and a thirtieth
	require.Len(t, w.forge.called(), 40)
	w.forge.appRate.Remaining = 100
	w.clock.Advance(time.Minute)
	w.read()
	require.Empty(t, w.forge.called(), "the last tenth belongs to others")
}

// Whatever the order of the list, wherever it is cut into pages, and whatever is added while a reading is under way:
// everything in it is noted.
func TestLook_RECV8_MissesNothing(t *testing.T) {
	w := newWorld(t, nil)
	w.forge.deliver = func(int64) error { return nil }
	w.forge.payload = func(int64) (github.Payload, error) { return github.Payload{}, fleet.ErrNotFound }
	w.forge.appRate = &fleet.RateState{Limit: 1 << 30, Remaining: 1 << 30, Reset: w.clock.Now().Add(1000 * time.Hour)}
	w.c = w.catchUp(nil)
	var next int64 = 1000
	rapid.Check(t, func(rt *rapid.T) {
		require.NoError(t, w.store.ReadEverythingSince(t.Context(), w.clock.Now()))
		var list []github.Delivery // oldest first
		add := func(n int) {
			for range n {
				next++
				list = append(list, github.Delivery{
					ID: next, GUID: fmt.Sprintf("rapid-%d", next), Event: "workflow_job", Action: "queued", StatusCode: 500,
					// In the list by id; delivered up to a minute sooner or later.
					DeliveredAt: w.clock.Now().Add(time.Duration(rapid.IntRange(-60, 0).Draw(rt, "late")) * time.Second),
				})
			}
		}
		size := rapid.IntRange(3, 20).Draw(rt, "page size")
		w.forge.page = func(cursor, _ string) (github.DeliveryPage, error) {
			if rapid.IntRange(0, 3).Draw(rt, "added meanwhile") == 0 {
				add(1)
			}
			at := int64(1 << 60)
			if cursor != "" {
				_, err := fmt.Sscan(cursor, &at)
				require.NoError(t, err)
			}
			var page github.DeliveryPage
			for i := len(list) - 1; i >= 0; i-- {
				if list[i].ID >= at {
					continue
				}
				if len(page.Deliveries) == size {
					page.Next = fmt.Sprint(page.Deliveries[size-1].ID)
					break
				}
				page.Deliveries = append(page.Deliveries, list[i])
			}
			return page, nil
		}
		for range rapid.IntRange(1, 3).Draw(rt, "looks") {
			add(rapid.IntRange(0, 30).Draw(rt, "new"))
			require.NoError(t, w.c.Deliveries(t.Context()))
			w.clock.Advance(time.Duration(rapid.IntRange(1, 600).Draw(rt, "seconds")) * time.Second)
		}
		want := len(list)
		for ended := 0; ended < 2; { // the look that is under way, and one that begins now
			require.NoError(t, w.c.Deliveries(t.Context()))
			position, err := w.store.DeliveryPosition(t.Context())
			require.NoError(t, err)
			if position.Cursor == "" {
				ended++
			}
		}
		fresh, err := w.store.NoteMissing(t.Context(), list[:want], w.clock.Now())
		require.NoError(t, err)
		require.Zero(t, fresh, "of %d deliveries so many had not been noted", want)
	})
}

func intakeOf(p github.Payload, at time.Time) intake.Delivery {
	return intake.Delivery{GUID: p.GUID, Event: p.Event, Body: p.Body, At: at}
}
