package dispatch

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/bullpen-ci/bullpen/internal/fleet"
)

// RefusalReason says what GitHub did with the jobs of a Refusal.
type RefusalReason string

// The reasons.
const (
	// Refused: GitHub registers no runner for them.
	Refused RefusalReason = "refused"
	// NotAssigned: GitHub registers runners for them, and gives those none of the jobs: the runner group is not open to the repository.
	NotAssigned RefusalReason = "not_assigned"
)

// Refusal is what GitHub refuses for jobs of an account. They are set aside, and one of them is retried after a back-off of
// their own; the account's other jobs continue (CLAIM-19).
type Refusal struct {
	AccountID  int64
	Login      string  // the account's
	Repository string  // owner/name; empty: of the whole account, or of the pool there
	Pool       PoolRef // another may register its runners elsewhere; zero: of the whole account
	JobID      int64   // 0: of all jobs
	Reason     RefusalReason
	Status     int    // GitHub's answer; 0 where there was none
	Message    string // GitHub's own words, shortened
	Trying     int64  // the job of the next attempt, which is not set aside; 0: none yet
	Attempt    int64  // the job that it was met with; 0: none
	// What the ledger adds.
	Failures int64
	Since    time.Time
	Next     time.Time // when it is tried again
	Waits    bool      // jobs wait for it; false while it has not happened often enough
}

// Pace is the delay until the next attempt after a number of consecutive failures, with a number of standing refusals of the account. It is
// 0 while the jobs need not wait.
type Pace func(failures, standing int64) time.Duration

// RefusalStore keeps refusals. Its methods, beside Refuse, do not wait out an outage.
type RefusalStore interface {
	// Refuse takes back a claim as Unclaim does, and sets its job aside for the refusal.
	Refuse(ctx context.Context, claim Claim, r Refusal, pace Pace, now time.Time) (bool, error)
	// NoteRefusal notes a refusal whose claim stays. While jobs wait for one already, only the job that is Trying counts as another failure: others
	// were asked for before they waited. One of a whole account or pool has Next, and sets no job aside.
	NoteRefusal(ctx context.Context, r Refusal, pace Pace, now time.Time) error
	// LiftRefusals ends what the registration of the claim's runner has proven wrong, and brings the jobs back that its pool serves. served is
	// as for RetryRefused.
	LiftRefusals(ctx context.Context, claim Claim, served func(PoolRef) []string) error
	// RetryRefused unblocks one job of each refusal that is due. It returns when the next one is; zero: there is none.
	// served lists the label sets of a pool; nil: any may be its.
	RetryRefused(ctx context.Context, served func(PoolRef) []string, now time.Time) (next time.Time, err error)
	// Refusals lists those that jobs wait for, those that have stood longest first.
	Refusals(ctx context.Context, most int) ([]Refusal, error)
	// HastenRefusals makes those of the account due that jobs wait for.
	HastenRefusals(ctx context.Context, accountID int64, now time.Time) error
}

// How long jobs wait that GitHub refuses, or does not assign.
const (
	refusedFirst      = 10 * time.Second
	refusedLongest    = 5 * time.Minute
	unassignedFirst   = 5 * time.Minute
	unassignedLongest = time.Hour
	// unassignedTries is how many runners may get no job before jobs are set aside: GitHub is sometimes late.
	unassignedTries = 2
	// refusedApart is how far apart the attempts of one account are at least, on average: each costs of its rate limit.
	refusedApart = 2 * time.Second
)

// RefusalPace is the back-off of jobs after a number of consecutive failures, with a number of standing refusals of the account. At least
// half of it is fixed, the rest is scaled by jitter, from 0 to 1.
func RefusalPace(reason RefusalReason, failures, standing int64, jitter float64) time.Duration {
	wait, longest, steps := refusedFirst, refusedLongest, failures-1
	if reason == NotAssigned {
		if failures < unassignedTries {
			return 0
		}
		wait, longest, steps = unassignedFirst, unassignedLongest, failures-unassignedTries
	}
	for ; steps > 0 && wait < longest; steps-- {
		wait *= 2
	}
	wait = max(min(wait, longest), time.Duration(standing)*refusedApart)
	return wait/2 + time.Duration(jitter*float64(wait/2))
}

// Attempt says what became of the job that was brought back to find out whether a refusal is over.
type Attempt int

// The outcomes.
const (
	AttemptOver   Attempt = iota // it is gone, or refused again
	AttemptOpen                  // it waits for a runner, or for its runner
	AttemptWorked                // it shows that the refusal is over
)

// AttemptOf judges by the job's state, whether it is set aside, and whether it has started.
func AttemptOf(reason RefusalReason, job fleet.JobState, aside, started bool) Attempt {
	switch {
	case job == fleet.JobQueued && !aside, job == fleet.JobClaimed:
		return AttemptOpen
	case job == fleet.JobMinted && reason == NotAssigned:
		return AttemptOpen
	case job == fleet.JobMinted, job == fleet.JobExecuting, job.Terminal() && started:
		return AttemptWorked
	default:
		return AttemptOver
	}
}

func (d *Dispatcher) pace(reason RefusalReason) Pace {
	return func(failures, standing int64) time.Duration {
		return RefusalPace(reason, failures, standing, d.opt.Jitter())
	}
}

// outcome records what GitHub's answer to a mint means for the account, for the pool there, and for the repository. It returns what must be
// set aside: nothing if the account or the pool waits.
func (d *Dispatcher) outcome(pool Pool, claim Claim, scope fleet.Scope, err error) *Refusal {
	var limited *fleet.RateLimitedError
	switch {
	case err == nil:
		d.succeeded(pool, claim)
		return nil
	case errors.As(err, &limited) && limited.Resource != fleet.ResourceRepository:
		d.mintSlots.minted(claim.Account, err) // CLAIM-14: it ends on its own
		return nil
	}
	aside := &Refusal{AccountID: claim.Account.ID, Repository: claim.Repository, Pool: pool.Ref(), Reason: Refused}
	aside.Status, aside.Message = words(err)
	switch fleet.RefusedBy(err, scope) {
	case fleet.RefusedAccount:
		d.accountFailed(claim.Account, err)
		return nil
	case fleet.RefusedPool:
		d.poolFailed(pool, claim.Account, err)
		return nil
	case fleet.RefusedRepository:
		if !fleet.Definite(err) && d.unsure.several(claim.Account.ID, claim.Repository) {
			d.accountFailed(claim.Account, err) // not one repository's address, but GitHub
			return nil
		}
	case fleet.RefusedJob:
		ofRepository, ofPool := d.pools.refusedFor(pool, claim.Account.ID, claim.JobID, claim.Repository)
		if ofPool {
			d.poolFailed(pool, claim.Account, err)
		}
		if !ofRepository {
			aside.JobID = claim.JobID
		}
	}
	if claim.JobID == 0 {
		return nil
	}
	return aside
}

func (d *Dispatcher) accountFailed(account Account, err error) {
	d.mintSlots.minted(account, err)
	until, _ := d.mintSlots.resume(account)
	d.noteWide(Refusal{AccountID: account.ID, Next: until}, err)
}

func (d *Dispatcher) poolFailed(pool Pool, account Account, err error) {
	refusal := d.pools.backOff(pool, account.ID, err)
	d.noteWide(Refusal{AccountID: account.ID, Pool: pool.Ref(), Next: refusal.Until}, err)
}

// succeeded ends the back-offs that a registration has proven wrong.
func (d *Dispatcher) succeeded(pool Pool, claim Claim) {
	d.unsure.clear(claim.Account.ID)
	recovered := d.mintSlots.minted(claim.Account, nil)
	wide := d.pools.minted(pool, claim.Account.ID)
	if wide {
		d.wakeAll()
	}
	if !recovered && !wide && !claim.Refused {
		return
	}
	d.later(func(ctx context.Context) {
		err := d.opt.Store.LiftRefusals(ctx, claim, d.labelSetsOf)
		if err == nil && wide { // what was refused of its jobs was refused of the pool
			err = d.opt.Store.HastenRefusals(ctx, claim.Account.ID, d.opt.Now())
			d.retries.soon()
		}
		if err != nil && ctx.Err() == nil {
			d.opt.Log.WarnContext(ctx, "lifting what GitHub had refused", "account", claim.Account.Login, "error", err)
		}
	})
}

// noteWide records what an account or a pool waits for, for people to read: dispatch uses what is in memory.
func (d *Dispatcher) noteWide(r Refusal, err error) {
	r.Reason = Refused
	r.Status, r.Message = words(err)
	d.later(func(ctx context.Context) {
		if err := d.opt.Store.NoteRefusal(ctx, r, nil, d.opt.Now()); err != nil && ctx.Err() == nil {
			d.opt.Log.WarnContext(ctx, "noting what GitHub refuses", "error", err)
		}
	})
}

// refused gives back a claim whose mint GitHub definitely refused (CLAIM-8), with its job set aside where the account's
// others continue (CLAIM-19).
func (d *Dispatcher) refused(ctx context.Context, claim Claim, aside *Refusal, cause error) (Answer, error) {
	if aside == nil {
		return d.unclaim(ctx, claim, cause)
	}
	defer d.retries.soon()
	return d.giveBack(ctx, claim, cause, func() (bool, error) {
		return d.opt.Store.Refuse(ctx, claim, *aside, d.pace(Refused), d.opt.Now())
	})
}

// unsureOf notes that it is not known what became of a mint at the claim's repository: its other jobs wait for what becomes of this one.
func (d *Dispatcher) unsureOf(ctx context.Context, claim Claim, aside Refusal) {
	aside.Trying, aside.Attempt = claim.JobID, claim.JobID
	if err := d.opt.Store.NoteRefusal(ctx, aside, d.pace(Refused), d.opt.Now()); err != nil {
		d.opt.Log.WarnContext(ctx, "noting what GitHub does not answer", "repository", claim.Repository, "error", err)
	}
	d.retries.soon()
}

// NotAssigned records that a runner that was registered for the claim's job got none from GitHub. After two the jobs of its
// repository wait in that pool, if a setting of the runner group keeps them from it (CLAIM-20).
func (d *Dispatcher) NotAssigned(ctx context.Context, claim Claim) error {
	if claim.JobID == 0 || claim.Repository == "" {
		return nil
	}
	ref := PoolRef{claim.Namespace, claim.Pool}
	obstacle := d.obstacle(ctx, ref, claim)
	if obstacle == "" { // GitHub is late, which a runner that waits cannot tell from a setting
		d.opt.Log.InfoContext(ctx, "GitHub assigned no job to a runner, and its group is open to the repository", "runner", claim.RunnerName,
			"job", claim.JobID, "repository", claim.Repository)
		return nil
	}
	d.opt.Log.InfoContext(ctx, "GitHub assigned no job to a runner", "because", obstacle, "runner", claim.RunnerName, "job", claim.JobID)
	err := d.opt.Store.NoteRefusal(ctx, Refusal{
		AccountID: claim.Account.ID, Repository: claim.Repository, Pool: ref, Reason: NotAssigned, Message: obstacle, Attempt: claim.JobID,
	}, d.pace(NotAssigned), d.opt.Now())
	if err != nil {
		return fmt.Errorf("noting that GitHub assigned no job to runner %s: %w", claim.RunnerName, err)
	}
	d.retries.soon()
	return nil
}

// obstacle says which setting of the runner group keeps the repository's jobs from the pool's runners, as far as GitHub shows it.
func (d *Dispatcher) obstacle(ctx context.Context, ref PoolRef, claim Claim) string {
	pool, ok := d.opt.Cluster.Pool(ref)
	if !ok || scopeOf(pool, claim).Repo != "" { // repositories have no groups
		return ""
	}
	ctx, cancel := context.WithTimeout(ctx, d.opt.MintTimeout)
	defer cancel()
	access, err := d.opt.Forge.GroupAccess(ctx, claim.Account.InstallationID, claim.Account.Login, pool.RunnerGroup, pool.RunnerGroupID, claim.Repository)
	if err != nil {
		d.opt.Log.WarnContext(ctx, "reading whom a runner group serves", "account", claim.Account.Login, "group", pool.Group(), "error", err)
		return ""
	}
	return access.Obstacle(claim.Repository)
}
