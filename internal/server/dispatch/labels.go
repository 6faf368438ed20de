package dispatch

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/bullpen-ci/bullpen/internal/fleet"
)

// LabelKey is the canonical form of a set of labels: case folded, sorted, without doubles, as JSON, since a label
// may hold any character. GitHub compares labels without regard to case.
func LabelKey(labels []string) string {
	folded := fold(labels)
	if folded == nil {
		folded = []string{}
	}
	raw, err := json.Marshal(folded)
	if err != nil { // strings always marshal
		panic(err)
	}
	return string(raw)
}

// MaxLabelKey is the longest LabelKey that is stored, in bytes: what a database index and a notification can carry.
const MaxLabelKey = 2000

// MaxLabelSets is how many label sets the jobs of one account may wait and run for at a time (TEN-2).
const MaxLabelSets = 10_000

func fold(labels []string) []string {
	folded := make([]string, 0, len(labels))
	for _, label := range labels {
		folded = append(folded, strings.ToLower(strings.TrimSpace(label)))
	}
	slices.Sort(folded)
	return slices.Compact(folded)
}

// MintLabels are the labels a runner of the pool registers with: the pool's own, and those GitHub's own runners
// carry, so that `runs-on: [self-hosted, linux, NAME]` works.
func (p Pool) MintLabels() []string {
	labels := slices.Clone(p.Labels)
	for _, implied := range p.implied() {
		if !slices.ContainsFunc(labels, func(l string) bool { return strings.EqualFold(l, implied) }) {
			labels = append(labels, implied)
		}
	}
	return labels
}

func (p Pool) implied() []string {
	if p.Platform == fleet.MacOS {
		return []string{"self-hosted", "macOS"}
	}
	return []string{"self-hosted", "Linux"}
}

// Serves reports whether a runner of the pool can take a job with those labels: it carries all of them, and at least
// one is the pool's own (a bare `self-hosted` asks for nobody in particular).
func (p Pool) Serves(labels []string) bool {
	mine := fold(p.Labels)
	all := fold(p.MintLabels())
	own := false
	for _, label := range fold(labels) {
		if !slices.Contains(all, label) {
			return false
		}
		own = own || slices.Contains(mine, label)
	}
	return own
}

// mostCombined bounds of how many labels all combinations are named: 1,023 of 10.
const mostCombined = 10

// servable lists the keys of all label sets that the pool serves, whether or not a job has asked for one; false when they are too many.
func (p Pool) servable() ([]string, bool) {
	all := fold(p.MintLabels())
	if len(all) > mostCombined {
		return nil, false
	}
	var keys []string
	for choice := 1; choice < 1<<len(all); choice++ {
		var labels []string
		for i, label := range all {
			if choice&(1<<i) != 0 {
				labels = append(labels, label)
			}
		}
		if p.Serves(labels) {
			keys = append(keys, LabelKey(labels))
		}
	}
	return keys, true
}

// LabelsOf is the reverse of LabelKey; false for what is no key.
func LabelsOf(key string) ([]string, bool) {
	var labels []string
	err := json.Unmarshal([]byte(key), &labels)
	return labels, err == nil
}

// Routing says which pool serves each label set.
type Routing struct {
	Served    map[PoolRef][]string // pool → keys of the label sets it serves, sorted
	Ambiguous map[string][]PoolRef // key → the live pools that contend for it: its jobs wait (CLAIM-12)
	Unserved  map[string]struct{}  // key → no live pool has these labels
}

// Route matches label sets to live pools at the moment of picking, so that renaming a pool strands nothing.
func Route(pools []Pool, sets []LabelSet) Routing {
	r := Routing{Served: map[PoolRef][]string{}, Ambiguous: map[string][]PoolRef{}, Unserved: map[string]struct{}{}}
	for _, set := range sets {
		var serving []PoolRef
		for _, pool := range pools {
			if !pool.Terminating && pool.Serves(set.Labels) { // CLAIM-12: a terminating pool does not count
				serving = append(serving, pool.Ref())
			}
		}
		switch len(serving) {
		case 0:
			r.Unserved[set.Key] = struct{}{}
		case 1:
			r.Served[serving[0]] = append(r.Served[serving[0]], set.Key)
		default:
			r.Ambiguous[set.Key] = serving
		}
	}
	for _, keys := range r.Served {
		slices.Sort(keys)
	}
	return r
}
