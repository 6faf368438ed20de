package admin

import (
	"cmp"
	"context"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/bullpen-ci/bullpen/api/adminapi"
	"github.com/bullpen-ci/bullpen/api/runnerapi"
	"github.com/bullpen-ci/bullpen/internal/fleet"
	"github.com/bullpen-ci/bullpen/internal/server/dispatch"
)

// PoolWatch is what this replica's watch of the cluster shows of pools and their pods.
type PoolWatch interface {
	// DescribePools are all pools as their controller has last described them, without what waits for them.
	DescribePools() []adminapi.Pool
	// PodsOfPool are the runner pods of a pool, or with an empty name of all.
	PodsOfPool(ref dispatch.PoolRef) []RunnerPod
	// Demand is what waits for each pool; it may be a second old.
	Demand(ctx context.Context) ([]runnerapi.PoolSignals, error)
	// Lanes says which queued jobs may start, and what blocks the others, of the reading that Demand is from.
	Lanes(ctx context.Context) (map[dispatch.LaneRef]dispatch.LaneDemand, error)
	// Unserved are the queued jobs that no pool serves; it may be some seconds old.
	Unserved(ctx context.Context) (dispatch.Unserved, error)
}

// RunnerPod is what a watch shows of a runner pod.
type RunnerPod struct {
	dispatch.Pod
	Node      string
	CreatedAt time.Time
	Ready     bool // it can take a job
	Ended     bool // all of its containers have
}

// ClaimStore reads who has claimed pods.
type ClaimStore interface {
	// RunnerClaims returns the claims of those pods by their UIDs; retired and spent ones too.
	RunnerClaims(ctx context.Context, podUIDs []string) (map[string]RunnerClaim, error)
}

// RunnerClaim is why a pod is not idle.
type RunnerClaim struct {
	State      fleet.ClaimState
	Account    string
	JobID      int64
	RunnerName string
	ClaimedAt  time.Time
}

// stageOf says where a runner is in its life: what the ledger knows goes before what the pod shows, and a pod that shows work works.
func stageOf(p RunnerPod, c RunnerClaim, claimed bool) string {
	switch {
	case p.Ended:
		return "finished"
	case claimed && c.State == fleet.ClaimExecuting:
		return "busy"
	case claimed && c.State == fleet.ClaimSpent:
		return "finished"
	case p.Deleting || claimed && c.State == fleet.ClaimRetired:
		return "terminating"
	case claimed && c.State == fleet.ClaimMinted:
		return "registered"
	case claimed:
		return "assigned"
	case p.OwnerLabel != "" || p.PollerEnded: // EXCL-4
		return "busy"
	case p.Ready:
		return "idle"
	}
	return "starting"
}

func (a *API) pools(ctx context.Context) []adminapi.Pool {
	pools := a.opt.Fleet.DescribePools()
	slices.SortFunc(pools, func(a, b adminapi.Pool) int {
		return cmp.Or(strings.Compare(a.Name, b.Name), strings.Compare(a.Namespace, b.Namespace))
	})
	for i := range pools { // a client may count on lists
		if pools[i].Labels == nil {
			pools[i].Labels = []string{}
		}
		if pools[i].Problems == nil {
			pools[i].Problems = []adminapi.Problem{}
		}
	}
	demand, err := a.opt.Fleet.Demand(ctx)
	if err != nil { // queued jobs are left out; Frozen, or the server's log, says why
		a.opt.Log.DebugContext(ctx, "reading the demand of pools", "error", err)
		return pools
	}
	for i := range pools {
		at := slices.IndexFunc(demand, func(d runnerapi.PoolSignals) bool {
			return d.Namespace == pools[i].Namespace && d.Name == pools[i].Name
		})
		if at < 0 {
			continue
		}
		d := demand[at]
		pools[i].Demand = &adminapi.PoolDemand{Queued: int64(d.Queued), OldestQueued: d.OldestQueued}
		for reason, jobs := range d.Blocked {
			if pools[i].Demand.Blocked == nil {
				pools[i].Demand.Blocked = map[string]int64{}
			}
			pools[i].Demand.Blocked[string(reason)] = int64(jobs)
		}
	}
	return pools
}

func (a *API) listPools(w http.ResponseWriter, r request) error {
	list := adminapi.PoolList{Pools: a.pools(r.Context())}
	if list.Pools == nil {
		list.Pools = []adminapi.Pool{}
	}
	list.Frozen, _ = a.opt.Fleet.Frozen()
	list.Unserved = a.unserved(r.Context())
	write(w, http.StatusOK, list)
	return nil
}

func (a *API) getPool(w http.ResponseWriter, r request) error {
	for _, pool := range a.pools(r.Context()) {
		if pool.Namespace == r.PathValue("namespace") && pool.Name == r.PathValue("pool") {
			write(w, http.StatusOK, pool)
			return nil
		}
	}
	return ErrNotFound
}

// formerStages are names of stages that the API had before.
var formerStages = map[string]string{"booting": "starting", "claimed": "assigned", "minted": "registered", "leaving": "terminating"}

// selectStages reads the parameter stage.
func selectStages(values []string) ([]string, error) {
	var stages []string
	for _, value := range values {
		stage := cmp.Or(formerStages[value], value)
		if !slices.Contains(adminapi.RunnerStages(), stage) {
			return nil, &InvalidError{"stage must be one of " + strings.Join(adminapi.RunnerStages(), ", ")}
		}
		stages = append(stages, stage)
	}
	return stages, nil
}

func (a *API) listRunners(w http.ResponseWriter, r request) error {
	query := r.URL.Query()
	most, err := pageSize(query.Get("limit"))
	if err != nil {
		return err
	}
	ref := dispatch.PoolRef{}
	if text := query.Get("pool"); text != "" {
		var ok bool
		if ref.Namespace, ref.Name, ok = strings.Cut(text, "/"); !ok || ref.Namespace == "" || ref.Name == "" {
			return &InvalidError{"pool must be NAMESPACE/NAME, such as bullpen-runners/linux-4"}
		}
	}
	stages, err := selectStages(query["stage"])
	if err != nil {
		return err
	}
	namespace := query.Get("namespace")
	list, err := a.runners(r.Context(), ref, namespace, stages, query.Get("after"), most)
	if err != nil {
		return err
	}
	write(w, http.StatusOK, list)
	return nil
}

func (a *API) runners(
	ctx context.Context, ref dispatch.PoolRef, namespace string, stages []string, after string, most int,
) (adminapi.RunnerList, error) {
	pods := slices.DeleteFunc(a.opt.Fleet.PodsOfPool(ref), func(p RunnerPod) bool { return namespace != "" && p.Namespace != namespace })
	key := func(p RunnerPod) string { return p.Namespace + "/" + p.Name }
	slices.SortFunc(pods, func(a, b RunnerPod) int { return strings.Compare(key(a), key(b)) })
	list := adminapi.RunnerList{Runners: []adminapi.Runner{}}
	// A page of pods at a time, until a page of those that are asked for is full.
	for len(pods) > 0 {
		at, _ := slices.BinarySearchFunc(pods, after, func(p RunnerPod, after string) int {
			if key(p) <= after {
				return -1
			}
			return 1
		})
		part := pods[at:min(at+adminapi.MaxPage, len(pods))]
		uids := make([]string, len(part))
		for i, p := range part {
			uids[i] = p.UID
		}
		claims, err := a.opt.Store.RunnerClaims(ctx, uids)
		if err != nil {
			return list, err
		}
		for _, p := range part {
			claim, claimed := claims[p.UID]
			stage := stageOf(p, claim, claimed)
			if len(stages) > 0 && !slices.Contains(stages, stage) {
				continue
			}
			if len(list.Runners) == most {
				last := list.Runners[most-1]
				list.Next = last.Namespace + "/" + last.Name
				return list, nil
			}
			list.Runners = append(list.Runners, runner(p, claim, stage))
		}
		if at+len(part) >= len(pods) {
			break
		}
		after = key(part[len(part)-1])
	}
	return list, nil
}

func runner(p RunnerPod, c RunnerClaim, stage string) adminapi.Runner {
	out := adminapi.Runner{
		Namespace: p.Namespace, Name: p.Name, Pool: p.Pool.Name, Stage: stage, Node: p.Node, CreatedAt: p.CreatedAt.UTC(),
		Account: c.Account, JobID: c.JobID, RunnerAt: c.RunnerName,
	}
	if !c.ClaimedAt.IsZero() && c.State != fleet.ClaimRetired {
		at := c.ClaimedAt.UTC()
		out.ClaimedAt = &at
	}
	return out
}
