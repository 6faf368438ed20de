package intake_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/internal/fleet"
	"github.com/bullpen-ci/bullpen/internal/server/dispatch"
	"github.com/bullpen-ci/bullpen/internal/server/events/intake"
	"github.com/bullpen-ci/bullpen/internal/server/tracing"
	"github.com/bullpen-ci/bullpen/test/kit/tracingtest"
)

// scripted is a ledger with prepared answers.
type scripted struct {
	dispatch.IntakeStore
	answer dispatch.Recorded
	err    error
}

func (s *scripted) RecordJob(context.Context, dispatch.Delivery, dispatch.JobEvent) (dispatch.Recorded, error) {
	return s.answer, s.err
}

// A trace has what followed from an event, and what could not be stored; not what changed nothing.
func TestIntake_TracesWhatFollows(t *testing.T) {
	at := time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)
	for name, c := range map[string]struct {
		ledger scripted
		spans  []string
	}{
		"queued":        {scripted{answer: dispatch.Recorded{Fresh: true, Queued: true}}, []string{"webhook"}},
		"nothing new":   {scripted{answer: dispatch.Recorded{}}, []string{}},
		"another's":     {scripted{answer: dispatch.Recorded{Fresh: true, Outcome: fleet.Move}}, []string{}},
		"not stored":    {scripted{err: errors.New("no database"), answer: dispatch.Recorded{Ended: &dispatch.Ended{}}}, []string{"webhook (failed)"}},
		"begun at once": {scripted{answer: dispatch.Recorded{Fresh: true, Started: &dispatch.Started{Pool: "linux", Times: fleet.JobTimes{Queued: at, Executing: at}}}}, []string{"webhook", "phase start"}},
		"ended":         {scripted{answer: dispatch.Recorded{Fresh: true, Ended: &dispatch.Ended{Times: fleet.JobTimes{Queued: at, Executing: at, Ended: at}}}}, []string{"webhook", "phase run", "job"}},
	} {
		t.Run(name, func(t *testing.T) {
			collector := tracingtest.New(t)
			tracer, err := tracing.New(t.Context(), tracing.Options{Endpoint: collector.URL, Sample: 1})
			require.NoError(t, err)
			in, err := intake.New(intake.Options{Store: &c.ledger, Tracer: tracer})
			require.NoError(t, err)
			in.Take(t.Context(), intake.Delivery{GUID: "a", Event: "workflow_job", Body: payload("queued", 1, ""), At: at})
			require.NoError(t, tracer.Close(t.Context()))
			labels := []string{}
			id, _ := tracer.Trace(1)
			for _, span := range collector.Spans(id) {
				label := span.Name
				if span.Failed {
					label += " (failed)"
				}
				labels = append(labels, label)
			}
			require.Equal(t, c.spans, labels)
		})
	}
}
