package ledger

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/bullpen-ci/bullpen/internal/fleet"
	"github.com/bullpen-ci/bullpen/internal/server/ledger/sqlcgen"
	"github.com/bullpen-ci/bullpen/internal/server/restore/epoch"
)

// nothingKnown is no database's lineage: until its mark is set, a guarded store changes nothing that matters.
var nothingKnown = epoch.Mark{Lineage: "nothing is known yet", Epoch: 0}

// Guard has every claim, take-over, mint and retirement fail with fleet.ErrLedgerFrozen until Know was called, and from then on
// whenever the ledger is frozen, or behind what is known (CLAIM-17). A store that is not guarded trusts its database.
func (s *Store) Guard() { s.known.CompareAndSwap(nil, &nothingKnown) }

// Know tells what this replica has seen of the installation's database.
func (s *Store) Know(m epoch.Mark) { s.known.Store(&m) }

// Restored drops what the store remembers of the database that it was connected to before.
func (s *Store) Restored() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.labelSets = map[string]bool{}
	s.repositories = map[fleet.Repository]time.Time{}
}

// knows is what statements ask for; an empty lineage asks for nothing.
func (s *Store) knows() epoch.Mark { return deref(s.known.Load()) }

// frozen translates the refusal of require_epoch, once, at the boundary.
func frozen(err error) error {
	var pg *pgconn.PgError
	if errors.As(err, &pg) && pg.Code == "BP017" {
		return fmt.Errorf("%w (%s)", fleet.ErrLedgerFrozen, pg.Message)
	}
	return err
}

// Epoch reads the row.
func (s *Store) Epoch(ctx context.Context) (epoch.Row, error) {
	r, err := s.queries().ReadEpoch(ctx)
	if err != nil {
		return epoch.Row{}, fmt.Errorf("reading the ledger's epoch: %w", err)
	}
	return epoch.Row{
		Mark: epoch.Mark{Lineage: r.Lineage, Epoch: r.Epoch}, Now: r.Now, BeatenAt: r.BeatenAt, Copied: r.Copied,
		HoldUntil: deref(r.HoldUntil), Over: epoch.Mark{Lineage: r.OverLineage, Epoch: r.OverEpoch}, Reason: r.Reason,
		LostSince: deref(r.LostSince), RebuiltAt: deref(r.RebuiltAt), Doubts: int(r.Doubts),
	}, nil
}

// Beat raises the epoch, unless another replica has within that time, or the ledger is frozen or behind what is
// known.
func (s *Store) Beat(ctx context.Context, known epoch.Mark, every time.Duration) error {
	if _, err := s.queries().BeatEpoch(ctx, known.Lineage, known.Epoch, every.Seconds()); err != nil {
		return fmt.Errorf("raising the ledger's epoch: %w", err)
	}
	return nil
}

// EpochCopied notes that Kubernetes has a copy: from then on its absence means something.
func (s *Store) EpochCopied(ctx context.Context, lineage string) error {
	return s.queries().EpochCopied(ctx, lineage)
}

// BeginHold writes a hold down, unless one over as much stands.
func (s *Store) BeginHold(ctx context.Context, row epoch.Mark, d epoch.Decision, hold time.Duration) error {
	arg := sqlcgen.BeginHoldParams{
		Hold: hold.Seconds(), OverLineage: d.Over.Lineage, OverEpoch: d.Over.Epoch, Reason: d.Reason,
		Lineage: row.Lineage, Epoch: row.Epoch,
	}
	if !d.Lost.IsZero() {
		arg.LostSince = &d.Lost
	}
	if _, err := s.queries().BeginHold(ctx, arg); err != nil {
		return fmt.Errorf("beginning a hold: %w", err)
	}
	return nil
}

// BeginRebuild gives the caller the turn to rebuild, for so long; false when another replica rebuilds, or has
// just done it.
func (s *Store) BeginRebuild(ctx context.Context, lease, every time.Duration) (epoch.Turn, bool, error) {
	turn, mine, err := found(s.queries().BeginRebuild(ctx, lease.Seconds(), every.Seconds()))
	if err != nil {
		return "", false, fmt.Errorf("beginning to rebuild: %w", err)
	}
	return epoch.Turn(turn), mine, nil
}

// RenewRebuild keeps the turn for so long from now; false when it is over.
func (s *Store) RenewRebuild(ctx context.Context, turn epoch.Turn, lease time.Duration) (bool, error) {
	n, err := s.queries().RenewRebuild(ctx, lease.Seconds(), string(turn))
	if err != nil {
		return false, fmt.Errorf("keeping the turn to rebuild: %w", err)
	}
	return n == 1, nil
}

// inTurn is inTx for a rebuilding: everything that fn does is done while the turn lasts, or not at all (CLAIM-17).
func (s *Store) inTurn(ctx context.Context, turn epoch.Turn, doing string, fn func(q *sqlcgen.Queries) error) error {
	return s.inTx(ctx, doing, func(q *sqlcgen.Queries) error {
		if _, lasts, err := found(q.LockRebuildTurn(ctx, string(turn))); err != nil {
			return err
		} else if !lasts {
			return epoch.ErrTurnOver
		}
		return fn(q)
	})
}

// EndRebuild gives the turn back and notes a rebuilding that began then and left that many doubts; a zero time notes one that
// failed. It is epoch.ErrTurnOver, and nothing is noted, if the turn was over before.
func (s *Store) EndRebuild(ctx context.Context, turn epoch.Turn, began time.Time, doubts int) error {
	var at *time.Time
	if !began.IsZero() {
		at = &began
	}
	n, err := s.queries().EndRebuild(ctx, at, int64(doubts), string(turn))
	if err != nil {
		return fmt.Errorf("noting what was rebuilt: %w", err)
	}
	if n == 0 {
		return epoch.ErrTurnOver
	}
	return nil
}

// EndHold ends the hold over that mark: the epoch is ahead of everything that was seen. False: another replica was faster,
// or a new hold has begun.
func (s *Store) EndHold(ctx context.Context, over epoch.Mark) (bool, error) {
	n, err := s.queries().EndHold(ctx, over.Lineage, over.Epoch)
	if err != nil {
		return false, fmt.Errorf("ending a hold: %w", err)
	}
	return n == 1, nil
}

// Heard returns those of the pods that the ledger has rows of.
func (s *Store) Heard(ctx context.Context, podUIDs []string) (map[string]bool, error) {
	rows, err := s.queries().AnyRowsOf(ctx, podUIDs)
	if err != nil {
		return nil, fmt.Errorf("looking for rows of %d pods: %w", len(podUIDs), err)
	}
	recorded := make(map[string]bool, len(rows))
	for _, uid := range rows {
		recorded[uid] = true
	}
	return recorded, nil
}
