package rebuild_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/internal/fleet"
	"github.com/bullpen-ci/bullpen/internal/github"
	"github.com/bullpen-ci/bullpen/internal/server/dispatch"
	"github.com/bullpen-ci/bullpen/internal/server/events/roster"
	"github.com/bullpen-ci/bullpen/internal/server/restore/epoch"
	"github.com/bullpen-ci/bullpen/internal/server/restore/rebuild"
)

// slowLists knows one pod, and reads about the other until its time is over.
type slowLists struct{}

func (slowLists) Look(ctx context.Context, _ []roster.Query) (map[string]roster.Sighting, error) {
	<-ctx.Done()
	return map[string]roster.Sighting{
		"quick": {Found: []roster.Found{{Owner: fleet.Owner{ID: 7, Login: "acme"}, Scope: fleet.Scope{Owner: "acme"}}}},
		"slow":  {Doubt: "the list of runners of globex is still being read"},
	}, nil
}

// ledger notes what is rebuilt.
type ledger struct{ rebuilt []string }

func (l *ledger) Rebuild(ctx context.Context, _ epoch.Turn, f dispatch.FoundRunner, _ time.Time) (fleet.ClaimState, error) {
	l.rebuilt = append(l.rebuilt, f.Pod.UID)
	return fleet.ClaimMinted, ctx.Err()
}

func (l *ledger) RecordFound(context.Context, epoch.Turn, dispatch.JobEvent, time.Time) (dispatch.Recorded, error) {
	return dispatch.Recorded{}, nil
}

func (l *ledger) Claim(context.Context, string) (dispatch.Claim, error) { return dispatch.Claim{}, nil }

func (l *ledger) RecentRepositories(context.Context, int64, int) ([]string, error) { return nil, nil }

type nothing struct{}

func (nothing) Runs(context.Context, int64, string, string, int) ([]github.Run, int, error) {
	return nil, 0, nil
}

func (nothing) RunJobs(context.Context, int64, string, int64, int) ([]github.WorkflowJob, int, error) {
	return nil, 0, nil
}

func (nothing) Repositories(context.Context, int64, int) ([]fleet.Repository, bool, error) {
	return nil, true, nil
}

// Lists that take longer than a rebuilding may are doubts, which end a hold in time, and what was found counts. Were it an
// error, the hold would last forever: the next try reads everything again.
func TestRun_CLAIM17_SlowListsAreDoubtsAndNoReasonToHoldForEver(t *testing.T) {
	l := &ledger{}
	r, err := rebuild.New(rebuild.Options{
		Pods: func(context.Context) ([]dispatch.Pod, error) {
			return []dispatch.Pod{{UID: "slow", OwnerLabel: "globex"}, {UID: "quick", OwnerLabel: "acme"}}, nil
		},
		Pool:  func(dispatch.PoolRef) (dispatch.Pool, bool) { return dispatch.Pool{}, true },
		Lists: slowLists{}, Ledger: l, Forge: nothing{},
	})
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	doubts, err := r.Run(ctx, "turn")
	require.NoError(t, err)
	require.Equal(t, 1, doubts)
	require.Equal(t, []string{"quick"}, l.rebuilt)
}
