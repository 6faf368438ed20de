package doctor

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/internal/fleet"
	"github.com/bullpen-ci/bullpen/internal/server/dispatch"
	"github.com/bullpen-ci/bullpen/internal/server/ledger"
)

// CLAIM-21: queued jobs that no pool serves are found, by the database's jobs and the cluster's pools; jobs for GitHub's own runners are not.
func TestDoctor_CLAIM21_FindsJobsThatNoPoolServes(t *testing.T) {
	s := newSite(t)
	s.look.Outside = fleet.OutsideRunners{GitHub: fleet.GitHubHosted()}
	store, err := ledger.Open(t.Context(), s.look.DatabaseURL, 2)
	require.NoError(t, err)
	defer store.Close()
	queue := func(id int64, age time.Duration, labels ...string) {
		_, err := store.RecordJob(t.Context(), dispatch.Delivery{Event: "workflow_job", At: time.Now()}, dispatch.JobEvent{
			Kind: fleet.JobEventQueued, Account: dispatch.Account{ID: 1, Login: "acme", InstallationID: 42}, JobID: id, Repository: "acme/app", RunID: 1,
			Labels: labels, QueuedAt: time.Now().Add(-age),
		})
		require.NoError(t, err)
	}
	queue(1, time.Hour, "linux-4")
	queue(2, time.Hour, "ubuntu-latest")
	require.Empty(t, s.examine().Findings)
	queue(3, time.Minute, "linx-4")
	r := s.examine()
	require.Len(t, r.Findings, 1)
	require.Equal(t, SeverityWarning, r.Findings[0].Severity)
	queue(4, time.Hour, "linx-4")
	f := s.finds("unserved-labels", "2 jobs queued for labels that no pool serves: linx-4. Nearest: pool linux has linux-4, not linx-4.", "job 4 of acme/app, was queued 1h0m")
	require.Contains(t, f.Remedy, "Write `runs-on: linux-4`")
}
