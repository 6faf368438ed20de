package periodic

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/riverqueue/river"
)

// Pass is something that is done again and again.
type Pass struct {
	// Name in snake_case: what metrics, logs and the table passes call it. Replicas that disagree about what a name does
	// run either; rename a pass whose meaning changes.
	Name string
	// Every is the time from one start to the next, at least a second. The next run waits until the last one has ended.
	Every time.Duration
	// Timeout ends a run; Every by default, and then a minute at most.
	Timeout time.Duration
	// Run does it, at most once at a time in the whole installation as long as it returns when ctx ends. A run can be cut
	// off anywhere, and a run that was is repeated soon: it must be idempotent. Its error is logged and counted; the pass
	// is tried again when it is due again.
	Run func(ctx context.Context) error
}

// MinConnections is the smallest pool that a Runner works with: two passes at a time, and what River itself needs.
const MinConnections = 5

// Options of New.
type Options struct {
	// Pool is for the Runner alone, with at least MinConnections: a running pass holds one of them, and no runner's poll
	// should wait for it. It should connect to Postgres itself: a connection pooler that pools transactions loses
	// notifications, and everything begins up to a second later.
	Pool *pgxpool.Pool
	// Passes of this replica. Replicas may have different ones.
	Passes []Pass
	// Check checks one pod at once. It must be idempotent. Without it CheckPod is refused.
	Check func(ctx context.Context, podUID string) error

	Log     *slog.Logger
	Metrics prometheus.Registerer
}

var names = regexp.MustCompile(`^[a-z][a-z0-9_]{1,60}$`)

// Runner runs passes and checks. Run must be called once; CheckPod may be called at any time, also before and after.
type Runner struct {
	opts    Options
	passes  map[string]Pass
	pace    pace
	metrics *metrics
	log     *slog.Logger

	inserter *river.Client[pgx.Tx] // never started: it queues checks whether or not Run is running
}

// New checks the options. It asks nothing of the database.
func New(opts Options) (*Runner, error) {
	if opts.Pool == nil {
		return nil, errors.New("passes need a pool of connections")
	}
	if n := opts.Pool.Config().MaxConns; n < MinConnections {
		return nil, fmt.Errorf("passes need a pool of at least %d connections, this one has %d", MinConnections, n)
	}
	if opts.Log == nil {
		opts.Log = slog.New(slog.DiscardHandler)
	}
	if opts.Metrics == nil {
		opts.Metrics = prometheus.NewRegistry()
	}
	r := &Runner{opts: opts, passes: map[string]Pass{}, pace: defaultPace, log: opts.Log.With("component", "passes")}
	for _, pass := range opts.Passes {
		if err := r.add(pass); err != nil {
			return nil, err
		}
	}
	var err error
	if r.inserter, err = r.newClient(nil); err != nil {
		return nil, err
	}
	r.metrics = newMetrics(opts.Metrics, r.passes)
	return r, nil
}

func (r *Runner) add(pass Pass) error {
	switch _, twice := r.passes[pass.Name]; {
	case !names.MatchString(pass.Name):
		return fmt.Errorf("invalid name of a pass %q: use snake_case, at most 60 letters", pass.Name)
	case twice:
		return fmt.Errorf("two passes are called %s", pass.Name)
	case pass.Run == nil:
		return fmt.Errorf("the pass %s does nothing", pass.Name)
	case pass.Every < time.Second:
		return fmt.Errorf("the pass %s is to run every %s: once a second is the most", pass.Name, pass.Every)
	case pass.Timeout < 0:
		return fmt.Errorf("the pass %s has a timeout of %s: it must be positive", pass.Name, pass.Timeout)
	}
	if pass.Timeout == 0 {
		pass.Timeout = min(pass.Every, time.Minute)
	}
	r.passes[pass.Name] = pass
	return nil
}

// pace holds the times that bound how late a pass may be. Tests make them shorter.
type pace struct {
	look      time.Duration // between two readings of what is due; a little more or less, by chance
	makeGood  time.Duration // a run that died is repeated that long after its start, if that is sooner than the next
	slot      time.Duration // whole seconds; a queued run whose worker died before it began bars the next for that long
	heartbeat time.Duration // how often a running pass shows the database that it lives
	lease     time.Duration // the database takes the lock of a run that has been silent for that long
	statement time.Duration // a statement that takes longer has failed
}

// A pass whose replica is killed runs again within makeGood + look and a second for the queue: 16 s after it began at
// the latest, and at once when that time has passed. When the replica's machine vanishes, or the process is stopped and
// does not come back, its lock lasts for the lease: 27 s.
var defaultPace = pace{
	look: 5 * time.Second, makeGood: 10 * time.Second, slot: 15 * time.Second, heartbeat: 3 * time.Second,
	lease: 10 * time.Second, statement: 5 * time.Second,
}
