package simulate

import (
	"fmt"
	"slices"
	"time"

	"github.com/bullpen-ci/bullpen/api/v1alpha1"
	"github.com/bullpen-ci/bullpen/internal/plan/lifecycle"
	"github.com/bullpen-ci/bullpen/internal/plan/poolspec"
	"github.com/bullpen-ci/bullpen/internal/server/dispatch"
)

// namespace of the pools; a policy's file names none.
const namespace = "runners"

// templateHash of every runner: nothing is rolled here.
const templateHash = "simulated"

// pool is one RunnerPool with its runners.
type pool struct {
	s        *simulation
	object   *v1alpha1.RunnerPool
	dispatch dispatch.Pool
	keys     []string // of the label sets that it serves

	plan, match bool      // something may have changed for the planner, for the matcher
	looks       time.Time // when the planner runs next without an event

	runners *lifecycle.Set
	pods    map[string]*pod
	waiting []*pod // idle ones, the longest wait first
	desired *int   // the autoscaler's number
	seq     int

	sessions []*pod // since an hour ago, and open ones
	busy     int
	tally    poolTally
}

// pod is one runner: it takes one job, and is gone after it.
type pod struct {
	name          string
	created, idle time.Time
	session       time.Time // its registration; zero before
	ended         time.Time
	claimed       bool
	jobs          int
}

// poolTally adds up what a pool cost.
type poolTally struct {
	started    int
	alive, use time.Duration // of pods; with a claim
}

func newPool(s *simulation, spec PoolPolicy) *pool {
	object := &v1alpha1.RunnerPool{Spec: spec.Spec}
	object.Namespace, object.Name = namespace, spec.Name
	return &pool{
		s: s, object: object, dispatch: poolspec.Dispatch(object), plan: true,
		runners: lifecycle.NewSet(), pods: map[string]*pod{},
	}
}

// reconcile is one pass of the pool's controller: plan, fence, act. The fence grants what has no claim, at once.
func (p *pool) reconcile() {
	wish := poolspec.Wish(p.object, templateHash, p.desired, nil)
	plan := lifecycle.MakePlan(wish, p.runners, p.s.now)
	for _, action := range plan.Delete {
		p.remove(p.pods[action.Runner.Name])
	}
	for _, action := range plan.Ask {
		r := action.Runner
		if p.pods[r.Name].claimed {
			continue // EXCL-1: the first claim keeps it
		}
		r.Shown, r.ShownSince = r.Stage, r.Since
		r.Stage, r.Removal, r.Since, r.Why = lifecycle.StageTerminating, lifecycle.RemovalGranted, p.s.now, action.Reason
		p.runners.Put(r)
		p.leave(p.pods[r.Name])
		p.plan = true // granted runners are deleted in the next pass
	}
	for range plan.Create {
		p.create()
	}
	if !plan.Next.IsZero() && plan.Next.After(p.s.now) && (p.looks.IsZero() || !p.looks.After(p.s.now) || plan.Next.Before(p.looks)) {
		p.looks = plan.Next
		p.s.at(plan.Next, func() { p.plan = true })
	}
}

func (p *pool) create() {
	p.seq++
	name := fmt.Sprintf("%s-%06d", p.dispatch.Name, p.seq)
	member := &pod{name: name, created: p.s.now}
	p.pods[name] = member
	if !p.s.now.Before(p.s.first) {
		p.tally.started++
	}
	// Nodes have unlimited room: a pod is placed the moment it is made.
	p.runners.Put(lifecycle.Runner{
		Name: name, UID: name, TemplateHash: templateHash, Created: p.s.now, Since: p.s.now, Stage: lifecycle.StageStarting,
	})
	p.s.after(p.s.o.Boot.Draw(p.s.random), func() { p.boot(member) })
}

func (p *pool) boot(member *pod) {
	r, exists := p.runners.Get(member.name)
	if !exists || r.Stage != lifecycle.StageStarting {
		return
	}
	r.Stage, r.Since, member.idle = lifecycle.StageIdle, p.s.now, p.s.now
	p.runners.Put(r)
	p.waiting = append(p.waiting, member)
	p.plan, p.match = true, true
}

// leave takes a pod out of those that wait for a job.
func (p *pool) leave(member *pod) {
	if at := slices.Index(p.waiting, member); at >= 0 {
		p.waiting = slices.Delete(p.waiting, at, at+1)
	}
}

// finish ends a pod with its job.
func (p *pool) finish(member *pod) {
	r, _ := p.runners.Get(member.name)
	r.Stage, r.Since = lifecycle.StageFinished, p.s.now
	p.runners.Put(r)
	p.busy--
	p.plan = true
}

func (p *pool) remove(member *pod) {
	p.runners.Remove(member.name)
	delete(p.pods, member.name)
	member.ended = p.s.now
	p.tally.add(member, p.s)
}

// add counts what a pod cost since the first job.
func (t *poolTally) add(member *pod, s *simulation) {
	t.alive += since(s.first, member.created, s.now)
	if member.claimed {
		t.use += since(s.first, member.session, s.now)
	}
}

// since is how long of the time from begin to end came after first.
func since(first, begin, end time.Time) time.Duration {
	if begin.IsZero() {
		return 0
	}
	if begin.Before(first) {
		begin = first
	}
	return max(0, end.Sub(begin))
}

// dispatchJobs is the matcher's work: batches, until there is no poll or no job left.
func (p *pool) dispatchJobs() {
	s := p.s
	for !p.dispatch.Paused && len(p.keys) > 0 && len(p.waiting) > 0 {
		excluded, wait := s.mints.Excluded()
		if s.github.most > 0 && s.github.left(s.now) <= 0 {
			s.at(s.github.reset, func() { p.match = true })
			return
		}
		pending := 0
		batch := dispatch.Batch{
			Pool: p.dispatch, LabelKeys: p.keys, Excluded: excluded, Now: s.now,
			Reserve: s.reserve(&pending), Return: s.mints.Release,
		}
		for _, member := range p.waiting[:min(len(p.waiting), dispatch.DefaultMaxBatch)] {
			batch.Polls = append(batch.Polls, dispatch.Poll{Namespace: namespace, PodName: member.name, PodUID: member.name})
		}
		result := s.ledger.claim(batch)
		for _, claim := range result.Claims {
			p.start(p.pods[claim.PodUID], s.jobs[claim.JobID-1])
		}
		if !result.More {
			if wait > 0 {
				s.after(wait, func() { p.match = true })
			}
			return
		}
	}
}

func (p *pool) start(member *pod, j *job) {
	p.leave(member)
	member.claimed = true
	member.jobs++
	r, _ := p.runners.Get(member.name)
	r.Stage, r.Since = lifecycle.StageBusy, p.s.now
	p.runners.Put(r)
	p.busy++
	p.plan = true
	p.s.run(p, member, j)
}

func (p *pool) counts() Sample {
	return Sample{
		Busy: p.runners.Count(lifecycle.StageBusy), Idle: p.runners.Count(lifecycle.StageIdle),
		Starting: p.runners.Count(lifecycle.StageStarting), Wanted: poolspec.Desired(p.object, p.desired, nil),
	}
}
