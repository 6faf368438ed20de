package epoch

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Ledger is the database. Every method is one statement; its times are the database's.
type Ledger interface {
	Epoch(ctx context.Context) (Row, error)
	// Beat raises the epoch unless another replica has within that time, or the ledger is frozen or behind what is
	// known.
	Beat(ctx context.Context, known Mark, every time.Duration) error
	EpochCopied(ctx context.Context, lineage string) error
	// BeginHold writes a hold over d.Over down, if the row is still at that mark and no hold over as much stands.
	BeginHold(ctx context.Context, row Mark, d Decision, hold time.Duration) error
	// BeginRebuild takes the turn to rebuild, for the lease; false when another replica has it, or has rebuilt a
	// moment ago.
	BeginRebuild(ctx context.Context, lease, every time.Duration) (Turn, bool, error)
	// RenewRebuild keeps the turn for the lease from now; false when it is over.
	RenewRebuild(ctx context.Context, turn Turn, lease time.Duration) (bool, error)
	// EndRebuild notes what was rebuilt, or fails with ErrTurnOver.
	EndRebuild(ctx context.Context, turn Turn, began time.Time, doubts int) error
	EndHold(ctx context.Context, over Mark) (bool, error)
	// Know has every claim, mint and retirement of this replica fail on a database that is behind.
	Know(m Mark)
}

// Copies keeps the copy in Kubernetes.
type Copies interface {
	// ReadCopy returns false when an uncached read says that there is none; an error when it could not be read.
	ReadCopy(ctx context.Context) (Mark, bool, error)
	// WriteCopy replaces what ReadCopy returned last. A conflict with another replica is an error that the next check
	// resolves.
	WriteCopy(ctx context.Context, m Mark) error
}

// Options of New. Ledger, Copies and Rebuild are required.
type Options struct {
	Ledger Ledger
	Copies Copies
	// Rebuild writes claims for what pods and GitHub show to be busy. It runs at one replica at a time, several times in a
	// hold, and returns how many pods are doubtful; an error means that it proves nothing. It has to bind each of its
	// writes to the turn: a replica that was suspended for a while continues where it was, also when the hold is over
	// (CLAIM-17).
	Rebuild func(ctx context.Context, turn Turn) (doubts int, err error)
	// Unexplained reports whether there are busy pods that the database does not know. It is asked at the first start only.
	Unexplained func(ctx context.Context) (bool, error)
	// Frozen is called when this replica begins to hold.
	Frozen func(reason string)
	// Missed is called before a hold ends, perhaps more than once: events that GitHub sent since then may be lost. An error
	// is retried, and the hold continues.
	Missed func(ctx context.Context, since time.Time) error
	// Resumed is called when dispatch continues.
	Resumed func()

	// Hold is how long nothing is dispatched after a restore; default 1 min.
	Hold time.Duration
	// Beat is the interval at which the epoch is raised, and checked; default 2 s.
	Beat time.Duration
	// Patience: see Bounds; default 5 min.
	Patience time.Duration

	Log     *slog.Logger
	Metrics prometheus.Registerer
	Now     func() time.Time
	After   func(time.Duration) <-chan time.Time
}

func (o *Options) setDefaults() error {
	if o.Ledger == nil || o.Copies == nil || o.Rebuild == nil {
		return errors.New("the keeper of the epoch needs a ledger, copies of it and a way to rebuild it")
	}
	if o.Hold == 0 {
		o.Hold = time.Minute
	}
	if o.Beat == 0 {
		o.Beat = 2 * time.Second
	}
	if o.Patience == 0 {
		o.Patience = 5 * time.Minute
	}
	if o.Hold < 0 || o.Beat < 0 || o.Patience < 0 {
		return errors.New("the duration of the freeze after a restore must not be negative")
	}
	if o.Unexplained == nil {
		o.Unexplained = func(context.Context) (bool, error) { return false, nil }
	}
	if o.Frozen == nil {
		o.Frozen = func(string) {}
	}
	if o.Missed == nil {
		o.Missed = func(context.Context, time.Time) error { return nil }
	}
	if o.Resumed == nil {
		o.Resumed = func() {}
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
	if o.After == nil {
		o.After = time.After
	}
	return nil
}

// requestTimeout bounds each check.
const requestTimeout = 5 * time.Second

// Keeper is one replica's part in it. It holds from the moment it is made until Run has seen that the database is the latest.
type Keeper struct {
	opt     Options
	holding prometheus.Gauge
	holds   prometheus.Counter
	copies  prometheus.Gauge
	wake    chan struct{}

	mu      sync.Mutex
	frozen  bool
	reason  string
	resumed chan struct{} // closed when frozen becomes false

	// Run's own.
	known      Mark
	started    time.Time
	rebuilding sync.WaitGroup
}

// New checks the options.
func New(opt Options) (*Keeper, error) {
	if err := opt.setDefaults(); err != nil {
		return nil, err
	}
	k := &Keeper{
		opt: opt, frozen: true, reason: "the server has just started and has not checked its database yet",
		resumed: make(chan struct{}), wake: make(chan struct{}, 1),
		holding: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "bullpen_ledger_frozen", Help: "1 while nothing is dispatched or granted because the database was restored or replaced.", // CLAIM-17
		}),
		holds: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "bullpen_ledger_freezes_total", Help: "Freezes of the ledger after a restore that this replica has begun.",
		}),
		copies: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "bullpen_ledger_copy_readable", Help: "1 while the copy of the ledger's epoch in Kubernetes can be read and written.",
		}),
	}
	k.holding.Set(1)
	opt.Metrics.MustRegister(k.holding, k.holds, k.copies)
	return k, nil
}

// Frozen says why nothing may be dispatched or granted just now; the channel is closed when that ends. It is safe for concurrent
// use.
func (k *Keeper) Frozen() (reason string, resumed <-chan struct{}, frozen bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.reason, k.resumed, k.frozen
}

// Suspect has the keeper check at once: a statement was refused.
func (k *Keeper) Suspect() {
	select {
	case k.wake <- struct{}{}:
	default:
	}
}

// Run checks, beats and holds until ctx ends, and returns when a rebuilding that is under way has stopped.
func (k *Keeper) Run(ctx context.Context) error {
	defer k.rebuilding.Wait()
	k.started = k.opt.Now()
	for {
		if err := k.look(ctx); err != nil && ctx.Err() == nil {
			k.opt.Log.WarnContext(ctx, "looking after the ledger's epoch", "error", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-k.wake:
		case <-k.opt.After(k.opt.Beat):
		}
	}
}

// look is one round: read the copy, then the database, judge, act.
func (k *Keeper) look(ctx context.Context) error {
	view := View{Known: k.known, UnreadableFor: k.opt.Now().Sub(k.started)}
	mark, exists, err := k.readCopy(ctx)
	view.Copy = Copy{Mark: mark, Missing: err == nil && !exists, Unreadable: err != nil}
	if err != nil {
		k.copies.Set(0)
		k.opt.Log.WarnContext(ctx, "the copy of the ledger's epoch cannot be read: a restore of the database may go unnoticed until it can", "error", err)
	} else {
		k.copies.Set(1)
	}
	bounded, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	if view.Row, err = k.opt.Ledger.Epoch(bounded); err != nil {
		return err // the database is unavailable: so is dispatch
	}
	if view.Copy.Missing && !view.Row.Copied && k.known == (Mark{}) {
		if view.Unexplained, err = k.opt.Unexplained(bounded); err != nil {
			return fmt.Errorf("checking for busy pods that the database does not know: %w", err)
		}
	}
	return k.act(ctx, view, Judge(view, Bounds{Hold: k.opt.Hold, Patience: k.opt.Patience}))
}

// readCopy has a timeout of its own: an API server that hangs does not delay the checks and beats of the database
// (CLAIM-17).
func (k *Keeper) readCopy(ctx context.Context) (Mark, bool, error) {
	bounded, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	return k.opt.Copies.ReadCopy(bounded)
}

func (k *Keeper) writeCopy(ctx context.Context, m Mark) error {
	bounded, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	return k.opt.Copies.WriteCopy(bounded, m)
}

func (k *Keeper) epochCopied(ctx context.Context, lineage string) error {
	bounded, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	return k.opt.Ledger.EpochCopied(bounded, lineage)
}

func (k *Keeper) act(ctx context.Context, v View, d Decision) error {
	bounded, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	if d.Step != Run {
		k.hold(ctx, d.Reason)
	}
	switch d.Step {
	case Begin:
		k.known = d.Known
		if err := k.opt.Ledger.BeginHold(bounded, v.Row.Mark, d, k.opt.Hold); err != nil {
			return err
		}
		k.holds.Inc()
		k.Suspect()
	case Hold:
		k.rebuild(ctx, v.Row)
	case End:
		return k.end(bounded, v.Row)
	case Run:
		return k.run(ctx, v, d)
	case Wait:
	}
	return nil
}

// gitHubKeeps is for how long deliveries can be asked for; lostMargin allows for clocks that differ, and for deliveries that
// were under way when the backup was made.
const (
	gitHubKeeps = 3 * 24 * time.Hour
	lostMargin  = 2 * time.Minute
)

// end requests what is lost before it ends the hold, so that a crash in between does not skip it.
func (k *Keeper) end(ctx context.Context, row Row) error {
	since := row.Now.Add(-gitHubKeeps)
	if !row.LostSince.IsZero() && row.LostSince.Add(-lostMargin).After(since) {
		since = row.LostSince.Add(-lostMargin)
	}
	if err := k.opt.Missed(ctx, since); err != nil {
		return fmt.Errorf("requesting again what GitHub has delivered since %s: %w", since.UTC().Format(time.RFC3339), err)
	}
	ended, err := k.opt.Ledger.EndHold(ctx, row.Over)
	if ended {
		k.opt.Log.InfoContext(ctx, "the freeze after a restore is over: claims are rebuilt, and deliveries are requested again",
			"over", row.Over.String(), "doubts", row.Doubts, "deliveries_since", since)
	}
	k.Suspect() // the row has moved, and the next check uses it
	return err
}

// run beats, and copies the mark to Kubernetes after it is committed: the copy is never ahead of what is certain.
func (k *Keeper) run(ctx context.Context, v View, d Decision) error {
	if d.Known != k.known {
		k.known = d.Known
		k.opt.Ledger.Know(k.known)
	}
	k.resume()
	if !v.Copy.Unreadable && v.Copy.Mark != d.Known {
		if err := k.writeCopy(ctx, d.Known); err != nil {
			k.copies.Set(0)
			k.opt.Log.WarnContext(ctx, "copying the ledger's epoch to Kubernetes: a restore of the database may go unnoticed until it works", "error", err)
		} else if !v.Row.Copied {
			if err := k.epochCopied(ctx, d.Known.Lineage); err != nil {
				return err
			}
		}
	}
	bounded, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	return k.opt.Ledger.Beat(bounded, k.known, k.opt.Beat*3/4)
}

// hold begins to hold, here, and says so once.
func (k *Keeper) hold(ctx context.Context, reason string) {
	k.mu.Lock()
	began := !k.frozen
	k.frozen = true
	if began {
		k.resumed = make(chan struct{})
	}
	changed := k.reason != reason
	k.reason = reason
	k.mu.Unlock()
	k.holding.Set(1)
	if began || changed {
		k.opt.Log.WarnContext(ctx, "nothing is dispatched and no removal is granted for now", "reason", reason)
		k.opt.Frozen(reason)
	}
}

// resume lets dispatch continue.
func (k *Keeper) resume() {
	k.mu.Lock()
	frozen := k.frozen
	if frozen {
		k.frozen, k.reason = false, ""
		close(k.resumed)
	}
	k.mu.Unlock()
	if frozen {
		k.holding.Set(0)
		k.opt.Resumed()
	}
}

// rebuild has one replica gather what is busy, several times in a hold: GitHub's flags lag.
func (k *Keeper) rebuild(ctx context.Context, row Row) {
	bounded, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	// A replica that dies in between leaves its turn to another after the lease; one that lives renews it.
	lease := max(k.opt.Hold/2, 5*time.Second)
	turn, mine, err := k.opt.Ledger.BeginRebuild(bounded, lease, k.opt.Hold/4)
	if err != nil || !mine {
		if err != nil && ctx.Err() == nil {
			k.opt.Log.WarnContext(ctx, "beginning to rebuild claims", "error", err)
		}
		return
	}
	k.rebuilding.Go(func() {
		working, cancel := context.WithTimeout(ctx, max(2*k.opt.Hold, time.Minute))
		defer cancel()
		var renewing sync.WaitGroup
		renewing.Go(func() { k.keepTurn(working, cancel, turn, lease) })
		began := row.Now
		doubts, err := k.opt.Rebuild(working, turn)
		cancel()
		renewing.Wait()
		if err != nil {
			began = time.Time{}
			if ctx.Err() == nil {
				k.opt.Log.WarnContext(ctx, "rebuilding claims from pods and GitHub failed: the ledger stays frozen until it succeeds", "error", err)
			}
		}
		noting, stop := context.WithTimeout(context.WithoutCancel(ctx), requestTimeout)
		defer stop()
		if err := k.opt.Ledger.EndRebuild(noting, turn, began, doubts); err != nil && ctx.Err() == nil {
			k.opt.Log.WarnContext(ctx, "noting that claims were rebuilt", "error", err)
		}
		k.Suspect()
	})
}

// keepTurn renews the turn until ctx ends, and cancels the work when the turn is over. An outage of the database decides
// nothing: it takes no writes either.
func (k *Keeper) keepTurn(ctx context.Context, stop context.CancelFunc, turn Turn, lease time.Duration) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-k.opt.After(lease / 3):
		}
		bounded, cancel := context.WithTimeout(ctx, requestTimeout)
		mine, err := k.opt.Ledger.RenewRebuild(bounded, turn, lease)
		cancel()
		switch {
		case err == nil && !mine:
			k.opt.Log.WarnContext(ctx, "the turn to rebuild claims is over, and so is this rebuilding")
			stop()
			return
		case err != nil && ctx.Err() == nil:
			k.opt.Log.WarnContext(ctx, "keeping the turn to rebuild claims", "error", err)
		}
	}
}
