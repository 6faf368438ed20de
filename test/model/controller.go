package model

import (
	"time"

	"github.com/bullpen-ci/bullpen/internal/plan/lifecycle"
)

// The controller: internal/controller/pool. It plans over what it last saw, however old that is, asks the fence,
// asks again, and deletes the pod as it saw it. It may forget everything at any moment.

// observed is the pod as the rule of removal reads it.
func (s shown) observed(uid string) lifecycle.Observed {
	o := lifecycle.Observed{UID: uid, Ended: s.terminal(), Signs: lifecycle.Signs{
		PollerEnded: s.pollerEnded(), NotReady: s&shownNotReady != 0,
	}}
	if s&shownOwner != 0 {
		o.Signs.Owner = "octo"
	}
	return o
}

// grant is what a remover brings of an earlier answer, or of the last one.
type grant uint8

const (
	noGrant grant = iota
	bareGrant
	provenGrant
)

func (g grant) product(uid string) lifecycle.Grant {
	switch g {
	case noGrant:
		return lifecycle.Grant{}
	case bareGrant:
		return lifecycle.Grant{UID: uid}
	default:
		return lifecycle.Grant{UID: uid, Proof: proof}
	}
}

func (l leave) grant() grant {
	switch {
	case l&leaveGranted == 0:
		return noGrant
	case l&leaveProof == 0:
		return bareGrant
	default:
		return provenGrant
	}
}

// sight is what a plan is made of: for each pod what is seen of it and how far its removal is.
type sight [maxPods]struct {
	life  life
	view  shown
	leave leave
	lost  bool
}

// planned is what some plan wants, pods as bits.
type planned struct{ ask, delete uint8 }

// wishes are what the pods' owner may want: any of them at any time, and each of them wants idle pods gone.
var wishes = []lifecycle.Wish{
	{Desired: 0, TemplateHash: "new"},
	{Desired: maxPods, TemplateHash: "new", MaxUnavailable: maxPods}, // the pods are of an older template
	{Desired: maxPods, TemplateHash: "old", Terminating: true},
}

// planFor asks MakePlan what the controller may do next, for any desired state.
func (d *decisions) planFor(seen sight) planned {
	p, known := d.plans[seen]
	if known {
		return p
	}
	var runners []lifecycle.Runner
	for i, q := range seen {
		if q.life != gone {
			runners = append(runners, runnerOf(i, q.life, q.view, q.leave, q.lost))
		}
	}
	for _, wish := range wishes {
		plan := d.rules.plan(wish, lifecycle.NewSet(runners...), noon)
		for _, a := range plan.Ask {
			p.ask |= 1 << (podOfUID[a.Runner.UID] - 1)
		}
		for _, a := range plan.Delete {
			p.delete |= 1 << (podOfUID[a.Runner.UID] - 1)
		}
	}
	d.plans[seen] = p
	return p
}

// runnerOf is the pod as the engine sees it, in the order in which the controller's tracker decides.
func runnerOf(p int, l life, v shown, has leave, lost bool) lifecycle.Runner {
	leave, work := has.product(), v.observed("").Signs.Work() != ""
	runner := lifecycle.Runner{
		Name: uidOf(p), UID: uidOf(p), TemplateHash: "old", Created: noon.Add(-time.Hour + time.Duration(p)), Since: noon.Add(-time.Hour),
	}
	switch {
	case v.terminal():
		runner.Stage = lifecycle.StageFinished
	case lost:
		runner.Stage, runner.Removal = lifecycle.StageLost, leave.Removal
		if has.grant() == bareGrant && work {
			runner.Removal = lifecycle.RemovalAsked
		}
	case work && has.grant() != provenGrant: // EXCL-4: before any removal of ours, granted or not
		runner.Stage = lifecycle.StageBusy
		if has.grant() == bareGrant {
			runner.Removal = lifecycle.RemovalGranted
		}
	case l != up:
		runner.Stage, runner.Removal = lifecycle.StageTerminating, lifecycle.RemovalDeleting
	default:
		runner.Stage = lifecycle.StageIdle
		if v&shownRunnerEnd != 0 { // it can never take work
			runner.Stage, runner.Unfit = lifecycle.StageStarting, lifecycle.Unfit{Reason: lifecycle.ReasonDefective}
		}
		leave.Overlay(&runner)
	}
	return runner
}

// sightOf is what the controller decides on when it decides about pod p: of another pod it may know anything that is
// true now, or what it has acted on.
func (s *state) sightOf(p int, v shown, lost bool) sight {
	var seen sight
	for i := range s.pod {
		q := &s.pod[i]
		seen[i].life, seen[i].view, seen[i].leave = q.life, q.shown, q.leave
		if q.leave != 0 {
			seen[i].view = q.view
		}
	}
	seen[p].view, seen[p].lost = v, lost
	return seen
}

// setLeave records how far the removal is, and what of the pod it was decided on.
func (s *state) setLeave(p int, l leave, view shown) {
	if l == 0 {
		view = 0
	}
	s.pod[p].leave, s.pod[p].view = l, view
}

func (m *machine) controllerSteps(s *state, p int) {
	q := &s.pod[p]
	if q.life != up {
		return
	}
	if q.leave != 0 {
		t := *s
		t.setLeave(p, 0, 0)
		m.chance("the controller restarts, and knows nothing of", p, &t)
	}
	if q.leave&leaveSent != 0 {
		m.deleteSteps(s, p)
		return
	}
	m.planSteps(s, p, q.shown)
	if q.leave != 0 && q.view != q.shown {
		m.planSteps(s, p, q.view)
	}
	if q.leave&leaveAsked != 0 {
		m.fenceSteps(s, p)
	}
}

// planSteps: the controller has read the pod, and decides on that whatever has happened in between.
func (m *machine) planSteps(s *state, p int, view shown) {
	q := &s.pod[p]
	// The server names the pods that should have exited; a node that is gone the controller sees itself.
	named := s.claimOf(p).proof == 1 && !m.live(s.claimOf(p)) && !view.terminal()
	for _, lost := range [...]bool{false, true} {
		if lost && !named && q.lost == 0 {
			return
		}
		seen := s.sightOf(p, view, lost)
		plan := m.d.planFor(seen)
		if plan.delete>>p&1 == 1 {
			m.removerSteps(s, p, view, lost)
			if view != q.shown {
				m.removerSteps(s, p, q.shown, lost)
			}
		}
		if plan.ask>>p&1 == 0 {
			continue
		}
		t := *s
		t.setLeave(p, m.d.asked(q.leave, runnerOf(p, q.life, view, q.leave, lost)), view)
		if lost {
			m.happens("the controller takes for lost, and plans to ask for,", p, &t)
		} else {
			m.happens("the controller looks at, and plans to ask for,", p, &t)
		}
	}
}

// removerSteps: lifecycle.Remove up to the deletion itself. The remover decides on what is known of the pod when it begins, which may be more
// than what the plan knew.
func (m *machine) removerSteps(s *state, p int, view shown, lost bool) {
	q := &s.pod[p]
	t := *s
	switch may := m.d.delete[view][q.leave.grant()]; {
	case view.terminal() && may:
		t.vanish(p)
		m.happens("the terminal pod is reaped,", p, &t)
	case !may && !(lost && q.leave.grant() == bareGrant): // of a lost one the fence is asked for a proof
		t.setLeave(p, m.d.vetoed(q.leave), view)
		m.happens("the removal is vetoed, of", p, &t)
	case m.without.secondAsk: // EXCL-2
		t.setLeave(p, q.leave|leaveSent, view)
		m.happens("the deletion is sent, of", p, &t)
	default:
		m.askFence(s, p, view, lost, func(t *state, answer lifecycle.Answer) string {
			l := m.d.answered(q.leave, answer)
			switch {
			case answer.Verdict != lifecycle.Granted:
				t.setLeave(p, l, view)
				return "the fence, asked again, does not grant the removal of"
			case !m.d.delete[view][l.grant()]: // EXCL-4
				t.setLeave(p, m.d.vetoed(q.leave), view)
				return "the removal is vetoed at last, of"
			default:
				t.setLeave(p, l|leaveSent, view)
				return "the fence, asked again, grants the removal of"
			}
		})
	}
}

// fenceSteps: the question that the plan asked for is answered.
func (m *machine) fenceSteps(s *state, p int) {
	q := &s.pod[p]
	m.askFence(s, p, q.view, q.leave&leaveLost != 0, func(t *state, answer lifecycle.Answer) string {
		t.setLeave(p, m.d.answered(q.leave, answer), q.view)
		return [...]string{
			lifecycle.Unknown: "the fence does not know about", lifecycle.Busy: "the fence says busy of",
			lifecycle.Granted: "the fence grants the removal of",
		}[answer.Verdict]
	})
}

// askFence makes the steps of one question: then says what its answer changes, and how that step is called.
func (m *machine) askFence(s *state, p int, view shown, lost bool, then func(*state, lifecycle.Answer) string) {
	t := *s
	answer := m.verdict(&t, p, view, lost)
	name := then(&t, answer)
	e := m.happens(name, p, &t)
	if answer.Verdict == lifecycle.Granted && m.live(s.claimOf(p)) {
		e.broken = "EXCL-1 the removal of a claimed pod was granted"
	}
	if m.without.unknown { // EXCL-3
		u := *s
		m.chance("no answer is taken for a grant: "+then(&u, lifecycle.Answer{Verdict: lifecycle.Granted}), p, &u)
	}
}

// verdict is the server's answer, and what asking changes there: a claim is retired, and the live claim of a lost pod is released on proof.
func (m *machine) verdict(t *state, p int, view shown, lost bool) lifecycle.Answer {
	if m.frozen(t) { // CLAIM-17
		return lifecycle.Answer{}
	}
	c := t.claimOf(p)
	was := c.st
	if m.moveClaim(c, evRetire); c.st != was { // EXCL-1
		*c = claim{st: c.st}
	}
	switch {
	case !m.d.granted[c.st] && !lost:
		return lifecycle.Answer{Verdict: lifecycle.Busy}
	case !m.d.granted[c.st]:
		if m.live(c) && t.rec.kind == recoverNothing {
			m.begin(t, p, lostPod)
		}
		return lifecycle.Answer{}
	case !lost: // the server gives proofs of lost ones alone
		return lifecycle.Answer{Verdict: lifecycle.Granted}
	case c.proof == 1:
		return lifecycle.Answer{Verdict: lifecycle.Granted, Proof: proof}
	case view.observed("").Signs.Work() != "": // EXCL-4
		return lifecycle.Answer{}
	default:
		return lifecycle.Answer{Verdict: lifecycle.Granted}
	}
}

// deleteSteps: the API server deletes the pod if it is as it was seen (EXCL-2).
func (m *machine) deleteSteps(s *state, p int) {
	q := &s.pod[p]
	t := *s
	if q.view != q.shown && !m.without.version {
		t.setLeave(p, q.leave&^leaveSent, q.shown)
		m.happens("it has changed since it was seen, and is not deleted:", p, &t)
		return
	}
	m.deletePod(&t, p)
}

func (m *machine) deletePod(t *state, p int) {
	var broken string
	switch {
	case t.busy(p):
		broken = "EXCL-1 a pod was deleted while it worked"
	case t.mayStart(p):
		broken = "EXCL-1 a pod was deleted whose registration could take a job"
	case m.live(t.claimOf(p)) && t.backup < backupHeld:
		broken = "EXCL-1 a pod was deleted while its claim was live"
	}
	t.pod[p].life = deleted
	t.setLeave(p, 0, 0)
	if e := m.happens("the controller deletes", p, t); broken != "" {
		e.broken = broken
	}
}
