package ledger

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/bullpen-ci/bullpen/api/adminapi"
	"github.com/bullpen-ci/bullpen/internal/server/admin"
	"github.com/bullpen-ci/bullpen/internal/server/poolaudit"
	"github.com/bullpen-ci/bullpen/test/kit/await"
	"github.com/bullpen-ci/bullpen/test/kit/ledgertest"
)

var auditBegin = time.Date(2026, 11, 20, 10, 0, 0, 0, time.UTC)

func generation(n int64, spec map[string]any) poolaudit.Entry {
	return poolaudit.Entry{
		Pool: poolaudit.Pool{Namespace: "runners", Name: "linux", UID: "u", Generation: n, Spec: spec},
		Now:  auditBegin.Add(time.Duration(n) * time.Minute),
	}
}

func readEvents(t *testing.T, s *Store, q admin.AuditQuery) []adminapi.AuditEvent {
	t.Helper()
	if q.Most == 0 {
		q.Most = 100
	}
	events, err := s.Audit(t.Context(), q)
	require.NoError(t, err)
	return events
}

// Each change of a pool has one event, however many servers see it, and in whatever order.
func TestAuditPool_OneEventForEachChange(t *testing.T) {
	t.Parallel()
	store, url := retained(t)
	open, paused := map[string]any{"intake": "Open", "replicas": 2.0}, map[string]any{"intake": "Paused", "replicas": 2.0}
	record := func(e poolaudit.Entry) {
		t.Helper()
		var servers errgroup.Group
		for range 4 {
			servers.Go(func() error { return store.AuditPool(t.Context(), e) })
		}
		require.NoError(t, await.Call(t, servers.Wait, "the servers return"))
	}
	record(generation(3, open))
	require.Empty(t, readEvents(t, store, admin.AuditQuery{}), "what was there before is no change")
	change := generation(4, paused)
	change.Requester, change.Author, change.Note = "ada", "ada", "by ada since 2026-11-20 10:04 UTC: disks"
	change.Managers = []poolaudit.Manager{{Name: "bullpen-pool", At: auditBegin.Add(3 * time.Minute), Spec: map[string]any{"f:intake": map[string]any{}}}}
	record(change)
	record(generation(3, open))   // a server whose watch is behind
	record(generation(5, paused)) // the pool is being deleted
	events := readEvents(t, store, admin.AuditQuery{Pool: "linux"})
	require.Len(t, events, 1)
	require.Equal(t, []string{adminapi.ActorKubernetes, "ada", "", "bullpen-pool", adminapi.ActionPoolPause, "", "runners/linux", "disks"}, []string{
		events[0].Actor, events[0].User, events[0].StatedUser, events[0].Manager, events[0].Action, events[0].Account, events[0].Pool, events[0].Reason,
	})
	require.JSONEq(t, `{"intake":"Open"}`, string(events[0].Before))
	require.JSONEq(t, `{"intake":"Paused"}`, string(events[0].After))
	require.Equal(t, auditBegin.Add(3*time.Minute), events[0].At, "the time of the write, and not of its sight")
	known, err := store.AuditedPools(t.Context(), "runners")
	require.NoError(t, err)
	require.Equal(t, map[string]int64{"u": 5}, known)

	late := generation(6, open)
	late.Managers = []poolaudit.Manager{{Name: "kubectl-edit", At: late.Now.Add(time.Hour), Spec: map[string]any{"f:intake": map[string]any{}}}}
	late.Stated = "grace"
	record(late)
	events = readEvents(t, store, admin.AuditQuery{Pool: "linux"})
	require.Equal(t, adminapi.ActionPoolResume, events[0].Action)
	require.Equal(t, "grace", events[0].StatedUser)
	require.Equal(t, late.Now, events[0].At, "no event is of the future")

	scaled := generation(7, map[string]any{"intake": "Open", "replicas": 3.0})
	scaled.Managers = change.Managers // of earlier changes
	record(scaled)
	events = readEvents(t, store, admin.AuditQuery{Pool: "linux"})
	require.Equal(t, []string{adminapi.ActionPoolScale, "", "kubernetes (unknown client)"}, []string{events[0].Action, events[0].Manager, events[0].Author})
	require.Equal(t, scaled.Now, events[0].At, "no manager of the field is known: it is the time of the observation")

	require.NoError(t, store.ForgetAuditedPools(t.Context(), "runners", []string{"u"}, late.Now.Add(time.Hour)))
	require.NoError(t, store.ForgetAuditedPools(t.Context(), "runners", nil, late.Now))
	require.EqualValues(t, 1, ledgertest.Int(t, url, "SELECT count(*) FROM audited_pools"), "it exists, or is too new")
	require.NoError(t, store.ForgetAuditedPools(t.Context(), "runners", nil, late.Now.Add(time.Hour)))
	require.Zero(t, ledgertest.Int(t, url, "SELECT count(*) FROM audited_pools"))
}

// Pages of a period, an account or a pool are complete, newest first, whatever the order in which events were written.
func TestAudit_PagesOfAPeriod(t *testing.T) {
	t.Parallel()
	store, url := retained(t)
	for minute := range 10 { // 9, 8, ... 0: written in the opposite order
		ledgertest.Exec(t, url, `INSERT INTO audit_events (at, actor, action, account_id, subject, pool_namespace, pool) VALUES ($1, 'a', 'x', $2, $3, $4, $5)`,
			auditBegin.Add(time.Duration(9-minute)*time.Minute), []any{int64(1), nil}[minute%2], []string{"acme", ""}[minute%2],
			[]string{"", "runners"}[minute%2], []string{"", "linux"}[minute%2])
	}
	minutes := func(q admin.AuditQuery) (found []int) {
		t.Helper()
		q.Most = 2
		for range 10 {
			events := readEvents(t, store, q)
			for _, e := range events {
				found = append(found, int(e.At.Sub(auditBegin).Minutes()))
			}
			if len(events) < q.Most {
				return found
			}
			q.Before = events[len(events)-1].ID
		}
		require.Fail(t, "it does not end")
		return nil
	}
	at := func(minute int) time.Time { return auditBegin.Add(time.Duration(minute) * time.Minute) }
	require.Equal(t, []int{9, 8, 7, 6, 5, 4, 3, 2, 1, 0}, minutes(admin.AuditQuery{}))
	require.Equal(t, []int{6, 5, 4, 3}, minutes(admin.AuditQuery{Since: at(3), Until: at(7)}), "since is included, until is not")
	require.Equal(t, []int{9, 7, 5, 3, 1}, minutes(admin.AuditQuery{Account: "ACME"}))
	require.Equal(t, []int{5, 3}, minutes(admin.AuditQuery{Account: "@1", Since: at(2), Until: at(6)}))
	require.Equal(t, []int{8, 6, 4, 2, 0}, minutes(admin.AuditQuery{Pool: "linux"}))
	require.Equal(t, []int{8, 6}, minutes(admin.AuditQuery{Pool: "runners/linux", Since: at(5)}))
	require.Empty(t, minutes(admin.AuditQuery{Pool: "other/linux"}))
}

// An account that neither exists nor has events is not found; one that was purged has its events still.
func TestAudit_UnknownAccounts(t *testing.T) {
	t.Parallel()
	store, url := retained(t)
	ledgertest.Exec(t, url, `INSERT INTO audit_events (at, actor, action, account_id, subject) VALUES ($1, 'a', 'purge', 7, 'purged')`, auditBegin)
	for _, ref := range []string{"unknown", "@99", "@x"} {
		_, err := store.Audit(t.Context(), admin.AuditQuery{Account: ref, Most: 10})
		require.ErrorIs(t, err, admin.ErrNotFound, ref)
	}
	require.Empty(t, readEvents(t, store, admin.AuditQuery{Account: "acme"}))
	for _, ref := range []string{"Purged", "@7"} {
		require.Len(t, readEvents(t, store, admin.AuditQuery{Account: ref}), 1, ref)
		require.Empty(t, readEvents(t, store, admin.AuditQuery{Account: ref, Since: auditBegin.Add(time.Minute)}), ref)
	}
}
