package incidents

import (
	"context"

	"github.com/bullpen-ci/bullpen/internal/server/dispatch"
	"github.com/bullpen-ci/bullpen/test/kit/dispatchtest"
)

// The older behaviour, for the controls.

// stampsAtTheClaim is a ledger whose user writes the owner label as soon as a claim is won, before anything is minted.
type stampsAtTheClaim struct {
	dispatch.Store
	cluster *dispatchtest.Cluster
}

func (s stampsAtTheClaim) ClaimBatch(ctx context.Context, b dispatch.Batch) (dispatch.BatchResult, error) {
	result, err := s.Store.ClaimBatch(ctx, b)
	for _, claim := range result.Claims {
		if pod, there := s.cluster.Pod(claim.PodUID); there && err == nil {
			_ = s.cluster.StampOwner(ctx, pod, claim.Account)
		}
	}
	return result, err
}

// stampFirst has a world's servers write the label at the claim.
func stampFirst(w *world) func(*dispatch.Options) {
	return func(o *dispatch.Options) { o.Store = stampsAtTheClaim{o.Store, w.cluster} }
}
