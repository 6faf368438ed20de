package history

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// memory is a store, and a source of gauges.
type memory struct {
	gauges          map[Pool]Gauges
	started         []Started
	since, before   time.Time
	recorded        [][]Sample
	old, asked      int // quarters of an hour to roll up; calls
	rolled          time.Time
	noGauges, noLog error
}

func (m *memory) Gauges(context.Context) (map[Pool]Gauges, error) { return m.gauges, m.noGauges }

func (m *memory) StartedJobs(_ context.Context, since, before time.Time) ([]Started, error) {
	m.since, m.before = since, before
	return m.started, m.noLog
}

func (m *memory) RecordSamples(_ context.Context, samples []Sample) error {
	m.recorded = append(m.recorded, samples)
	return nil
}

func (m *memory) RollUpMinutes(_ context.Context, before time.Time) (int, error) {
	m.asked, m.rolled = m.asked+1, before
	if m.old == 0 {
		return 0, nil
	}
	m.old--
	return 15, nil
}

func newRecorder(t *testing.T, m *memory, now time.Time) *Recorder {
	t.Helper()
	r, err := New(Options{Store: m, Source: m, Now: func() time.Time { return now }})
	require.NoError(t, err)
	return r
}

// A pass writes one list: this minute's gauges, and the queue times of the minutes before it, whenever in the minute it runs.
func TestRun_SamplesTheMinute(t *testing.T) {
	m := &memory{gauges: map[Pool]Gauges{{"runners", "a"}: {Busy: 2}}, started: []Started{{Pool{"runners", "a"}, noon.Add(-time.Minute), 1, 1}}}
	require.NoError(t, newRecorder(t, m, noon.Add(41*time.Second)).Run(t.Context()))
	require.Len(t, m.recorded, 1)
	require.Equal(t, Minutes(noon, m.gauges, m.started, DefaultMostPools), m.recorded[0])
	require.Equal(t, []time.Time{noon.Add(-10 * time.Minute), noon}, []time.Time{m.since, m.before}, "whole minutes, and none that is under way")
	require.Equal(t, noon.Add(-25*time.Hour), m.rolled)
	require.Equal(t, 1, m.asked)
}

// A failed reading is an error, and keeps no other from being written.
func TestRun_OneReadingFailsAlone(t *testing.T) {
	away := errors.New("away")
	m := &memory{gauges: map[Pool]Gauges{}, noGauges: away, started: []Started{{Pool{"runners", "a"}, noon, 1, 1}}}
	require.ErrorIs(t, newRecorder(t, m, noon).Run(t.Context()), away)
	require.Len(t, m.recorded, 1)
	for _, s := range m.recorded[0] {
		require.Zero(t, s.Minutes, "gauges are unknown, and not zero")
	}
	m = &memory{gauges: map[Pool]Gauges{}, noLog: away}
	require.ErrorIs(t, newRecorder(t, m, noon).Run(t.Context()), away)
	require.Len(t, m.recorded[0], 1)
	require.EqualValues(t, 1, m.recorded[0][0].Minutes)
}

// After an interruption a pass catches up, and not on everything at once.
func TestRun_RollsUpAFewAtATime(t *testing.T) {
	m := &memory{old: 10}
	r := newRecorder(t, m, noon)
	require.NoError(t, r.Run(t.Context()))
	require.Equal(t, 10-mostRollUps, m.old)
	require.NoError(t, r.Run(t.Context()))
	require.Zero(t, m.old)
	require.Empty(t, m.recorded, "there was nothing to write")
}

func TestNew_NeedsAStoreAndASource(t *testing.T) {
	_, err := New(Options{Store: &memory{}})
	require.Error(t, err)
	_, err = New(Options{Source: &memory{}})
	require.Error(t, err)
}
