package pool

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bullpen-ci/bullpen/api/runnerapi"
	"github.com/bullpen-ci/bullpen/internal/controller/removal"
	"github.com/bullpen-ci/bullpen/internal/lib/faultpoint"
	"github.com/bullpen-ci/bullpen/internal/lib/logtail"
	"github.com/bullpen-ci/bullpen/internal/plan/lifecycle"
	"github.com/bullpen-ci/bullpen/internal/runnerpod"
)

// Reporter reports to the server that a pod is terminal or gone. After any error it is called again; a repeated report is harmless.
type Reporter interface {
	ReportStopped(ctx context.Context, stopped runnerapi.PodStopped) error
}

// Logs reads the end of a container's log. It is optional: a runner's last lines are for people.
type Logs interface {
	Tail(ctx context.Context, namespace, pod, container string) ([]byte, error)
}

// tailTimeout bounds how long the end of a runner that died waits for its log.
const tailTimeout = 5 * time.Second

// Pace of retries, and how long a ServiceAccount without a pod is left alone by default: its pod may be about to be
// created.
const (
	retryFirst         = 200 * time.Millisecond
	retrySlowest       = 30 * time.Second
	defaultOrphanGrace = time.Minute
)

// task is one runner to remove, or, without a name, the questions of one pool for the fence; or one node to look for.
type task struct {
	pool types.NamespacedName
	name string
	node string
}

// removals does what must not delay a pass: it asks the fence, reports ends, deletes. It is a queue of its own with its
// own workers: each task is retried until it is done, and never forgotten (POOL-1, POOL-4).
type removals struct {
	tracker  *tracker
	remover  *removal.Remover
	reporter Reporter
	logs     Logs          // nil: nothing is read
	reader   client.Reader // past the cache
	events   *eventWriter
	metrics  *metrics
	log      *slog.Logger
	now      func() time.Time
	wake     func(context.Context, types.NamespacedName) // starts a pass
	workers  int
	queue    workqueue.TypedRateLimitingInterface[task]
}

func newQueue() workqueue.TypedRateLimitingInterface[task] {
	return workqueue.NewTypedRateLimitingQueue(workqueue.NewTypedItemExponentialFailureRateLimiter[task](retryFirst, retrySlowest))
}

// Start works until ctx ends and returns when every worker has.
func (q *removals) Start(ctx context.Context) error {
	var wait sync.WaitGroup
	for range q.workers {
		wait.Go(func() {
			for q.next(ctx) {
			}
		})
	}
	<-ctx.Done()
	q.queue.ShutDown()
	wait.Wait()
	return nil
}

// add has a runner of a pool looked after.
func (q *removals) add(pool types.NamespacedName, name string) {
	q.queue.Add(task{pool: pool, name: name})
}

// addAfter is add, later.
func (q *removals) addAfter(pool types.NamespacedName, name string, after time.Duration) {
	q.queue.AddAfter(task{pool: pool, name: name}, after)
}

// addQuestions has a pool's questions put to the fence.
func (q *removals) addQuestions(pool types.NamespacedName) { q.queue.Add(task{pool: pool}) }

// NeedLeaderElection makes the leader alone remove runners.
func (q *removals) NeedLeaderElection() bool { return true }

func (q *removals) next(ctx context.Context) bool {
	t, shutdown := q.queue.Get()
	if shutdown {
		return false
	}
	defer q.queue.Done(t)
	if t.node != "" {
		again, err := q.lookForNode(ctx, t.node)
		q.repeat(t, again, err)
		return true
	}
	state := q.tracker.pool(t.pool)
	if t.name == "" {
		q.askFence(ctx, state)
		q.wake(ctx, t.pool)
		return true
	}
	again, err := q.step(ctx, state, t.name)
	if err != nil {
		q.metrics.removalFailures.WithLabelValues(t.pool.Name).Inc()
	}
	if q.repeat(t, again, err) {
		state.released(t.name)
		q.wake(ctx, t.pool)
	}
	return true
}

// repeat has a task done again as its outcome says; true: it is over.
func (q *removals) repeat(t task, again time.Duration, err error) bool {
	switch {
	case err != nil:
		q.log.Warn("removal step failed, retrying", "pool", t.pool.Name, "runner", t.name, "node", t.node, "error", err)
		q.queue.AddRateLimited(t)
	case again > 0:
		q.queue.Forget(t)
		q.queue.AddAfter(t, again)
	default:
		q.queue.Forget(t)
		return true
	}
	return false
}

// step does the next things for one runner, as far as they can be done now. It returns an error to be tried again, or
// after how long to look again, or neither when the task is over.
func (q *removals) step(ctx context.Context, state *poolState, name string) (time.Duration, error) {
	m, exists := state.copyOf(name)
	switch {
	case !exists || m.creating:
		return 0, nil
	case !m.observed && !m.gone && m.uid != "":
		return retryFirst, q.look(ctx, state, name) // created, and the cache does not show it
	case !m.observed && !m.gone:
		return q.orphan(ctx, state, m)
	case m.gone || m.view.terminal:
		if !m.reported {
			if err := q.report(ctx, m); err != nil {
				return 0, err // POOL-4: reported before it is deleted, however long that takes
			}
			state.change(name, q.now(), func(m *member) { m.reported = true })
		}
	case m.leave.Removal != lifecycle.RemovalGranted || m.work() != "" && m.leave.Proof == "":
		return 0, nil // withdrawn, or working after all: not ours to remove
	}
	if m.undeleted(q.now()) {
		if broke := m.view.broke; broke.exited && broke.exitCode != 0 && m.last == nil { // its pod is not terminal: this is the last look
			last := &lastWords{end: broke}
			last.tail, last.cut = q.tail(ctx, m)
			state.change(name, q.now(), func(m *member) { m.last = last })
		}
		deleted, err := q.delete(ctx, state, m)
		if err != nil || !deleted {
			return 0, err
		}
	}
	if m.account {
		if err := removeAccount(ctx, q.remover.Client, state.key.Namespace, name); err != nil {
			return 0, err // POOL-1: retried by itself, the pod's deletion is not repeated
		}
		state.change(name, q.now(), func(m *member) { m.account = false })
	}
	return 0, nil
}

func (q *removals) report(ctx context.Context, m member) error {
	stopped := runnerapi.PodStopped{
		Pod:     runnerapi.PodRef{Namespace: m.view.namespace, Name: m.name, UID: m.uid, Pool: m.view.pool},
		EndedAt: m.view.end.at, Reason: m.view.end.reason,
	}
	if stopped.EndedAt.IsZero() {
		if stopped.EndedAt = m.view.deleting; stopped.EndedAt.IsZero() {
			stopped.EndedAt = q.now()
		}
	}
	if stopped.Reason == "" {
		stopped.Reason = "Deleted"
	}
	if m.view.end.exited {
		stopped.ExitCode = &m.view.end.exitCode
	}
	switch {
	case m.last != nil:
		stopped.Died, stopped.Tail, stopped.TailCut = true, m.last.tail, m.last.cut
		stopped.ExitCode, stopped.Reason = &m.last.end.exitCode, m.last.end.reason
	case m.died():
		stopped.Died = true
		stopped.Tail, stopped.TailCut = q.tail(ctx, m)
		if evicted := m.view.end.evicted; evicted != "" { // its job's own log does not say why it ends
			stopped.Tail = strings.TrimLeft(stopped.Tail+"\n\nBullpen: this runner was "+evicted+".", "\n")
		}
	}
	if err := q.reporter.ReportStopped(ctx, stopped); err != nil {
		q.metrics.reportFailures.WithLabelValues(m.view.pool).Inc()
		return fmt.Errorf("reporting the end of %s: %w", m.name, err)
	}
	return nil
}

// lastWords are the last log lines of a runner that had died before its pod was deleted.
type lastWords struct {
	end  ending
	tail string
	cut  bool
}

// tail returns the last log lines of a runner that died. A log that cannot be read delays nothing: some machines die with their runner.
func (q *removals) tail(ctx context.Context, m member) (string, bool) {
	if q.logs == nil {
		return "", false
	}
	ctx, cancel := context.WithTimeout(ctx, tailTimeout)
	defer cancel()
	log, err := q.logs.Tail(ctx, m.view.namespace, m.name, runnerpod.ContainerRunner)
	if err != nil {
		q.log.Info("cannot read the log of a failed runner", "pool", m.view.pool, "runner", m.name, "error", err)
		return "", false
	}
	return logtail.Of(log)
}

// died reports whether an existing pod's runner failed: it ended neither well nor because the fleet has removed it.
func (m member) died() bool {
	ended := m.view.end
	return m.view.terminal && !m.gone && m.leave.Removal != lifecycle.RemovalGranted && !(ended.exited && ended.exitCode == 0)
}

// delete removes the pod; false when it may not be removed now.
func (q *removals) delete(ctx context.Context, state *poolState, m member) (bool, error) {
	var g removal.Grant
	if m.leave.Removal == lifecycle.RemovalGranted {
		g.UID, g.Proof, g.Lost = m.uid, m.leave.Proof, m.lost(q.now()) || m.over != ""
	}
	if m.vanished(q.now()) {
		gone, err := q.nodeGone(ctx, m.on) // POOL-7: it may have come back since the fence was asked
		if err != nil || !gone {
			return false, err
		}
		g.NodeGone = true
	}
	answer, err := q.remover.Remove(ctx, m.view.pod(m.everReady), g)
	q.noteRefusal(ctx, state, m, err)
	switch {
	case err == nil:
		faultpoint.Reached(faultpoint.PodDeleted)
		state.change(m.name, q.now(), func(m *member) {
			m.forced, m.hastened = g.NodeGone, m.hastened || (g.Proof != "" || m.view.terminal) && m.lingers()
			m.leave.Accepted(q.now())
		})
		q.metrics.removals.WithLabelValues(m.view.pool, m.removalReason()).Inc()
		q.events.removed(state.key, m)
		return true, nil
	case errors.Is(err, lifecycle.ErrNotNow):
		if answer.Verdict == lifecycle.Busy && m.leave.Proof != "" {
			if err := q.remover.Protect(ctx, m.view.ref()); err != nil {
				return false, err
			}
		}
		state.recordAnswers([]lifecycle.Action{{Runner: lifecycle.Runner{Name: m.name, UID: m.uid}}}, []lifecycle.Answer{answer}, q.now())
		q.metrics.fence(state.key.Name, answer.Verdict)
		return false, nil
	case errors.Is(err, lifecycle.ErrVetoed), errors.Is(err, lifecycle.ErrNoGrant):
		state.change(m.name, q.now(), func(m *member) { m.leave.Vetoed(pace, q.now()) })
		return false, nil
	case apierrors.IsConflict(err):
		// It has changed since it was observed. Whether it may still be removed depends on the change: the next read of the cache, or past
		// it, decides.
		return false, q.look(ctx, state, m.name)
	default:
		return false, err
	}
}

// noteRefusal keeps why a deletion fails, for the condition and the Event of a pod that should be gone (POOL-10).
func (q *removals) noteRefusal(ctx context.Context, state *poolState, m member, err error) {
	refused := m.refused.After(err, q.now())
	if ctx.Err() != nil || refused == m.refused {
		return
	}
	state.change(m.name, q.now(), func(m *member) { m.refused = refused })
	q.wake(ctx, state.key) // a pass must follow when the pod is due
}

func (m member) removalReason() string {
	if m.view.terminal {
		return string(lifecycle.ReasonFinished)
	}
	return string(m.leave.Why)
}

// look reads a pod past the cache: after a conflict, and when the cache has not shown what we created.
func (q *removals) look(ctx context.Context, state *poolState, name string) error {
	var pod corev1.Pod
	err := q.reader.Get(ctx, types.NamespacedName{Namespace: state.key.Namespace, Name: name}, &pod)
	switch {
	case apierrors.IsNotFound(err):
		state.podGone(name, "", q.now())
	case err != nil:
		return fmt.Errorf("reading pod %s: %w", name, err)
	default:
		state.podRead(observe(&pod), q.now())
	}
	return nil
}

// orphan handles a ServiceAccount without a pod: a crash came between their deletions or their creations. It is deleted when an uncached
// read proves that there is no pod, and not before a pending creation must have ended.
func (q *removals) orphan(ctx context.Context, state *poolState, m member) (time.Duration, error) {
	var account corev1.ServiceAccount
	key := types.NamespacedName{Namespace: state.key.Namespace, Name: m.name}
	if err := q.reader.Get(ctx, key, &account); err != nil {
		if !apierrors.IsNotFound(err) {
			return 0, fmt.Errorf("reading ServiceAccount %s: %w", m.name, err)
		}
		state.drop(m.name, q.now())
		return 0, nil
	}
	if age, grace := q.now().Sub(account.CreationTimestamp.Time), state.patience(); age < grace {
		return grace - age, nil
	}
	var pod corev1.Pod
	if err := q.reader.Get(ctx, key, &pod); err == nil {
		return state.orphanGrace, nil // the cache lags, and will show the pod
	} else if !apierrors.IsNotFound(err) {
		return 0, fmt.Errorf("reading pod %s: %w", m.name, err)
	}
	if err := removeAccount(ctx, q.remover.Client, key.Namespace, key.Name); err != nil {
		return 0, err
	}
	state.drop(m.name, q.now())
	return 0, nil
}

// copyOf returns a member as it is now.
func (s *poolState) copyOf(name string) (member, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if m := s.members[name]; m != nil {
		return *m, true
	}
	return member{}, false
}

// change changes a member, if it is still there.
func (s *poolState) change(name string, now time.Time, apply func(*member)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if m := s.members[name]; m != nil {
		apply(m)
		s.settle(m, now)
	}
}

// drop forgets a member that never had a pod.
func (s *poolState) drop(name string, now time.Time) {
	s.change(name, now, func(m *member) {
		if !m.observed && !m.creating {
			m.gone, m.reported, m.account = true, true, false
		}
	})
}

// released records that no task has the member any more.
func (s *poolState) released(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if m := s.members[name]; m != nil {
		m.queued = false
	}
}
