package clusterview

import (
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/bullpen-ci/bullpen/api/v1alpha1"
	"github.com/bullpen-ci/bullpen/internal/dispatch"
	"github.com/bullpen-ci/bullpen/internal/why"
)

// PoolStatus is what the pool's controller has last said of it; false for a pool that the watch does not show.
func (v *View) PoolStatus(ref dispatch.PoolRef) (why.Pool, bool) {
	obj, ok, err := v.pools.GetStore().GetByKey(ref.Namespace + "/" + ref.Name)
	if err != nil || !ok {
		return why.Pool{}, false
	}
	pool, ok := obj.(*v1alpha1.RunnerPool)
	if !ok {
		return why.Pool{}, false
	}
	return poolStatus(pool), true
}

func poolStatus(pool *v1alpha1.RunnerPool) why.Pool {
	own, _ := toPool(pool)
	s := pool.Status
	out := why.Pool{
		Ref: own.Ref(), Platform: own.Platform, Shape: own.Shape,
		Idle: int64(s.Idle), Busy: int64(s.Busy), Booting: int64(s.Booting), Replicas: int64(s.Replicas),
	}
	if s.DesiredReplicas != nil {
		out.Desired = int64(*s.DesiredReplicas)
	}
	said := func(kind string, status metav1.ConditionStatus) string {
		if c := meta.FindStatusCondition(s.Conditions, kind); c != nil && c.Status == status {
			return c.Message
		}
		return ""
	}
	out.Saturated, out.Starved = said(v1alpha1.ConditionSaturated, metav1.ConditionTrue), said(v1alpha1.ConditionStarved, metav1.ConditionTrue)
	progressing := meta.FindStatusCondition(s.Conditions, v1alpha1.ConditionProgressing)
	if out.Starved == "" && progressing != nil && progressing.Status == metav1.ConditionFalse && out.Idle+out.Busy+out.Booting < out.Desired {
		out.Starved = progressing.Message // a template that is refused, or runners that end before they can take a job
	}
	return out
}
