package catchup

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/bullpen-ci/bullpen/internal/fleet"
	"github.com/bullpen-ci/bullpen/internal/github"
	"github.com/bullpen-ci/bullpen/internal/server/events/intake"
	"github.com/bullpen-ci/bullpen/internal/server/recovery"
)

const (
	// asksPerPass bounds one pass, redeliveriesPerPass the part of it that GitHub is to deliver again: a POST weighs five
	// times as much, and 900 points a minute are the most.
	asksPerPass         = 500
	redeliveriesPerPass = 100
	// storeWithin is the default of Options.StoreWithin.
	storeWithin = 8 * time.Second
	// notePatience bounds a write that must not be lost with the pass.
	notePatience = 2 * time.Second
	// failuresInARow: after that many consecutive failed requests GitHub counts as unavailable.
	failuresInARow = 3
)

// askAgain is how long it is until a delivery is asked for again that was asked for so often.
func askAgain(attempts int64, poll bool, every time.Duration) time.Duration {
	first, most := 2*every, 60*every
	if poll {
		first, most = 10*time.Second, 10*time.Minute
	}
	return min(first<<min(attempts, 10), most)
}

// ask goes through the deliveries that the ledger lacks. At first GitHub is asked to deliver again; if that does not help,
// or there are too many, or GitHub cannot reach this server at all, the payload is fetched. It reports whether there was
// anything to do.
func (c *CatchUp) ask(ctx context.Context) (bool, error) {
	now := c.opt.Now()
	if err := c.opt.Ledger.SettleRecorded(ctx, now); err != nil {
		return false, fmt.Errorf("noting deliveries that have arrived: %w", err)
	}
	due, err := c.opt.Ledger.DueAsks(ctx, now, asksPerPass)
	if err != nil {
		return false, fmt.Errorf("reading missing deliveries: %w", err)
	}
	redeliveries, failures := 0, 0
	for i, a := range due {
		if failures == failuresInARow || over(ctx) {
			break
		}
		if !c.app.spend(0) {
			c.metrics.spent.WithLabelValues("deliveries").Inc()
			c.opt.Log.InfoContext(ctx, "missing deliveries wait: this minute's share of the App's rate limit is spent", "waiting", len(due)-i)
			break
		}
		try := c.fetch
		if !c.opt.Poll && a.Attempts == 0 && redeliveries < redeliveriesPerPass {
			try = c.redeliver
			redeliveries++
		}
		answered, err := c.refused(ctx, a, try(ctx, a))
		if err != nil {
			return true, ifNotLimited(err)
		}
		failures++
		if answered {
			failures = 0
		}
	}
	return len(due) > 0, nil
}

// refused deals with what asking for a delivery came to: one that failed is asked for again, later. An error ends the run.
func (c *CatchUp) refused(ctx context.Context, a Ask, err error) (answered bool, _ error) {
	if err == nil || errors.Is(err, errStore) || limited(err) {
		return true, err
	}
	if over(ctx) { // no failure: the pass was cut off
		return true, nil
	}
	c.metrics.deliveries.WithLabelValues("failed").Inc()
	c.opt.Log.WarnContext(ctx, "requesting a missing delivery failed, retrying later", "delivery", a.GUID, "event", a.Event,
		"attempts", a.Attempts+1, "error", err)
	return false, c.again(ctx, a)
}

// ifNotLimited drops a rate limit's refusal: nothing was done, and it is done when the limit allows.
func ifNotLimited(err error) error {
	if limited(err) {
		return nil
	}
	return err
}

var (
	// errStore: the ledger, not GitHub, is to blame.
	errStore = errors.New("the ledger could not be written")
	// errNotTaken: the ledger has not taken one delivery.
	errNotTaken = errors.New("a fetched delivery was not recorded")
)

// again has a delivery wait, also when what was tried with it has used up the time of the pass: otherwise it would be the first of the next one as well.
func (c *CatchUp) again(ctx context.Context, a Ask) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), notePatience)
	defer cancel()
	if err := c.opt.Ledger.Asked(ctx, a.GUID, c.opt.Now().Add(askAgain(a.Attempts, c.opt.Poll, c.opt.Every))); err != nil {
		return fmt.Errorf("%w: noting that a delivery was asked for: %w", errStore, err)
	}
	return nil
}

// settle: it is never asked for again.
func (c *CatchUp) settle(ctx context.Context, a Ask, outcome string) error {
	c.metrics.deliveries.WithLabelValues(outcome).Inc()
	if err := c.opt.Ledger.SettleAsks(ctx, []github.Delivery{{
		ID: a.DeliveryID, GUID: a.GUID, Event: a.Event, DeliveredAt: a.DeliveredAt,
	}}, c.opt.Now()); err != nil {
		return fmt.Errorf("%w: settling a delivery: %w", errStore, err)
	}
	return nil
}

func (c *CatchUp) redeliver(ctx context.Context, a Ask) error {
	err := c.opt.Forge.Redeliver(ctx, a.DeliveryID)
	if errors.Is(err, fleet.ErrNotFound) {
		return c.forgotten(ctx, a)
	}
	if err != nil {
		return err
	}
	c.recovered(ctx, a, "requested")
	return c.again(ctx, a)
}

// fetch takes the payload from GitHub's list, on the path of every webhook. The App's token and TLS say that it is GitHub's;
// there is no signature to be checked (NET-6 is about what comes in from anywhere).
func (c *CatchUp) fetch(ctx context.Context, a Ask) error {
	payload, err := c.opt.Forge.Payload(ctx, a.DeliveryID)
	switch {
	case errors.Is(err, fleet.ErrNotFound):
		return c.forgotten(ctx, a)
	case err != nil:
		return err
	case payload.GUID != a.GUID:
		return fmt.Errorf("fetching delivery %s: %w: the response is about another one", a.GUID, fleet.ErrUncertain)
	}
	storing, cancel := context.WithTimeout(ctx, c.opt.StoreWithin)
	defer cancel()
	taken := c.opt.Intake.Take(storing, intake.Delivery{GUID: payload.GUID, Event: payload.Event, Body: payload.Body, At: c.opt.Now()})
	if taken.Outcome == intake.Failed { // the intake has logged why
		return errNotTaken // RECV-8: if it is this one that the ledger cannot store, or not in time, the others go on
	}
	if !c.opt.Poll && taken.Outcome == intake.Recorded && a.Attempts == 0 { // otherwise it was counted when it was asked for
		c.recovered(ctx, a, "fetched")
	}
	return c.settle(ctx, a, "fetched")
}

func (c *CatchUp) recovered(ctx context.Context, a Ask, how string) {
	if how == "requested" {
		c.metrics.deliveries.WithLabelValues(how).Inc()
	}
	c.opt.Count(recovery.Redelivered)
	c.opt.Log.InfoContext(ctx, "a webhook had not arrived", "delivery", a.GUID, "event", a.Event, "delivered_at", a.DeliveredAt, "now", how)
}

func (c *CatchUp) forgotten(ctx context.Context, a Ask) error {
	c.opt.Log.WarnContext(ctx, "GitHub no longer has a delivery that never arrived: the sweeps must find what it reported",
		"delivery", a.GUID, "event", a.Event, "delivered_at", a.DeliveredAt)
	return c.settle(ctx, a, "expired")
}

// forgetOld drops what GitHub has forgotten, with a margin.
func (c *CatchUp) forgetOld(ctx context.Context) error {
	n, err := c.opt.Ledger.DropOldAsks(ctx, c.opt.Now().Add(-retention-24*time.Hour))
	if err != nil {
		return fmt.Errorf("dropping old deliveries: %w", err)
	}
	if n > 0 {
		c.metrics.deliveries.WithLabelValues("expired").Add(float64(n))
		c.opt.Log.WarnContext(ctx, "deliveries were not recovered while GitHub kept them", "deliveries", n)
	}
	return nil
}
