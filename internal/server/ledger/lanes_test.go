package ledger

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/test/kit/await"
	"github.com/bullpen-ci/bullpen/test/kit/ledgertest"
)

const (
	waitForLock = 20 * time.Second
	lockTick    = 5 * time.Millisecond
)

// RECV-5: a lane that seems to have a live claim would be kept for ever, and stand last in a fair queue.
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
	require.Equal(t, int64(3), ledgertest.Int(t, url, "SELECT count(*) FROM job_lanes"), "it is charged, as far as anybody knows")
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

// A claim that ends or is made meanwhile is counted once: the recount waits for it, or it for the recount.
func TestRecountLanes_AClaimThatIsMadeMeanwhileIsCountedOnce(t *testing.T) {
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
