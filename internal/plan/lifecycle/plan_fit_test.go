package lifecycle

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func unfitFor(reason Reason) func(*Runner) {
	return func(r *Runner) { r.Unfit = Unfit{reason, "because"} }
}

func shown(stage Stage, since time.Time) func(*Runner) {
	return func(r *Runner) { r.Shown, r.ShownSince = stage, since }
}

func unplacedFor(d time.Duration) func(*Runner) {
	return func(r *Runner) { r.Since, r.Created = time.Time{}, t0.Add(-d) }
}

func createdAt(at time.Time) func(*Runner) { return func(r *Runner) { r.Created = at } }

// Reasons for removal at once, and reasons that pass.
func TestMakePlan_Unfit(t *testing.T) {
	later, never := t0.Add(time.Minute), time.Time{}
	askedFor := func(why Reason, change ...func(*Runner)) []Runner {
		return at(StageTerminating, "b", 1, append(change, removal(RemovalAsked, why, t0))...)
	}
	cases{
		{name: "cordoned: all at once, whatever a roll may take", wish: Wish{Desired: 3, TemplateHash: "b"},
			runners: set(at(StageIdle, "b", 2, unfitFor(ReasonNodeCordoned)), at(StageStarting, "b", 1, unfitFor(ReasonNodeCordoned))),
			ask:     []string{"idle-b-0 NodeCordoned", "starting-b-0 NodeCordoned", "idle-b-1 NodeCordoned"}},
		{name: "busy stays on a cordoned node", wish: Wish{Desired: 1, TemplateHash: "b"},
			runners: set(at(StageBusy, "b", 1, unfitFor(ReasonNodeCordoned)))},
		{name: "it is one of those above the number", wish: Wish{Desired: 2, TemplateHash: "b"},
			runners: set(at(StageIdle, "b", 2), at(StageIdle, "a", 1, unfitFor(ReasonNodeCordoned))),
			ask:     []string{"idle-a-0 NodeCordoned"}},
		{name: "a roll waits while cordoned ones are replaced", wish: Wish{Desired: 4, TemplateHash: "b"},
			runners: set(at(StageIdle, "b", 1, unfitFor(ReasonNodeCordoned)), at(StageIdle, "a", 3)),
			ask:     []string{"idle-b-0 NodeCordoned"}},
		{name: "still cordoned: asked again", wish: Wish{Desired: 1, TemplateHash: "b"},
			runners: set(askedFor(ReasonNodeCordoned, shown(StageIdle, t0), unfitFor(ReasonNodeCordoned))),
			ask:     []string{"terminating-b-0 NodeCordoned"}},
		{name: "uncordoned: withdrawn", wish: Wish{Desired: 1, TemplateHash: "b"},
			runners: set(askedFor(ReasonNodeCordoned, shown(StageIdle, t0))), withdraw: []string{"terminating-b-0 NeededAgain"}},
		{name: "uncordoned, and granted already", wish: Wish{Desired: 1, TemplateHash: "b"},
			runners: set(at(StageTerminating, "b", 1, removal(RemovalGranted, ReasonNodeCordoned, t0), shown(StageIdle, t0))),
			remove:  []string{"terminating-b-0 Granted"}},
		{name: "POOL-6 no node in time", wish: Wish{Desired: 2, TemplateHash: "b", UnschedulableTimeout: time.Minute, StartTimeout: time.Second},
			runners: set(at(StageStarting, "b", 1, unplacedFor(time.Minute)), at(StageIdle, "b", 1)), ask: []string{"starting-b-0 Unschedulable"}},
		{name: "not yet: looks again in time", wish: Wish{Desired: 1, TemplateHash: "b", UnschedulableTimeout: 2 * time.Minute, StartTimeout: time.Second},
			runners: set(at(StageStarting, "b", 1, unplacedFor(time.Minute))), next: later},
		{name: "still without a node", wish: Wish{Desired: 1, TemplateHash: "b", UnschedulableTimeout: time.Minute},
			runners: set(askedFor(ReasonUnschedulable, shown(StageStarting, never))), ask: []string{"terminating-b-0 Unschedulable"}},
		{name: "a node took it after all", wish: Wish{Desired: 1, TemplateHash: "b", UnschedulableTimeout: time.Minute, StartTimeout: time.Hour},
			runners: set(askedFor(ReasonUnschedulable, shown(StageStarting, t0))), withdraw: []string{"terminating-b-0 NeededAgain"}},
		{name: "still starting", wish: Wish{Desired: 1, TemplateHash: "b", StartTimeout: time.Minute},
			runners: set(askedFor(ReasonStartTimeout, shown(StageStarting, t0.Add(-time.Minute)))), ask: []string{"terminating-b-0 StartTimeout"}},
		{name: "it has started after all", wish: Wish{Desired: 1, TemplateHash: "b", StartTimeout: time.Minute},
			runners: set(askedFor(ReasonStartTimeout, shown(StageIdle, t0))), withdraw: []string{"terminating-b-0 NeededAgain"}},
		{name: "the time-out was raised", wish: Wish{Desired: 1, TemplateHash: "b", StartTimeout: time.Hour},
			runners: set(askedFor(ReasonStartTimeout, shown(StageStarting, t0.Add(-time.Minute)))), withdraw: []string{"terminating-b-0 NeededAgain"}},
		{name: "one that registers itself is timed out like any other", wish: Wish{Desired: 1, TemplateHash: "b", StartTimeout: time.Minute, KeepBooting: true},
			runners: set(at(StageStarting, "b", 1)), ask: []string{"starting-b-0 StartTimeout"}},
		{name: "terminating: cordoned ones too", wish: Wish{TemplateHash: "b", Terminating: true},
			runners: set(at(StageIdle, "b", 1, unfitFor(ReasonNodeCordoned))), ask: []string{"idle-b-0 OwnerDeleted"}},
	}.check(t)
}

func TestMakePlan_WaitingExplainsATimeOut(t *testing.T) {
	waits := func(r *Runner) { r.Waiting = "0/3 nodes are available" }
	wish := Wish{Desired: 2, TemplateHash: "b", StartTimeout: time.Minute, UnschedulableTimeout: time.Minute}
	plan := MakePlan(wish, set(at(StageStarting, "b", 1, waits, unplacedFor(90*time.Second))), t0)
	require.Equal(t, "the runner has not been scheduled for 1m30s; waiting for: 0/3 nodes are available", plan.Ask[0].Detail)
	plan = MakePlan(wish, set(at(StageStarting, "b", 1, waits)), t0)
	require.Equal(t, "the runner has been starting for 1m0s; waiting for: 0/3 nodes are available", plan.Ask[0].Detail)
	plan = MakePlan(wish, set(at(StageStarting, "b", 1)), t0)
	require.Equal(t, "the runner has been starting for 1m0s", plan.Ask[0].Detail)
}

// POOL-7: a lost runner is deleted when the fence has granted it, and not before; its place is free at once (POOL-4).
func TestMakePlan_POOL7_LostGoesWhenGranted(t *testing.T) {
	later := t0.Add(time.Minute)
	cases{
		{name: "asked for, and replaced", wish: Wish{Desired: 1, TemplateHash: "b"}, runners: set(at(StageLost, "b", 1)),
			ask: []string{"lost-b-0 Lost"}, create: 1, why: ReasonScaleUp},
		{name: "not too soon", wish: Wish{Desired: 1, TemplateHash: "b"},
			runners: set(at(StageIdle, "b", 1), at(StageLost, "b", 1, removal(RemovalAsked, ReasonLost, later))), next: later},
		{name: "nor when the fence has called it busy", wish: Wish{Desired: 1, TemplateHash: "b"},
			runners: set(at(StageIdle, "b", 1), at(StageLost, "b", 1, removal(RemovalNone, "", later))), next: later},
		{name: "asked again", wish: Wish{Desired: 1, TemplateHash: "b"},
			runners: set(at(StageIdle, "b", 1), at(StageLost, "b", 1, removal(RemovalAsked, ReasonLost, t0))), ask: []string{"lost-b-0 Lost"}},
		{name: "granted", wish: Wish{Desired: 1, TemplateHash: "b"},
			runners: set(at(StageIdle, "b", 1), at(StageLost, "b", 1, removal(RemovalGranted, ReasonLost, later))), remove: []string{"lost-b-0 Lost"}},
		{name: "on its way", wish: Wish{Desired: 1, TemplateHash: "b"},
			runners: set(at(StageIdle, "b", 1), at(StageLost, "b", 1, removal(RemovalDeleting, ReasonLost, later)))},
		{name: "recovery says why", wish: Wish{Desired: 1, TemplateHash: "b"},
			runners: set(at(StageIdle, "b", 1), at(StageLost, "b", 1, unfitFor(ReasonRecovery))), ask: []string{"lost-b-0 Recovery"}},
		{name: "paused", wish: Wish{Desired: 3, TemplateHash: "b", Paused: true},
			runners: set(at(StageLost, "b", 1), at(StageLost, "c", 1, removal(RemovalGranted, ReasonLost, t0))),
			ask:     []string{"lost-b-0 Lost"}, remove: []string{"lost-c-0 Lost"}},
		{name: "terminating", wish: Wish{TemplateHash: "b", Terminating: true},
			runners: set(at(StageLost, "b", 1), at(StageLost, "c", 1, removal(RemovalGranted, ReasonLost, t0))),
			ask:     []string{"lost-b-0 Lost"}, remove: []string{"lost-c-0 Lost"}},
		{name: "found again: withdrawn", wish: Wish{Desired: 1, TemplateHash: "b"},
			runners:  set(at(StageTerminating, "b", 1, removal(RemovalAsked, ReasonLost, later), shown(StageIdle, t0))),
			withdraw: []string{"terminating-b-0 NeededAgain"}},
		{name: "lost ones are no excess", wish: Wish{Desired: 1, TemplateHash: "b"},
			runners: set(at(StageIdle, "b", 1), at(StageLost, "b", 3, removal(RemovalAsked, ReasonLost, later))), next: later},
	}.check(t)
}

func TestRunner_POOL7_RefSaysThatItIsLost(t *testing.T) {
	r := Runner{Name: "r", UID: "u", Stage: StageLost}
	require.Equal(t, RunnerRef{Namespace: "ns", Name: "r", UID: "u", Owner: "pool", Lost: true}, r.Ref("ns", "pool"))
	r.Stage = StageIdle
	require.False(t, r.Ref("ns", "pool").Lost)
}

// Old and idle runners are replaced like those of an older template.
func TestMakePlan_POOL5_AgeAndIdleness(t *testing.T) {
	later, hour := t0.Add(time.Minute), t0.Add(-time.Hour)
	young := createdAt(t0.Add(-time.Minute))
	cases{
		{name: "idle for too long: one by one", wish: Wish{Desired: 3, TemplateHash: "b", IdleTimeout: time.Minute},
			runners: set(at(StageIdle, "b", 3)), ask: []string{"idle-b-0 IdleTimeout"}},
		{name: "or as many as may be", wish: Wish{Desired: 3, TemplateHash: "b", IdleTimeout: time.Minute, MaxUnavailable: 2},
			runners: set(at(StageIdle, "b", 3)), ask: []string{"idle-b-0 IdleTimeout", "idle-b-1 IdleTimeout"}},
		{name: "not yet", wish: Wish{Desired: 3, TemplateHash: "b", IdleTimeout: 2 * time.Minute},
			runners: set(at(StageIdle, "b", 3)), next: later},
		{name: "since when is not known: never", wish: Wish{Desired: 1, TemplateHash: "b", IdleTimeout: time.Minute},
			runners: set(at(StageIdle, "b", 1, func(r *Runner) { r.Since = time.Time{} }))},
		{name: "who has waited longest goes first", wish: Wish{Desired: 2, TemplateHash: "b", IdleTimeout: time.Minute},
			runners: set(at(StageIdle, "b", 1), at(StageIdle, "b", 1, func(r *Runner) { r.Name, r.Since, r.Created = "x", hour, t0 })),
			ask:     []string{"x IdleTimeout"}},
		{name: "too old", wish: Wish{Desired: 2, TemplateHash: "b", MaxAge: time.Hour},
			runners: set(at(StageIdle, "b", 1, createdAt(hour)), at(StageIdle, "c", 1, young, func(r *Runner) { r.TemplateHash = "b" })),
			ask:     []string{"idle-b-0 MaxAge"}, next: t0.Add(59 * time.Minute)},
		{name: "and not serving yet: at once", wish: Wish{Desired: 3, TemplateHash: "b", MaxAge: time.Hour},
			runners: set(at(StageStarting, "b", 2, createdAt(hour)), at(StageIdle, "b", 1, young)),
			ask:     []string{"starting-b-0 MaxAge", "starting-b-1 MaxAge"}, next: t0.Add(59 * time.Minute)},
		{name: "an older template goes before", wish: Wish{Desired: 2, TemplateHash: "b", MaxAge: time.Hour},
			runners: set(at(StageIdle, "b", 1, createdAt(hour)), at(StageIdle, "a", 1, young)), ask: []string{"idle-a-0 TemplateChanged"}},
		{name: "first to go when there are too many", wish: Wish{Desired: 2, TemplateHash: "b", IdleTimeout: time.Minute},
			runners: set(at(StageStarting, "b", 1), at(StageBusy, "b", 1), at(StageIdle, "b", 1)), ask: []string{"idle-b-0 ScaleDown"}},
		{name: "surge first", wish: Wish{Desired: 2, TemplateHash: "b", IdleTimeout: time.Minute, MaxAge: time.Second, MaxSurge: 2},
			runners: set(at(StageIdle, "b", 1), at(StageBusy, "b", 1)), create: 1, why: ReasonSurge},
		{name: "busy ones are never too old", wish: Wish{Desired: 1, TemplateHash: "b", MaxAge: time.Second}, runners: set(at(StageBusy, "b", 1))},
		{name: "still due: asked again", wish: Wish{Desired: 2, TemplateHash: "b", IdleTimeout: time.Minute},
			runners: set(at(StageIdle, "c", 1, func(r *Runner) { r.TemplateHash, r.Since = "b", t0 }),
				at(StageTerminating, "b", 1, removal(RemovalAsked, ReasonIdleTimeout, t0), shown(StageIdle, hour))),
			ask: []string{"terminating-b-0 IdleTimeout"}, next: later},
		{name: "no longer: withdrawn", wish: Wish{Desired: 1, TemplateHash: "b", IdleTimeout: 2 * time.Hour},
			runners:  set(at(StageTerminating, "b", 1, removal(RemovalAsked, ReasonIdleTimeout, t0), shown(StageIdle, hour))),
			withdraw: []string{"terminating-b-0 NeededAgain"}},
	}.check(t)
}

// A runner whose fitness is unknown is replaced like one of an older template: a few at a time.
func TestMakePlan_POOL5_Doubt(t *testing.T) {
	doubt := func(r *Runner) { r.Doubt = Unfit{ReasonNodeNotReady, "because"} }
	cases{
		{name: "one by one", wish: Wish{Desired: 4, TemplateHash: "b"}, runners: set(at(StageIdle, "b", 3, doubt), at(StageBusy, "b", 1)),
			ask: []string{"idle-b-0 NodeNotReady"}},
		{name: "a pool of which nothing is known loses no more", wish: Wish{Desired: 3, TemplateHash: "b"},
			runners: set(at(StageIdle, "b", 2, doubt), at(StageStarting, "b", 1))},
		{name: "busy ones stay", wish: Wish{Desired: 1, TemplateHash: "b"}, runners: set(at(StageBusy, "b", 1, doubt))},
		{name: "the first to go when there are too many", wish: Wish{Desired: 1, TemplateHash: "b"},
			runners: set(at(StageIdle, "b", 1, doubt), at(StageIdle, "c", 1, func(r *Runner) { r.TemplateHash = "b" })), ask: []string{"idle-b-0 ScaleDown"}},
		{name: "still in doubt: asked again", wish: Wish{Desired: 2, TemplateHash: "b"},
			runners: set(at(StageIdle, "b", 1), at(StageTerminating, "b", 1, doubt, removal(RemovalAsked, ReasonNodeNotReady, t0), shown(StageIdle, t0))),
			ask:     []string{"terminating-b-0 NodeNotReady"}},
		{name: "heard of again: withdrawn", wish: Wish{Desired: 2, TemplateHash: "b"},
			runners:  set(at(StageIdle, "b", 1), at(StageTerminating, "b", 1, removal(RemovalAsked, ReasonNodeNotReady, t0), shown(StageIdle, t0))),
			withdraw: []string{"terminating-b-0 NeededAgain"}},
	}.check(t)
}

// A runner that is still there long after its deletion takes no part in a roll: it neither blocks it nor causes a
// surge.
func TestMakePlan_POOL5_WhatDoesNotGoHoldsUpNoRoll(t *testing.T) {
	stuck := removal(RemovalDeleting, ReasonTemplate, t0)
	longAgo := func(r *Runner) { r.Since = t0.Add(-time.Hour) }
	cases{
		{name: "a roll goes on", wish: Wish{Desired: 3, TemplateHash: "b", LeaveTimeout: time.Hour},
			runners: set(at(StageIdle, "a", 1), at(StageIdle, "b", 1), at(StageStarting, "b", 1, unplacedFor(time.Hour)), at(StageTerminating, "a", 1, stuck, longAgo)),
			ask:     []string{"idle-a-0 TemplateChanged"}},
		{name: "not while it may go yet", wish: Wish{Desired: 4, TemplateHash: "b", LeaveTimeout: 2 * time.Hour},
			runners: set(at(StageIdle, "a", 1), at(StageIdle, "b", 1), at(StageStarting, "b", 1, unplacedFor(time.Hour)), at(StageTerminating, "a", 1, stuck, longAgo)),
			next:    t0.Add(time.Hour)},
		{name: "no surge for it", wish: Wish{Desired: 2, TemplateHash: "b", MaxSurge: 1, LeaveTimeout: time.Hour},
			runners: set(at(StageIdle, "b", 2), at(StageTerminating, "a", 1, stuck, longAgo))},
	}.check(t)
}

// A limit of starts refuses, and removes nothing; a roll takes no more than can be replaced under it.
func TestMakePlan_POOL5_StartsAreLimited(t *testing.T) {
	later := t0.Add(time.Minute)
	limited := func(w Wish, starts int) Wish {
		w.TemplateHash, w.LimitStarts, w.Starts = "b", true, starts
		return w
	}
	cases{
		{name: "the rest is refused", wish: limited(Wish{Desired: 5}, 2), runners: set(at(StageIdle, "b", 1)), create: 2, why: ReasonScaleUp, refused: 2},
		{name: "or all of it", wish: limited(Wish{Desired: 5}, 0), runners: set(at(StageIdle, "b", 1)), refused: 4},
		{name: "a number below zero is none", wish: limited(Wish{Desired: 2}, -3), runners: set(at(StageIdle, "b", 1)), refused: 1},
		{name: "nothing goes for it", wish: limited(Wish{Desired: 2}, 0), runners: set(at(StageIdle, "b", 1), at(StageStarting, "b", 1))},
		{name: "held is not refused", wish: limited(Wish{Desired: 2, HoldUntil: later}, 0), runners: set(), held: 2, next: later},
		{name: "what cannot be replaced is not rolled", wish: limited(Wish{Desired: 3, MaxUnavailable: 2}, 0), runners: set(at(StageIdle, "a", 3))},
		{name: "as many as can be", wish: limited(Wish{Desired: 3, MaxUnavailable: 2}, 1), runners: set(at(StageIdle, "a", 3)),
			ask: []string{"idle-a-0 TemplateChanged"}},
		{name: "those that leave already have taken the starts", wish: limited(Wish{Desired: 4, MaxUnavailable: 3}, 1),
			runners: set(at(StageIdle, "a", 3), at(StageTerminating, "a", 1, removal(RemovalDeleting, ReasonTemplate, t0)))},
		{name: "a surge that serves is a replacement", wish: limited(Wish{Desired: 2, MaxSurge: 1}, 0),
			runners: set(at(StageIdle, "a", 2), at(StageIdle, "b", 1)), ask: []string{"idle-a-0 TemplateChanged"}},
		{name: "what does not serve gives way to its replacement", wish: limited(Wish{Desired: 2}, 0), runners: set(at(StageStarting, "a", 2)),
			ask: []string{"starting-a-0 TemplateChanged", "starting-a-1 TemplateChanged"}},
		{name: "a refused surge is no surge", wish: limited(Wish{Desired: 2, MaxSurge: 2}, 1), runners: set(at(StageIdle, "a", 1)),
			create: 1, why: ReasonScaleUp, refused: 1},
		{name: "no roll while creations are held", wish: Wish{Desired: 3, TemplateHash: "b", MaxUnavailable: 2, HoldUntil: later},
			runners: set(at(StageIdle, "a", 3)), next: later},
	}.check(t)
}

// A poller exits when it is retired, which is a sign of work: until its pod has ended it looks busy. It holds its place, is not deleted
// (EXCL-4), and does not count as serving: otherwise a roll would take others in its place.
func TestMakePlan_POOL5_WhatWasGrantedDoesNotServe(t *testing.T) {
	wish := Wish{Desired: 10, TemplateHash: "new", MaxUnavailable: 2}
	set := NewSet()
	for i := range 10 {
		r := Runner{Name: fmt.Sprintf("r%d", i), UID: fmt.Sprint(i), TemplateHash: "old", Stage: StageIdle, Created: time.Unix(int64(i), 0)}
		if i < 2 {
			r.Stage, r.Removal = StageBusy, RemovalGranted
		}
		set.Put(r)
	}
	plan := MakePlan(wish, set, time.Unix(1000, 0))
	require.Empty(t, plan.Ask)
	require.Empty(t, plan.Delete)
	require.Zero(t, plan.Create)
}

// Nor does a scale-down remove another in its place: it counts as one that is being removed.
func TestMakePlan_SCALE3_WhatWasGrantedIsOneOfThoseThatGo(t *testing.T) {
	wish := Wish{Desired: 5, TemplateHash: "new"}
	set := NewSet()
	for i := range 8 {
		r := Runner{Name: fmt.Sprintf("r%d", i), UID: fmt.Sprint(i), TemplateHash: "new", Stage: StageIdle, Created: time.Unix(int64(i), 0)}
		if i < 2 {
			r.Stage, r.Removal = StageBusy, RemovalGranted
		}
		set.Put(r)
	}
	plan := MakePlan(wish, set, time.Unix(1000, 0))
	require.Len(t, plan.Ask, 1)
	require.Zero(t, plan.Create)
}
