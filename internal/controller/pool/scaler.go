package pool

import (
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// Scaler decides the number of runners of pools that autoscale, and passes on what the server reports about all of them. It is called on
// each pass, must not block, and is safe for concurrent use. An implementation starts a pass (Options.Wakes) when a decision has changed.
type Scaler interface {
	// Decision is the latest for one pool; the zero value before the first.
	Decision(pool types.NamespacedName) Decision
}

// Decision is what is known and decided for one pool.
type Decision struct {
	// Pool is the UID of the pool that it is about: names are used again.
	Pool types.UID
	// Desired is the number of runners, if Decided: the pool autoscales, and the autoscaler has seen all that it needs at
	// least once. Otherwise the last number in the pool's status stands.
	Desired int
	Decided bool
	// LastScaleDown is when Desired was last lowered; zero for never.
	LastScaleDown time.Time
	// Blind says why the autoscaler leaves the number alone; empty while it sees what it decides on.
	Blind string
	// BlindSince is since when it has been so; zero for always.
	BlindSince time.Time
	// Demand is what the server says of the pool; nil while nothing recent is known.
	Demand *Demand
	// Short says why this pool gets fewer runners than it would: the fleet has no room for more. It is shown as Starved.
	// Empty while the pool gets what it would.
	Short string
	// Removals are pods, by UID, whose work is over by the server's proof, the sentence it is mapped to.
	Removals map[string]string
}

// Demand counts jobs and runners of one pool.
type Demand struct {
	Occupied, Queued, Blocked int
	OldestQueued              time.Time
	// Refused says what GitHub refuses of the pool's jobs; empty when that is nothing.
	Refused string
}
