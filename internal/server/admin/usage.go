package admin

import (
	"context"
	"net/http"
	"strconv"
	"time"

	"github.com/bullpen-ci/bullpen/api/adminapi"
)

// UsageStore reads what accounts have used.
type UsageStore interface {
	// Usage returns a page ordered by account and month, and after which account the next begins (0: there is none). ErrNotFound and
	// *ConflictError are about the account.
	Usage(ctx context.Context, q UsageQuery) (usage []adminapi.MonthUsage, next int64, err error)
}

// UsageQuery asks for a page of usage.
type UsageQuery struct {
	Since, Before time.Time // begins of months in UTC
	Account       string    // login or "@id"; empty: all
	After         int64     // only accounts with a higher id
	Now           time.Time // up to when sessions that have not ended are counted
}

func (a *API) listUsage(w http.ResponseWriter, r request) error {
	now := a.opt.Now().UTC()
	q := UsageQuery{Account: r.URL.Query().Get("account"), Now: now}
	var err error
	if q.Since, q.Before, err = months(r.URL.Query().Get("from"), r.URL.Query().Get("to"), now); err != nil {
		return err
	}
	if text := r.URL.Query().Get("after"); text != "" {
		if q.After, err = strconv.ParseInt(text, 10, 64); err != nil || q.After < 0 {
			return &InvalidError{"after must be the value of next of the previous page"}
		}
	}
	usage, next, err := a.opt.Store.Usage(r.Context(), q)
	if err != nil {
		return err
	}
	if usage == nil {
		usage = []adminapi.MonthUsage{}
	}
	write(w, http.StatusOK, adminapi.UsageList{Usage: usage, AsOf: now, Next: next})
	return nil
}

// months reads the first and the last month, both of which are meant; the present one if there is neither, one month if there is only one.
func months(from, to string, now time.Time) (since, before time.Time, err error) {
	month := func(text, otherwise string) (time.Time, error) {
		if text == "" {
			text = otherwise
		}
		at, err := time.ParseInLocation(adminapi.MonthFormat, text, time.UTC)
		if err != nil {
			return at, &InvalidError{"month must be YYYY-MM, such as 2026-11"}
		}
		return at, nil
	}
	if from == "" {
		from = to
	}
	if since, err = month(from, now.Format(adminapi.MonthFormat)); err != nil {
		return since, before, err
	}
	last, err := month(to, since.Format(adminapi.MonthFormat))
	if err != nil {
		return since, before, err
	}
	before = last.AddDate(0, 1, 0)
	if last.Before(since) {
		return since, before, &InvalidError{"the first month is after the last"}
	}
	if since.AddDate(0, adminapi.MaxMonths, 0).Before(before) {
		return since, before, &InvalidError{"request at most " + strconv.Itoa(adminapi.MaxMonths) + " months at once"}
	}
	return since, before, nil
}
