package admin

import (
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/bullpen-ci/bullpen/api/adminapi"
)

func (a *API) listAudit(w http.ResponseWriter, r request) error {
	query, err := auditQuery(r.URL.Query())
	if err != nil {
		return err
	}
	events, err := a.opt.Store.Audit(r.Context(), query)
	if err != nil {
		return err
	}
	if len(events) == 0 && query.Pool != "" && !a.hasPool(query.Pool) {
		known, err := a.opt.Store.Audit(r.Context(), AuditQuery{Pool: query.Pool, Most: 1})
		if err != nil {
			return err
		}
		if len(known) == 0 {
			return ErrNotFound
		}
	}
	list := adminapi.AuditList{Events: events}
	if list.Events == nil {
		list.Events = []adminapi.AuditEvent{}
	}
	if len(events) == query.Most {
		list.Next = events[query.Most-1].ID
	}
	write(w, http.StatusOK, list)
	return nil
}

func auditQuery(q url.Values) (query AuditQuery, err error) {
	query = AuditQuery{Account: q.Get("account"), Pool: q.Get("pool")}
	if query.Account != "" && query.Pool != "" {
		return query, &InvalidError{"account and pool exclude each other: changes of pools have no account"}
	}
	if query.Most, err = pageSize(q.Get("limit")); err != nil {
		return query, err
	}
	if text := q.Get("before"); text != "" {
		if query.Before, err = strconv.ParseInt(text, 10, 64); err != nil || query.Before < 1 {
			return query, &InvalidError{"before must be the value of next of the previous page"}
		}
	}
	if query.Since, err = readTime("since", q.Get("since")); err != nil {
		return query, err
	}
	query.Until, err = readTime("until", q.Get("until"))
	return query, err
}

// readTime reads a parameter: a time, or a date as its first instant in UTC. Without one it is zero.
func readTime(name, text string) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	for _, layout := range []string{time.RFC3339, time.DateOnly} {
		if at, err := time.Parse(layout, text); err == nil {
			return at, nil
		}
	}
	return time.Time{}, &InvalidError{name + " must be a time such as 2026-11-20T20:35:14Z, or a date such as 2026-11-20"}
}

func (a *API) hasPool(ref string) bool {
	return slices.ContainsFunc(a.opt.Fleet.DescribePools(), func(p adminapi.Pool) bool { return ref == p.Name || ref == p.Namespace+"/"+p.Name })
}
