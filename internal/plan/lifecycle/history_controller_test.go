package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"
)

var errConflict = errors.New("it has changed since it was observed")

// known is what the controller knows of one runner.
type known struct {
	view      view
	observed  bool
	uid, hash string
	created   time.Time

	leave Leave
	grant Grant
}

// controller is an observer, the engine, and an actor. All of it is lost in a crash.
type controller struct {
	members map[string]*known
	asks    []Action // put to the fence, and not answered yet
	doomed  []string // to be deleted
}

// restart is a crash, and a new start with a fresh list.
func (c *controller) restart(w *world) {
	*c = controller{members: map[string]*known{}}
	for name := range w.pods {
		c.see(w, name)
	}
}

// see brings the cache up to date for one name.
func (c *controller) see(w *world, name string) {
	p, exists := w.pods[name]
	if !exists {
		delete(c.members, name)
		return
	}
	m := c.members[name]
	if m == nil || m.uid != p.uid {
		m = &known{uid: p.uid}
		c.members[name] = m
	}
	m.view, m.observed, m.hash, m.created = p.shown, true, p.shown.hash, p.shown.created
}

func (c *controller) seeAll(w *world) {
	for _, name := range slices.Concat(slices.Collect(maps.Keys(w.pods)), slices.Collect(maps.Keys(c.members))) {
		c.see(w, name)
	}
}

// runner is the engine's view of a member.
func (m *known) runner(name string, now time.Time) Runner {
	r := Runner{Name: name, UID: m.uid, TemplateHash: m.hash, Created: m.created}
	v := m.view
	switch {
	case !m.observed:
		r.Stage, r.Expected = StageStarting, true
	case v.ended:
		r.Stage = StageFinished
	case v.node != nil && v.node.lost:
		r.Stage, r.Removal, r.Why, r.AskAt = StageLost, m.leave.Removal, m.leave.Why, m.leave.AskAt
		if m.leave.Deleted {
			r.Removal = RemovalDeleting
		}
	case v.signs.Work() != "" || m.leave.SaidBusy(0, now): // EXCL-4
		r.Stage = StageBusy
	case m.leave.Deleted || !v.deleting.IsZero():
		r.Stage, r.Removal, r.Since = StageTerminating, RemovalDeleting, m.leave.Since
		if !v.deleting.IsZero() {
			r.Since = v.deleting
		}
	default:
		r.Stage, r.Since = StageStarting, v.placed
		if !v.ready.IsZero() {
			r.Stage, r.Since = StageIdle, v.ready
		}
		switch {
		case v.defect:
			r.Unfit = Unfit{ReasonDefective, "it is broken"}
		case v.node != nil && v.node.cordoned:
			r.Unfit = Unfit{ReasonNodeCordoned, "its node is cordoned"}
		}
		m.leave.Overlay(&r)
	}
	return r
}

// pass makes a plan and records what is about to be done.
func (c *controller) pass(w *world, refused func() bool) Plan {
	set := NewSet()
	for name, m := range c.members {
		set.Put(m.runner(name, w.now))
	}
	plan := MakePlan(w.wish, set, w.now)
	w.checkPlan(plan, set)
	for _, a := range plan.Withdraw {
		c.members[a.Runner.Name].leave.Withdraw()
	}
	if len(c.asks) == 0 {
		c.asks = plan.Ask
		for _, a := range plan.Ask {
			c.members[a.Runner.Name].leave.Ask(a, ServerPace(), w.now)
		}
	}
	for _, a := range plan.Delete {
		if !slices.Contains(c.doomed, a.Runner.Name) {
			c.doomed = append(c.doomed, a.Runner.Name)
		}
	}
	for range plan.Create {
		if refused() {
			continue
		}
		p := w.newPod(fmt.Sprintf("r%04d", w.made), w.wish.TemplateHash)
		c.members[p.name] = &known{uid: p.uid, hash: p.shown.hash, created: w.now}
	}
	return plan
}

// ask puts the questions of the last plan to the fence.
func (c *controller) ask(w *world) {
	asks := c.asks
	c.asks = nil
	refs := make([]RunnerRef, len(asks))
	for i, a := range asks {
		refs[i] = a.Runner.Ref("ns", "pool")
	}
	c.answered(w, asks, w.Ask(context.Background(), refs))
}

func (c *controller) answered(w *world, asks []Action, answers []Answer) {
	for i, a := range asks {
		m := c.members[a.Runner.Name]
		if m == nil || m.uid != a.Runner.UID {
			continue
		}
		m.leave.Answered(answers[i], a.Reason, 0, ServerPace(), w.now)
		m.grant = Grant{}
		if m.leave.Removal == RemovalGranted {
			m.grant = Grant{UID: a.Runner.UID, Proof: m.leave.Proof}
		}
	}
}

// remove carries out one deletion, with what the cache shows.
func (c *controller) remove(w *world, name string) {
	c.doomed = slices.DeleteFunc(c.doomed, func(n string) bool { return n == name })
	m := c.members[name]
	if m == nil || !m.observed {
		return
	}
	r := m.runner(name, w.now)
	observed := Observed{UID: m.uid, Ended: m.view.ended, Signs: m.view.signs}
	answer, err := Remove(context.Background(), w, r.Ref("ns", "pool"), observed, m.grant, func(context.Context) error {
		return w.remove(m.view)
	})
	switch {
	case err == nil:
		m.leave.Accepted(w.now)
	case errors.Is(err, ErrNotNow):
		c.answered(w, []Action{{Runner: r}}, []Answer{answer})
	case errors.Is(err, errConflict):
		c.see(w, name)
	}
}

// checkPlan checks a plan against the rules about plans.
func (w *world) checkPlan(plan Plan, set *Set) {
	for _, a := range slices.Concat(plan.Ask, plan.Delete, plan.Withdraw) {
		if a.Runner.Stage == StageBusy || a.Runner.Expected {
			w.violate("EXCL-4", "%s is %s and in a plan", a.Runner.Name, a.Runner.Stage)
		}
	}
	for _, a := range plan.Delete {
		if a.Runner.Stage != StageFinished && a.Runner.Removal != RemovalGranted {
			w.violate("EXCL-2", "%s is %s, was not granted, and is to be deleted", a.Runner.Name, a.Runner.Stage)
		}
	}
	for _, a := range plan.Ask {
		stage, since := a.Runner.shows()
		late := w.wish.StartTimeout > 0 && w.now.Sub(since) >= w.wish.StartTimeout
		if w.wish.KeepBooting && stage == StageStarting && !since.IsZero() && !late {
			w.violate("RUN-2", "%s is registering itself, and asked for", a.Runner.Name)
		}
	}
	w.checkCreations(plan)
	w.checkRoll(plan, set)
}

// checkCreations: never more than the desired number and the surge, by what there is and not by what is seen (SCALE-3).
func (w *world) checkCreations(plan Plan) {
	here := len(w.which(func(p *pod) bool {
		stuck := !p.shown.deleting.IsZero() && !w.now.Before(p.shown.deleting.Add(w.wish.LeaveTimeout))
		return !p.ended && !p.foreign && !stuck && (p.node == nil || !p.node.lost)
	}))
	if most := w.wish.Desired + w.wish.MaxSurge; plan.Create > 0 && here+plan.Create > most {
		w.violate("SCALE-3", "%d are created beside %d: more than %d", plan.Create, here, most)
	}
	if w.wish.LimitStarts && plan.Create > w.wish.Starts {
		w.violate("SCALE-3", "%d are created, and %d may be started", plan.Create, w.wish.Starts)
	}
}

// checkRoll: what a roll takes of the serving leaves enough of them, and room to replace it (POOL-5).
func (w *world) checkRoll(plan Plan, set *Set) {
	asked, rolled := map[string]bool{}, 0
	for _, a := range plan.Ask {
		asked[a.Runner.Name] = true
		roll := a.Reason == ReasonTemplate || a.Reason == ReasonMaxAge || a.Reason == ReasonIdleTimeout
		if a.Runner.Stage == StageIdle && roll {
			rolled++
		}
	}
	if rolled == 0 {
		return
	}
	w.rollSeen++
	withdrawn := map[string]bool{}
	for _, a := range plan.Withdraw {
		withdrawn[a.Runner.Name] = true
	}
	serving, booting, moving := 0, 0, plan.Create+plan.Delayed+plan.Refused
	for _, name := range set.Names() {
		switch r, _ := set.Get(name); {
		case withdrawn[name] && r.Shown == StageIdle:
			serving++
		case r.Stage == StageTerminating && !withdrawn[name]:
			moving++
		case asked[name] || r.Stage == StageFinished || r.Stage == StageLost:
		case r.Stage == StageIdle || r.Stage == StageBusy:
			serving++
		default:
			booting++
		}
	}
	least := w.wish.Desired - w.wish.MaxUnavailable
	if w.wish.MaxUnavailable == 0 && w.wish.MaxSurge == 0 {
		least--
	}
	if serving < least && (rolled > 1 || moving > 0) {
		w.violate("POOL-5", "a roll takes %d and leaves %d of %d serving: %+v", rolled, serving, w.wish.Desired, plan)
	}
	later := 0 // what can be started to replace what goes
	if !w.now.Before(w.wish.HoldUntil) {
		if later = w.wish.Desired; w.wish.LimitStarts {
			later = w.wish.Starts - plan.Create
		}
	}
	if stays := serving + booting + plan.Create; stays+later < w.wish.Desired {
		w.violate("POOL-5", "a roll takes %d, %d stay of %d and %d can be started", rolled, stays, w.wish.Desired, later)
	}
}
