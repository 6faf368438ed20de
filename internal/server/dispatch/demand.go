package dispatch

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/bullpen-ci/bullpen/api/runnerapi"
	"github.com/bullpen-ci/bullpen/internal/fleet"
)

// Backlog is what the ledger says at one moment of the jobs that wait, and of what their accounts may still use.
type Backlog struct {
	Lanes   []WaitingLane
	Limits  map[Budget]fleet.Limits
	Usage   map[Budget]fleet.Usage
	Runners map[PoolRef]Runners
	// Repositories is what runs of each repository, of accounts with a cap per repository.
	Repositories map[RepositoryBudget]int64
	// Refused are the accounts at which GitHub registers no runner of the pool.
	Refused map[AccountOfPool]runnerapi.BlockedReason
}

// RepositoryBudget names what one repository of an account may use on one platform.
type RepositoryBudget struct {
	Budget
	Repository string
}

// Budget names what one account may use on one platform.
type Budget struct {
	AccountID int64
	Platform  fleet.Platform
}

// Runners are those of a pool that are in use.
type Runners struct {
	Occupied int64 // with a live claim or an open session
	Claimed  int64 // with a live claim
}

// WaitingLane is one account's queue for one label set, as far as it was looked into.
type WaitingLane struct {
	LabelKey  string
	Account   Account
	Suspended bool     // by GitHub or an administrator, or the App was uninstalled
	Jobs      int64    // queued jobs that are not blocked; Look.Count means that many or more
	Blocked   int64    // queued jobs that are blocked, also counted up to Look.Count
	Refused   int64    // those of Blocked whose registration GitHub refuses, or to which it assigns no runner (CLAIM-19, CLAIM-20)
	Oldest    []JobAge // the first Look.Ages of Jobs, oldest first
	// Repositories of Oldest, where Look asked for them.
	Repositories []string
	// Last is the job at the position that Look asked for; ID 0: there is none.
	Last JobAge
}

// JobAge places a queued job among others.
type JobAge struct {
	ID       int64
	QueuedAt time.Time
}

// Look limits what is read of a lane, so that a long queue costs no more than a short one: jobs are counted up to Count, and the ages of the
// first Ages are read.
type Look struct {
	Count, Ages  int64
	Repositories bool // of those whose age is read
	// Last is the position, from 1, of the last job that could be handed out, where Ages does not reach it; 0: none.
	Last int64
}

// How far lanes are read. Jobs that could be handed out are counted in full, up to maxCounted a lane. For blocked jobs only their
// existence matters, so the lanes share spareCounts between them and each has at least minSpare: beyond that, the number of blocked jobs
// is a lower bound.
const (
	maxCounted  = 10_000
	spareCounts = 10_000
	minSpare    = 5
	// crowdedAges is how many more jobs' ages are read of a lane where some may belong to repositories at their cap.
	crowdedAges = 1000
)

// destination is where a label set's jobs go.
type destination struct {
	pool     Pool
	conflict bool // more than one live pool serves it; pool is the first of them, where its jobs are counted
}

// destinations routes label sets as matchers do. Label sets that no live pool serves have none.
func destinations(pools []Pool, sets []LabelSet) map[string]destination {
	byRef := make(map[PoolRef]Pool, len(pools))
	for _, pool := range pools {
		byRef[pool.Ref()] = pool
	}
	routing := Route(pools, sets)
	to := map[string]destination{}
	for ref, keys := range routing.Served {
		for _, key := range keys {
			to[key] = destination{pool: byRef[ref]}
		}
	}
	for key, refs := range routing.Ambiguous {
		to[key] = destination{pool: byRef[slices.MinFunc(refs, compareRefs)], conflict: true} // CLAIM-12
	}
	return to
}

func compareRefs(a, b PoolRef) int {
	return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
}

// Looks says for each lane of the backlog how far to look into it, in their order. An account's lanes share its
// budget, oldest job first, so that of an account with several lanes as many ages are needed as could be handed out.
func Looks(pools []Pool, sets []LabelSet, b Backlog) []Look {
	to := destinations(pools, sets)
	spare := int64(max(minSpare, spareCounts/max(1, len(b.Lanes))))
	lanes := map[int64]int{}
	for _, lane := range b.Lanes {
		lanes[lane.Account.ID]++
	}
	out := make([]Look, len(b.Lanes))
	for i, lane := range b.Lanes {
		dest, served := to[lane.LabelKey]
		if !served {
			continue
		}
		out[i].Count = spare
		if dest.conflict || dest.pool.Paused || lane.Suspended {
			continue
		}
		budget := Budget{lane.Account.ID, dest.pool.Platform}
		room := min(maxCounted, b.Limits[budget].Room(b.Usage[budget], dest.pool.Shape))
		out[i].Count += room
		out[i].Ages = room
		if b.Limits[budget].JobsPerRepository > 0 { // which jobs are asked for depends on whose they are
			out[i].Repositories = true
			out[i].Ages = min(maxCounted, room+crowdedAges)
			continue
		}
		if lanes[lane.Account.ID] == 1 {
			out[i].Ages, out[i].Last = min(1, room), room
		}
	}
	return out
}

// withinMints ends the reading of lanes where GitHub may be asked for fewer registrations than the account has room for.
func withinMints(looks []Look, lanes []WaitingLane, mints map[int64]int64) []Look {
	for i := range looks {
		if n, bounded := mints[lanes[i].Account.ID]; bounded {
			looks[i].Last = min(looks[i].Last, n)
		}
	}
	return looks
}

// Demand says what every pool is asked for: what dispatch would hand out now with unlimited runners, and what it
// blocks, each job under one reason (SCALE-2). The answer is sorted, and depends on no order of what is given (SCALE-4).
func Demand(pools []Pool, sets []LabelSet, b Backlog, mints map[int64]int64) []runnerapi.PoolSignals {
	return Assess(pools, sets, b, mints).Pools
}

// Assess is Demand, by pool and by lane. mints bounds how many registrations GitHub may be asked for now, by account; an
// account that is not in it has no such bound.
func Assess(pools []Pool, sets []LabelSet, b Backlog, mints map[int64]int64) Assessment {
	to := destinations(pools, sets)
	counts := make(map[PoolRef]*tally, len(pools))
	for _, pool := range pools {
		counts[pool.Ref()] = &tally{}
	}
	out := Assessment{Lanes: map[LaneRef]LaneDemand{}}
	var all []*wish
	accounts := map[int64][]*wish{}
	for _, lane := range b.Lanes {
		dest, served := to[lane.LabelKey]
		if !served || lane.Jobs+lane.Blocked == 0 {
			continue
		}
		w := &wish{lane: lane, pool: dest.pool, into: counts[dest.pool.Ref()], demand: LaneDemand{Platform: dest.pool.Platform}}
		all = append(all, w)
		switch refused := b.Refused[AccountOfPool{dest.pool.Ref(), lane.Account.ID}]; {
		case dest.conflict:
			w.blockAll(runnerapi.BlockedConflict)
		case dest.pool.Paused:
			w.blockAll(runnerapi.BlockedPaused)
		case lane.Suspended:
			w.blockAll(runnerapi.BlockedSuspended)
		case refused != "":
			w.blockAll(refused)
		default:
			accounts[lane.Account.ID] = append(accounts[lane.Account.ID], w)
		}
	}
	for id, wishes := range accounts {
		bound, bounded := mints[id]
		if !bounded {
			bound = math.MaxInt64
		}
		fund(wishes, b, bound)
	}
	for _, w := range all {
		out.Lanes[LaneRef{w.lane.LabelKey, w.lane.Account.ID}] = w.demand
	}
	out.Pools = make([]runnerapi.PoolSignals, 0, len(pools))
	for _, pool := range pools {
		out.Pools = append(out.Pools, counts[pool.Ref()].signals(pool, b.Runners[pool.Ref()]))
	}
	slices.SortFunc(out.Pools, func(a, b runnerapi.PoolSignals) int {
		return compareRefs(PoolRef{a.Namespace, a.Name}, PoolRef{b.Namespace, b.Name})
	})
	return out
}

// wish is one lane of an account and the pool that serves it.
type wish struct {
	lane   WaitingLane
	pool   Pool
	into   *tally
	demand LaneDemand
}

// seat is one job that would have a runner if its account had room for no other.
type seat struct {
	wish       int
	n          int64 // its place in its lane
	age        JobAge
	repository string // where the account has a cap per repository
}

// fund spends the room of one account on the jobs of all its lanes, in any pools, oldest first: an account with
// room for one job asks for one runner, not for one a pool (CLAIM-5).
func fund(wishes []*wish, b Backlog, mints int64) {
	var seats []seat
	for i, w := range wishes {
		budget := Budget{w.lane.Account.ID, w.pool.Platform}
		room := b.Limits[budget].Room(b.Usage[budget], w.pool.Shape)
		n := min(w.lane.Jobs, room)
		if room > 0 && b.Limits[budget].JobsPerRepository > 0 {
			n = min(w.lane.Jobs, int64(len(w.lane.Oldest)))
		}
		for n := range n {
			seats = append(seats, seat{i, n, w.lane.age(n), w.lane.repository(n)})
		}
	}
	slices.SortStableFunc(seats, func(x, y seat) int { return compareAges(x.age, y.age) })
	used := map[fleet.Platform]fleet.Usage{}
	funded, crowded := make([]int64, len(wishes)), make([]int64, len(wishes))
	running := maps.Clone(b.Repositories)
	for _, s := range seats {
		w := wishes[s.wish]
		budget := Budget{w.lane.Account.ID, w.pool.Platform}
		usage, seen := used[w.pool.Platform]
		if !seen {
			usage = b.Usage[budget]
		}
		if b.Limits[budget].Room(usage, w.pool.Shape) == 0 {
			continue // SCALE-2: older jobs took the room
		}
		if most := b.Limits[budget].JobsPerRepository; most > 0 {
			repository := RepositoryBudget{budget, s.repository}
			if running[repository] >= most {
				crowded[s.wish]++ // SCALE-2: so did older jobs of its repository
				w.crowd(s.age)
				continue
			}
			if running == nil {
				running = map[RepositoryBudget]int64{}
			}
			running[repository]++
		}
		used[w.pool.Platform] = fleet.Usage{
			MilliCPU: usage.MilliCPU + w.pool.Shape.MilliCPU, MemoryMB: usage.MemoryMB + w.pool.Shape.MemoryMB, Jobs: usage.Jobs + 1,
		}
		funded[s.wish]++
		if mints == 0 {
			w.block(runnerapi.BlockedBackoff, 1) // CLAIM-11
			continue
		}
		mints--
		w.queue(s.n)
	}
	for i, w := range wishes {
		if crowded[i] > 0 && funded[i] == 0 && mints > 0 && w.lane.Jobs > int64(len(w.lane.Oldest)) {
			// Jobs of other repositories may stand behind all those that were read: a poll finds out, and sets aside what
			// is in its way, so one has to be asked for.
			budget := Budget{w.lane.Account.ID, w.pool.Platform}
			if usage, seen := used[w.pool.Platform]; !seen && b.Limits[budget].Room(b.Usage[budget], w.pool.Shape) > 0 ||
				seen && b.Limits[budget].Room(usage, w.pool.Shape) > 0 {
				funded[i]++
				mints--
				w.queue(w.lane.Jobs)
			}
		}
		w.block(runnerapi.BlockedLimit, w.lane.Jobs-funded[i]-crowded[i])
		w.block(runnerapi.BlockedRefused, w.lane.Refused)
		w.block(runnerapi.BlockedRepository, w.lane.Blocked-w.lane.Refused+crowded[i])
		w.bound(w.lane.Jobs - w.demand.Queued - crowded[i])
	}
}

// age of the lane's n-th oldest job. Of an account with one lane only the first was read: its jobs compete with no
// others.
func (l WaitingLane) age(n int64) JobAge {
	if len(l.Oldest) == 0 {
		return JobAge{}
	}
	return l.Oldest[min(n, int64(len(l.Oldest)-1))]
}

func (l WaitingLane) repository(n int64) string {
	if n < int64(len(l.Repositories)) {
		return l.Repositories[n]
	}
	return ""
}

// tally adds up what one pool is asked for.
type tally struct {
	queued  int
	oldest  *time.Time
	blocked map[runnerapi.BlockedReason]int
}

func (t *tally) queue(job JobAge) {
	t.queued++
	if t.oldest == nil || job.QueuedAt.Before(*t.oldest) {
		t.oldest = &job.QueuedAt
	}
}

func (t *tally) block(reason runnerapi.BlockedReason, jobs int64) {
	if jobs == 0 {
		return
	}
	if t.blocked == nil {
		t.blocked = map[runnerapi.BlockedReason]int{}
	}
	t.blocked[reason] += int(jobs)
}

func (t *tally) signals(pool Pool, in Runners) runnerapi.PoolSignals {
	return runnerapi.PoolSignals{
		Namespace: pool.Namespace, Name: pool.Name, Occupied: int(in.Occupied), Claimed: int(in.Claimed),
		Queued: t.queued, OldestQueued: t.oldest, Blocked: t.blocked,
	}
}
