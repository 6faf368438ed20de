package tracing

import (
	"context"
	"crypto/sha256"
	"math/rand/v2"
	"strconv"

	"go.opentelemetry.io/otel/trace"
)

// TraceID is that of a workflow job, by its id at GitHub. It is the same for every fleet that sees the job.
func TraceID(jobID int64) trace.TraceID {
	return trace.TraceID(digest("trace", jobID)[:16])
}

// rootID is that of the span that is the job as a whole.
func rootID(jobID int64) trace.SpanID {
	return trace.SpanID(digest("job", jobID)[:8])
}

// digest spreads ids, which GitHub counts up, over the whole range: samplers use a trace id's bits.
func digest(what string, jobID int64) []byte {
	sum := sha256.Sum256([]byte("bullpen " + what + " " + strconv.FormatInt(jobID, 10)))
	return sum[:]
}

type rootKey struct{}

// ids gives a job's own span its id, and all others a random one.
type ids struct{}

func (ids) NewIDs(ctx context.Context) (trace.TraceID, trace.SpanID) {
	if job, ok := ctx.Value(rootKey{}).(int64); ok {
		return TraceID(job), rootID(job)
	}
	var id trace.TraceID
	fill(id[:])
	return id, ids{}.NewSpanID(ctx, id)
}

func (ids) NewSpanID(context.Context, trace.TraceID) trace.SpanID {
	var id trace.SpanID
	fill(id[:])
	return id
}

// fill never leaves zeros only: that would be no id.
func fill(id []byte) {
	for i := range id {
		id[i] = byte(rand.IntN(256)) //nolint:gosec // ids need to differ, not to be unguessable
	}
	id[0] |= 1
}
