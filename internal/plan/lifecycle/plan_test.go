package lifecycle

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

var t0 = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// at makes n runners of one stage, named after it, a second apart in age.
func at(stage Stage, hash string, n int, change ...func(*Runner)) []Runner {
	var made []Runner
	for i := range n {
		r := Runner{
			Name: fmt.Sprintf("%s-%s-%d", stage, hash, i), UID: fmt.Sprintf("uid-%s-%s-%d", stage, hash, i),
			TemplateHash: hash, Created: t0.Add(time.Duration(i-1000) * time.Second), Stage: stage,
			Since: t0.Add(-time.Minute),
		}
		for _, c := range change {
			c(&r)
		}
		made = append(made, r)
	}
	return made
}

func removal(step Removal, why Reason, askAt time.Time) func(*Runner) {
	return func(r *Runner) { r.Removal, r.Why, r.AskAt = step, why, askAt }
}

func set(groups ...[]Runner) *Set {
	s := NewSet()
	for _, g := range groups {
		for _, r := range g {
			s.Put(r)
		}
	}
	return s
}

func names(actions []Action) []string {
	found := []string{}
	for _, a := range actions {
		found = append(found, a.Runner.Name+" "+string(a.Reason))
	}
	return found
}

// cases are plans: the desired and the observed state, and what follows.
type cases []struct {
	name     string
	wish     Wish
	runners  *Set
	create   int
	why      Reason
	ask      []string
	remove   []string
	withdraw []string
	next     time.Time
	held     int
	refused  int
	done     bool
}

func (all cases) check(t *testing.T) {
	t.Helper()
	for _, c := range all {
		t.Run(c.name, func(t *testing.T) {
			plan := MakePlan(c.wish, c.runners, t0)
			require.Equal(t, c.create, plan.Create, "created")
			require.Equal(t, c.why, plan.CreateReason)
			require.Equal(t, append([]string{}, c.ask...), names(plan.Ask), "asked")
			require.Equal(t, append([]string{}, c.remove...), names(plan.Delete), "deleted")
			require.Equal(t, append([]string{}, c.withdraw...), names(plan.Withdraw), "withdrawn")
			require.Equal(t, c.next, plan.Next, "next look")
			require.Equal(t, c.held, plan.Delayed, "held")
			require.Equal(t, c.refused, plan.Refused, "refused")
			require.Equal(t, c.done, plan.Done, "done")
		})
	}
}

func TestMakePlan(t *testing.T) {
	later := t0.Add(time.Minute)
	cases{
		{name: "nothing yet", wish: Wish{Desired: 3, TemplateHash: "b"}, runners: set(), create: 3, why: ReasonScaleUp},
		{name: "just right", wish: Wish{Desired: 3, TemplateHash: "b"},
			runners: set(at(StageStarting, "b", 1), at(StageIdle, "b", 1), at(StageBusy, "a", 1))},
		{name: "finished is replaced at once", wish: Wish{Desired: 2, TemplateHash: "b"},
			runners: set(at(StageFinished, "b", 1), at(StageIdle, "b", 1)),
			create:  1, why: ReasonReplace, remove: []string{"finished-b-0 Finished"}},
		{name: "creations are held", wish: Wish{Desired: 2, TemplateHash: "b", HoldUntil: later}, runners: set(), held: 2, next: later},
		{name: "booting goes before idle, oldest first", wish: Wish{Desired: 1, TemplateHash: "b"},
			runners: set(at(StageStarting, "b", 2), at(StageIdle, "b", 2), at(StageBusy, "b", 1)),
			ask:     []string{"starting-b-0 ScaleDown", "starting-b-1 ScaleDown", "idle-b-0 ScaleDown", "idle-b-1 ScaleDown"}},
		{name: "booting is kept where it registers itself", wish: Wish{Desired: 1, TemplateHash: "b", KeepBooting: true},
			runners: set(at(StageStarting, "b", 2), at(StageIdle, "b", 2)), ask: []string{"idle-b-0 ScaleDown"}},
		{name: "the old template goes first", wish: Wish{Desired: 1, TemplateHash: "b"},
			runners: set(at(StageStarting, "b", 1), at(StageIdle, "a", 1)),
			ask:     []string{"idle-a-0 ScaleDown"}},
		{name: "all busy: nobody goes", wish: Wish{Desired: 0, TemplateHash: "b"}, runners: set(at(StageBusy, "a", 2), at(StageBusy, "b", 2))},
		{name: "who was asked stays the victim, and is not asked too soon", wish: Wish{Desired: 1, TemplateHash: "b"},
			runners: set(at(StageIdle, "b", 1), at(StageTerminating, "b", 1, removal(RemovalAsked, ReasonScaleDown, later))), next: later},
		{name: "and is asked again in time", wish: Wish{Desired: 1, TemplateHash: "b"},
			runners: set(at(StageIdle, "b", 1), at(StageTerminating, "b", 1, removal(RemovalAsked, ReasonScaleDown, t0))),
			ask:     []string{"terminating-b-0 ScaleDown"}},
		{name: "demand that returns withdraws", wish: Wish{Desired: 2, TemplateHash: "b"},
			runners:  set(at(StageIdle, "b", 1), at(StageTerminating, "b", 1, removal(RemovalAsked, ReasonScaleDown, later))),
			withdraw: []string{"terminating-b-0 NeededAgain"}},
		{name: "but never what was granted", wish: Wish{Desired: 2, TemplateHash: "b"},
			runners: set(at(StageIdle, "b", 1), at(StageTerminating, "b", 1, removal(RemovalGranted, ReasonScaleDown, t0))),
			remove:  []string{"terminating-b-0 Granted"}},
		{name: "leaving counts until it is gone", wish: Wish{Desired: 2, TemplateHash: "b", LeaveTimeout: 2 * time.Minute},
			runners: set(at(StageIdle, "b", 1), at(StageTerminating, "b", 1, removal(RemovalDeleting, ReasonScaleDown, t0))), next: later},
		{name: "but not for ever", wish: Wish{Desired: 2, TemplateHash: "b", LeaveTimeout: time.Minute},
			runners: set(at(StageIdle, "b", 1), at(StageTerminating, "b", 1, removal(RemovalDeleting, ReasonScaleDown, t0))), create: 1, why: ReasonScaleUp},
		{name: "an unobserved creation counts and is no victim", wish: Wish{Desired: 1, TemplateHash: "b"},
			runners: set(at(StageStarting, "b", 3, func(r *Runner) { r.Expected = true }))},
		{name: "a roll moves one", wish: Wish{Desired: 3, TemplateHash: "b"}, runners: set(at(StageIdle, "a", 3)),
			ask: []string{"idle-a-0 TemplateChanged"}},
		{name: "or its limit", wish: Wish{Desired: 4, TemplateHash: "b", MaxUnavailable: 2}, runners: set(at(StageIdle, "a", 3), at(StageBusy, "a", 1)),
			ask: []string{"idle-a-0 TemplateChanged", "idle-a-1 TemplateChanged"}},
		{name: "and waits for what it moved", wish: Wish{Desired: 3, TemplateHash: "b"},
			runners: set(at(StageIdle, "a", 2), at(StageStarting, "b", 1))},
		{name: "and for what starts, also where the template is known to", wish: Wish{Desired: 4, TemplateHash: "b"},
			runners: set(at(StageIdle, "a", 2), at(StageBusy, "b", 1), at(StageStarting, "b", 1))},
		{name: "what does not serve is replaced freely", wish: Wish{Desired: 3, TemplateHash: "b"}, runners: set(at(StageStarting, "a", 3)),
			ask: []string{"starting-a-0 TemplateChanged", "starting-a-1 TemplateChanged", "starting-a-2 TemplateChanged"}},
		{name: "POOL-5 a roll goes on although some find no node", wish: Wish{Desired: 6, TemplateHash: "b"},
			runners: set(at(StageIdle, "a", 3), at(StageBusy, "b", 1), at(StageStarting, "b", 2, func(r *Runner) { r.Since = time.Time{} })),
			ask:     []string{"idle-a-0 TemplateChanged"}},
		{name: "POOL-5 but a template that no node takes ends no pool", wish: Wish{Desired: 5, TemplateHash: "b"},
			runners: set(at(StageIdle, "a", 3), at(StageStarting, "b", 2, func(r *Runner) { r.Since = time.Time{} }))},
		{name: "surge first", wish: Wish{Desired: 2, TemplateHash: "b", MaxSurge: 1}, runners: set(at(StageIdle, "a", 2)), create: 1, why: ReasonSurge},
		{name: "surge serves, one old goes", wish: Wish{Desired: 2, TemplateHash: "b", MaxSurge: 1},
			runners: set(at(StageIdle, "a", 2), at(StageIdle, "b", 1)), ask: []string{"idle-a-0 TemplateChanged"}},
		{name: "POOL-6 start time-out", wish: Wish{Desired: 2, TemplateHash: "b", StartTimeout: time.Minute},
			runners: set(at(StageStarting, "b", 1), at(StageIdle, "b", 1)), ask: []string{"starting-b-0 StartTimeout"}},
		{name: "not yet", wish: Wish{Desired: 1, TemplateHash: "b", StartTimeout: 2 * time.Minute},
			runners: set(at(StageStarting, "b", 1)), next: later},
		{name: "waiting for a node is not starting", wish: Wish{Desired: 1, TemplateHash: "b", StartTimeout: time.Minute},
			runners: set(at(StageStarting, "b", 1, func(r *Runner) { r.Since = time.Time{} }))},
		{name: "defective", wish: Wish{Desired: 2, TemplateHash: "b"},
			runners: set(at(StageStarting, "b", 1, func(r *Runner) { r.Unfit = Unfit{ReasonDefective, "broken"} }), at(StageIdle, "b", 1)),
			ask:     []string{"starting-b-0 Defective"}},
		{name: "paused", wish: Wish{Desired: 5, TemplateHash: "b", Paused: true},
			runners: set(at(StageFinished, "b", 1), at(StageTerminating, "b", 1, removal(RemovalGranted, ReasonScaleDown, t0)), at(StageIdle, "a", 1)),
			remove:  []string{"finished-b-0 Finished"}},
		{name: "POOL-2 terminating", wish: Wish{Desired: 5, TemplateHash: "b", Terminating: true},
			runners: set(at(StageStarting, "b", 1), at(StageIdle, "a", 1), at(StageBusy, "b", 1), at(StageFinished, "b", 1)),
			ask:     []string{"starting-b-0 OwnerDeleted", "idle-a-0 OwnerDeleted"}, remove: []string{"finished-b-0 Finished"}},
		{name: "terminated", wish: Wish{Desired: 5, TemplateHash: "b", Terminating: true}, runners: set(), done: true},
	}.check(t)
}

func TestStageNames(t *testing.T) {
	for _, stage := range Stages() {
		require.NotEqual(t, "unknown", stage.String())
	}
	require.Equal(t, "unknown", Stage(0).String())
}
