package dispatch

import (
	"errors"
	"sync"
	"time"

	"github.com/bullpen-ci/bullpen/internal/fleet"
)

// budgets knows, per account, how many mints may be started now (CLAIM-14) and whether its installation is failing
// (CLAIM-11). It is this replica's view; GitHub's own headers are the truth it follows.
type budgets struct {
	opt   Options
	freed func()

	mu       sync.Mutex
	accounts map[int64]*accountBudget
}

type accountBudget struct {
	minting      int
	failures     int
	backoffUntil time.Time
	installation int64
}

// Back-off of a failing installation.
const (
	minBackoff = time.Second
	maxBackoff = 5 * time.Minute
)

func newBudgets(opt Options, freed func()) *budgets {
	return &budgets{opt: opt, freed: freed, accounts: map[int64]*accountBudget{}}
}

func (b *budgets) account(id int64) *accountBudget {
	a, ok := b.accounts[id]
	if !ok {
		a = &accountBudget{}
		b.accounts[id] = a
	}
	return a
}

// excluded lists the accounts that cannot mint now, and how long until the first of them may (0: none backs off).
func (b *budgets) excluded() ([]int64, time.Duration) {
	now := b.opt.Now()
	b.mu.Lock()
	defer b.mu.Unlock()
	ids := []int64{}
	var wait time.Duration
	for id, a := range b.accounts {
		left := a.backoffUntil.Sub(now)
		switch {
		case left > 0:
			ids = append(ids, id)
			if wait == 0 || left < wait {
				wait = left
			}
		case a.minting >= b.opt.MaxMints:
			ids = append(ids, id)
		case a.minting == 0 && a.failures == 0:
			delete(b.accounts, id)
		}
	}
	return ids, wait
}

// reserve takes up to want mint slots.
func (b *budgets) reserve(accountID int64, want int) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	a := b.account(accountID)
	now := b.opt.Now()
	if a.backoffUntil.After(now) {
		return 0
	}
	room := b.opt.MaxMints - a.minting
	if rate, ok := b.opt.Forge.MintRate(a.installation); ok && rate.Reset.After(now) {
		room = min(room, rate.Remaining-a.minting)
		if rate.Remaining-a.minting <= 0 {
			a.backoffUntil = rate.Reset
		}
	}
	got := max(0, min(want, room))
	a.minting += got
	return got
}

// release gives slots back.
func (b *budgets) release(accountID int64, slots int) {
	if slots <= 0 {
		return
	}
	b.mu.Lock()
	a := b.account(accountID)
	full := a.minting >= b.opt.MaxMints
	a.minting = max(0, a.minting-slots)
	b.mu.Unlock()
	if full {
		b.freed()
	}
}

// minted notes the outcome of a request to GitHub: success ends a back-off, failure starts or lengthens one.
func (b *budgets) minted(account Account, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	a := b.account(account.ID)
	a.installation = account.InstallationID
	if err == nil {
		a.failures, a.backoffUntil = 0, time.Time{}
		return
	}
	now := b.opt.Now()
	var limited *fleet.RateLimitedError
	if errors.As(err, &limited) && limited.Until.After(now) {
		a.backoffUntil = limited.Until
		return
	}
	wait := maxBackoff
	if a.failures < 9 { // 1 s, 2 s, … 256 s
		wait = min(maxBackoff, minBackoff<<a.failures)
	}
	a.failures++
	a.backoffUntil = now.Add(wait/2 + time.Duration(b.opt.Jitter()*float64(wait/2)))
}

// wait is how long the account still backs off.
func (b *budgets) wait(accountID int64) time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	if a, ok := b.accounts[accountID]; ok {
		return max(0, a.backoffUntil.Sub(b.opt.Now()))
	}
	return 0
}
