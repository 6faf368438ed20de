package pool

import (
	"context"
	"fmt"
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/bullpen-ci/bullpen/internal/controller/nodes"
	"github.com/bullpen-ci/bullpen/internal/controller/removal"
	"github.com/bullpen-ci/bullpen/internal/plan/lifecycle"
)

// How long a node must have been absent. A node agent whose Node was deleted registers it again within ten seconds, and its runners should
// not suffer for it (NODE-8).
const (
	// vanishedAfter is when runners that show no work are replaced, like those of a cordoned node.
	vanishedAfter = 20 * time.Second
	// lostAfter is when those that show work are asked about, and their registrations removed (POOL-7). GitHub's word on
	// who is busy lags by up to a minute.
	lostAfter = time.Minute
	// checkNodeEvery is how often an absent node is looked for again while runners are bound to it.
	checkNodeEvery = 10 * time.Second
)

// vanished reports whether the runner's node has been gone for so long that nothing of it is expected back.
func (m *member) vanished(now time.Time) bool {
	return !m.where.absent.IsZero() && !now.Before(m.where.absent.Add(vanishedAfter))
}

// lost reports whether it has been gone for so long that the pod's status proves nothing.
func (m *member) lost(now time.Time) bool {
	return !m.where.absent.IsZero() && !now.Before(m.where.absent.Add(lostAfter))
}

// proven reports whether the fence has granted the removal with a proof that the runner's work is over, which outweighs what
// the pod shows (EXCL-4).
func (m *member) proven() bool {
	return m.leave.Removal == lifecycle.RemovalGranted && m.leave.Proof != ""
}

// loses fills in a runner whose node is gone, or whose work is over by the server's proof. It is asked about until the
// fence grants, and, if it shows work, until the fence has proof.
func (m *member) loses(r *lifecycle.Runner) {
	r.Stage, r.Removal, r.Since, r.Why, r.AskAt = lifecycle.StageLost, m.leave.Removal, m.leave.Since, m.leave.Why, m.leave.AskAt
	if m.over != "" {
		r.Unfit = lifecycle.Unfit{Reason: lifecycle.ReasonRecovery, Detail: m.over}
	}
	switch {
	case m.forced:
		r.Removal = lifecycle.RemovalDeleting
	case m.leave.Removal == lifecycle.RemovalGranted && m.leave.Proof == "" && (m.work() != "" || m.lingers()):
		r.Removal = lifecycle.RemovalAsked
	}
	if m.leave.BusyUntil.After(r.AskAt) {
		r.AskAt = m.leave.BusyUntil
	}
}

// condemn marks the runners to be removed because the server proves that their work is over, whatever they show. Those that are no longer
// named are left alone again.
func (s *poolState) condemn(over map[string]string, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if maps.Equal(s.over, over) {
		return
	}
	s.over = maps.Clone(over)
	for _, m := range s.members {
		if m.over != over[m.uid] {
			m.over = over[m.uid]
			s.settle(m, now)
		}
	}
}

// alarm is when the member's stage changes next by the clock alone; zero for never.
func (m *member) alarm(now time.Time) time.Time {
	var next time.Time
	if m.gone {
		return next
	}
	due := []time.Time{m.leave.BusyUntil}
	if absent := m.where.absent; !absent.IsZero() {
		due = append(due, absent.Add(vanishedAfter), absent.Add(lostAfter))
	}
	if unready := m.where.unready; !unready.IsZero() {
		due = append(due, unready.Add(nodes.UnreadyFor))
	}
	for _, t := range due {
		if now.Before(t) {
			next = earlier(next, t)
		}
	}
	return next
}

// undeleted reports whether the pod must still be deleted at the API server. If its node is gone, no kubelet confirms an ordinary deletion,
// regardless of who requested it.
func (m *member) undeleted(now time.Time) bool {
	if m.gone || m.forced {
		return false
	}
	return m.vanished(now) || m.open()
}

// open reports whether the API server has yet to accept a deletion of the pod, or one with a shorter grace period.
func (m *member) open() bool { return !m.leave.Deleted && m.view.deleting.IsZero() || m.lingers() }

// lingers reports whether the runner's work is over, by the server's proof (TEN-5) or because it has ended while other containers of its
// pod continue (POD-3), and the pod is being deleted with the grace period of a job. A second deletion shortens that.
func (m *member) lingers() bool {
	if m.hastened || m.view.deleting.IsZero() {
		return false
	}
	allowed := func(seconds time.Duration) bool {
		return m.view.deadline.After(m.view.deleting.Add(seconds * time.Second))
	}
	if m.view.terminal {
		return m.view.attended && allowed(removal.EndedGrace)
	}
	return m.over != "" && allowed(removal.ProvenGrace)
}

// checkNode has a node looked for that runners are bound to and the watch does not show.
func (q *removals) checkNode(name string) { q.queue.Add(task{node: name}) }

// lookForNode asks the API server itself for a node that runners are bound to and the watch does not show. Only its clear
// no counts (POOL-7); it is asked again for as long as runners are bound to the node.
func (q *removals) lookForNode(ctx context.Context, name string) (again time.Duration, err error) {
	if !q.tracker.nodes.suspect(name) {
		return 0, nil
	}
	if !q.tracker.nodes.trusted() {
		return checkNodeEvery, nil // POOL-7: an empty list, or one that is not complete, says nothing
	}
	if _, err := q.nodeGone(ctx, name); err != nil {
		return 0, err
	}
	return checkNodeEvery, nil
}

// nodeGone reports whether a node does not exist, by an uncached read. An error means that it is unknown.
func (q *removals) nodeGone(ctx context.Context, name string) (bool, error) {
	var node corev1.Node
	err := q.reader.Get(ctx, types.NamespacedName{Name: name}, &node)
	if err != nil && !apierrors.IsNotFound(err) {
		return false, fmt.Errorf("looking for node %s: %w", name, err) // POOL-7: doubt does nothing
	}
	runners := q.tracker.nodes.found(name, err == nil, q.now())
	for key := range q.tracker.nodeChanged(runners, q.now()) {
		q.wake(ctx, key)
	}
	return err != nil, nil
}

// stillGone says for each question whether it may be put: that of a runner whose node is gone only if the node is so
// still. To ask makes the server remove the runner's registration.
func (q *removals) stillGone(ctx context.Context, state *poolState, asks []lifecycle.Action) []lifecycle.Answer {
	answers := make([]lifecycle.Answer, len(asks))
	known := map[string]lifecycle.Answer{}
	for i, a := range asks {
		m, exists := state.copyOf(a.Runner.Name)
		if a.Runner.Stage != lifecycle.StageLost || !exists || m.where.absent.IsZero() && m.over != "" {
			continue
		}
		answer, looked := known[m.on]
		if !looked {
			if gone, err := q.nodeGone(ctx, m.on); err != nil {
				answer.Detail = err.Error()
			} else if !gone {
				answer.Detail = "its node " + m.on + " is back"
			}
			known[m.on] = answer
		}
		answers[i] = answer
	}
	return answers
}

// protectBusy is Remover.Protect for each lost runner that the fence has called busy. Where that fails nothing is known, so that it
// is asked again.
func (q *removals) protectBusy(ctx context.Context, state *poolState, asks []lifecycle.Action, answers []lifecycle.Answer) {
	for i, a := range asks {
		if answers[i].Verdict != lifecycle.Busy || a.Runner.Stage != lifecycle.StageLost {
			continue
		}
		if m, exists := state.copyOf(a.Runner.Name); exists && m.uid == a.Runner.UID {
			if err := q.remover.Protect(ctx, m.view.ref()); err != nil {
				answers[i] = lifecycle.Answer{Detail: err.Error()}
			}
		}
	}
}
