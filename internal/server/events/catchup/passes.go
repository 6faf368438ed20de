package catchup

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/bullpen-ci/bullpen/internal/fleet"
	"github.com/bullpen-ci/bullpen/internal/github"
	"github.com/bullpen-ci/bullpen/internal/server/dispatch"
	"github.com/bullpen-ci/bullpen/internal/server/events/intake"
	"github.com/bullpen-ci/bullpen/internal/server/periodic"
	"github.com/bullpen-ci/bullpen/internal/server/recovery"
)

// Names of the passes; most are also what they count.
const (
	PassRedelivered      = string(recovery.Redelivered)
	PassDeliveriesPolled = "deliveries_polled"
	PassQueueSwept       = string(recovery.QueueSwept)
	PassQueuedReaped     = string(recovery.QueuedReaped)
	PassLostJobRerun     = string(recovery.LostJobRerun)
)

// Defaults of Options.
const (
	DefaultEvery      = time.Minute
	DefaultAskAfter   = time.Hour
	DefaultStaleAfter = 24 * time.Hour
)

// Options of New.
type Options struct {
	// Ledger, Forge and Intake are required.
	Ledger Ledger
	Forge  Forge
	Intake *intake.Intake
	// Pools are those that are there now. Required.
	Pools func() []dispatch.Pool

	// Poll takes payloads from GitHub's list of deliveries alone, for a server that GitHub cannot reach.
	Poll bool
	// Every is the interval between two readings of GitHub's lists, and the time after which a webhook counts as missed.
	// A repository's queue is swept at a fifth of that pace.
	Every time.Duration
	// AskAfter is how long a job waits until GitHub is asked about it, and how long until it is asked again.
	AskAfter time.Duration
	// StaleAfter is when a job that waits is given up, if GitHub cannot say what has become of it.
	StaleAfter time.Duration
	// RerunLostJobs is how often the jobs of one name in one run are run again, together, because their nodes died; zero:
	// never.
	RerunLostJobs int

	// StoreWithin is how long the ledger may take for one fetched delivery; as long as for one that is delivered, 8 s, when zero.
	StoreWithin time.Duration

	// Count is called for each recovery (RECV-9). Required.
	Count func(recovery.Kind)
	// Off reports whether a kind of recovery is off; by default none is. Polling for deliveries is no recovery, and never off.
	Off func(recovery.Kind) bool
	// Metrics takes bullpen_catchup_…; nowhere when nil.
	Metrics prometheus.Registerer
	Log     *slog.Logger
	Now     func() time.Time
}

func (o Options) withDefaults() (Options, error) {
	if o.Ledger == nil || o.Forge == nil || o.Intake == nil || o.Pools == nil || o.Count == nil {
		return o, errors.New("catching up needs a ledger, GitHub, an intake, pools and a count of recoveries")
	}
	if o.Every == 0 {
		o.Every = DefaultEvery
	}
	if o.AskAfter == 0 {
		o.AskAfter = DefaultAskAfter
	}
	if o.StaleAfter == 0 {
		o.StaleAfter = DefaultStaleAfter
	}
	if o.StoreWithin == 0 {
		o.StoreWithin = storeWithin
	}
	switch {
	case o.Every < time.Second:
		return o, fmt.Errorf("--catch-up-every must be 1s or more, got %s", o.Every)
	case o.AskAfter < time.Minute:
		return o, fmt.Errorf("--queued-ask-after must be 1m or more, got %s", o.AskAfter)
	case o.StaleAfter <= o.AskAfter:
		return o, fmt.Errorf("--queued-stale-after (%s) must be longer than --queued-ask-after (%s)", o.StaleAfter, o.AskAfter)
	case o.RerunLostJobs < 0 || o.RerunLostJobs > 10:
		return o, errors.New("--rerun-lost-jobs must be between 0 and 10")
	}
	if o.Off == nil {
		o.Off = func(recovery.Kind) bool { return false }
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Metrics == nil {
		o.Metrics = prometheus.NewRegistry()
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	return o, nil
}

// CatchUp has the passes. What it keeps in memory (how much may be spent, when to look next) is worth nothing to another
// replica. Safe for concurrent use.
type CatchUp struct {
	opt     Options
	app     *quota // of calls as the App itself
	scopes  *quota // of calls as an installation
	cadence cadence
	metrics *metrics

	swept, askedOf atomic.Int64 // the accounts behind which the next passes begin
}

// The shares that are spent. Besides this package, only the renewal of tokens calls GitHub as the App itself, which the
// reserve is for. Calls as an installation are what mints and removals need, too.
var (
	appShare   = share{spread: 1, burst: 0.1}
	scopeShare = share{spread: 0.25}
)

// New checks the options.
func New(opt Options) (*CatchUp, error) {
	opt, err := opt.withDefaults()
	if err != nil {
		return nil, err
	}
	c := &CatchUp{opt: opt}
	c.app = newQuota(appShare, opt.Now, func(int64) (fleet.RateState, bool) { return opt.Forge.AppRate() })
	c.scopes = newQuota(scopeShare, opt.Now, func(id int64) (fleet.RateState, bool) {
		return opt.Forge.RateState(id, github.ResourceCore)
	})
	if c.metrics, err = newMetrics(opt.Metrics); err != nil {
		return nil, err
	}
	return c, nil
}

// Passes lists the periodic passes, each on one replica at a time.
func (c *CatchUp) Passes() []periodic.Pass {
	var list []periodic.Pass
	const rest = 10 * time.Second // to write down what was done
	add := func(kind recovery.Kind, lasts time.Duration, run func(context.Context) error) {
		if !c.opt.Off(kind) {
			list = append(list, periodic.Pass{Name: string(kind), Every: c.opt.Every, Timeout: lasts + rest, Run: run})
		}
	}
	if c.opt.Poll {
		list = append(list, periodic.Pass{Name: PassDeliveriesPolled, Every: pollBusy, Timeout: 2*patience + rest, Run: c.Deliveries})
	} else {
		add(recovery.Redelivered, 2*patience, c.Deliveries)
	}
	add(recovery.QueueSwept, patience, c.Sweep)
	add(recovery.QueuedReaped, patience, c.Queued)
	if c.opt.RerunLostJobs > 0 {
		add(recovery.LostJobRerun, patience, c.Rerun)
	}
	return list
}
