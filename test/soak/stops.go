package soak

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/bullpen-ci/bullpen/internal/node/sandbox"
	"github.com/bullpen-ci/bullpen/internal/runnerpod"
	"github.com/bullpen-ci/bullpen/test/soak/check"
	"github.com/bullpen-ci/bullpen/test/soak/machine"
	"github.com/bullpen-ci/bullpen/test/soak/schedule"
)

// SIGTERM to runner pods, which costs no job (EXCL-8). A pod is deleted with a reason and with its whole grace period, as an administrator
// may; an eviction of an idle runner does the same. Evictions of busy ones are refused, and drainNode has them refused.

// workerAfter is how long a runner takes to start the worker of a job that it has acquired. With GitHub's runner it is up to a second.
const workerAfter = 500 * time.Millisecond

// stopPod deletes a pod of a pool, at a moment after its next claim, or after its runner has acquired a job. Where GitHub removes runners
// that have a job, nothing is done: that a claim outlives such a job's first second takes a patience of minutes.
func (s *System) stopPod(ctx context.Context, step schedule.Step, deed *check.Deed) error {
	within, cancel := context.WithTimeout(ctx, time.Duration(step.For))
	defer cancel()
	after, began := time.Duration(step.Value)*time.Millisecond, time.Now()
	find := s.claimed
	if step.Fault == schedule.AfterStart {
		find = s.acquired
	}
	deed.Detail = "no job was " + step.Fault
	for {
		if pod := find(within, s.changes.name(step.Target), began); pod != "" {
			deed.Detail = fmt.Sprintf("%s after %s", after, step.Fault)
			pause(ctx, after)
			return s.deletePod(ctx, pod, deed)
		}
		if !pause(within, 20*time.Millisecond) {
			return ctx.Err()
		}
	}
}

// claimed is a pod of the pool that a job was claimed for since then; empty for none.
func (s *System) claimed(ctx context.Context, pool string, since time.Time) (pod string) {
	_ = s.database.text(ctx, &pod, `SELECT pod_name FROM runner_claims
		WHERE pool = $1 AND state IN ('claimed', 'minted') AND claimed_at > $2 ORDER BY claimed_at LIMIT 1`, pool, since) // there is none, or Postgres is unavailable
	return pod
}

// acquired is a pod of the pool whose runner has acquired a job since then; empty for none.
func (s *System) acquired(ctx context.Context, pool string, since time.Time) (pod string) {
	for _, job := range s.github.server.Jobs() {
		if job.Status != "in_progress" || job.StartedAt == nil || job.StartedAt.Before(since) {
			continue
		}
		if s.database.text(ctx, &pod, "SELECT pod_name FROM runner_claims WHERE pool = $1 AND runner_name = $2", pool, job.RunnerName) == nil {
			return pod
		}
	}
	return ""
}

// deletePod allows the deletion, and deletes the pod. A request without a response may have taken effect.
func (s *System) deletePod(ctx context.Context, name string, deed *check.Deed) error {
	if s.github.removesBusy.Load() > 0 {
		deed.Detail += "; left alone, for GitHub removes runners that have a job"
		return nil
	}
	pods := s.kube.CoreV1().Pods(runnerNamespace)
	allow := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:"the soak stops it"}}}`, runnerpod.AnnotationAllowDeletion)
	deed.Pods = append(deed.Pods, name)
	err := s.insist(ctx, func(ctx context.Context) error {
		if _, err := pods.Patch(ctx, name, types.MergePatchType, allow, metav1.PatchOptions{}); err != nil {
			return err
		}
		return pods.Delete(ctx, name, metav1.DeleteOptions{})
	})
	if apierrors.IsNotFound(err) { // it has done its job by now
		return nil
	}
	return err
}

// emptyNode is kubectl drain --disable-eviction, by an administrator who has allowed it: every runner of the node is deleted.
func (s *System) emptyNode(ctx context.Context, node string, length time.Duration, deed *check.Deed) error {
	if s.parts[node] == nil {
		return nil // this soak has no such part
	}
	var cordoned sync.WaitGroup
	var failed error
	cordoned.Go(func() { failed = s.cordon(ctx, node, length) })
	pods, err := s.listPods(ctx, metav1.ListOptions{FieldSelector: "spec.nodeName=" + node})
	if err == nil {
		for i := range pods.Items {
			if _, runs := asItRuns(&pods.Items[i]); runs {
				err = errors.Join(err, s.deletePod(ctx, pods.Items[i].Name, deed))
			}
		}
	}
	cordoned.Wait()
	return errors.Join(err, failed)
}

// terminateNode is the beginning of a node's graceful shutdown: every container gets SIGTERM, of which nothing shows in the API.
func (s *System) terminateNode(ctx context.Context, node string) error {
	box := machine.Dial(s.socket(node))
	pods, err := box.List(ctx)
	if err != nil {
		return fmt.Errorf("listing what is on %s: %w", node, err)
	}
	for _, pod := range pods {
		for _, container := range []string{runnerpod.ContainerPoller, runnerpod.ContainerRunner, runnerpod.ContainerIdle} {
			if err := box.Signal(ctx, pod.UID, container, sandbox.Terminate); err != nil && !errors.Is(err, sandbox.ErrNotFound) {
				return fmt.Errorf("sending SIGTERM to %s: %w", pod.Name, err)
			}
		}
	}
	return nil
}
