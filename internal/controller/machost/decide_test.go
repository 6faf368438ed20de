package machost

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

var noon = time.Date(2026, 5, 19, 12, 0, 0, 0, time.UTC)

const middle = 0.5 // of the jitter: none

// applied is a host that is what is wanted, with a Node that is ready.
func applied() observed {
	return observed{
		memory:    memory{Applied: "a", AppliedTime: noon.Add(-time.Hour), Wanted: "a", Outcome: OutcomeSucceeded},
		Node:      nodeView{Wanted: true, Exists: true, Ready: true},
		WantedNow: "a", Account: "account", Identity: "identity", Room: true,
	}
}

func TestDecide(t *testing.T) {
	with := func(changes ...func(*observed)) observed {
		o := applied()
		for _, change := range changes {
			change(&o)
		}
		return o
	}
	drifted := func(o *observed) { o.WantedNow = "b" }
	ended := func(outcome Outcome, held string) func(*observed) {
		return func(o *observed) {
			o.WantedNow = "b"
			o.memory = o.begin("b", noon, middle).end(outcome, held, noon, middle)
			o.LastError = "it said no"
		}
	}
	mine := func(o *observed) {
		o.Node.Mine, o.Node.Unschedulable, o.Node.CordonedAt = true, true, noon.Add(-time.Minute)
	}
	for name, c := range map[string]struct {
		o     observed
		do    deed
		state State
		says  string
	}{
		"nothing is wanted": {o: applied(), state: StateReady},
		"a new Mac":         {o: observed{WantedNow: "a", Room: true, Node: nodeView{Wanted: true}}, do: attempt, state: StateApplying, says: "not been prepared"},
		"a changed hash":    {o: with(drifted), do: attempt, state: StateApplying, says: "has changed"},
		"a new Mac that is another Node": {
			o: observed{
				WantedNow: "a", Room: true, Node: nodeView{Wanted: true}, FormerNode: "mac-1",
				memory: memory{Wanted: "a"}.begin("a", noon.Add(-time.Hour), middle).end(OutcomeDeferred, "", noon.Add(-time.Hour), middle),
			},
			state: StateDraining, says: "kubectl cordon mac-1",
		},
		"no room":                {o: with(drifted, func(o *observed) { o.Room = false }), state: StateQueued},
		"under way":              {o: with(drifted, func(o *observed) { o.Working = true }), state: StateApplying},
		"paused":                 {o: with(drifted, func(o *observed) { o.Paused = true }), state: StatePaused},
		"paused, cordoned by us": {o: with(drifted, mine, func(o *observed) { o.Paused = true }), do: uncordon, state: StatePaused},
		"a problem":              {o: with(func(o *observed) { o.Problem = &problem{StateSecretMissing, "create it"} }), state: StateSecretMissing, says: "create it"},
		"a Node that has just gone": {
			o:     with(func(o *observed) { o.Node.Exists = false; o.Missing = noon.Add(-nodeGrace + time.Second) }),
			state: StateNodeMissing,
		},
		"a Node that stays away": {
			o:  with(func(o *observed) { o.Node.Exists = false; o.Missing = noon.Add(-nodeGrace) }),
			do: attempt, state: StateApplying, says: "does not exist",
		},
		"a Node that is silent for a while": {
			o: with(func(o *observed) { o.Node.Ready = false; o.Missing = noon.Add(-silentGrace + time.Second) }), state: StateNodeNotReady,
		},
		"a Node that stays silent": {
			o:  with(func(o *observed) { o.Node.Ready = false; o.Missing = noon.Add(-silentGrace) }),
			do: attempt, state: StateApplying, says: "not ready",
		},
		"checked a day ago": {
			o: with(func(o *observed) { o.AppliedTime = noon.Add(-checkEvery) }), do: attempt, state: StateApplying, says: "was last checked",
		},
		"checked less than a day ago":    {o: with(func(o *observed) { o.AppliedTime = noon.Add(time.Second - checkEvery) }), state: StateReady},
		"a Mac that joins no cluster":    {o: with(func(o *observed) { o.Node = nodeView{}; o.Missing = noon.Add(-time.Hour) }), state: StateReady},
		"a failed attempt":               {o: with(ended(OutcomeFailed, "")), state: StateBackingOff, says: "it said no"},
		"a Mac that does not answer":     {o: with(ended(OutcomeUnreachable, "")), state: StateUnreachable, says: "it said no"},
		"a wrong password":               {o: with(ended(OutcomeWrongPassword, "account")), state: StateWrongPassword, says: "it said no"},
		"another password":               {o: with(ended(OutcomeWrongPassword, "another")), do: attempt, state: StateApplying},
		"a changed host key":             {o: with(ended(OutcomeHostKeyChanged, "identity")), state: StateHostKeyChanged, says: "spec.hostKey"},
		"another pin":                    {o: with(ended(OutcomeHostKeyChanged, "another")), do: attempt, state: StateApplying},
		"what a failed attempt has left": {o: with(ended(OutcomeFailed, ""), func(o *observed) { o.WantedNow = "a" }), do: attempt, state: StateApplying, says: "did not succeed"},
		"an attempt whose controller has died": {
			o: with(drifted, func(o *observed) { o.memory = o.begin("b", noon.Add(-time.Minute), middle) }), do: attempt, state: StateApplying,
		},
		"deferred":                                     {o: with(ended(OutcomeDeferred, "")), do: cordon, state: StateDraining},
		"deferred, another one's turn":                 {o: with(ended(OutcomeDeferred, ""), func(o *observed) { o.Turn = "mac-1" }), state: StateWaitingForTurn, says: "mac-1"},
		"deferred, cordoned, runners work":             {o: with(ended(OutcomeDeferred, ""), mine, func(o *observed) { o.Node.Runners = 2 }), state: StateDraining, says: "2 runners"},
		"deferred, cordoned a moment ago":              {o: with(ended(OutcomeDeferred, ""), mine, func(o *observed) { o.Node.CordonedAt = noon }), state: StateDraining, says: "verifying"},
		"deferred, cordoned by a clock that was ahead": {o: with(ended(OutcomeDeferred, ""), mine, func(o *observed) { o.Node.CordonedAt = noon.Add(time.Hour) }), do: cordon, state: StateDraining},
		"deferred, and no Node":                        {o: with(ended(OutcomeDeferred, ""), func(o *observed) { o.Node = nodeView{Wanted: true} }), state: StateDraining, says: "no Node"},
		"deferred though cordoned, machines of others": {o: with(ended(OutcomeDeferred, ""), mine), state: StateDraining, says: "did not start"},
		"drained": {
			o: with(ended(OutcomeDeferred, ""), mine, func(o *observed) {
				o.memory.Next = noon.Add(busyRetry - time.Minute)
			}), do: attempt, state: StateApplying,
		},
		"cordoned by somebody else, and empty": {
			o: with(ended(OutcomeDeferred, ""), func(o *observed) { o.Node.Unschedulable = true; o.memory.Next = noon }), do: attempt, state: StateApplying,
		},
		"all is done, cordoned by us":            {o: with(mine), do: uncordon, state: StateReady},
		"all is done, cordoned by somebody else": {o: with(func(o *observed) { o.Node.Unschedulable = true }), state: StateReady},
		"somebody has uncordoned it":             {o: with(ended(OutcomeDeferred, ""), mine, func(o *observed) { o.Node.Unschedulable = false }), do: cordon, state: StateDraining},
		"failed while drained":                   {o: with(ended(OutcomeFailed, ""), mine), state: StateBackingOff},
		"a wrong password while drained":         {o: with(ended(OutcomeWrongPassword, "account"), mine), do: uncordon, state: StateWrongPassword},
	} {
		t.Run(name, func(t *testing.T) {
			a := decide(c.o, noon)
			require.Equal(t, c.do, a.Do, a.Why)
			require.Equal(t, c.state, a.State)
			require.Contains(t, a.Why, c.says)
			require.NotEmpty(t, a.Why)
		})
	}
}

func TestDecide_TheCapIsARestAndThenAnotherFive(t *testing.T) {
	o, now := observed{WantedNow: "a", Room: true, Node: nodeView{Wanted: true}}, noon
	fail := func() time.Duration {
		t.Helper()
		began := now
		for decide(o, now).Do != attempt {
			now = now.Add(time.Second)
			require.Less(t, now.Sub(began), 2*restAfterFailure, "it tries again some day")
		}
		waited := now.Sub(began)
		o.memory = o.begin(o.WantedNow, now, middle).end(OutcomeFailed, "", now, middle)
		return waited
	}
	var waits []time.Duration
	for range maxAttempts + 1 {
		waits = append(waits, fail())
	}
	require.Equal(t, []time.Duration{0, 30 * time.Second, time.Minute, 2 * time.Minute, 4 * time.Minute, restAfterFailure}, waits)
	require.Equal(t, 1, o.Attempts)
	for range maxAttempts - 1 {
		fail()
	}
	require.Equal(t, StateFailed, decide(o, now).State)
	o.WantedNow = "b"
	require.Equal(t, attempt, decide(o, now).Do, "something has changed")
	require.Zero(t, fail())
	require.Equal(t, 1, o.Attempts)
}

// Each attempt kills its controller: the pause after the last one is kept nevertheless.
func TestDecide_AttemptsThatKillTheirControllerAreCounted(t *testing.T) {
	o, now, attempts := observed{WantedNow: "a", Room: true}, noon, 0
	for now.Sub(noon) < restAfterFailure {
		if decide(o, now).Do == attempt {
			o.memory = o.begin(o.WantedNow, now, middle)
			attempts++
		}
		now = now.Add(time.Second)
	}
	require.Equal(t, maxAttempts, attempts)
}

// A controller that dies in each attempt has not heard whether the password was refused.
func TestDecide_APasswordWithoutAnAnswerIsNotTriedOnAndOn(t *testing.T) {
	o, now, attempts := observed{WantedNow: "a", Account: "p", Room: true}, noon, 0
	die := func(lasts time.Duration) {
		for end := now.Add(lasts); now.Before(end); now = now.Add(time.Second) {
			if decide(o, now).Do == attempt {
				o.memory = o.begin(o.WantedNow, now, middle).risking(o.memory, o.Account)
				attempts++
			}
		}
	}
	die(3 * restAfterFailure)
	require.Equal(t, 2, attempts)
	require.Equal(t, StateWrongPassword, decide(o, now).State)
	o.WantedNow = "b"
	die(restAfterFailure)
	require.Equal(t, 2, attempts, "another configuration is no other password")
	o.Account = "p+"
	die(restAfterFailure)
	require.Equal(t, 4, attempts)
	o.Account = "p++"
	o.memory = o.begin(o.WantedNow, now, middle).risking(o.memory, o.Account).end(OutcomeFailed, "", now, middle)
	require.Empty(t, o.BlockedBy, "its end was seen")
}

func TestDecide_ANodeThatNeverComesIsNoReasonToApplyForEver(t *testing.T) {
	o, now, attempts := observed{WantedNow: "a", Room: true, Node: nodeView{Wanted: true}}, noon, 0
	var last action
	for now.Sub(noon) < restAfterFailure {
		o.memory = o.notice(o.Node.well(), now)
		if last = decide(o, now); last.Do == attempt {
			o.memory = o.begin(o.WantedNow, now, middle).end(OutcomeSucceeded, "", now, middle)
			attempts++
		}
		now = now.Add(time.Second)
	}
	require.Equal(t, maxAttempts, attempts)
	require.Equal(t, StateFailed, last.State)
}

// A Mac that is off, and one whose machines take their time, are no failures.
func TestDecide_WhatIsNoFailureDoesNotCount(t *testing.T) {
	for _, outcome := range []Outcome{OutcomeUnreachable, OutcomeDeferred} {
		o, now := observed{WantedNow: "a", Room: true, Node: nodeView{Wanted: true}}, noon
		for attempts := 0; attempts < 4*maxAttempts; now = now.Add(time.Second) {
			a := decide(o, now)
			require.NotEqual(t, StateFailed, a.State)
			if a.Do == attempt {
				attempts++
				o.memory = o.begin(o.WantedNow, now, middle).end(outcome, "", now, middle)
			}
		}
		require.Zero(t, o.Attempts)
	}
}

// A drained Mac that no longer answers blocks neither its own runners nor the turn of the others for ever.
func TestDecide_AnUnreachableMacIsUncordonedInTheEnd(t *testing.T) {
	o := applied()
	o.WantedNow = "b"
	o.Node.Mine, o.Node.Unschedulable, o.Node.CordonedAt = true, true, noon
	for n := 1; n <= unreachableHold; n++ {
		require.Equal(t, attempt, decide(o, noon).Do)
		o.memory = o.begin("b", noon, middle).end(OutcomeUnreachable, "", noon, middle)
		a := decide(o, noon)
		require.Equal(t, StateUnreachable, a.State)
		require.Equal(t, n >= unreachableHold, a.Do == uncordon, "after %d attempts", n)
		o.Next = noon
	}
}

// The clock was a year ahead when a time was noted.
func TestDecide_AClockThatWasSetBackHoldsNothingUp(t *testing.T) {
	ahead := noon.AddDate(1, 0, 0)
	for name, c := range map[string]struct {
		change func(*observed)
		within time.Duration
	}{
		"a failed attempt":    {func(o *observed) { o.Outcome, o.Attempts, o.Next = OutcomeFailed, 1, ahead }, restAfterFailure},
		"a success":           {func(o *observed) { o.AppliedTime = ahead }, checkEvery},
		"a Node that is gone": {func(o *observed) { o.Node.Exists, o.Missing = false, ahead }, nodeGrace},
	} {
		t.Run(name, func(t *testing.T) {
			o, now := applied(), noon
			c.change(&o)
			for {
				o.memory = o.bounded(now).notice(o.Node.well(), now)
				if decide(o, now).Do == attempt {
					return
				}
				now = now.Add(time.Minute)
				require.LessOrEqual(t, now.Sub(noon), c.within)
			}
		})
	}
	o := applied()
	require.Equal(t, o.memory, o.bounded(noon), "what is past stays")
}

func TestBackOff_HasJitterAndAnEnd(t *testing.T) {
	require.Equal(t, 24*time.Second, backOff(1, 0))
	require.InDelta(t, float64(36*time.Second), float64(backOff(1, 0.999999)), float64(time.Millisecond))
	require.Equal(t, maxBackOff, backOff(100, middle))
}

// One host under random events. In every history: only what the host itself has cordoned is uncordoned, no password is tried again, the
// number of attempts stays within its limit, and a host that is not ready says why, and is reconciled again.
func TestDecide_HistoriesKeepTheRules(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		now := noon
		o := observed{Room: true, WantedNow: "a", Account: "p", Identity: "k", Node: nodeView{Wanted: rapid.Bool().Draw(t, "joins")}}
		type tried struct {
			at     time.Time
			wanted string
		}
		var attempts []tried
		refused := map[string]bool{}
		strangersCordon := false
		outcomes := rapid.SampledFrom([]Outcome{
			OutcomeSucceeded, OutcomeDeferred, OutcomeUnreachable, OutcomeHostKeyChanged, OutcomeWrongPassword, OutcomeFailed, OutcomeLoginRefused, OutcomeRunning,
		})
		for range rapid.IntRange(1, 120).Draw(t, "steps") {
			now = now.Add(rapid.SampledFrom([]time.Duration{time.Second, 10 * time.Second, time.Minute, 10 * time.Minute, 2 * time.Hour}).Draw(t, "passes"))
			switch rapid.IntRange(0, 12).Draw(t, "event") {
			case 0:
				o.WantedNow = rapid.SampledFrom([]string{"a", "b"}).Draw(t, "wanted")
			case 1:
				o.Account += "+" // every write makes another version
			case 2:
				o.Node.Ready = o.Node.Exists && !o.Node.Ready
			case 3: // deleted or registered
				o.Node = nodeView{Wanted: o.Node.Wanted, Exists: !o.Node.Exists}
				strangersCordon = false
			case 4: // a person
				if o.Node.Exists {
					o.Node.Unschedulable = !o.Node.Unschedulable
					strangersCordon = o.Node.Unschedulable && !o.Node.Mine
				}
			case 5:
				o.Paused = !o.Paused
			case 6:
				o.Room = !o.Room
			case 7:
				o.Node.Runners = rapid.IntRange(0, 2).Draw(t, "runners")
			case 8:
				o.Turn = rapid.SampledFrom([]string{"", "other"}).Draw(t, "turn")
			case 9:
				o.Problem = rapid.SampledFrom([]*problem{nil, {StateInvalid, "mend it"}}).Draw(t, "problem")
			}
			o.memory = o.notice(o.Node.well(), now)
			a := decide(o, now)
			if a.Why == "" && a.State != StateReady {
				t.Fatalf("%s without a reason", a.State)
			}
			if a.Again <= 0 || a.Again > lookAgain {
				t.Fatalf("%s would be reconciled again after %s", a.State, a.Again)
			}
			switch a.Do {
			case uncordon:
				if !o.Node.Mine || strangersCordon {
					t.Fatalf("uncordons a node that another client has cordoned: %+v", o)
				}
				o.Node.Mine, o.Node.Unschedulable = false, false
			case cordon:
				if o.Node.Unschedulable || o.Turn != "" || !o.Node.Exists {
					t.Fatalf("cordons out of turn, or what is cordoned: %+v", o)
				}
				o.Node.Mine, o.Node.Unschedulable, o.Node.CordonedAt = true, true, now
			case attempt:
				switch {
				case refused[o.Account]:
					t.Fatalf("tries a refused password again: %+v", o)
				case o.Paused || o.Problem != nil || !o.Room:
					t.Fatalf("an attempt that may not be: %+v", o)
				}
				m := o.begin(o.WantedNow, now, middle)
				outcome := outcomes.Draw(t, "outcome")
				if outcome != OutcomeRunning {
					m = m.end(outcome, map[Outcome]string{OutcomeWrongPassword: o.Account, OutcomeHostKeyChanged: o.Identity}[outcome], now, middle)
				}
				o.memory = m
				switch outcome {
				case OutcomeWrongPassword:
					refused[o.Account] = true
				case OutcomeFailed, OutcomeLoginRefused, OutcomeRunning:
					attempts = append(attempts, tried{now, o.WantedNow})
				default:
					attempts = nil
				}
			}
			if a.State == StateReady && a.Due == "" {
				o.memory = o.settled()
				attempts = nil
			}
			for len(attempts) > 0 && now.Sub(attempts[0].at) >= restAfterFailure {
				attempts = attempts[1:]
			}
			same := 0
			for i := len(attempts) - 1; i >= 0 && attempts[i].wanted == o.WantedNow; i-- {
				same++
			}
			if same > maxAttempts {
				t.Fatalf("%d attempts in an hour for the same", same)
			}
		}
	})
}

// Without faults, and with successful attempts, every host becomes ready.
func TestDecide_EveryHistoryEndsReady(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		outcome := rapid.SampledFrom([]Outcome{OutcomeDeferred, OutcomeUnreachable, OutcomeFailed, OutcomeLoginRefused, OutcomeSucceeded, OutcomeRunning})
		o := observed{
			Room: true, WantedNow: "b", Account: "p", Identity: "k",
			memory: memory{Applied: rapid.SampledFrom([]string{"", "a", "b"}).Draw(t, "applied")},
			Node:   nodeView{Wanted: true, Exists: rapid.Bool().Draw(t, "exists"), Unschedulable: rapid.Bool().Draw(t, "cordoned"), Runners: rapid.IntRange(0, 2).Draw(t, "runners")},
		}
		now := noon
		for range rapid.IntRange(0, 12).Draw(t, "attempts") {
			o.memory = o.begin(o.WantedNow, now, rapid.Float64Range(0, 0.99).Draw(t, "random"))
			if end := outcome.Draw(t, "outcome"); end != OutcomeRunning {
				o.memory = o.memory.end(end, "", now, middle)
			}
			now = now.Add(time.Minute)
		}
		if o.Node.Exists && rapid.Bool().Draw(t, "ours") {
			o.Node.Mine, o.Node.Unschedulable, o.Node.CordonedAt = true, true, now
		}
		theirs := o.Node.Unschedulable && !o.Node.Mine
		o.Node.Runners = 0
		for range 10000 {
			o.memory = o.notice(o.Node.well(), now)
			a := decide(o, now)
			switch a.Do {
			case attempt:
				o.memory = o.begin(o.WantedNow, now, middle).end(OutcomeSucceeded, "", now, middle)
				o.Node.Exists, o.Node.Ready = true, true
			case cordon:
				o.Node.Mine, o.Node.Unschedulable, o.Node.CordonedAt = true, true, now
			case uncordon:
				o.Node.Mine, o.Node.Unschedulable = false, false
			case nothing:
				if a.State == StateReady {
					if o.Node.Mine || o.Node.Unschedulable != theirs {
						t.Fatalf("ready, and the cordon is not what it was: %+v", o.Node)
					}
					return
				}
			}
			now = now.Add(5 * time.Second)
		}
		t.Fatalf("never ready: %+v", o)
	})
}
