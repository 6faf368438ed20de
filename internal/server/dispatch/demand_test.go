package dispatch_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/bullpen-ci/bullpen/api/runnerapi"
	"github.com/bullpen-ci/bullpen/internal/fleet"
	"github.com/bullpen-ci/bullpen/internal/server/dispatch"
)

func setOf(labels ...string) dispatch.LabelSet {
	return dispatch.LabelSet{Key: dispatch.LabelKey(labels), Labels: labels}
}

// laneOf is a lane of the account whose jobs were queued at these seconds.
func laneOf(account int64, label string, queued ...int64) dispatch.WaitingLane {
	l := dispatch.WaitingLane{
		LabelKey: dispatch.LabelKey([]string{label}), Account: dispatch.Account{ID: account}, Jobs: int64(len(queued)),
	}
	for _, s := range queued {
		l.Oldest = append(l.Oldest, dispatch.JobAge{ID: s, QueuedAt: time.Unix(s, 0)})
	}
	return l
}

func linuxLimits(jobs, milliCPU int64, accounts ...int64) map[dispatch.Budget]fleet.Limits {
	limits := map[dispatch.Budget]fleet.Limits{}
	for _, account := range accounts {
		limits[dispatch.Budget{AccountID: account, Platform: fleet.Linux}] =
			fleet.Limits{Jobs: jobs, MilliCPU: milliCPU, MemoryMB: 1 << 30}
	}
	return limits
}

func TestDemand_SCALE2_Table(t *testing.T) {
	small, big := linuxPool("small"), linuxPool("big")
	big.Shape.MilliCPU = 4000
	mac := linuxPool("mac")
	mac.Platform = fleet.MacOS
	type blocked = map[runnerapi.BlockedReason]int
	type want struct {
		queued  int
		blocked blocked
		oldest  int64
	}
	terminating := linuxPool("small-old", "small")
	terminating.Terminating = true
	suspended := laneOf(1, "small", 1, 2)
	suspended.Suspended = true
	cases := map[string]struct {
		pools   []dispatch.Pool
		backlog dispatch.Backlog
		mints   map[int64]int64
		want    map[string]want
	}{
		"room for some": {
			pools:   []dispatch.Pool{small},
			backlog: dispatch.Backlog{Lanes: []dispatch.WaitingLane{laneOf(1, "small", 5, 6, 7)}, Limits: linuxLimits(2, 99_000, 1)},
			want:    map[string]want{"small": {2, blocked{runnerapi.BlockedLimit: 1}, 5}},
		},
		"one account with room for one asks for one, in the pool of its oldest job": {
			pools: []dispatch.Pool{small, big},
			backlog: dispatch.Backlog{
				Lanes:  []dispatch.WaitingLane{laneOf(1, "small", 2, 4), laneOf(1, "big", 1, 3)},
				Limits: linuxLimits(1, 99_000, 1),
			},
			want: map[string]want{
				"small": {0, blocked{runnerapi.BlockedLimit: 2}, 0}, "big": {1, blocked{runnerapi.BlockedLimit: 1}, 1},
			},
		},
		"what is too large for what is left lets smaller ones pass": {
			pools: []dispatch.Pool{small, big},
			backlog: dispatch.Backlog{
				Lanes:  []dispatch.WaitingLane{laneOf(1, "big", 1, 2), laneOf(1, "small", 3, 4, 5)},
				Limits: linuxLimits(99, 6000, 1),
			},
			want: map[string]want{
				"big": {1, blocked{runnerapi.BlockedLimit: 1}, 1}, "small": {2, blocked{runnerapi.BlockedLimit: 1}, 3},
			},
		},
		"what is used is not there any more": {
			pools: []dispatch.Pool{small},
			backlog: dispatch.Backlog{
				Lanes: []dispatch.WaitingLane{laneOf(1, "small", 1, 2)}, Limits: linuxLimits(3, 99_000, 1),
				Usage: map[dispatch.Budget]fleet.Usage{{AccountID: 1, Platform: fleet.Linux}: {Jobs: 2}},
			},
			want: map[string]want{"small": {1, blocked{runnerapi.BlockedLimit: 1}, 1}},
		},
		"accounts share nothing, and platforms share nothing": {
			pools: []dispatch.Pool{small, mac},
			backlog: dispatch.Backlog{
				Lanes: []dispatch.WaitingLane{laneOf(1, "small", 1), laneOf(1, "mac", 2), laneOf(2, "small", 3)},
				Limits: map[dispatch.Budget]fleet.Limits{
					{AccountID: 1, Platform: fleet.Linux}: {Jobs: 1, MilliCPU: 1000, MemoryMB: 1024},
					{AccountID: 1, Platform: fleet.MacOS}: {Jobs: 1, MilliCPU: 1000, MemoryMB: 1024},
					{AccountID: 2, Platform: fleet.Linux}: {Jobs: 1, MilliCPU: 1000, MemoryMB: 1024},
				},
			},
			want: map[string]want{"small": {2, nil, 1}, "mac": {1, nil, 2}},
		},
		"an account without limits may use nothing": {
			pools:   []dispatch.Pool{small},
			backlog: dispatch.Backlog{Lanes: []dispatch.WaitingLane{laneOf(1, "small", 1)}},
			want:    map[string]want{"small": {0, blocked{runnerapi.BlockedLimit: 1}, 0}},
		},
		"suspended": {
			pools:   []dispatch.Pool{small},
			backlog: dispatch.Backlog{Lanes: []dispatch.WaitingLane{suspended}, Limits: linuxLimits(9, 99_000, 1)},
			want:    map[string]want{"small": {0, blocked{runnerapi.BlockedSuspended: 2}, 0}},
		},
		"GitHub may be asked once, and what has no room is not blocked for GitHub": {
			pools:   []dispatch.Pool{small},
			backlog: dispatch.Backlog{Lanes: []dispatch.WaitingLane{laneOf(1, "small", 1, 2, 3, 4)}, Limits: linuxLimits(3, 99_000, 1)},
			mints:   map[int64]int64{1: 1, 2: 0},
			want: map[string]want{
				"small": {1, blocked{runnerapi.BlockedBackoff: 2, runnerapi.BlockedLimit: 1}, 1},
			},
		},
		"a conflict is counted once, at the first of the pools": {
			pools: []dispatch.Pool{linuxPool("b", "small"), linuxPool("a", "small")},
			backlog: dispatch.Backlog{
				Lanes: []dispatch.WaitingLane{laneOf(1, "small", 1), suspended}, Limits: linuxLimits(9, 99_000, 1),
			},
			want: map[string]want{"a": {0, blocked{runnerapi.BlockedConflict: 3}, 0}, "b": {}},
		},
		"a terminating pool does not count, and is asked for nothing": {
			pools:   []dispatch.Pool{terminating, small},
			backlog: dispatch.Backlog{Lanes: []dispatch.WaitingLane{laneOf(1, "small", 1)}, Limits: linuxLimits(9, 99_000, 1)},
			want:    map[string]want{"small": {1, nil, 1}, "small-old": {}},
		},
		"a paused pool blocks its jobs, and keeps its label": {
			pools:   []dispatch.Pool{pausedPool("small"), mac},
			backlog: dispatch.Backlog{Lanes: []dispatch.WaitingLane{laneOf(1, "small", 1, 2)}, Limits: linuxLimits(9, 99_000, 1)},
			want:    map[string]want{"small": {0, blocked{runnerapi.BlockedPaused: 2}, 0}, "mac": {}},
		},
		"nobody serves it": {
			pools:   []dispatch.Pool{mac},
			backlog: dispatch.Backlog{Lanes: []dispatch.WaitingLane{laneOf(1, "small", 1)}, Limits: linuxLimits(9, 99_000, 1)},
			want:    map[string]want{"mac": {}},
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			got := map[string]want{}
			for _, p := range dispatch.Demand(c.pools, []dispatch.LabelSet{setOf("small"), setOf("big"), setOf("mac")}, c.backlog, c.mints) {
				w := want{queued: p.Queued, blocked: p.Blocked}
				if p.OldestQueued != nil {
					w.oldest = p.OldestQueued.Unix()
				}
				got[p.Name] = w
			}
			require.Equal(t, c.want, got)
		})
	}
}

// fleetOf draws pools, label sets and a backlog of few accounts with tight budgets: everything collides.
type drawn struct {
	pools   []dispatch.Pool
	sets    []dispatch.LabelSet
	backlog dispatch.Backlog
	mints   map[int64]int64
}

func draw(t *rapid.T) drawn {
	d := drawn{mints: map[int64]int64{}, backlog: dispatch.Backlog{
		Limits: map[dispatch.Budget]fleet.Limits{}, Usage: map[dispatch.Budget]fleet.Usage{}, Runners: map[dispatch.PoolRef]dispatch.Runners{},
	}}
	n := func(name string, most int64) int64 { return rapid.Int64Range(0, most).Draw(t, name) }
	labels := []string{"l0", "l1", "l2", "l3"}
	for _, l := range labels {
		d.sets = append(d.sets, setOf(l))
	}
	for i := range 1 + n("pools", 4) {
		p := linuxPool(fmt.Sprintf("p%d", i), rapid.SampledFrom(labels).Draw(t, "label"))
		p.Shape = fleet.Shape{MilliCPU: 1000 * (1 + n("cpu", 3)), MemoryMB: 1024 * n("memory", 3)}
		p.Terminating = n("terminating", 5) == 0
		p.Platform = rapid.SampledFrom([]fleet.Platform{fleet.Linux, fleet.MacOS}).Draw(t, "platform")
		d.pools = append(d.pools, p)
	}
	next := int64(0)
	for account := int64(1); account <= 1+n("accounts", 2); account++ {
		for _, platform := range []fleet.Platform{fleet.Linux, fleet.MacOS} {
			b := dispatch.Budget{AccountID: account, Platform: platform}
			d.backlog.Limits[b] = fleet.Limits{
				Jobs: n("jobs", 8), MilliCPU: 1000 * n("limit cpu", 12), MemoryMB: 1024 * n("limit memory", 12),
				JobsPerRepository: max(0, n("per repository", 5)-2),
			}
			d.backlog.Usage[b] = fleet.Usage{Jobs: n("used", 3), MilliCPU: 1000 * n("used cpu", 3), MemoryMB: 1024 * n("used memory", 3)}
		}
		if n("bounded", 3) == 0 {
			d.mints[account] = n("mints", 3)
		}
		suspended := n("suspended", 5) == 0
		for _, label := range labels {
			lane := laneOf(account, label)
			lane.Suspended = suspended
			for range n("queued", 6) {
				next++
				at := time.Unix(n("at", 4), 0) // many at one moment
				lane.Oldest = append(lane.Oldest, dispatch.JobAge{ID: next, QueuedAt: at})
				lane.Repositories = append(lane.Repositories, fmt.Sprintf("a/%d", n("repository", 2)))
			}
			slices.SortStableFunc(lane.Oldest, func(a, b dispatch.JobAge) int { return a.QueuedAt.Compare(b.QueuedAt) })
			lane.Jobs = int64(len(lane.Oldest))
			d.backlog.Lanes = append(d.backlog.Lanes, lane)
		}
	}
	return d
}

// SCALE-2: no pool is asked for more than the accounts have room for, and no job is counted twice.
func TestDemand_SCALE2_NeverMoreThanThereIsRoomFor(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := draw(t)
		served := map[string][]dispatch.Pool{}
		for _, p := range d.pools {
			if !p.Terminating {
				served[dispatch.LabelKey(p.Labels)] = append(served[dispatch.LabelKey(p.Labels)], p)
			}
		}
		for account := int64(1); account <= 3; account++ { // one account after the other, to see whose runners are asked for
			alone := d.backlog
			alone.Lanes = nil
			jobs := int64(0)
			for _, lane := range d.backlog.Lanes {
				if lane.Account.ID == account {
					alone.Lanes = append(alone.Lanes, lane)
					if len(served[lane.LabelKey]) > 0 {
						jobs += lane.Jobs
					}
				}
			}
			asked := map[fleet.Platform]fleet.Usage{}
			counted, queued := int64(0), int64(0)
			for _, p := range dispatch.Demand(d.pools, d.sets, alone, d.mints) {
				pool := d.pools[slices.IndexFunc(d.pools, func(q dispatch.Pool) bool { return q.Name == p.Name })]
				u := asked[pool.Platform]
				asked[pool.Platform] = fleet.Usage{
					Jobs: u.Jobs + int64(p.Queued), MilliCPU: u.MilliCPU + int64(p.Queued)*pool.Shape.MilliCPU,
					MemoryMB: u.MemoryMB + int64(p.Queued)*pool.Shape.MemoryMB,
				}
				queued += int64(p.Queued)
				for _, n := range p.Blocked {
					counted += int64(n)
				}
			}
			require.Equal(t, jobs, counted+queued, "each job that a pool serves counts once")
			if bound, bounded := d.mints[account]; bounded {
				require.LessOrEqual(t, queued, bound)
			}
			for platform, u := range asked {
				b := dispatch.Budget{AccountID: account, Platform: platform}
				limits, used := d.backlog.Limits[b], d.backlog.Usage[b]
				if u.Jobs > 0 {
					require.LessOrEqual(t, used.Jobs+u.Jobs, limits.Jobs)
					require.LessOrEqual(t, used.MilliCPU+u.MilliCPU, limits.MilliCPU)
					if u.MemoryMB > 0 {
						require.LessOrEqual(t, used.MemoryMB+u.MemoryMB, limits.MemoryMB)
					}
				}
			}
		}
	})
}

// SCALE-4: the same backlog gives the same demand, in whatever order it is read.
func TestDemand_SCALE4_OrderDoesNotMatter(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := draw(t)
		want := dispatch.Demand(d.pools, d.sets, d.backlog, d.mints)
		r := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0)) //nolint:gosec // a test
		r.Shuffle(len(d.pools), func(i, j int) { d.pools[i], d.pools[j] = d.pools[j], d.pools[i] })
		r.Shuffle(len(d.sets), func(i, j int) { d.sets[i], d.sets[j] = d.sets[j], d.sets[i] })
		lanes := d.backlog.Lanes
		r.Shuffle(len(lanes), func(i, j int) { lanes[i], lanes[j] = lanes[j], lanes[i] })
		require.Equal(t, want, dispatch.Demand(d.pools, d.sets, d.backlog, d.mints))
	})
}

// Every number of jobs and every list of jobs has one definition: of each lane, as many jobs are queued as its demand counts, and the pools' numbers
// are the sums of their lanes.
func TestAssess_JobsAreQueuedOrBlockedAsTheirPoolsCount(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := draw(t)
		seen := d.backlog
		seen.Lanes = slices.Clone(seen.Lanes)
		for i, look := range dispatch.Looks(d.pools, d.sets, d.backlog) {
			lane := &seen.Lanes[i]
			if n, bounded := d.mints[lane.Account.ID]; bounded {
				look.Last = min(look.Last, n)
			}
			if look.Last > 0 && look.Last <= int64(len(lane.Oldest)) {
				lane.Last = lane.Oldest[look.Last-1]
			}
			lane.Oldest = lane.Oldest[:min(int64(len(lane.Oldest)), look.Ages)]
			lane.Repositories = lane.Repositories[:len(lane.Oldest)]
		}
		got := dispatch.Assess(d.pools, d.sets, seen, d.mints)
		var queued, blocked, ofPools, reported int64
		for _, full := range d.backlog.Lanes {
			demand, served := got.Lanes[dispatch.LaneRef{LabelKey: full.LabelKey, AccountID: full.Account.ID}]
			if !served {
				continue
			}
			free := int64(0)
			for _, job := range full.Oldest {
				if demand.BlockedBy(job) == "" {
					free++
				}
			}
			if len(demand.Crowded) == 0 && int64(len(full.Oldest)) == full.Jobs { // behind jobs of crowded repositories, one is asked for that is not known
				require.Equal(t, demand.Queued, free, "%+v", demand)
			}
			queued += demand.Queued
			for _, jobs := range demand.Blocked {
				blocked += jobs
			}
		}
		for _, pool := range got.Pools {
			ofPools += int64(pool.Queued)
			for _, jobs := range pool.Blocked {
				reported += int64(jobs)
			}
		}
		require.Equal(t, []int64{ofPools, reported}, []int64{queued, blocked})
	})
}

// The bounds of Looks decide nothing: reading up to them gives the demand that reading all jobs gives, except for numbers of blocked jobs.
func TestLooks_SCALE2_FarEnough(t *testing.T) {
	pools, sets := []dispatch.Pool{linuxPool("small"), linuxPool("other")}, []dispatch.LabelSet{setOf("small"), setOf("other")}
	b := dispatch.Backlog{
		Lanes:  []dispatch.WaitingLane{laneOf(1, "small", 1, 2, 9), laneOf(1, "other", 3, 4, 5)},
		Limits: linuxLimits(3, 99_000, 1),
	}
	for i, look := range dispatch.Looks(pools, sets, b) {
		b.Lanes[i].Oldest = b.Lanes[i].Oldest[:look.Ages]
	}
	demand := dispatch.Demand(pools, sets, b, nil)
	require.Equal(t, []int{1, 2}, []int{demand[0].Queued, demand[1].Queued}, "other, small")
	rapid.Check(t, func(t *rapid.T) {
		d := draw(t)
		want := dispatch.Demand(d.pools, d.sets, d.backlog, d.mints)
		seen := d.backlog
		seen.Lanes = slices.Clone(seen.Lanes)
		for i, look := range dispatch.Looks(d.pools, d.sets, d.backlog) {
			lane := &seen.Lanes[i]
			lane.Jobs = min(lane.Jobs, look.Count)
			lane.Oldest = lane.Oldest[:min(int64(len(lane.Oldest)), look.Ages)]
			lane.Repositories = lane.Repositories[:len(lane.Oldest)]
			if !look.Repositories {
				lane.Repositories = nil
			}
		}
		require.Equal(t, want, dispatch.Demand(d.pools, d.sets, seen, d.mints))
	})
}

// The cost of a reading has a bound that no backlog moves: what could be handed out, and a share of what is counted for
// people to see.
func TestLooks_AreBounded(t *testing.T) {
	pools, sets := []dispatch.Pool{linuxPool("small")}, []dispatch.LabelSet{setOf("small"), setOf("other")}
	look := func(lanes, jobs int64) dispatch.Look {
		b := dispatch.Backlog{Limits: map[dispatch.Budget]fleet.Limits{}}
		for account := range lanes {
			b.Lanes = append(b.Lanes, laneOf(account, "small"))
			b.Limits[dispatch.Budget{AccountID: account, Platform: fleet.Linux}] = fleet.Limits{MilliCPU: 1 << 40, MemoryMB: 1 << 40, Jobs: jobs}
		}
		return dispatch.Looks(pools, sets, b)[0]
	}
	require.Equal(t, dispatch.Look{Count: 40 + 10_000, Ages: 1, Last: 40}, look(1, 40))
	require.Equal(t, dispatch.Look{Count: 40 + 10, Ages: 1, Last: 40}, look(1000, 40))
	require.Equal(t, dispatch.Look{Count: 5, Ages: 0}, look(10_000, 0))
	require.Equal(t, dispatch.Look{Count: 10_000 + 10_000, Ages: 1, Last: 10_000}, look(1, 1<<40))
	b := dispatch.Backlog{Lanes: []dispatch.WaitingLane{laneOf(1, "small"), laneOf(1, "other")}, Limits: linuxLimits(7, 99_000, 1)}
	require.Equal(t, []dispatch.Look{{Count: 7 + 5_000, Ages: 7}, {}}, dispatch.Looks(pools, sets, b))
}

func TestPeaks(t *testing.T) {
	p, q := dispatch.PoolRef{Name: "p"}, dispatch.PoolRef{Name: "q"}
	changes := []dispatch.SessionChange{
		{Pool: p, Minute: 0, By: 2}, {Pool: p, Minute: 10, By: 7}, {Pool: p, Minute: 13, By: -7}, // nine for three minutes: no peak
		{Pool: q, Minute: 50, By: 5}, {Pool: q, Minute: 54, By: -5}, {Pool: q, Minute: 60, By: 99}, // five for four minutes
	}
	require.Equal(t, map[dispatch.PoolRef]int{p: 2, q: 5}, dispatch.Peaks(changes, 60))
	slices.Reverse(changes)
	require.Equal(t, map[dispatch.PoolRef]int{p: 2, q: 5}, dispatch.Peaks(changes, 60))
	require.Empty(t, dispatch.Peaks(nil, 60))
}

func pausedPool(name string) dispatch.Pool {
	pool := linuxPool(name)
	pool.Paused = true
	return pool
}
