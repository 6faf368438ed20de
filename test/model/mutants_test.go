package model

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/api/runnerapi"
	"github.com/bullpen-ci/bullpen/internal/fleet"
	"github.com/bullpen-ci/bullpen/internal/plan/lifecycle"
	"github.com/bullpen-ci/bullpen/internal/server/dispatch"
)

// mutant is one removed guard: a rule of the product replaced, or a condition left out.
type mutant struct {
	name   string
	broken string // how the rule begins that is broken without the guard
	rules  func(*rules)
	config config
}

// TestMutants removes each guard in turn. The walk must find the rule that it guards broken; the same walk with every guard in place is
// part of the exhaustive tests, and finds nothing.
func TestMutants(t *testing.T) {
	for _, c := range mutants() {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			r := productRules()
			if c.rules != nil {
				c.rules(&r)
			}
			c.config.rules = &r
			c.config.until = c.broken
			c.config.pods, c.config.jobs = max(c.config.pods, 1), max(c.config.jobs, 1)
			if c.config.faults == 0 && c.config.allow != 0 {
				c.config.faults = 1
			}
			c.config.noLiveness = !strings.HasPrefix(c.broken, "RECV")
			got := check(c.config)
			c.config.rules, c.config.without, c.config.until, c.config.limit = nil, without{}, "", max(20_000, 2*got.states)
			sound := check(c.config)
			t.Logf("sound: %d states, %s cut=%v", sound.states, sound.took, sound.cut)
			for _, trace := range sound.broken {
				t.Error("BASELINE", trace)
			}
			for rule, trace := range got.broken {
				if strings.HasPrefix(rule, c.broken) {
					t.Logf("%d states, %s\n%s", got.states, got.took, trace)
					return
				}
			}
			require.Failf(t, "the model does not miss the guard", "%d states, found %v", got.states, got.broken)
		})
	}
}

func mutants() []mutant {
	restored := config{allow: faultRestore, synced: true, noHold: true}
	return slices.Concat(claimMutants(restored), controllerMutants(restored), recoveryMutants(), stopMutants())
}

// moved is a claim table in which an event moves what it should not.
func moved(from fleet.ClaimState, event fleet.ClaimEvent, to fleet.ClaimState) func(*rules) {
	return func(r *rules) {
		r.nextClaim = func(s fleet.ClaimState, e fleet.ClaimEvent) (fleet.ClaimState, fleet.Outcome) {
			if s == from && e == event {
				return to, fleet.Move
			}
			return fleet.NextClaimState(s, e)
		}
	}
}

// changed is a Resolve whose answer is changed.
func changed(change func(dispatch.JobEvent, dispatch.Facts, *dispatch.Change)) func(*rules) {
	return func(r *rules) {
		r.resolve = func(ev dispatch.JobEvent, f dispatch.Facts) dispatch.Change {
			c := dispatch.Resolve(ev, f)
			change(ev, f, &c)
			return c
		}
	}
}

// decided is a Decide that answers something else where the condition holds.
func decided(step dispatch.Step, where func(dispatch.Pod, dispatch.Claim) bool) func(*rules) {
	return func(r *rules) {
		r.decide = func(p dispatch.Pod, c dispatch.Claim, sequence int64, now time.Time) dispatch.Step {
			if where(p, c) {
				return step
			}
			return dispatch.Decide(p, c, sequence, now)
		}
	}
}

func claimMutants(restored config) []mutant {
	two := config{pods: 2, jobs: 2, requests: 1, noRecovery: true, removable: -1}
	tight := two
	tight.budget = 1
	healthy := config{noRecovery: true, removable: -1, healthy: true, noticed: true, leased: true, allow: faultCrash | faultMintTimeout | faultConnection}
	return []mutant{
		{name: "EXCL1 retire moves a claimed row", broken: "EXCL-1 the removal of a claimed pod",
			rules: moved(fleet.ClaimClaimed, fleet.ClaimEventRetire, fleet.ClaimRetired)},
		{name: "EXCL1 retire moves a minted row", broken: "EXCL-1 the removal of a claimed pod",
			rules: moved(fleet.ClaimMinted, fleet.ClaimEventRetire, fleet.ClaimRetired)},
		{name: "EXCL1 a row is removed for its age", broken: "EXCL-6", config: config{without: without{rowsStay: true}}},
		{name: "EXCL5 a claim moves a retired row", broken: "EXCL-5",
			rules: moved(fleet.ClaimRetired, fleet.ClaimEventClaim, fleet.ClaimClaimed)},
		{name: "EXCL5 Decide overlooks a deletion", broken: "EXCL-5", config: config{allow: faultUser},
			rules: func(r *rules) {
				r.decide = func(p dispatch.Pod, c dispatch.Claim, sequence int64, now time.Time) dispatch.Step {
					p.Deleting = false
					return dispatch.Decide(p, c, sequence, now)
				}
			}},
		{name: "EXCL5 a claim for a pod that is being deleted is minted for", broken: "EXCL-5",
			config: config{allow: faultUser, without: without{serveCheck: true}}},
		{name: "EXCL6 a claim is released without removing its registrations", broken: "EXCL-6", config: config{without: without{removal: true}}},
		{name: "CLAIM15 who was overtaken removes what its successor minted", broken: "CLAIM-7", config: config{
			pods: 1, jobs: 1, faults: 2, allow: faultCrash | faultConnection, noRecovery: true, removable: -1, healthy: true, noticed: true,
			noLiveness: true, without: without{overtaken: true},
		}},
		{name: "EXCL6 404 counts without a control read", broken: "EXCL-6", config: config{allow: faultScope, without: without{controlRead: true}}},
		{name: "CLAIM1 Resolve leaves the job with two claims", broken: "CLAIM-1", config: two,
			rules: changed(func(_ dispatch.JobEvent, _ dispatch.Facts, c *dispatch.Change) { c.Unbind = "" })},
		{name: "CLAIM4 a completed job is queued by a late message", broken: "CLAIM-4", config: config{lateQueued: true, allow: faultCancel},
			rules: changed(func(ev dispatch.JobEvent, f dispatch.Facts, c *dispatch.Change) {
				if f.State.Terminal() && ev.Kind == fleet.JobEventQueued {
					c.Outcome, c.State = fleet.Move, fleet.JobQueued
				}
			})},
		{name: "CLAIM5 Admit overlooks the budget", broken: "CLAIM-5", config: tight,
			rules: func(r *rules) {
				r.admit = func(l []dispatch.Lane, limits map[int64]fleet.Limits, _ map[int64]fleet.Usage, s fleet.Shape, polls int) dispatch.Admission {
					return dispatch.Admit(l, limits, map[int64]fleet.Usage{}, s, polls)
				}
			}},
		{name: "CLAIM6 the label is stamped with the mint", broken: "CLAIM-6", config: config{without: without{labelLast: true}}},
		{name: "TEN8 the label is written at any time after the acknowledgement", broken: "TEN-8", config: config{without: without{labelInTime: true}}},
		{name: "CLAIM6 every end of a poller acknowledges, and a later pass writes the label", broken: "CLAIM-6",
			config: config{allow: faultPoller, without: without{exitCode: true, labelInTime: true}}},
		{name: "CLAIM7 a claim that was not delivered is not served again", broken: "CLAIM-16 a healthy pod was sent away", config: healthy,
			rules: decided(dispatch.StepGone, func(_ dispatch.Pod, c dispatch.Claim) bool { return c.State == fleet.ClaimMinted })},
		{name: "CLAIM7 a poller asks again and 422 is overlooked", broken: "CLAIM-7",
			config: config{without: without{singleShot: true, busyAnswer: true}}},
		{name: "CLAIM7 a late request takes over what a later one was served", broken: "CLAIM-7 a configuration was delivered and then taken back",
			config: config{noRecovery: true, removable: -1, healthy: true, leased: true, allow: faultConnection},
			rules: func(r *rules) {
				r.decide = func(p dispatch.Pod, c dispatch.Claim, _ int64, now time.Time) dispatch.Step {
					return dispatch.Decide(p, c, 0, now)
				}
			}},
		{name: "CLAIM9 Resolve forgets the job that was minted for", broken: "RECV-5", config: config{jobs: 2, noRecovery: true},
			rules: changed(func(_ dispatch.JobEvent, _ dispatch.Facts, c *dispatch.Change) { c.Requeue = 0 })},
		{name: "CLAIM13 nobody asks to adopt", broken: "CLAIM-13", config: restored,
			rules: changed(func(_ dispatch.JobEvent, _ dispatch.Facts, c *dispatch.Change) { c.Adopt = "" })},
		{name: "CLAIM13 the table does not adopt", broken: "CLAIM-13", config: restored,
			rules: func(r *rules) {
				r.nextClaim = func(s fleet.ClaimState, e fleet.ClaimEvent) (fleet.ClaimState, fleet.Outcome) {
					if e == fleet.ClaimEventAdopt {
						return s, fleet.Refuse
					}
					return fleet.NextClaimState(s, e)
				}
			}},
		{name: "CLAIM15 writes do not ask for the generation", broken: "EXCL-6", config: config{allow: faultConnection, without: without{generation: true}}},
		{name: "CLAIM15 NextGeneration repeats itself", broken: "EXCL-6", config: config{allow: faultConnection},
			rules: func(r *rules) {
				r.nextGeneration = func(last int64, _ time.Time) int64 { return max(last, 1) }
			}},
		{name: "CLAIM16 nobody takes an abandoned claim over", broken: "RECV-5", config: healthy,
			rules: decided(dispatch.StepAwait, func(p dispatch.Pod, c dispatch.Claim) bool {
				return !p.Deleting && c.State == fleet.ClaimClaimed && !c.Acknowledged
			})},
		{name: "CLAIM16 an abandoned claim sends the pod away", broken: "CLAIM-16", config: healthy,
			rules: decided(dispatch.StepGone, func(_ dispatch.Pod, c dispatch.Claim) bool { return c.State == fleet.ClaimClaimed })},
		{name: "CLAIM8 a refused mint spends the pod", broken: "CLAIM-16 a healthy pod was burnt",
			config: config{noRecovery: true, removable: -1, healthy: true, allow: faultMintRefused},
			rules:  moved(fleet.ClaimClaimed, fleet.ClaimEventMintFails, fleet.ClaimSpent)},
		{name: "CLAIM7 a request goes on with the claim that was made for another", broken: "CLAIM-7", config: func() config {
			c := healthy
			c.without.matched, c.unnumbered = true, true
			return c
		}()},
	}
}

func controllerMutants(restored config) []mutant {
	reckless := func(without without) config {
		c := restored
		c.without = without
		return c
	}
	blind := func(r *rules) {
		r.mayDelete = func(o lifecycle.Observed, g lifecycle.Grant) error {
			o.Signs = lifecycle.Signs{}
			return lifecycle.MayDelete(o, g)
		}
	}
	answered := func(change func(*lifecycle.Answer)) func(*rules) {
		return func(r *rules) {
			r.answered = func(l *lifecycle.Leave, a lifecycle.Answer, why lifecycle.Reason, shown lifecycle.Stage, pace lifecycle.Pace, now time.Time) {
				change(&a)
				l.Answered(a, why, shown, pace, now)
			}
		}
	}
	return []mutant{
		{name: "EXCL1 the controller takes busy for a grant, and the remover asks no more", broken: "EXCL-1 a pod was deleted",
			config: config{without: without{secondAsk: true}}, rules: answered(func(a *lifecycle.Answer) { a.Verdict = lifecycle.Granted })},
		{name: "RECV1 the controller forgets the proof of a grant", broken: "RECV-5", config: config{allow: faultNode},
			rules: answered(func(a *lifecycle.Answer) { a.Proof = "" })},
		{name: "EXCL1 a live claim is granted", broken: "EXCL-1 the removal of a claimed pod",
			rules: func(r *rules) {
				r.retireVerdict = func(fleet.ClaimState) runnerapi.Verdict { return runnerapi.Granted }
			}},
		{name: "EXCL2 neither the plan nor the rule nor the remover asks for a grant", broken: "EXCL-1 a pod was deleted",
			config: config{without: without{secondAsk: true}},
			rules: func(r *rules) {
				r.plan = func(w lifecycle.Wish, s *lifecycle.Set, now time.Time) lifecycle.Plan {
					p := lifecycle.MakePlan(w, s, now)
					p.Delete = append(p.Delete, p.Ask...)
					return p
				}
				r.mayDelete = func(o lifecycle.Observed, _ lifecycle.Grant) error {
					return lifecycle.MayDelete(o, lifecycle.Grant{UID: o.UID})
				}
			}},
		{name: "EXCL2 the fence is asked once", broken: "EXCL-1 a pod was deleted", config: reckless(without{secondAsk: true})},
		{name: "EXCL2 the pod may have changed since it was seen", broken: "EXCL-1 a pod was deleted", config: reckless(without{version: true})},
		{name: "EXCL3 unknown is taken for granted", broken: "EXCL-1 a pod was deleted", config: config{without: without{unknown: true}}},
		{name: "CLAIM17 nothing is held after a restore", broken: "EXCL-1 a pod was deleted", config: config{allow: faultRestore, without: without{hold: true}}},
		{name: "CLAIM17 a restored ledger refuses nothing", broken: "EXCL-1 a pod was deleted", config: config{allow: faultRestore, without: without{refusal: true}}},
		{name: "CLAIM17 the hold ends before claims are rebuilt", broken: "EXCL-6", config: config{allow: faultRestore, without: without{rebuild: true}}},
		{name: "EXCL4 a grant suffices, signs of work veto nothing", broken: "EXCL-1 a pod was deleted", config: restored, rules: blind},
	}
}
