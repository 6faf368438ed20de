package ledger

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/internal/server/dispatch"
	"github.com/bullpen-ci/bullpen/test/kit/ledgertest"
)

// CLAIM-21: the jobs of label sets that no pool serves are counted, with the oldest of them, and those of no other.
func TestUnservedLanes_CLAIM21_CountsQueuedJobs(t *testing.T) {
	t.Parallel()
	store, url := retained(t)
	at := func(id int64) time.Time { return time.Unix(1_700_000_000+id, 0) }
	queue := func(id, account int64, labels ...string) {
		ev := queuedEvent(id)
		ev.Labels, ev.QueuedAt = labels, at(id)
		if account != 1 {
			ev.Account = dispatch.Account{ID: account, Login: fmt.Sprintf("a%d", account), InstallationID: 100 + account}
			ev.Repository = fmt.Sprintf("a%d/app", account)
		}
		_, err := store.RecordJob(t.Context(), delivery(), ev)
		require.NoError(t, err)
	}
	read := func() dispatch.UnservedLanes {
		t.Helper()
		lanes, err := store.UnservedLanes(t.Context(), []string{`["served"]`})
		require.NoError(t, err)
		for i := range lanes.Lanes {
			lanes.Lanes[i].Oldest.QueuedAt = lanes.Lanes[i].Oldest.QueuedAt.UTC()
		}
		inspected, err := InspectUnserved(t.Context(), url, []string{`["served"]`})
		require.NoError(t, err)
		require.Len(t, inspected.Lanes, len(lanes.Lanes), "doctor reads the same")
		return lanes
	}
	require.Empty(t, read().Lanes)
	queue(10, 1, "served")
	queue(30, 1, "bulpen")
	queue(31, 1, "bulpen")
	queue(20, 2, "self-hosted", "linux")
	queue(25, 3, "self-hosted", "linux")
	account := func(repository string) (id int64) {
		if _, err := fmt.Sscanf(repository, "a%d/", &id); err != nil {
			id = 1
		}
		return id
	}
	lane := func(jobs, oldest int64, repository string, labels ...string) dispatch.UnservedLane {
		return dispatch.UnservedLane{LabelKey: dispatch.LabelKey(labels), Jobs: jobs, Oldest: dispatch.JobAge{ID: oldest, QueuedAt: at(oldest).UTC()}, Repository: repository, AccountID: account(repository)}
	}
	require.Equal(t, dispatch.UnservedLanes{Lanes: []dispatch.UnservedLane{
		lane(1, 20, "a2/app", "linux", "self-hosted"), lane(1, 25, "a3/app", "linux", "self-hosted"), lane(2, 30, queuedEvent(30).Repository, "bulpen"),
	}}, read(), "the oldest first")

	ledgertest.Exec(t, url, `UPDATE job_lanes SET parked = 'limit' WHERE label_key = '["bulpen"]'`)
	require.Len(t, read().Lanes, 3, "its pool was deleted while the account was at its limit")
	ledgertest.Exec(t, url, `UPDATE accounts SET paused = true WHERE id = 2`)
	ledgertest.Exec(t, url, `UPDATE accounts SET installation_id = NULL WHERE id = 3`)
	require.Len(t, read().Lanes, 2, "jobs of accounts without the App are left out, and those of suspended accounts are not")
	ledgertest.Exec(t, url, `UPDATE workflow_jobs SET state = 'cancelled', completed_at = now() WHERE label_key = '["bulpen"]'`)
	ledgertest.Exec(t, url, `UPDATE job_lanes SET parked = 'empty' WHERE label_key = '["bulpen"]'`)
	require.Len(t, read().Lanes, 1, "of the suspended account")
}

// A reading is bounded: no lane's jobs are counted beyond its share, and no more label sets are read than the oldest.
func TestUnservedLanes_IsBounded(t *testing.T) {
	t.Parallel()
	store, url := retained(t)
	const jobs = unservedJobs + 100
	ledgertest.Exec(t, url, `INSERT INTO accounts SELECT n, 'a' || n, 'Organization', n, false, now(), now() FROM generate_series(10, 50) n`)
	ledgertest.Exec(t, url, `INSERT INTO label_sets SELECT '["l' || n || '"]', ARRAY['l' || n] FROM generate_series(1, $1::int) n`, unservedSets+5)
	ledgertest.Exec(t, url, `INSERT INTO job_lanes (label_key, account_id, version, head_at) SELECT '["l' || n || '"]', 10, 1, now() + n * interval '1 s' FROM generate_series(1, $1::int) n`, unservedSets+5)
	lanes, err := store.UnservedLanes(t.Context(), nil)
	require.NoError(t, err)
	require.True(t, lanes.More)
	require.Len(t, lanes.Lanes, unservedSets)
	require.Equal(t, `["l1"]`, lanes.Lanes[0].LabelKey)

	ledgertest.Exec(t, url, `DELETE FROM job_lanes WHERE label_key <> '["l1"]'`)
	ledgertest.Exec(t, url, `INSERT INTO workflow_jobs (id, account_id, repository, run_id, run_attempt, name, workflow, head_branch, head_sha, label_key, state, queued_at, updated_at)
		SELECT n, 10, 'a10/app', 1, 1, 'build', 'ci', 'main', 'abc', '["l1"]', 'queued', now(), now() FROM generate_series(1, $1::int) n`, jobs)
	ledgertest.Exec(t, url, `ANALYZE`)
	lanes, err = store.UnservedLanes(t.Context(), nil)
	require.NoError(t, err)
	require.Len(t, lanes.Lanes, 1)
	require.EqualValues(t, unservedJobs, lanes.Lanes[0].Jobs)
	require.True(t, lanes.Lanes[0].More)
	require.False(t, lanes.More)

	ledgertest.Exec(t, url, `INSERT INTO job_lanes (label_key, account_id, version, head_at) SELECT '["l1"]', n, 1, now() FROM generate_series(11, 50) n`)
	lanes, err = store.UnservedLanes(t.Context(), nil)
	require.NoError(t, err)
	require.Len(t, lanes.Lanes, unservedLanes)
	require.True(t, lanes.Lanes[0].More, "more accounts ask for it")
}
