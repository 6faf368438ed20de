package dispatch

import (
	"errors"
	"sync"
	"time"

	"github.com/bullpen-ci/bullpen/internal/fleet"
)

// mintSlots counts, per account, the mints that this replica may start now (CLAIM-14), and backs off from an installation that fails
// (CLAIM-11). GitHub's rate limit headers take precedence over its own count.
type mintSlots struct {
	opt   Options
	freed func()

	mu       sync.Mutex
	accounts map[int64]*accountMints
}

type accountMints struct {
	minting      int
	failures     int
	backoffUntil time.Time // after failures: the first mint that succeeds ends it
	limitedUntil time.Time // the limit is used up: a mint that succeeds was begun before, and says nothing of it
	short        bool      // what is left may be what the mints under way use up: their end tells
}

// until is when the account may mint again, as far as waiting helps; past when nothing keeps it from it.
func (a *accountMints) until() time.Time {
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

func newMintSlots(opt Options, freed func()) *mintSlots {
	return &mintSlots{opt: opt, freed: freed, accounts: map[int64]*accountMints{}}
}

func (s *mintSlots) account(id int64) *accountMints {
	a, ok := s.accounts[id]
	if !ok {
		a = &accountMints{}
		s.accounts[id] = a
	}
	return a
}

// limit is how many mints of the account may be under way. A failing account may have a single one, which tests
// whether the failure is over, so that its jobs do not pin the pool's pods (CLAIM-11).
func (s *mintSlots) limit(a *accountMints) int {
	if a.failures > 0 {
		return 1
	}
	return s.opt.MaxMints
}

// excluded lists the accounts that cannot mint now, and how long until the first of them may (0: none backs off).
func (s *mintSlots) excluded() ([]int64, time.Duration) {
	now := s.opt.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	ids := []int64{}
	var wait time.Duration
	for id, a := range s.accounts {
		left := a.until().Sub(now)
		switch {
		case left > 0:
			ids = append(ids, id)
			if wait == 0 || left < wait {
				wait = left
			}
		case a.minting >= s.limit(a) || a.short && a.minting > 0:
			ids = append(ids, id)
		case a.minting == 0 && a.failures == 0:
			delete(s.accounts, id)
		}
	}
	return ids, wait
}

// reserve takes up to want mint slots.
func (s *mintSlots) reserve(account Account, want int) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	a := s.account(account.ID)
	now := s.opt.Now()
	if a.until().After(now) {
		return 0
	}
	room := s.limit(a) - a.minting
	if rate, ok := s.opt.Forge.MintRate(account.InstallationID); ok && rate.Reset.After(now) {
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

// release gives slots back, and wakes accounts that may have lacked them.
func (s *mintSlots) release(accountID int64, slots int) {
	if s.giveBack(accountID, slots, true) {
		s.freed()
	}
}

// unused takes back slots that a batch had reserved and made no claim with. It reports whether others may have lacked them;
// that batch did not, and would find no more if it read again at once.
func (s *mintSlots) unused(accountID int64, slots int) (wanted bool) {
	return s.giveBack(accountID, slots, false)
}

// giveBack reports whether another batch may have lacked those slots. notified says that the caller wakes it.
func (s *mintSlots) giveBack(accountID int64, slots int, notified bool) bool {
	if slots <= 0 {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	a := s.account(accountID)
	full := a.short || a.minting >= s.limit(a)
	a.short = a.short && !notified
	a.minting = max(0, a.minting-slots)
	return full
}

// minted notes the outcome of a request to GitHub: success ends a back-off, failure starts or lengthens one. It reports whether one has ended.
func (s *mintSlots) minted(account Account, err error) (recovered bool) {
	if err != nil {
		s.failed(account, err)
		return false
	}
	s.mu.Lock()
	a := s.account(account.ID)
	recovered = a.failures > 0
	a.failures, a.backoffUntil = 0, time.Time{}
	s.mu.Unlock()
	if recovered {
		s.freed()
	}
	return recovered
}

func (s *mintSlots) failed(account Account, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	a := s.account(account.ID)
	now := s.opt.Now()
	var limited *fleet.RateLimitedError
	if errors.As(err, &limited) && limited.Until.After(now) {
		a.limitedUntil = limited.Until
		return
	}
	if a.backoffUntil.After(now) {
		return // one outage counts once, however many mints it met
	}
	wait := backoff(a.failures, s.opt.Jitter())
	a.failures++
	a.backoffUntil = now.Add(wait)
}

// backoff is the delay after one more consecutive failure: 1 s, 2 s, … 256 s, and 5 minutes from then on; at least half of it is fixed, and
// the rest is scaled by jitter, from 0 to 1.
func backoff(failures int, jitter float64) time.Duration {
	wait := maxBackoff
	if failures < 9 {
		wait = min(maxBackoff, minBackoff<<failures)
	}
	return wait/2 + time.Duration(jitter*float64(wait/2))
}

// forgive ends the account's back-off: its installation is another one now, or works again (CLAIM-11).
func (s *mintSlots) forgive(accountID int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if a, ok := s.accounts[accountID]; ok {
		a.failures, a.backoffUntil, a.limitedUntil = 0, time.Time{}, time.Time{}
	}
}

// wait is how long the account still backs off.
func (s *mintSlots) wait(accountID int64) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	if a, ok := s.accounts[accountID]; ok {
		return max(0, a.until().Sub(s.opt.Now()))
	}
	return 0
}

// resume is until when no mint is begun for the account; zero when nothing keeps one from it.
func (s *mintSlots) resume(account Account) (until time.Time, limited bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.opt.Now()
	if a, known := s.accounts[account.ID]; known && a.until().After(now) {
		return a.until(), a.limitedUntil.After(a.backoffUntil)
	}
	if rate, known := s.opt.Forge.MintRate(account.InstallationID); known && rate.Remaining <= 0 && rate.Reset.After(now) {
		return rate.Reset, true
	}
	return time.Time{}, false
}

// mintable is how many registrations GitHub may be asked for now in the account's name; not ok when only the bound of
// concurrent requests applies, which changes within moments.
func (s *mintSlots) mintable(account Account) (n int64, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.opt.Now()
	minting := 0
	if a, known := s.accounts[account.ID]; known {
		switch {
		case a.until().After(now): // CLAIM-11, CLAIM-14
			return 0, true
		case a.failures > 0:
			return int64(max(0, s.limit(a)-a.minting)), true
		}
		minting = a.minting
	}
	if rate, known := s.opt.Forge.MintRate(account.InstallationID); known && rate.Reset.After(now) { // CLAIM-14
		return int64(max(0, rate.Remaining-minting)), true
	}
	return 0, false
}
