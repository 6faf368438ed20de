package ledger

import (
	"context"
	"time"
)

// Now is the database's own clock.
func (s *Store) Now(ctx context.Context) (time.Time, error) { return s.queries().DatabaseTime(ctx) }
