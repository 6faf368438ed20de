package ledger

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/internal/server/ledger/sqlcgen"
	"github.com/bullpen-ci/bullpen/test/kit/await"
	"github.com/bullpen-ci/bullpen/test/kit/ledgertest"
)

// An event finds claims by its runner and by its job, and waits for those that are being changed. One that has another job
// by then, or has ended, is none of the event's: the event would undo the change.
func TestLockClaimsOfEvent_CLAIM15_NoneThatHasMovedOn(t *testing.T) {
	t.Parallel()
	const event = 7
	for name, change := range map[string]struct {
		sql   string
		found int
	}{
		"another job":  {"UPDATE runner_claims SET job_id = 8 WHERE pod_uid = 'p'", 0},
		"no job":       {"UPDATE runner_claims SET job_id = NULL WHERE pod_uid = 'p'", 0},
		"ended":        {"UPDATE runner_claims SET state = 'spent', ended_at = now() WHERE pod_uid = 'p'", 0},
		"the same job": {"UPDATE runner_claims SET state = 'executing' WHERE pod_uid = 'p'", 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			store, url := retained(t)
			ledgertest.Exec(t, url, `INSERT INTO runner_claims (pod_uid, namespace, pod_name, pool, state, generation, account_id, platform, label_key, job_id, runner_name, claimed_at)
				VALUES ('p', 'runners', 'p', 'linux', 'minted', 1, 1, 'linux', '["linux"]', $1, 'r', now())`, event)
			commit := ledgertest.Hold(t, url, change.sql)
			found := make(chan []sqlcgen.RunnerClaim, 1)
			failed := make(chan error, 1)
			go func() {
				rows, err := store.queries().LockClaimsOfEvent(t.Context(), "", event)
				found <- rows
				failed <- err
			}()
			require.Eventually(t, func() bool {
				return ledgertest.Int(t, url, "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()") == 1
			}, patience, interval)
			commit()
			require.Len(t, await.Receive(t, found, "the claims are found"), change.found)
			require.NoError(t, await.Receive(t, failed, "the statement that waited returns"))
		})
	}
}
