package dispatch

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/bullpen-ci/bullpen/internal/fleet"
	"github.com/bullpen-ci/bullpen/internal/lib/faultpoint"
)

// Reply is the kind of an answer to a poll.
type Reply int

// The replies, in the words of runnerapi: 200, 204, 410 and 503.
const (
	ReplyEmpty Reply = iota
	ReplyServe
	ReplyGone
	ReplyRetry
)

// Answer to a poll. JIT and Generation are set with ReplyServe, RetryAfter with ReplyRetry.
type Answer struct {
	Reply      Reply
	JIT        fleet.JIT
	Generation int64
	RetryAfter time.Duration
}

// Poll serves one request of a pod for work. It blocks until there is an answer, the hold ends, ctx is done or Run's context
// is. Serving is idempotent until the pod acknowledges: an answer that did not arrive is given again, with a fresh
// registration (CLAIM-7). An error means that nothing is known: the pod should ask again.
//
// sequence is the request's number; a pod gives each request a larger one than the requests before. It is 0 if the pod does not
// number its requests. Such a request on a half-open connection, read only after the next one was served, may invalidate the
// next one's answer. A numbered one does not.
func (d *Dispatcher) Poll(ctx context.Context, pod Pod, sequence int64) (Answer, error) {
	select {
	case <-d.started:
	case <-ctx.Done():
		return Answer{}, ctx.Err()
	}
	answer, err := d.poll(ctx, pod, sequence)
	if errors.Is(err, fleet.ErrLedgerFrozen) { // CLAIM-17: the ledger was restored a moment ago
		d.opt.Gate.Suspect()
		answer, err = Answer{Reply: ReplyRetry, RetryAfter: time.Second}, nil
	}
	if err == nil {
		d.metrics.polls.WithLabelValues(answer.Reply.String()).Inc()
	} else {
		d.metrics.polls.WithLabelValues("error").Inc()
	}
	return answer, err
}

// String names the reply as a metric value.
func (r Reply) String() string {
	return [...]string{"empty", "served", "gone", "retry"}[r]
}

// awaitEvery is the interval at which a poll that waits for another's mint reads the row again: the end of a mint
// at another replica causes no notification.
const awaitEvery = 2 * time.Second

func (d *Dispatcher) poll(ctx context.Context, pod Pod, sequence int64) (Answer, error) {
	p := &pendingPoll{d: d, pod: pod, sequence: sequence, over: d.opt.After(d.opt.Hold)}
	for {
		if answer, again, err := p.turn(ctx); !again {
			return answer, err
		}
	}
}

// pendingPoll is a poll that has no answer yet: what its turns share.
type pendingPoll struct {
	d        *Dispatcher
	pod      Pod
	sequence int64
	over     <-chan time.Time // fires when the hold ends
	matched  bool             // an earlier turn waited for a job
	sentBack bool             // an earlier wait for a job ended without one, and without a change of the pod's row
}

// turn reads the pod and its row once and takes the step that follows. again asks for another turn.
func (p *pendingPoll) turn(ctx context.Context) (answer Answer, again bool, err error) {
	if open, err := p.d.awaitOpen(ctx, p.over); !open { // CLAIM-17
		return Answer{}, false, err
	}
	changed, giveUp := p.d.watch(p.pod.UID) // before reading, so that no change falls between
	defer giveUp()
	pod, ok := p.d.opt.Cluster.Pod(p.pod.UID)
	if !ok { // EXCL-5: the pod was deleted since it asked, and a job given to it would be lost
		return Answer{Reply: ReplyRetry, RetryAfter: time.Second}, false, nil
	}
	p.pod = pod
	claim, err := p.d.opt.Store.Claim(ctx, pod.UID)
	if err != nil {
		return Answer{}, false, fmt.Errorf("reading the claim of pod %s: %w", pod.Name, err)
	}
	step := Decide(pod, claim, p.sequence, p.d.opt.Now())
	if p.matched && (step == StepTakeOver || step == StepAwait) {
		// CLAIM-7: the claim was made for another request of this pod, while this one waited. If this is the one whose
		// connection is dead, the other's answer is in use; if not, the pod asks again in a moment.
		return Answer{Reply: ReplyRetry, RetryAfter: time.Second}, false, nil
	}
	switch step {
	case StepLate:
		return Answer{Reply: ReplyRetry, RetryAfter: time.Second}, false, nil
	case StepTakeOver:
		return p.d.takeOver(ctx, claim, p.sequence)
	case StepAwait:
		return p.await(ctx, claim, changed)
	case StepMatch:
		p.matched = true
		return p.match(ctx, changed)
	default: // StepGone
		return Answer{Reply: ReplyGone}, false, nil
	}
}

// await waits while a replica mints for the claim: until the pod's row changes or the lease ends, and at most awaitEvery.
func (p *pendingPoll) await(ctx context.Context, claim Claim, changed <-chan struct{}) (answer Answer, again bool, err error) {
	select {
	case <-changed:
	case <-p.d.opt.After(min(awaitEvery, claim.LeaseUntil.Sub(p.d.opt.Now()))):
	case <-p.over:
		return Answer{}, false, nil
	case <-p.d.runCtx.Done():
		return Answer{}, false, nil
	case <-ctx.Done():
		return Answer{}, false, ctx.Err()
	}
	return Answer{}, true, nil
}

// match waits for a job. again asks the caller to read the pod's row once more.
func (p *pendingPoll) match(ctx context.Context, changed <-chan struct{}) (answer Answer, again bool, err error) {
	m := p.d.matcherOf(p.pod.Pool)
	if m == nil {
		return Answer{}, false, nil
	}
	claim, why := m.await(Poll{p.pod.Namespace, p.pod.Name, p.pod.UID, p.sequence}, ctx.Done(), changed, p.over)
	switch {
	case claim != nil:
		answer, err = p.d.serve(ctx, *claim)
		return answer, false, err
	case why == holdOver:
		return Answer{}, false, ctx.Err()
	case why == rowChanged:
		return Answer{}, true, nil
	}
	if p.sentBack {
		// For the second time another row is in the way, and cannot be read: it is of a former pod of that name.
		return Answer{Reply: ReplyRetry, RetryAfter: time.Second}, false, nil
	}
	p.sentBack = true
	return Answer{}, !p.d.stopping(), nil
}

func (d *Dispatcher) stopping() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.runCtx.Err() != nil
}

var errPollAbandoned = errors.New("the pod hung up, or is being deleted")

// serve mints for a claim that this replica has just made, with a mint slot in hand.
func (d *Dispatcher) serve(ctx context.Context, claim Claim) (Answer, error) {
	faultpoint.Reached(faultpoint.ClaimInserted)
	d.metrics.claims.Inc()
	defer d.recheckDeleted(claim.PodUID)
	release := d.slot(claim.Account.ID)
	defer release()
	pod, ok := d.opt.Cluster.Pod(claim.PodUID)
	if ctx.Err() != nil || !ok || pod.Deleting { // EXCL-5: GitHub was not asked yet, so that job and pod are free again
		detached, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
		defer cancel()
		return d.unclaim(detached, claim, errPollAbandoned)
	}
	return d.mint(ctx, claim, release)
}

// slot returns what gives back the mint slot in hand, once.
func (d *Dispatcher) slot(accountID int64) func() {
	return sync.OnceFunc(func() { d.mintSlots.release(accountID, 1) })
}

// mint asks GitHub for the registration whose name the claim already holds, and answers only while the claim's
// generation still holds (CLAIM-15). It continues when the poller disconnects: the outcome has to be recorded. release
// gives the mint slot back as soon as GitHub has answered well: slots bound concurrent requests to GitHub, not writes
// to the ledger.
func (d *Dispatcher) mint(ctx context.Context, claim Claim, release func()) (Answer, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), d.opt.MintTimeout)
	defer cancel()
	pool, ok := d.opt.Cluster.Pool(PoolRef{claim.Namespace, claim.Pool})
	if !ok {
		return d.unclaim(ctx, claim, fmt.Errorf("pool %s is gone", claim.Pool))
	}
	if claim.State == fleet.ClaimClaimed && !pool.Serves(claim.Labels) { // CLAIM-18: its labels were changed a moment ago
		return d.unclaim(ctx, claim, fmt.Errorf("pool %s no longer takes jobs with labels %v", claim.Pool, claim.Labels))
	}
	scope := scopeOf(pool, claim)
	group, groupID := groupIn(scope, pool)
	began := d.opt.Tracer.Now()
	jit, err := d.opt.Forge.Mint(ctx, claim.Account.InstallationID, fleet.MintRequest{
		Scope: scope, Name: claim.RunnerName, Labels: claim.Labels,
		RunnerGroup: group, RunnerGroupID: groupID, WorkFolder: d.opt.WorkFolder,
	})
	d.traceMint(claim, began, err)
	aside := d.outcome(pool, claim, scope, err)
	switch {
	case err == nil:
		release()
		faultpoint.Reached(faultpoint.MintAnswered)
		d.metrics.mints.WithLabelValues("registered").Inc()
	case fleet.Definite(err):
		d.metrics.mints.WithLabelValues("refused").Inc()
		return d.refused(ctx, claim, aside, err)
	default:
		// The registration may exist. Its name is in the ledger; the next poll takes the claim over (CLAIM-16).
		d.metrics.mints.WithLabelValues("uncertain").Inc()
		d.opt.Log.WarnContext(ctx, "registering a runner", "runner", claim.RunnerName, "account", claim.Account.Login, "error", err)
		if aside != nil {
			d.unsureOf(ctx, claim, *aside) // the lease ends on its own: it is what this claim waits
		} else {
			d.endLeaseDetached(claim)
		}
		return Answer{Reply: ReplyRetry, RetryAfter: d.retryAfter(claim)}, nil
	}
	won, err := d.opt.Store.RecordMint(ctx, claim.PodUID, claim.Generation, jit.RunnerID, d.opt.Now())
	if err != nil {
		d.endLeaseDetached(claim)
		return Answer{}, fmt.Errorf("recording the mint of %s: %w", claim.RunnerName, err)
	}
	if !won {
		d.voided(ctx, pool, claim, jit)
		return Answer{Reply: ReplyRetry, RetryAfter: time.Second}, nil
	}
	faultpoint.Reached(faultpoint.MintRecorded)
	d.ClaimChanged(claim.PodUID) // a later request of the pod may be waiting for this
	return Answer{Reply: ReplyServe, JIT: jit, Generation: claim.Generation}, nil
}

// voided cleans up after a mint whose claim another actor took over: the answer is not given (CLAIM-15), and the
// unused registration is removed.
func (d *Dispatcher) voided(ctx context.Context, pool Pool, claim Claim, jit fleet.JIT) {
	err := d.opt.Forge.RemoveRunner(ctx, claim.Account.InstallationID, scopeOf(pool, claim), jit.RunnerID)
	if err == nil {
		err = d.opt.Store.RegistrationGone(ctx, claim.RunnerName, d.opt.Now())
	}
	if err != nil {
		d.opt.Log.WarnContext(ctx, "removing a registration that came too late", "runner", claim.RunnerName, "error", err)
	}
}

// unclaim gives back a claim whose mint definitely never happened: the healthy pod stays warm and its job is queued
// again (CLAIM-8). A claim that was minted before keeps its row; its next poll tries again.
func (d *Dispatcher) unclaim(ctx context.Context, claim Claim, cause error) (Answer, error) {
	return d.giveBack(ctx, claim, cause, func() (bool, error) {
		return d.opt.Store.Unclaim(ctx, claim.PodUID, claim.Generation, d.opt.Now())
	})
}

// giveBack is unclaim by one of two ways.
func (d *Dispatcher) giveBack(ctx context.Context, claim Claim, cause error, way func() (bool, error)) (Answer, error) {
	d.opt.Log.WarnContext(ctx, "no runner was registered; the job is queued again",
		"runner", claim.RunnerName, "account", claim.Account.Login, "error", cause)
	if err := d.opt.Store.RegistrationGone(ctx, claim.RunnerName, d.opt.Now()); err != nil {
		d.endLeaseDetached(claim)
		return Answer{}, fmt.Errorf("noting that %s was never registered: %w", claim.RunnerName, err)
	}
	gone, err := way()
	if err != nil {
		d.endLeaseDetached(claim)
		return Answer{}, fmt.Errorf("giving back the claim of pod %s: %w", claim.PodName, err)
	}
	if !gone {
		d.endLeaseDetached(claim)
		return Answer{Reply: ReplyRetry, RetryAfter: d.retryAfter(claim)}, nil
	}
	d.wakeAll()
	return Answer{Reply: ReplyEmpty}, nil // it asks again, like any idle pod
}

func (d *Dispatcher) retryAfter(claim Claim) time.Duration {
	return min(10*time.Second, max(time.Second, d.mintSlots.wait(claim.Account.ID)))
}

func (d *Dispatcher) endLease(ctx context.Context, claim Claim) {
	if err := d.opt.Store.EndLease(ctx, claim.PodUID, claim.Generation); err != nil {
		// It ends on its own; only the pod's next poll waits a little longer.
		d.opt.Log.WarnContext(ctx, "ending a lease", "pod", claim.PodName, "error", err)
	}
	d.ClaimChanged(claim.PodUID)
}

// endLeaseDetached is endLease with a timeout of its own: the mint's may be used up.
func (d *Dispatcher) endLeaseDetached(claim Claim) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	d.endLease(ctx, claim)
}

// groupIn is the runner group of a runner registered there: only organizations have groups.
func groupIn(scope fleet.Scope, pool Pool) (name string, id int64) {
	if scope.Repo != "" {
		return "", 1
	}
	return pool.RunnerGroup, pool.RunnerGroupID
}

// scopeOf says where the claim's runner is registered: users have repositories only.
func scopeOf(pool Pool, claim Claim) fleet.Scope {
	return ScopeFor(pool, claim.Account, fleet.Repository{Name: claim.Repository, ID: claim.RepositoryID})
}

// ScopeFor says where a runner for a job of that repository is registered.
func ScopeFor(pool Pool, account Account, repository fleet.Repository) fleet.Scope {
	if pool.RepositoryScope || account.User || account.RepositoryRunners {
		if scope, err := fleet.ParseScope(repository.Name); err == nil && scope.Repo != "" {
			return scope.Of(repository.ID)
		}
	}
	return fleet.Scope{Owner: account.Login}
}
