package dispatch

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/bullpen-ci/bullpen/api/runnerapi"
	"github.com/bullpen-ci/bullpen/internal/fleet"
)

// mostDemandKeys bounds the label sets of an account that one target asks for: its workflows may name as many as there are subsets of the
// runners' labels.
const mostDemandKeys = 200

// DemandScope is one account, or one repository of it, in lower case, and the label sets of the jobs that are asked for.
type DemandScope struct {
	Login, Repository string // Repository (owner/name) empty: the whole account
	LabelKeys         []string
	Most              int64 // jobs of one label set and kind
}

// TargetJobs is what the ledger knows of scopes and jobs.
type TargetJobs struct {
	// Sees says of each scope, in their order, whether GitHub reports its jobs.
	Sees []bool
	Jobs []TargetJob
	Seen []SeenJob
}

// TargetJob is a job of a scope that waits or runs.
type TargetJob struct {
	Scope   int
	Running bool
	Job     runnerapi.DemandJob
}

// SeenJob is what is known of one job that was asked about.
type SeenJob struct {
	ID         int64
	State      fleet.JobState
	Conclusion string
	LabelKey   string // empty where the job's row is gone
}

// TargetDemand returns which jobs each target's runners are for: of all targets, or an error (POOL-8). Such jobs are recorded like all
// others; no pool has their labels, so no pool is given them, and nothing is ever minted for them.
func (d *Dispatcher) TargetDemand(ctx context.Context, targets []runnerapi.DemandTarget) ([]runnerapi.TargetDemand, error) {
	if err := d.notFrozen(); err != nil { // CLAIM-17: what a restored ledger lacks would be no demand
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, signalsTimeout)
	defer cancel()
	sets, err := d.opt.Store.LabelSetsOfLogins(ctx, logins(targets))
	if err != nil {
		return nil, fmt.Errorf("reading the label sets of accounts: %w", err)
	}
	pools := d.opt.Cluster.Pools()
	asked := askFor(targets, unservedOnly(pools, sets))
	known, err := d.opt.Store.TargetJobs(ctx, asked.scopes, asked.seen)
	if err != nil {
		return nil, err
	}
	if err := d.notFrozen(); err != nil { // since it was read
		return nil, err
	}
	return asked.answer(targets, known, pools), nil
}

// logins lists the accounts that the targets are of, in lower case.
func logins(targets []runnerapi.DemandTarget) []string {
	asked := map[string]bool{}
	for _, target := range targets {
		for _, repository := range append([]string{target.Repository}, target.Repositories...) {
			if owner, _, ok := strings.Cut(repository, "/"); ok {
				asked[strings.ToLower(owner)] = true
			}
		}
		if target.Organization != "" {
			asked[strings.ToLower(target.Organization)] = true
		}
	}
	return slices.Sorted(maps.Keys(asked))
}

// unservedOnly leaves out the label sets that a pool serves. The jobs of those are the pool's.
func unservedOnly(pools []Pool, sets map[string][]LabelSet) map[string][]LabelSet {
	out := make(map[string][]LabelSet, len(sets))
	for login, its := range sets {
		unserved := Route(pools, its).Unserved
		for _, set := range its {
			if _, free := unserved[set.Key]; free {
				out[login] = append(out[login], set)
			}
		}
	}
	return out
}

// targetAsk is what the ledger is asked for the targets.
type targetAsk struct {
	scopes []DemandScope
	target []int  // of each scope
	more   []bool // of each target: not all of its label sets are asked for
	seen   []int64
}

// askFor asks of each account for its own label sets: those of others are nothing to it (TEN-1).
func askFor(targets []runnerapi.DemandTarget, sets map[string][]LabelSet) targetAsk {
	ask := targetAsk{more: make([]bool, len(targets)), seen: []int64{}}
	for i, target := range targets {
		add := func(login, repository string) {
			login = strings.ToLower(login)
			var keys []string
			for _, set := range sets[login] {
				if fleet.RunnerTakes(target.Labels, set.Labels, target.NoDefaultLabels) {
					keys = append(keys, set.Key)
				}
			}
			if len(keys) > mostDemandKeys {
				keys, ask.more[i] = keys[:mostDemandKeys], true
			}
			ask.target = append(ask.target, i)
			ask.scopes = append(ask.scopes, DemandScope{
				Login: login, Repository: strings.ToLower(repository), LabelKeys: keys,
				Most: int64(min(max(target.Most, 1), runnerapi.MostDemandJobs)) + 1, // the one beyond says that there are more
			})
		}
		for _, repository := range append([]string{target.Repository}, target.Repositories...) {
			if owner, _, ok := strings.Cut(repository, "/"); ok {
				add(owner, repository)
			}
		}
		if target.Organization != "" {
			add(target.Organization, "")
		}
		ask.seen = append(ask.seen, target.Seen...)
	}
	return ask
}

func (a targetAsk) answer(targets []runnerapi.DemandTarget, known TargetJobs, pools []Pool) []runnerapi.TargetDemand {
	out := make([]runnerapi.TargetDemand, len(targets))
	for i, target := range targets {
		out[i] = runnerapi.TargetDemand{Key: target.Key, More: a.more[i], Queued: []runnerapi.DemandJob{}, Running: []runnerapi.DemandJob{}}
	}
	for i, sees := range known.Sees {
		of := a.target[i]
		out[of].Sees = out[of].Sees || sees && targets[of].Enterprise == ""
	}
	for _, job := range known.Jobs {
		to := &out[a.target[job.Scope]]
		if job.Running {
			to.Running = append(to.Running, job.Job)
		} else {
			to.Queued = append(to.Queued, job.Job)
		}
	}
	settled := map[int64]bool{}
	for _, job := range known.Seen {
		settled[job.ID] = job.settled(pools)
	}
	for i, target := range targets {
		for _, id := range target.Seen {
			if settled[id] {
				out[i].Settled = append(out[i].Settled, id)
			}
		}
		most := min(max(target.Most, 1), runnerapi.MostDemandJobs)
		out[i].More = cut(&out[i].Queued, most) || out[i].More
		cut(&out[i].Running, most)
	}
	share(out)
	return out
}

// settled reports whether a job that was seen at GitHub needs no runner that registers itself. One that was given up here,
// because its state was unknown for a day, is not: it was seen.
func (j SeenJob) settled(pools []Pool) bool {
	if j.State.Terminal() {
		return j.State != fleet.JobStale && j.Conclusion != string(fleet.JobStale)
	}
	labels, ok := LabelsOf(j.LabelKey)
	return !ok || len(Route(pools, []LabelSet{{Key: j.LabelKey, Labels: labels}}).Unserved) == 0
}

// cut keeps the oldest jobs, up to most, and reports whether there were more.
func cut(jobs *[]runnerapi.DemandJob, most int) bool {
	slices.SortFunc(*jobs, func(a, b runnerapi.DemandJob) int {
		return cmp.Or(a.QueuedAt.Compare(b.QueuedAt), cmp.Compare(a.ID, b.ID))
	})
	*jobs = slices.CompactFunc(*jobs, func(a, b runnerapi.DemandJob) bool { return a.ID == b.ID }) // a repository may be listed twice
	if len(*jobs) <= most {
		return false
	}
	*jobs = (*jobs)[:most]
	return true
}

// share bounds the whole answer: lists are cut to one length, so that a target with many jobs hides none of those with few.
func share(out []runnerapi.TargetDemand) {
	var lengths []int
	for _, target := range out {
		lengths = append(lengths, len(target.Queued), len(target.Running))
	}
	slices.Sort(lengths)
	left, most := runnerapi.MostDemandAnswer, runnerapi.MostDemandJobs
	for i, n := range lengths {
		if n*(len(lengths)-i) > left {
			most = left / (len(lengths) - i)
			break
		}
		left -= n
	}
	for i := range out {
		out[i].More = cut(&out[i].Queued, most) || out[i].More
		cut(&out[i].Running, most)
	}
}
