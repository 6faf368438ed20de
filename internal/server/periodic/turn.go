package periodic

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"golang.org/x/sync/errgroup"
)

// outcomes of a run.
const (
	outcomeOK       = "ok"
	outcomeFailed   = "failed"
	outcomeCut      = "interrupted"     // the replica stops, or lost the lock
	outcomeElse     = "running"         // another run is under way
	outcomeOverdone = "already_begun"   // another replica was quicker
	outcomeNoStart  = "could_not_start" // the database did not answer
)

// run is one run of a pass, the one that follows the given number. An error is logged here, and made up for when the
// pass is due again: the queue has nothing to retry.
func (r *Runner) run(ctx context.Context, pass Pass, after int64) {
	log := r.log.With("pass", pass.Name)
	outcome, err := r.attempt(ctx, pass, after)
	r.metrics.runs.WithLabelValues(pass.Name, outcome).Inc()
	switch {
	case err == nil:
	case ctx.Err() != nil:
		log.InfoContext(ctx, "a pass was interrupted; another replica repeats it", "error", err)
	default:
		log.WarnContext(ctx, "a pass failed; it is tried again when it is due", "outcome", outcome, "error", err)
	}
}

func (r *Runner) attempt(ctx context.Context, pass Pass, after int64) (outcome string, err error) {
	starting, cancel := context.WithTimeout(ctx, r.pace.statement)
	defer cancel()
	t, err := takeTurn(starting, r.opts.Pool, pass.Name, r.pace.lease)
	if errors.Is(err, errTaken) {
		return outcomeElse, nil
	} else if err != nil {
		return outcomeNoStart, err
	}
	defer t.end(ctx)
	if began, err := begin(starting, r.opts.Pool, pass.Name, after); err != nil {
		return outcomeNoStart, err
	} else if !began {
		return outcomeOverdone, nil
	}
	began := time.Now()
	outcome, err = r.perform(ctx, pass, t)
	r.metrics.duration.WithLabelValues(pass.Name).Observe(time.Since(began).Seconds())
	if outcome == outcomeCut {
		return outcome, err // not finished: the next replica repeats it
	}
	ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), r.pace.statement)
	defer cancel()
	return outcome, errors.Join(err, finish(ending, r.opts.Pool, pass.Name, after+1, outcome == outcomeOK))
}

// perform calls the pass while the lock is held, and ends it when the lock may be lost.
func (r *Runner) perform(ctx context.Context, pass Pass, t *turn) (string, error) {
	timed, cancel := context.WithTimeout(ctx, pass.Timeout)
	defer cancel()
	group, held := errgroup.WithContext(timed)
	done, stopHolding := context.WithCancel(context.WithoutCancel(ctx))
	var passErr error
	group.Go(func() error {
		defer stopHolding()
		passErr = called(held, pass)
		return nil
	})
	group.Go(func() error { return t.hold(done, r.pace) })
	lost := group.Wait()
	stopHolding()
	switch {
	case lost != nil:
		return outcomeCut, errors.Join(lost, passErr)
	case ctx.Err() != nil && passErr != nil:
		return outcomeCut, passErr
	case timed.Err() != nil && passErr != nil:
		return outcomeFailed, fmt.Errorf("the pass was ended after %s: %w", pass.Timeout, passErr)
	case passErr != nil:
		return outcomeFailed, passErr
	}
	return outcomeOK, nil
}

// called turns a panic into an error: one pass's mistake ends neither the replica nor the others.
func called(ctx context.Context, pass Pass) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("the pass panicked: %v\n%s", p, debug.Stack())
		}
	}()
	return pass.Run(ctx)
}
