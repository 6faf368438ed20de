package ledger

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/bullpen-ci/bullpen/internal/fleet"
	"github.com/bullpen-ci/bullpen/internal/server/dispatch"
	"github.com/bullpen-ci/bullpen/internal/server/ledger/sqlcgen"
	"github.com/bullpen-ci/bullpen/internal/server/restore/epoch"
)

// Rebuild gives a pod whose registrations GitHub shows the claim that it had, if the ledger lost it, and tells the ledger of
// those registrations (CLAIM-17). It repeats safely, and returns the state that the claim has then. A row whose work is over
// comes alive for a runner that is busy, and for no other: its registration is only written down, for recovery to remove. It is
// epoch.ErrTurnOver, and nothing is written, once the turn is over.
func (s *Store) Rebuild(ctx context.Context, turn epoch.Turn, f dispatch.FoundRunner, now time.Time) (fleet.ClaimState, error) {
	var state fleet.ClaimState
	err := s.inTurn(ctx, turn, "rebuilding a claim", func(q *sqlcgen.Queries) error {
		if err := s.ensureAccount(ctx, q, f.Account, "runner "+f.Runner().Name, now); err != nil {
			return err
		}
		claim, exists, err := found(q.LockClaim(ctx, f.Pod.UID))
		if err != nil {
			return err
		}
		state = fleet.ClaimState(claim.State)
		switch {
		case exists && state.Live():
			err = showFound(ctx, q, claim, f, now)
			if state == fleet.ClaimClaimed {
				state = fleet.ClaimMinted
			}
		case f.Runner().Busy:
			var adopted bool
			adopted, err = s.adoptWithoutJob(ctx, q, f.Adoption(), f.Pod, f.Pool, now)
			if errors.Is(err, dispatch.ErrForeignRunner) {
				return nil // and its name is not written down for the pod
			}
			if adopted {
				state = fleet.ClaimExecuting
			}
		case !exists:
			err = insertFound(ctx, q, f, now)
			state = fleet.ClaimMinted
		}
		if err != nil {
			return err
		}
		for _, r := range f.Runners {
			a := f.Adoption()
			a.RunnerName, a.RunnerID, a.Scope = r.Name, r.ID, r.Scope
			if err := ensureAlive(ctx, q, a, f.Pod, now); err != nil {
				return err
			}
		}
		return q.NotifyPods(ctx, []string{f.Pod.UID})
	})
	if err != nil {
		return fleet.ClaimNone, err
	}
	return state, nil
}

// RecordFound records what a rebuilding has read of a job at GitHub, as if a webhook had reported it. It is
// epoch.ErrTurnOver, and nothing is written, once the turn is over.
func (s *Store) RecordFound(ctx context.Context, turn epoch.Turn, ev dispatch.JobEvent, now time.Time) (dispatch.Recorded, error) {
	return s.recordJob(ctx, dispatch.Delivery{Event: "workflow_job", At: now}, ev,
		func(ctx context.Context, doing string, fn func(q *sqlcgen.Queries) error) error {
			return s.inTurn(ctx, turn, doing, fn)
		})
}

// arrived is when the runner is known to have its configuration: never, or now.
func arrived(f dispatch.FoundRunner, now time.Time) *time.Time {
	if r := f.Runner(); r.Busy || r.Online || f.Pod.PollerEnded {
		return &now
	}
	return nil
}

func insertFound(ctx context.Context, q *sqlcgen.Queries, f dispatch.FoundRunner, now time.Time) error {
	n, err := q.InsertFound(ctx, sqlcgen.InsertFoundParams{
		PodUid: f.Pod.UID, Namespace: f.Pod.Namespace, PodName: f.Pod.Name, Pool: f.Pod.Pool.Name,
		Generation: dispatch.NextGeneration(0, now), AccountID: &f.Account.ID, Platform: string(f.Pool.Platform),
		MilliCpu: f.Pool.Shape.MilliCPU, MemoryMb: f.Pool.Shape.MemoryMB, RunnerName: f.Runner().Name, Now: now,
		AcknowledgedAt: arrived(f, now),
	})
	if err != nil || n == 0 {
		return err
	}
	return q.SessionFound(ctx, now, f.Pod.UID)
}

// showFound keeps the name that the row has as long as GitHub shows it and no other one is busy.
func showFound(ctx context.Context, q *sqlcgen.Queries, claim sqlcgen.RunnerClaim, f dispatch.FoundRunner, now time.Time) error {
	best := f.Runner()
	for _, r := range f.Runners {
		if r.Name == claim.RunnerName && !best.Busy {
			best = r
		}
	}
	arrivedAt := arrived(f, now)
	if best.Name == claim.RunnerName && claim.State != string(fleet.ClaimClaimed) && claim.LeaseUntil == nil &&
		(arrivedAt == nil || claim.AcknowledgedAt != nil) {
		return nil // it says so already
	}
	if _, err := q.ShowFound(ctx, sqlcgen.ShowFoundParams{
		RunnerName: best.Name, Generation: dispatch.NextGeneration(0, now), Now: &now, AcknowledgedAt: arrivedAt, PodUid: f.Pod.UID,
	}); err != nil {
		return err
	}
	if claim.State != string(fleet.ClaimClaimed) || claim.JobID == nil {
		return nil
	}
	_, err := q.MoveJob(ctx, sqlcgen.MoveJobParams{ // CLAIM-2
		Next: string(fleet.JobMinted), Now: now, ID: *claim.JobID, Expected: string(fleet.JobClaimed),
	})
	return err
}

// RecentRepositories lists where the account had jobs, newest first, up to most.
func (s *Store) RecentRepositories(ctx context.Context, accountID int64, most int) ([]string, error) {
	names, err := s.queries().RecentRepositories(ctx, accountID, int32(most)) //nolint:gosec // a small bound
	if err != nil {
		return nil, fmt.Errorf("listing an account's repositories: %w", err)
	}
	return names, nil
}
