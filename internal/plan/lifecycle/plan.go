package lifecycle

import (
	"fmt"
	"time"
)

// The runners that a plan considers. One that was never observed is in none of them.
var (
	booting  filter = func(g group) bool { return g.stage == StageStarting && !g.unfit && !g.expected }
	unplaced filter = func(g group) bool { return booting(g) && !g.timed }
	anyone   filter = func(group) bool { return true }
	starting filter = func(g group) bool { return booting(g) && g.timed }
	idle     filter = func(g group) bool { return g.stage == StageIdle && !g.unfit && !g.expected }
	waiting  filter = func(g group) bool { return idle(g) && g.timed }
	unfit    filter = func(g group) bool { return g.unfit && !g.expected }
	asked    filter = func(g group) bool { return g.stage == StageTerminating && g.removal == RemovalAsked }
	granted  filter = func(g group) bool { return g.stage == StageTerminating && g.removal == RemovalGranted }
	// leaver shows work although the fence has granted it: usually its poller has received the grant and exited. It
	// gets no more work and exits on its own; until then it is not deleted (EXCL-4).
	leaver   filter = func(g group) bool { return g.stage == StageBusy && g.removal == RemovalGranted }
	deleting filter = func(g group) bool { return g.stage == StageTerminating && g.removal == RemovalDeleting }
	finished filter = func(g group) bool { return g.stage == StageFinished }
	// For lost runners, a grant decides as for any other (POOL-7).
	lost        filter = func(g group) bool { return g.stage == StageLost && g.removal < RemovalGranted }
	lostGranted filter = func(g group) bool { return g.stage == StageLost && g.removal == RemovalGranted }
)

// MakePlan says what brings the runners closer to the desired state at that moment. It is a pure function: the same
// wish, runners and time give the same plan, in the same order. A busy runner is in no plan (EXCL-4).
func MakePlan(wish Wish, runners *Set, now time.Time) Plan {
	p := planner{wish: wish, runners: runners, now: now, chosen: map[string]bool{}}
	p.removeEnded()
	p.removeLost()
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
	p.removeUnfit()
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
	// chosen are the runners that this plan wants gone, beside those that have ended or are lost.
	chosen map[string]bool

	present int // runners that hold a place: everything but what has ended, is lost or does not go
	serving int // idle and busy runners that have no reason to go and were not granted
	staying int // those, and booting ones that have no reason to go
	surge   int // runners above the desired number that a roll may have now

	nodes map[string]Load // see loads
}

// outdated are the runners that a roll replaces whatever their clocks say: those of another template, and doubtful ones.
func (p *planner) outdated(g group) bool { return g.hash != p.wish.TemplateHash || g.doubt }
func (p *planner) current(g group) bool  { return !p.outdated(g) }

// due are the outdated runners that a roll may take now: serving ones keep their template while their node lacks the images of the new one.
func (p *planner) due(g group) bool { return p.outdated(g) && (!g.imageless || g.doubt) }

// removeEnded removes what has ended before anything is counted, so that its place is free at once (POOL-4).
func (p *planner) removeEnded() {
	p.runners.each(finished, byAge, func(r Runner) bool {
		p.plan.Delete = append(p.plan.Delete, Action{r, ReasonFinished, "the runner exited"})
		return true
	})
}

// removeLost asks for what is lost, and removes what was granted of it (POOL-7). Lost runners hold no place, granted or
// not: the capacity went with the node, and their replacement does not wait (POOL-4). Until the fence has proof there
// may be more runners than desired, at most by the lost ones.
func (p *planner) removeLost() {
	why := func(r Runner) Unfit {
		if r.Unfit != (Unfit{}) {
			return r.Unfit
		}
		return Unfit{ReasonLost, "the runner's node is gone"}
	}
	p.runners.each(lostGranted, byAge, func(r Runner) bool {
		p.plan.Delete = append(p.plan.Delete, Action{r, why(r).Reason, why(r).Detail + ", and the fence has granted the removal"})
		return true
	})
	p.runners.each(lost, byAge, func(r Runner) bool {
		p.ask(r, why(r))
		return true
	})
}

// deleteGranted removes what the fence has granted. A grant is never taken back: the runner will not be given work
// again, so keeping it would only waste its place.
func (p *planner) deleteGranted() {
	p.runners.each(granted, byAge, func(r Runner) bool {
		p.plan.Delete = append(p.plan.Delete, Action{r, ReasonGranted, "the fence has granted the removal"})
		return true
	})
}

// removeAll asks for everything that shows no work (POOL-2).
func (p *planner) removeAll() {
	for _, those := range []filter{asked, unfit, booting, idle} {
		p.runners.each(those, byAge, func(r Runner) bool {
			p.choose(r, Unfit{ReasonOwnerDeleted, "the owner is being deleted"})
			return true
		})
	}
}

func (p *planner) count() {
	leavers := p.runners.size(leaver)
	p.serving = p.runners.Count(StageIdle) + p.runners.Count(StageBusy) - leavers // POOL-5: they no longer serve
	p.staying = p.serving + p.runners.Count(StageStarting)
	p.present = p.staying + leavers + p.runners.Count(StageTerminating) - p.stuck(anyone)
	p.surge = min(max(p.wish.MaxSurge, 0), p.toReplace())
}

// stuck counts those of these runners whose deletion was accepted long ago and that still do not go: they no longer hold a place.
func (p *planner) stuck(those filter) int {
	n, _ := p.overdue(of(deleting, those), bySince, p.wish.LeaveTimeout)
	return n
}

// going is how many of these runners the fence has granted and that are on their way out.
func (p *planner) going(those filter) int {
	return p.runners.size(of(granted, those)) + p.runners.size(of(leaver, those)) + p.runners.size(of(deleting, those)) - p.stuck(those)
}

// overdue is how many of these runners have a clock that began longer ago than the timeout, and until when it began. It
// schedules the next plan for when the next one is due.
func (p *planner) overdue(those filter, o order, timeout time.Duration) (n int, limit time.Time) {
	if timeout <= 0 {
		return 0, limit
	}
	limit = p.now.Add(-timeout)
	if next := p.runners.nextAfter(those, o, limit); !next.IsZero() {
		p.plan.lookAt(next.Add(timeout))
	}
	return p.runners.sizeUntil(those, o, limit), limit
}

// create wants exactly what is missing. Runners that were created and not yet observed are in the set, and count.
func (p *planner) create() {
	missing := p.wish.Desired + p.surge - p.present
	if missing <= 0 {
		return
	}
	if p.held() {
		p.plan.Delayed = missing
		return
	}
	if p.plan.Create = missing; p.wish.LimitStarts {
		p.plan.Create = min(missing, max(p.wish.Starts, 0))
		p.plan.Refused = missing - p.plan.Create
	}
	switch {
	case p.plan.Create == 0:
	case p.plan.Create > p.wish.Desired-p.present:
		p.plan.CreateReason = ReasonSurge
	case len(p.plan.Delete) > 0:
		p.plan.CreateReason = ReasonReplace
	default:
		p.plan.CreateReason = ReasonScaleUp
	}
	p.staying += p.plan.Create
}

// held reports whether creations are put off.
func (p *planner) held() bool {
	if !p.now.Before(p.wish.HoldUntil) {
		return false
	}
	p.plan.lookAt(p.wish.HoldUntil)
	return true
}

// choose wants the runner gone, and reports whether that is new.
func (p *planner) choose(r Runner, why Unfit) bool {
	shown, since := r.shows()
	// EXCL-4: a runner that shows work, was never observed, or may get a job before that can be seen is never a victim.
	if p.chosen[r.Name] || r.Expected || shown == StageBusy {
		return false
	}
	if p.registers(r) {
		if p.wish.StartTimeout > 0 {
			p.plan.lookAt(since.Add(p.wish.StartTimeout))
		}
		return false
	}
	p.chosen[r.Name] = true
	switch r.Stage {
	case StageIdle:
		p.serving--
		p.staying--
	case StageStarting:
		p.staying--
	}
	p.ask(r, why)
	return true
}

// registers reports whether the runner is on its way to register itself: a node has taken it, and its time is not over. Until then
// the fence may know nothing of it, although a job is about to reach it. One that no node has taken has started nothing.
func (p *planner) registers(r Runner) bool {
	shown, since := r.shows()
	return p.wish.KeepBooting && shown == StageStarting && !since.IsZero() &&
		!p.past(since, p.wish.StartTimeout) && r.Unfit.Reason != ReasonRegistrationTimeout
}

// ask asks the fence now, or waits until it may be asked again.
func (p *planner) ask(r Runner, why Unfit) {
	if r.Removal <= RemovalAsked && p.now.Before(r.AskAt) {
		p.plan.lookAt(r.AskAt)
		return
	}
	p.plan.Ask = append(p.plan.Ask, Action{r, why.Reason, why.Detail})
}

// removeUnfit asks for runners that should go at once, whatever the number is and outside the limits of a roll: they hold
// a place for nothing (POOL-6), or their node is being emptied. Each plan finds the reason again, also for those that were
// asked for: when it has passed, the request is withdrawn.
func (p *planner) removeUnfit() {
	visit := func(r Runner) bool {
		if why, is := p.unfit(r); is {
			p.choose(r, why)
		}
		return true
	}
	p.runners.each(asked, byAge, visit)
	p.runners.each(unfit, byAge, visit)
	for _, clock := range []struct {
		those   filter
		order   order
		timeout time.Duration
	}{{starting, bySince, p.wish.StartTimeout}, {unplaced, byAge, p.wish.UnschedulableTimeout}} {
		if due, _ := p.overdue(clock.those, clock.order, clock.timeout); due > 0 {
			p.runners.each(clock.those, clock.order, func(r Runner) bool {
				due--
				return visit(r) && due > 0
			})
		}
	}
}

// unfit says why a runner that shows no work should go at once.
func (p *planner) unfit(r Runner) (Unfit, bool) {
	shown, since := r.shows()
	switch {
	case r.Unfit != (Unfit{}):
		return r.Unfit, true
	case shown != StageStarting:
		return Unfit{}, false
	case since.IsZero():
		return Unfit{ReasonUnschedulable, fmt.Sprintf("the runner has not been scheduled for %s%s", p.passed(r.Created), waitingFor(r))},
			p.past(r.Created, p.wish.UnschedulableTimeout)
	default:
		return Unfit{ReasonStartTimeout, fmt.Sprintf("the runner has been starting for %s%s", p.passed(since), waitingFor(r))},
			p.past(since, p.wish.StartTimeout)
	}
}

func waitingFor(r Runner) string {
	if r.Waiting == "" {
		return ""
	}
	return "; waiting for: " + r.Waiting
}

// past reports whether that timeout of a clock that began then is over.
func (p *planner) past(begin time.Time, timeout time.Duration) bool {
	return timeout > 0 && !begin.IsZero() && !p.now.Before(begin.Add(timeout))
}

func (p *planner) passed(begin time.Time) time.Duration { return p.now.Sub(begin).Round(time.Second) }

// withdraw withdraws requests that were not granted and that have no reason any longer. That is always safe: until the fence grants, the
// runner can be given work.
func (p *planner) withdraw() {
	p.runners.each(asked, byAge, func(r Runner) bool {
		if !p.chosen[r.Name] {
			p.plan.Withdraw = append(p.plan.Withdraw, Action{r, ReasonWanted, "the runner is needed again"})
		}
		return true
	})
}
