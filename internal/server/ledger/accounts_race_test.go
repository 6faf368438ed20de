package ledger

import (
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/test/kit/await"
	"github.com/bullpen-ci/bullpen/test/kit/ledgertest"
)

// Events of an unknown account come all at once: the first of its workflows has many jobs. Each is recorded. Without a lock
// on the installation most rounds lose one: the account's row is inserted twice, and fails at the installation's unique
// index.
func TestRecordJob_RECV5_ManyFirstEventsOfAnAccountAtOnce(t *testing.T) {
	t.Parallel()
	store, url := retained(t)
	const rounds, atOnce = 40, 8
	for round := range int64(rounds) {
		var begin, done sync.WaitGroup
		begin.Add(1)
		errs := make([]error, atOnce)
		for i := range int64(atOnce) {
			ev, d := queuedEvent(1000+round*atOnce+i), delivery()
			ev.Account.ID, ev.Account.InstallationID = 9_000+round, 500+round
			ev.Account.Login = fmt.Sprintf("new-%d", round)
			ev.Repository, ev.RepositoryID = ev.Account.Login+"/app", 9_000+round
			done.Go(func() {
				begin.Wait()
				_, errs[i] = store.RecordJob(t.Context(), d, ev)
			})
		}
		begin.Done()
		await.Return(t, done.Wait, "the concurrent calls return")
		for _, err := range errs {
			require.NoError(t, err, "round %d", round)
		}
	}
	require.Equal(t, int64(rounds*atOnce), ledgertest.Int(t, url, "SELECT count(*) FROM workflow_jobs WHERE id >= 1000"))
}
