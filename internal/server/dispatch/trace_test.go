package dispatch_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/internal/fleet"
	"github.com/bullpen-ci/bullpen/internal/runnerpod"
	"github.com/bullpen-ci/bullpen/internal/server/dispatch"
	"github.com/bullpen-ci/bullpen/internal/server/tracing"
	"github.com/bullpen-ci/bullpen/test/kit/await"
	"github.com/bullpen-ci/bullpen/test/kit/dispatchtest"
	"github.com/bullpen-ci/bullpen/test/kit/tracingtest"
)

// The claim and every request for a configuration are in the trace of the job that they were made for; one that GitHub refused says why.
func TestServe_IsInTheJobsTrace(t *testing.T) {
	h := newHarness(t)
	c := tracingtest.New(t)
	tracer, err := tracing.New(t.Context(), tracing.Options{Endpoint: c.URL, Sample: 1})
	require.NoError(t, err)
	clock := newClock()
	d := h.replica(at(clock), func(o *dispatch.Options) { o.Tracer = tracer })
	h.forge.Set(func(g *dispatchtest.GitHub) { g.Refuse = fleet.ErrRejected })
	h.queue(7)
	pod := h.pod("linux")
	answer, err := d.Poll(await.Context(t), pod, 0)
	require.NoError(t, err)
	require.Equal(t, dispatch.ReplyEmpty, answer.Reply)
	h.forge.Set(func(g *dispatchtest.GitHub) { g.Refuse = nil })
	clock.pass(time.Minute)
	_, err = d.RetryRefused(t.Context())
	require.NoError(t, err)
	h.served(d, pod)
	require.NoError(t, tracer.Close(t.Context()))

	id, _ := tracer.Trace(7)
	refused, minted, claims := 0, 0, 0
	for _, span := range c.Spans(id) {
		require.Equal(t, pod.Name, span.Attributes["k8s.pod.name"])
		require.Equal(t, "linux", span.Attributes["bullpen.pool"])
		switch {
		case span.Name == "claim":
			claims++
		case span.Name == "register" && span.Failed:
			refused++
		case span.Name == "register":
			minted++
		}
	}
	require.Equal(t, []int{2, 1, 1}, []int{claims, refused, minted})
	require.Equal(t, 1, c.Traces())
}

// Each job of ours is exported once: that it began, with its pool and times, and that it ended; a job that others ran is
// not exported.
func TestRecordJob_TellsOfEachJobOnce(t *testing.T) {
	h := newHarness(t)
	d := h.replica()
	at := time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)
	times := func(ev *dispatch.JobEvent) {
		ev.QueuedAt, ev.StartedAt, ev.CompletedAt = at, at.Add(5*time.Second), at.Add(time.Minute)
	}
	served := func(id int64) string {
		h.record(job(fleet.JobEventQueued, id, times))
		pod := h.pod("linux")
		answer := h.served(d, pod)
		won, err := d.Acknowledge(t.Context(), pod, answer.Generation)
		require.NoError(t, err)
		require.True(t, won)
		return answer.JIT.Name
	}
	ended := dispatch.Ended{Pool: "linux", Times: fleet.JobTimes{Queued: at, Executing: at.Add(5 * time.Second), Ended: at.Add(time.Minute)}}

	runner := served(1)
	rec := h.record(job(fleet.JobEventStarted, 1, by(runner), times))
	require.Equal(t, "linux", rec.Started.Pool)
	require.Nil(t, rec.Ended)
	rec = h.record(job(fleet.JobEventCompleted, 1, by(runner), times))
	require.Nil(t, rec.Started, "that was told before")
	require.Equal(t, ended, utc(*rec.Ended))
	rec = h.record(job(fleet.JobEventCompleted, 1, by(runner), times))
	require.Nil(t, rec.Ended, "GitHub says it twice")

	runner = served(2) // GitHub's words come in any order
	rec = h.record(job(fleet.JobEventCompleted, 2, by(runner), times))
	require.Equal(t, "linux", rec.Started.Pool)
	require.Equal(t, at.Add(5*time.Second), rec.Started.Times.Executing.UTC())
	require.False(t, rec.Started.Times.Claimed.IsZero())
	require.Equal(t, ended, utc(*rec.Ended))
	rec = h.record(job(fleet.JobEventStarted, 2, by(runner), times))
	require.Nil(t, rec.Started)

	served(3) // cancelled before it began: GitHub still reports times
	rec = h.record(job(fleet.JobEventCancelled, 3, times))
	require.Equal(t, dispatch.Ended{Pool: "linux", Times: fleet.JobTimes{Queued: at, Ended: at.Add(time.Minute)}}, utc(*rec.Ended))

	h.record(job(fleet.JobEventQueued, 4, times))
	h.record(job(fleet.JobEventStarted, 4, by("GitHub Actions 12"), times))
	rec = h.record(job(fleet.JobEventCompleted, 4, by("GitHub Actions 12"), times))
	require.Nil(t, rec.Started)
	require.Nil(t, rec.Ended)

	h.record(job(fleet.JobEventQueued, 5, times)) // one of ours whose claim is gone: it was lost
	gone, err := runnerpod.RunnerName("6f9619ff-8b86-4d01-b42d-00cf4fc964ff", 1)
	require.NoError(t, err)
	rec = h.record(job(fleet.JobEventCompleted, 5, by(gone), times))
	require.Equal(t, at.Add(5*time.Second), rec.Ended.Times.Executing.UTC())
}

func utc(e dispatch.Ended) dispatch.Ended {
	e.Times.Queued, e.Times.Ended = e.Times.Queued.UTC(), e.Times.Ended.UTC()
	if !e.Times.Executing.IsZero() {
		e.Times.Executing = e.Times.Executing.UTC()
	}
	return e
}
