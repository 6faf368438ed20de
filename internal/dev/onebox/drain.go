package onebox

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bullpen-ci/bullpen/api/v1alpha1"
	"github.com/bullpen-ci/bullpen/internal/runnerpod"
)

const (
	// drainPatience bounds the wait for running jobs: GitHub's limit for a job, and some minutes.
	drainPatience = 6*time.Hour + 10*time.Minute
	// drainInterval is how often runners are counted, and drainNews how often the wait is reported.
	drainInterval = 500 * time.Millisecond
	drainNews     = time.Minute
	// drainManager owns the field that drains a pool, so that the next start finds which pools were open.
	drainManager = "bullpen-up-drain"
)

// drain has no pool take jobs, and returns when no runner is left, at the latest when atOnce is closed. Then the stop goes on, whatever still runs.
func (b *Box) drain(ctx context.Context, atOnce <-chan struct{}) {
	ctx, cancel := context.WithTimeout(ctx, drainPatience)
	defer cancel()
	if err := b.drainPools(ctx); err != nil {
		b.report(Event{Kind: EventProblem, Message: fmt.Sprintf("%v; running jobs are not waited for", err)})
		return
	}
	tick := time.NewTicker(drainInterval)
	defer tick.Stop()
	var told time.Time
	for {
		pods, err := listRunnerPods(ctx, b.kube)
		left, busy := countLeft(pods)
		switch {
		case err != nil: // the API server is restarted, if it died
		case left == 0:
			return
		case busy > 0 && b.opts.Now().Sub(told) >= drainNews:
			told = b.opts.Now()
			b.report(Event{Kind: EventStopping, Message: fmt.Sprintf("Waiting for %s to finish. Ctrl-C again, or `bullpen down --now`, stops at once.", runningJobs(busy))})
		}
		select {
		case <-ctx.Done():
			b.report(Event{Kind: EventNote, Message: fmt.Sprintf("jobs still run after %s", drainPatience)})
			return
		case <-atOnce:
			return
		case <-tick.C:
		}
	}
}

func runningJobs(n int) string {
	if n == 1 {
		return "1 running job"
	}
	return fmt.Sprintf("%d running jobs", n)
}

// countLeft counts the runners of pools that have not exited, and those of them that have a job. Self-registering runners belong to no pool, and
// nothing drains them.
func countLeft(pods []corev1.Pod) (left, busy int) {
	for i := range pods {
		if pods[i].Labels[runnerpod.LabelPool] == "" {
			continue
		}
		switch stageOf(&pods[i]) {
		case stageFinished:
		case stageBusy:
			left++
			busy++
		default:
			left++
		}
	}
	return left, busy
}

// drainPools sets intake Drained for each pool that takes jobs: its idle runners are removed, by the fence, and busy ones finish.
func (b *Box) drainPools(ctx context.Context) error {
	apply, err := newApplier(b.plane.AdminConfig())
	if err != nil {
		return err
	}
	pools, err := apply.pools(ctx)
	if err != nil {
		return err
	}
	for i := range pools {
		intake, _, _ := unstructured.NestedString(pools[i].Object, "spec", "intake")
		if intake != "" && v1alpha1.Intake(intake) != v1alpha1.IntakeOpen {
			continue // by an administrator, and it stays
		}
		if err := apply.intake(ctx, pools[i].GetName(), v1alpha1.IntakeDrained); err != nil {
			return err
		}
	}
	return nil
}

// endDrain opens the pools that an earlier run has drained before it stopped.
func (a *applier) endDrain(ctx context.Context) error {
	pools, err := a.pools(ctx)
	if err != nil {
		return err
	}
	for i := range pools {
		for _, entry := range pools[i].GetManagedFields() {
			if entry.Manager == drainManager {
				if err := a.intake(ctx, pools[i].GetName(), v1alpha1.IntakeOpen); err != nil {
					return err
				}
				break
			}
		}
	}
	return nil
}

func (a *applier) pools(ctx context.Context) ([]unstructured.Unstructured, error) {
	list := poolList()
	if err := a.client.List(ctx, list, client.InNamespace(RunnerNamespace)); err != nil {
		return nil, fmt.Errorf("listing the pools: %w", err)
	}
	return list.Items, nil
}

// intake sets whether a pool takes jobs. Open gives the field up.
func (a *applier) intake(ctx context.Context, pool string, value v1alpha1.Intake) error {
	change := &unstructured.Unstructured{}
	change.SetGroupVersionKind(poolKind)
	change.SetNamespace(RunnerNamespace)
	change.SetName(pool)
	if value != v1alpha1.IntakeOpen {
		if err := unstructured.SetNestedField(change.Object, string(value), "spec", "intake"); err != nil {
			return fmt.Errorf("draining pool %s: %w", pool, err)
		}
	}
	err := a.client.Apply(ctx, client.ApplyConfigurationFromUnstructured(change), client.FieldOwner(drainManager), client.ForceOwnership)
	if err != nil {
		return fmt.Errorf("changing the intake of pool %s: %w", pool, err)
	}
	return nil
}
