package lifecycle

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/bullpen-ci/bullpen/internal/fleet"
)

// step is something that may happen, more or less often.
type step struct {
	name   string
	weight int
	do     func(*world, *rapid.T)
}

// one does something to one of the pods that pass.
func one(pass func(*world, *pod) bool, do func(*world, *rapid.T, *pod)) func(*world, *rapid.T) {
	return func(w *world, t *rapid.T) {
		if those := w.which(func(p *pod) bool { return pass(w, p) }); len(those) > 0 {
			p := those[pick(t, len(those), "pod")]
			w.story = append(w.story, p.name)
			do(w, t, p)
		}
	}
}

// pick draws one of n evenly: rapid's own ranges prefer small numbers, which would make histories of the first few steps
// only.
func pick(t *rapid.T, n int, what string) int {
	return rapid.Custom(func(t *rapid.T) int {
		i := 0
		for bits := 4; bits > 0 || 1<<(-bits) < n; bits-- {
			if i *= 2; rapid.Bool().Draw(t, "bit") {
				i++
			}
		}
		return i % n
	}).Draw(t, what)
}

func sometimes(t *rapid.T, oneIn int) bool { return pick(t, oneIn, "chance") == oneIn-1 }

func onDeadNode(p *pod) bool { return p.node != nil && p.node.lost && p.node.dead }

// runs reports whether a pod's containers can do something.
func runs(p *pod) bool { return p.booted && !p.ended && !onDeadNode(p) }

func isAny(*world, *pod) bool { return true }

// controllerSteps are the controller's, and what its cache is shown.
var controllerSteps = []step{
	{"pass", 14, func(w *world, t *rapid.T) { w.ctl.pass(w, func() bool { return sometimes(t, 10) }) }},
	{"ask", 10, func(w *world, _ *rapid.T) { w.ctl.ask(w) }},
	{"remove", 12, func(w *world, t *rapid.T) {
		if n := len(w.ctl.doomed); n > 0 {
			w.ctl.remove(w, w.ctl.doomed[pick(t, n, "doomed")])
		}
	}},
	{"cache one", 8, one(isAny, func(w *world, _ *rapid.T, p *pod) { w.ctl.see(w, p.name) })},
	{"cache all", 4, func(w *world, _ *rapid.T) { w.ctl.seeAll(w) }},
}

// runnerSteps are the cluster's and the pods' own.
var runnerSteps = []step{
	{"kubelet one", 8, one(isAny, func(w *world, _ *rapid.T, p *pod) { w.kubelet(p) })},
	{"kubelet all", 4, func(w *world, _ *rapid.T) {
		for _, p := range w.which(func(*pod) bool { return true }) {
			w.kubelet(p)
		}
	}},
	{"place", 10, one(func(_ *world, p *pod) bool { return p.node == nil && !p.ended }, func(w *world, t *rapid.T, p *pod) {
		if free := w.free(); len(free) > 0 {
			w.place(p, free[pick(t, len(free), "node")])
		}
	})},
	{"boot", 10, one(func(_ *world, p *pod) bool {
		return p.node != nil && !p.node.lost && !p.booted && !p.ended
	}, func(w *world, _ *rapid.T, p *pod) { w.boot(p) })},
	{"tick", 6, func(w *world, t *rapid.T) {
		w.tick(time.Duration(rapid.IntRange(1, 60).Draw(t, "seconds")) * time.Second)
	}},
}

// jobSteps are the server's, GitHub's and the jobs'.
var jobSteps = []step{
	{"poll", 8, one(func(_ *world, p *pod) bool { return p.polling && runs(p) }, func(w *world, _ *rapid.T, p *pod) { w.poll(p) })},
	{"mint", 8, one(func(w *world, p *pod) bool {
		return w.rows[p.uid] == fleet.ClaimClaimed && p.polling && runs(p) && !w.outage
	},
		func(w *world, t *rapid.T, p *pod) { w.mint(p, !sometimes(t, 4)) })},
	{"the mint's answer comes late", 3, one(func(w *world, p *pod) bool { return w.rows[p.uid] == fleet.ClaimClaimed && p.reg == alive },
		func(w *world, _ *rapid.T, p *pod) { w.apply(p, fleet.ClaimEventMint) })},
	{"deliver", 8, one(func(w *world, p *pod) bool {
		return w.rows[p.uid] == fleet.ClaimMinted && p.reg == alive && p.polling && runs(p) && !w.outage
	}, func(w *world, _ *rapid.T, p *pod) { w.deliver(p) })},
	{"mint fails", 2, one(func(w *world, p *pod) bool { return w.rows[p.uid] == fleet.ClaimClaimed && p.reg != alive },
		func(w *world, _ *rapid.T, p *pod) { w.apply(p, fleet.ClaimEventMintFails) })},
	{"an earlier mint fails late", 2, one(func(w *world, p *pod) bool {
		return w.rows[p.uid] == fleet.ClaimMinted || w.rows[p.uid] == fleet.ClaimExecuting
	}, func(w *world, _ *rapid.T, p *pod) { w.apply(p, fleet.ClaimEventMintFails) })},
	{"start", 8, one(func(_ *world, p *pod) bool { return p.works() && runs(p) }, func(_ *world, _ *rapid.T, p *pod) { p.executing = true })},
	{"started", 4, one(func(_ *world, p *pod) bool { return p.executing }, func(w *world, _ *rapid.T, p *pod) { w.apply(p, fleet.ClaimEventStarted) })},
	{"end", 6, one(func(_ *world, p *pod) bool { return runs(p) && (p.executing || p.jit && p.reg == gone) },
		func(w *world, _ *rapid.T, p *pod) { w.finish(p) })},
	{"completed", 4, one(func(_ *world, p *pod) bool { return p.ended && p.jit },
		func(w *world, _ *rapid.T, p *pod) { w.apply(p, fleet.ClaimEventCompleted) })},
	{"release", 2, one(func(w *world, p *pod) bool { return w.rows[p.uid].Live() && !w.outage }, func(w *world, _ *rapid.T, p *pod) { w.releaseClaim(p) })},
	{"adopt", 2, one(func(w *world, p *pod) bool { return p.executing && !w.rows[p.uid].Live() && !w.outage },
		func(w *world, _ *rapid.T, p *pod) { w.apply(p, fleet.ClaimEventAdopt) })},
	{"label", 3, one(func(w *world, p *pod) bool { return w.rows[p.uid].Live() && p.shown.signs.PollerEnded && !w.outage },
		func(w *world, _ *rapid.T, p *pod) { w.change(p, func(v *view) { v.signs.Owner = "octo" }) })},
	{"rows of the gone go", 1, func(w *world, _ *rapid.T) { w.forget() }},
}

// faultSteps are what goes wrong.
var faultSteps = []step{
	{"the controller crashes", 2, func(w *world, _ *rapid.T) { w.ctl.restart(w) }},
	{"the clock jumps", 1, func(w *world, t *rapid.T) {
		w.tick(time.Duration(rapid.IntRange(-20, 20).Draw(t, "minutes")) * time.Minute)
	}},
	{"outage", 1, func(w *world, _ *rapid.T) { w.outage = true }},
	{"outage ends", 3, func(w *world, _ *rapid.T) { w.outage = false }},
	{"backup", 1, func(w *world, _ *rapid.T) { w.backup = maps.Clone(w.rows) }},
	{"restore", 1, func(w *world, _ *rapid.T) { w.restore() }},
	{"evidence is in", 4, func(w *world, _ *rapid.T) {
		if w.synced() {
			w.held = false
		}
	}},
	{"cordon", 1, func(w *world, t *rapid.T) {
		node := w.nodes[pick(t, len(w.nodes), "node")]
		node.cordoned = !node.cordoned
	}},
	{"a node is lost", 1, func(w *world, t *rapid.T) {
		w.lose(pick(t, len(w.nodes), "node"), rapid.Bool().Draw(t, "dead"))
	}},
	{"GitHub forgets the dead", 1, one(func(_ *world, p *pod) bool { return onDeadNode(p) && p.reg == alive }, func(_ *world, _ *rapid.T, p *pod) { p.reg = gone })},
	{"somebody deletes", 1, one(func(_ *world, p *pod) bool { return p.shown.signs.Work() == "" && p.shown.deleting.IsZero() },
		func(w *world, t *rapid.T, p *pod) {
			w.change(p, func(v *view) { v.deleting = w.now })
			if sometimes(t, 3) && !p.works() && (p.node == nil || !p.node.lost) { // at once, and its name is taken again
				w.newPod(p.name, p.shown.hash).foreign = true
			}
		})},
	{"one never starts", 1, one(func(_ *world, p *pod) bool { return !p.booted && !p.broken }, func(_ *world, t *rapid.T, p *pod) {
		p.broken, p.ended = true, rapid.Bool().Draw(t, "ends")
	})},
}

// wishSteps edit the spec.
var wishSteps = []step{
	{"scale", 2, func(w *world, t *rapid.T) { w.wish.Desired = rapid.IntRange(0, 6).Draw(t, "desired") }},
	{"roll", 2, func(w *world, t *rapid.T) {
		w.wish.TemplateHash = fmt.Sprintf("t%d", rapid.IntRange(0, 2).Draw(t, "template"))
	}},
	{"limits", 1, func(w *world, t *rapid.T) {
		w.wish.MaxUnavailable, w.wish.MaxSurge = rapid.IntRange(0, 3).Draw(t, "unavailable"), rapid.IntRange(0, 2).Draw(t, "surge")
		w.wish.LimitStarts, w.wish.Starts = rapid.Bool().Draw(t, "limit"), rapid.IntRange(0, 2).Draw(t, "starts")
	}},
	{"time-outs", 1, func(w *world, t *rapid.T) {
		draw := func(name string) time.Duration {
			return time.Duration(rapid.SampledFrom([]int{0, 0, 10, 30}).Draw(t, name)) * time.Minute
		}
		w.wish.StartTimeout, w.wish.UnschedulableTimeout = draw("start"), draw("unschedulable")
		w.wish.IdleTimeout, w.wish.MaxAge = draw("idle"), draw("age")
	}},
	{"hold", 1, func(w *world, t *rapid.T) {
		w.wish.HoldUntil = w.now.Add(time.Duration(rapid.IntRange(0, 60).Draw(t, "seconds")) * time.Second)
	}},
	{"keep", 1, func(w *world, t *rapid.T) {
		w.wish.KeepBooting, w.wish.KeepPending = sometimes(t, 2), sometimes(t, 2)
	}},
	{"pause", 1, func(w *world, t *rapid.T) { w.wish.Paused = sometimes(t, 3) }},
	{"delete the pool", 1, func(w *world, t *rapid.T) { w.wish.Terminating = sometimes(t, 3) }},
}

// walk draws a history of these steps.
func walk(t *rapid.T, w *world, length int, kinds ...[]step) {
	var all []step
	for _, s := range slices.Concat(kinds...) {
		for range s.weight {
			all = append(all, s)
		}
	}
	for range length {
		drawn := pick(t, len(all)+1, "step") - 1
		if drawn < 0 {
			continue // nothing, for a history that can be made short
		}
		w.step++
		w.story = append(w.story, "\n"+all[drawn].name)
		if all[drawn].do(w, t); len(w.broken) > 0 {
			return
		}
	}
}

// require fails when a rule was broken, and tells the story of it.
func (w *world) require(t *rapid.T, id string) {
	if w.broken[id] != "" {
		t.Fatalf("%s: %s, after%s", id, w.broken[id], strings.Join(w.story, " "))
	}
}

// check walks random histories with everything in them and fails when this rule is broken.
func check(t *testing.T, id string) {
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld()
		settle(w, 3)
		walk(t, w, 400, controllerSteps, runnerSteps, jobSteps, faultSteps, wishSteps)
		w.require(t, id)
	})
}

// focus walks histories of a small pool in which these steps alone happen, so often: for what takes many of them in a row.
func focus(t *testing.T, id string, weights map[string]int) {
	var steps []step
	for _, s := range slices.Concat(controllerSteps, runnerSteps, jobSteps, faultSteps, wishSteps) {
		if s.weight = weights[s.name]; s.weight > 0 {
			steps = append(steps, s)
		}
	}
	require.Len(t, steps, len(weights), "a step of that name")
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld()
		w.wish.Desired = 2
		settle(w, 3)
		walk(t, w, 400, steps)
		w.require(t, id)
	})
}

// settle runs all actors for that many rounds: nothing fails, jobs finish, and no new ones arrive.
func settle(w *world, rounds int) {
	for range rounds {
		w.step++
		for _, p := range w.which(func(*pod) bool { return true }) {
			if p.node == nil && !p.ended {
				if free := w.free(); len(free) > 0 {
					w.place(p, free[0])
				}
			} else if p.node != nil && !p.node.lost && !p.booted && !p.ended {
				w.boot(p)
			}
			w.settleJob(p)
			w.kubelet(p)
		}
		w.outage, w.held = false, w.held && !w.synced()
		w.ctl.seeAll(w)
		w.ctl.pass(w, func() bool { return false })
		w.ctl.ask(w)
		for _, name := range slices.Clone(w.ctl.doomed) {
			w.step++
			w.ctl.remove(w, name)
		}
		w.tick(5 * time.Second)
	}
}

// settleJob brings a pod's job to its end, and what the ledger knows of it.
func (w *world) settleJob(p *pod) {
	switch {
	case p.reg == alive && (onDeadNode(p) || !p.jit):
		p.reg = gone // it deregistered, or recovery removed it because no claim is for it
	case p.works() && !p.ended || p.jit && !p.ended && runs(p):
		w.finish(p)
	}
	if p.ended && p.jit {
		w.apply(p, fleet.ClaimEventCompleted)
	}
	if w.rows[p.uid].Live() {
		w.releaseClaim(p)
	}
	if row := w.rows[p.uid]; p.polling && runs(p) && (row == fleet.ClaimSpent || row == fleet.ClaimRetired) {
		w.poll(p)
	}
}
