package standin

import (
	"container/list"
	"slices"
	"strconv"
	"strings"
	"time"
)

// labelSet is a set of labels: names as given, and a canonical key by which queues are indexed.
type labelSet struct {
	names []string
	key   string
	set   map[string]struct{}
}

func newLabelSet(names []string) labelSet {
	l := labelSet{names: slices.Clone(names), set: make(map[string]struct{}, len(names))}
	for _, name := range names {
		l.set[strings.ToLower(name)] = struct{}{}
	}
	keys := make([]string, 0, len(l.set))
	for name := range l.set {
		keys = append(keys, name)
	}
	slices.Sort(keys)
	l.key = strings.Join(keys, "\x00")
	return l
}

// covers reports whether a runner with these labels may run a job that asks for want.
func (l labelSet) covers(want labelSet) bool {
	for name := range want.set {
		if _, ok := l.set[name]; !ok {
			return false
		}
	}
	return true
}

// runnerGroup holds the idle, online runners of one scope, label set and group, the longest idle first. jobGroup holds the
// queued jobs of one repository and runs-on, the oldest first. Matching compares groups, of which there are few, and never
// all runners or all jobs.
type runnerGroup struct {
	labels  labelSet
	id      int64 // the group's, at GitHub
	runners *list.List
}

type jobGroup struct {
	key    string
	repo   *repo
	labels labelSet
	wants  string // the group that runs-on names; empty: any
	jobs   *list.List
}

// pickRange bounds how deep into a group a random choice reaches.
const pickRange = 64

// differentHold is how long the "different" fault keeps a job back when only the runner minted for it is free.
const differentHold = 5 * time.Second

func (s *Server) enqueueLocked(j *job) {
	owner := j.run.repo.owner
	key := strconv.FormatInt(j.run.repo.id, 10) + "\x00" + strings.ToLower(j.wants) + "\x00" + j.labels.key
	group := owner.jobGroups[key]
	if group == nil {
		group = &jobGroup{key: key, repo: j.run.repo, labels: j.labels, wants: j.wants, jobs: list.New()}
		owner.jobGroups[key] = group
	}
	// A job that is queued again keeps its place; it is nearly always at the front.
	before := group.jobs.Front()
	if back := group.jobs.Back(); back != nil && back.Value.(*job).seq < j.seq {
		before = nil
	}
	for before != nil && before.Value.(*job).seq < j.seq {
		before = before.Next()
	}
	if before == nil {
		j.groupElement = group.jobs.PushBack(j)
	} else {
		j.groupElement = group.jobs.InsertBefore(j, before)
	}
	j.group = group
}

func (s *Server) dequeueLocked(j *job) {
	if j.group == nil {
		return
	}
	j.group.jobs.Remove(j.groupElement)
	if j.group.jobs.Len() == 0 {
		delete(j.run.repo.owner.jobGroups, j.group.key)
	}
	j.group, j.groupElement = nil, nil
}

// settleRunnerLocked adds the runner to the idle index, or removes it, by its state.
func (s *Server) settleRunnerLocked(rn *runner) {
	idle := rn.job == nil && !rn.starved && rn.online(s.now(), s.opts.OfflineAfter)
	switch {
	case idle && rn.idleGroup == nil:
		group := rn.scope.idle[rn.idleKey()]
		if group == nil {
			group = &runnerGroup{labels: rn.labels, id: rn.groupID, runners: list.New()}
			rn.scope.idle[rn.idleKey()] = group
		}
		rn.idleGroup, rn.idleElement = group, group.runners.PushBack(rn)
	case !idle && rn.idleGroup != nil:
		rn.idleGroup.runners.Remove(rn.idleElement)
		if rn.idleGroup.runners.Len() == 0 {
			delete(rn.scope.idle, rn.idleKey())
		}
		rn.idleGroup, rn.idleElement = nil, nil
	}
}

// idleKey is the runner's place among the idle ones of its scope.
func (rn *runner) idleKey() string { return strconv.FormatInt(rn.groupID, 10) + "\x00" + rn.labels.key }

// matchJobLocked gives a queued job to an idle runner, if there is one.
func (s *Server) matchJobLocked(j *job) {
	groups := s.runnerGroupsForLocked(j)
	if len(groups) == 0 {
		return
	}
	if rn := s.chooseRunnerLocked(j, groups); rn != nil {
		s.assignLocked(j, rn)
	}
}

func (s *Server) runnerGroupsForLocked(j *job) []*runnerGroup {
	var groups []*runnerGroup
	for _, sc := range j.run.repo.scopes() {
		if sc == nil {
			continue
		}
		for _, group := range sc.idle {
			if group.labels.covers(j.labels) && sc.mayRun(group.id, j.group) {
				groups = append(groups, group)
			}
		}
	}
	// Map order must not decide anything.
	slices.SortFunc(groups, func(a, b *runnerGroup) int {
		return idleSince(a).Compare(idleSince(b))
	})
	return groups
}

func idleSince(g *runnerGroup) time.Time { return g.runners.Front().Value.(*runner).lastContact }

func (s *Server) chooseRunnerLocked(j *job, groups []*runnerGroup) *runner {
	if s.opts.Assign != nil {
		return s.askAssignLocked(j, groups)
	}
	different := s.faults.active(FaultAssignDifferent, jobSubject(j))
	for _, group := range groups {
		element := group.runners.Front()
		if s.opts.ShuffleAssignment {
			for skip := s.opts.Pick(min(group.runners.Len(), pickRange)); skip > 0; skip-- {
				element = element.Next()
			}
		}
		if !different {
			return element.Value.(*runner)
		}
		for ; element != nil; element = element.Next() {
			if rn := element.Value.(*runner); rn.intended != j {
				return rn
			}
		}
	}
	return s.heldBackLocked(j, groups)
}

// heldBackLocked serves the "different" fault when no other runner is free: the job waits a little for one.
func (s *Server) heldBackLocked(j *job, groups []*runnerGroup) *runner {
	if j.differentFrom.IsZero() {
		j.differentFrom = s.now()
		s.deadlineLocked(j.differentFrom.Add(differentHold), func() {
			if j.state == jobQueued {
				s.matchJobLocked(j)
			}
		})
	}
	if s.now().Sub(j.differentFrom) < differentHold {
		return nil
	}
	return groups[0].runners.Front().Value.(*runner)
}

func (s *Server) askAssignLocked(j *job, groups []*runnerGroup) *runner {
	var candidates []*runner
	var views []RunnerView
	for _, group := range groups {
		for element := group.runners.Front(); element != nil; element = element.Next() {
			rn := element.Value.(*runner)
			candidates = append(candidates, rn)
			views = append(views, s.runnerViewLocked(rn))
		}
	}
	choice := s.opts.Assign(j.view(), views)
	if choice < 0 || choice >= len(candidates) {
		return nil
	}
	return candidates[choice]
}

// matchRunnerLocked gives an idle runner the oldest queued job it may run.
func (s *Server) matchRunnerLocked(rn *runner) {
	if rn.idleGroup == nil {
		return
	}
	for range 2 { // a second pass: with Assign or a fault, the oldest job may have been left unassigned
		j := s.oldestJobLocked(rn)
		if j == nil {
			return
		}
		if s.opts.Assign == nil && !s.faults.active(FaultAssignDifferent, jobSubject(j)) {
			s.assignLocked(j, rn)
			return
		}
		s.matchJobLocked(j)
		if rn.job != nil {
			return
		}
	}
}

func (s *Server) oldestJobLocked(rn *runner) *job {
	avoid := rn.intended != nil && s.faults.active(FaultAssignDifferent, jobSubject(rn.intended))
	var oldest, intended *job
	for group := range rn.scope.jobs() {
		if !rn.labels.covers(group.labels) || !rn.scope.mayRun(rn.groupID, group) {
			continue
		}
		element := group.jobs.Front()
		if avoid && element.Value.(*job) == rn.intended {
			intended = rn.intended
			element = element.Next()
		}
		if element == nil {
			continue
		}
		if j := element.Value.(*job); oldest == nil || j.seq < oldest.seq {
			oldest = j
		}
	}
	if oldest == nil {
		return intended
	}
	return oldest
}

// rematchLocked looks again at who may run the account's queued jobs.
func (s *Server) rematchLocked(a *account) {
	var queued []*job
	for _, group := range a.jobGroups {
		for element := group.jobs.Front(); element != nil; element = element.Next() {
			queued = append(queued, element.Value.(*job))
		}
	}
	slices.SortFunc(queued, func(a, b *job) int { return int(a.seq - b.seq) })
	for _, j := range queued {
		s.matchJobLocked(j)
	}
}

// intendLocked remembers which queued job a fresh registration was probably minted for.
func (s *Server) intendLocked(rn *runner) {
	if best := s.mintedForLocked(rn.scope, rn.groupID, rn.labels); best != nil {
		rn.intended = best
		s.intentions[best.id] = rn.id
	}
	about := runnerSubjectLocked(rn)
	_, rn.starved = s.faults.take(FaultRunnerStarved, about)
	if f, ok := s.faults.take(FaultRunnerCleanup, about); ok {
		rn.cleanupAfter = time.Duration(f.Delay)
	}
}

// mintedForLocked is the job that a registration is probably minted for: the oldest queued one that matches and that no
// other registration was minted for.
func (s *Server) mintedForLocked(sc *scope, groupID int64, labels labelSet) *job {
	var best *job
	for group := range sc.jobs() {
		if !labels.covers(group.labels) || !sc.mayRun(groupID, group) {
			continue
		}
		for element := group.jobs.Front(); element != nil; element = element.Next() {
			j := element.Value.(*job)
			if _, taken := s.intentions[j.id]; taken {
				continue
			}
			if best == nil || j.seq < best.seq {
				best = j
			}
			break
		}
	}
	return best
}
