package ledger

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/bullpen-ci/bullpen/internal/server/dispatch"
	"github.com/bullpen-ci/bullpen/internal/server/ledger/sqlcgen"
)

// Bounds of what is kept of owners without the App.
const (
	mostUninstalled = 100
	uninstalledKept = 7 * 24 * time.Hour
)

// InstallationOf returns the App's installation at the account; 0 where none is known.
func (s *Store) InstallationOf(ctx context.Context, accountID int64) (int64, error) {
	row, _, err := found(s.queries().AccountByID(ctx, accountID))
	if err != nil {
		return 0, fmt.Errorf("reading the installation of account %d: %w", accountID, err)
	}
	return deref(row.InstallationID), nil
}

// NoteUninstalled notes that events come from an account where the App is not installed, and forgets those that have ended.
func (s *Store) NoteUninstalled(ctx context.Context, owner dispatch.Account, repository string, now time.Time) error {
	return s.inTx(ctx, "noting an owner without the App", func(q *sqlcgen.Queries) error {
		if _, err := q.ForgetUninstalledOwners(ctx, now.Add(-uninstalledKept)); err != nil {
			return err
		}
		_, err := q.NoteUninstalledOwner(ctx, sqlcgen.NoteUninstalledOwnerParams{
			AccountID: owner.ID, Login: owner.Login, Repository: repository, Now: now, Most: mostUninstalled,
		})
		return err
	})
}

// UninstalledOwner is an account that events come from, and where the App is not installed.
type UninstalledOwner struct {
	Login, Repository string
	SeenAt            time.Time
}

// InspectUninstalled lists such accounts, newest first, as InspectSchema reads: it changes nothing, and an older schema has
// none.
func InspectUninstalled(ctx context.Context, url string) ([]UninstalledOwner, error) {
	conn, err := connect(ctx, url)
	if err != nil {
		return nil, err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	var there bool
	if err := conn.QueryRow(ctx, "SELECT to_regclass('uninstalled_owners') IS NOT NULL").Scan(&there); err != nil || !there {
		return nil, err
	}
	rows, err := conn.Query(ctx, `SELECT o.login, o.repository, o.seen_at FROM uninstalled_owners o
		WHERE o.seen_at > now() - interval '7 days'
		  AND NOT EXISTS (SELECT 1 FROM accounts a WHERE a.id = o.account_id AND a.installation_id IS NOT NULL)
		ORDER BY o.seen_at DESC`)
	if err != nil {
		return nil, fmt.Errorf("reading owners without the App: %w", err)
	}
	return pgx.CollectRows(rows, pgx.RowToStructByPos[UninstalledOwner])
}
