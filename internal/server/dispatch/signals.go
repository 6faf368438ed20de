package dispatch

import (
	"context"
	"slices"
	"time"

	"github.com/bullpen-ci/bullpen/api/runnerapi"
)

// However many controllers ask however often, a replica reads the ledger this often.
const (
	signalsKept = time.Second
	peaksKept   = 30 * time.Second
)

// signalsTimeout bounds one reading.
const signalsTimeout = 8 * time.Second

// peakMinutes is how many moments, a minute apart, a pool's 95th percentile is taken of.
const peakMinutes = 60

// Signals says what every pool is asked for, in one answer: whole, or an error (POOL-8). It may be a second old, and
// what it says of the last hour half a minute. Answers share memory: they must not be changed.
func (d *Dispatcher) Signals(ctx context.Context) (runnerapi.Signals, error) {
	read, err := d.assessed(ctx)
	return read.signals, err
}

// Lanes says which of the queued jobs that a pool serves may start, from the same reading as Signals.
func (d *Dispatcher) Lanes(ctx context.Context) (map[LaneRef]LaneDemand, error) {
	read, err := d.assessed(ctx)
	return read.lanes, err
}

// assessed is one reading of the ledger: what the controllers get of it, and what clients see.
type assessed struct {
	signals runnerapi.Signals
	lanes   map[LaneRef]LaneDemand
}

func (d *Dispatcher) assessed(ctx context.Context) (assessed, error) {
	if err := d.notFrozen(); err != nil { // CLAIM-17, POOL-8: a ledger that lacks claims would have the fleet shrink, or grow
		return assessed{}, err
	}
	read, err := d.demand.get(ctx)
	if err == nil {
		err = d.notFrozen() // since it was read
	}
	if err != nil {
		return assessed{}, err
	}
	return read, nil
}

func (d *Dispatcher) readDemand(ctx context.Context) (assessed, error) {
	at := d.opt.Now()
	peaks, err := d.peaks.get(ctx)
	if err != nil {
		return assessed{}, err
	}
	demand, err := d.assess(ctx)
	if err != nil {
		return assessed{}, err
	}
	signals := runnerapi.Signals{At: at, Pools: demand.Pools}
	for i := range signals.Pools {
		p := &signals.Pools[i]
		p.P95LastHour = peaks[PoolRef{p.Namespace, p.Name}]
	}
	refusals, err := d.opt.Store.Refusals(ctx, mostRefusals)
	if err != nil {
		return assessed{}, err
	}
	for i, texts := 0, textsOf(refusals); i < len(signals.Pools); i++ {
		signals.Pools[i].Refused = texts[PoolRef{signals.Pools[i].Namespace, signals.Pools[i].Name}]
	}
	signals.Removals, err = d.removals(ctx, at)
	if err != nil {
		return assessed{}, err
	}
	return assessed{signals: signals, lanes: demand.Lanes}, nil
}

// assess reads what is queued for the pools, and what the accounts may still use.
func (d *Dispatcher) assess(ctx context.Context) (Assessment, error) {
	routing, err := d.routingNow(ctx) // TEN-1: of what no pool serves nothing is asked here
	if err != nil {
		return Assessment{}, err
	}
	pools, sets := d.opt.Cluster.Pools(), routing.sets()
	keys := []string{}
	for key := range destinations(pools, sets) {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	mints := map[int64]int64{}
	backlog, err := d.opt.Store.Backlog(ctx, keys, func(b Backlog) []Look {
		for _, lane := range b.Lanes {
			if n, bounded := d.mintSlots.mintable(lane.Account); bounded {
				mints[lane.Account.ID] = n
			}
		}
		return withinMints(Looks(pools, sets, b), b.Lanes, mints)
	})
	if err != nil {
		return Assessment{}, err
	}
	backlog.Refused = d.pools.all(pools)
	return Assess(pools, sets, backlog, mints), nil
}

// A runner whose work is over exits on its own: its pod is reported only when it is still there after removalGrace. With
// the grace period that the controller gives it then it is gone within two minutes (TEN-5).
const (
	removalGrace = 30 * time.Second
	maxRemovals  = 1000
)

// ProvenEnd is a pod whose work is over, and how that is known.
type ProvenEnd struct {
	Pod   Pod
	Proof string
}

// removals lists the pods that should have exited and that the watch still shows, the oldest ends first.
func (d *Dispatcher) removals(ctx context.Context, now time.Time) ([]runnerapi.Removal, error) {
	ends, err := d.opt.Store.ProvenEnds(ctx, now.Add(-removalGrace))
	if err != nil {
		return nil, err
	}
	var out []runnerapi.Removal
	for _, end := range ends {
		pod, alive := d.opt.Cluster.Pod(end.Pod.UID)
		if !alive || len(out) == maxRemovals { // one that is being deleted may have a grace period of hours
			continue
		}
		out = append(out, runnerapi.Removal{Proof: end.Proof, Pod: runnerapi.PodRef{
			Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID, Pool: pod.Pool.Name,
		}})
	}
	return out, nil
}

func (d *Dispatcher) readPeaks(ctx context.Context) (map[PoolRef]int, error) {
	since := d.opt.Now().Add(-(peakMinutes - 1) * time.Minute)
	changes, err := d.opt.Store.SessionChanges(ctx, since, peakMinutes)
	if err != nil {
		return nil, err
	}
	return Peaks(changes, peakMinutes), nil
}

// SessionChange reports that in one minute the number of a pool's open sessions changed.
type SessionChange struct {
	Pool   PoolRef
	Minute int // from 0; changes at later minutes than are asked for are ignored
	By     int
}

// Peaks is each pool's 95th percentile of open sessions over the minutes: the smallest number that at least 95 in 100 of them do not
// exceed.
func Peaks(changes []SessionChange, minutes int) map[PoolRef]int {
	open := map[PoolRef][]int{}
	for _, c := range changes {
		if c.Minute < 0 || c.Minute >= minutes {
			continue
		}
		if open[c.Pool] == nil {
			open[c.Pool] = make([]int, minutes)
		}
		open[c.Pool][c.Minute] += c.By
	}
	peaks := make(map[PoolRef]int, len(open))
	for pool, counts := range open {
		for i := 1; i < minutes; i++ {
			counts[i] += counts[i-1]
		}
		slices.Sort(counts)
		peaks[pool] = counts[(minutes*95+99)/100-1]
	}
	return peaks
}
