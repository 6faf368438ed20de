package ledger

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/internal/server/dispatch"
	"github.com/bullpen-ci/bullpen/test/kit/ledgertest"
)

// inRepository is an event of a repository that is called so at that time.
func inRepository(id, repositoryID int64, name string, at time.Time) dispatch.JobEvent {
	ev := queuedEvent(id)
	ev.Repository, ev.RepositoryID, ev.QueuedAt = name, repositoryID, at
	return ev
}

func TestRecordJob_RowsFollowARenamedRepository(t *testing.T) {
	t.Parallel()
	store, url := retained(t)
	now := time.Now()
	record := func(ev dispatch.JobEvent) {
		t.Helper()
		_, err := store.RecordJob(t.Context(), delivery(), ev)
		require.NoError(t, err)
	}
	name := func(id int64) string {
		t.Helper()
		return ledgertest.Text(t, url, "SELECT repository FROM workflow_jobs WHERE id = $1", id)
	}
	record(inRepository(1, 700, "acme/app", now))
	ledgertest.Exec(t, url, insertJob, 2, "completed", "1 hour")
	ledgertest.Exec(t, url, "UPDATE workflow_jobs SET repository_id = 700 WHERE id = 2")
	ledgertest.Exec(t, url, insertJob, 3, "queued", "1 hour") // by an earlier version: no id
	ledgertest.Exec(t, url, `INSERT INTO runner_registrations (runner_name, pod_uid, account_id, scope, repository_id, generation, state, created_at)
		VALUES ('a', 'p', 1, 'acme/app', 700, 1, 'alive', now()), ('b', 'q', 1, 'acme/app', 701, 1, 'alive', now())`)
	ledgertest.Exec(t, url, `INSERT INTO removed_repositories VALUES (1, 'acme/app', now())`)

	record(inRepository(4, 700, "acme/new", now.Add(time.Minute)))
	require.Equal(t, "acme/new", name(1))
	require.Equal(t, "acme/new", name(4))
	require.Equal(t, "acme/app", name(2), "what has ended keeps the name that it ran under")
	require.Equal(t, "acme/app", name(3), "of an unknown repository")
	scope := func(runner string) string {
		return ledgertest.Text(t, url, "SELECT scope FROM runner_registrations WHERE runner_name = $1", runner)
	}
	require.Equal(t, "acme/new", scope("a"))
	require.Equal(t, "acme/app", scope("b"))
	require.Equal(t, int64(1), ledgertest.Int(t, url, "SELECT count(*) FROM removed_repositories WHERE repository = 'acme/new'"))
	require.Equal(t, int64(1), ledgertest.Int(t, url, "SELECT count(*) FROM repositories WHERE repository_id = 700"))
	registrations, err := store.Registrations(t.Context(), "p", 10)
	require.NoError(t, err)
	require.Equal(t, int64(700), registrations[0].Scope.RepositoryID)

	// A message that is late calls it by its old name: nothing is renamed back, on this replica or another.
	record(inRepository(5, 700, "acme/app", now.Add(-time.Minute)))
	require.Equal(t, "acme/new", name(5))
	require.Equal(t, "acme/new", name(1))
	other, err := Open(t.Context(), url, 2)
	require.NoError(t, err)
	t.Cleanup(other.Close)
	_, err = other.RecordJob(t.Context(), delivery(), inRepository(6, 700, "acme/app", now.Add(-time.Minute)))
	require.NoError(t, err)
	require.Equal(t, "acme/new", name(6))
	require.Equal(t, "acme/new", name(1))

	// Another repository is made by the old name; then the first one is renamed once more.
	record(inRepository(7, 702, "acme/app", now.Add(2*time.Minute)))
	require.Equal(t, "acme/app", name(7))
	require.Equal(t, "acme/new", name(1))
	record(inRepository(8, 700, "acme/newer", now.Add(3*time.Minute)))
	require.Equal(t, "acme/newer", name(1))
	require.Equal(t, "acme/app", name(7))
}

// The other repository is reported before the renamed one is, under its new name.
func TestRecordJob_RowsFollowThoughAnotherHasTheNameAlready(t *testing.T) {
	t.Parallel()
	store, url := retained(t)
	now := time.Now()
	for _, ev := range []dispatch.JobEvent{
		inRepository(1, 700, "acme/app", now), inRepository(2, 701, "acme/app", now.Add(time.Minute)),
		inRepository(3, 700, "acme/new", now.Add(2*time.Minute)),
	} {
		_, err := store.RecordJob(t.Context(), delivery(), ev)
		require.NoError(t, err)
	}
	require.Equal(t, int64(2), ledgertest.Int(t, url, "SELECT count(*) FROM workflow_jobs WHERE repository_id = 700 AND repository = 'acme/new'"))
	require.Equal(t, int64(1), ledgertest.Int(t, url, "SELECT count(*) FROM workflow_jobs WHERE repository_id = 701 AND repository = 'acme/app'"))
}

// A job that an earlier version has inserted learns whose it is with the next word of it.
func TestRecordJob_AJobOfAnEarlierVersionLearnsItsRepositorysId(t *testing.T) {
	t.Parallel()
	store, url := retained(t)
	ledgertest.Exec(t, url, insertJob, 1, "waiting", "1 hour")
	_, err := store.RecordJob(t.Context(), delivery(), inRepository(1, 700, "acme/new", time.Now()))
	require.NoError(t, err)
	require.Equal(t, int64(1), ledgertest.Int(t, url, "SELECT count(*) FROM workflow_jobs WHERE repository_id = 700 AND repository = 'acme/new'"))
}
