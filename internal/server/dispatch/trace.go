package dispatch

import (
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/bullpen-ci/bullpen/internal/server/tracing"
)

// traceClaims exports the transaction that chose a pod for each of these jobs.
func (d *Dispatcher) traceClaims(claims []Claim, began time.Time) {
	for _, claim := range claims {
		d.opt.Tracer.Record(tracing.Span{JobID: claim.JobID, Name: "claim", From: began, Attributes: attributesOf(claim)})
	}
}

// traceMint exports one request to GitHub for a configuration.
func (d *Dispatcher) traceMint(claim Claim, began time.Time, err error) {
	d.opt.Tracer.Record(tracing.Span{
		JobID: claim.JobID, Name: "register", Kind: trace.SpanKindClient, From: began, Err: err, Attributes: attributesOf(claim),
	})
}

func attributesOf(claim Claim) []attribute.KeyValue {
	return []attribute.KeyValue{
		attribute.String("bullpen.pool", claim.Pool), attribute.String("k8s.pod.name", claim.PodName), attribute.String("k8s.pod.uid", claim.PodUID),
		attribute.Int64("bullpen.claim.generation", claim.Generation), attribute.String("cicd.worker.name", claim.RunnerName),
	}
}
