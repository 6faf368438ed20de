package selfregistering

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

var t0 = time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC)

func waits(ids ...int64) (jobs []Job) {
	for _, id := range ids {
		jobs = append(jobs, Job{ID: id, Repository: "acme/app"})
	}
	return jobs
}

func runs(ids ...int64) (jobs []Job) {
	for _, id := range ids {
		jobs = append(jobs, Job{ID: id, Repository: "acme/app", Running: true, Runner: "ci-1a2b3c4d-x-y"})
	}
	return jobs
}

// owner is one owner from decision to decision.
type owner struct {
	t    require.TestingT
	in   Input
	last Result
}

func newOwner(t require.TestingT, least, most int) *owner {
	return &owner{t: t, in: Input{
		Now: t0, Evidence: Evidence{Server: Server{Sees: true}},
		Spec: Spec{Owner: "ci", Min: least, Max: most, Cooldown: 10 * time.Minute, Jobs: &Jobs{Lag: time.Minute}},
	}}
}

// decides on what the server says, and takes the decision over. All that is wanted is there at once.
func (o *owner) decides(jobs ...[]Job) int {
	o.in.Evidence.Server.Jobs = slices.Concat(jobs...)
	return o.again()
}

func (o *owner) again() int {
	o.last = Decide(o.in)
	require.Equal(o.t, o.last, Decide(o.in), "SCALE-4")
	o.in.State = o.last.State
	o.in.Runners.Exist = o.last.State.Desired
	return o.last.State.Desired
}

// passes advances the time, with a decision every few seconds.
func (o *owner) passes(d time.Duration) int {
	for end := o.in.Now.Add(d); o.in.Now.Before(end); {
		o.in.Now = o.in.Now.Add(min(10*time.Second, end.Sub(o.in.Now)))
		o.again()
	}
	return o.last.State.Desired
}

// 6.1
func TestDecide_61_WithinTheBounds(t *testing.T) {
	o := newOwner(t, 2, 5)
	require.Equal(t, 2, o.decides())
	require.Equal(t, "at least 2", o.last.Reason)
	require.Equal(t, 4, o.decides(waits(1, 2, 3, 4)))
	require.Equal(t, 5, o.decides(waits(1, 2, 3, 4, 5, 6, 7)))
	require.Equal(t, "0 running and 7 queued, and the maximum is 5", o.last.Reason)
	o.in.Spec.Max = 3
	require.Equal(t, 3, o.again(), "the largest number counts at once")
	require.Equal(t, o.in.Now, o.last.State.LastScaleDown)
	o.in.Spec.Min = 9
	require.Equal(t, 3, o.again())
}

// 6.2, 6.6: each job counts once, by its id, whatever the source and however often it is reported; only its
// end frees it.
func TestDecide_66_JobsCountByTheirIDs(t *testing.T) {
	o := newOwner(t, 0, 10)
	o.in.Spec.Cooldown = 0
	require.Equal(t, 1, o.decides(waits(1)))
	require.Equal(t, 1, o.decides(waits(1), waits(1)), "a message that comes twice adds nothing")
	o.in.Evidence.Queues = []Queue{{Repository: "acme/app", Readings: []Reading{{Begun: t0, Jobs: append(waits(1, 2), runs(3)...)}}}}
	require.Equal(t, 3, o.decides(waits(1)), "nor does one that GitHub's queue shows as well")
	require.Equal(t, []int{2, 1}, []int{o.last.Queued, o.last.Running})
	o.in.Evidence.Server.Settled = []int64{1}
	require.Equal(t, 2, o.decides(), "the end of a job frees that job alone")
	require.Equal(t, []int{1, 1}, []int{o.last.Queued, o.last.Running})
	o.in.Evidence.Server.Settled = []int64{1, 3}
	require.Equal(t, 1, o.decides())
	require.Equal(t, []int{1, 0}, []int{o.last.Queued, o.last.Running})
	require.Equal(t, 1, o.decides(runs(2)), "a job that has begun does not wait any more, whatever an older list says")
	require.Equal(t, []int{0, 1}, []int{o.last.Queued, o.last.Running})
}

// 6.5: what is beyond the largest number is served when there is room, however long that takes.
func TestDecide_65_JobsBeyondMaxAreNotForgotten(t *testing.T) {
	o := newOwner(t, 0, 2)
	require.Equal(t, 2, o.decides(waits(1, 2, 3)))
	o.in.Runners.Busy = 2
	require.Equal(t, 2, o.decides(runs(1, 2), waits(3)))
	o.passes(24 * time.Hour)
	require.Equal(t, 1, o.last.Queued)
	o.in.Runners.Busy = 0
	require.Equal(t, 2, o.decides(waits(3)))
	o.in.Runners.Exist = 0 // both have ended
	o.in.Runners.CompleteAt = o.in.Now
	before := o.in.State.ScaledAt
	o.in.Now = o.in.Now.Add(time.Second)
	require.Equal(t, 2, o.again())
	require.True(t, o.last.State.ScaledAt.After(before), "it is said that they are needed, or the hold would keep them from being made")
}

// 6.7: a job that no message reported is found in GitHub's queue, queued or completed.
func TestDecide_67_LostMessagesAreMadeGood(t *testing.T) {
	o := newOwner(t, 0, 10)
	o.in.Spec.Cooldown = 0
	reading := func(after time.Duration, jobs ...Job) Reading { return Reading{Begun: t0.Add(after), Jobs: jobs} }
	queue := func(readings ...Reading) {
		o.in.Evidence.Queues = []Queue{{Repository: "Acme/App", Readings: readings}}
	}
	queue(reading(0, waits(7)...))
	require.Equal(t, 1, o.decides(), "its queued message was lost")

	known := waits(1)
	known[0].Since = t0
	queue(reading(2 * time.Minute))
	require.Equal(t, 1, o.decides(known), "one reading may have missed it")
	queue(reading(7*time.Minute), reading(2*time.Minute))
	require.Equal(t, 0, o.decides(known), "its completed message was lost")

	for name, readings := range map[string][]Reading{
		"it was queued after the first of them": {reading(7 * time.Minute), reading(30 * time.Second)},
		"the second shows it":                   {reading(7*time.Minute, known...), reading(2 * time.Minute)},
		"the first shows it":                    {reading(7 * time.Minute), reading(2*time.Minute, known...)},
		"one was not read to its end":           {reading(7 * time.Minute), {Begun: t0.Add(2 * time.Minute), Partial: true}},
	} {
		queue(readings...)
		require.Equal(t, 1, o.decides(known), name)
	}
	queue(reading(7*time.Minute), reading(2*time.Minute))
	known[0].Repository = "acme/other"
	require.Equal(t, 1, o.decides(known), "another repository's queue says nothing of it")
}

// 6.10: busy runners, and beside them one for each queued job or minIdle; surplus runners are removed while others are busy.
func TestDecide_610_BusyAndTheLargerOfIdleAndQueued(t *testing.T) {
	o := newOwner(t, 0, 20)
	o.in.Spec.Jobs.MinIdle = 2
	require.Equal(t, 2, o.decides())
	require.Equal(t, 2, o.decides(waits(1)))
	require.Equal(t, 5, o.decides(waits(1, 2, 3, 4, 5)))
	o.in.Runners.Busy = 5
	require.Equal(t, 7, o.decides(runs(1, 2, 3, 4, 5)))
	require.Equal(t, 9, o.decides(runs(1, 2, 3, 4, 5), waits(6, 7, 8, 9)))
	o.in.Runners.Busy = 1
	o.decides(runs(1))
	require.Equal(t, 3, o.passes(11*time.Minute), "while a job runs, what is beyond it and the idle ones goes")
	require.Equal(t, 1, o.last.Running)
}

// A runner is busy before its job is reported: that job is not counted twice, and the runner does not replace it forever.
func TestDecide_610_AJobThatHasJustBeenTakenIsNotCountedTwice(t *testing.T) {
	o := newOwner(t, 0, 20)
	require.Equal(t, 1, o.decides(waits(1)))
	o.passes(5 * time.Minute)
	o.in.Runners.Busy = 1
	o.in.Now = o.in.Now.Add(3 * time.Second)
	require.Equal(t, 1, o.decides(waits(1)), "its runner has it")
	require.Equal(t, 1, o.decides(runs(1)))
	o.passes(5 * time.Minute)
	// The job is over, and its runner still shows work.
	require.Equal(t, 1, o.decides())
	require.Equal(t, 1, o.decides(waits(2)))
	require.Equal(t, 2, o.passes(2*time.Minute), "a runner that works at nothing known keeps no job from getting one")
}

// A job on another owner's runner does not count here, and a name that begins with another's is not mistaken for it.
func TestDecide_JobsOfOtherOwnersRunners(t *testing.T) {
	o := newOwner(t, 0, 20)
	on := func(runner string) []Job { return []Job{{ID: 1, Running: true, Runner: runner}} }
	o.in.Spec.Rivals = []string{"ci-large", "c", "other"}
	for runner, want := range map[string]int{"": 1, "ci-1a2b3c4d-x-y": 1, "ci-large-1a2b3c4d-x-y": 0, "c-1": 0, "laptop": 0, "ci": 0, "cide-1": 0} {
		o.in.State = State{}
		require.Equal(t, want, o.decides(on(runner)), runner)
		o.in.Runners = Runners{}
	}
	o.in.State, o.in.Spec.Owner, o.in.Spec.Rivals = State{}, "ci-large", []string{"ci"}
	require.Equal(t, 1, o.decides(on("ci-large-1a2b3c4d-x-y")))
}

// The scale-down delay of the peer: fewer must have been enough all the time, and more is granted at once.
func TestDecide_SCALE3_LowersAfterTheCooldownAndRaisesAtOnce(t *testing.T) {
	o := newOwner(t, 1, 20)
	require.Equal(t, 4, o.decides(waits(1, 2, 3, 4)))
	require.Equal(t, t0, o.last.State.ScaledAt)
	o.decides(waits(1))
	require.Equal(t, 4, o.passes(9*time.Minute+50*time.Second))
	require.Equal(t, t0.Add(10*time.Minute), o.last.Next)
	require.Equal(t, 1, o.passes(10*time.Second))
	require.Equal(t, o.in.Now, o.last.State.LastScaleDown)
	require.Zero(t, o.last.Next)
	require.Equal(t, 6, o.decides(waits(1, 2, 3, 4, 5, 6)))

	// In between more were needed once: the window begins again, and ends with what was needed then.
	o.decides()
	o.passes(8 * time.Minute)
	require.Equal(t, 6, o.decides(waits(1, 2, 3)))
	o.decides()
	require.Equal(t, 3, o.passes(3*time.Minute))
	require.Equal(t, 1, o.passes(9*time.Minute))
}

// A restarted controller knows only the number, and not since when fewer would have been enough.
func TestDecide_SCALE3_ARestartLowersNothingBeforeTheCooldown(t *testing.T) {
	o := newOwner(t, 1, 20)
	o.in.State = State{Desired: 8, Decided: true, ScaledAt: t0.Add(-time.Hour), LastScaleDown: t0.Add(-time.Hour)}
	require.Equal(t, 8, o.decides())
	require.Equal(t, t0.Add(-time.Hour), o.last.State.ScaledAt)
	require.Equal(t, 8, o.passes(9*time.Minute))
	o.in.Now = o.in.Now.Add(5 * time.Minute) // it was away
	require.Equal(t, 8, o.again(), "nor does one that did not look")
	require.Equal(t, 8, o.passes(9*time.Minute))
	require.Equal(t, 1, o.passes(time.Minute))

	require.Equal(t, 5, o.decides(waits(1, 2, 3, 4, 5)))
	o.in.Now = o.in.Now.Add(-time.Hour) // the clock was set back: nothing counts for an hour
	require.Equal(t, 5, o.decides())
	require.Equal(t, 1, o.passes(10*time.Minute))

	o = newOwner(t, 1, 20) // autoscaling was turned on
	o.in.Runners.Exist = 12
	require.Equal(t, 12, o.decides())
	require.Zero(t, o.last.State.ScaledAt)
	require.Equal(t, 1, o.passes(10*time.Minute))
}

// POOL-8: a lost source never shrinks the number, however long it is lost; jobs that are still seen raise it.
func TestDecide_POOL8_ALostSourceNeverShrinks(t *testing.T) {
	lost := map[string]func(e *Evidence){
		"the server": func(e *Evidence) { e.Server.Problem = "the server does not answer" },
		"a queue": func(e *Evidence) {
			e.Queues = []Queue{{Repository: "acme/app", Problem: "no permission", Readings: []Reading{{}}}}
		},
		"nobody":  func(e *Evidence) { e.Server.Sees = false },
		"not yet": func(e *Evidence) { e.Queues = []Queue{{Repository: "acme/app"}} },
		"cut off": func(e *Evidence) { e.Server.More = true },
		"in part": func(e *Evidence) {
			e.Queues = []Queue{{Repository: "acme/app", Readings: []Reading{{Begun: t0, Partial: true}}}}
		},
		"enough": func(e *Evidence) {
			e.Queues = []Queue{{Repository: "acme/app", Readings: []Reading{{Begun: t0, Partial: true, Enough: true}}}}
		},
	}
	for name, lose := range lost {
		o := newOwner(t, 1, 20)
		require.Equal(t, 4, o.decides(waits(1, 2, 3, 4)))
		lose(&o.in.Evidence)
		o.decides()
		require.Equal(t, 4, o.passes(time.Hour), name)
		require.Equal(t, name != "not yet" && name != "cut off" && name != "enough", o.last.Problem != "", name)
		require.Equal(t, 6, o.decides(waits(1, 2, 3, 4, 5, 6)), name)
		o.in.Evidence.Queues, o.in.Evidence.Server.Problem, o.in.Evidence.Server.Sees, o.in.Evidence.Server.More = nil, "", true, false
		o.decides()
		require.Equal(t, 6, o.passes(9*time.Minute), "%s: unseen jobs were not enough", name)
		require.Equal(t, 1, o.passes(2*time.Minute), name)
	}
	o := newOwner(t, 1, 20)
	o.in.Evidence.Server.Sees = false
	o.in.Evidence.Queues = []Queue{{Repository: "acme/app", Readings: []Reading{{Begun: t0}}}}
	o.decides()
	require.Empty(t, o.last.Problem, "the queue tells")
}

// RUN-4: ScaledAt reports a new need only when jobs or the minimum need more than exist, and the owner would hold them
// back.
func TestDecide_RUN4_ScaledAt(t *testing.T) {
	o := newOwner(t, 2, 20)
	o.decides(waits(1, 2, 3, 4))
	later := func(exist int, complete time.Time, jobs []Job) time.Time {
		o.in.Now = o.in.Now.Add(10 * time.Second)
		o.in.Runners.Exist, o.in.Runners.CompleteAt = exist, complete
		o.decides(jobs)
		return o.last.State.ScaledAt
	}
	require.Equal(t, t0, later(3, time.Time{}, waits(1, 2, 3, 4)), "they are being made")
	require.Equal(t, t0, later(4, t0.Add(15*time.Second), waits(1, 2, 3, 4)))
	require.Equal(t, t0, later(2, t0.Add(20*time.Second), nil), "two have ended, two are enough")
	require.Equal(t, o.in.Now, later(1, t0.Add(20*time.Second), nil), "below the minimum")
	first := o.in.Now
	require.Equal(t, first, later(1, t0.Add(20*time.Second), nil), "said once: the owner holds nothing back now (count the writes)")
	require.Equal(t, first, later(2, o.in.Now.Add(10*time.Second), nil))
	require.Equal(t, o.in.Now, later(2, o.in.Now, waits(5, 6, 7)), "a job waits beside two")
	require.Equal(t, 4, o.last.State.Desired, "and the number is what it was")
}

// 6.9
func TestDecide_69_SchedulesReplaceTheMinimum(t *testing.T) {
	o := newOwner(t, 3, 10)
	schedule := func(name string, from, to time.Duration, least int) Schedule {
		return Schedule{Name: name, Start: t0.Add(from), End: t0.Add(to), Zone: time.UTC, Min: least}
	}
	o.in.Spec.Schedules = []Schedule{
		schedule("later", time.Hour, 2*time.Hour, 9), schedule("night", 10*time.Minute, time.Hour, 1), schedule("day", 0, 3*time.Hour, 6),
	}
	require.Equal(t, 6, o.decides())
	require.Equal(t, "day", o.last.Schedule)
	require.Equal(t, t0.Add(10*time.Minute), o.last.Next)
	require.Equal(t, 6, o.passes(19*time.Minute))
	require.Equal(t, "night", o.last.Schedule, "the first that is active counts")
	require.Equal(t, 1, o.passes(time.Minute), "also where it asks for fewer")
	require.Equal(t, 9, o.passes(40*time.Minute))
	require.Equal(t, "at least 9 by schedule later", o.last.Reason)
	require.Equal(t, 3, o.passes(3*time.Hour))
	require.Empty(t, o.last.Schedule)

	o.in.Spec.Schedules = []Schedule{{Name: "mars", Problem: "there is no time zone Mars/Base"}}
	o.in.State.Desired = 7
	require.Equal(t, 7, o.passes(time.Hour), "a schedule that cannot be followed might want them")
	require.Equal(t, "schedule mars is invalid: there is no time zone Mars/Base", o.last.Problem)
}

func TestDecide_PercentageBusy(t *testing.T) {
	standard := Percentage{UpAbove: 80, DownBelow: 30, UpFactor: 130, DownFactor: 70}
	for _, c := range []struct {
		number, busy, want int
	}{
		{10, 8, 10}, {10, 9, 13}, {10, 10, 13}, {10, 3, 10}, {10, 2, 7}, {10, 0, 7}, {1, 1, 2}, {1, 0, 1}, {2, 0, 1}, {3, 3, 4}, {7, 2, 4},
		{0, 0, 1}, {4, 6, 6}, {100, 81, 130}, {100, 80, 100}, {100, 30, 100}, {100, 29, 70}, {5, 1, 3}, {6, 5, 8},
	} {
		got, why := standard.wants(c.number, Runners{Exist: c.number, Busy: c.busy}, false)
		require.Equal(t, c.want, got, "%+v", c)
		require.NotEmpty(t, why)
	}
	down := Percentage{UpAbove: 80, DownBelow: 60, UpFactor: 130, DownFactor: 10}
	got, _ := down.wants(10, Runners{Busy: 5}, false)
	require.Equal(t, 5, got, "those that work are needed")

	o := newOwner(t, 1, 20)
	o.in.Spec.Jobs, o.in.Spec.Percentage = nil, &standard
	o.in.Evidence.Server.Problem = "of no interest"
	o.in.Runners = Runners{Exist: 10, Busy: 9}
	require.Equal(t, 13, o.again())
	require.Equal(t, "9 of 10 busy, more than 80%", o.last.Reason)
	require.Equal(t, 13, o.passes(30*time.Second), "the new ones boot: one wave raises it once")
	o.in.Runners.Busy = 0
	require.Equal(t, 13, o.passes(9*time.Minute+50*time.Second))
	require.Equal(t, 9, o.passes(10*time.Second))
	require.Equal(t, 9, o.passes(9*time.Minute), "every step waits")
	require.Equal(t, 6, o.passes(time.Minute+10*time.Second))
	require.Equal(t, 1, o.passes(2*time.Hour))

	o.in.Spec.Jobs, o.in.Spec.Min = &Jobs{Lag: time.Minute}, 0
	o.in.Evidence.Server.Problem = ""
	require.Equal(t, 0, o.passes(time.Hour), "jobs can raise it from nothing")
	require.Equal(t, 3, o.decides(waits(1, 2, 3)), "the larger number counts")
	o.in.Runners.Busy = 3
	require.Equal(t, 4, o.decides(runs(1, 2, 3)))
}

func drawJobs(t *rapid.T, what string) []Job {
	return rapid.SliceOfN(rapid.Custom(func(t *rapid.T) Job {
		running := rapid.Bool().Draw(t, "running")
		job := Job{ID: int64(rapid.IntRange(1, 12).Draw(t, "id")), Repository: rapid.SampledFrom([]string{"acme/app", "acme/lib"}).Draw(t, "repository"), Running: running}
		if running {
			job.Runner = rapid.SampledFrom([]string{"", "ci-1", "other-1"}).Draw(t, "runner")
		}
		return job
	}), 0, 8).Draw(t, what)
}

// 6.6: the order and the number of reports of a job do not matter, and each end frees exactly that job.
func TestGather_66_Property_ASetOfIDs(t *testing.T) {
	ours := func(runner string) bool { return runner == "ci-1" }
	rapid.Check(t, func(t *rapid.T) {
		reported, listed := drawJobs(t, "told"), drawJobs(t, "listed")
		evidence := func(reported, listed []Job, settled ...int64) Evidence {
			return Evidence{Server: Server{Sees: true, Jobs: reported, Settled: settled}, Queues: []Queue{{Repository: "acme/app", Readings: []Reading{{Begun: t0, Jobs: listed}}}}}
		}
		ids := func(d Demand) (all []int64) {
			for _, job := range slices.Concat(d.Queued, d.Running) {
				all = append(all, job.ID)
			}
			slices.Sort(all)
			return all
		}
		d := Gather(evidence(reported, listed), ours)
		require.Equal(t, len(ids(d)), len(slices.Compact(ids(d))), "once each")
		for _, job := range d.Queued {
			for _, other := range slices.Concat(reported, listed) {
				require.False(t, other.ID == job.ID && other.Running, "running is the later word")
			}
		}
		mixed := rapid.Permutation(slices.Concat(reported, reported)).Draw(t, "mixed")
		require.Equal(t, ids(d), ids(Gather(evidence(mixed, slices.Concat(listed, listed)), ours)))

		if len(ids(d)) > 0 {
			gone := rapid.SampledFrom(ids(d)).Draw(t, "gone")
			without := func(jobs []Job) []Job {
				return slices.DeleteFunc(slices.Clone(jobs), func(j Job) bool { return j.ID == gone })
			}
			after := ids(Gather(evidence(without(reported), listed, gone), ours))
			require.ElementsMatch(t, slices.DeleteFunc(ids(d), func(id int64) bool { return id == gone }), after)
		}
	})
}

// Every sequence of decisions keeps the bounds, raises at once, and lowers only after the cooldown in which fewer were enough and the data
// was complete.
func TestDecide_SCALE3_Property_Sequences(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		o := newOwner(t, rapid.IntRange(0, 5).Draw(t, "min"), rapid.IntRange(1, 9).Draw(t, "max"))
		o.in.Spec.Cooldown = time.Duration(rapid.IntRange(0, 90).Draw(t, "cooldown")) * time.Second
		o.in.Spec.Jobs.MinIdle = rapid.IntRange(0, 3).Draw(t, "minIdle")
		if rapid.Bool().Draw(t, "percentage") {
			o.in.Spec.Percentage = &Percentage{UpAbove: 80, DownBelow: 30, UpFactor: 130, DownFactor: 70}
		}
		if rapid.Bool().Draw(t, "old") {
			o.in.State = State{Desired: rapid.IntRange(0, 9).Draw(t, "desired"), Decided: true, ScaledAt: t0.Add(-time.Hour)}
		}
		o.in.Runners.Exist = rapid.IntRange(0, 9).Draw(t, "exist")
		watchedSince := t0
		type look struct {
			at     time.Time
			enough int
		}
		var past []look
		for range rapid.IntRange(1, 40).Draw(t, "looks") {
			step := time.Duration(rapid.IntRange(1, 70).Draw(t, "step")) * time.Second
			o.in.Now = o.in.Now.Add(step)
			if step > LongestGap {
				watchedSince, past = o.in.Now, nil
			}
			blind := rapid.IntRange(0, 9).Draw(t, "blind") == 0
			o.in.Evidence = Evidence{Server: Server{Sees: true, Jobs: drawJobs(t, "jobs"), More: blind}}
			o.in.Runners.Busy = rapid.IntRange(0, o.in.Runners.Exist).Draw(t, "busy")
			before, decided := o.in.State.Desired, o.in.State.Decided
			if !decided {
				before, watchedSince = min(o.in.Runners.Exist, o.in.Spec.Max), o.in.Now
			}
			if len(past) == 0 {
				watchedSince = o.in.Now
			}
			after := o.again()
			enough := o.last.Needed
			if blind {
				enough = max(enough, before)
			}
			past = append(past, look{o.in.Now, enough})
			require.LessOrEqual(t, after, o.in.Spec.Max, "6.1")
			require.GreaterOrEqual(t, after, min(o.in.Spec.Min, o.in.Spec.Max), "6.1")
			require.GreaterOrEqual(t, after, o.last.Needed, "at once")
			require.Equal(t, after > before, o.last.State.ScaledAt.Equal(o.in.Now), "no need to say it twice")
			if after >= before || before > o.in.Spec.Max {
				continue
			}
			require.False(t, blind, "POOL-8")
			require.False(t, o.in.Now.Sub(watchedSince) < o.in.Spec.Cooldown, "SCALE-3: nobody has watched for so long")
			for _, l := range past {
				if o.in.Now.Sub(l.at) < o.in.Spec.Cooldown {
					require.GreaterOrEqual(t, after, l.enough, "SCALE-3: more were needed %s ago", o.in.Now.Sub(l.at))
				}
			}
		}
	})
}
