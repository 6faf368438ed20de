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
			Code: RunnerStarting, Sentence: fmt.Sprintf("Runner %s was registered for it %s ago, and has not confirmed its configuration.", c.Pod, since(e.Now, c.MintedAt)),
			Remedy: "Bullpen retries; if the pod is gone, the job goes to another runner.",
		}
	default:
		return Reason{
			Code:     NotAssigned,
			Sentence: fmt.Sprintf("Runner %s has had its configuration for %s, and GitHub has not assigned the job to it.", c.Pod, since(e.Now, c.AcknowledgedAt)),
			Remedy: "GitHub gives a job to whichever of its runners with these labels is free: this runner may get another job, and this job another runner. " +
				"A runner that gets nothing is recovered by itself.",
		}
	}
}

func since(now, then time.Time) string {
	return max(0, now.Sub(then)).Round(time.Second).String()
}
