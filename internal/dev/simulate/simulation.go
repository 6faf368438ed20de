package simulate

import (
	"cmp"
	"container/heap"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/bullpen-ci/bullpen/internal/fleet"
	"github.com/bullpen-ci/bullpen/internal/server/dispatch"
)

// Options are the same for all policies that are compared.
type Options struct {
	Seed uint64
	// Boot is from a pod's creation until it can take a job, Mint from a claim to its registration at GitHub, Connect from
	// there to the job's first step.
	Boot, Mint, Connect Distribution
	// MintsPerMinute is GitHub's limit to one App; 0: none.
	MintsPerMinute int
	// WarmUp is how long before the first job the pools begin; it costs nothing.
	WarmUp time.Duration
	// Drain is how long after the last arrival a run continues at most; it ends when the last job has.
	Drain time.Duration
	// For, unless 0, is how long after the first job a run ends, even with jobs waiting or running.
	For time.Duration
	// SLO is the longest wait that is not counted as too long.
	SLO time.Duration
	// Price of one runner for an hour, in any currency.
	Price float64
	// Sample, unless nil, gets the state every SampleEvery from the first job on.
	Sample      func(Sample)
	SampleEvery time.Duration
}

// Sample is what there is of one pool at one moment.
type Sample struct {
	Policy, Pool                         string
	After                                time.Duration // since the first job
	Queued, Busy, Idle, Starting, Wanted int
}

// Run plays the trace against one policy. The result has each job's wait, in the order of the trace.
func Run(trace Trace, policy Policy, o Options) (Result, error) {
	s, err := newSimulation(trace, policy, o)
	if err != nil {
		return Result{}, err
	}
	s.play()
	return s.result(), nil
}

// event is something that happens at a moment; those of one moment happen in the order in which they were made.
type event struct {
	at  time.Time
	seq int
	do  func()
}

type events []event

func (e events) Len() int { return len(e) }
func (e events) Less(i, j int) bool {
	return cmp.Or(e[i].at.Compare(e[j].at), cmp.Compare(e[i].seq, e[j].seq)) < 0
}
func (e events) Swap(i, j int) { e[i], e[j] = e[j], e[i] }

// Push is heap's.
func (e *events) Push(x any) { *e = append(*e, x.(event)) } //nolint:forcetypeassert // only at pushes

// Pop is heap's.
func (e *events) Pop() any {
	last := (*e)[len(*e)-1]
	*e = (*e)[:len(*e)-1]
	return last
}

type simulation struct {
	o      Options
	policy Policy
	random *rand.Rand

	now, first, last time.Time // of the clock, of the first job, of the last arrival
	events           events
	seq              int

	pools  []*pool
	byRef  map[dispatch.PoolRef]*pool
	routes map[string]*pool // the pool that serves a label set; nil for none
	ledger *ledger
	mints  *dispatch.MintLimiter
	github window

	jobs  []*job
	ended int

	scaler scaler
}

// job is one of the trace, and what became of it.
type job struct {
	Job
	queued           dispatch.QueuedJob
	started, done    bool
	startedAt, endAt time.Time
}

// window is GitHub's limit, counted by whole minutes from the first registration in one.
type window struct {
	most, used int
	reset      time.Time
}

func (w *window) left(now time.Time) int {
	if !now.Before(w.reset) {
		return w.most
	}
	return w.most - w.used
}

func (w *window) take(now time.Time) {
	if !now.Before(w.reset) {
		w.used, w.reset = 0, now.Add(time.Minute)
	}
	w.used++
}

func newSimulation(trace Trace, policy Policy, o Options) (*simulation, error) {
	if len(trace) == 0 {
		return nil, fmt.Errorf("the trace has no job")
	}
	s := &simulation{
		o: o, policy: policy, random: rand.New(rand.NewPCG(o.Seed, 0x62756c6c70656e)), //nolint:gosec // it must be reproducible
		byRef: map[dispatch.PoolRef]*pool{}, ledger: newLedger(), github: window{most: o.MintsPerMinute},
	}
	s.first, s.last = trace[0].QueuedAt, trace[len(trace)-1].QueuedAt
	s.now = s.first.Add(-o.WarmUp)
	s.mints = dispatch.NewMintLimiter(func() time.Time { return s.now }, func(int64) (fleet.RateState, bool) {
		return fleet.RateState{Limit: s.github.most, Remaining: s.github.left(s.now), Reset: s.github.reset},
			s.github.most > 0 && s.now.Before(s.github.reset)
	}, 0)
	for _, spec := range policy.Pools {
		p := newPool(s, spec)
		s.pools = append(s.pools, p)
		s.byRef[p.dispatch.Ref()] = p
	}
	if err := s.enroll(trace); err != nil {
		return nil, err
	}
	return s, nil
}

// enroll makes accounts, jobs and routes of the trace.
func (s *simulation) enroll(trace Trace) error {
	ids := map[string]int64{}
	var sets []dispatch.LabelSet
	known := map[string]bool{}
	for i, j := range trace {
		login := strings.ToLower(j.Account)
		if ids[login] == 0 {
			ids[login] = int64(len(ids) + 1)
			s.ledger.admit(dispatch.Account{ID: ids[login], Login: j.Account, InstallationID: ids[login]}, s.policy.limitsOf(j.Account))
		}
		if j.Pool != "" {
			at := slices.IndexFunc(s.policy.Pools, func(p PoolPolicy) bool { return p.Name == j.Pool })
			if at < 0 {
				return fmt.Errorf("the trace's job %d names the pool %q, which policy %q has not", i+1, j.Pool, s.policy.Name)
			}
			j.Labels = s.policy.Pools[at].Spec.Labels[:1]
		}
		key := dispatch.LabelKey(j.Labels)
		if !known[key] {
			known[key] = true
			sets = append(sets, dispatch.LabelSet{Key: key, Labels: j.Labels})
		}
		s.jobs = append(s.jobs, &job{Job: j, queued: dispatch.QueuedJob{
			ID: int64(i + 1), AccountID: ids[login], LabelKey: key, QueuedAt: j.QueuedAt, Repository: j.Repository,
		}})
	}
	s.route(sets)
	return nil
}

// route sends label sets to pools as matchers do.
func (s *simulation) route(sets []dispatch.LabelSet) {
	s.routes = map[string]*pool{}
	for ref, keys := range dispatch.Route(s.dispatchPools(), sets).Served {
		s.byRef[ref].keys = keys
		for _, key := range keys {
			s.routes[key] = s.byRef[ref]
		}
	}
}

func (s *simulation) dispatchPools() []dispatch.Pool {
	pools := make([]dispatch.Pool, len(s.pools))
	for i, p := range s.pools {
		pools[i] = p.dispatch
	}
	return pools
}

// after has something happen later.
func (s *simulation) after(d time.Duration, do func()) { s.at(s.now.Add(d), do) }

func (s *simulation) at(t time.Time, do func()) {
	s.seq++
	heap.Push(&s.events, event{t, s.seq, do})
}

// play runs the clock until every job has ended, or patience ends.
func (s *simulation) play() {
	end := s.last.Add(s.o.Drain)
	if s.o.For > 0 {
		end = s.first.Add(s.o.For)
	}
	for _, j := range s.jobs {
		s.at(j.QueuedAt, func() { s.arrive(j) })
	}
	s.scaler.start(s)
	if s.o.Sample != nil {
		s.at(s.first, s.sample)
	}
	s.settle()
	for s.events.Len() > 0 && (s.o.For > 0 || s.ended < len(s.jobs)) {
		if s.events[0].at.After(end) {
			s.now = end
			return
		}
		s.now = s.events[0].at
		for s.events.Len() > 0 && s.events[0].at.Equal(s.now) {
			heap.Pop(&s.events).(event).do() //nolint:forcetypeassert // only at pushes
		}
		s.settle()
	}
	if s.o.For > 0 || s.ended < len(s.jobs) {
		s.now = end // nothing more happens until then
	}
}

func (s *simulation) arrive(j *job) {
	s.ledger.add(j.queued, j.Labels)
	if p := s.routes[j.queued.LabelKey]; p != nil {
		p.match = true
	}
}

// settle lets every pool do what it would do now, until none has anything left to do.
func (s *simulation) settle() {
	for again := true; again; {
		again = false
		for _, p := range s.pools {
			if p.plan {
				p.plan, again = false, true
				p.reconcile()
			}
			if p.match {
				p.match, again = false, true
				p.dispatchJobs()
			}
		}
	}
}

// matchAll has every pool look for jobs again: an account has room, or GitHub has.
func (s *simulation) matchAll() {
	for _, p := range s.pools {
		p.match = true
	}
}

// run takes a claim to its end: a registration, the job, and the pod's end.
func (s *simulation) run(p *pool, member *pod, j *job) {
	s.github.take(s.now)
	account := j.queued.AccountID
	mint, connect := s.o.Mint.Draw(s.random), s.o.Connect.Draw(s.random)
	s.after(mint, func() {
		member.session = s.now
		p.sessions = append(p.sessions, member)
		s.mints.Release(account, 1)
		s.matchAll()
	})
	j.started, j.startedAt = true, s.now.Add(mint+connect)
	s.at(j.startedAt.Add(j.Duration), func() {
		j.done, j.endAt = true, s.now
		s.ended++
		s.ledger.end(j.queued, p.dispatch)
		p.finish(member)
		s.matchAll()
	})
}

// reserve is the replica's rule, and never more than GitHub would answer: what goes past its limit would be refused, and the
// job queued again, which is not played.
func (s *simulation) reserve(pending *int) func(dispatch.Account, int) int {
	return func(account dispatch.Account, want int) int {
		if s.github.most > 0 {
			want = min(want, s.github.left(s.now)-*pending)
		}
		got := s.mints.Reserve(account, max(0, want))
		*pending += got
		return got
	}
}

func (s *simulation) sample() {
	queued := map[*pool]int{}
	for _, n := range s.ledger.lanes {
		queued[s.routes[n.key]] += len(n.queue) + len(n.blocked)
	}
	for _, p := range s.pools {
		c := p.counts()
		c.Policy, c.Pool, c.After, c.Queued = s.policy.Name, p.dispatch.Name, s.now.Sub(s.first), queued[p]
		s.o.Sample(c)
	}
	s.after(s.o.SampleEvery, s.sample)
}
