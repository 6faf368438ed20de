package fleet

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestJobTimes_SplitIsWhereTheTimeWent(t *testing.T) {
	at := func(seconds float64) time.Time {
		return time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC).Add(time.Duration(seconds * float64(time.Second)))
	}
	for name, c := range map[string]struct {
		times JobTimes
		want  []Spent
	}{
		"nothing is known": {JobTimes{}, nil},
		"just queued":      {JobTimes{Queued: at(0)}, nil},
		"all of it": {
			JobTimes{Queued: at(0), Received: at(1), Claimed: at(1.5), Minted: at(2), Acknowledged: at(2.25), Executing: at(5), Ended: at(65)},
			[]Spent{
				{PhaseWebhook, time.Second, true}, {PhaseDispatch, 500 * time.Millisecond, false}, {PhaseMint, 500 * time.Millisecond, false},
				{PhaseHandover, 250 * time.Millisecond, false}, {PhaseStart, 2750 * time.Millisecond, true}, {PhaseRun, time.Minute, true},
			},
		},
		"approved after a day": {
			JobTimes{Queued: at(0), Received: at(1), Approved: at(86400), Claimed: at(86401)},
			[]Spent{{PhaseWebhook, time.Second, true}, {PhaseApproval, 86399 * time.Second, false}, {PhaseDispatch, time.Second, false}},
		},
		"GitHub's second began before the pod had its configuration": {
			JobTimes{Queued: at(0), Received: at(0.5), Claimed: at(0.6), Minted: at(3.2), Acknowledged: at(3.4), Executing: at(3), Ended: at(13)},
			[]Spent{
				{PhaseWebhook, 500 * time.Millisecond, true}, {PhaseDispatch, 100 * time.Millisecond, false}, {PhaseMint, 2600 * time.Millisecond, false},
				{PhaseHandover, 200 * time.Millisecond, false}, {PhaseStart, 0, true}, {PhaseRun, 9600 * time.Millisecond, true},
			},
		},
		"a runner of others": {
			JobTimes{Queued: at(0), Received: at(1), Executing: at(5)}, []Spent{{PhaseWebhook, time.Second, true}, {PhaseStart, 4 * time.Second, true}},
		},
		"a runner that was claimed for an earlier job": {
			JobTimes{Queued: at(10), Received: at(11), Claimed: at(5), Minted: at(6), Acknowledged: at(7), Executing: at(12)},
			[]Spent{{PhaseWebhook, time.Second, true}, {PhaseDispatch, 0, false}, {PhaseMint, 0, false}, {PhaseHandover, 0, false}, {PhaseStart, time.Second, true}},
		},
	} {
		t.Run(name, func(t *testing.T) { require.Equal(t, c.want, c.times.Split()) })
	}
}

// Whatever is known, the phases add up to the time from the first step to the latest.
func TestJobTimes_PhasesAddUp(t *testing.T) {
	start := time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)
	rapid.Check(t, func(t *rapid.T) {
		at := func(name string) time.Time {
			if rapid.Bool().Draw(t, name+" known") {
				return start.Add(time.Duration(rapid.IntRange(0, 100_000).Draw(t, name)) * time.Millisecond)
			}
			return time.Time{}
		}
		times := JobTimes{at("queued"), at("received"), at("approved"), at("claimed"), at("minted"), at("acknowledged"), at("executing"), at("ended")}
		var sum time.Duration
		for _, s := range times.Split() {
			require.GreaterOrEqual(t, s.Time, time.Duration(0))
			sum += s.Time
		}
		steps := times.Steps()
		if len(steps) == 0 {
			require.Zero(t, sum)
			return
		}
		for i, s := range steps[1:] {
			require.False(t, s.At.Before(steps[i].At), "%s runs backwards", s.Step)
		}
		require.Equal(t, steps[len(steps)-1].At.Sub(steps[0].At), sum)
	})
}

// A step that GitHub's whole second puts before the one above it is taken to be when that one was, by the clock that has fractions.
func TestJobTimes_StepsDoNotRunBackwards(t *testing.T) {
	at := func(milliseconds int) time.Time {
		return time.Date(2026, 11, 1, 17, 32, 0, 0, time.UTC).Add(time.Duration(milliseconds) * time.Millisecond)
	}
	times := JobTimes{Queued: at(4000), Received: at(4211), Claimed: at(4300), Minted: at(4900), Acknowledged: at(5038), Executing: at(5000), Ended: at(5000)}
	require.Equal(t, []StepAt{
		{StepQueued, at(4000), true}, {StepReceived, at(4211), false}, {StepClaimed, at(4300), false}, {StepMinted, at(4900), false},
		{StepAcknowledged, at(5038), false}, {StepExecuting, at(5038), false}, {StepEnded, at(5038), false},
	}, times.Steps())
	times.Ended = at(9000)
	require.Equal(t, StepAt{StepEnded, at(9000), true}, times.Steps()[6], "GitHub's own second where nothing contradicts it")
}

// A job's present phase begins at its last step, and a completed job has none.
func TestJobTimes_OpenIsWhatGoesOn(t *testing.T) {
	at := func(seconds int) time.Time { return time.Date(2026, 11, 1, 12, 0, seconds, 0, time.UTC) }
	queued := JobTimes{Queued: at(0), Received: at(1)}
	claimed := JobTimes{Queued: at(0), Received: at(1), Claimed: at(2)}
	minted := JobTimes{Queued: at(0), Received: at(1), Claimed: at(2), Minted: at(3)}
	acknowledged := JobTimes{Queued: at(0), Received: at(1), Claimed: at(2), Minted: at(3), Acknowledged: at(4)}
	running := JobTimes{Queued: at(0), Received: at(1), Executing: at(5)}
	for _, c := range []struct {
		state JobState
		times JobTimes
		phase Phase
		since time.Time
	}{
		{JobWaiting, queued, PhaseApproval, at(1)},
		{JobQueued, queued, PhaseDispatch, at(1)},
		{JobClaimed, claimed, PhaseMint, at(2)},
		{JobMinted, minted, PhaseHandover, at(3)},
		{JobMinted, acknowledged, PhaseStart, at(4)},
		{JobExecuting, running, PhaseRun, at(5)},
	} {
		phase, since, ok := c.times.Open(c.state)
		require.True(t, ok, c.state)
		require.Equal(t, c.phase, phase, c.state)
		require.Equal(t, c.since, since, c.state)
	}
	for _, state := range []JobState{JobCompleted, JobCancelled, JobStale, JobAbsent} {
		_, _, ok := queued.Open(state)
		require.False(t, ok, state)
	}
	_, _, ok := JobTimes{}.Open(JobQueued)
	require.False(t, ok)
}
