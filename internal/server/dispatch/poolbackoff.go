package dispatch

import (
	"errors"
	"strconv"
	"sync"
	"time"

	"github.com/bullpen-ci/bullpen/api/runnerapi"
	"github.com/bullpen-ci/bullpen/internal/fleet"
)

// groupAgain is how long after a pool's runner group was not found at an account it is looked for again, as long as the client
// remembers that.
const groupAgain = time.Minute

// Of how many jobs in a row GitHub may refuse what is asked for until their repository, or the pool itself, is taken for the cause.
const (
	manyOfRepository = 2
	manyOfPool       = 5
	// mostRemembered bounds how many refused jobs of a pool and account are remembered.
	mostRemembered = 100
)

// poolBackoffs are the accounts at which GitHub registers no runners of a pool: a pool serves many accounts, and its group
// is made at each of them. The jobs of such an account wait in that pool alone; everything else of the account continues
// (CLAIM-19).
type poolBackoffs struct {
	opt Options

	mu sync.Mutex
	at map[PoolRef]map[groupAt]*poolBackoff
}

// groupAt is an account and the group: a pool whose group was changed is another matter.
type groupAt struct {
	group   string
	account int64
}

type poolBackoff struct {
	failures int
	until    time.Time
	refusal  PoolRefusal
	refused  map[string]map[int64]bool // jobs by repository for which GitHub refused a runner, since it last registered one
}

// PoolRefusal is how GitHub refuses the runners of a pool at an account.
type PoolRefusal struct {
	Group   string // the account has no such runner group; empty where it is something else
	Status  int    // GitHub's, 0 where none is known
	Message string // GitHub's own, shortened
	Until   time.Time
}

// AccountOfPool is an account as far as one pool goes.
type AccountOfPool struct {
	Pool    PoolRef
	Account int64
}

func newPoolBackoffs(opt Options) *poolBackoffs {
	return &poolBackoffs{opt: opt, at: map[PoolRef]map[groupAt]*poolBackoff{}}
}

// Group is the pool's runner group, for people: its name, or its id.
func (p Pool) Group() string {
	if p.RunnerGroup != "" {
		return p.RunnerGroup
	}
	return strconv.FormatInt(p.RunnerGroupID, 10)
}

// ownGroup reports whether the pool is live and names a runner group other than GitHub's default, whose ID is 1.
func (p Pool) ownGroup() bool { return !p.Terminating && (p.RunnerGroup != "" || p.RunnerGroupID > 1) }

// of is what is known of the pool at the account. The lock is held.
func (b *poolBackoffs) of(pool Pool, account int64) *poolBackoff {
	ref, key := pool.Ref(), groupAt{pool.Group(), account}
	if b.at[ref] == nil {
		b.at[ref] = map[groupAt]*poolBackoff{}
	}
	if b.at[ref][key] == nil {
		b.at[ref][key] = &poolBackoff{}
	}
	return b.at[ref][key]
}

// backOff notes that GitHub refuses the pool's runners at the account, and says until when.
func (b *poolBackoffs) backOff(pool Pool, account int64, err error) PoolRefusal {
	b.mu.Lock()
	defer b.mu.Unlock()
	p, now := b.of(pool, account), b.opt.Now()
	wait := groupAgain
	if errors.Is(err, fleet.ErrNoRunnerGroup) {
		p.refusal = PoolRefusal{Group: pool.Group()}
	} else {
		p.refusal = PoolRefusal{}
		wait = backoff(p.failures, b.opt.Jitter())
	}
	p.refusal.Status, p.refusal.Message = words(err)
	p.failures++
	p.until = now.Add(wait)
	p.refusal.Until = p.until
	return p.refusal
}

// refusedFor notes that GitHub refused a runner for the job, and what that makes of its repository and of the pool.
func (b *poolBackoffs) refusedFor(pool Pool, account, job int64, repository string) (ofRepository, ofPool bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	p := b.of(pool, account)
	if p.refused == nil {
		p.refused = map[string]map[int64]bool{}
	}
	jobs := 0
	for _, of := range p.refused {
		jobs += len(of)
	}
	if p.refused[repository] == nil {
		p.refused[repository] = map[int64]bool{}
	}
	if !p.refused[repository][job] {
		p.refused[repository][job] = true
		jobs++
	}
	if jobs > mostRemembered { // the warning was logged: while GitHub registers nothing, others would add up
		p.refused = map[string]map[int64]bool{repository: {job: true}}
		return true, true
	}
	return len(p.refused[repository]) >= manyOfRepository, jobs >= manyOfPool
}

// minted notes that a runner was registered, and reports whether that ends a back-off.
func (b *poolBackoffs) minted(pool Pool, account int64) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	p := b.at[pool.Ref()][groupAt{pool.Group(), account}]
	if p == nil {
		return false
	}
	delete(b.at[pool.Ref()], groupAt{pool.Group(), account})
	return p.failures > 0
}

// reserve is how many of so many registrations may be asked for at once: a single one of a pool that was refused, which finds out whether
// that is over. Until it is answered no other is begun.
func (b *poolBackoffs) reserve(pool Pool, account int64, want int) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	p := b.at[pool.Ref()][groupAt{pool.Group(), account}]
	now := b.opt.Now()
	switch {
	case p == nil || p.failures == 0 || want == 0:
		return want
	case p.until.After(now):
		return 0
	}
	p.until = now.Add(b.opt.MintTimeout)
	return 1
}

// excluded lists the accounts of which nothing is registered in the pool, and the time until the next attempt at one of
// them; 0: there is none.
func (b *poolBackoffs) excluded(pool Pool) (accounts []int64, wait time.Duration) {
	now := b.opt.Now()
	b.mu.Lock()
	defer b.mu.Unlock()
	here := b.at[pool.Ref()]
	for at, p := range here {
		left := p.until.Sub(now)
		switch {
		case at.group != pool.Group():
			delete(here, at)
		case left > 0:
			accounts = append(accounts, at.account)
			if wait == 0 || left < wait {
				wait = left
			}
		}
	}
	return accounts, wait
}

// all is what is excluded in these pools, and why.
func (b *poolBackoffs) all(pools []Pool) map[AccountOfPool]runnerapi.BlockedReason {
	out := map[AccountOfPool]runnerapi.BlockedReason{}
	for _, pool := range pools {
		accounts, _ := b.excluded(pool)
		for _, account := range accounts {
			out[AccountOfPool{pool.Ref(), account}] = b.reason(pool, account)
		}
	}
	return out
}

func (b *poolBackoffs) reason(pool Pool, account int64) runnerapi.BlockedReason {
	b.mu.Lock()
	defer b.mu.Unlock()
	if p := b.at[pool.Ref()][groupAt{pool.Group(), account}]; p != nil && p.refusal.Group != "" {
		return runnerapi.BlockedGroup
	}
	return runnerapi.BlockedRefused
}

// forgive has the account's pools tried at once.
func (b *poolBackoffs) forgive(account int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, here := range b.at {
		for at := range here {
			if at.account == account {
				delete(here, at)
			}
		}
	}
}

// PoolRefused says how GitHub refuses the runners of the pool at the account, and when they are tried again; ok is false when this replica
// knows of no such thing.
func (d *Dispatcher) PoolRefused(ref PoolRef, account int64) (refusal PoolRefusal, ok bool) {
	pool, exists := d.opt.Cluster.Pool(ref)
	if !exists {
		return PoolRefusal{}, false
	}
	d.pools.mu.Lock()
	defer d.pools.mu.Unlock()
	p := d.pools.at[ref][groupAt{pool.Group(), account}]
	if p == nil || !p.until.After(d.opt.Now()) {
		return PoolRefusal{}, false
	}
	return p.refusal, true
}

// excluded lists the accounts for which no runner of the pool can be registered now, and how long until that may be otherwise; 0: all can.
func (d *Dispatcher) excluded(pool Pool) ([]int64, time.Duration) {
	accounts, wait := d.mintSlots.excluded()
	refused, again := d.pools.excluded(pool)
	if wait == 0 || again > 0 && again < wait {
		wait = again
	}
	return append(accounts, refused...), wait
}

// reserve takes up to want mint slots of the account for runners of the pool.
func (d *Dispatcher) reserve(pool Pool) func(Account, int) int {
	return func(account Account, want int) int {
		return d.mintSlots.reserve(account, d.pools.reserve(pool, account.ID, want))
	}
}

// words are GitHub's status and explanation, as far as an error has them.
func words(err error) (status int, message string) {
	var answer fleet.Answer
	if errors.As(err, &answer) {
		return answer.GitHubStatus(), answer.GitHubMessage()
	}
	return 0, ""
}
