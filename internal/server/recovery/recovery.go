package recovery

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/bullpen-ci/bullpen/internal/server/dispatch"
)

// The defaults.
const (
	DefaultPatience = 5 * time.Minute
	DefaultEvery    = time.Minute
)

// Options of New. Ledger, Cluster, GitHub and Claims are required.
type Options struct {
	Ledger  Ledger
	Cluster Cluster
	GitHub  GitHub
	Claims  Claims
	// Roster reads GitHub's lists of runners: the evidence where there is no row. Without it a pod without a claim is
	// never proven to be idle.
	Roster dispatch.Roster

	// Patience is how long a thing must look wrong before anything is done; every bound comes from it. Default
	// DefaultPatience.
	Patience time.Duration
	// Off are the kinds that are not to act.
	Off []Kind
	// Caps bound how often a pass acts for one account, by kind (RECV-6); default 25 for what ends a claim or takes a pod, 100 for others. For all
	// accounts together it acts twice as often.
	Caps map[Kind]int
	// Requests bounds what one pass asks of GitHub for one installation; default 120.
	Requests int
	// Workers is how many pods and jobs are examined at a time; default 8.
	Workers int
	// Start is where in its round the first pass begins, from 0 up to 1: a random number, so that replicas none of which lives
	// for a whole round make one together.
	Start float64

	Log     *slog.Logger
	Metrics prometheus.Registerer
	Now     func() time.Time
}

func (o *Options) setDefaults() error {
	if o.Ledger == nil || o.Cluster == nil || o.GitHub == nil || o.Claims == nil {
		return errors.New("recovery needs a ledger, a cluster, GitHub and the claims")
	}
	if o.Patience == 0 {
		o.Patience = DefaultPatience
	}
	if o.Patience < 0 {
		return fmt.Errorf("recovery's patience is %s: it has to be positive", o.Patience)
	}
	for _, kind := range o.Off {
		if !slices.Contains(Kinds(), kind) {
			return fmt.Errorf("there is no kind of recovery %q: the kinds are %v", kind, Kinds())
		}
	}
	if o.Requests == 0 {
		o.Requests = 120
	}
	if o.Workers == 0 {
		o.Workers = 8
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
	return nil
}

// capOf is how often one pass may act on that kind for one account (RECV-6).
func (o *Options) capOf(kind Kind) int {
	if most, set := o.Caps[kind]; set {
		return most
	}
	switch kind {
	case MissingLabel, StaleLabel, UnclaimedJob, OrphanCompleted, UnstartedExecution, OrphanedSession, UnknownRunner:
		return 100
	default:
		return 25
	}
}

// Recovery finds what went wrong, and corrects it. Pass and CheckPod may run concurrently, here and at other replicas:
// each action is a compare-and-set on what they saw.
type Recovery struct {
	opt     Options
	metrics *metrics
	doubts  *doubts

	mu   sync.Mutex
	from place // where the next pass begins
}

// New checks the options. It reads nothing.
func New(opt Options) (*Recovery, error) {
	if err := opt.setDefaults(); err != nil {
		return nil, err
	}
	known := newDoubts(opt.Now, opt.Patience)
	m, err := newMetrics(opt.Metrics, known.count)
	if err != nil {
		return nil, err
	}
	return &Recovery{opt: opt, metrics: m, doubts: known, from: startAt(opt.Start)}, nil
}

// IsOff reports whether a kind is switched off.
func (r *Recovery) IsOff(kind Kind) bool { return slices.Contains(r.opt.Off, kind) }
