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
				{PhaseWebhook, time.Second}, {PhaseDispatch, 500 * time.Millisecond}, {PhaseMint, 500 * time.Millisecond},
				{PhaseHandover, 250 * time.Millisecond}, {PhaseStart, 2750 * time.Millisecond}, {PhaseRun, time.Minute},
			},
		},
		"approved after a day": {
			JobTimes{Queued: at(0), Received: at(1), Approved: at(86400), Claimed: at(86401)},
			[]Spent{{PhaseWebhook, time.Second}, {PhaseApproval, 86399 * time.Second}, {PhaseDispatch, time.Second}},
		},
		"GitHub's second began before the pod had its configuration": {
			JobTimes{Queued: at(0), Received: at(0.5), Claimed: at(0.6), Minted: at(3.2), Acknowledged: at(3.4), Executing: at(3), Ended: at(13)},
			[]Spent{
				{PhaseWebhook, 500 * time.Millisecond}, {PhaseDispatch, 100 * time.Millisecond}, {PhaseMint, 2600 * time.Millisecond},
				{PhaseHandover, 200 * time.Millisecond}, {PhaseStart, 0}, {PhaseRun, 9600 * time.Millisecond},
			},
		},
		"a runner of others": {
			JobTimes{Queued: at(0), Received: at(1), Executing: at(5)}, []Spent{{PhaseWebhook, time.Second}, {PhaseStart, 4 * time.Second}},
		},
		"a runner that was claimed for an earlier job": {
			JobTimes{Queued: at(10), Received: at(11), Claimed: at(5), Minted: at(6), Acknowledged: at(7), Executing: at(12)},
			[]Spent{{PhaseWebhook, time.Second}, {PhaseDispatch, 0}, {PhaseMint, 0}, {PhaseHandover, 0}, {PhaseStart, time.Second}},
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
		latest := steps[0].At
		for _, s := range steps {
			if s.At.After(latest) {
				latest = s.At
			}
		}
		require.Equal(t, latest.Sub(steps[0].At), sum)
	})
}
