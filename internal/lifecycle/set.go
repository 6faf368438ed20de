package lifecycle

import (
	"maps"
	"slices"
	"strings"
)

// Set is the runners of one owner, kept in the order in which a plan looks at them. Changing one runner costs the
// logarithm of their number, and a plan costs what it decides: neither grows with a pool. It is not safe for
// concurrent use.
type Set struct {
	byName map[string]*Runner // what is pointed to never changes
	// groups hold runners of one class and one template, ordered by age, then name.
	groups map[group][]*Runner
	counts map[Stage]int
}

// class is a stage, with Leaving told apart by how far the removal is, and unfit runners apart from sound
// ones.
type class struct {
	stage   Stage
	removal Removal
	unfit   bool
}

type group struct {
	class class
	hash  string
}

// NewSet returns a set of these runners; of two with one name the later counts.
func NewSet(runners ...Runner) *Set {
	s := &Set{byName: map[string]*Runner{}, groups: map[group][]*Runner{}, counts: map[Stage]int{}}
	for _, r := range runners {
		s.Put(r)
	}
	return s
}

// Put adds the runner or replaces the one of that name.
func (s *Set) Put(r Runner) {
	if r.Stage != StageLeaving {
		r.Removal = RemovalNone
	}
	if r.Stage != StageBooting && r.Stage != StageIdle {
		r.Unfit = Unfit{}
	}
	if old, exists := s.byName[r.Name]; exists {
		if *old == r {
			return
		}
		s.drop(old)
	}
	s.byName[r.Name] = &r
	s.counts[r.Stage]++
	key := groupOf(&r)
	at, _ := slices.BinarySearchFunc(s.groups[key], &r, byAge)
	s.groups[key] = slices.Insert(s.groups[key], at, &r)
}

// Remove takes the runner of that name out; that there is none is no error.
func (s *Set) Remove(name string) {
	if old, exists := s.byName[name]; exists {
		s.drop(old)
		delete(s.byName, name)
	}
}

func (s *Set) drop(r *Runner) {
	s.counts[r.Stage]--
	key := groupOf(r)
	at, found := slices.BinarySearchFunc(s.groups[key], r, byAge)
	if !found {
		return
	}
	if s.groups[key] = slices.Delete(s.groups[key], at, at+1); len(s.groups[key]) == 0 {
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

// Asked is the number of runners that the fence was asked about and has not granted.
func (s *Set) Asked() int { return s.size(asked, anyTemplate) }

// Outdated is the number of runners that show no work and were made from another template.
func (s *Set) Outdated(hash string) int {
	other := func(h string) bool { return h != hash }
	return s.size(booting, other) + s.size(idle, other)
}

// Names returns every name, sorted: for tests and for people.
func (s *Set) Names() []string { return slices.Sorted(maps.Keys(s.byName)) }

func groupOf(r *Runner) group {
	return group{class{r.Stage, r.Removal, r.Unfit != (Unfit{})}, r.TemplateHash}
}

// byAge orders the oldest first; the name makes it a total order, so that equal sets give equal plans.
func byAge(a, b *Runner) int {
	if c := a.Created.Compare(b.Created); c != 0 {
		return c
	}
	return strings.Compare(a.Name, b.Name)
}

// hashes returns the templates of a class that are accepted by keep, sorted.
func (s *Set) hashes(c class, keep func(string) bool) []string {
	var found []string
	for key := range s.groups {
		if key.class == c && keep(key.hash) {
			found = append(found, key.hash)
		}
	}
	slices.Sort(found)
	return found
}

// size is the number of runners of a class whose template is accepted by keep.
func (s *Set) size(c class, keep func(string) bool) int {
	n := 0
	for key, members := range s.groups {
		if key.class == c && keep(key.hash) {
			n += len(members)
		}
	}
	return n
}

// each calls visit for the runners of a class whose template is accepted by keep, oldest first, until it answers no.
func (s *Set) each(c class, keep func(string) bool, visit func(Runner) bool) {
	hashes := s.hashes(c, keep)
	at := make([]int, len(hashes))
	for {
		oldest := -1
		for i, hash := range hashes {
			members := s.groups[group{c, hash}]
			if at[i] < len(members) && (oldest < 0 ||
				byAge(members[at[i]], s.groups[group{c, hashes[oldest]}][at[oldest]]) < 0) {
				oldest = i
			}
		}
		if oldest < 0 || !visit(*s.groups[group{c, hashes[oldest]}][at[oldest]]) {
			return
		}
		at[oldest]++
	}
}

func anyTemplate(string) bool { return true }
