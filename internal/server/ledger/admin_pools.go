package ledger

import (
	"context"
	"fmt"

	"github.com/bullpen-ci/bullpen/internal/fleet"
	"github.com/bullpen-ci/bullpen/internal/server/admin"
)

// RunnerClaims returns the claims of those pods by their UIDs; retired and spent ones too.
func (s *Store) RunnerClaims(ctx context.Context, podUIDs []string) (map[string]admin.RunnerClaim, error) {
	rows, err := s.queries().RunnerClaims(ctx, podUIDs)
	if err != nil {
		return nil, fmt.Errorf("reading the claims of runners: %w", err)
	}
	claims := make(map[string]admin.RunnerClaim, len(rows))
	for _, row := range rows {
		claims[row.PodUid] = admin.RunnerClaim{
			State: fleet.ClaimState(row.State), Account: row.Login, JobID: row.JobID, RunnerName: row.RunnerName, ClaimedAt: row.ClaimedAt,
		}
	}
	return claims, nil
}
