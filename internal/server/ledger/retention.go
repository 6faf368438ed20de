package ledger

import (
	"context"
	"fmt"
	"time"

	"github.com/bullpen-ci/bullpen/internal/server/ledger/sqlcgen"
	"github.com/bullpen-ci/bullpen/internal/server/periodic/retention"
)

var _ retention.Store = (*Store)(nil)

// Prune removes the rows that the rule names, up to most.
func (s *Store) Prune(ctx context.Context, rule retention.Rule, most int32) (int64, error) {
	n, err := s.prune(ctx, rule, most)
	if err != nil || rule.Kind != retention.Lanes || n == int64(most) {
		return n, err
	}
	if err := s.parkLeaked(ctx, rule.Before, most-int32(n)); err != nil { //nolint:gosec // less than most
		return n, fmt.Errorf("parking empty lanes: %w", err)
	}
	further, err := s.prune(ctx, rule, most-int32(n)) //nolint:gosec // less than most
	return n + further, err
}

// parkLeaked parks lanes that are empty and that no batch has parked.
func (s *Store) parkLeaked(ctx context.Context, before time.Time, most int32) error {
	return s.inTx(ctx, "parking empty lanes", func(q *sqlcgen.Queries) error {
		rows, err := q.LeakedLanes(ctx, before, most)
		if err != nil {
			return err
		}
		lanes := make([]lane, len(rows))
		for i, row := range rows {
			lanes[i] = lane{row.LabelKey, row.AccountID}
		}
		return parkEmptied(ctx, q, lanes...)
	})
}

func (s *Store) prune(ctx context.Context, rule retention.Rule, most int32) (int64, error) {
	var n int64
	err := s.inTx(ctx, "removing old rows", func(q *sqlcgen.Queries) (err error) {
		switch rule.Kind {
		case retention.Deliveries:
			n, err = q.PruneDeliveries(ctx, rule.Before, most)
		case retention.Jobs:
			n, err = q.PruneJobs(ctx, rule.Before, most)
		case retention.Tombstones:
			n, err = q.PruneTombstones(ctx, rule.Before, most)
		case retention.Sessions:
			n, err = q.PruneSessions(ctx, rule.Before, most)
		case retention.Registrations:
			n, err = q.PruneRegistrations(ctx, rule.Before, most)
		case retention.Adoptions:
			n, err = q.PruneAdoptions(ctx, rule.Before, most)
		case retention.Lanes:
			n, err = q.PruneLanes(ctx, rule.Before, most)
		case retention.LabelSets:
			n, err = q.PruneLabelSets(ctx, most)
		case retention.Repositories:
			n, err = q.PruneRepositories(ctx, rule.Before, most)
		case retention.Installations:
			n, err = q.PruneEndedInstallations(ctx, rule.Before, most)
		case retention.Audit:
			n, err = q.PruneAudit(ctx, rule.Before, most)
		case retention.Tails:
			n, err = q.PruneTails(ctx, rule.Before, most)
		case retention.Samples:
			n, err = q.PruneSamples(ctx, rule.Before, most)
		default:
			err = fmt.Errorf("unknown kind of row %q", rule.Kind)
		}
		return err
	})
	return n, err
}
