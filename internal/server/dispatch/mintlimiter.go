package dispatch

import (
	"time"

	"github.com/bullpen-ci/bullpen/internal/fleet"
)

// MintLimiter is the rule by which a replica begins mints (CLAIM-14), for a caller with its own clock and rate limit: the
// simulator. It is safe for concurrent use.
type MintLimiter struct{ slots *mintSlots }

// rated is a forge of which only the rate is asked.
type rated struct {
	Forge
	rate func(installationID int64) (fleet.RateState, bool)
}

func (r rated) MintRate(installationID int64) (fleet.RateState, bool) { return r.rate(installationID) }

// NewMintLimiter returns a replica's rule by that clock. rate says what is known of an installation's limit, as Forge.MintRate
// does; most bounds an account's concurrent mints, 0 as Options.MaxMints has it.
func NewMintLimiter(now func() time.Time, rate func(installationID int64) (fleet.RateState, bool), most int) *MintLimiter {
	if most == 0 {
		most = defaultMaxMints
	}
	return &MintLimiter{newMintSlots(Options{Now: now, Forge: rated{rate: rate}, MaxMints: most}, func() {})}
}

// Excluded lists the accounts that cannot mint now, and how long until the first of them may; 0: none waits for a time.
func (m *MintLimiter) Excluded() ([]int64, time.Duration) { return m.slots.excluded() }

// Reserve is for Batch.Reserve, Release for Batch.Return, and for the end of a mint.
func (m *MintLimiter) Reserve(account Account, want int) int { return m.slots.reserve(account, want) }

// Release gives slots back.
func (m *MintLimiter) Release(accountID int64, slots int) { m.slots.release(accountID, slots) }

// Mintable is the account's bound for Demand; not ok when nothing bounds it.
func (m *MintLimiter) Mintable(account Account) (int64, bool) { return m.slots.mintable(account) }
