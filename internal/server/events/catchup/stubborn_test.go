package catchup_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/internal/fleet"
	"github.com/bullpen-ci/bullpen/internal/server/dispatch"
	"github.com/bullpen-ci/bullpen/internal/server/events/catchup"
	"github.com/bullpen-ci/bullpen/internal/server/events/intake"
	"github.com/bullpen-ci/bullpen/internal/server/ledger"
)

// stubborn can never store one delivery.
type stubborn struct {
	*ledger.Store
	guid  string
	hangs bool // the write takes longer than it may
}

func (s stubborn) RecordJob(ctx context.Context, d dispatch.Delivery, ev dispatch.JobEvent) (dispatch.Recorded, error) {
	switch {
	case d.GUID == s.guid && s.hangs:
		<-ctx.Done() // bounded: the caller gives up
		return dispatch.Recorded{}, ctx.Err()
	case d.GUID == s.guid:
		return dispatch.Recorded{}, errors.New("it cannot be stored")
	}
	return s.Store.RecordJob(ctx, d, ev)
}

// One delivery that the ledger refuses every time, or whose writing takes too long, does not stand before the others.
func TestPoll_RECV8_ADeliveryThatCannotBeStoredIsNoTrap(t *testing.T) {
	for name, hangs := range map[string]bool{"refused": false, "too slow": true} {
		t.Run(name, func(t *testing.T) {
			polling := func(o *catchup.Options) { o.Poll, o.StoreWithin = true, 2*time.Second }
			w := newWorld(t, polling)
			require.NoError(t, w.in.SetWebhook("", ""))
			before := w.attempts()
			_, older := w.submit("acme/app", 1)
			w.settled(before + 1)
			_, newer := w.submit("acme/lib", 1)
			w.settled(before + 2)
			page, err := w.forge.Client.DeliveryPage(t.Context(), "", "")
			require.NoError(t, err)
			poisoned := stubborn{w.store, page.Deliveries[0].GUID, hangs}
			w.intake, err = intake.New(intake.Options{Store: poisoned})
			require.NoError(t, err)
			w.c = w.catchUp(polling)
			require.NoError(t, w.c.Deliveries(t.Context()))
			require.Equal(t, fleet.JobQueued, w.state(older[0]), "in the same pass")
			require.Equal(t, fleet.JobAbsent, w.state(newer[0]))
			require.Empty(t, due(t, w, 0), "it waits")
			require.Len(t, due(t, w, time.Hour), 1)
		})
	}
}

// due are the deliveries that a pass would ask for after a while.
func due(t *testing.T, w *world, after time.Duration) []catchup.Ask {
	t.Helper()
	list, err := w.store.DueAsks(t.Context(), w.clock.Now().Add(after), 10)
	require.NoError(t, err)
	return list
}
