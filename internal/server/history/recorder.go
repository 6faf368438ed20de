package history

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Store keeps samples.
type Store interface {
	// StartedJobs counts the jobs that runners began from since on and before that time, by pool, minute and bucket of their queue time.
	StartedJobs(ctx context.Context, since, before time.Time) ([]Started, error)
	// RecordSamples writes samples in one statement. A minute is sampled once: the first gauges stay. Samples without gauges replace
	// the queue times of their minute.
	RecordSamples(ctx context.Context, samples []Sample) error
	// RollUpMinutes replaces the minutes of one quarter of an hour before that time, the oldest, by their sum. It returns how many rows
	// it replaced; 0: there are none.
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
	// MostPools have samples of their own; default DefaultMostPools. All pools count in the fleet's.
	MostPools int
}

// Every is the time from one pass to the next. A pass begins up to some seconds late, and each minute is to have one: a second pass in a
// minute changes nothing.
const Every = 50 * time.Second

const (
	// DefaultMostPools bounds the rows: a pool has 1,500 minutes and 1,344 quarters of an hour at most.
	DefaultMostPools = 500
	// MinutesKept is how long minutes are kept before they are rolled up: the window of 24 hours, and an hour to spare.
	MinutesKept = 25 * time.Hour
	// lookBack is how late the start of a job may become known, by a webhook that is late, or how long the pass may be interrupted, for its
	// queue time to be counted.
	lookBack = 10 * time.Minute
	// mostRollUps is how many quarters of an hour one pass rolls up: it catches up after an interruption, and stays short.
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

// Run is one pass: it samples the present minute, counts the queue times of those before it again, and rolls up what is old. A minute
// that no pass samples stays unknown. Run may be repeated.
func (r *Recorder) Run(ctx context.Context) error {
	minute := r.opt.Now().UTC().Truncate(Minute)
	gauges, err := r.opt.Source.Gauges(ctx)
	if err != nil {
		gauges, err = nil, fmt.Errorf("reading the gauges of pools: %w", err)
	}
	return errors.Join(err, r.record(ctx, minute, gauges), r.rollUp(ctx, minute.Add(-MinutesKept).Truncate(Quarter)))
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
