package soak

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bullpen-ci/bullpen/api/v1alpha1"
	"github.com/bullpen-ci/bullpen/internal/runnerpod"
	"github.com/bullpen-ci/bullpen/test/soak/schedule"
)

var scheme = runtime.NewScheme()

// fleetChanges changes pools and nodes, as an administrator with kubectl would. It remembers the present name of the large pool.
type fleetChanges struct {
	mu     sync.Mutex
	names  map[string]string // pool of the schedule → its name now
	images map[string]int    // edition of its template
	moved  int
}

func newFleetChanges() *fleetChanges {
	return &fleetChanges{names: map[string]string{}, images: map[string]int{}}
}

func (c *fleetChanges) name(pool string) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if name := c.names[pool]; name != "" {
		return name
	}
	return pool
}

// label is what a pool's jobs ask for.
func label(pool string) string { return "soak-" + pool }

func (s *System) pool(kind, name string) *v1alpha1.RunnerPool {
	pool := &v1alpha1.RunnerPool{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: v1alpha1.KindRunnerPool},
		ObjectMeta: metav1.ObjectMeta{Namespace: runnerNamespace, Name: name, Finalizers: []string{"bullpen.dev/runner-pool-drain"}},
		Spec: v1alpha1.RunnerPoolSpec{
			Platform: v1alpha1.PlatformLinux, Labels: []string{label(kind)}, Replicas: ptr.To(int32(s.opts.Runners)), //nolint:gosec // a small number
			Resources: v1alpha1.RunnerResources{CPU: resource.MustParse("500m"), Memory: resource.MustParse("256Mi")},
			Template: v1alpha1.RunnerTemplate{
				Image: "runner", NodeSelector: map[string]string{"soak": "synthetic"},
				TerminationGracePeriodSeconds: ptr.To[int64](600),
			},
		},
	}
	switch kind {
	case schedule.PoolAuto:
		pool.Spec.Replicas = nil
		pool.Spec.Autoscaling = &v1alpha1.Autoscaling{
			Enabled: true, MinIdle: ptr.To[int32](1), MaxReplicas: ptr.To(int32(max(2, s.opts.Runners/2))), //nolint:gosec // a small number
			ScaleDownCooldown: &metav1.Duration{Duration: 5 * time.Second}, Stabilization: &metav1.Duration{Duration: 10 * time.Second},
		}
	case schedule.PoolReal:
		pool.Spec.Replicas = ptr.To(int32(s.opts.RealRunners)) //nolint:gosec // a small number
		pool.Spec.Template.NodeSelector = map[string]string{"soak": "real"}
		pool.Spec.Template.Command = []string{s.opts.Binary, "dev", "runner", "--work", "/bullpen/work", "--worker-after", workerAfter.String()}
	}
	return pool
}

// applyPools makes the pools, once those that an interrupted round has left are gone: two of one label would leave its jobs
// waiting.
func (s *System) applyPools(ctx context.Context) error {
	if err := s.deletePools(ctx); err != nil {
		return err
	}
	gone := func(ctx context.Context) error {
		left, err := s.listPools(ctx)
		if err == nil && len(left) > 0 {
			err = fmt.Errorf("pool %s is still there", left[0].Name)
		}
		return err
	}
	if err := s.await(ctx, "pools of an earlier round to go", gone); err != nil {
		return err
	}
	kinds := []string{schedule.PoolBulk, schedule.PoolAuto}
	if s.opts.RealRunners > 0 {
		kinds = append(kinds, schedule.PoolReal)
	}
	for _, kind := range kinds {
		if err := s.client.Create(ctx, s.pool(kind, kind)); err != nil && !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("making the pool %s: %w", kind, err)
		}
	}
	return nil
}

func (s *System) listPools(ctx context.Context) ([]v1alpha1.RunnerPool, error) {
	var pools v1alpha1.RunnerPoolList
	if err := s.insist(ctx, func(ctx context.Context) error {
		return s.client.List(ctx, &pools, client.InNamespace(runnerNamespace))
	}); err != nil {
		return nil, fmt.Errorf("listing the pools: %w", err)
	}
	return pools.Items, nil
}

func (s *System) deletePools(ctx context.Context) error {
	pools, err := s.listPools(ctx)
	for _, pool := range pools {
		err = errors.Join(err, s.deletePool(ctx, pool.Name))
	}
	return err
}

// editPool patches a pool's spec; the API server may be unavailable for a while.
func (s *System) editPool(ctx context.Context, name string, spec map[string]any) error {
	patch, err := json.Marshal(map[string]any{"spec": spec})
	if err != nil {
		return fmt.Errorf("encoding a change of pool %s: %w", name, err)
	}
	pool := &v1alpha1.RunnerPool{ObjectMeta: metav1.ObjectMeta{Namespace: runnerNamespace, Name: name}}
	return s.insist(ctx, func(ctx context.Context) error {
		return s.client.Patch(ctx, pool, client.RawPatch(types.MergePatchType, patch))
	})
}

// insist tries until it succeeds, for half a minute: what an administrator does while the API server restarts.
func (s *System) insist(ctx context.Context, do func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	for {
		once, stop := context.WithTimeout(ctx, 5*time.Second)
		err := do(once)
		stop()
		if err == nil || apierrors.IsNotFound(err) || apierrors.IsInvalid(err) || apierrors.IsForbidden(err) {
			return err
		}
		if !pause(ctx, 300*time.Millisecond) {
			return err
		}
	}
}

func (s *System) rollPool(ctx context.Context, kind string) error {
	s.changes.mu.Lock()
	s.changes.images[kind]++
	edition := s.changes.images[kind]
	s.changes.mu.Unlock()
	env := []any{map[string]any{"name": "SOAK_EDITION", "value": fmt.Sprint(edition)}}
	return s.editPool(ctx, s.changes.name(kind), map[string]any{"template": map[string]any{"env": env}})
}

func (s *System) zeroPool(ctx context.Context, kind string, length time.Duration) error {
	name := s.changes.name(kind)
	if err := s.editPool(ctx, name, map[string]any{"replicas": 0}); err != nil {
		return err
	}
	pause(ctx, length)
	return s.editPool(context.WithoutCancel(ctx), name, map[string]any{"replicas": s.opts.Runners})
}

// renamePool makes a pool of another name that serves the same label, and deletes the old one, as a Helm upgrade does.
func (s *System) renamePool(ctx context.Context, kind string) error {
	old := s.changes.name(kind)
	s.changes.mu.Lock()
	s.changes.moved++
	fresh := fmt.Sprintf("%s-%d", kind, s.changes.moved)
	s.changes.mu.Unlock()
	if err := s.insist(ctx, func(ctx context.Context) error {
		err := s.client.Create(ctx, s.pool(kind, fresh))
		if apierrors.IsAlreadyExists(err) {
			return nil
		}
		return err
	}); err != nil {
		return err
	}
	s.changes.mu.Lock()
	s.changes.names[kind] = fresh
	s.changes.mu.Unlock()
	return s.deletePool(ctx, old)
}

func (s *System) deletePool(ctx context.Context, name string) error {
	return s.insist(ctx, func(ctx context.Context) error {
		return client.IgnoreNotFound(s.client.Delete(ctx, &v1alpha1.RunnerPool{ObjectMeta: metav1.ObjectMeta{Namespace: runnerNamespace, Name: name}}))
	})
}

func (s *System) cordon(ctx context.Context, node string, length time.Duration) error {
	err := s.setUnschedulable(ctx, node, true)
	pause(ctx, length)
	return errors.Join(err, s.setUnschedulable(context.WithoutCancel(ctx), node, false))
}

func (s *System) setUnschedulable(ctx context.Context, node string, on bool) error {
	return s.insist(ctx, func(ctx context.Context) error {
		patch := fmt.Appendf(nil, `{"spec":{"unschedulable":%t}}`, on)
		_, err := s.kube.CoreV1().Nodes().Patch(ctx, node, types.MergePatchType, patch, metav1.PatchOptions{})
		return err
	})
}

func (s *System) deleteNode(ctx context.Context, node string) error {
	return s.insist(ctx, func(ctx context.Context) error {
		return client.IgnoreNotFound(s.kube.CoreV1().Nodes().Delete(ctx, node, metav1.DeleteOptions{}))
	})
}

// drainNode is kubectl drain: no new pods, and repeated evictions of busy runners until the time is up. Every one must be refused (EXCL-7):
// a busy runner is removed when it has ended, and one that has ended in between has changed since it was observed. Idle runners leave
// through the fence, because the node is cordoned. The time counts from then on: an API server that answers late delays a drain.
func (s *System) drainNode(ctx context.Context, node string, length time.Duration) error {
	err := s.setUnschedulable(ctx, node, true)
	evicting, cancel := context.WithTimeout(ctx, length)
	defer cancel()
	for evicting.Err() == nil {
		s.evictBusyPods(evicting, node)
		pause(evicting, 500*time.Millisecond)
	}
	return errors.Join(err, s.setUnschedulable(context.WithoutCancel(ctx), node, false))
}

func (s *System) evictBusyPods(ctx context.Context, node string) {
	pods, err := s.kube.CoreV1().Pods(runnerNamespace).List(ctx, metav1.ListOptions{FieldSelector: "spec.nodeName=" + node, LabelSelector: runnerpod.LabelOwner})
	if err != nil {
		return // the next turn lists them again
	}
	for i := range pods.Items {
		if asSeen, runs := asItRuns(&pods.Items[i]); runs {
			_ = s.kube.CoreV1().Pods(runnerNamespace).EvictV1(ctx, &policyv1.Eviction{
				ObjectMeta: metav1.ObjectMeta{Name: pods.Items[i].Name}, DeleteOptions: &metav1.DeleteOptions{Preconditions: asSeen},
			}) // refused; if not, the audit log tells
		}
	}
}

// listPods lists runner pods; the API server may be unavailable for a while.
func (s *System) listPods(ctx context.Context, which metav1.ListOptions) (pods *corev1.PodList, err error) {
	err = s.insist(ctx, func(ctx context.Context) error {
		pods, err = s.kube.CoreV1().Pods(runnerNamespace).List(ctx, which)
		return err
	})
	return pods, err
}

// deleteBusyPods deletes every pod that shows its account, as an administrator does who cleans up by hand. Every one must
// be refused (EXCL-7).
func (s *System) deleteBusyPods(ctx context.Context, atOnce bool) error {
	pods, err := s.listPods(ctx, metav1.ListOptions{LabelSelector: runnerpod.LabelOwner})
	if err != nil {
		return fmt.Errorf("listing the pods that work: %w", err)
	}
	for i := range pods.Items {
		asSeen, runs := asItRuns(&pods.Items[i])
		if !runs {
			continue
		}
		options := metav1.DeleteOptions{Preconditions: asSeen}
		if atOnce {
			options.GracePeriodSeconds = ptr.To[int64](0)
		}
		_ = s.kube.CoreV1().Pods(runnerNamespace).Delete(ctx, pods.Items[i].Name, options) // refused; if not, the audit log tells
	}
	return nil
}

// asItRuns is the condition that a pod is still as it was seen, and whether it was seen to run.
func asItRuns(pod *corev1.Pod) (*metav1.Preconditions, bool) {
	return &metav1.Preconditions{UID: &pod.UID, ResourceVersion: &pod.ResourceVersion},
		pod.Status.Phase == corev1.PodRunning && pod.DeletionTimestamp == nil
}

// nodesReady says which node is not there yet.
func (s *System) nodesReady(ctx context.Context) error {
	wanted := []string{schedule.Node1, schedule.Node2}
	if s.opts.RealRunners > 0 {
		wanted = append(wanted, schedule.NodeReal)
	}
	for _, name := range wanted {
		node, err := s.kube.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if len(node.Spec.Taints) > 0 {
			return fmt.Errorf("node %s has the taint %s", name, node.Spec.Taints[0].Key)
		}
	}
	return nil
}

// conflict changes every pod of a pool again and again, so that writes by a resource version fail.
func (s *System) conflict(ctx context.Context, kind string, length time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, length)
	defer cancel()
	for n := 0; ctx.Err() == nil; n++ {
		pods, err := s.kube.CoreV1().Pods(runnerNamespace).List(ctx, metav1.ListOptions{LabelSelector: "bullpen.dev/runner-pool=" + s.changes.name(kind)})
		if err != nil {
			pause(ctx, 100*time.Millisecond)
			continue
		}
		for i := range pods.Items {
			patch := fmt.Appendf(nil, `{"metadata":{"annotations":{"soak/conflict":"%d"}}}`, n)
			// It may be gone, and the API server unavailable: neither matters.
			_, _ = s.kube.CoreV1().Pods(runnerNamespace).Patch(ctx, pods.Items[i].Name, types.MergePatchType, patch, metav1.PatchOptions{})
		}
		pause(ctx, 50*time.Millisecond)
	}
	return nil
}

func writeJSON(path string, value any) error {
	data, err := json.MarshalIndent(value, "", " ")
	if err != nil {
		return fmt.Errorf("encoding %s: %w", path, err)
	}
	temporary := path + ".new"
	if err := os.WriteFile(temporary, append(data, '\n'), 0o600); err != nil {
		return fmt.Errorf("writing %s: %w", path, err)
	}
	return os.Rename(temporary, path)
}

// accountID is GitHub's number of an account, by the ledger.
func (s *System) setLimit(ctx context.Context, account string, jobs int) error {
	login := "org-" + strings.TrimPrefix(account, "org-")
	return s.database.exec(ctx, `UPDATE account_limits SET jobs = $2 WHERE account_id = (SELECT id FROM accounts WHERE login = $1)`, login, jobs)
}
