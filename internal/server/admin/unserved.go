package admin

import (
	"context"

	"github.com/bullpen-ci/bullpen/api/adminapi"
	"github.com/bullpen-ci/bullpen/internal/fleet"
	"github.com/bullpen-ci/bullpen/internal/server/dispatch"
)

// unserved is what clients see of jobs that no pool serves (CLAIM-21); nil while it cannot be read.
func (a *API) unserved(ctx context.Context) *adminapi.UnservedJobs {
	found, err := a.opt.Fleet.Unserved(ctx)
	if err != nil { // Frozen says why, or the server's log
		a.opt.Log.DebugContext(ctx, "reading which jobs no pool serves", "error", err)
		return nil
	}
	return UnservedOf(found)
}

// UnservedOf is what clients see of those jobs.
func UnservedOf(found dispatch.Unserved) *adminapi.UnservedJobs {
	out := &adminapi.UnservedJobs{
		Jobs: found.Jobs, More: found.More, LabelSets: []adminapi.UnservedLabels{},
		GitHubHosted: found.Outside[fleet.OutsideGitHub], OtherRunners: found.Outside[fleet.OutsideOther],
	}
	if !found.Oldest.IsZero() {
		oldest := found.Oldest.UTC()
		out.Oldest = &oldest
	}
	for _, set := range found.Sets {
		shown := adminapi.UnservedLabels{
			Labels: set.Labels, Jobs: set.Jobs, More: set.More, Oldest: set.Oldest.UTC(),
			Sentence: set.Sentence(), Remedy: set.Remedy, Nearest: []adminapi.NearPool{},
		}
		for _, near := range set.Near {
			pool := adminapi.NearPool{Namespace: near.Namespace, Name: near.Name, Labels: near.Labels, Missing: near.Missing}
			for _, s := range near.Spellings {
				pool.Missing = append(pool.Missing, s.Wrote)
			}
			shown.Nearest = append(shown.Nearest, pool)
		}
		out.LabelSets = append(out.LabelSets, shown)
	}
	return out
}
