package incidents

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bullpen-ci/bullpen/api/v1alpha1"
	"github.com/bullpen-ci/bullpen/internal/dev/github/standin"
	"github.com/bullpen-ci/bullpen/internal/node/sandbox"
	"github.com/bullpen-ci/bullpen/internal/runnerpod"
	"github.com/bullpen-ci/bullpen/internal/runnerpod/podsigns"
	"github.com/bullpen-ci/bullpen/test/kit"
	"github.com/bullpen-ci/bullpen/test/kit/postgrestest"
	"github.com/bullpen-ci/bullpen/test/kit/rig"
)

// yard is a whole Bullpen: a real API server with the shipped roles and policies, server, controller, node agents, pollers and
// runners.
type yard struct {
	*rig.Fleet
	t        *testing.T
	database string
}

func newYard(t *testing.T, options rig.Options) *yard {
	t.Helper()
	options.Cluster, options.Database = kit.Cluster(t), postgrestest.NewDatabase(t, nil)
	options.Nodes, options.PodsEach = max(options.Nodes, 1), 50
	return &yard{rig.Start(t, options), t, options.Database}
}

func (y *yard) eventually(what string, check func() bool) {
	y.t.Helper()
	require.Eventually(y.t, check, 2*patience, 50*time.Millisecond, what)
}

// work is a run whose jobs run until they are released.
type work struct {
	y    *yard
	gate string
	run  int64
	jobs []int64
}

func (y *yard) work(label string, jobs int, faults ...standin.Fault) *work {
	y.t.Helper()
	numbers := make([]string, jobs)
	for i := range numbers {
		numbers[i] = fmt.Sprint(i)
	}
	gate := filepath.Join(y.t.TempDir(), "go")
	runs, err := y.GitHub.Admin.Submit(y.t.Context(), standin.Submission{
		FileName: "incident.yaml", Repo: "org-1/app", Content: fmt.Sprintf(workflow, label, strings.Join(numbers, ","), gate), Faults: faults,
	})
	require.NoError(y.t, err)
	return &work{y, gate, runs[0].ID, runs[0].Jobs}
}

func (w *work) all(is func(standin.JobView) bool) bool {
	w.y.t.Helper()
	for _, id := range w.jobs {
		view, err := w.y.GitHub.Admin.Job(w.y.t.Context(), id)
		require.NoError(w.y.t, err)
		if !is(view) {
			return false
		}
	}
	return true
}

func (w *work) running() *work {
	w.y.t.Helper()
	w.y.eventually("the jobs run", func() bool {
		return w.all(func(j standin.JobView) bool { return j.Status == "in_progress" })
	})
	return w
}

// succeed lets the jobs end, and waits until all have ended well, each on one runner.
func (w *work) succeed() {
	w.y.t.Helper()
	touch(w.y.t, w.gate)
	w.y.eventually("the jobs succeed", func() bool {
		return w.all(func(j standin.JobView) bool { return j.Conclusion == "success" })
	})
	require.True(w.y.t, w.all(func(j standin.JobView) bool { return j.Acquisitions == 1 }), "each ran once")
}

// podsOf lists a pool's pods that are there and not being deleted.
func (y *yard) podsOf(pool string) []corev1.Pod {
	y.t.Helper()
	var list corev1.PodList
	require.NoError(y.t, y.Admin.List(y.t.Context(), &list, client.InNamespace(y.Namespace), client.MatchingLabels{runnerpod.LabelPool: pool}))
	return slices.DeleteFunc(list.Items, func(p corev1.Pod) bool { return p.DeletionTimestamp != nil })
}

func (y *yard) get(pool string) (*v1alpha1.RunnerPool, bool) {
	y.t.Helper()
	found := &v1alpha1.RunnerPool{}
	err := y.Admin.Get(y.t.Context(), client.ObjectKey{Namespace: y.Namespace, Name: pool}, found)
	if !apierrors.IsNotFound(err) {
		require.NoError(y.t, err)
	}
	return found, err == nil
}

// ready is a pod that can take a job.
func ready(p corev1.Pod) bool {
	return podsigns.Jobless(&p, podsigns.Container(&p, runnerpod.ContainerRunner))
}

func count(pods []corev1.Pod, is func(corev1.Pod) bool) (n int) {
	for _, p := range pods {
		if is(p) {
			n++
		}
	}
	return n
}

// warm waits until that many of a pool's pods can take a job.
func (y *yard) warm(pool string, n int) {
	y.t.Helper()
	y.eventually("the pool is warm", func() bool { return count(y.podsOf(pool), ready) == n })
}

// The server is killed by a deploy when every pod of a warm pool has been claimed and no mint is answered.
func TestDeploy_CLAIM16_TheWholeFleetGoesOn(t *testing.T) {
	t.Parallel()
	const warm = 6
	var mu sync.Mutex
	deleted := map[string]bool{}
	y := newYard(t, rig.Options{Mortal: true, MintTimeout: time.Second, OnDelete: func(name string, _ *metav1.Preconditions) {
		mu.Lock()
		defer mu.Unlock()
		deleted[name] = true
	}})
	y.NewPool("linux-2cpu", warm)
	y.warm("linux-2cpu", warm)
	first := y.podsOf("linux-2cpu")
	_, err := y.GitHub.Admin.AddFault(t.Context(), standin.Fault{Kind: "rest-latency", Route: "generate-jitconfig", Delay: standin.Duration(time.Hour)})
	require.NoError(t, err)
	jobs := y.work("linux-2cpu", warm)
	y.eventually("every pod is claimed", func() bool {
		return count(first, func(p corev1.Pod) bool {
			claim, err := y.Store.Claim(t.Context(), string(p.UID))
			return err == nil && claim.State == "claimed"
		}) == warm
	})
	y.KillServer()
	require.NoError(t, y.GitHub.Admin.RemoveFault(t.Context(), 0))
	died := time.Now()
	y.StartServer()
	jobs.running()
	t.Logf("all %d jobs ran %s after the server had died; its leases took 2 s", warm, time.Since(died).Round(100*time.Millisecond))
	mu.Lock()
	require.Empty(t, deleted, "no pod was lost: the very pods that were claimed do the jobs")
	mu.Unlock()
	y.eventually("the pods say for whom they work", func() bool {
		return count(y.podsOf("linux-2cpu"), func(p corev1.Pod) bool { return kit.Owned(&p) }) == warm
	})
	jobs.succeed()
	y.eventually("every pod is replaced", func() bool {
		now := y.podsOf("linux-2cpu")
		return count(now, ready) == warm && len(now) == warm &&
			count(now, func(p corev1.Pod) bool {
				return slices.ContainsFunc(first, func(q corev1.Pod) bool { return q.UID == p.UID })
			}) == 0
	})
}

// A pool is renamed while its runners work, as a chart does it: a new one is made, the old one deleted, here in the
// foreground. The controller is replaced in the middle of the drain.
func TestPool_POOL2_RenamedWithBusyPodsAndAControllerThatRestarts(t *testing.T) {
	t.Parallel()
	y := newYard(t, rig.Options{})
	labelled := func(p *v1alpha1.RunnerPool) { p.Spec.Labels = []string{"linux-4cpu"} }
	old := y.NewPool("old", 4, labelled)
	y.warm("old", 4)
	before := y.work("linux-4cpu", 2).running()
	y.NewPool("new", 2, labelled)
	require.NoError(t, y.Admin.Delete(t.Context(), old, client.PropagationPolicy(metav1.DeletePropagationForeground)))
	y.StopController()
	y.StartController()
	y.eventually("idle runners of the old pool go", func() bool { return len(y.podsOf("old")) == 2 })
	after := y.work("linux-4cpu", 2).running() // the new pool serves the label
	y.StopController()
	after.succeed()
	_, there := y.get("old")
	require.True(t, there, "it waits for its jobs, with or without a controller")
	y.StartController()
	before.succeed()
	y.eventually("the old pool goes with its last job", func() bool { _, there := y.get("old"); return !there })
	y.warm("new", 2)
}

// A node is drained: cordoned, and every pod on it asked to leave.
func TestNode_POOL9_DrainedWithBusyPods(t *testing.T) {
	t.Parallel()
	y := newYard(t, rig.Options{Nodes: 2})
	y.NewPool("linux-2cpu", 4)
	y.warm("linux-2cpu", 4)
	jobs := y.work("linux-2cpu", 2).running()
	var drained string // where one of them works
	y.eventually("a pod shows that it works", func() bool {
		for _, p := range y.podsOf("linux-2cpu") {
			if kit.Owned(&p) && !ready(p) {
				drained = p.Spec.NodeName
			}
		}
		return drained != ""
	})
	node := &corev1.Node{}
	require.NoError(t, y.Admin.Get(t.Context(), client.ObjectKey{Name: drained}, node))
	cordoned := client.MergeFrom(node.DeepCopy())
	node.Spec.Unschedulable = true
	require.NoError(t, y.Admin.Patch(t.Context(), node, cordoned)) // although its agent has written its status in between
	on := func() []corev1.Pod {
		return slices.DeleteFunc(y.podsOf("linux-2cpu"), func(p corev1.Pod) bool { return p.Spec.NodeName != drained })
	}
	evict := func() {
		for _, p := range on() {
			err := y.Admin.SubResource("eviction").Create(t.Context(), &p, &policyv1.Eviction{})
			if kit.Owned(&p) { // by the disruption budget, or, without a label, by the admission policy; an idle one may be going already
				require.True(t, apierrors.IsTooManyRequests(err) || apierrors.IsForbidden(err), "%s works, and may not be evicted: %v", p.Name, err)
			}
		}
	}
	evict()
	y.eventually("idle runners leave the node, and busy ones stay", func() bool {
		left := on()
		evict()
		return len(left) > 0 && count(left, ready) == 0
	})
	jobs.succeed()
	y.eventually("the node is empty when its jobs are done", func() bool { return len(on()) == 0 })
	y.warm("linux-2cpu", 4)
}

// hanging is a sandbox in which nothing ever starts.
type hanging struct{ sandbox.Sandbox }

func (hanging) Prepare(ctx context.Context, _ *corev1.Pod) error {
	<-ctx.Done()
	return context.Cause(ctx)
}

// Of two nodes one is Ready and fails every sandbox. It is the emptier of the two, so that replacements are sent to it.
func TestNode_POOL6_OneThatFailsEverySandbox(t *testing.T) {
	t.Parallel()
	const replicas, each = 8, 2
	// Nodes are small, so that the scheduler sees which one is emptier.
	y := newYard(t, rig.Options{Nodes: 2, CPUs: "5", Sandbox: func(node int, made sandbox.Sandbox) sandbox.Sandbox {
		if node == 0 {
			return hanging{made}
		}
		return made
	}})
	pool := y.NewPool("kata", replicas, func(p *v1alpha1.RunnerPool) {
		p.Spec.Provisioning.MaxConcurrentStarts = ptr.To[int32](each)
		p.Spec.Provisioning.StartTimeout = &metav1.Duration{} // none
	})
	stuck := func() (uids []string) {
		for _, p := range y.podsOf("kata") {
			if p.Spec.NodeName == y.NodeName(0) {
				uids = append(uids, string(p.UID))
			}
		}
		return uids
	}
	y.eventually("the pool is as full as it gets", func() bool {
		pods := y.podsOf("kata")
		return len(pods) == replicas && count(pods, ready)+len(stuck()) == replicas
	})
	y.work("kata", 2*replicas).succeed()
	hung := stuck()
	// Control: what hangs is as much as a ceiling for the whole fleet, two nodes with two starts each, allows. Nothing could
	// have been started beside it.
	require.GreaterOrEqual(t, len(hung), 2*each)

	// With a limit to how long a start may take they are retired, and their replacements are retired again, a few at a
	// time; jobs run all the while.
	limited := client.MergeFrom(pool.DeepCopy())
	pool.Spec.Provisioning.StartTimeout = &metav1.Duration{Duration: 10 * time.Second} // longer than one takes that does not hang, on a slow machine too
	require.NoError(t, y.Admin.Patch(t.Context(), pool, limited))                      // although the controller has written its status in between
	y.eventually("those that hung are gone", func() bool {
		return !slices.ContainsFunc(stuck(), func(uid string) bool { return slices.Contains(hung, uid) })
	})
	y.work("kata", replicas).succeed()
	var events corev1.EventList
	y.eventually("and the pool says why", func() bool {
		require.NoError(t, y.Admin.List(t.Context(), &events, client.InNamespace(y.Namespace)))
		return slices.ContainsFunc(events.Items, func(e corev1.Event) bool {
			return e.InvolvedObject.Name == "kata" && strings.Contains(e.Reason, "StartTimeout")
		})
	})
}
