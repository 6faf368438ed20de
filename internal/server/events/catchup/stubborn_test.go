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
	guid string
}

func (s stubborn) RecordJob(ctx context.Context, d dispatch.Delivery, ev dispatch.JobEvent) (dispatch.Recorded, error) {
	if d.GUID == s.guid {
		return dispatch.Recorded{}, errors.New("it cannot be stored")
	}
	return s.Store.RecordJob(ctx, d, ev)
}

// One delivery that the ledger refuses every time does not stand before the others.
func TestPoll_RECV8_ADeliveryThatCannotBeStoredIsNoTrap(t *testing.T) {
	w := newWorld(t, func(o *catchup.Options) { o.Poll = true })
	require.NoError(t, w.in.SetWebhook("", ""))
	before := w.attempts()
	_, older := w.submit("acme/app", 1)
	w.settled(before + 1)
	_, newer := w.submit("acme/lib", 1)
	w.settled(before + 2)
	page, err := w.forge.Client.DeliveryPage(t.Context(), "", "")
	require.NoError(t, err)
	poisoned := stubborn{w.store, page.Deliveries[0].GUID}
	w.intake, err = intake.New(intake.Options{Store: poisoned})
	require.NoError(t, err)
	w.c = w.catchUp(func(o *catchup.Options) { o.Poll = true })
	for range 3 {
		_ = w.c.Deliveries(t.Context()) // which says that the ledger failed
		w.clock.Advance(7 * time.Second)
	}
	require.Equal(t, fleet.JobQueued, w.state(older[0]))
	require.Equal(t, fleet.JobAbsent, w.state(newer[0]))
}
