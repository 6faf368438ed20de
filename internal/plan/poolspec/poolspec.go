package poolspec

import (
	"math"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"github.com/bullpen-ci/bullpen/api/v1alpha1"
	"github.com/bullpen-ci/bullpen/internal/fleet"
	"github.com/bullpen-ci/bullpen/internal/plan/lifecycle"
	"github.com/bullpen-ci/bullpen/internal/plan/scaling"
	"github.com/bullpen-ci/bullpen/internal/server/dispatch"
)

// The defaults of the spec's fields, for pools that were made without the API server's defaulting.
const (
	defaultReplicas             = 1
	defaultMinIdle              = 1
	defaultStartTimeout         = 10 * time.Minute
	defaultUnschedulableTimeout = 15 * time.Minute
	defaultCooldown             = 5 * time.Minute
	defaultStabilization        = 3 * time.Minute
)

// LeaveTimeout is how long a pod whose deletion was accepted holds its place in the pool.
const LeaveTimeout = 5 * time.Minute

// Wish reads what a pool wants. decided is the autoscaler's number, nil before it has decided; last is the number that the
// pool's status had.
func Wish(pool *v1alpha1.RunnerPool, templateHash string, decided *int, last *int32) lifecycle.Wish {
	desired := Desired(pool, decided, last)
	return lifecycle.Wish{
		Desired: desired, TemplateHash: templateHash,
		StartTimeout:         orDefault(pool.Spec.Provisioning.StartTimeout, defaultStartTimeout),
		UnschedulableTimeout: orDefault(pool.Spec.Provisioning.UnschedulableTimeout, defaultUnschedulableTimeout),
		IdleTimeout:          orDefault(pool.Spec.IdleTimeout, 0),
		MaxAge:               orDefault(pool.Spec.MaxRunnerAge, 0),
		LeaveTimeout:         LeaveTimeout,
		Terminating:          pool.DeletionTimestamp != nil,
		MaxUnavailable:       share(ptr.Deref(pool.Spec.Rollout.MaxUnavailable, intstr.FromString("5%")), desired, false),
		MaxSurge:             share(ptr.Deref(pool.Spec.Rollout.MaxSurge, intstr.FromInt32(0)), desired, true),
	}
}

// Desired is the number of runners to work towards. Of a pool that autoscales, the last number stands until the
// autoscaler has decided: a controller that was restarted knows less, and must not shrink the pool for that.
func Desired(pool *v1alpha1.RunnerPool, decided *int, last *int32) int {
	if pool.DeletionTimestamp != nil {
		return 0 // POOL-3: a pool that is being deleted is not scaled up
	}
	if pool.Spec.Intake == v1alpha1.IntakeDrained {
		return 0 // idle runners are removed through the fence, like any surplus; busy ones are left alone (EXCL-2)
	}
	if !Autoscales(pool) {
		return int(ptr.Deref(pool.Spec.Replicas, defaultReplicas))
	}
	desired := minIdle(pool.Spec.Autoscaling)
	switch {
	case decided != nil:
		desired = *decided
	case last != nil:
		desired = int(*last)
	}
	return min(max(desired, 0), Most(pool)) // SCALE-3
}

// minIdle is spec.autoscaling.minIdle, or what a stored pool still has under its former name.
func minIdle(scale *v1alpha1.Autoscaling) int {
	return int(ptr.Deref(scale.MinIdle, ptr.Deref(scale.MinWarm, defaultMinIdle)))
}

// Autoscales reports whether the controller chooses the pool's number.
func Autoscales(pool *v1alpha1.RunnerPool) bool {
	return pool.Spec.Autoscaling != nil && pool.Spec.Autoscaling.Enabled
}

// Most is the maximum number of runners of a pool. The API server requires a ceiling for autoscaled pools; a missing
// one is no reason to have no runner.
func Most(pool *v1alpha1.RunnerPool) int {
	if Autoscales(pool) {
		return int(ptr.Deref(pool.Spec.Autoscaling.MaxReplicas, math.MaxInt32))
	}
	return int(ptr.Deref(pool.Spec.Replicas, defaultReplicas))
}

// Scaling is the pool as the autoscaler plans with it, under that name, from the spec alone. The observer adds a runner's share of a node,
// the nodes and the state.
func Scaling(pool *v1alpha1.RunnerPool, name string) scaling.Pool {
	p := scaling.Pool{
		Name:        name,
		Terminating: pool.DeletionTimestamp != nil,
		Replicas:    int(ptr.Deref(pool.Spec.Replicas, defaultReplicas)),
	}
	if scale := pool.Spec.Autoscaling; scale != nil {
		p.Autoscaled = scale.Enabled
		p.MinIdle = minIdle(scale)
		p.Max = int(ptr.Deref(scale.MaxReplicas, 0))
		p.Cooldown = orDefault(scale.ScaleDownCooldown, defaultCooldown)
		p.Stabilization = orDefault(scale.Stabilization, defaultStabilization)
	}
	if pool.Spec.Intake == v1alpha1.IntakeDrained {
		p.MinIdle, p.Replicas = 0, 0 // it takes no room from others
	}
	return p
}

// Dispatch is the pool as dispatch knows it.
func Dispatch(pool *v1alpha1.RunnerPool) dispatch.Pool {
	const mebibyte = 1 << 20
	out := dispatch.Pool{
		Namespace: pool.Namespace, Name: pool.Name, Labels: pool.Spec.Labels,
		Platform: fleet.Platform(pool.Spec.Platform),
		Shape: fleet.Shape{
			MilliCPU: pool.Spec.Resources.CPU.MilliValue(),
			MemoryMB: (pool.Spec.Resources.Memory.Value() + mebibyte - 1) / mebibyte,
		},
		RepositoryScope: pool.Spec.Scope == v1alpha1.ScopeRepository,
		FairShare:       pool.Spec.Queueing == v1alpha1.QueueingFairShare,
		Paused:          pool.Spec.Intake == v1alpha1.IntakePaused || pool.Spec.Intake == v1alpha1.IntakeDrained,
		Terminating:     pool.DeletionTimestamp != nil,
	}
	switch group := pool.Spec.RunnerGroup; {
	case group == nil:
		out.RunnerGroupID = 1
	case group.Type == intstr.String:
		out.RunnerGroup = group.StrVal
	default:
		out.RunnerGroupID = int64(group.IntVal)
	}
	if out.Paused {
		out.PausedNote = pool.Annotations[v1alpha1.AnnotationIntakeNote]
	}
	return out
}

func orDefault(set *metav1.Duration, standard time.Duration) time.Duration {
	if set == nil {
		return standard
	}
	return set.Duration
}

// share is a number, or a percentage of total. The API server has validated the format; an invalid value is 0.
func share(value intstr.IntOrString, total int, up bool) int {
	n, err := intstr.GetScaledValueFromIntOrPercent(&value, total, up)
	if err != nil {
		return 0
	}
	return max(n, 0)
}
