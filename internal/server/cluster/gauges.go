package cluster

import (
	"github.com/bullpen-ci/bullpen/api/v1alpha1"
	"github.com/bullpen-ci/bullpen/internal/plan/poolspec"
	"github.com/bullpen-ci/bullpen/internal/server/history"
)

// mostCapacity is the maximum that the API server accepts. It stands for the capacity of pools without a maximum.
const mostCapacity = 10_000

// PoolGauges returns the numbers of runners of all pools, as the controller last reported them, without queued jobs.
func (v *View) PoolGauges() map[history.Pool]history.Gauges {
	gauges := map[history.Pool]history.Gauges{}
	for _, obj := range v.pools.GetStore().List() {
		if pool, ok := obj.(*v1alpha1.RunnerPool); ok {
			gauges[history.Pool{Namespace: pool.Namespace, Name: pool.Name}] = poolGauges(pool)
		}
	}
	return gauges
}

func poolGauges(pool *v1alpha1.RunnerPool) history.Gauges {
	return history.Gauges{
		Busy: int64(pool.Status.Busy), Idle: int64(pool.Status.Idle), Starting: int64(pool.Status.Starting),
		Capacity: int64(min(poolspec.Most(pool), mostCapacity)),
	}
}
