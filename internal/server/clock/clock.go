package clock

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Options of New. Read is required.
type Options struct {
	// Read asks for the database's time.
	Read func(ctx context.Context) (time.Time, error)
	// Wall is this machine's own clock, which may be wrong: nothing depends on it, and its error is reported. Default
	// time.Now.
	Wall func() time.Time
	// Passed is the time since some moment, by a clock that cannot be set. Default: the process's monotonic clock.
	Passed func() time.Duration
	// Every is the time from one reading to the next; default 2 s. That bounds for how long a machine that was suspended, and
	// whose monotonic clock stood still meanwhile, is behind.
	Every time.Duration

	Log     *slog.Logger
	Metrics prometheus.Registerer
}

const (
	readTimeout = 5 * time.Second
	// tellAbove is how wrong a clock has to be to be reported.
	tellAbove = 5 * time.Second
)

// Clock returns the database's time. It is safe for concurrent use, and never ahead of the database: a time in its past is in the
// database's past, and a list that was begun before a moment of the database's is not taken for one that was begun after it.
type Clock struct {
	opt    Options
	offset prometheus.Gauge

	mu     sync.Mutex
	read   time.Time     // the database's time
	passed time.Duration // when its answer came
	wrong  bool          // it was reported that Wall is
}

// New reads the time once: a Clock is right from its first moment.
func New(ctx context.Context, opt Options) (*Clock, error) {
	if opt.Read == nil {
		return nil, errors.New("a clock that goes by the database needs a way to read its time")
	}
	if opt.Wall == nil {
		opt.Wall = time.Now
	}
	if opt.Passed == nil {
		began := time.Now()
		opt.Passed = func() time.Duration { return time.Since(began) }
	}
	if opt.Every == 0 {
		opt.Every = 2 * time.Second
	}
	if opt.Log == nil {
		opt.Log = slog.New(slog.DiscardHandler)
	}
	if opt.Metrics == nil {
		opt.Metrics = prometheus.NewRegistry()
	}
	c := &Clock{opt: opt, offset: prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "bullpen_clock_offset_seconds",
		Help: "Offset of this server's clock from the database's clock, which the server uses except in its log.",
	})}
	opt.Metrics.MustRegister(c.offset)
	return c, c.Sync(ctx)
}

// Now is the database's time.
func (c *Clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.at(c.opt.Passed())
}

func (c *Clock) at(passed time.Duration) time.Time { return c.read.Add(passed - c.passed) }

// Sync asks the database. An error says that it was not reached; Now then adds the time that has passed.
func (c *Clock) Sync(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	asked := c.opt.Passed()
	read, err := c.opt.Read(ctx)
	if err != nil {
		return fmt.Errorf("reading the database's time: %w", err)
	}
	c.take(ctx, read, asked, c.opt.Passed())
	return nil
}

// take accepts an answer. The database's time now lies between what it said and that much later than its answer took. As
// long as this clock lies there too it is left alone, so that a slow answer does not put it back.
func (c *Clock) take(ctx context.Context, read time.Time, asked, answered time.Duration) {
	ahead := c.opt.Wall().Sub(read)
	c.offset.Set(ahead.Seconds())
	c.mu.Lock()
	thought, first := c.at(answered), c.read.IsZero()
	if first || thought.Before(read) || thought.After(read.Add(answered-asked)) {
		c.read, c.passed = read, answered
	}
	wrong := ahead.Abs() > tellAbove
	changed := wrong != c.wrong
	c.wrong = wrong
	c.mu.Unlock()
	if jump := read.Sub(thought); !first && jump.Abs() > tellAbove+answered-asked {
		c.opt.Log.WarnContext(ctx, "the database's clock was changed, or another database answers: what it wrote before looks older or younger by that",
			"by", jump)
	}
	switch {
	case changed && wrong:
		c.opt.Log.WarnContext(ctx, "this server's clock differs from the database's; nothing but the times in its log goes by it: check NTP here and there",
			"ahead", ahead)
	case changed:
		c.opt.Log.InfoContext(ctx, "this server's clock agrees with the database's again", "ahead", ahead)
	}
}

// Run asks again and again until ctx ends.
func (c *Clock) Run(ctx context.Context) {
	again := time.NewTicker(c.opt.Every)
	defer again.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-again.C:
		}
		if err := c.Sync(ctx); err != nil && ctx.Err() == nil {
			c.opt.Log.DebugContext(ctx, "the database's clock cannot be read: adding the time that has passed", "error", err) // its users report the outage
		}
	}
}

// Before has a pass begin with a reading of the database's time; without one the pass fails.
func (c *Clock) Before(run func(context.Context) error) func(context.Context) error {
	return func(ctx context.Context) error {
		if err := c.Sync(ctx); err != nil {
			return err
		}
		return run(ctx)
	}
}
