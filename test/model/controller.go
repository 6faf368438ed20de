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

func grantFor(uid string, proof bool) lifecycle.Grant {
	g := lifecycle.Grant{UID: uid}
	if proof {
		g.Proof = "GitHub has no registration of it"
	}
	return g
}

// sight is what a plan is made of: for each pod what is seen of it and how far its removal is.
type sight [maxPods]struct {
	life    life
	view    shown
	removal removal
	lost    bool
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
			runners = append(runners, runnerOf(i, q.life, q.view, q.removal, q.lost))
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
func runnerOf(p int, l life, v shown, r removal, lost bool) lifecycle.Runner {
	runner := lifecycle.Runner{
		Name: uidOf(p), UID: uidOf(p), TemplateHash: "old", Created: noon.Add(-time.Hour + time.Duration(p)), Since: noon.Add(-time.Hour),
	}
	switch {
	case v.terminal():
		runner.Stage = lifecycle.StageFinished
	case lost:
		runner.Stage = lifecycle.StageLost
		if r == lostGranted {
			runner.Removal = lifecycle.RemovalGranted
		}
	case v.observed("").Signs.Work() != "": // EXCL-4: before any removal of ours, granted or not
		runner.Stage = lifecycle.StageBusy
	case l != up:
		runner.Stage, runner.Removal = lifecycle.StageLeaving, lifecycle.RemovalDeleting
	case r == removalGranted:
		runner.Stage, runner.Removal = lifecycle.StageLeaving, lifecycle.RemovalGranted
	case r == removalAsked:
		runner.Stage, runner.Removal = lifecycle.StageLeaving, lifecycle.RemovalAsked
	case v&shownRunnerEnd != 0: // it can never take work
		runner.Stage, runner.Unfit = lifecycle.StageBooting, lifecycle.Unfit{Reason: lifecycle.ReasonDefective}
	default:
		runner.Stage = lifecycle.StageIdle
	}
	return runner
}

// sightOf is what the controller decides on when it decides about pod p: of another pod it may know anything that is
// true now, or what it has acted on.
func (s *state) sightOf(p int, r removal, v shown) sight {
	var seen sight
	for i := range s.pod {
		q := &s.pod[i]
		seen[i].life, seen[i].view, seen[i].removal = q.life, q.shown, q.removal
		if q.removal != removalNone {
			seen[i].view = q.view
		}
	}
	seen[p].removal, seen[p].view, seen[p].lost = r, v, r >= lostAsked
	return seen
}

func (s *state) forgetRemoval(p int) { s.pod[p].removal, s.pod[p].view = removalNone, 0 }

func (m *machine) controllerSteps(s *state, p int) {
	q := &s.pod[p]
	if q.life != up {
		return
	}
	if q.removal != removalNone {
		t := *s
		t.forgetRemoval(p)
		m.chance("the controller restarts, and knows nothing of", p, &t)
	}
	switch q.removal {
	case removalNone:
		m.planSteps(s, p)
	case removalAsked:
		m.fenceSteps(s, p, removalGranted)
	case removalGranted:
		m.grantedSteps(s, p)
	case lostAsked:
		m.fenceSteps(s, p, lostGranted)
	case lostGranted:
		if m.d.planFor(s.sightOf(p, lostGranted, q.view)).delete>>p&1 == 1 && m.d.deletes(q.view, true) {
			m.fenceSteps(s, p, lostRegranted)
		}
	case removalRegranted, lostRegranted:
		m.deleteSteps(s, p)
	}
}

// planSteps: the controller reads the pod now, and will decide on that whatever happens in between.
func (m *machine) planSteps(s *state, p int) {
	q := &s.pod[p]
	plan := m.d.planFor(s.sightOf(p, removalNone, q.shown))
	if plan.delete>>p&1 == 1 && m.d.mayDeleteWithout(q.shown) {
		t := *s
		if q.shown.terminal() {
			t.vanish(p)
			m.happens("the terminal pod is reaped,", p, &t)
		} else {
			m.deletePod(&t, p)
		}
	}
	if plan.ask>>p&1 == 1 {
		t := *s
		t.pod[p].removal, t.pod[p].view = removalAsked, q.shown
		m.happens("the controller looks at, and plans to ask for,", p, &t)
	}
	// The server names the pods that should have exited; a node that is gone the controller sees itself.
	named := s.claimOf(p).proof == 1 && !m.live(s.claimOf(p)) && !q.shown.terminal()
	if (named || q.lost == 1) && m.d.planFor(s.sightOf(p, lostAsked, q.shown)).ask>>p&1 == 1 {
		t := *s
		t.pod[p].removal, t.pod[p].view = lostAsked, q.shown
		m.happens("the controller takes for lost, and plans to ask for,", p, &t)
	}
}

// grantedSteps: the plan deletes what is granted. The remover decides on what is known of the pod when it begins, which
// may be more than what the plan knew.
func (m *machine) grantedSteps(s *state, p int) {
	q := &s.pod[p]
	planned := m.d.planFor(s.sightOf(p, removalGranted, q.view)).delete>>p&1 == 1
	for i, view := range [...]shown{q.view, q.shown} {
		if i == 1 && q.view == q.shown {
			return
		}
		t := *s
		t.pod[p].view = view
		switch {
		case !planned || !m.d.deletes(view, false): // EXCL-4
			t.forgetRemoval(p)
			m.happens("the granted removal is vetoed, of", p, &t)
		case m.without.secondAsk: // EXCL-2
			m.deleteSteps(&t, p)
		default:
			m.fenceSteps(&t, p, removalRegranted)
		}
	}
}

// mayDeleteWithout: whether a pod with these signs may be deleted without any grant.
func (d *decisions) mayDeleteWithout(v shown) bool {
	return d.rules.mayDelete(v.observed("pod"), lifecycle.Grant{}) == nil
}

// fenceSteps: the fence is asked. A live claim of a lost pod is released on proof, and a grant comes with the proof that
// the row holds; without one the pod's own signs keep vetoing.
func (m *machine) fenceSteps(s *state, p int, granted removal) {
	t := *s
	if m.frozen(s) { // CLAIM-17
		t.forgetRemoval(p)
		m.happens("the fence says unknown, the ledger is frozen, of", p, &t)
		return
	}
	c := t.claimOf(p)
	if m.moveClaim(c, evRetire); c.st != s.claimOf(p).st { // EXCL-1
		*c = claim{st: c.st}
	}
	lost := granted == lostGranted || granted == lostRegranted
	switch {
	case !m.d.granted[c.st]:
		t.forgetRemoval(p)
		m.happens("the fence says busy or unknown, of", p, &t)
		if lost && m.live(c) && t.rec.kind == recoverNothing {
			m.begin(&t, p, lostPod)
			m.happens("the claim is to be released of the lost", p, &t)
		}
	case lost && c.proof == 0:
		t.forgetRemoval(p)
		m.happens("the fence grants without proof the removal of", p, &t)
	default:
		t.pod[p].removal = granted
		e := m.happens("the fence grants the removal of", p, &t)
		if m.live(s.claimOf(p)) {
			e.broken = "EXCL-1 the removal of a claimed pod was granted"
		}
	}
	if m.without.unknown { // EXCL-3
		u := *s
		u.pod[p].removal = granted
		m.chance("the fence cannot be asked, which is taken for a grant, about", p, &u)
	}
}

// deleteSteps: the API server deletes the pod if it is as it was seen (EXCL-2).
func (m *machine) deleteSteps(s *state, p int) {
	q := &s.pod[p]
	t := *s
	if q.view != q.shown && !m.without.version {
		t.forgetRemoval(p)
		m.happens("it has changed since it was seen, and is not deleted:", p, &t)
		return
	}
	if !m.d.deletes(q.view, q.removal == lostRegranted) {
		t.forgetRemoval(p)
		m.happens("it shows work, and is not deleted:", p, &t)
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
	t.forgetRemoval(p)
	if e := m.happens("the controller deletes", p, t); broken != "" {
		e.broken = broken
	}
}

func (d *decisions) deletes(v shown, proof bool) bool {
	if proof {
		return d.delete[v][1]
	}
	return d.delete[v][0]
}
