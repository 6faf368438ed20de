package history

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Store keeps samples.
type Store interface {
	// StartedJobs counts the jobs that started in [since, before), by pool, minute and bucket of queue time.
	StartedJobs(ctx context.Context, since, before time.Time) ([]Started, error)
	// RecordSamples writes samples in one statement. The first gauges of a minute stay. Samples without gauges replace the queue times of
	// their minute.
	RecordSamples(ctx context.Context, samples []Sample) error
	// RollUpMinutes replaces the minutes of the oldest quarter hour before that time by their sum, and returns the number of rows replaced;
	// 0: there are none.
	RollUpMinutes(ctx context.Context, before time.Time) (int, error)
}

// Source reads the gauges of all pools.
type Source interface {
	Gauges(ctx context.Context) (map[Pool]Gauges, error)
}

// Options of New; Store and Source are required.
type Options struct {
	Store  Store
	Source Source
	Now    func() time.Time
	// MostPools bounds the pools with samples of their own; default DefaultMostPools.
	MostPools int
}

// Every is the interval of the pass. Passes start some seconds late, and each minute needs one; a second pass in a minute changes nothing.
const Every = 50 * time.Second

const (
	// DefaultMostPools bounds the table: a pool has at most 1,500 minutes and 1,344 quarter hours.
	DefaultMostPools = 500
	// MinutesKept is when minutes are rolled up: after the window of 24 hours, and an hour to spare.
	MinutesKept = 25 * time.Hour
	// lookBack is how late a webhook may be, and how long the pass may be interrupted, for the queue time of a job to be counted.
	lookBack = 10 * time.Minute
	// mostRollUps bounds the quarter hours that one pass rolls up, so that it stays short after an interruption.
	mostRollUps = 8
)

// Recorder takes samples.
type Recorder struct{ opt Options }

// New checks the options.
func New(opt Options) (*Recorder, error) {
	if opt.Store == nil || opt.Source == nil {
		return nil, errors.New("the history needs a store and a source of gauges")
	}
	if opt.Now == nil {
		opt.Now = time.Now
	}
	if opt.MostPools == 0 {
		opt.MostPools = DefaultMostPools
	}
	return &Recorder{opt}, nil
}

// Run is one pass: it samples the current minute, counts the queue times of earlier minutes again, and rolls up old minutes. Minutes
// without a pass stay unknown. Run may be repeated.
func (r *Recorder) Run(ctx context.Context) error {
	minute := r.opt.Now().UTC().Truncate(FineSpan)
	gauges, err := r.opt.Source.Gauges(ctx)
	if err != nil {
		gauges, err = nil, fmt.Errorf("reading the gauges of pools: %w", err)
	}
	return errors.Join(err, r.record(ctx, minute, gauges), r.rollUp(ctx, minute.Add(-MinutesKept).Truncate(CoarseSpan)))
}

func (r *Recorder) record(ctx context.Context, minute time.Time, gauges map[Pool]Gauges) error {
	started, err := r.opt.Store.StartedJobs(ctx, minute.Add(-lookBack), minute)
	if err != nil {
		err = fmt.Errorf("counting queue times: %w", err)
	}
	if samples := Minutes(minute, gauges, started, r.opt.MostPools); len(samples) > 0 {
		err = errors.Join(err, r.opt.Store.RecordSamples(ctx, samples))
	}
	return err
}

func (r *Recorder) rollUp(ctx context.Context, before time.Time) error {
	for range mostRollUps {
		rows, err := r.opt.Store.RollUpMinutes(ctx, before)
		if err != nil {
			return err
		}
		if rows == 0 {
			break
		}
	}
	return nil
}
