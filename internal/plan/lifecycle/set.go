package lifecycle

import (
	"maps"
	"slices"
	"strings"
	"time"
)

// Set is the runners of one owner, kept in the orders in which a plan reads them. Changing one runner costs the
// logarithm of their number, and a plan costs what it decides: neither grows with a pool. It is not safe for
// concurrent use.
type Set struct {
	byName map[string]*Runner // what is pointed to never changes
	groups map[group]*members
	counts map[Stage]int
}

// group is what a plan tells apart. There are a few dozen at most, however many runners there are.
type group struct {
	stage    Stage
	removal  Removal
	unfit    bool // only of runners that show no work and were not asked for
	expected bool
	timed    bool // Since is known
	doubt    bool // only of runners that show no work and were not asked for
	// imageless: its node lacks the images of the present template; only of idle runners that were not asked for.
	imageless bool
	hash      string
}

// filter picks groups.
type filter func(group) bool

// of is the filter for the groups that all of these pick.
func of(filters ...filter) filter {
	return func(g group) bool {
		for _, keep := range filters {
			if !keep(g) {
				return false
			}
		}
		return true
	}
}

// order is one of the orders that a group is kept in: by the beginning of a clock, the earliest first, then by name.
type order int

const (
	byAge   order = iota // Created
	bySince              // Since
	orders
)

type members [orders][]*Runner

func (o order) begin(r *Runner) time.Time {
	if o == bySince {
		return r.Since
	}
	return r.Created
}

// compare is a total order, so that equal sets give equal plans.
func (o order) compare(a, b *Runner) int {
	if c := o.begin(a).Compare(o.begin(b)); c != 0 {
		return c
	}
	return strings.Compare(a.Name, b.Name)
}

// NewSet returns a set of these runners; of two with one name the later counts.
func NewSet(runners ...Runner) *Set {
	s := &Set{byName: map[string]*Runner{}, groups: map[group]*members{}, counts: map[Stage]int{}}
	for _, r := range runners {
		s.Put(r)
	}
	return s
}

// Put adds the runner or replaces the one of that name.
func (s *Set) Put(r Runner) {
	r = r.normal()
	if old, exists := s.byName[r.Name]; exists {
		if *old == r {
			return
		}
		s.drop(old)
	}
	s.byName[r.Name] = &r
	s.counts[r.Stage]++
	key := groupOf(&r)
	if s.groups[key] == nil {
		s.groups[key] = &members{}
	}
	for o, sorted := range s.groups[key] {
		at, _ := slices.BinarySearchFunc(sorted, &r, order(o).compare)
		s.groups[key][o] = slices.Insert(sorted, at, &r)
	}
}

// normal clears what goes with other stages.
func (r Runner) normal() Runner {
	if r.Stage != StageTerminating {
		r.Shown, r.ShownSince = 0, time.Time{}
	}
	if r.Stage != StageTerminating && r.Stage != StageLost {
		r.Why, r.AskAt = "", time.Time{}
		if r.Stage != StageBusy || r.Removal != RemovalGranted {
			r.Removal = RemovalNone
		}
	}
	if r.Stage == StageBusy || r.Stage == StageFinished {
		r.Unfit = Unfit{}
	}
	if r.Stage != StageStarting && r.Stage != StageIdle && r.Stage != StageTerminating {
		r.Doubt = Unfit{}
	}
	if r.Stage != StageIdle && (r.Stage != StageTerminating || r.Shown != StageIdle) {
		r.ImagesMissing = false
	}
	return r
}

// Remove takes the runner of that name out, if there is one.
func (s *Set) Remove(name string) {
	if old, exists := s.byName[name]; exists {
		s.drop(old)
		delete(s.byName, name)
	}
}

func (s *Set) drop(r *Runner) {
	s.counts[r.Stage]--
	key := groupOf(r)
	for o, sorted := range s.groups[key] {
		if at, found := slices.BinarySearchFunc(sorted, r, order(o).compare); found {
			s.groups[key][o] = slices.Delete(sorted, at, at+1)
		}
	}
	if len(s.groups[key][byAge]) == 0 {
		delete(s.groups, key)
	}
}

// Get returns the runner of that name.
func (s *Set) Get(name string) (Runner, bool) {
	if r, exists := s.byName[name]; exists {
		return *r, true
	}
	return Runner{}, false
}

// Len is the number of runners of any stage.
func (s *Set) Len() int { return len(s.byName) }

// Count is the number of runners of one stage.
func (s *Set) Count(stage Stage) int { return s.counts[stage] }

// Asked is the number of runners that the fence was asked about and has not granted, lost ones included.
func (s *Set) Asked() int {
	return s.size(func(g group) bool { return g.removal == RemovalAsked })
}

// Outdated is the number of runners that show no work, that nothing else wants gone, and that were made from another
// template.
func (s *Set) Outdated(hash string) int {
	return s.size(func(g group) bool { return (booting(g) || idle(g)) && g.hash != hash })
}

// Names returns every name, sorted: for tests and for people.
func (s *Set) Names() []string { return slices.Sorted(maps.Keys(s.byName)) }

func groupOf(r *Runner) group {
	return group{
		stage: r.Stage, removal: r.Removal, expected: r.Expected, timed: !r.Since.IsZero(), hash: r.TemplateHash,
		unfit:     r.Unfit != (Unfit{}) && (r.Stage == StageStarting || r.Stage == StageIdle),
		doubt:     r.Doubt != (Unfit{}) && (r.Stage == StageStarting || r.Stage == StageIdle),
		imageless: r.ImagesMissing && r.Stage == StageIdle,
	}
}

// size is the number of runners in these groups.
func (s *Set) size(keep filter) int {
	n := 0
	for key, m := range s.groups {
		if keep(key) {
			n += len(m[byAge])
		}
	}
	return n
}

// sizeUntil is the number of runners in these groups whose clock began at that moment or before.
func (s *Set) sizeUntil(keep filter, o order, limit time.Time) int {
	n := 0
	for key, m := range s.groups {
		if keep(key) {
			n += until(m[o], o, limit)
		}
	}
	return n
}

// nextAfter is when the first clock began, of those in these groups that began after that moment; zero for none.
func (s *Set) nextAfter(keep filter, o order, limit time.Time) time.Time {
	var first time.Time
	for key, m := range s.groups {
		if !keep(key) {
			continue
		}
		if at := until(m[o], o, limit); at < len(m[o]) {
			if begin := o.begin(m[o][at]); first.IsZero() || begin.Before(first) {
				first = begin
			}
		}
	}
	return first
}

// newest is when the youngest runner in these groups was created; zero for none.
func (s *Set) newest(keep filter) time.Time {
	var last time.Time
	for key, m := range s.groups {
		if created := m[byAge][len(m[byAge])-1].Created; keep(key) && created.After(last) {
			last = created
		}
	}
	return last
}

func until(sorted []*Runner, o order, limit time.Time) int {
	at, _ := slices.BinarySearchFunc(sorted, limit, func(r *Runner, limit time.Time) int {
		if o.begin(r).After(limit) {
			return 1
		}
		return -1
	})
	return at
}

// each calls visit for the runners in these groups, in that order, until it answers no.
func (s *Set) each(keep filter, o order, visit func(Runner) bool) {
	var rest [][]*Runner
	for key, m := range s.groups {
		if keep(key) {
			rest = append(rest, m[o])
		}
	}
	for {
		first := -1
		for i, sorted := range rest {
			if len(sorted) > 0 && (first < 0 || o.compare(sorted[0], rest[first][0]) < 0) {
				first = i
			}
		}
		if first < 0 || !visit(*rest[first][0]) {
			return
		}
		rest[first] = rest[first][1:]
	}
}

// OfTemplate is the number of runners of one template that hold a place: that have not ended, and are not lost.
func (s *Set) OfTemplate(hash string) int {
	return s.size(func(g group) bool { return g.hash == hash && g.stage != StageFinished && g.stage != StageLost })
}
