package onebox

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Changes that administrators make to a fleet; the demonstration makes each of them while jobs run.
const (
	changeRoll   = "roll"
	changeScale  = "scale"
	changeCordon = "cordon"
	changeRename = "rename"
)

// changeName is a change that was made, changeVerb one in progress.
func changeName(kind string) string {
	return map[string]string{
		changeRoll: "changed the pool's template", changeScale: "scaled the pool to zero and back",
		changeCordon: "cordoned the node and uncordoned it", changeRename: "renamed the pool",
	}[kind]
}

// changeDone introduces how long a change took to take effect.
func changeDone(kind string) string {
	if kind == changeRoll {
		return "rolled out in"
	}
	return "done in"
}

func changeVerb(kind string) string {
	return map[string]string{
		changeRoll: "changing the pool's template", changeScale: "scaling the pool to zero and back",
		changeCordon: "cordoning the node", changeRename: "renaming the pool",
	}[kind]
}

// Change is one change that took effect while jobs ran.
type Change struct {
	Kind string        `json:"kind"`
	Took time.Duration `json:"took"`
	// Running is how many jobs ran when it was made.
	Running int `json:"running"`
}

// changeStep is due once that many jobs are done and at least one runs.
type changeStep struct {
	kind string
	done int
}

// changePlan is the order in which a demonstration changes the fleet. It goes on beside the restarts: an administrator does
// not wait for a deploy either.
type changePlan []changeStep

// planChanges spreads the changes over the first half of the run, because jobs wait while the pool is at zero. The new
// name comes last: the pool of the old one is gone then.
func planChanges(jobs int) changePlan {
	kinds := []string{changeRoll, changeScale, changeCordon, changeRename}
	var plan changePlan
	for i, kind := range kinds {
		plan = append(plan, changeStep{kind: kind, done: jobs/12 + i*jobs/2/len(kinds)})
	}
	return plan
}

func (p changePlan) kinds() []string {
	kinds := make([]string, len(p))
	for i, step := range p {
		kinds[i] = step.kind
	}
	return kinds
}

// due is the next step, given how many were taken, and how many jobs are done and running.
func (p changePlan) due(taken, done, running int) (string, bool) {
	if taken >= len(p) || running == 0 || done < p[taken].done {
		return "", false
	}
	return p[taken].kind, true
}

// fleetChanges changes the fleet like an administrator with kubectl, and waits until a change has taken effect.
type fleetChanges struct {
	box   *Box
	apply *applier
	pods  *podWatch
	pool  *unstructured.Unstructured // as it is wanted now
	// former is the name that the pool had before it was renamed; empty until then.
	former string
}

func newFleetChanges(box *Box, pods *podWatch) (*fleetChanges, error) {
	apply, err := newApplier(box.AdminConfig())
	if err != nil {
		return nil, err
	}
	return &fleetChanges{box: box, apply: apply, pods: pods, pool: box.opts.Pools[0].DeepCopy()}, nil
}

// make makes one change and returns when it has taken effect.
func (c *fleetChanges) make(ctx context.Context, kind string) error {
	switch kind {
	case changeRoll:
		return c.roll(ctx)
	case changeScale:
		return c.scale(ctx)
	case changeCordon:
		return c.cordon(ctx)
	case changeRename:
		return c.rename(ctx)
	default:
		return fmt.Errorf("unknown change %q", kind)
	}
}

// unworked are runners of the pool that are not busy.
func (c *fleetChanges) unworked(row podRow) bool {
	return row.Pool == c.pool.GetName() && (row.Stage == stageIdle || row.Stage == stageStarting)
}

// roll changes the template: every runner that is not busy is replaced.
func (c *fleetChanges) roll(ctx context.Context) error {
	before := map[string]bool{}
	for _, row := range c.pods.rows() {
		before[row.Hash] = true
	}
	env := []any{map[string]any{"name": "DEMO_EDITION", "value": "2"}}
	if err := unstructured.SetNestedSlice(c.pool.Object, env, "spec", "template", "env"); err != nil {
		return fmt.Errorf("changing the template: %w", err)
	}
	if err := c.apply.apply(ctx, c.pool); err != nil {
		return err
	}
	return c.pods.await(ctx, "idle runners of the new template", func(rows []podRow) bool {
		replaced := false
		for _, row := range rows {
			if c.unworked(row) && before[row.Hash] {
				return false
			}
			replaced = replaced || !before[row.Hash]
		}
		return replaced
	})
}

// scale removes every runner that is not busy, and adds them again.
func (c *fleetChanges) scale(ctx context.Context) error {
	replicas, _, err := unstructured.NestedInt64(c.pool.Object, "spec", "replicas")
	if err != nil {
		return fmt.Errorf("reading the pool's replicas: %w", err)
	}
	if err := c.replicas(ctx, 0); err != nil {
		return err
	}
	err = c.pods.await(ctx, "the pool to have no idle runner", func(rows []podRow) bool { return !anyRow(rows, c.unworked) })
	if err != nil {
		return err
	}
	if err := c.replicas(ctx, replicas); err != nil {
		return err
	}
	return c.pods.await(ctx, "the pool to have runners again", func(rows []podRow) bool { return anyRow(rows, c.unworked) })
}

func (c *fleetChanges) replicas(ctx context.Context, n int64) error {
	if err := unstructured.SetNestedField(c.pool.Object, n, "spec", "replicas"); err != nil {
		return fmt.Errorf("changing the pool's replicas: %w", err)
	}
	return c.apply.apply(ctx, c.pool)
}

// cordon takes the one node there is out of scheduling, until no idle runner is left on it.
func (c *fleetChanges) cordon(ctx context.Context) error {
	onNode := func(row podRow) bool { return c.unworked(row) && row.Placed }
	if err := c.setUnschedulable(ctx, true); err != nil {
		return err
	}
	err := c.pods.await(ctx, "the cordoned node to have no idle runner", func(rows []podRow) bool { return !anyRow(rows, onNode) })
	// The node is uncordoned in any case.
	if err := errors.Join(err, c.setUnschedulable(context.WithoutCancel(ctx), false)); err != nil {
		return err
	}
	return c.pods.await(ctx, "the node to have runners again", func(rows []podRow) bool { return anyRow(rows, onNode) })
}

func (c *fleetChanges) setUnschedulable(ctx context.Context, on bool) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: NodeName}}
	patch := client.RawPatch("application/merge-patch+json", fmt.Appendf(nil, `{"spec":{"unschedulable":%t}}`, on))
	if err := c.apply.client.Patch(ctx, node, patch); err != nil {
		return fmt.Errorf("cordoning the node: %w", err)
	}
	return nil
}

// rename makes a pool of another name that serves the same label, and deletes the old one, as a Helm upgrade does.
func (c *fleetChanges) rename(ctx context.Context) error {
	old := c.pool
	c.pool, c.former = old.DeepCopy(), old.GetName()
	c.pool.SetName(c.former + "-renamed")
	if err := c.apply.apply(ctx, c.pool); err != nil {
		return err
	}
	if err := client.IgnoreNotFound(c.apply.client.Delete(ctx, old)); err != nil {
		return fmt.Errorf("deleting pool %s: %w", c.former, err)
	}
	return c.pods.await(ctx, "the renamed pool to have a runner", func(rows []podRow) bool {
		return anyRow(rows, func(row podRow) bool { return row.Pool == c.pool.GetName() && row.Stage != stageStarting })
	})
}

// awaitFormer waits until the pool of the former name is gone: its last runner has ended then.
func (c *fleetChanges) awaitFormer(ctx context.Context) error {
	if c.former == "" {
		return nil
	}
	tick := time.NewTicker(followInterval)
	defer tick.Stop()
	for {
		pool := &unstructured.Unstructured{}
		pool.SetGroupVersionKind(poolKind)
		err := c.apply.client.Get(ctx, client.ObjectKey{Namespace: RunnerNamespace, Name: c.former}, pool)
		if apierrors.IsNotFound(err) {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waiting for the deletion of pool %s: %w", c.former, errors.Join(ctx.Err(), err))
		case <-tick.C:
		}
	}
}

func anyRow(rows []podRow, is func(podRow) bool) bool {
	for _, row := range rows {
		if is(row) {
			return true
		}
	}
	return false
}
