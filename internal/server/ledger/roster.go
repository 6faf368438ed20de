package ledger

import (
	"context"
	"fmt"
	"time"

	"github.com/bullpen-ci/bullpen/internal/server/events/roster"
	"github.com/bullpen-ci/bullpen/internal/server/ledger/sqlcgen"
)

var _ roster.Ledger = (*Store)(nil)

// RepositoryScopes lists the repositories at which registrations of ours may be alive.
func (s *Store) RepositoryScopes(ctx context.Context) ([]roster.Known, error) {
	rows, err := s.queries().RepositoryScopes(ctx)
	if err != nil {
		return nil, fmt.Errorf("listing where registrations may be alive: %w", err)
	}
	known := make([]roster.Known, len(rows))
	for i, row := range rows {
		known[i] = roster.Known{AccountID: row.AccountID, Repository: row.Scope, RepositoryID: row.RepositoryID}
	}
	return known, nil
}

// ProveEnded writes a proof into those spent or retired rows of the pods that have none, and returns their UIDs: the others
// have one, or are busy again.
func (s *Store) ProveEnded(ctx context.Context, podUIDs []string, proof string) ([]string, error) {
	proven, err := s.queries().ProveEnded(ctx, sqlcgen.ProveEndedParams{
		Proof: proof, PodUids: podUIDs, KnownLineage: s.knows().Lineage, KnownEpoch: s.knows().Epoch,
	})
	if err != nil {
		return nil, fmt.Errorf("recording a proof for %d pods: %w", len(podUIDs), frozen(err))
	}
	return proven, nil
}

// RegistrationsGone notes a proof that registrations are gone, or never were.
func (s *Store) RegistrationsGone(ctx context.Context, names []string, now time.Time) error {
	return s.queries().RegistrationsGone(ctx, &now, names)
}
