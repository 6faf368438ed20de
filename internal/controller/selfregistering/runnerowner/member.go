package runnerowner

import (
	"time"

	"github.com/bullpen-ci/bullpen/internal/controller/nodeload"
	"github.com/bullpen-ci/bullpen/internal/controller/removal"
	"github.com/bullpen-ci/bullpen/internal/controller/selfregistering/registered"
	"github.com/bullpen-ci/bullpen/internal/plan/lifecycle"
)

// member is one runner of an owner: what was observed of it, and our own actions that were not observed yet.
type member struct {
	name string
	Member
	observed bool // the watch has shown it
	exists   bool // and it is still there
	creating bool // its creation is under way, or its outcome is not known
	tried    bool // it was tried, and its outcome is not known
	created  time.Time
	hash     string

	pod     *registered.View // never changes once it is set
	gone    string           // the UID of the pod that is gone for certain
	served  bool             // GitHub has listed it, or it has shown work
	counted bool             // its end was processed: how it ended is counted once

	leave lifecycle.Leave
	// refused is why its deletion, or its pod's, fails, if it does.
	refused removal.Refusal
	weight  nodeload.Weight // what it is counted as on its node

	unfit    lifecycle.Unfit // the Backing has found that it will never serve
	spent    bool            // or that what it registers with is gone
	tendAt   time.Time
	tended   string // the versions that it was last looked after at
	tendFail int
	tendSays string    // why that failed the last time
	retryAt  time.Time // when a removal that failed is tried again
	fails    int
}

// waitsFor is what keeps it without a pod.
func (m *member) waitsFor() string {
	if m.tendSays != "" {
		return m.tendSays
	}
	return m.Waiting
}

// id is the identity that the fence decides on: the pod's, where there is one.
func (m *member) id() string {
	if m.pod != nil {
		return m.pod.UID
	}
	return m.UID
}

// runner is the member as the engine sees it; false when nothing of it is there.
func (m *member) runner(place registered.Place, timeout time.Duration, now time.Time) (lifecycle.Runner, bool) {
	r := lifecycle.Runner{Name: m.name, UID: m.id(), TemplateHash: m.hash, Created: m.created, Stage: lifecycle.StageStarting}
	switch {
	case m.pod != nil:
		r = m.pod.Runner(place, timeout, now)
		r.Name, r.TemplateHash, r.Created = m.name, m.hash, m.created
	case !m.observed:
		r.Expected = true // created, not observed yet: it counts, and is never chosen for removal (K 2.6)
		return r, m.creating || m.UID != ""
	case !m.exists:
		return r, false
	case m.Ended || m.spent:
		r.Stage = lifecycle.StageFinished
	default:
		r.Waiting = m.waitsFor()
	}
	m.overlay(&r, now)
	return r, true
}

// overlay adds what we know beside what is shown: answers of the fence, and our own doing.
func (m *member) overlay(r *lifecycle.Runner, now time.Time) {
	if r.Unfit == (lifecycle.Unfit{}) {
		r.Unfit = m.unfit
	}
	switch r.Stage {
	case lifecycle.StageFinished, lifecycle.StageBusy:
		if r.Stage == lifecycle.StageBusy && m.leave.Removal == lifecycle.RemovalGranted {
			r.Removal = m.leave.Removal
		}
		return
	case lifecycle.StageLost:
		if m.leave.Removal > r.Removal {
			r.Removal, r.Why = m.leave.Removal, m.leave.Why
		}
		switch {
		case m.leave.Deleted:
			r.Removal = lifecycle.RemovalDeleting
		case r.Removal == lifecycle.RemovalGranted && m.leave.Proof == "" && m.pod.Signs.Work() != "":
			r.Removal = lifecycle.RemovalAsked // EXCL-4, POOL-7: only a proof deletes it, and what keeps that away shows
		}
		r.AskAt = m.leave.AskAt
		return
	case lifecycle.StageTerminating: // granted or being deleted by what the pod shows; the watch shows that later than we know it
		if m.leave.Deleted {
			r.Removal = lifecycle.RemovalDeleting
		}
		return
	}
	if m.leave.SaidBusy(r.Stage, now) {
		r.Stage = lifecycle.StageBusy // EXCL-4
		return
	}
	if !m.leave.Deleted && (!m.exists || m.Deleting.IsZero()) {
		m.leave.Overlay(r)
		return
	}
	r.Shown, r.ShownSince = r.Stage, r.Since
	r.Stage, r.Removal, r.Since = lifecycle.StageTerminating, lifecycle.RemovalDeleting, later(m.leave.Since, m.Deleting)
}

// alarm is when the member becomes something else by the clock alone; zero for never.
func (m *member) alarm(place registered.Place, timeout time.Duration, now time.Time) time.Time {
	var next time.Time
	if m.pod != nil {
		next = place.Next(now)
		if due := m.pod.Overdue(timeout); now.Before(due) {
			next = earlier(next, due)
		}
	}
	if now.Before(m.leave.BusyUntil) {
		next = earlier(next, m.leave.BusyUntil)
	}
	return next
}

// open reports whether a deletion of it, or of its pod, has yet to be accepted.
func (m *member) open() bool {
	return m.exists && m.Deleting.IsZero() || m.pod != nil && m.pod.Deleting.IsZero()
}

// refusal is why the removal of the runner fails; the zero value while none is due or it does not fail.
func (m *member) refusal(r lifecycle.Runner) removal.Refusal {
	due := r.Stage == lifecycle.StageFinished || r.Removal >= lifecycle.RemovalGranted && r.Stage != lifecycle.StageBusy
	switch {
	case !due || !m.open():
		return removal.Refusal{}
	case m.refused.Why == "":
		return m.PodRefused
	default:
		return m.refused
	}
}

// due is the time by which a runner that is being removed should be gone (POOL-10); zero for any other. One that has ended, or shows no work,
// has nothing to wait for. A busy one has the whole grace period of its pod. A deletion that fails counts from the first failure.
func (m *member) due(r lifecycle.Runner) time.Time {
	due := m.refusal(r).Due()
	switch pod := m.pod; {
	case r.Removal == lifecycle.RemovalDeleting && r.Since.IsZero(): // the node of a lost runner confirms nothing
		return earlier(due, m.leave.Since.Add(stuckAfter))
	case r.Removal == lifecycle.RemovalDeleting:
		return earlier(due, r.Since.Add(stuckAfter))
	case pod != nil && pod.Ended && !pod.Deleting.IsZero():
		return earlier(due, later(pod.Deleting, pod.End.At).Add(stuckAfter))
	case pod != nil && !pod.Deadline.IsZero():
		return earlier(due, pod.Deadline.Add(stuckAfter))
	case pod == nil && r.Stage == lifecycle.StageFinished && !m.Deleting.IsZero():
		return earlier(due, m.Deleting.Add(stuckAfter))
	default:
		return due
	}
}

// stuck describes it as one that should be gone.
func (m *member) stuck(r lifecycle.Runner) removal.Stuck {
	s := removal.Stuck{Name: m.name, UID: m.id(), Refusal: m.refusal(r).Why}
	if m.pod != nil {
		s.Node, s.Finalizers = m.pod.Node, m.pod.Finalizers
	}
	return s
}

// failedToStart reports whether the runner has ended before it could ever take a job. That it was ready is no proof of the contrary:
// ready is whatever no job has reached, also a runner that GitHub refuses a moment later (K 8.3).
func (m *member) failedToStart() bool {
	return m.pod != nil && m.pod.Ended && !m.served && !m.leave.Deleted && m.pod.Deleting.IsZero() && !m.pod.End.Succeeded()
}

func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}
