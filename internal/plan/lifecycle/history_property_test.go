package lifecycle

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/bullpen-ci/bullpen/internal/fleet"
)

// These walk random histories of a whole fleet: the planner, Remove and the ledger's table are the product's, all else is
// the small world of history_world_test.go. It has stale caches, crashes, clocks that jump, spec edits, outages of the
// fence, rows that are lost, and nodes that are cordoned or gone.

// Claim and retire exclude each other: no pod is both served and granted.
func TestHistory_EXCL1_NoPodIsServedAndGranted(t *testing.T) { check(t, "EXCL-1") }

// Nothing that has not ended is deleted without a grant that was given right before.
func TestHistory_EXCL2_NothingGoesWithoutAGrantRightBefore(t *testing.T) { check(t, "EXCL-2") }

// Nor a pod that has taken the name of one that was granted.
func TestHistory_EXCL2_AGrantIsForOnePodAndNotForItsName(t *testing.T) {
	focus(t, "EXCL-2", map[string]int{
		"pass": 6, "ask": 6, "remove": 3, "cache one": 6, "place": 4, "boot": 4, "kubelet one": 4, "scale": 3, "somebody deletes": 4,
	})
}

// A fence that cannot be asked deletes nothing.
func TestHistory_EXCL3_UnknownDeletesNothing(t *testing.T) { check(t, "EXCL-3") }

// No pod with a job is deleted by us, also when its row was lost.
func TestHistory_EXCL4_NoPodWithAJobIsDeleted(t *testing.T) { check(t, "EXCL-4") }

// Nor when rows are lost again and again while caches are stale.
func TestHistory_EXCL4_LostRowsDeleteNoPodWithAJob(t *testing.T) {
	focus(t, "EXCL-4", map[string]int{
		"pass": 6, "ask": 6, "remove": 5, "cache one": 3, "place": 4, "boot": 4, "kubelet one": 8, "scale": 4,
		"poll": 6, "mint": 6, "deliver": 6, "restore": 5, "evidence is in": 8,
	})
}

// A retired or spent pod is never served, a claimed one never retired, one that is being deleted never claimed.
func TestHistory_EXCL5_OwnedPodsStayOwned(t *testing.T) { check(t, "EXCL-5") }

// No claim ends while a registration minted for it may be alive.
func TestHistory_EXCL6_NoClaimEndsBeforeItsRegistration(t *testing.T) { check(t, "EXCL-6") }

// A self-registering runner that is about to register is never a victim.
func TestHistory_RUN2_WhatRegistersItselfIsNotAskedFor(t *testing.T) { check(t, "RUN-2") }

// A roll keeps to its limits at every step, and never takes what cannot be replaced.
func TestHistory_POOL5_RollsKeepToTheirLimits(t *testing.T) { check(t, "POOL-5") }

// There are never more creations than the desired number and the surge leave room for, whatever the cache shows.
func TestHistory_SCALE3_NeverMoreThanDesired(t *testing.T) { check(t, "SCALE-3") }

// Whatever has happened: when faults stop, the pool reaches the desired number of the desired template, and a deleted
// pool reaches zero.
func TestHistory_POOL5_SCALE3_ConvergesWhenFaultsStop(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld()
		walk(t, w, 150, controllerSteps, runnerSteps, jobSteps, faultSteps, wishSteps)
		w.now, w.wish.Paused, w.wish.Starts = w.latest, false, max(w.wish.Starts, 1)
		w.nodes[0].cordoned = false // one of them has room
		if w.wish.KeepBooting {
			w.wish.StartTimeout = time.Minute // protected runners are removed after it
		}
		for range 100 {
			if settle(w, 1); w.asDesired() {
				return
			}
		}
		t.Fatalf("the pool does not come to %+v: %s after%s", w.wish, w.describe(), strings.Join(w.story, " "))
	})
}

// Without faults, and with only a roll in progress, enough runners serve at every moment, by what exists and not by what
// is seen.
func TestHistory_POOL5_ARollAloneKeepsEnoughServing(t *testing.T) {
	rolls := 0
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld()
		w.wish.Desired = 1 + pick(t, 8, "desired")
		w.wish.MaxUnavailable, w.wish.MaxSurge = pick(t, 4, "unavailable"), pick(t, 3, "surge")
		settle(w, 4)
		require.True(t, w.asDesired(), w.describe())
		least := w.wish.Desired - w.wish.MaxUnavailable
		if w.wish.MaxUnavailable == 0 && w.wish.MaxSurge == 0 {
			least--
		}
		calm := append([]step{}, controllerSteps...)
		calm = append(calm, runnerSteps[:4]...)
		calm = append(calm, step{"roll", 2, func(w *world, _ *rapid.T) {
			w.wish.TemplateHash = fmt.Sprintf("t%d", w.step) // always another: nothing is wanted again
		}}, step{"serving", 10, func(w *world, _ *rapid.T) {
			serving := len(w.which(func(p *pod) bool { return p.polling && w.rows[p.uid] == fleet.ClaimNone }))
			if serving < least {
				w.violate("POOL-5", "%d serve, and at least %d should", serving, least)
			}
		}})
		walk(t, w, 250, calm)
		rolls += w.rollSeen
		w.require(t, "POOL-5")
	})
	require.NotZero(t, rolls, "no history had a roll in it")
}

// A roll under a limit of starts, and one by age and idleness, end too.
func TestHistory_POOL5_AgeEndsInARoll(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld()
		w.wish.IdleTimeout = time.Duration(rapid.IntRange(0, 1).Draw(t, "idle")) * 20 * time.Minute
		w.wish.MaxAge = 30 * time.Minute
		w.wish.LimitStarts, w.wish.Starts = rapid.Bool().Draw(t, "limit"), 1
		settle(w, 10)
		before := w.latest
		w.tick(40 * time.Minute)
		settle(w, 30)
		require.Empty(t, w.which(func(p *pod) bool { return p.shown.created.Before(before) }), w.describe())
		require.True(t, w.asDesired(), w.describe())
		require.Empty(t, w.broken)
	})
}

// asDesired reports whether the pool is what its wish says, and nothing else is left.
func (w *world) asDesired() bool {
	if w.wish.Terminating {
		return len(w.pods) == 0
	}
	right := len(w.which(func(p *pod) bool {
		return p.polling && p.shown.hash == w.wish.TemplateHash && !p.shown.ready.IsZero() && p.shown.deleting.IsZero() &&
			!p.node.lost && !p.node.cordoned && w.rows[p.uid] == fleet.ClaimNone
	}))
	return right == w.wish.Desired && len(w.pods) == right
}

func (w *world) describe() string {
	text := ""
	for _, p := range w.which(func(*pod) bool { return true }) {
		stage := "unknown"
		if m := w.ctl.members[p.name]; m != nil {
			stage = m.runner(p.name, w.now).Stage.String()
		}
		text += p.name + " " + p.shown.hash + " " + stage + " " + string(w.rows[p.uid]) + fmt.Sprintf(" %+v node %+v; ", *p, p.node)
	}
	return text
}
