package dispatch

import (
	"time"

	"github.com/bullpen-ci/bullpen/internal/fleet"
)

// MintBudget is the rule by which a replica begins mints (CLAIM-14), for whoever runs it by another clock than the server's
// and against another limit than GitHub's. It is safe for concurrent use.
type MintBudget struct{ b *budgets }

// rated is a forge of which only the rate is asked.
type rated struct {
	Forge
	rate func(installationID int64) (fleet.RateState, bool)
}

func (r rated) MintRate(installationID int64) (fleet.RateState, bool) { return r.rate(installationID) }

// NewMintBudget is a replica's budget by that clock. rate says what is known of an installation's limit, as Forge.MintRate
// does; most bounds an account's concurrent mints, 0 as Options.MaxMints has it.
func NewMintBudget(now func() time.Time, rate func(installationID int64) (fleet.RateState, bool), most int) *MintBudget {
	if most == 0 {
		most = defaultMaxMints
	}
	return &MintBudget{newBudgets(Options{Now: now, Forge: rated{rate: rate}, MaxMints: most}, func() {})}
}

// Excluded lists the accounts that cannot mint now, and how long until the first of them may; 0: none waits for a time.
func (m *MintBudget) Excluded() ([]int64, time.Duration) { return m.b.excluded() }

// Reserve is for Batch.Reserve, Release for Batch.Return, and for the end of a mint.
func (m *MintBudget) Reserve(account Account, want int) int { return m.b.reserve(account, want) }

// Release gives slots back.
func (m *MintBudget) Release(accountID int64, slots int) { m.b.release(accountID, slots) }

// Mintable is what Demand is told of the account; not ok when nothing bounds it.
func (m *MintBudget) Mintable(account Account) (int64, bool) { return m.b.mintable(account) }
