package schedule_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/bullpen-ci/bullpen/test/soak/schedule"
)

func options(t *rapid.T) schedule.Options {
	return schedule.Options{
		Seed: rapid.Uint64().Draw(t, "seed"), Round: rapid.IntRange(0, 50).Draw(t, "round"),
		Jobs: rapid.IntRange(0, 300).Draw(t, "jobs"), Faults: rapid.IntRange(0, 120).Draw(t, "faults"),
		Length: schedule.Duration(rapid.IntRange(1, 600).Draw(t, "seconds")) * schedule.Duration(time.Second),
	}
}

// A schedule is a pure function of its options; it survives being written down; it has what was asked for, in order and in time.
func TestMake(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		o := options(t)
		s, err := schedule.Make(o)
		require.NoError(t, err)
		again, err := schedule.Make(o)
		require.NoError(t, err)
		require.Equal(t, s, again)
		written, err := json.Marshal(s)
		require.NoError(t, err)
		var read schedule.Schedule
		require.NoError(t, json.Unmarshal(written, &read))
		rewritten, err := json.Marshal(read)
		require.NoError(t, err)
		require.JSONEq(t, string(written), string(rewritten))

		require.Len(t, s.Steps, o.Faults)
		last := schedule.Duration(0)
		for i, step := range s.Steps {
			require.Equal(t, i+1, step.Number)
			require.GreaterOrEqual(t, step.At, last)
			require.LessOrEqual(t, step.At, o.Length)
			require.Contains(t, schedule.Kinds(), step.Kind)
			require.NotEmpty(t, step.Target)
			last = step.At
		}
		jobs := 0
		for _, b := range s.Load {
			jobs += b.Jobs
			require.Positive(t, b.Jobs)
			require.LessOrEqual(t, b.At, o.Length)
			require.GreaterOrEqual(t, b.Account, 1)
			require.LessOrEqual(t, b.Account, schedule.Accounts)
		}
		require.Equal(t, o.Jobs, jobs)
	})
}

func TestMake_SeedsAndRoundsDiffer(t *testing.T) {
	o := schedule.Options{Seed: 1, Jobs: 50, Faults: 50, Length: schedule.Duration(time.Minute)}
	first, err := schedule.Make(o)
	require.NoError(t, err)
	o.Round = 1
	second, err := schedule.Make(o)
	require.NoError(t, err)
	o.Round, o.Seed = 0, 2
	third, err := schedule.Make(o)
	require.NoError(t, err)
	require.NotEqual(t, first.Steps, second.Steps)
	require.NotEqual(t, first.Steps, third.Steps)
}

func TestReplicas_KillsOneServerAfterTheOther(t *testing.T) {
	s := schedule.Replicas(time.Minute+time.Second, 5, time.Minute)
	require.Len(t, s.Steps, 3)
	for i, step := range s.Steps {
		require.Equal(t, schedule.ServerKill, step.Kind)
		require.Equal(t, []string{schedule.Server1, schedule.Server2}[i%2], step.Target)
		require.Equal(t, schedule.Duration(time.Duration(i+1)*schedule.ReplicaEvery), step.At)
	}
}

func TestMake_DealsEveryKind(t *testing.T) {
	s, err := schedule.Make(schedule.Options{Seed: 3, Faults: 81, Length: schedule.Duration(time.Hour)})
	require.NoError(t, err)
	dealt := map[string]bool{}
	for _, step := range s.Steps {
		dealt[step.Kind] = true
	}
	require.Len(t, dealt, len(schedule.Kinds()), "one deck has each kind")

	s, err = schedule.Make(schedule.Options{Seed: 3, Faults: 81, Length: schedule.Duration(time.Hour), Without: []string{schedule.ServerKill, "hook-drop"}})
	require.NoError(t, err)
	for _, step := range s.Steps {
		require.NotEqual(t, schedule.ServerKill, step.Kind)
		require.NotEqual(t, "hook-drop", step.Fault)
	}
	_, err = schedule.Make(schedule.Options{Length: 1, Without: schedule.GitHubFaults()})
	require.ErrorContains(t, err, `leave out "github" instead`)
	_, err = schedule.Make(schedule.Options{Length: 1, Without: []string{"rain"}})
	require.ErrorContains(t, err, `no kind of fault "rain"`)
}
