package postgres

import (
	"context"
	"fmt"

	"github.com/bullpen-ci/bullpen/internal/fleet"
	"github.com/bullpen-ci/bullpen/internal/operator"
)

// RunnerClaims returns the claims of those pods by their UIDs; retired and spent ones too.
func (s *Store) RunnerClaims(ctx context.Context, podUIDs []string) (map[string]operator.RunnerClaim, error) {
	rows, err := s.queries().RunnerClaims(ctx, podUIDs)
	if err != nil {
		return nil, fmt.Errorf("reading the claims of runners: %w", err)
	}
	claims := make(map[string]operator.RunnerClaim, len(rows))
	for _, row := range rows {
		claims[row.PodUid] = operator.RunnerClaim{
			State: fleet.ClaimState(row.State), Account: row.Login, JobID: row.JobID, RunnerName: row.RunnerName, ClaimedAt: row.ClaimedAt,
		}
	}
	return claims, nil
}
