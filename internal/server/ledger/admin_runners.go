package ledger

import (
	"context"

	"github.com/bullpen-ci/bullpen/api/adminapi"
	"github.com/bullpen-ci/bullpen/internal/fleet"
	"github.com/bullpen-ci/bullpen/internal/server/admin"
	"github.com/bullpen-ci/bullpen/internal/server/dispatch"
	"github.com/bullpen-ci/bullpen/internal/server/ledger/sqlcgen"
)

// RetireRunner retires a pod for an administrator. Whether it works is for the primary key to say (EXCL-1): a row that was there before stays
// what it is, and nothing is audited, because nothing was changed.
func (s *Store) RetireRunner(ctx context.Context, c admin.Change, pod dispatch.Pod) (claim dispatch.Claim, changed bool, err error) {
	err = s.inTx(ctx, "retiring a runner", func(q *sqlcgen.Queries) error {
		before, err := claimStates(ctx, q, []string{pod.UID})
		if err != nil {
			return err
		}
		after, err := s.retire(ctx, q, []dispatch.Pod{pod}, c.At)
		if err != nil {
			return err
		}
		_, had := before[pod.UID]
		claim = after[pod.UID]
		changed = !had && claim.State == fleet.ClaimRetired
		if !changed {
			return nil
		}
		return insertAudit(ctx, q, sqlcgen.InsertAuditParams{
			At: c.At, Actor: c.Actor, Credential: c.Credential, Requester: c.Requester, Stated: c.Stated, Action: adminapi.ActionRetire,
			Subject: c.Account, PoolNamespace: pod.Pool.Namespace, Pool: pod.Pool.Name, Reason: c.Reason,
		}, nil, map[string]string{"pod": pod.Name, "uid": pod.UID, "pool": pod.Pool.Name})
	})
	return claim, changed, err
}
