package why

import (
	"fmt"
	"time"

	"github.com/bullpen-ci/bullpen/internal/fleet"
)

// claimed says how far the runner is that was chosen for the job.
func claimed(e Evidence) Reason {
	c := e.Claim
	switch {
	case c.State == fleet.ClaimClaimed:
		r := Reason{Code: Registering, Sentence: fmt.Sprintf("Runner %s of pool %s was claimed for it %s ago, and is being registered at GitHub.", c.Pod, c.Pool, since(e.Now, c.ClaimedAt))}
		if g := github(e); g != nil {
			return *g
		}
		return r
	case c.AcknowledgedAt.IsZero():
		return Reason{
			Code: RunnerStarting, Sentence: fmt.Sprintf("Runner %s was registered %s ago and has not confirmed its configuration yet.", c.Pod, since(e.Now, c.MintedAt)),
			Remedy: "No action is needed: it is retried, and if the pod is gone, another one gets the job.",
		}
	default:
		return Reason{
			Code:     NotAssigned,
			Sentence: fmt.Sprintf("Runner %s got its configuration %s ago; GitHub has not assigned it the job yet.", c.Pod, since(e.Now, c.AcknowledgedAt)),
			Remedy: "GitHub assigns a job to any idle runner with its labels, so this runner may get another job, and this job another runner. " +
				"A runner without a job is recovered automatically.",
		}
	}
}

func since(now, then time.Time) string {
	return max(0, now.Sub(then)).Round(time.Second).String()
}
