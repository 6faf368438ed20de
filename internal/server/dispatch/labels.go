package dispatch

import (
	"encoding/json"
	"slices"
	"strings"
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

// RegistrationLabels are the labels of a runner that is registered for a job which writes these: the same, and no other; nil when the pool
// takes no such job (CLAIM-18). GitHub gives a runner any job whose labels the runner has, so each label that it had beside them would bring
// it jobs that are meant for others. All of a job's labels are the pool's own here, and so are those of any job that GitHub may give such a
// runner instead.
//
// A job without labels asks for a runner group alone. Which one, GitHub does not say before the job runs.
func (p Pool) RegistrationLabels(job []string) []string {
	own := fold(p.Labels)
	seen := make(map[string]bool, len(job))
	var labels []string
	for _, label := range job {
		label = strings.TrimSpace(label)
		folded := strings.ToLower(label)
		if !slices.Contains(own, folded) {
			return nil
		}
		if !seen[folded] {
			seen[folded] = true
			labels = append(labels, label)
		}
	}
	return labels
}

// Serves reports whether the pool takes a job with those labels: whether a runner can be registered for it.
func (p Pool) Serves(labels []string) bool { return len(p.RegistrationLabels(labels)) > 0 }

// mostCombined bounds of how many labels all combinations are named: 1,023 of 10.
const mostCombined = 10

// servable lists the keys of all label sets that the pool serves, whether or not a job has asked for one; false when they are too many.
func (p Pool) servable() ([]string, bool) {
	all := fold(p.Labels)
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
		keys = append(keys, LabelKey(labels))
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
