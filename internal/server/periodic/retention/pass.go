package retention

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Store removes the rows that a rule names, up to a number, oldest first, and returns how many it removed. Rows that are in use are
// skipped.
type Store interface {
	Prune(ctx context.Context, rule Rule, most int32) (int64, error)
}

// Options of New. Store is required.
type Options struct {
	Store  Store
	Policy Policy // Default when zero
	// Batch is how many rows go in one statement; default 1,000.
	Batch int32
	// Cap is how many rows of a kind go in one pass; default 50,000.
	Cap     int64
	Log     *slog.Logger
	Metrics prometheus.Registerer
	Now     func() time.Time
}

// Retention removes rows, pass by pass.
type Retention struct {
	opts            Options
	removed, capped *prometheus.CounterVec
}

// New checks the options.
func New(opts Options) (*Retention, error) {
	if opts.Store == nil {
		return nil, errors.New("retention needs a store")
	}
	if opts.Policy == (Policy{}) {
		opts.Policy = Default()
	}
	if err := opts.Policy.Check(); err != nil {
		return nil, err
	}
	if opts.Batch == 0 {
		opts.Batch = 1000
	}
	if opts.Cap == 0 {
		opts.Cap = 50_000
	}
	if opts.Log == nil {
		opts.Log = slog.New(slog.DiscardHandler)
	}
	if opts.Metrics == nil {
		opts.Metrics = prometheus.NewRegistry()
	}
	if opts.Now == nil {
		opts.Now = time.Now
	}
	r := &Retention{
		opts: opts,
		removed: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "bullpen_retention_removed_total", Help: "Rows deleted after their retention period, by kind.",
		}, []string{"kind"}),
		capped: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "bullpen_retention_capped_total",
			Help: "Passes that reached their limit of rows to delete, by kind.",
		}, []string{"kind"}),
	}
	opts.Metrics.MustRegister(r.removed, r.capped)
	return r, nil
}

// Run is one pass. A kind that fails, or is slow, does not keep the others from running: each has the same part of the time
// that is left. A pass that is cut off continues the next time.
func (r *Retention) Run(ctx context.Context) error {
	var errs []error
	rules := r.opts.Policy.Rules(r.opts.Now())
	for i, rule := range rules {
		if err := r.inShare(ctx, rule, len(rules)-i); err != nil {
			errs = append(errs, fmt.Errorf("removing %s: %w", rule.Kind, err))
		}
	}
	return errors.Join(errs...)
}

// inShare applies a rule within its share of the time that is left. Rows that it has removed by then stay removed.
func (r *Retention) inShare(ctx context.Context, rule Rule, among int) error {
	if end, bounded := ctx.Deadline(); bounded {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Until(end)/time.Duration(among))
		defer cancel()
	}
	return r.apply(ctx, rule)
}

func (r *Retention) apply(ctx context.Context, rule Rule) error {
	for left := r.opts.Cap; ; {
		most := int32(min(int64(r.opts.Batch), left)) //nolint:gosec // at most Batch
		removed, err := r.opts.Store.Prune(ctx, rule, most)
		if err != nil {
			return err
		}
		r.removed.WithLabelValues(string(rule.Kind)).Add(float64(removed))
		if removed < int64(most) {
			return nil
		}
		if left -= removed; left <= 0 { // RECV-6
			r.capped.WithLabelValues(string(rule.Kind)).Inc()
			r.opts.Log.InfoContext(ctx, "more rows are due than one pass deletes; the next pass continues",
				"kind", rule.Kind, "removed", r.opts.Cap)
			return nil
		}
	}
}
