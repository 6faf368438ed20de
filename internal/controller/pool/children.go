package pool

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bullpen-ci/bullpen/api/v1alpha1"
	"github.com/bullpen-ci/bullpen/internal/lib/faultpoint"
	"github.com/bullpen-ci/bullpen/internal/plan/lifecycle"
	"github.com/bullpen-ci/bullpen/internal/runnerpod"
)

// outcome of creating one runner.
type outcome int

const (
	created   outcome = iota
	refused           // definitely not created
	uncertain         // may or may not exist: the same name is tried again, so that nothing is created twice
)

// createRunner makes the ServiceAccount and then the pod, both of one name (POOL-1): a pod whose ServiceAccount does
// not exist is refused by the API server. That either exists already is success: an earlier try got that far.
func createRunner(ctx context.Context, c client.Client, pool *v1alpha1.RunnerPool, options runnerpod.Options, name string) (types.UID, outcome, error) {
	pod, account, err := runnerpod.Build(pool, options, name[len(pool.Name)+1:])
	if err != nil {
		return "", refused, err
	}
	if err := c.Create(ctx, account); err != nil && !apierrors.IsAlreadyExists(err) {
		return "", outcomeOf(err), fmt.Errorf("creating ServiceAccount %s: %w", name, err)
	}
	faultpoint.Reached(faultpoint.AccountCreated)
	if err := c.Create(ctx, pod); err != nil && !apierrors.IsAlreadyExists(err) {
		return "", outcomeOf(err), fmt.Errorf("creating pod %s: %w", name, err)
	}
	return pod.UID, created, nil
}

// outcomeOf tells a clear no of the API server from everything that leaves the outcome open.
func outcomeOf(err error) outcome {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return uncertain
	}
	if code := status.Status().Code; code >= 400 && code < 500 && code != 408 {
		return refused
	}
	return uncertain
}

// createAll creates runners of these names, a bounded number at a time, and records each outcome. After a clear refusal
// the rest is not tried: it would be refused too.
func (r *Reconciler) createAll(ctx context.Context, pool *v1alpha1.RunnerPool, state *poolState, names []string) error {
	var (
		wait    sync.WaitGroup
		mu      sync.Mutex
		failure error
		queue   = make(chan string)
	)
	options := r.podOptions(ctx, state.key)
	stopped := func() bool {
		mu.Lock()
		defer mu.Unlock()
		return failure != nil
	}
	for range min(r.options.Workers, len(names)) {
		wait.Go(func() {
			for name := range queue {
				if stopped() || ctx.Err() != nil {
					state.notCreated(name, r.now())
					continue
				}
				uid, result, err := createRunner(ctx, r.client, pool, options, name)
				if state.createAnswered(name, string(uid), result, r.now()) {
					r.removals.add(state.key, name)
				}
				r.metrics.creations.WithLabelValues(pool.Name, result.String()).Inc()
				if err != nil {
					mu.Lock()
					failure = errors.Join(failure, err)
					mu.Unlock()
				}
			}
		})
	}
	for _, name := range names {
		queue <- name
	}
	close(queue)
	wait.Wait()
	state.createsDone(failure, r.now())
	return failure
}

func (o outcome) String() string {
	switch o {
	case created:
		return "created"
	case refused:
		return "refused"
	default:
		return "uncertain"
	}
}

// createAnswered records the outcome of one creation. It reports whether something is left that must be removed: the
// ServiceAccount of a pod that was refused (POOL-1), or of one that has come and gone meanwhile.
func (s *poolState) createAnswered(name, uid string, result outcome, now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	m := s.members[name]
	if m == nil {
		return false // observed, and gone again already
	}
	m.account = true // or perhaps: the member's removal checks
	switch result {
	case created:
		m.creating = false
		if m.uid == "" {
			m.uid = uid
		}
		if uid == "" && !m.observed {
			m.creating = true // it existed already and the cache has not shown it: its UID is not known yet
		}
	case refused:
		if !m.observed {
			m.creating, m.gone, m.reported = false, true, true
		}
	case uncertain: // creating stays: the same name is tried again
	}
	s.settle(m, now)
	return m.gone
}

// notCreated gives a name back that was never tried, or leaves it if an earlier try is open.
func (s *poolState) notCreated(name string, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if m := s.members[name]; m != nil && m.creating && !m.account {
		m.creating, m.gone, m.reported = false, true, true
		s.settle(m, now)
	}
}

// createsDone notes how a batch of creations went: after a failure the next waits, longer each time.
func (s *poolState) createsDone(err error, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err == nil {
		s.createFails, s.createSays = 0, ""
		return
	}
	s.createFails++
	s.createSays = firstLine(err)
	s.hold(now.Add(lifecycle.Backoff(s.createFails)))
}

// removeAccount deletes the ServiceAccount of a runner whose pod is gone or going (POOL-1). That it is gone already is
// success.
func removeAccount(ctx context.Context, c client.Client, namespace, name string) error {
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	if err := c.Delete(ctx, account); err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("deleting ServiceAccount %s: %w", name, err)
	}
	return nil
}
