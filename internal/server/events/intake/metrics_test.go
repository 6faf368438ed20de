package intake_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/internal/fleet"
	"github.com/bullpen-ci/bullpen/internal/server/dispatch"
	"github.com/bullpen-ci/bullpen/internal/server/events/intake"
)

// beginning is a ledger in which every event begins a job.
type beginning struct {
	dispatch.IntakeStore
	started *dispatch.Started
}

func (b beginning) RecordJob(context.Context, dispatch.Delivery, dispatch.JobEvent) (dispatch.Recorded, error) {
	return dispatch.Recorded{Fresh: true, Started: b.started}, nil
}

// A job's waiting time is counted by phase, whether its start was reported or read at GitHub. Approval is not ours.
func TestIntake_CountsWhatJobsWaitedFor(t *testing.T) {
	start := time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)
	metrics := prometheus.NewRegistry()
	in, err := intake.New(intake.Options{Metrics: metrics, Store: beginning{started: &dispatch.Started{Pool: "linux-4", Times: fleet.JobTimes{
		Queued: start, Received: start.Add(time.Second), Approved: start.Add(time.Hour), Claimed: start.Add(time.Hour + 2*time.Second),
		Executing: start.Add(time.Hour + 5*time.Second),
	}}}})
	require.NoError(t, err)
	body := payload("in_progress", 1, `,"runner_name":"r","started_at":"2026-11-01T12:00:05Z"`)
	require.Equal(t, intake.Recorded, in.Take(t.Context(), intake.Delivery{GUID: "a", Event: "workflow_job", Body: body}).Outcome)
	_, err = in.Observe(t.Context(), dispatch.JobEvent{}, start)
	require.NoError(t, err)
	var sums strings.Builder
	families, err := metrics.Gather()
	require.NoError(t, err)
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if h := m.GetHistogram(); h != nil {
				require.EqualValues(t, 2, h.GetSampleCount(), f.GetName())
				for _, l := range m.GetLabel() { // phase before pool
					sums.WriteString(l.GetValue() + " ")
				}
				sums.WriteString((time.Duration(h.GetSampleSum()*float64(time.Second)) / 2).String() + "\n")
			}
		}
	}
	require.Equal(t, "approval linux-4 59m59s\ndispatch linux-4 2s\nstart linux-4 3s\nwebhook linux-4 1s\nlinux-4 5s\n", sums.String(),
		"the wait is from the approval on")
}
