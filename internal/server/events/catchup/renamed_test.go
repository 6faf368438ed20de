package catchup_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/internal/dev/github/standin"
	"github.com/bullpen-ci/bullpen/internal/fleet"
	"github.com/bullpen-ci/bullpen/test/kit/ledgertest"
)

// A job waits in a repository that is renamed, and another repository is made by its old name: that one does not have the job,
// which says nothing about it.
func TestQueued_RECV7_AJobOfARenamedRepositoryIsNotTakenForGone(t *testing.T) {
	w := newWorld(t, nil)
	before := w.attempts()
	_, ids := w.submit("acme/app", 1)
	w.settled(before + 1)
	require.NoError(t, w.in.Admin.RenameRepository(t.Context(), "acme/app", "former-app"))
	_, err := w.in.Admin.Install(t.Context(), standin.Installation{Account: "acme", Repositories: []string{"app"}})
	require.NoError(t, err)
	w.clock.Advance(time.Hour)
	w.queued()
	require.Equal(t, fleet.JobQueued, w.state(ids[0]), "the log: %s", w.log.String())

	// A row of an earlier version knows the name alone, and is found by it as before.
	ledgertest.Exec(t, w.url, "UPDATE workflow_jobs SET repository_id = 0")
	w.clock.Advance(time.Hour)
	w.queued()
	require.Equal(t, fleet.JobCancelled, w.state(ids[0]))
}

// An event of a renamed repository moves its rows to the new name: its jobs are asked about, and its runners
// registered, there.
func TestTake_RowsFollowTheirRepositoryToItsNewName(t *testing.T) {
	w := newWorld(t, nil)
	// Deliveries are not counted here: there is one for the installation, too.
	submit := func(repository string) int64 {
		_, ids := w.submit(repository, 1)
		w.eventually("the job of "+repository+" is recorded", func() bool {
			state, err := w.store.JobState(t.Context(), ids[0])
			return err == nil && state == fleet.JobQueued
		})
		return ids[0]
	}
	first := submit("acme/app")
	require.NoError(t, w.in.Admin.RenameRepository(t.Context(), "acme/app", "former-app"))
	_, err := w.in.Admin.Install(t.Context(), standin.Installation{Account: "acme", Repositories: []string{"app"}})
	require.NoError(t, err)
	others := submit("acme/app")
	second := submit("acme/former-app")
	name := func(id int64) string {
		return ledgertest.Text(t, w.url, "SELECT repository FROM workflow_jobs WHERE id = $1", id)
	}
	require.Equal(t, "acme/former-app", name(first))
	require.Equal(t, "acme/former-app", name(second))
	require.Equal(t, "acme/app", name(others), "another one has the name")
}
