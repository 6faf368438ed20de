package why

import (
	"fmt"

	"github.com/bullpen-ci/bullpen/internal/fleet"
	"github.com/bullpen-ci/bullpen/internal/server/dispatch"
)

// noPool says which labels the nearest pools lack, or that the job is for runners outside of RunnerPools.
func noPool(e Evidence) *Reason {
	asked := labels(e.Job.Labels)
	switch e.Outside {
	case fleet.OutsideGitHub:
		return &Reason{
			Code: GitHubHosted, Sentence: "It is for GitHub's own runners (" + asked + "). Bullpen has no part in it.",
			Remedy: "To run it here, change runs-on to a pool's label, or add its labels to spec.labels of a RunnerPool.",
		}
	case fleet.OutsideOther:
		return &Reason{
			Code: OtherRunners, Sentence: "It is for runners outside of RunnerPools (" + asked + "), as the server's --other-runner-labels says.",
			Remedy: "See the fleet that has these runners. To run it here, change runs-on to a pool's label.",
		}
	case fleet.OutsideNone:
	}
	pools := dispatch.Labelled(e.Pools)
	near := fleet.Nearest(pools, e.Job.Labels)
	r := &Reason{
		Code: NoPool, Sentence: fmt.Sprintf("No pool has all of its labels (%s).", asked),
		Remedy: fleet.UnservedRemedy(pools, e.Job.Labels, near) + " A pool takes a job if it has all of the job's labels, self-hosted and linux among them.",
	}
	if text := fleet.NearestText(near); text != "" {
		r.Sentence += " " + text
	}
	return r
}

// outside reports whether the job is for runners outside of RunnerPools.
func (r Reason) outside() bool { return r.Code == GitHubHosted || r.Code == OtherRunners }
