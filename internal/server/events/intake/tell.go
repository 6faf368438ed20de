package intake

import (
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/bullpen-ci/bullpen/internal/fleet"
	"github.com/bullpen-ci/bullpen/internal/server/dispatch"
	"github.com/bullpen-ci/bullpen/internal/server/tracing"
)

// trace traces a delivery that has an effect, or that could not be stored.
func (i *Intake) trace(d dispatch.Delivery, ev dispatch.JobEvent, rec dispatch.Recorded, err error) {
	if err != nil || rec.Queued || rec.Started != nil || rec.Ended != nil {
		i.opt.Tracer.Record(tracing.Span{
			JobID: ev.JobID, Name: "webhook", Kind: trace.SpanKindServer, From: d.At, Err: err, Attributes: []attribute.KeyValue{
				attribute.String("bullpen.webhook.event", string(ev.Kind)), attribute.String("bullpen.webhook.delivery", d.GUID),
			},
		})
	}
	if err == nil {
		i.tell(ev, rec)
	}
}

// tell says what an event has led to, once: the transaction that it comes from is committed once.
func (i *Intake) tell(ev dispatch.JobEvent, rec dispatch.Recorded) {
	i.metrics.observe(rec.Started)
	if rec.Started != nil {
		i.opt.Tracer.Started(traced(ev, rec.Started.Pool, rec.Started.Times))
	}
	if rec.Ended != nil {
		i.opt.Tracer.Ended(traced(ev, rec.Ended.Pool, rec.Ended.Times))
	}
}

func traced(ev dispatch.JobEvent, pool string, times fleet.JobTimes) tracing.Job {
	return tracing.Job{
		ID: ev.JobID, Repository: ev.Repository, Workflow: ev.Workflow, Name: ev.Name, RunID: ev.RunID, Attempt: ev.RunAttempt,
		Runner: ev.RunnerName, Conclusion: ev.Conclusion, Pool: pool, Times: times,
	}
}
