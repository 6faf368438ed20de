package doctor

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/bullpen-ci/bullpen/internal/server/dispatch"
	"github.com/bullpen-ci/bullpen/internal/server/ledger"
)

// unserved reads which queued jobs no pool serves. It takes the database for the jobs and the cluster for the pools.
func (g *gatherer) unserved(ctx context.Context) {
	l, c := g.evidence.Ledger, g.evidence.Cluster
	if l == nil || l.Unreachable != "" || l.Schema.Has < l.Schema.Needs || c == nil || !c.PoolsRead {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, g.look.Timeout)
	defer cancel()
	pools := routedPools(*c)
	lanes, err := ledger.InspectUnserved(ctx, g.look.DatabaseURL, dispatch.ServableKeys(pools))
	if err != nil {
		g.unchecked("the database: queued jobs that no pool serves", err.Error(), "Grant SELECT on job_lanes, accounts and workflow_jobs to the role of the URL.")
		return
	}
	found := dispatch.FindUnserved(pools, g.look.Outside, lanes)
	g.evidence.Unserved = &found
}

// routedPools are the pools as far as jobs are matched to them.
func routedPools(c Cluster) []dispatch.Pool {
	pools := make([]dispatch.Pool, len(c.Pools))
	for i, p := range c.Pools {
		pools[i] = dispatch.Pool{
			Namespace: c.RunnerNamespace, Name: p.Name, Labels: p.Labels, RunnerGroup: p.Group.StrVal, RunnerGroupID: int64(p.Group.IntVal),
			Terminating: !p.DeletedAt.IsZero(),
		}
	}
	return pools
}

// unservedReported is how long a job is queued before it is an error: until then a pool may be about to be added.
const unservedReported = 15 * time.Minute

// outsideRemedy says how to name runners outside of RunnerPools by those labels; a job without any cannot be theirs by its labels.
func outsideRemedy(labels []string) string {
	if len(labels) == 0 {
		return ""
	}
	return " If runners outside of RunnerPools take such jobs, name their labels: --github-hosted-labels, --other-runner-labels."
}

// examineUnserved reports queued jobs that no pool serves, by label set (CLAIM-21).
func examineUnserved(r *Report, found dispatch.Unserved, now time.Time) {
	for _, set := range found.Sets {
		severity, age := SeverityWarning, now.Sub(set.Oldest)
		if age >= unservedReported {
			severity = SeverityError
		}
		r.found(Finding{
			Code: "unserved-labels", Severity: severity, Subject: strings.Join(set.Labels, ","),
			Sentence: fmt.Sprintf("%s The oldest, job %d of %s, was queued %s ago.", set.Sentence(), set.JobID, set.Repository, max(0, age).Round(time.Second)),
			Remedy:   set.Remedy + outsideRemedy(set.Labels),
		})
	}
}
