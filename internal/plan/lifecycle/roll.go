package lifecycle

import (
	"fmt"
	"time"
)

// stale says why a runner that shows no work is replaced within the limits of a roll.
func (p *planner) stale(r Runner) (Unfit, bool) {
	shown, since := r.shows()
	switch {
	case r.TemplateHash != p.wish.TemplateHash && !r.ImagesMissing:
		return Unfit{ReasonTemplate, "the template has changed"}, true
	case r.Doubt != (Unfit{}):
		return r.Doubt, true
	case p.past(r.Created, p.wish.MaxAge):
		return Unfit{ReasonMaxAge, fmt.Sprintf("the runner is %s old", p.passed(r.Created))}, true
	case shown == StageIdle && p.past(since, p.wish.IdleTimeout):
		return Unfit{ReasonIdleTimeout, fmt.Sprintf("the runner has been idle for %s", p.passed(since))}, true
	default:
		return Unfit{}, false
	}
}

// not is the filter for the groups that this one does not pick.
func (f filter) not() filter { return func(g group) bool { return !f(g) } }

// toReplace counts the runners that a roll will replace now or is replacing. One that is too old and idle for too long may be
// counted once for another that is either: a surge too small by some only takes another step.
func (p *planner) toReplace() int {
	others := filter(p.due).not()
	n := p.runners.size(of(booting, p.due)) + p.runners.size(of(idle, p.due)) + p.going(p.outdated)
	oldBooting, _ := p.overdue(of(booting, others), byAge, p.wish.MaxAge)
	oldIdle, _ := p.overdue(of(idle, others), byAge, p.wish.MaxAge)
	tired, _ := p.overdue(of(waiting, others), bySince, p.wish.IdleTimeout)
	n += oldBooting + max(oldIdle, tired)
	p.runners.each(asked, byAge, func(r Runner) bool {
		if _, is := p.stale(r); is {
			n++
		}
		return true
	})
	return n
}

// eachStale calls visit for the runners that a roll replaces, in order of preference, until visit returns false: those
// that are first (of an older template or in doubt), then those that are too old, then those that have been idle for too long.
func (p *planner) eachStale(those, first filter, visit func(Runner) bool) bool {
	more := true
	p.runners.each(of(those, first), byAge, func(r Runner) bool {
		more = visit(r)
		return more
	})
	for _, clock := range []struct {
		order   order
		timeout time.Duration
		those   filter
	}{{byAge, p.wish.MaxAge, those}, {bySince, p.wish.IdleTimeout, of(those, waiting)}} {
		if !more || clock.timeout <= 0 {
			continue
		}
		overdue := of(clock.those, first.not())
		if due := p.runners.sizeUntil(overdue, clock.order, p.now.Add(-clock.timeout)); due > 0 {
			p.runners.each(overdue, clock.order, func(r Runner) bool {
				due--
				more = visit(r)
				return more && due > 0
			})
		}
	}
	return more
}

// candidates calls visit for the runners that may be removed, in order of preference: first those that were asked for (RUN-6), then those
// that a roll would replace, then starting ones, then idle ones. Within each, those on the emptiest nodes come first, and of those the
// oldest (SCALE-5). Where pending runners are kept, idle ones are removed only as far as enough of them are left without those.
func (p *planner) candidates(visit func(Runner) bool) {
	more := true
	step := func(r Runner) bool {
		more = visit(r)
		return more
	}
	all := func(those filter) bool {
		p.runners.each(those, byAge, step)
		return more
	}
	spare, serving := p.free(), step
	if p.wish.KeepBooting || p.wish.KeepPending {
		spare = unplaced
		serving = func(r Runner) bool { return p.serving > p.wish.Desired && step(r) }
	}
	stale := func(those filter) eachRunner {
		return func(visit func(Runner) bool) { p.eachStale(those, p.outdated, visit) }
	}
	every := func(those filter) eachRunner {
		return func(visit func(Runner) bool) { p.runners.each(those, byAge, visit) }
	}
	_ = all(of(asked, p.outdated)) && all(asked) &&
		p.emptiestFirst(stale(p.free()), step) && p.emptiestFirst(stale(idle), serving) &&
		p.emptiestFirst(every(spare), step)
	if more {
		p.emptiestFirst(every(idle), serving)
	}
}

// free are the booting runners that may go for the sake of a number or of a template. Those that are past a timeout are
// among them by then: they are unfit.
func (p *planner) free() filter {
	if p.wish.KeepBooting {
		return unplaced
	}
	return booting
}

// scaleDown asks for the removal of surplus runners. Those that the fence has granted already count.
func (p *planner) scaleDown() {
	gone := p.runners.size(granted) + p.runners.size(leaver) + p.runners.size(deleting)
	excess := p.runners.Len() - p.runners.Count(StageFinished) - p.runners.Count(StageLost) - gone - p.wish.Desired - p.surge
	// An unfit runner is leaving anyway, and is one of those above the number.
	excess -= len(p.chosen)
	if excess <= 0 {
		return
	}
	why := Unfit{ReasonScaleDown, fmt.Sprintf("%d more than the %d desired", excess, p.wish.Desired)}
	p.candidates(func(r Runner) bool {
		if p.choose(r, why) {
			excess--
		}
		return excess > 0
	})
}

// roll replaces runners of an older template, and those that are too old or have been idle for too long, within the limits (POOL-5). Those
// that do not serve yet cost nothing to replace. Of the serving ones it takes only as many that enough remain, and no more than can be
// replaced now.
func (p *planner) roll() {
	moving := p.going(anyone) + len(p.chosen) + p.plan.Create + p.plan.Delayed + p.plan.Refused
	p.runners.each(asked, byAge, func(r Runner) bool {
		if why, is := p.stale(r); is {
			if p.choose(r, why) {
				moving++
				p.plan.Rolled++
			}
		}
		return true
	})
	replace := func(r Runner) bool {
		why, _ := p.stale(r)
		return p.choose(r, why)
	}
	p.eachStale(p.free(), p.due, func(r Runner) bool {
		replace(r)
		return true
	})
	room := p.room(moving)
	if room <= 0 {
		return
	}
	p.eachStale(idle, p.due, func(r Runner) bool {
		if replace(r) {
			room--
			p.plan.Rolled++
		}
		return room > 0
	})
}

// room is how many serving runners a roll may take now.
func (p *planner) room(moving int) int {
	unavailable := max(p.wish.MaxUnavailable, 0)
	if unavailable == 0 && p.wish.MaxSurge <= 0 {
		unavailable = 1
	}
	room := p.serving - (p.wish.Desired - unavailable)
	if room <= 0 && moving == 0 && p.proven() && !p.starting() {
		room = 1 // a roll always makes progress, also when nodes have room for a part of the pool only
	}
	// A runner without a replacement stays: a roll never makes a pool smaller. Runners above the desired number are their own replacement.
	above := p.staying - p.wish.Desired
	switch {
	case room <= 0:
		return 0
	case room > above && p.held():
		return above
	case p.wish.LimitStarts:
		return min(room, above+max(p.wish.Starts, 0)-p.plan.Create)
	default:
		return room
	}
}

// proven reports whether the current template is known to start somewhere. Beyond its limits a roll continues only then:
// a template that no node can take would otherwise end a pool one by one.
func (p *planner) proven() bool {
	return p.runners.size(of(p.current, func(g group) bool { return g.stage == StageIdle || g.stage == StageBusy })) > 0
}

// placementTime is how long a new runner without a node still counts as on its way to serving.
const placementTime = 30 * time.Second

// starting reports whether a runner of the current template is on its way to serving: placed, or just created.
func (p *planner) starting() bool {
	expected := func(g group) bool { return g.stage == StageStarting && g.expected }
	if p.runners.size(expected) > 0 || p.runners.size(of(starting, p.current)) > 0 {
		return true
	}
	newest := p.runners.newest(of(unplaced, p.current))
	if newest.IsZero() || !p.now.Before(newest.Add(placementTime)) {
		return false
	}
	p.plan.lookAt(newest.Add(placementTime))
	return true
}
