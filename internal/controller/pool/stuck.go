package pool

import (
	"slices"
	"time"

	"github.com/bullpen-ci/bullpen/internal/controller/removal"
	"github.com/bullpen-ci/bullpen/internal/plan/lifecycle"
	"github.com/bullpen-ci/bullpen/internal/plan/poolspec"
)

// stuckSlack is how long a pod may still be there once it should be gone: a kubelet reports late, and a node agent stops a
// virtual machine first.
const stuckSlack = time.Minute

// due is the time by which a pod that is being deleted should be gone (POOL-10); zero for any other. A job has its whole grace period,
// which may be hours, unless the server proves that it is over. A pod that shows no work stops at once, whatever its grace period, and one
// that has ended has nothing to wait for. A pod whose deletion fails, as when an admission webhook rejects it, counts from the first failure.
func (m *member) due() time.Time {
	if m.gone || !m.observed {
		return time.Time{}
	}
	var refused time.Time
	if m.refusing() != "" { // TEN-5
		refused = m.refused.Due()
	}
	if m.view.deadline.IsZero() {
		return refused
	}
	granted := earlier(refused, m.view.deadline.Add(stuckSlack))
	switch {
	case m.view.terminal && m.view.end.at.After(m.view.deleting):
		return earlier(granted, m.view.end.at.Add(stuckSlack))
	case m.view.terminal:
		return earlier(granted, m.view.deleting.Add(stuckSlack))
	case m.over != "": // TEN-5: whatever its grace period was for, it is over
		return earlier(granted, m.view.deleting.Add(removal.ProvenGrace*time.Second+stuckSlack))
	case m.work() == "":
		return earlier(granted, m.view.deleting.Add(poolspec.LeaveTimeout))
	default:
		return granted
	}
}

// refusing is why the deletion of the pod fails, while one is due; empty when it does not fail.
func (m *member) refusing() string {
	if !m.open() || !m.view.terminal && m.leave.Removal != lifecycle.RemovalGranted {
		return ""
	}
	return m.refused.Why
}

// departures are the members of a pool whose pods are being deleted. Looking through them costs nothing until the first
// is overdue, so that no pass is longer for them (P9).
type departures struct {
	due   map[string]time.Time
	next  time.Time // no member is overdue before
	stuck map[string]bool
}

// note updates the departures after a change of a member. It returns whether the next check must be earlier than planned.
func (d *departures) note(name string, due time.Time) bool {
	before := d.due[name]
	if due.Equal(before) {
		return false
	}
	delete(d.stuck, name)
	if due.IsZero() {
		delete(d.due, name)
		return false
	}
	if d.due == nil {
		d.due, d.stuck = map[string]time.Time{}, map[string]bool{}
	}
	d.due[name] = due
	sooner := d.next.IsZero() || due.Before(d.next)
	d.next = earlier(d.next, due)
	return sooner
}

// look finds those that have become overdue since the last look, sorted by name.
func (d *departures) look(now time.Time) []string {
	if d.next.IsZero() || now.Before(d.next) {
		return nil
	}
	d.next = time.Time{}
	var found []string
	for name, due := range d.due {
		switch {
		case d.stuck[name]:
		case now.Before(due):
			d.next = earlier(d.next, due)
		default:
			d.stuck[name] = true
			found = append(found, name)
		}
	}
	slices.Sort(found)
	return found
}

// stuckPods describes members by name. The caller holds the lock.
func (s *poolState) stuckPods(names []string) []removal.Stuck {
	found := make([]removal.Stuck, 0, len(names))
	for _, name := range names {
		if m := s.members[name]; m != nil {
			found = append(found, removal.Stuck{Name: name, UID: m.uid, Node: m.view.node, Finalizers: m.view.finalizers, Refusal: m.refusing()})
		}
	}
	return found
}

// stuckNow are the first few of those that are stuck, by name, and how many there are. The caller holds the lock.
func (s *poolState) stuckNow() (few []removal.Stuck, all int) {
	if len(s.leaving.stuck) == 0 {
		return nil, 0
	}
	names := make([]string, 0, len(s.leaving.stuck))
	for name := range s.leaving.stuck {
		names = append(names, name)
	}
	slices.Sort(names)
	return s.stuckPods(names[:min(len(names), namesInEvent)]), len(names)
}
