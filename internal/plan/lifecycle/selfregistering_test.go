package lifecycle

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// The differences for self-registering runners.
func TestMakePlan_RUN2_ABootingRunnerIsAVictimOnlyWhereItCannotBeRegistering(t *testing.T) {
	later := t0.Add(time.Minute)
	keep := func(change func(*Wish)) Wish {
		wish := Wish{Desired: 0, TemplateHash: "b", KeepBooting: true, StartTimeout: 2 * time.Minute}
		if change != nil {
			change(&wish)
		}
		return wish
	}
	cases{
		{name: "c612e87d an old set whose pods no node takes goes to zero", wish: keep(nil),
			runners: set(at(StageStarting, "b", 2, unplacedFor(time.Minute))),
			ask:     []string{"starting-b-0 ScaleDown", "starting-b-1 ScaleDown"}},
		{name: "a3072c11 one that is just registering is nobody's victim", wish: keep(nil), runners: set(at(StageStarting, "b", 1)), next: later},
		{name: "also of a roll", wish: keep(func(w *Wish) { w.Desired, w.TemplateHash = 1, "c" }), runners: set(at(StageStarting, "b", 1)), next: later},
		{name: "but one that waits for a node is", wish: keep(func(w *Wish) { w.Desired, w.TemplateHash = 1, "c" }),
			runners: set(at(StageStarting, "b", 1, unplacedFor(time.Minute))), ask: []string{"starting-b-0 TemplateChanged"}},
		{name: "also of an owner that is deleted", wish: keep(func(w *Wish) { w.Terminating = true }), runners: set(at(StageStarting, "b", 1)), next: later},
		{name: "past its time it is", wish: keep(func(w *Wish) { w.StartTimeout = time.Minute }), runners: set(at(StageStarting, "b", 1)),
			ask: []string{"starting-b-0 StartTimeout"}},
		{name: "or when GitHub does not get to know it", wish: keep(func(w *Wish) { w.Desired = 1 }),
			runners: set(at(StageStarting, "b", 1, unfitFor(ReasonRegistrationTimeout))), ask: []string{"starting-b-0 RegistrationTimeout"}},
		{name: "not because of its node", wish: keep(func(w *Wish) { w.Desired = 1 }),
			runners: set(at(StageStarting, "b", 1, unfitFor(ReasonNodeCordoned))), next: later},
		{name: "a node took it after it was asked for: withdrawn", wish: keep(nil),
			runners:  set(at(StageTerminating, "b", 1, removal(RemovalAsked, ReasonScaleDown, t0), shown(StageStarting, t0))),
			withdraw: []string{"terminating-b-0 NeededAgain"}, next: t0.Add(2 * time.Minute)},
	}.check(t)
}

func TestMakePlan_RUN1_ASmallerNumberWaitsForPendingRunners(t *testing.T) {
	pending := Wish{Desired: 2, TemplateHash: "b", KeepPending: true}
	none := pending
	none.Desired = 0
	cases{
		{name: "too few serve: nobody goes", wish: pending, runners: set(at(StageStarting, "b", 2), at(StageIdle, "b", 2))},
		{name: "enough serve: the oldest go, the newest stay", wish: pending, runners: set(at(StageStarting, "b", 1), at(StageIdle, "b", 4)),
			ask: []string{"idle-b-0 ScaleDown", "idle-b-1 ScaleDown"}},
		{name: "what waits for a node goes first", wish: pending, runners: set(at(StageStarting, "b", 1, unplacedFor(time.Minute)), at(StageIdle, "b", 2)),
			ask: []string{"starting-b-0 ScaleDown"}},
		{name: "nothing is wanted: what serves goes, the pending follow when they serve or are late", wish: none,
			runners: set(at(StageStarting, "b", 1), at(StageIdle, "b", 1)), ask: []string{"idle-b-0 ScaleDown"}},
		{name: "pending ones of an older template go at once", wish: pending, runners: set(at(StageStarting, "a", 1), at(StageIdle, "b", 2)),
			ask: []string{"starting-a-0 ScaleDown"}},
	}.check(t)
}

// RUN-4: cbbc383a the hold ends on time, 791634fb static runners have none.
func TestHoldUntil_RUN4(t *testing.T) {
	const hold = 10 * time.Minute
	never := time.Time{}
	for _, c := range []struct {
		name                 string
		ephemeral            bool
		scaledAt, completeAt time.Time
		want                 time.Time
	}{
		{"cbbc383a a need that was met holds, and ends by itself", true, t0, t0.Add(time.Second), t0.Add(hold + time.Second)},
		{"met in the same second", true, t0, t0, t0.Add(hold)},
		{"791634fb static runners are added at once", false, t0, t0.Add(time.Second), never},
		{"a newer need ends it", true, t0.Add(time.Minute), t0, never},
		{"a need that was never met", true, t0, never, never},
		{"nobody chooses the number by what jobs need", true, never, t0, never},
	} {
		require.Equal(t, c.want, HoldUntil(c.ephemeral, c.scaledAt, c.completeAt, hold), c.name)
	}
}

func TestCompleteAt_RUN4_CountsFromTheLastScaleUpAndNotFromTheLastLook(t *testing.T) {
	minuteAgo := t0.Add(-time.Minute)
	require.Equal(t, t0, CompleteAt(time.Time{}, time.Time{}, false, true, t0), "the first time")
	require.Equal(t, minuteAgo, CompleteAt(minuteAgo, minuteAgo, false, true, t0), "nothing new")
	require.Equal(t, t0, CompleteAt(minuteAgo, minuteAgo.Add(time.Second), false, true, t0), "a newer need is met")
	require.Equal(t, minuteAgo, CompleteAt(minuteAgo, t0, false, false, t0), "and is not, as long as some are missing")
	require.Equal(t, t0, CompleteAt(minuteAgo, minuteAgo, true, true, t0), "asked for again")
}

// RUN-6: a victim that was asked for stays it, counts, and is asked again only in time; demand that returns takes the request back.
func TestMakePlan_RUN6_AVictimAskedIsKeptInMind(t *testing.T) {
	later := t0.Add(time.Minute)
	asked := at(StageTerminating, "b", 1, removal(RemovalAsked, ReasonScaleDown, later), shown(StageIdle, t0))
	wish := func(n int) Wish { return Wish{Desired: n, TemplateHash: "b", KeepBooting: true, KeepPending: true} }
	cases{
		{name: "4551309e it stays the victim, and nobody else goes for it", wish: wish(2), runners: set(at(StageIdle, "b", 2), asked), next: later},
		{name: "4551309e it counts: none is made in its place", wish: wish(3), runners: set(at(StageIdle, "b", 2), asked), withdraw: []string{"terminating-b-0 NeededAgain"}},
		{name: "4551309e it is not deleted, also when the owner is", wish: Wish{TemplateHash: "b", Terminating: true}, runners: set(asked), next: later},
	}.check(t)
}

// RUN-6, RUN-2: how often GitHub is asked about one runner (9628bb29).
func TestPace_RUN6_AskedAgain(t *testing.T) {
	reset := t0.Add(time.Hour)
	busyUntil, forever, askAt := GitHubPace(true).AskedAgain(Answer{Verdict: Busy}, 0, t0)
	require.True(t, forever, "9628bb29 a busy ephemeral runner is asked about once")
	require.Zero(t, busyUntil)
	require.Zero(t, askAt)

	busyUntil, forever, askAt = GitHubPace(false).AskedAgain(Answer{Verdict: Busy}, 0, t0)
	require.False(t, forever)
	require.Equal(t, t0.Add(time.Minute), busyUntil, "9628bb29 a busy static one once a minute")
	require.Equal(t, busyUntil, askAt)
	_, _, askAt = GitHubPace(false).AskedAgain(Answer{Verdict: Busy, NotBefore: reset}, 0, t0)
	require.Equal(t, reset, askAt)

	for unknowns, wait := range map[int]time.Duration{1: 5 * time.Second, 2: 10 * time.Second, 6: 160 * time.Second, 7: 5 * time.Minute, 1000: 5 * time.Minute} {
		busyUntil, forever, askAt = GitHubPace(true).AskedAgain(Answer{}, unknowns, t0)
		require.Equal(t, t0.Add(wait), askAt, "unknown for the %dth time", unknowns)
		require.Zero(t, busyUntil)
		require.False(t, forever)
	}
	_, _, askAt = GitHubPace(true).AskedAgain(Answer{NotBefore: reset}, 1, t0)
	require.Equal(t, reset, askAt, "the end of a rate limit is waited for")
	_, _, askAt = GitHubPace(true).AskedAgain(Answer{NotBefore: t0.Add(time.Millisecond)}, 1, t0)
	require.Equal(t, t0.Add(5*time.Second), askAt, "and our own pace is the least")
}

// RUN-4: a need that another clock dates in the future is not met again at every reconciliation: each would write the
// status.
func TestCompleteAt_RUN4_ANeedOfTheFutureIsMetOnce(t *testing.T) {
	now := t0
	future := now.Add(time.Hour)
	met := CompleteAt(time.Time{}, future, false, true, now)
	require.Equal(t, now, met)
	require.Equal(t, met, CompleteAt(met, future, false, true, now.Add(time.Minute)))
	require.Equal(t, future, CompleteAt(met, future, false, true, future), "its time has come")
	require.Equal(t, now.Add(time.Minute), CompleteAt(met, future, true, true, now.Add(time.Minute)), "runners were made for it")
}
