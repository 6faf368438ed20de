package ledger

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/bullpen-ci/bullpen/api/adminapi"
	"github.com/bullpen-ci/bullpen/internal/server/admin"
	"github.com/bullpen-ci/bullpen/internal/server/history"
	"github.com/bullpen-ci/bullpen/internal/server/ledger/sqlcgen"
)

var _ history.Store = (*Store)(nil)

// StartedJobs counts the jobs that started in that span, by pool, minute and bucket of queue time.
func (s *Store) StartedJobs(ctx context.Context, since, before time.Time) ([]history.Started, error) {
	rows, err := s.queries().StartedJobs(ctx, history.Bounds(), since, before)
	if err != nil {
		return nil, fmt.Errorf("reading which jobs began: %w", err)
	}
	started := make([]history.Started, len(rows))
	for i, row := range rows {
		started[i] = history.Started{
			Pool: history.Pool{Namespace: row.Namespace, Name: row.Pool}, At: row.At.UTC(), Bucket: int(row.Bucket), Jobs: row.Jobs,
		}
	}
	return started, nil
}

// RecordSamples writes samples in one statement. The first gauges of a span stay.
func (s *Store) RecordSamples(ctx context.Context, samples []history.Sample) error {
	if err := s.queries().RecordSamples(ctx, recorded(samples)); err != nil {
		return fmt.Errorf("recording samples of %d pools and minutes: %w", len(samples), unstorable(err))
	}
	return nil
}

// RollUpMinutes replaces the minutes of the oldest quarter hour before that time by their sum, and returns the number of rows replaced.
func (s *Store) RollUpMinutes(ctx context.Context, before time.Time) (int, error) {
	var taken int
	err := s.inTx(ctx, "rolling up samples", func(q *sqlcgen.Queries) error {
		rows, err := q.TakeMinutes(ctx, before)
		if taken = len(rows); err != nil || taken == 0 {
			return err
		}
		return q.RecordSamples(ctx, recorded(history.RollUp(samplesOf(rows), history.CoarseSpan)))
	})
	return taken, err
}

// Samples returns the samples of a pool in that span, in order; of the fleet for the zero Pool.
func (s *Store) Samples(ctx context.Context, pool history.Pool, since, before time.Time) ([]history.Sample, error) {
	rows, err := s.queries().Samples(ctx, sqlcgen.SamplesParams{Namespace: pool.Namespace, Pool: pool.Name, Since: since, Before: before})
	if err != nil {
		return nil, fmt.Errorf("reading samples: %w", err)
	}
	return samplesOf(rows), nil
}

func samplesOf(rows []sqlcgen.PoolSample) []history.Sample {
	samples := make([]history.Sample, len(rows))
	for i, row := range rows {
		samples[i] = history.Sample{
			Pool: history.Pool{Namespace: row.Namespace, Name: row.Pool}, At: row.At.UTC(), Span: time.Duration(row.Span) * time.Minute,
			Minutes:    int64(row.Samples),
			Sum:        history.Gauges{Queued: row.Queued, Busy: row.Busy, Idle: row.Idle, Starting: row.Starting, Capacity: row.Capacity},
			PeakQueued: row.PeakQueued, PeakBusy: row.PeakBusy, QueueTimes: row.QueueTimes,
		}
	}
	return samples
}

// recorded turns samples into one list per column.
func recorded(samples []history.Sample) (arg sqlcgen.RecordSamplesParams) {
	for _, s := range samples {
		arg.Namespaces, arg.Pools = append(arg.Namespaces, s.Pool.Namespace), append(arg.Pools, s.Pool.Name)
		arg.Ats, arg.Spans = append(arg.Ats, s.At), append(arg.Spans, int64(s.Span/time.Minute))
		arg.Samples = append(arg.Samples, s.Minutes)
		arg.Queued, arg.Busy, arg.Idle = append(arg.Queued, s.Sum.Queued), append(arg.Busy, s.Sum.Busy), append(arg.Idle, s.Sum.Idle)
		arg.Starting, arg.Capacity = append(arg.Starting, s.Sum.Starting), append(arg.Capacity, s.Sum.Capacity)
		arg.PeakQueued, arg.PeakBusy = append(arg.PeakQueued, s.PeakQueued), append(arg.PeakBusy, s.PeakBusy)
		arg.QueueTimes = append(arg.QueueTimes, arrayText(s.QueueTimes))
	}
	return arg
}

// arrayText writes an array as text: PostgreSQL has no arrays of arrays of different lengths.
func arrayText(list []int64) string {
	texts := make([]string, len(list))
	for i, n := range list {
		texts[i] = strconv.FormatInt(n, 10)
	}
	return "{" + strings.Join(texts, ",") + "}"
}

// UsageByDay returns usage by day, of all pools together. Days without usage are omitted.
func (s *Store) UsageByDay(ctx context.Context, q admin.UsageQuery) ([]adminapi.DayUsage, error) {
	arg := sqlcgen.UsageByDayParams{Since: q.Since, Before: q.Before, Now: q.Now}
	if q.Account != "" {
		var err error
		if arg.AccountID, err = resolveAccount(ctx, s.queries(), q.Account); err != nil {
			return nil, err
		}
	}
	rows, err := s.queries().UsageByDay(ctx, arg)
	if err != nil {
		return nil, fmt.Errorf("summing up usage by day: %w", err)
	}
	usage := make([]adminapi.DayUsage, len(rows))
	for i, row := range rows {
		usage[i] = adminapi.DayUsage{
			Day: row.Day.UTC().Format(adminapi.DayFormat), Sessions: row.Sessions, Jobs: row.Jobs, RunnerSeconds: row.Seconds, JobSeconds: row.JobSeconds,
			CPUSeconds: row.CpuSeconds, MemoryGiBSeconds: row.MemoryMbSeconds / 1024,
		}
	}
	return usage, nil
}
