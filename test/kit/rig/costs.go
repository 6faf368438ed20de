package rig

import (
	"math"
	"strings"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bullpen-ci/bullpen/api/runnerapi"
	"github.com/bullpen-ci/bullpen/api/v1alpha1"
	"github.com/bullpen-ci/bullpen/internal/runnerpod"
	"github.com/bullpen-ci/bullpen/internal/runnerpod/podsigns"
)

// labelFleet marks the nodes of one fleet, as several may share a control plane.
const labelFleet = "rig.bullpen.dev/fleet"

// NewPool makes a pool whose jobs ask for its own name, on this fleet's nodes.
func (f *Fleet) NewPool(name string, replicas int, change ...func(*v1alpha1.RunnerPool)) *v1alpha1.RunnerPool {
	f.tb.Helper()
	pool := &v1alpha1.RunnerPool{
		ObjectMeta: metav1.ObjectMeta{Namespace: f.Namespace, Name: name},
		Spec: v1alpha1.RunnerPoolSpec{
			Platform: v1alpha1.PlatformLinux, Labels: []string{name}, Replicas: ptr.To(int32(replicas)), //nolint:gosec // a small number
			Resources: v1alpha1.RunnerResources{CPU: resource.MustParse("100m"), Memory: resource.MustParse("64Mi")},
			Template:  v1alpha1.RunnerTemplate{Image: "runner:1", NodeSelector: map[string]string{labelFleet: f.Namespace}},
		},
	}
	for _, f := range change {
		f(pool)
	}
	require.NoError(f.tb, f.Admin.Create(f.ctx, pool))
	return pool
}

// CostOfAJob runs jobs one after another in a small pool that is otherwise idle, and returns the calls per job: of its
// whole life, from the pod that waits for it to the pod that takes its place. Calls that happen by the clock, with or
// without jobs, are left out.
func (f *Fleet) CostOfAJob(jobs int) map[Call]float64 {
	f.tb.Helper()
	const size = 5
	f.NewPool("cost", size)
	var pool sets.Set[string]
	require.Eventually(f.tb, func() bool { pool = f.idle(size); return pool != nil }, 2*time.Minute, 50*time.Millisecond, "the pool is up")
	run := func(n int) {
		for range n {
			before := f.State().Jobs["completed"]
			require.NoError(f.tb, f.Submit(f.ctx, "cost", 1, 1, 0))
			require.Eventually(f.tb, func() bool { return f.State().Jobs["completed"] > before }, 2*time.Minute, 50*time.Millisecond, "the job ends")
			// GitHub learns of the end before the API server does: until then the pool looks as it did before the
			// job.
			replaced := func() bool {
				now := f.idle(size)
				if now == nil || now.Equal(pool) {
					return false
				}
				pool = now
				return true
			}
			require.Eventually(f.tb, replaced, 2*time.Minute, 50*time.Millisecond, "its runner is replaced")
		}
	}
	run(3) // what is done once is done
	start := f.Calls.Snapshot()
	run(jobs)
	perJob := map[Call]float64{}
	for call, n := range f.Calls.Snapshot() {
		if per := float64(n-start[call]) / float64(jobs); !call.byTheClock() && math.Round(per*10) > 0 {
			perJob[call] = per
		}
	}
	return perJob
}

// WritesOfAJob are those that P5 counts: the server's and the controller's.
func WritesOfAJob(perJob map[Call]float64) float64 {
	writes := 0.0
	for call, n := range perJob {
		if call.Write() && (call.Component == Server || call.Component == Controller) {
			writes += n
		}
	}
	return writes
}

// byTheClock reports whether a call is made every so often, whether jobs run or not.
func (c Call) byTheClock() bool {
	return c.Verb == "watch" || c.Verb == "list" || c.Resource == "leases" || strings.HasPrefix(c.Resource, "nodes") ||
		strings.HasPrefix(c.Resource, "/internal/v1/signals") || c.Resource == runnerapi.PathDispatch+" → 204"
}

// idle returns the names of the runners if there are exactly n, all of which can take a job, and nothing is left of
// others; nil otherwise.
func (f *Fleet) idle(n int) sets.Set[string] {
	var pods corev1.PodList
	var accounts corev1.ServiceAccountList
	ours := []client.ListOption{client.InNamespace(f.Namespace), client.MatchingLabels{runnerpod.LabelRunner: "true"}}
	if f.Admin.List(f.ctx, &pods, ours...) != nil || f.Admin.List(f.ctx, &accounts, ours...) != nil {
		return nil
	}
	ready := sets.New[string]()
	for i := range pods.Items {
		pod := &pods.Items[i]
		if podsigns.Jobless(pod, podsigns.Container(pod, runnerpod.ContainerRunner)) && pod.DeletionTimestamp == nil {
			ready.Insert(pod.Name)
		}
	}
	if len(ready) != n || len(pods.Items) != n || len(accounts.Items) != n {
		return nil
	}
	return ready
}
