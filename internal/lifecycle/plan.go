package lifecycle

import (
	"fmt"
	"time"
)

// The classes that a plan looks at.
var (
	booting   = class{stage: StageBooting}
	defective = class{stage: StageBooting, unfit: true}
	idle      = class{stage: StageIdle}
	asked     = class{stage: StageLeaving, removal: RemovalAsked}
	granted   = class{stage: StageLeaving, removal: RemovalGranted}
	deleting  = class{stage: StageLeaving, removal: RemovalDeleting}
	finished  = class{stage: StageFinished}
	lost      = class{stage: StageLost}
)

// MakePlan says what brings the runners closer to the wish at that moment. It is a pure function: the same wish,
// runners and time give the same plan, in the same order. A busy runner is in no plan, whatever is wished (EXCL-4).
func MakePlan(wish Wish, runners *Set, now time.Time) Plan {
	p := planner{wish: wish, runners: runners, now: now, chosen: map[string]bool{}}
	p.removeEnded()
	if wish.Paused {
		return p.plan
	}
	p.deleteGranted()
	if wish.Terminating {
		p.removeAll()
		p.plan.Done = runners.Len() == 0
		return p.plan
	}
	p.count()
	p.create()
	p.removeDefective()
	p.scaleDown()
	p.roll()
	p.withdraw()
	return p.plan
}

type planner struct {
	wish    Wish
	runners *Set
	now     time.Time
	plan    Plan
	// chosen are the runners that this plan wants gone.
	chosen map[string]bool

	present int // runners that hold a place: everything but what has ended or does not go
	serving int // idle and busy runners that nobody wants gone
	old     int // runners of another template that show no work and are not leaving
	surge   int // runners above the desired number that a roll may have now
}

func (p *planner) current(hash string) bool  { return hash == p.wish.TemplateHash }
func (p *planner) outdated(hash string) bool { return hash != p.wish.TemplateHash }

// removeEnded removes what has ended before anything is counted, so that its place is free at once (POOL-4).
func (p *planner) removeEnded() {
	p.runners.each(finished, anyTemplate, func(r Runner) bool {
		p.plan.Delete = append(p.plan.Delete, Action{r, ReasonFinished, "the runner has ended"})
		return true
	})
	p.runners.each(lost, anyTemplate, func(r Runner) bool {
		p.plan.Delete = append(p.plan.Delete, Action{r, ReasonLost, "the runner's node is gone"})
		return true
	})
}

// deleteGranted removes what the fence has granted. A grant is never taken back: the runner will not be given work
// again, so keeping it would only waste its place.
func (p *planner) deleteGranted() {
	p.runners.each(granted, anyTemplate, func(r Runner) bool {
		p.plan.Delete = append(p.plan.Delete, Action{r, ReasonGranted, "the fence has granted the removal"})
		return true
	})
}

// removeAll asks for everything that shows no work (POOL-2).
func (p *planner) removeAll() {
	for _, c := range []class{asked, defective, booting, idle} {
		p.runners.each(c, anyTemplate, func(r Runner) bool {
			p.choose(r, ReasonOwnerDeleted, "the owner is being deleted")
			return true
		})
	}
}

func (p *planner) count() {
	p.serving = p.runners.Count(StageIdle) + p.runners.Count(StageBusy)
	p.present = p.serving + p.runners.Count(StageBooting) + p.runners.Count(StageLeaving) - p.stuck()
	p.old = p.runners.size(booting, p.outdated) + p.runners.size(idle, p.outdated)
	leavingOld := p.runners.size(asked, p.outdated) + p.runners.size(granted, p.outdated) + p.runners.size(deleting, p.outdated)
	p.surge = min(max(p.wish.MaxSurge, 0), p.old+leavingOld)
}

// stuck counts runners whose deletion was accepted long ago and that still do not go: they no longer hold a place.
func (p *planner) stuck() int {
	if p.wish.LeaveTimeout <= 0 {
		return 0
	}
	n := 0
	p.runners.each(deleting, anyTemplate, func(r Runner) bool {
		if deadline := r.Since.Add(p.wish.LeaveTimeout); p.now.Before(deadline) {
			p.plan.lookAt(deadline)
		} else {
			n++
		}
		return true
	})
	return n
}

// create wants exactly what is missing. Runners that were created and not yet observed are in the set, and count.
func (p *planner) create() {
	missing := p.wish.Desired + p.surge - p.present
	if missing <= 0 {
		return
	}
	if p.now.Before(p.wish.HoldUntil) {
		p.plan.Held = missing
		p.plan.lookAt(p.wish.HoldUntil)
		return
	}
	p.plan.Create = missing
	switch {
	case missing > p.wish.Desired-p.present:
		p.plan.CreateReason = ReasonSurge
	case len(p.plan.Delete) > 0:
		p.plan.CreateReason = ReasonReplace
	default:
		p.plan.CreateReason = ReasonScaleUp
	}
}

// choose wants the runner gone: it asks now, or waits until it may ask again.
func (p *planner) choose(r Runner, reason Reason, detail string) {
	// EXCL-4: what shows work, and what was never observed, is nobody's victim.
	if p.chosen[r.Name] || r.Expected || r.Stage == StageBusy || r.Stage == StageBooting && p.wish.KeepBooting {
		return
	}
	p.chosen[r.Name] = true
	if r.Stage == StageIdle {
		p.serving--
	}
	if r.Removal == RemovalAsked && p.now.Before(r.AskAt) {
		p.plan.lookAt(r.AskAt)
		return
	}
	p.plan.Ask = append(p.plan.Ask, Action{r, reason, detail})
}

// removeDefective asks for runners that will never take work, or have not started in time: they hold a place for
// nothing (POOL-6).
func (p *planner) removeDefective() {
	p.runners.each(defective, anyTemplate, func(r Runner) bool {
		p.choose(r, r.Unfit.Reason, r.Unfit.Detail)
		return true
	})
	p.runners.each(asked, anyTemplate, func(r Runner) bool {
		if r.Why == ReasonDefective || r.Why == ReasonStartTimeout {
			p.choose(r, r.Why, "the runner has not become able to take work")
		}
		return true
	})
	if p.wish.StartTimeout <= 0 {
		return
	}
	p.runners.each(booting, anyTemplate, func(r Runner) bool {
		if r.Since.IsZero() || r.Expected {
			return true
		}
		if deadline := r.Since.Add(p.wish.StartTimeout); p.now.Before(deadline) {
			p.plan.lookAt(deadline)
		} else {
			p.choose(r, ReasonStartTimeout, fmt.Sprintf("the runner has been starting for %s", p.now.Sub(r.Since).Round(time.Second)))
		}
		return true
	})
}

// candidates calls visit for those that may go, in order of preference: who was asked for stays the victim (RUN-6), then
// the old template, then booting, then idle, the oldest first.
func (p *planner) candidates(visit func(Runner) bool) {
	more := true
	step := func(r Runner) bool {
		more = visit(r)
		return more
	}
	for _, next := range []struct {
		class class
		keep  func(string) bool
	}{
		{asked, p.outdated}, {asked, anyTemplate},
		{booting, p.outdated}, {idle, p.outdated}, {booting, p.current}, {idle, p.current},
	} {
		if p.runners.each(next.class, next.keep, step); !more {
			return
		}
	}
}

// scaleDown asks for what is above the desired number. What the fence has granted already is on its way.
func (p *planner) scaleDown() {
	gone := p.runners.size(granted, anyTemplate) + p.runners.size(deleting, anyTemplate)
	excess := p.runners.Len() - p.runners.Count(StageFinished) - p.runners.Count(StageLost) - gone - p.wish.Desired - p.surge
	// A defective runner is leaving anyway, and is one of those above the number.
	excess -= len(p.chosen)
	if excess <= 0 {
		return
	}
	p.candidates(func(r Runner) bool {
		before := len(p.chosen)
		p.choose(r, ReasonScaleDown, fmt.Sprintf("%d more than the %d that are wanted", excess, p.wish.Desired))
		if len(p.chosen) > before {
			excess--
		}
		return excess > 0
	})
}

// roll replaces runners of an older template that show no work, within the limits (POOL-5). Those that do not serve yet
// cost nothing to replace; of those that serve, so many that enough go on serving.
func (p *planner) roll() {
	const detail = "the template has changed"
	moving := p.runners.size(granted, anyTemplate) + p.runners.size(deleting, anyTemplate) + len(p.chosen) +
		p.plan.Create + p.plan.Held
	p.runners.each(asked, p.outdated, func(r Runner) bool {
		if !p.chosen[r.Name] {
			moving++
		}
		p.choose(r, ReasonTemplate, detail)
		return true
	})
	p.runners.each(booting, p.outdated, func(r Runner) bool {
		p.choose(r, ReasonTemplate, detail)
		return true
	})
	unavailable := max(p.wish.MaxUnavailable, 0)
	if unavailable == 0 && p.wish.MaxSurge <= 0 {
		unavailable = 1
	}
	room := p.serving - (p.wish.Desired - unavailable)
	if room <= 0 && moving == 0 && !p.starting() {
		room = 1 // a roll always makes progress, also when some of the pool can never start
	}
	if room <= 0 {
		return
	}
	p.runners.each(idle, p.outdated, func(r Runner) bool {
		before := len(p.chosen)
		p.choose(r, ReasonTemplate, detail)
		room -= len(p.chosen) - before
		return room > 0
	})
}

// placementTime is how long a new runner without a node still counts as on its way to serving.
const placementTime = 30 * time.Second

// starting says whether a runner of the current template is on its way to serving: placed, or just created.
func (p *planner) starting() bool {
	found := false
	p.runners.each(booting, p.current, func(r Runner) bool {
		placed := r.Created.Add(placementTime)
		found = !r.Since.IsZero() || r.Expected || p.now.Before(placed)
		if found && r.Since.IsZero() {
			p.plan.lookAt(placed)
		}
		return !found
	})
	return found
}

// withdraw gives up requests that were not granted and that nothing wants any more.
func (p *planner) withdraw() {
	p.runners.each(asked, anyTemplate, func(r Runner) bool {
		if !p.chosen[r.Name] {
			p.plan.Withdraw = append(p.plan.Withdraw, Action{r, ReasonWanted, "the runner is wanted again"})
		}
		return true
	})
}
