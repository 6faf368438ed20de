package pool

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"

	"github.com/bullpen-ci/bullpen/api/v1alpha1"
	"github.com/bullpen-ci/bullpen/internal/controller/nodeload"
	"github.com/bullpen-ci/bullpen/internal/controller/removal"
	"github.com/bullpen-ci/bullpen/internal/plan/lifecycle"
)

// pace is how often the fence is asked about one runner.
var pace = lifecycle.ServerPace()

// How long things are left alone.
const (
	// observeWithin is how soon the cache should show what we created; later we look past the cache.
	observeWithin = 30 * time.Second
)

// tracker holds the observed state of every pool.
type tracker struct {
	orphanGrace time.Duration
	nodes       *nodeBook
	loads       *nodeload.Book
	starts      *startBook
	images      *imageBook

	mu      sync.Mutex
	pools   map[types.NamespacedName]*poolState
	rivalry *rivalry
}

func newTracker() *tracker {
	return &tracker{orphanGrace: defaultOrphanGrace, nodes: newNodeBook(), loads: nodeload.New(), starts: newStartBook(), images: newImageBook(),
		pools: map[types.NamespacedName]*poolState{}, rivalry: newRivalry()}
}

// pool returns the state of a pool, and makes it if there is none.
func (t *tracker) pool(key types.NamespacedName) *poolState {
	t.mu.Lock()
	defer t.mu.Unlock()
	state := t.pools[key]
	if state == nil {
		state = &poolState{key: key, orphanGrace: t.orphanGrace, nodes: t.nodes, loads: t.loads, starts: t.starts, images: t.images, runners: lifecycle.NewSet(),
			members: map[string]*member{}, watched: map[string]time.Time{}, expected: map[string]bool{}, unplaced: map[string]bool{},
			unsure: map[string]bool{}}
		t.pools[key] = state
	}
	return state
}

// forget drops the state of a pool of which nothing is left.
func (t *tracker) forget(key types.NamespacedName) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if state := t.pools[key]; state != nil && state.empty() {
		delete(t.pools, key)
		t.starts.forget(key)
	}
}

func (t *tracker) each(visit func(*poolState)) {
	t.mu.Lock()
	states := make([]*poolState, 0, len(t.pools))
	for _, state := range t.pools {
		states = append(states, state)
	}
	t.mu.Unlock()
	for _, state := range states {
		visit(state)
	}
}

// poolState is what is known of one pool's pods and ServiceAccounts: what the cache showed, and what we did that the
// cache has not shown yet. Events, passes and removals change it; all of it is guarded by mu.
type poolState struct {
	key    types.NamespacedName
	nodes  *nodeBook
	loads  *nodeload.Book
	starts *startBook
	images *imageBook
	// orphanGrace is how old a ServiceAccount without a pod must be to go.
	orphanGrace time.Duration

	mu sync.Mutex
	// draining: the pool is being deleted. No pod of it may be created now.
	draining bool
	members  map[string]*member
	runners  *lifecycle.Set
	// watched are the members whose stage changes by the clock alone, and when; expected those that the cache should show.
	watched  map[string]time.Time
	expected map[string]bool
	// unplaced are those of which the scheduler has said that no node takes them, and schedulerSays what it said last.
	unplaced      map[string]bool
	schedulerSays string
	leaving       departures

	questions fenceQuestions
	// unsure are those that were asked about and of which the fence could not say, and fenceSays why, of the last one.
	unsure    map[string]bool
	fenceSays string

	holdUntil   time.Time
	createFails int
	createSays  string
	failedPods  int
	versions    versions
	// startsSay is the term that holds back creations which the plan refused, for the condition Starved.
	startsSay string
	// saturated and starved are the conditions of that name, for the metrics.
	saturated, starved bool

	over   map[string]string    // by UID: the runners whose work is over by the server's proof
	object *v1alpha1.RunnerPool // name and UID of the pool, for Events
	status statusWriter
}

// member is one runner of a pool: a pod and its ServiceAccount, of the same name (POOL-1).
type member struct {
	name    string
	last    *lastWords // of a runner that died in a pod that is not terminal; nil: it did not, or has not been checked yet
	view    podView
	created time.Time // when we created it, until it is observed
	hash    string
	uid     string

	observed  bool
	creating  bool // its creation is under way, or its outcome is not known
	everReady bool
	readyAt   time.Time // when it was first seen ready; zero while it is not
	gone      bool      // the pod is authoritatively gone
	hastened  bool      // our deletion of a pod that was being deleted with a longer grace period was accepted
	forced    bool      // our deletion of the pod was accepted, and was one that waits for no kubelet, because there is none
	reported  bool      // the server knows of its end
	account   bool      // its ServiceAccount may exist
	queued    bool      // a removal has it

	leave lifecycle.Leave
	// refused is why the deletion of the pod fails, if it does.
	refused removal.Refusal

	over string // the server's proof that its work is over, although it is still there

	on    string      // the node that the book has it on
	where whereabouts // what its node means for it
	// imageless: the images of the pool's template are not on its node.
	imageless bool
	weight    nodeload.Weight // what it is counted as on its node
	start     startPlace      // where it counts as starting
}

// sign of work: what the pod shows now, or that it was ready and is not (EXCL-4).
func (m *member) work() string { return m.view.observed(m.everReady).Signs.Work() }

// runner is the member as the engine sees it; false when there is no pod.
func (m *member) runner(now time.Time) (lifecycle.Runner, bool) {
	if m.gone {
		return lifecycle.Runner{}, false
	}
	r := lifecycle.Runner{Name: m.name, UID: m.uid, TemplateHash: m.hash, Created: m.created, Node: m.view.node}
	if !m.observed {
		r.Stage, r.Expected = lifecycle.StageStarting, true
		return r, m.creating || m.uid != ""
	}
	switch {
	case m.view.terminal:
		r.Stage = lifecycle.StageFinished
	case m.lost(now) || m.over != "" && m.open():
		m.loses(&r)
	case (m.work() != "" || m.leave.SaidBusy(0, now)) && !m.proven(): // EXCL-4: before any removal of ours, granted or not
		r.Stage = lifecycle.StageBusy
		if m.leave.Removal == lifecycle.RemovalGranted {
			r.Removal = m.leave.Removal // it gets no more work: its poller has received the grant and exited
		}
	case m.leave.Deleted || !m.view.deleting.IsZero():
		r.Stage, r.Removal, r.Since = lifecycle.StageTerminating, lifecycle.RemovalDeleting, m.leave.Since
		if !m.view.deleting.IsZero() {
			r.Since = m.view.deleting
		}
	default:
		m.waits(&r, now)
		m.leave.Overlay(&r)
	}
	return r, true
}

// waits fills in what a runner shows that has no work yet, whether or not its removal was asked for.
func (m *member) waits(r *lifecycle.Runner, now time.Time) {
	r.Unfit, r.Doubt, r.ImagesMissing = m.unfitOnItsNode(now), m.doubtOnItsNode(now), m.imageless
	if m.view.defect != "" {
		r.Unfit = lifecycle.Unfit{Reason: lifecycle.ReasonDefective, Detail: m.view.defect}
	}
	if m.view.ready {
		r.Stage, r.Since = lifecycle.StageIdle, m.view.readySince
		if r.Since.IsZero() {
			r.Since = m.readyAt // this back end keeps no transition times
		}
		return
	}
	r.Stage, r.Since, r.Waiting = lifecycle.StageStarting, m.view.placed, m.view.waiting
}

// unfinished reports whether a removal has something to do now, and not only to wait for the pod to be gone.
func (m *member) unfinished(now time.Time) bool {
	return m.undeleted(now) || m.account || (m.gone || m.view.terminal) && !m.reported
}

// finished reports whether nothing is left to do for the member.
func (m *member) finished() bool {
	return m.gone && m.reported && !m.account && !m.creating
}

// settle brings the set in line with a member that has changed, and reports whether a pass could tell the difference.
func (s *poolState) settle(m *member, now time.Time) bool {
	s.locate(m)
	before, had := s.runners.Get(m.name)
	after, has := m.runner(now)
	s.countStart(m, after, has)
	s.noteWeight(m, after, has)
	if has {
		s.runners.Put(after)
	} else {
		s.runners.Remove(m.name)
	}
	if m.finished() {
		delete(s.members, m.name)
	}
	if alarm := m.alarm(now); alarm.IsZero() {
		delete(s.watched, m.name)
	} else {
		s.watched[m.name] = alarm
	}
	if m.observed || m.gone {
		delete(s.expected, m.name)
	}
	turned := s.noteUnplaced(m.name, after)
	if after.Removal != lifecycle.RemovalAsked {
		delete(s.unsure, m.name)
	}
	sooner := s.leaving.note(m.name, m.due())
	before.Waiting = after.Waiting // it explains a time-out when that falls due; by itself it changes no plan
	return had != has || before != after || m.gone || sooner || turned
}

// settleAll is settle for every member.
func (s *poolState) settleAll(now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range s.members {
		s.settle(m, now)
	}
}

// noteUnplaced notes whether the scheduler has said that no node takes a runner. It reports whether that turns the pool's
// condition, of which a plan knows nothing.
func (s *poolState) noteUnplaced(name string, r lifecycle.Runner) bool {
	before := len(s.unplaced) > 0
	if r.Stage == lifecycle.StageStarting && r.Since.IsZero() && r.Waiting != "" {
		s.unplaced[name], s.schedulerSays = true, r.Waiting
	} else {
		delete(s.unplaced, name)
	}
	return before != (len(s.unplaced) > 0)
}

func (s *poolState) member(name string) *member {
	m := s.members[name]
	if m == nil {
		m = &member{name: name}
		s.members[name] = m
	}
	return m
}

// podSeen records what the cache shows of a pod.
func (s *poolState) podSeen(v podView, now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.takeIn(v, now)
}

func (s *poolState) takeIn(v podView, now time.Time) bool {
	m := s.member(v.name)
	if m.gone && m.uid == v.uid {
		return false // a straggler of a pod that is gone
	}
	if m.uid != "" && m.uid != v.uid {
		*m = member{name: m.name, account: m.account, queued: m.queued, on: m.on, weight: m.weight, start: m.start} // another pod: the records of the first do not apply
	}
	m.view, m.observed, m.creating, m.gone = v, true, false, false
	m.uid, m.hash, m.created = v.uid, v.templateHash, v.created
	if !v.ready {
		m.readyAt = time.Time{}
	} else {
		m.readyAt = earlier(m.readyAt, now)
		m.everReady = true
		s.failedPods = 0
	}
	if before, had := s.runners.Get(v.name); v.terminal && had && before.Stage != lifecycle.StageFinished {
		s.runnerEnded(v, now)
		if v.failed && !m.everReady && !m.leave.Deleted && v.deleting.IsZero() {
			s.startFailed(now)
		}
	}
	return s.settle(m, now)
}

// podRead records the result of an uncached read of a pod, unless the watch has overtaken it: after a pod has ended, no event would correct
// it. The watch always takes precedence, whatever its versions: a control plane that was restored to an older state starts its resource
// versions again.
func (s *poolState) podRead(v podView, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if m := s.members[v.name]; m != nil && m.observed && m.uid == v.uid && older(v.resourceVersion, m.view.resourceVersion) {
		return
	}
	s.takeIn(v, now)
}

// older reports whether the first of two versions of one object is for certain the older one.
func older(version, than string) bool {
	order, err := resourceversion.CompareResourceVersion(version, than)
	return err == nil && order < 0
}

// startFailed slows down a pool whose pods end before they can ever take work: without this a broken image would be
// started as fast as the API server allows.
func (s *poolState) startFailed(now time.Time) {
	const free = 3
	if s.failedPods++; s.failedPods > free {
		s.hold(now.Add(lifecycle.Backoff(s.failedPods - free)))
	}
}

func (s *poolState) hold(until time.Time) {
	if until.After(s.holdUntil) {
		s.holdUntil = until
	}
}

// podGone records that a pod is authoritatively gone: by the watch, or by an uncached read.
func (s *poolState) podGone(name, uid string, now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	m := s.members[name]
	if m == nil || m.uid != "" && uid != "" && m.uid != uid {
		return false
	}
	m.gone, m.creating = true, false
	return s.settle(m, now)
}

func (s *poolState) empty() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.members) == 0
}

func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}
