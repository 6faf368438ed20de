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
	StepTakeOver             // owned and nobody is minting: take a new generation and mint
	StepAwait                // somebody is minting: wait for the outcome
	StepGone                 // never again
)

// Decide reads the table of dispatch.md: what a poll of a pod with that claim gets.
func Decide(pod Pod, claim Claim, now time.Time) Step {
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
		if claim.LeaseUntil.After(now) {
			return StepAwait
		}
		return StepTakeOver // CLAIM-7, CLAIM-16
	default:
		return StepGone // EXCL-5: executing, spent and retired are never served again
	}
}
