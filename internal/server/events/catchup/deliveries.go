package catchup

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/bullpen-ci/bullpen/internal/fleet"
	"github.com/bullpen-ci/bullpen/internal/github"
)

const (
	// retention is how long GitHub keeps deliveries.
	retention = 72 * time.Hour
	// overlap is how much of the list is read again: it has no strict order, and an attempt is listed when it has ended.
	overlap = 5 * time.Minute
	// pagesPerPass bounds one pass: 4,000 deliveries. The next one continues from there.
	pagesPerPass = 40

	pollBusy = 2 * time.Second // from one look to the next while there is something new
	pollIdle = 6 * time.Second
)

// Position is how far the list of deliveries has been read. Looks begin at its newest entry and go back.
type Position struct {
	Version   int64
	ReadUntil time.Time // every delivery before it was read; zero: none was
	// A reading that is under way continues at Cursor; it began at Top and ends at Floor.
	Cursor     string
	Top, Floor time.Time
	ETag       string // of the newest page, as the look found it
	// EverythingSince: the ledger lost what it had recorded since then, so GitHub's having seen a success proves nothing.
	EverythingSince time.Time
}

// begin says where a reading ends that begins now, unless one is under way.
func (p Position) begin(now time.Time) Position {
	if p.Cursor != "" {
		return p
	}
	oldest := now.Add(-retention)
	p.Top, p.Floor = time.Time{}, oldest
	if !p.ReadUntil.IsZero() {
		p.Floor = p.ReadUntil.Add(-overlap)
	}
	if !p.EverythingSince.IsZero() && p.EverythingSince.Before(p.Floor) {
		p.Floor = p.EverythingSince
	}
	if p.Floor.Before(oldest) {
		p.Floor = oldest
	}
	return p
}

// after is the position once a page has been noted.
func (p Position) after(page github.DeliveryPage) Position {
	if p.Cursor == "" {
		p.ETag = page.ETag
	}
	var oldest time.Time
	for _, d := range page.Deliveries {
		if oldest.IsZero() || d.DeliveredAt.Before(oldest) {
			oldest = d.DeliveredAt
		}
		if p.Cursor == "" && d.DeliveredAt.After(p.Top) {
			p.Top = d.DeliveredAt
		}
	}
	if page.Next != "" && page.Next != p.Cursor && !oldest.IsZero() && !oldest.Before(p.Floor) {
		p.Cursor = page.Next
		return p
	}
	if p.Top.After(p.ReadUntil) {
		p.ReadUntil = p.Top
	}
	p.Cursor, p.Top, p.Floor, p.EverythingSince = "", time.Time{}, time.Time{}, time.Time{}
	return p
}

// Deliveries reads what is new in the list of deliveries, notes what the ledger lacks, and asks for it: GitHub delivers
// it again, or the payload is fetched and taken as if it had been delivered.
func (c *CatchUp) Deliveries(ctx context.Context) error {
	if c.opt.Poll && !c.cadence.due(c.opt.Now()) {
		return nil
	}
	bounded, cancel := context.WithTimeout(ctx, 2*patience)
	defer cancel()
	news, err := c.look(bounded)
	if err != nil {
		return ended(bounded, err)
	}
	asked, err := c.ask(bounded)
	c.cadence.looked(c.opt.Now(), news || asked)
	return errors.Join(ended(bounded, err), c.forgetOld(ctx))
}

// Everything has the whole list since then read again, and each delivery that the ledger lacks requested, whatever status
// GitHub saw: for a ledger that was restored from an older backup. The next runs of the pass do it, on any replica;
// clocks may differ by a few minutes.
func (c *CatchUp) Everything(ctx context.Context, since time.Time) error {
	if err := c.opt.Ledger.ReadEverythingSince(ctx, since.Add(-overlap)); err != nil {
		return fmt.Errorf("having all deliveries since %s read again: %w", since.UTC().Format(time.RFC3339), err)
	}
	return nil
}

// look reads pages until it meets what was read before, or has to stop. It reports whether there was anything new.
func (c *CatchUp) look(ctx context.Context) (news bool, err error) {
	pos, err := c.opt.Ledger.DeliveryPosition(ctx)
	if err != nil {
		return false, fmt.Errorf("reading how far the deliveries were read: %w", err)
	}
	for range pagesPerPass {
		if !c.app.spend(0) {
			c.metrics.spent.WithLabelValues("deliveries").Inc()
			return news, nil
		}
		pos = pos.begin(c.opt.Now())
		page, err := c.page(ctx, &pos)
		switch {
		case err != nil:
			return news, ifNotLimited(err)
		case page.Unchanged:
			c.app.refund(0)
			c.metrics.lag.Set(float64(c.opt.Now().Unix()))
			return news, nil
		}
		news = true
		if err := c.note(ctx, pos, page.Deliveries); err != nil {
			return news, err
		}
		next := pos.after(page)
		saved, err := c.opt.Ledger.SaveDeliveryPosition(ctx, next)
		if err != nil {
			return news, fmt.Errorf("noting how far the deliveries were read: %w", err)
		}
		if saved && next.Cursor == "" {
			c.metrics.lag.Set(float64(c.opt.Now().Unix()))
		}
		if !saved || next.Cursor == "" {
			return news, nil
		}
		pos = next
		pos.Version++
	}
	return news, nil
}

// page reads the page that pos is at. A cursor that GitHub no longer knows must not be retried forever: the reading begins again.
func (c *CatchUp) page(ctx context.Context, pos *Position) (github.DeliveryPage, error) {
	etag := ""
	if pos.Cursor == "" {
		etag = pos.ETag
	}
	page, err := c.opt.Forge.DeliveryPage(ctx, pos.Cursor, etag)
	if pos.Cursor == "" || !errors.Is(err, fleet.ErrRejected) && !errors.Is(err, fleet.ErrNotFound) {
		return page, err
	}
	c.opt.Log.InfoContext(ctx, "GitHub has forgotten how far its list of deliveries was read, reading it from the start", "error", err)
	pos.Cursor, pos.ETag = "", ""
	*pos = pos.begin(c.opt.Now())
	return c.opt.Forge.DeliveryPage(ctx, "", "")
}

// note sorts the attempts of a page: all of a GUID's attempts count, and one success is enough.
func (c *CatchUp) note(ctx context.Context, pos Position, page []github.Delivery) error {
	succeeded := map[string]bool{}
	var missing, settled []github.Delivery
	accepted := func(d github.Delivery) bool {
		if c.opt.Poll || d.StatusCode < 200 || d.StatusCode > 299 {
			return false
		}
		return pos.EverythingSince.IsZero() || d.DeliveredAt.Before(pos.EverythingSince)
	}
	for _, d := range page {
		if useful(d) && accepted(d) && !succeeded[d.GUID] {
			succeeded[d.GUID] = true
			settled = append(settled, d)
		}
	}
	noted := map[string]bool{}
	for _, d := range page {
		if useful(d) && !succeeded[d.GUID] && !noted[d.GUID] {
			noted[d.GUID] = true
			missing = append(missing, d) // its newest attempt: the page begins with it
		}
	}
	if err := c.opt.Ledger.SettleAsks(ctx, settled, c.opt.Now()); err != nil {
		return fmt.Errorf("noting deliveries that have succeeded: %w", err)
	}
	fresh, err := c.opt.Ledger.NoteMissing(ctx, missing, c.opt.Now())
	if err != nil {
		return fmt.Errorf("noting deliveries that are missing: %w", err)
	}
	c.metrics.deliveries.WithLabelValues("found").Add(float64(fresh))
	return nil
}

// useful reports whether the ledger would have recorded the delivery.
func useful(d github.Delivery) bool {
	switch d.Event {
	case "installation":
		return d.GUID != ""
	case "installation_repositories":
		// RECV-8: jobs wait until their repository is given back, and nothing else brings them back. The removal of one is
		// not requested: if it arrived late, after the repository was given back, it would hold the jobs for good; without
		// it, they do not wait.
		return d.GUID != "" && d.Action == github.RepositoriesAdded
	case "workflow_job":
		switch d.Action {
		case github.JobQueued, github.JobWaiting, github.JobInProgress, github.JobCompleted:
			return d.GUID != ""
		}
	}
	return false
}

// cadence spaces the polls of the mode without webhooks.
type cadence struct {
	mu   sync.Mutex
	wait time.Duration
	next time.Time
}

func (c *cadence) due(now time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return !now.Before(c.next)
}

// looked sets when to read again: soon while there is news, later and later while there is none.
func (c *cadence) looked(now time.Time, news bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.wait = min(c.wait+pollBusy, pollIdle)
	if news {
		c.wait = pollBusy
	}
	c.next = now.Add(c.wait - pollBusy/2) // it is called every pollBusy, a little sooner or later
}
