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
	backoffUntil time.Time // after failures: the first mint that succeeds ends it
	limitedUntil time.Time // the limit is used up: a mint that succeeds was begun before, and says nothing of it
	short        bool      // what is left may be what the mints under way use up: their end tells
}

// until is when the account may mint again, as far as waiting helps; past when nothing keeps it from it.
func (a *accountBudget) until() time.Time {
	if a.limitedUntil.After(a.backoffUntil) {
		return a.limitedUntil
	}
	return a.backoffUntil
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

// slots is how many mints of the account may be under way: of one that is failing a single one, which asks whether it
// is over, so that its jobs do not pin the pool's pods (CLAIM-11).
func (b *budgets) slots(a *accountBudget) int {
	if a.failures > 0 {
		return 1
	}
	return b.opt.MaxMints
}

// excluded lists the accounts that cannot mint now, and how long until the first of them may (0: none backs off).
func (b *budgets) excluded() ([]int64, time.Duration) {
	now := b.opt.Now()
	b.mu.Lock()
	defer b.mu.Unlock()
	ids := []int64{}
	var wait time.Duration
	for id, a := range b.accounts {
		left := a.until().Sub(now)
		switch {
		case left > 0:
			ids = append(ids, id)
			if wait == 0 || left < wait {
				wait = left
			}
		case a.minting >= b.slots(a) || a.short && a.minting > 0:
			ids = append(ids, id)
		case a.minting == 0 && a.failures == 0:
			delete(b.accounts, id)
		}
	}
	return ids, wait
}

// reserve takes up to want mint slots.
func (b *budgets) reserve(account Account, want int) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	a := b.account(account.ID)
	now := b.opt.Now()
	if a.until().After(now) {
		return 0
	}
	room := b.slots(a) - a.minting
	if rate, ok := b.opt.Forge.MintRate(account.InstallationID); ok && rate.Reset.After(now) {
		if rate.Remaining <= 0 {
			a.limitedUntil = rate.Reset
			return 0
		}
		room = min(room, rate.Remaining-a.minting)
	}
	got := max(0, min(want, room))
	a.minting += got
	a.short = a.short || got < want // the end of a mint tells all who went short
	return got
}

// release gives slots back, and wakes whoever may have gone without.
func (b *budgets) release(accountID int64, slots int) {
	if b.giveBack(accountID, slots, true) {
		b.freed()
	}
}

// unused takes back slots that a batch had reserved and made no claim with. It reports whether others may have gone without
// them; that batch did not, and would find no more if it looked again at once.
func (b *budgets) unused(accountID int64, slots int) (wanted bool) {
	return b.giveBack(accountID, slots, false)
}

// giveBack reports whether somebody may have gone without those slots. They are told of it, or are to be told yet.
func (b *budgets) giveBack(accountID int64, slots int, told bool) bool {
	if slots <= 0 {
		return false
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	a := b.account(accountID)
	full := a.short || a.minting >= b.slots(a)
	a.short = a.short && !told
	a.minting = max(0, a.minting-slots)
	return full
}

// minted notes the outcome of a request to GitHub: success ends a back-off, failure starts or lengthens one.
func (b *budgets) minted(account Account, err error) {
	if err != nil {
		b.failed(account, err)
		return
	}
	b.mu.Lock()
	a := b.account(account.ID)
	recovered := a.failures > 0
	a.failures, a.backoffUntil = 0, time.Time{}
	b.mu.Unlock()
	if recovered {
		b.freed()
	}
}

func (b *budgets) failed(account Account, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	a := b.account(account.ID)
	now := b.opt.Now()
	var limited *fleet.RateLimitedError
	if errors.As(err, &limited) && limited.Until.After(now) {
		a.limitedUntil = limited.Until
		return
	}
	if a.backoffUntil.After(now) {
		return // one outage counts once, however many mints it met
	}
	wait := maxBackoff
	if a.failures < 9 { // 1 s, 2 s, … 256 s
		wait = min(maxBackoff, minBackoff<<a.failures)
	}
	a.failures++
	a.backoffUntil = now.Add(wait/2 + time.Duration(b.opt.Jitter()*float64(wait/2)))
}

// forgive ends the account's back-off: its installation is another one now, or works again (CLAIM-11).
func (b *budgets) forgive(accountID int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if a, ok := b.accounts[accountID]; ok {
		a.failures, a.backoffUntil, a.limitedUntil = 0, time.Time{}, time.Time{}
	}
}

// wait is how long the account still backs off.
func (b *budgets) wait(accountID int64) time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	if a, ok := b.accounts[accountID]; ok {
		return max(0, a.until().Sub(b.opt.Now()))
	}
	return 0
}

// resume is until when no mint is begun for the account; zero when nothing keeps one from it.
func (b *budgets) resume(account Account) (until time.Time, limited bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := b.opt.Now()
	if a, known := b.accounts[account.ID]; known && a.until().After(now) {
		return a.until(), a.limitedUntil.After(a.backoffUntil)
	}
	if rate, known := b.opt.Forge.MintRate(account.InstallationID); known && rate.Remaining <= 0 && rate.Reset.After(now) {
		return rate.Reset, true
	}
	return time.Time{}, false
}

// mintable is how many registrations GitHub may be asked for now in the account's name; not ok when nothing bounds it
// but how many may be under way at a time, which is a matter of moments.
func (b *budgets) mintable(account Account) (n int64, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := b.opt.Now()
	minting := 0
	if a, known := b.accounts[account.ID]; known {
		switch {
		case a.until().After(now): // CLAIM-11, CLAIM-14
			return 0, true
		case a.failures > 0:
			return int64(max(0, b.slots(a)-a.minting)), true
		}
		minting = a.minting
	}
	if rate, known := b.opt.Forge.MintRate(account.InstallationID); known && rate.Reset.After(now) { // CLAIM-14
		return int64(max(0, rate.Remaining-minting)), true
	}
	return 0, false
}
