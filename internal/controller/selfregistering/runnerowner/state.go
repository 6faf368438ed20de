package runnerowner

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bullpen-ci/bullpen/internal/controller/nodeload"
	"github.com/bullpen-ci/bullpen/internal/controller/removal"
	"github.com/bullpen-ci/bullpen/internal/controller/selfregistering/registered"
	"github.com/bullpen-ci/bullpen/internal/plan/lifecycle"
)

// How long things are left alone.
const (
	// observeWithin is how soon the watch should show what we created; later we look past the cache.
	observeWithin = 30 * time.Second
	// stuckAfter is how long a runner may still be there once it should be gone, before a condition and an Event report it (POOL-10).
	stuckAfter = 10 * time.Minute
)

// tracker holds what is known of every owner of one kind, kept up to date an event at a time: neither an event nor a pass costs
// more because there are more runners.
type tracker struct {
	places func(node string) registered.Place
	loads  *nodeload.Book
	now    func() time.Time

	mu     sync.Mutex
	owners map[string]*ownerState               // by UID: one that was made again has other runners
	byName map[types.NamespacedName]*ownerState // of the members
	latest map[types.NamespacedName]string      // the UID of the owner of that name that was loaded last
	begin  func(*ownerState)                    // gives a new state its crew
}

func newTracker(places func(string) registered.Place, now func() time.Time, begin func(*ownerState)) *tracker {
	return &tracker{places: places, loads: nodeload.New(), now: now, begin: begin, owners: map[string]*ownerState{},
		byName: map[types.NamespacedName]*ownerState{}, latest: map[types.NamespacedName]string{}}
}

// owner returns the state of the owner with that UID, and makes it if there is none.
func (t *tracker) owner(key types.NamespacedName, uid string) *ownerState {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.owners[uid]
	if s == nil {
		s = &ownerState{key: key, uid: uid, places: t.places, loads: t.loads, members: map[string]*member{}, runners: lifecycle.NewSet(),
			watched: map[string]time.Time{}, expected: map[string]bool{}, avoided: map[string]time.Time{}, busyWith: map[string]bool{}, unsure: map[string]string{},
			waiting: map[string]string{}, unplaced: map[string]string{}, leaving: map[string]time.Time{}, completeFor: -1}
		s.forget = func(name string) {
			t.mu.Lock()
			defer t.mu.Unlock()
			if member := (types.NamespacedName{Namespace: key.Namespace, Name: name}); t.byName[member] == s {
				delete(t.byName, member)
			}
		}
		t.begin(s)
		t.owners[uid] = s
	}
	return s
}

// of is the state of the owner that has a member of that name; nil for none.
func (t *tracker) of(member types.NamespacedName) *ownerState {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.byName[member]
}

func (t *tracker) have(member types.NamespacedName, s *ownerState) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.byName[member] = s
}

// loaded notes which owner has that name now, and forgets a former one of which nothing is left to do.
func (t *tracker) loaded(key types.NamespacedName, uid string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	before := t.latest[key]
	if before == uid {
		return
	}
	delete(t.owners, before)
	t.loads.Forget(before)
	for name, s := range t.byName {
		if s.uid == before {
			delete(t.byName, name)
		}
	}
	if t.latest[key] = uid; uid == "" {
		delete(t.latest, key)
	}
}

// total is the number of members of all owners.
func (t *tracker) total() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.byName)
}

func (t *tracker) each(visit func(*ownerState)) {
	t.mu.Lock()
	states := make([]*ownerState, 0, len(t.owners))
	for _, s := range t.owners {
		states = append(states, s)
	}
	t.mu.Unlock()
	for _, s := range states {
		visit(s)
	}
}

// ownerState is what is known of one owner's runners. Events, passes and crews change it; all of it is guarded by mu.
type ownerState struct {
	key    types.NamespacedName
	uid    string
	places func(node string) registered.Place
	loads  *nodeload.Book
	forget func(member string) // takes a member out of the tracker's index, which is locked behind mu
	// cluster does what the API server alone is needed for, github what may wait for GitHub.
	cluster, github *crew

	mu      sync.Mutex
	object  runtime.Object // for Events
	owner   *Owner         // as it was loaded last, for the crews
	members map[string]*member
	runners *lifecycle.Set
	timeout time.Duration // RegistrationTimeout
	pace    lifecycle.Pace
	// watched are the members that change by the clock alone, and when; expected those that the watch should show; busyWith those
	// whose removal or care is due; unsure those of which the fence could not say, and why; waiting those that wait for something
	// before they have a pod, and leaving those that are being removed, and by when they should be gone.
	watched  map[string]time.Time
	expected map[string]bool
	avoided  map[string]time.Time // names that something else has, and until when they are not tried
	busyWith map[string]bool
	unsure   map[string]string
	waiting  map[string]string
	unplaced map[string]string // of the members whose pods no node takes, and why
	leaving  map[string]time.Time

	completeAt  time.Time
	completeFor int // the number that it was complete for; -1 when that is not known
	begun       bool
	holdUntil   time.Time
	startFails  int
	createFails int
	createSays  string
	startSays   string
	lostJobs    []lostJob // to be reported
	outdated    string    // the template of which GitHub has refused a runner because its version is too old

	status statusWriter
}

// refer notes the owner as it is now.
func (s *ownerState) refer(o *Owner) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.owner, s.object = o, o.Object.DeepCopyObject()
	s.pace = lifecycle.GitHubPace(o.Ephemeral)
	s.timeout = o.RegistrationTimeout
	if !s.begun {
		s.begun, s.completeAt = true, o.CompleteAt
	}
	if s.outdated != o.TemplateHash {
		s.outdated = ""
	}
}

func (s *ownerState) reference() runtime.Object {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.object
}

func (s *ownerState) loadedOwner() *Owner {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.owner
}

func (s *ownerState) member(name string) *member {
	m := s.members[name]
	if m == nil {
		m = &member{name: name}
		s.members[name] = m
	}
	return m
}

// memberSeen records what the watch, or a read, shows of a member, with its pod as the cache has it. It reports whether a plan could
// change.
func (s *ownerState) memberSeen(seen Member, pod *registered.View, now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	m := s.member(seen.Name)
	if m.UID != "" && m.UID != seen.UID {
		*m = member{name: m.name, weight: m.weight} // another of that name: the records of the first do not apply
	}
	turned := m.Waiting != seen.Waiting || m.Started != seen.Started || m.RunnerName != seen.RunnerName || m.PodRefused != seen.PodRefused || !m.observed
	m.Member, m.observed, m.exists, m.creating = seen, true, true, false
	m.created, m.hash = seen.Created, seen.TemplateHash
	if m.pod == nil && pod != nil {
		s.takePod(m, pod, now)
	}
	return s.settle(m, now) || turned
}

// memberGone records that a member is gone for certain. Its pod may be left.
func (s *ownerState) memberGone(name, uid string, now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	m := s.members[name]
	if m == nil || uid != "" && m.UID != "" && m.UID != uid {
		return false
	}
	m.observed, m.exists, m.creating = true, false, false
	return s.settle(m, now)
}

// podSeen records what the watch shows of a pod.
func (s *ownerState) podSeen(name string, pod *registered.View, now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	m := s.members[name]
	if m == nil {
		return false
	}
	failing, outdated, unplaced := s.startFails > 0, s.outdated, len(s.unplaced)
	if !s.takePod(m, pod, now) {
		return false
	}
	return s.settle(m, now) || failing != (s.startFails > 0) || outdated != s.outdated || unplaced != len(s.unplaced)
}

// takePod assigns a pod to the member if it is the member's: by its owner reference, and later by its UID, which an orphan keeps (F 2.8). A
// pod that was read before its deletion, and arrives after it, is ignored: no event would ever remove it again.
func (s *ownerState) takePod(m *member, pod *registered.View, now time.Time) bool {
	if pod.UID == m.gone {
		return false
	}
	ours := pod.Owner.UID != "" && pod.Owner.UID == m.UID || m.pod != nil && m.pod.UID == pod.UID
	if !ours {
		return false
	}
	worked := m.pod != nil && m.pod.Signs.Work() != "" || m.leave.BusyAs != 0
	if before := m.id(); before != "" && before != pod.UID { // nothing that was recorded of the previous one holds for it
		m.leave.Replaced()
		m.served, m.counted, m.refused = false, false, removal.Refusal{}
	}
	m.pod = pod
	if !m.served && (!pod.Registered.IsZero() || pod.Signs.Work() != "") {
		m.served, s.startFails, s.startSays = true, 0, ""
		if s.outdated == m.hash {
			s.outdated = ""
		}
	}
	if pod.Ended && !m.counted {
		m.counted = true
		s.ended(m, now)
		if worked && !pod.End.Succeeded() {
			s.lostJobs = append(s.lostJobs, lostJob{m.name, pod.RunnerName, pod.End})
		}
	}
	return true
}

// lostJob is a runner that has ended as it should not, while it showed work.
type lostJob struct {
	member, runnerName string
	end                registered.Ending
}

// ended records how a runner has ended, once.
func (s *ownerState) ended(m *member, now time.Time) {
	if m.pod.End.Outdated() {
		s.outdated = m.hash
	}
	if !m.failedToStart() {
		return
	}
	s.startSays = m.pod.End.Reason
	s.startFails++
	s.hold(now.Add(startBackoff(s.startFails)))
	s.evidence()
}

// evidence ends the hold of RUN-4: the runner that is gone has done no job, so the need for it stands.
func (s *ownerState) evidence() { s.completeAt, s.completeFor = time.Time{}, -1 }

// startBackoff is the pause after a number of consecutive failed starts (K 8.3).
func startBackoff(failures int) time.Duration {
	if failures <= 1 {
		return 0
	}
	return 5 * time.Second << min(failures-2, 4)
}

func (s *ownerState) hold(until time.Time) { s.holdUntil = later(s.holdUntil, until) }

// podGone records that a pod is gone for certain. Its runner is not started again (RUN-7).
func (s *ownerState) podGone(name, uid string, now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	m := s.members[name]
	if m == nil || m.pod == nil || m.pod.UID != uid {
		return false
	}
	m.pod, m.gone, m.spent = nil, uid, true
	return s.settle(m, now)
}

// settle updates all sets after a change of a member, and reports whether a plan could change.
func (s *ownerState) settle(m *member, now time.Time) bool {
	place := registered.Place{}
	if m.pod != nil {
		place = s.places(m.pod.Node)
	}
	before, had := s.runners.Get(m.name)
	after, has := m.runner(place, s.timeout, now)
	if m.leave.BusyAs != 0 && m.pod != nil {
		m.leave.Showed(m.pod.Runner(place, s.timeout, now).Stage)
	}
	if weight := nodeload.WeightOf(after, has); weight != m.weight {
		s.loads.Set(s.uid, m.name, weight)
		m.weight = weight
	}
	if has {
		s.runners.Put(after)
	} else {
		s.runners.Remove(m.name)
		if !m.creating {
			delete(s.members, m.name)
			s.forget(m.name)
		}
	}
	s.note(m, after, has, place, now)
	before.Waiting = after.Waiting
	return had != has || before != after
}

// note keeps the sets of members that need a check.
func (s *ownerState) note(m *member, r lifecycle.Runner, has bool, place registered.Place, now time.Time) {
	put := func(set map[string]time.Time, at time.Time) {
		if at.IsZero() || !has {
			delete(set, m.name)
		} else {
			set[m.name] = at
		}
	}
	put(s.watched, m.alarm(place, s.timeout, now))
	put(s.leaving, m.due(r))
	if m.observed || !has {
		delete(s.expected, m.name)
	}
	if !has || r.Removal != lifecycle.RemovalAsked {
		delete(s.unsure, m.name)
	}
	if has && m.pod == nil && m.waitsFor() != "" && r.Stage == lifecycle.StageStarting {
		s.waiting[m.name] = m.waitsFor()
	} else {
		delete(s.waiting, m.name)
	}
	if has && m.pod != nil && m.pod.Node == "" && m.pod.Waiting != "" && r.Stage == lifecycle.StageStarting {
		s.unplaced[m.name] = m.pod.Waiting
	} else {
		delete(s.unplaced, m.name)
	}
	if has && (m.deletable() || m.tendable()) {
		s.busyWith[m.name] = true
	} else {
		delete(s.busyWith, m.name)
	}
}

// deletable reports whether what stands behind a pod that is going should go too: it must not make another pod (RUN-7, K 1.7).
func (m *member) deletable() bool {
	return m.exists && m.Deleting.IsZero() && !m.leave.Deleted && m.pod != nil && !m.pod.Deleting.IsZero()
}

// tendable reports whether the Backing may have something to do for it beside its existence.
func (m *member) tendable() bool {
	return m.observed && m.exists && m.Deleting.IsZero() && !m.leave.Deleted && !m.Ended && !m.spent && m.leave.Removal < lifecycle.RemovalGranted &&
		(m.pod == nil || !m.pod.Ended && m.pod.Deleting.IsZero()) && (m.tended != m.tendKey() || !m.tendAt.IsZero())
}

// tendKey changes when the Backing should process the member again.
func (m *member) tendKey() string {
	key := m.UID + m.RunnerName
	if m.Started {
		key += " started"
	}
	if m.pod != nil {
		key += " " + m.pod.UID
		if !m.pod.Registered.IsZero() {
			key += " known"
		}
		if !m.pod.SecretMissing.IsZero() {
			key += " without its Secret"
		}
	}
	return key
}

// lookAgain records a change of a pod's node, or of GitHub's list.
func (s *ownerState) lookAgain(name string, now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	m := s.members[name]
	return m != nil && s.settle(m, now)
}

// tryAgain ends the patience with members that could not be registered with that Secret, and reports whether there are any.
func (s *ownerState) tryAgain(secret string, now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.owner == nil || s.owner.Secret != secret {
		return false
	}
	again := false
	for _, m := range s.members {
		if m.tendFail > 0 {
			m.tendFail, m.tendAt, again = 0, now, true
			s.settle(m, now)
		}
	}
	return again
}

// change changes a member, if it is still there and the same.
func (s *ownerState) change(name, id string, now time.Time, apply func(*member)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if m := s.members[name]; m != nil && (id == "" || m.id() == id) {
		apply(m)
		s.settle(m, now)
	}
}

// copyOf returns a member as it is now.
func (s *ownerState) copyOf(name string) (member, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if m := s.members[name]; m != nil {
		return *m, true
	}
	return member{}, false
}

func keyOf(object client.Object) types.NamespacedName { return client.ObjectKeyFromObject(object) }
