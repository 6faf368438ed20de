package ledger

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/bullpen-ci/bullpen/api/adminapi"
	"github.com/bullpen-ci/bullpen/internal/server/admin"
	"github.com/bullpen-ci/bullpen/internal/server/ledger/sqlcgen"
	"github.com/bullpen-ci/bullpen/internal/server/poolaudit"
)

// audit writes a change of an account.
func audit(ctx context.Context, q *sqlcgen.Queries, account sqlcgen.Account, c admin.Change, action string, before, after any) error {
	return insertAudit(ctx, q, sqlcgen.InsertAuditParams{
		At: c.At, Actor: c.Actor, Credential: c.Credential, Requester: c.Requester, Stated: c.Stated, Action: action,
		AccountID: &account.ID, Subject: account.Login, Reason: c.Reason,
	}, before, after)
}

// insertAudit adds both states as JSON; nil: none.
func insertAudit(ctx context.Context, q *sqlcgen.Queries, arg sqlcgen.InsertAuditParams, before, after any) error {
	for _, side := range []struct {
		value any
		into  *[]byte
	}{{before, &arg.Before}, {after, &arg.After}} {
		if side.value == nil {
			continue
		}
		encoded, err := json.Marshal(side.value)
		if err != nil {
			return fmt.Errorf("encoding an audit event: %w", err)
		}
		*side.into = encoded
	}
	return q.InsertAudit(ctx, arg)
}

// latest is after every time of an event.
var latest = time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)

// auditPage is a position in the log, newest first, and how far back to read.
type auditPage struct {
	before   time.Time
	beforeID int64
	since    time.Time
	most     int32
}

// Audit returns a page of the audit log, newest first.
func (s *Store) Audit(ctx context.Context, query admin.AuditQuery) ([]adminapi.AuditEvent, error) {
	q := s.queries()
	page, err := pageOf(ctx, q, query)
	if err != nil {
		return nil, err
	}
	rows, err := auditRows(ctx, q, query, page)
	if err != nil {
		return nil, err
	}
	events := make([]adminapi.AuditEvent, len(rows))
	for i, row := range rows {
		events[i] = adminapi.AuditEvent{
			ID: row.ID, At: row.At.UTC(), Actor: row.Actor, User: row.Requester, StatedUser: row.Stated, Credential: row.Credential, Manager: row.Manager,
			Action: row.Action, AccountID: deref(row.AccountID), Account: row.Subject, Before: row.Before, After: row.After, Reason: row.Reason,
		}
		if row.Pool != "" {
			events[i].Pool = row.PoolNamespace + "/" + row.Pool
		}
		events[i] = events[i].Named()
	}
	return events, nil
}

func pageOf(ctx context.Context, q *sqlcgen.Queries, query admin.AuditQuery) (auditPage, error) {
	page := auditPage{before: latest, beforeID: math.MaxInt64, since: query.Since, most: int32(query.Most)} //nolint:gosec // at most MaxPage
	switch {
	case query.Before != 0:
		at, known, err := found(q.AuditTime(ctx, query.Before))
		if err != nil {
			return page, fmt.Errorf("reading the audit log: %w", err)
		}
		page.before, page.beforeID = at, query.Before
		if !known { // retention has deleted it, and everything before it
			page.before = time.Time{}
		}
	case !query.Until.IsZero():
		page.before, page.beforeID = query.Until, 0 // IDs begin at 1: an event of that time is not before it
	}
	return page, nil
}

func auditRows(ctx context.Context, q *sqlcgen.Queries, query admin.AuditQuery, p auditPage) ([]sqlcgen.AuditEvent, error) {
	rows, err := readAudit(ctx, q, query, p)
	if err != nil && !errors.Is(err, admin.ErrNotFound) {
		var conflict *admin.ConflictError
		if errors.As(err, &conflict) {
			return nil, err
		}
		return nil, fmt.Errorf("reading the audit log: %w", err)
	}
	return rows, err
}

func readAudit(ctx context.Context, q *sqlcgen.Queries, query admin.AuditQuery, p auditPage) ([]sqlcgen.AuditEvent, error) {
	switch {
	case query.Pool != "":
		namespace, name, qualified := strings.Cut(query.Pool, "/")
		if !qualified {
			namespace, name = "", query.Pool
		}
		if !storable(query.Pool) {
			return nil, admin.ErrNotFound
		}
		return q.AuditPageOfPool(ctx, sqlcgen.AuditPageOfPoolParams{
			Pool: name, Namespace: namespace, Before: p.before, BeforeID: p.beforeID, Since: p.since, Most: p.most,
		})
	case query.Account != "":
		return readAuditOfAccount(ctx, q, query.Account, p)
	}
	return q.AuditPage(ctx, sqlcgen.AuditPageParams{Before: p.before, BeforeID: p.beforeID, Since: p.since, Most: p.most})
}

// readAuditOfAccount reads the page of an account, also of one that was purged. ErrNotFound for one that the log does not know either.
func readAuditOfAccount(ctx context.Context, q *sqlcgen.Queries, ref string, p auditPage) ([]sqlcgen.AuditEvent, error) {
	id, err := resolveAccount(ctx, q, ref)
	var read func(auditPage) ([]sqlcgen.AuditEvent, error)
	switch {
	case err == nil:
		read = func(p auditPage) ([]sqlcgen.AuditEvent, error) {
			return q.AuditPageOfAccount(ctx, sqlcgen.AuditPageOfAccountParams{AccountID: &id, Before: p.before, BeforeID: p.beforeID, Since: p.since, Most: p.most})
		}
	case errors.Is(err, admin.ErrNotFound) && storable(ref) && !strings.HasPrefix(ref, "@"):
		read = func(p auditPage) ([]sqlcgen.AuditEvent, error) {
			return q.AuditPageOfSubject(ctx, sqlcgen.AuditPageOfSubjectParams{Subject: ref, Before: p.before, BeforeID: p.beforeID, Since: p.since, Most: p.most})
		}
	default:
		return nil, err
	}
	rows, err := read(p)
	if err != nil || len(rows) > 0 {
		return rows, err
	}
	if _, known, err := found(q.AccountByID(ctx, id)); err != nil || known { // id is 0 for an account that was purged
		return nil, err
	}
	event, err := read(auditPage{before: latest, beforeID: math.MaxInt64, most: 1})
	if err == nil && len(event) == 0 {
		err = admin.ErrNotFound
	}
	return nil, err
}

// AuditedPools are the generations of a namespace's pools that the audit log has, by UID.
func (s *Store) AuditedPools(ctx context.Context, namespace string) (map[string]int64, error) {
	rows, err := s.queries().AuditedPools(ctx, namespace)
	if err != nil {
		return nil, fmt.Errorf("reading audited pools: %w", err)
	}
	generations := make(map[string]int64, len(rows))
	for _, row := range rows {
		generations[row.Uid] = row.Generation
	}
	return generations, nil
}

// AuditPool records the change since the recorded generation of a pool. Servers that see the same change wait for each other at the row,
// and all but the first find it recorded.
func (s *Store) AuditPool(ctx context.Context, entry poolaudit.Entry) error {
	spec, err := json.Marshal(entry.Spec)
	if err != nil {
		return fmt.Errorf("encoding the spec of pool %s: %w", entry.Name, err)
	}
	return s.inTx(ctx, "recording a change of pool "+entry.Name, func(q *sqlcgen.Queries) error {
		first, err := q.InsertAuditedPool(ctx, sqlcgen.InsertAuditedPoolParams{
			Uid: entry.UID, Namespace: entry.Namespace, Pool: entry.Name, Generation: entry.Generation, Spec: spec, ChangedAt: entry.Now,
		})
		if err != nil || first > 0 {
			return err
		}
		row, known, err := found(q.LockAuditedPool(ctx, entry.UID))
		if err != nil || !known || row.Generation >= entry.Generation {
			return err
		}
		if err := q.UpdateAuditedPool(ctx, sqlcgen.UpdateAuditedPoolParams{
			Uid: entry.UID, Generation: entry.Generation, Spec: spec, ChangedAt: entry.Now,
		}); err != nil {
			return err
		}
		return auditPoolChange(ctx, q, entry, row.Spec)
	})
}

func auditPoolChange(ctx context.Context, q *sqlcgen.Queries, entry poolaudit.Entry, earlier []byte) error {
	var spec map[string]any
	if err := json.Unmarshal(earlier, &spec); err != nil {
		return fmt.Errorf("reading the recorded spec of pool %s: %w", entry.Name, err)
	}
	change, changed := poolaudit.Compare(spec, entry.Pool)
	if !changed {
		return nil
	}
	at := change.At
	if at.IsZero() || at.After(entry.Now) {
		at = entry.Now
	}
	return insertAudit(ctx, q, sqlcgen.InsertAuditParams{
		At: at, Actor: adminapi.ActorKubernetes, Requester: entry.Requester, Stated: entry.Stated, Manager: change.Manager, Action: change.Action,
		PoolNamespace: entry.Namespace, Pool: entry.Name, Reason: change.Reason,
	}, change.Before, change.After)
}

// ForgetAuditedPools removes pools that do not exist and did not change since then.
func (s *Store) ForgetAuditedPools(ctx context.Context, namespace string, uids []string, before time.Time) error {
	if _, err := s.queries().ForgetAuditedPools(ctx, namespace, before, orEmpty(uids)); err != nil {
		return fmt.Errorf("forgetting audited pools: %w", err)
	}
	return nil
}
