package ledger

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/internal/fleet"
	"github.com/bullpen-ci/bullpen/test/kit/await"
	"github.com/bullpen-ci/bullpen/test/kit/ledgertest"
)

const (
	waitForLock = 20 * time.Second
	lockTick    = 5 * time.Millisecond
)

// RECV-5: a lane that seems to have a live claim would be kept forever, and be last in a fair queue.
func TestRecountLanes_RECV5_ADriftedLaneIsPutRight(t *testing.T) {
	t.Parallel()
	store, url := retained(t)
	ledgertest.Exec(t, url, `INSERT INTO label_sets VALUES ('["mac"]', '{mac}'), ('["arm"]', '{arm}')`)
	ledgertest.Exec(t, url, `INSERT INTO job_lanes (label_key, account_id, parked, head_at, running) VALUES
		('["linux"]', 1, 'empty', now() - interval '30 days', 3), ('["mac"]', 1, 'limit', now(), 1), ('["arm"]', 1, '', now(), 0)`)
	ledgertest.Exec(t, url, `INSERT INTO runner_claims (pod_uid, namespace, pod_name, pool, state, generation, account_id, label_key, claimed_at)
		VALUES ('a', 'n', 'a', 'p', 'executing', 1, 1, '["mac"]', now()), ('b', 'n', 'b', 'p', 'claimed', 1, 1, '["arm"]', now()),
			('c', 'n', 'c', 'p', 'spent', 1, 1, '["linux"]', now())`)
	prune(t, store)
	require.Equal(t, int64(3), ledgertest.Int(t, url, "SELECT count(*) FROM job_lanes"), "it is charged, as far as is known")
	put, err := store.RecountLanes(t.Context())
	require.NoError(t, err)
	require.Equal(t, int64(2), put)
	require.Equal(t, int64(0), ledgertest.Int(t, url, `SELECT running FROM job_lanes WHERE label_key = '["linux"]'`))
	require.Equal(t, int64(1), ledgertest.Int(t, url, `SELECT running FROM job_lanes WHERE label_key = '["mac"]'`))
	require.Equal(t, int64(1), ledgertest.Int(t, url, `SELECT running FROM job_lanes WHERE label_key = '["arm"]'`))
	put, err = store.RecountLanes(t.Context())
	require.NoError(t, err)
	require.Zero(t, put)
	prune(t, store)
	require.Equal(t, int64(2), ledgertest.Int(t, url, "SELECT count(*) FROM job_lanes"), "now it goes")
}

// A claim that ends or is made concurrently is counted once: the recount waits for it, or it for the recount.
func TestRecountLanes_AConcurrentClaimIsCountedOnce(t *testing.T) {
	t.Parallel()
	store, url := retained(t)
	ledgertest.Exec(t, url, `INSERT INTO job_lanes (label_key, account_id, parked, head_at, running) VALUES ('["linux"]', 1, '', now(), 5)`)
	commit := ledgertest.Hold(t, url, // as a batch does
		`INSERT INTO runner_claims (pod_uid, namespace, pod_name, pool, state, generation, account_id, label_key, claimed_at)
			VALUES ('a', 'n', 'a', 'p', 'claimed', 1, 1, '["linux"]', now())`,
		`UPDATE job_lanes SET running = running + 1 WHERE label_key = '["linux"]'`)
	done := make(chan error, 1)
	go func() {
		_, err := store.RecountLanes(t.Context())
		done <- err
	}()
	require.Eventually(t, func() bool {
		return ledgertest.Int(t, url, "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()") == 1
	}, waitForLock, lockTick)
	commit()
	require.NoError(t, await.Receive(t, done, "the statement that waited returns"))
	require.Equal(t, int64(1), ledgertest.Int(t, url, "SELECT running FROM job_lanes"))
}

// running has one job of the account run on a pod, beside a lane that waits for its room. The job ends when the pod has stopped already.
func running(t *testing.T, store *Store, url string) (end func() error) {
	t.Helper()
	_, err := store.RecordJob(t.Context(), delivery(), queuedEvent(1))
	require.NoError(t, err)
	require.NoError(t, store.SetLimits(t.Context(), 1, fleet.Linux, fleet.Limits{MilliCPU: 1000, MemoryMB: 1000, Jobs: 1}))
	ledgertest.Exec(t, url, `UPDATE workflow_jobs SET state = 'executing', runner_name = 'r'`)
	ledgertest.Exec(t, url, `INSERT INTO runner_claims (pod_uid, namespace, pod_name, pool, state, generation, account_id, platform, label_key, job_id, runner_name, claimed_at)
		VALUES ('a', 'n', 'a', 'p', 'executing', 1, 1, 'linux', '["linux"]', 1, 'r', now())`)
	ledgertest.Exec(t, url, `INSERT INTO label_sets VALUES ('["mac"]', '{mac}')`)
	ledgertest.Exec(t, url, `INSERT INTO job_lanes (label_key, account_id, head_at) VALUES ('["mac"]', 1, now())`)
	return func() error {
		done := queuedEvent(1)
		done.Kind, done.Conclusion, done.RunnerName = fleet.JobEventCompleted, "success", "r"
		if err := store.PodStopped(t.Context(), "a", time.Now(), nil); err != nil {
			return err
		}
		_, err := store.RecordJob(t.Context(), delivery(), done)
		return err
	}
}

// TEN-1: a batch parks a lane because there was no room, while a claim of the account ends that it could not see yet. The end waits for the
// batch, and finds the lane.
func TestFreeRoom_TEN1_AConcurrentlyParkedLaneIsFound(t *testing.T) {
	t.Parallel()
	store, url := retained(t)
	end := running(t, store, url)
	commit := ledgertest.Hold(t, url, // as a batch does
		`SELECT 1 FROM account_limits WHERE account_id = 1 AND platform = 'linux' FOR UPDATE`,
		`UPDATE job_lanes SET parked = 'limit' WHERE label_key = '["mac"]'`)
	done := make(chan error, 1)
	go func() { done <- end() }()
	require.Eventually(t, func() bool {
		return ledgertest.Int(t, url, "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()") == 1
	}, waitForLock, lockTick)
	commit()
	require.NoError(t, await.Receive(t, done, "the statement that waited returns"))
	require.Equal(t, int64(1), ledgertest.Int(t, url, `SELECT count(*) FROM job_lanes WHERE label_key = '["mac"]' AND parked = ''`))
}

// A batch holds the account's limits and waits for lanes, so a transaction that gives a job back may hold no lane while it
// waits for the limits.
func TestGiveBack_HoldsNoLaneWhileItWaitsForTheLimits(t *testing.T) {
	t.Parallel()
	for what, give := range map[string]func(store *Store) (bool, error){
		"unclaim": func(store *Store) (bool, error) { return store.Unclaim(t.Context(), "a", 1, time.Now()) },
		"release": func(store *Store) (bool, error) {
			return store.Release(t.Context(), "a", 1, "its registration is gone", time.Now())
		},
	} {
		store, url := retained(t)
		running(t, store, url)
		ledgertest.Exec(t, url, `UPDATE workflow_jobs SET state = 'claimed'`)
		ledgertest.Exec(t, url, `UPDATE runner_claims SET state = 'claimed', runner_name = ''`)
		commit := ledgertest.Hold(t, url, `SELECT 1 FROM account_limits WHERE account_id = 1 AND platform = 'linux' FOR UPDATE`)
		done := make(chan error, 1)
		go func() {
			ok, err := give(store)
			if err == nil && !ok {
				err = errors.New("nothing was given back")
			}
			done <- err
		}()
		require.Eventually(t, func() bool {
			return ledgertest.Int(t, url, "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()") == 1
		}, waitForLock, lockTick)
		require.Equal(t, int64(2), ledgertest.Int(t, url, "SELECT count(*) FROM (SELECT 1 FROM job_lanes FOR UPDATE SKIP LOCKED) free"), what)
		commit()
		require.NoError(t, await.Receive(t, done, "the statement that waited returns"), what)
		require.Equal(t, int64(1), ledgertest.Int(t, url, `SELECT count(*) FROM workflow_jobs WHERE state = 'queued'`), what)
	}
}

// TEN-1: the end of a claim writes the lanes that the account's limit has parked, and its own, however many others the account has.
func TestFreeRoom_TEN1_OtherLanesAreNotTouched(t *testing.T) {
	t.Parallel()
	store, url := retained(t)
	end := running(t, store, url)
	ledgertest.Exec(t, url, `UPDATE job_lanes SET parked = 'limit' WHERE label_key = '["mac"]'`)
	ledgertest.Exec(t, url, `INSERT INTO label_sets SELECT '["run-' || n || '"]', ARRAY['run-' || n] FROM generate_series(1, 500) n`)
	ledgertest.Exec(t, url, `INSERT INTO job_lanes (label_key, account_id, head_at) SELECT '["run-' || n || '"]', 1, now() FROM generate_series(1, 500) n`)
	version := func(where string) int64 {
		return ledgertest.Int(t, url, "SELECT sum(version)::bigint FROM job_lanes WHERE "+where)
	}
	foreign, limited := version("label_key LIKE '%run-%'"), version(`label_key = '["mac"]'`)
	require.NoError(t, end())
	require.Equal(t, foreign, version("label_key LIKE '%run-%'"))
	require.Equal(t, limited+1, version(`label_key = '["mac"]'`))
	require.Equal(t, int64(1), ledgertest.Int(t, url, `SELECT count(*) FROM job_lanes WHERE label_key = '["mac"]' AND parked = ''`))
}

// Beside a replica that frees no room when a pod ends, a lane at its limit is read again once nothing is charged to its
// account.
func TestUnparkUncharged_OnlyWhatNothingIsChargedTo(t *testing.T) {
	t.Parallel()
	store, url := retained(t)
	running(t, store, url)
	ledgertest.Exec(t, url, `UPDATE job_lanes SET parked = 'limit' WHERE label_key = '["mac"]'`)
	parked := func() int64 {
		require.NoError(t, store.UnparkUncharged(t.Context()))
		return ledgertest.Int(t, url, "SELECT count(*) FROM job_lanes WHERE parked = 'limit'")
	}
	require.Equal(t, int64(1), parked(), "a job runs")
	ledgertest.Exec(t, url, `UPDATE runner_claims SET state = 'spent', ended_at = now()`)
	require.Equal(t, int64(1), parked(), "its pod is there")
	ledgertest.Exec(t, url, `DELETE FROM runner_claims`) // as a replica does that knows nothing of the charge
	require.Zero(t, parked())
}
