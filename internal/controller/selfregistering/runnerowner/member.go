package runnerowner

import (
	"time"

	"github.com/bullpen-ci/bullpen/internal/controller/nodeload"
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

	leave  lifecycle.Leave
	weight nodeload.Weight // what it is counted as on its node

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
	r := lifecycle.Runner{Name: m.name, UID: m.id(), TemplateHash: m.hash, Created: m.created, Stage: lifecycle.StageBooting}
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
		if m.leave.Deleted {
			r.Removal = lifecycle.RemovalDeleting
		}
		r.AskAt = m.leave.AskAt
		return
	case lifecycle.StageLeaving: // granted or being deleted by what the pod shows; the watch shows that later than we know it
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
	r.Stage, r.Removal, r.Since = lifecycle.StageLeaving, lifecycle.RemovalDeleting, later(m.leave.Since, m.Deleting)
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
