package dispatch

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/bullpen-ci/bullpen/api/runnerapi"
	"github.com/bullpen-ci/bullpen/internal/fleet"
	"github.com/bullpen-ci/bullpen/internal/server/tracing"
)

// Options configure a Dispatcher. Store, Forge and Cluster are required.
type Options struct {
	Store   Store
	Forge   Forge
	Cluster Cluster
	// Roster matches GitHub's lists of runners to pods; without it, rows that were lost are never proven over.
	Roster Roster
	// CheckPod has recovery check one pod soon; without it, its next pass does.
	CheckPod func(ctx context.Context, podUID string) error
	// Gate is closed while the ledger is frozen after a restore; never, by default.
	Gate    Gate
	Log     *slog.Logger
	Metrics prometheus.Registerer
	// Tracer gets claims and mints; nil traces none.
	Tracer *tracing.Tracer

	// Hold is how long a poll without work waits; default runnerapi.PollHold.
	Hold time.Duration
	// MintTimeout bounds one request to GitHub; default 15 s, at most half of LongestLease. A claim's lease is twice that.
	MintTimeout time.Duration
	// ExamineTimeout bounds one question about pods that are lost; default 8 s, because the caller waits for the
	// answer.
	ExamineTimeout time.Duration
	// LabelTimeout bounds how long a pod that has acknowledged waits for its owner label; default 1 s, less than the pod itself waits.
	LabelTimeout time.Duration
	// MaxMints bounds one account's concurrent mints of this replica; default 64 (GitHub allows 100 concurrent
	// requests to everything an installation does).
	MaxMints int
	// MaxBatch bounds the claims of one transaction; default 128.
	MaxBatch int
	// Outside are runners outside of RunnerPools, whose jobs are not reported as jobs that no pool serves.
	Outside fleet.OutsideRunners
	// WorkFolder of minted runners; default "_work".
	WorkFolder string

	Now    func() time.Time
	After  func(time.Duration) <-chan time.Time
	Jitter func() float64 // in [0, 1)
}

// DefaultMaxBatch is the default of Options.MaxBatch.
const DefaultMaxBatch = 128

const defaultMaxMints = 64

func (o *Options) setDefaults() error {
	if o.Store == nil || o.Forge == nil || o.Cluster == nil {
		return errors.New("dispatch needs a store, a forge and a cluster")
	}
	if o.Gate == nil {
		o.Gate = open{}
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Metrics == nil {
		o.Metrics = prometheus.NewRegistry()
	}
	if o.Hold == 0 {
		o.Hold = runnerapi.PollHold
	}
	if o.MintTimeout == 0 {
		o.MintTimeout = 15 * time.Second
	}
	if 2*o.MintTimeout > LongestLease {
		return fmt.Errorf("the timeout of a registration is at most %s, got %s", LongestLease/2, o.MintTimeout)
	}
	if o.ExamineTimeout == 0 {
		o.ExamineTimeout = 8 * time.Second
	}
	if o.LabelTimeout == 0 {
		o.LabelTimeout = time.Second
	}
	if o.MaxMints == 0 {
		o.MaxMints = defaultMaxMints
	}
	if o.MaxBatch == 0 {
		o.MaxBatch = DefaultMaxBatch
	}
	if o.WorkFolder == "" {
		o.WorkFolder = "_work"
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.After == nil {
		o.After = time.After
	}
	if o.Jitter == nil {
		o.Jitter = rand.Float64
	}
	return nil
}

// Dispatcher is one replica's dispatch: stateless except for the polls it holds and its last readings of
// GitHub's limits. All methods are safe for concurrent use; Run owns every goroutine.
type Dispatcher struct {
	opt       Options
	metrics   *metrics
	mintSlots *mintSlots
	pools     *poolBackoffs
	unsure    unsure
	retries   *retries

	mu       sync.Mutex
	matchers map[PoolRef]*matcher
	watchers map[string][]chan struct{} // pod UID → polls that wait for a change of its row
	router   router

	notes       notes
	ended       endings
	deletedPods deletedPods

	routeMu sync.Mutex // locked while label sets are read: a concurrent reader waits for the outcome
	served  map[string]servedBy

	examined atomic.Uint64 // claims of lost pods, so that each question begins with others

	demand *cached[assessed]
	peaks  *cached[map[PoolRef]int]

	unserved *unserved

	adoptions chan struct{}
	labelling chan struct{} // a slot for each label that is being written
	adopting  chan struct{} // a slot for each adoption that GitHub is being asked about
	tasks     chan func(context.Context)
	running   sync.WaitGroup
	started   chan struct{}
	runCtx    context.Context //nolint:containedctx // the life of the goroutines that Run owns
}

// New checks the options; the result does nothing until Run.
func New(opt Options) (*Dispatcher, error) {
	if err := opt.setDefaults(); err != nil {
		return nil, err
	}
	d := &Dispatcher{
		opt:       opt,
		metrics:   newMetrics(opt.Metrics),
		matchers:  map[PoolRef]*matcher{},
		watchers:  map[string][]chan struct{}{},
		served:    map[string]servedBy{},
		adoptions: make(chan struct{}, 1),
		labelling: make(chan struct{}, maxLabelling),
		adopting:  make(chan struct{}, 2*MaxAdoptions),
		tasks:     make(chan func(context.Context), 1024),
		started:   make(chan struct{}),
	}
	d.mintSlots = newMintSlots(opt, d.wakeAll)
	d.pools = newPoolBackoffs(opt)
	d.retries = newRetries()
	d.demand = &cached[assessed]{keep: signalsKept, now: opt.Now, read: d.readDemand}
	d.peaks = &cached[map[PoolRef]int]{keep: peaksKept, now: opt.Now, read: d.readPeaks}
	d.unserved = newUnserved(opt, d.readUnserved)
	return d, nil
}

// taskWorkers bounds the notes and clean-ups that run at once.
const taskWorkers = 16

// Run serves until ctx ends, and returns when everything it started has stopped. Polls that wait then are
// answered as if their time were up.
func (d *Dispatcher) Run(ctx context.Context) error {
	d.mu.Lock()
	d.runCtx = ctx
	d.mu.Unlock()
	close(d.started)
	for range taskWorkers {
		d.running.Go(func() { d.runTasks(ctx) })
	}
	d.running.Go(func() { d.runAdoptions(ctx) })
	d.running.Go(func() { d.runSweep(ctx) })
	d.running.Go(func() { d.runRetries(ctx) })
	d.running.Go(func() { d.runUnserved(ctx) })
	d.wakeAll()
	<-ctx.Done()
	d.mu.Lock()   // a caller that starts a matcher has started it by now, or sees that ctx has ended
	d.mu.Unlock() //nolint:staticcheck // an empty critical section is the point
	d.running.Wait()
	return nil
}

func (d *Dispatcher) runTasks(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case task := <-d.tasks:
			task(ctx)
		}
	}
}

// later hands work to a worker that Run owns, and reports whether it could; when too much is waiting it is dropped, since everything done
// here is a projection that a later pass repeats.
func (d *Dispatcher) later(task func(context.Context)) bool {
	select {
	case d.tasks <- task:
		return true
	default:
		d.metrics.dropped.Inc()
		return false
	}
}

// ClaimChanged tells that a pod's row changed at some replica: polls of that pod look again.
func (d *Dispatcher) ClaimChanged(podUID string) {
	d.mu.Lock()
	waiting := d.watchers[podUID]
	delete(d.watchers, podUID)
	d.mu.Unlock()
	for _, ch := range waiting {
		close(ch)
	}
}

// AccountChanged announces that GitHub or an administrator changed what an account may do: failures counted against its installation until
// now are void.
func (d *Dispatcher) AccountChanged(accountID int64) {
	d.mintSlots.forgive(accountID)
	d.pools.forgive(accountID)
	d.unsure.clear(accountID)
	d.later(func(ctx context.Context) {
		if err := d.opt.Store.HastenRefusals(ctx, accountID, d.opt.Now()); err != nil && ctx.Err() == nil {
			d.opt.Log.WarnContext(ctx, "having what GitHub refused tried again", "account", accountID, "error", err)
		}
		d.retries.soon()
	})
	d.wakeAll()
}

// AdoptionRequested announces that a runner must be confirmed with GitHub.
func (d *Dispatcher) AdoptionRequested() {
	select {
	case d.adoptions <- struct{}{}:
	default:
	}
}

// watch returns a channel that closes at the next ClaimChanged of that pod, and a function that gives it up.
func (d *Dispatcher) watch(podUID string) (<-chan struct{}, func()) {
	ch := make(chan struct{})
	d.mu.Lock()
	defer d.mu.Unlock()
	d.watchers[podUID] = append(d.watchers[podUID], ch)
	return ch, func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		left := d.watchers[podUID][:0]
		for _, other := range d.watchers[podUID] {
			if other != ch {
				left = append(left, other)
			}
		}
		if len(left) == 0 {
			delete(d.watchers, podUID)
		} else {
			d.watchers[podUID] = left
		}
	}
}

func (d *Dispatcher) wakeAll() { d.wakeOthers(nil) }

// wakeOthers wakes all matchers but that one.
func (d *Dispatcher) wakeOthers(than *matcher) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, m := range d.matchers {
		if m != than {
			m.wakeUp()
		}
	}
}
