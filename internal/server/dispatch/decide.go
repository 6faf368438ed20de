package dispatch

import (
	"time"

	"github.com/bullpen-ci/bullpen/internal/fleet"
)

// Step is what a poll has to do next.
type Step int

// The steps of a poll.
const (
	StepMatch    Step = iota // no row: wait for a job
	StepTakeOver             // owned and not being minted: take a new generation and mint
	StepAwait                // another request is minting: wait for the outcome
	StepGone                 // never again
	StepLate                 // a later request of the pod was served: this one's connection is dead
)

// Decide returns the step of a poll by a pod with that claim.
//
// sequence is the request's number, 0 for an agent that does not number its requests: of two, the later has the larger.
func Decide(pod Pod, claim Claim, sequence int64, now time.Time) Step {
	if pod.Deleting {
		return StepGone // EXCL-5: a pod with a deletionTimestamp is never claimed
	}
	switch claim.State {
	case fleet.ClaimNone:
		return StepMatch
	case fleet.ClaimClaimed, fleet.ClaimMinted:
		if claim.Acknowledged {
			return StepGone // single shot: it has its configuration
		}
		if sequence != 0 && sequence < claim.Sequence {
			return StepLate // CLAIM-7: the job that the later request was given must not be taken from it
		}
		if claim.Leased(now) {
			return StepAwait
		}
		return StepTakeOver // CLAIM-7, CLAIM-16
	default:
		return StepGone // EXCL-5: executing, spent and retired are never served again
	}
}

// LongestLease is longer than any lease that a replica takes, with room for clocks that differ as clocks do. Leases only
// save work: it is the generation that makes a stale actor's writes void. So one that ends later was taken by a replica
// whose clock is ahead, and blocks no other replica (CLAIM-16).
const LongestLease = time.Minute

// Leased reports whether a replica is working on the claim.
func (c Claim) Leased(now time.Time) bool {
	return c.LeaseUntil.After(now) && !c.LeaseUntil.After(BeyondLeases(now))
}

// BeyondLeases is when the last lease ends that may have been taken by now.
func BeyondLeases(now time.Time) time.Time { return now.Add(LongestLease) }
