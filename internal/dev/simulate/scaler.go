package simulate

import (
	"math"
	"time"

	"github.com/bullpen-ci/bullpen/api/runnerapi"
	"github.com/bullpen-ci/bullpen/internal/plan/poolspec"
	"github.com/bullpen-ci/bullpen/internal/plan/scaling"
	"github.com/bullpen-ci/bullpen/internal/server/dispatch"
)

// How often the autoscaler passes, and how old what it knows of the last hour may be: as in a fleet.
const (
	passEvery   = 2 * time.Second
	peaksKept   = 30 * time.Second
	peakMinutes = 60
)

// scaler is the autoscaler: what it remembers between two passes.
type scaler struct {
	states map[string]scaling.State
	at     time.Time // of the last signals
	peaks  map[dispatch.PoolRef]int
	peakAt time.Time
}

// start begins its passes, if any pool autoscales.
func (a *scaler) start(s *simulation) {
	a.states = map[string]scaling.State{}
	for _, p := range s.pools {
		if poolspec.Autoscales(p.object) {
			s.at(s.now, func() { a.pass(s) })
			return
		}
	}
}

// pass decides every pool's number, from signals as the server would give them.
func (a *scaler) pass(s *simulation) {
	in := scaling.Input{
		Now: s.now, Nodes: map[string]scaling.Room{"node": {MilliCPU: math.MaxInt64, Memory: math.MaxInt64, Pods: math.MaxInt64, VMs: math.MaxInt64}},
		Signals: scaling.Signals{At: s.now, Previous: a.at, Pools: map[string]scaling.Signal{}},
	}
	a.at = s.now
	for _, d := range a.demand(s) {
		blocked := 0
		for _, jobs := range d.Blocked {
			blocked += jobs
		}
		in.Signals.Pools[d.Name] = scaling.Signal{
			Occupied: d.Occupied, Claimed: d.Claimed, Queued: d.Queued, Blocked: blocked, P95: d.P95LastHour,
		}
	}
	for _, p := range s.pools {
		one := poolspec.Scaling(p.object, p.dispatch.Name)
		one.State, one.Nodes = a.states[one.Name], []string{"node"}
		one.Runner = scaling.Room{MilliCPU: p.dispatch.Shape.MilliCPU, Memory: p.dispatch.Shape.MemoryMB << 20, Pods: 1}
		in.Pools = append(in.Pools, one)
	}
	decided := map[string]scaling.Result{}
	for _, r := range scaling.Plan(in) {
		decided[r.Name] = r
		a.states[r.Name] = r.State
	}
	for _, p := range s.pools {
		r := decided[p.dispatch.Name]
		if !poolspec.Autoscales(p.object) || !r.State.Decided {
			continue
		}
		if p.desired == nil || *p.desired != r.Desired {
			p.desired, p.plan = &r.Desired, true
		}
	}
	s.after(passEvery, func() { a.pass(s) })
}

// demand is what the server says of every pool.
func (a *scaler) demand(s *simulation) []runnerapi.PoolSignals {
	if a.peakAt.IsZero() || s.now.Sub(a.peakAt) >= peaksKept {
		a.peakAt = s.now
		var changes []dispatch.SessionChange
		for _, p := range s.pools {
			changes = append(changes, p.sessionChanges(s.now.Add(-(peakMinutes-1)*time.Minute), peakMinutes)...)
		}
		a.peaks = dispatch.Peaks(changes, peakMinutes)
	}
	runners := map[dispatch.PoolRef]dispatch.Runners{}
	for _, p := range s.pools {
		// A claim is live until its job ends, and so is its session: the pod is deleted with the job.
		runners[p.dispatch.Ref()] = dispatch.Runners{Occupied: int64(p.busy), Claimed: int64(p.busy)}
	}
	pools := s.dispatchPools()
	backlog := s.ledger.backlog(pools, runners)
	mints := map[int64]int64{}
	for _, lane := range backlog.Lanes {
		if n, bounded := s.mints.Mintable(lane.Account); bounded {
			mints[lane.Account.ID] = n
		}
	}
	signals := dispatch.Demand(pools, s.ledger.sets, backlog, mints)
	for i := range signals {
		signals[i].P95LastHour = a.peaks[dispatch.PoolRef{Namespace: signals[i].Namespace, Name: signals[i].Name}]
	}
	return signals
}

// sessionChanges is the query of that name: by how much the number of open sessions changes in each of the minutes.
func (p *pool) sessionChanges(from time.Time, minutes int) []dispatch.SessionChange {
	var changes []dispatch.SessionChange
	kept := p.sessions[:0]
	for _, member := range p.sessions {
		if !member.ended.IsZero() && !member.ended.After(from) {
			continue
		}
		kept = append(kept, member)
		first, past := max(0, minuteAfter(member.session, from)), minutes
		if !member.ended.IsZero() {
			past = min(minutes, minuteAfter(member.ended, from))
		}
		if first < past {
			changes = append(changes, dispatch.SessionChange{Pool: p.dispatch.Ref(), Minute: first, By: 1},
				dispatch.SessionChange{Pool: p.dispatch.Ref(), Minute: past, By: -1})
		}
	}
	clear(p.sessions[len(kept):])
	p.sessions = kept
	return changes
}

// minuteAfter is the first whole minute since from that is not before t.
func minuteAfter(t, from time.Time) int { return int(math.Ceil(t.Sub(from).Minutes())) }
