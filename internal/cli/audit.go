package cli

import (
	"context"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/bullpen-ci/bullpen/api/adminapi"
	"github.com/bullpen-ci/bullpen/internal/cli/commandline"
	"github.com/bullpen-ci/bullpen/internal/lib/auditchange"
)

// AuditFilter selects changes.
type AuditFilter struct {
	Account      string // login or @ID; empty: all
	Pool         string // name or namespace/name; empty: all
	Since, Until When
	Most         int
}

// Audit reads the newest changes.
func (c *Client) Audit(ctx context.Context, f AuditFilter) ([]adminapi.AuditEvent, error) {
	all, query := []adminapi.AuditEvent{}, url.Values{}
	for name, value := range map[string]string{"account": f.Account, "pool": f.Pool, "since": f.Since.parameter(), "until": f.Until.parameter()} {
		if value != "" {
			query.Set(name, value)
		}
	}
	for len(all) < f.Most {
		query.Set("limit", strconv.Itoa(min(f.Most-len(all), adminapi.MaxPage)))
		var page adminapi.AuditList
		if err := c.call(ctx, http.MethodGet, adminapi.PathAudit, query, "", nil, &page); err != nil {
			return nil, err
		}
		all = append(all, page.Events...)
		if page.Next == 0 {
			break
		}
		query.Set("before", strconv.FormatInt(page.Next, 10))
	}
	return all, nil
}

// When is a flag for a time: a duration before now, a date, or a time.
type When struct {
	At  time.Time        // zero: not given
	Now func() time.Time // time.Now by default
	raw string
}

// Set parses a flag's value. A date begins at midnight of the local time zone.
func (w *When) Set(text string) error {
	now := time.Now
	if w.Now != nil {
		now = w.Now
	}
	if at, err := time.ParseInLocation(time.DateOnly, text, time.Local); err == nil {
		w.At, w.raw = at, text
		return nil
	}
	if at, err := time.Parse(time.RFC3339, text); err == nil {
		w.At, w.raw = at, text
		return nil
	}
	ago, err := parseAgo(text)
	if err != nil || ago < 0 {
		return commandline.ValueError{Must: "a duration such as 24h or 7d, a date such as 2026-11-20, or a time such as 2026-11-20T20:35:14Z"}
	}
	w.At, w.raw = now().Add(-ago), text
	return nil
}

// parseAgo is time.ParseDuration with days.
func parseAgo(text string) (time.Duration, error) {
	if days, ok := strings.CutSuffix(text, "d"); ok {
		n, err := strconv.ParseUint(days, 10, 16)
		return time.Duration(n) * 24 * time.Hour, err //nolint:gosec // at most 65,535 days
	}
	return time.ParseDuration(text)
}

// String is the value as it was given.
func (w *When) String() string { return w.raw }

// Type names the value in help.
func (w *When) Type() string { return "time" }

func (w *When) parameter() string {
	if w.At.IsZero() {
		return ""
	}
	return w.At.UTC().Format(time.RFC3339)
}

// AuditTable shows events, newest first.
func AuditTable(events []adminapi.AuditEvent) Table {
	t := Table{
		Columns: []string{"TIME", "AUTHOR", "ACTION", "ACCOUNT OR POOL", "CHANGE", "REASON"},
		Wide:    []string{"ID", "ACCOUNT ID", "ACTOR", "CREDENTIAL", "MANAGER"},
		Empty:   "No changes recorded.",
	}
	for _, e := range events {
		subject := e.Account
		if subject == "" {
			subject = e.Pool
		}
		t.Rows = append(t.Rows, []string{
			e.At.UTC().Format(time.RFC3339), e.Author, e.Action, subject, auditchange.Text(auditchange.Of(e.Before, e.After)), e.Reason,
			strconv.FormatInt(e.ID, 10), orDash(e.AccountID), e.Actor, e.Credential, e.Manager,
		})
	}
	return t
}
