package dispatch

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/bullpen-ci/bullpen/internal/fleet"
)

// UnservedLanes is what the ledger says of label sets that no pool was known to serve.
type UnservedLanes struct {
	Lanes []UnservedLane
	More  bool // there are more label sets; those with the oldest jobs were read
}

// UnservedLane is one account's queue for one of these label sets, as far as it was read.
type UnservedLane struct {
	LabelKey   string
	Jobs       int64
	More       bool // there are more jobs in it, or more accounts that ask for the label set
	Oldest     JobAge
	Repository string // of the oldest job
}

// Unserved are the queued jobs that no pool serves (CLAIM-21). Jobs for runners outside of RunnerPools are counted apart.
type Unserved struct {
	Jobs   int64
	More   bool      // there are more jobs than were counted
	Oldest time.Time // when the oldest was queued; zero: there is none
	// Sets are the label sets, the oldest job's first, up to MostUnservedSets. Jobs counts those of the others, too.
	Sets    []UnservedSet
	Outside map[fleet.Outside]int64 // jobs for runners outside of RunnerPools, by kind
}

// UnservedSet is one set of labels that no pool serves.
type UnservedSet struct {
	Labels     []string
	Jobs       int64
	More       bool // there are more jobs than were counted
	Oldest     time.Time
	JobID      int64  // of the oldest
	Repository string // of the oldest
	Near       []NearPool
	Remedy     string
}

// MostUnservedSets is how many label sets are named.
const MostUnservedSets = 20

// FindUnserved says which of the jobs no pool serves. It is pure.
func FindUnserved(pools []Pool, outside fleet.OutsideRunners, lanes UnservedLanes) Unserved {
	u := Unserved{Outside: map[fleet.Outside]int64{}}
	sets := map[string]*UnservedSet{}
	for _, lane := range lanes.Lanes {
		labels, ok := LabelsOf(lane.LabelKey)
		if !ok || lane.Jobs == 0 || len(Route(pools, []LabelSet{{Key: lane.LabelKey, Labels: labels}}).Unserved) == 0 {
			continue // CLAIM-12: jobs that several pools serve are counted there
		}
		if kind := outside.Of(labels); kind != fleet.OutsideNone { // CLAIM-21
			u.Outside[kind] += lane.Jobs
			continue
		}
		set := sets[lane.LabelKey]
		if set == nil {
			set = &UnservedSet{Labels: labels}
			sets[lane.LabelKey] = set
		}
		set.add(lane)
	}
	for _, set := range sets {
		u.Jobs, u.More = u.Jobs+set.Jobs, u.More || set.More
		u.Sets = append(u.Sets, *set)
	}
	u.More = u.More || lanes.More && u.Jobs > 0
	slices.SortFunc(u.Sets, func(a, b UnservedSet) int {
		return cmp.Or(a.Oldest.Compare(b.Oldest), slices.Compare(a.Labels, b.Labels))
	})
	if len(u.Sets) > 0 {
		u.Oldest = u.Sets[0].Oldest
	}
	u.Sets = u.Sets[:min(MostUnservedSets, len(u.Sets))]
	for i := range u.Sets {
		s := &u.Sets[i]
		s.Near = Nearest(pools, s.Labels)
		s.Remedy = UnservedRemedy(pools, s.Labels, s.Near)
	}
	return u
}

func (s *UnservedSet) add(lane UnservedLane) {
	s.Jobs, s.More = s.Jobs+lane.Jobs, s.More || lane.More
	if s.Oldest.IsZero() || lane.Oldest.QueuedAt.Before(s.Oldest) {
		s.Oldest, s.JobID, s.Repository = lane.Oldest.QueuedAt, lane.Oldest.ID, lane.Repository
	}
}

// Sentence says how many jobs ask for the labels, and which pools are nearest.
func (s UnservedSet) Sentence() string {
	text := strconv.FormatInt(s.Jobs, 10)
	switch {
	case s.More:
		text += " or more jobs"
	case s.Jobs == 1:
		text += " job"
	default:
		text += " jobs"
	}
	if len(s.Labels) == 0 {
		return text + " queued whose runs-on names a runner group and no label. Pools serve labels."
	}
	text += fmt.Sprintf(" queued for labels that no pool serves: %s.", strings.Join(s.Labels, ", "))
	if near := NearestText(s.Near); near != "" {
		text += " " + near
	}
	return text
}

// UnservedRemedy says what to write in runs-on, or what to add to a pool, where no pool serves those labels.
func UnservedRemedy(pools []Pool, labels []string, near []NearPool) string {
	if len(near) > 0 && !near[0].Terminating {
		n := near[0]
		remedy := "Add " + strings.Join(lacks(n), ", ") + " to spec.labels of pool " + n.Pool.Name + "."
		if write := runsOn(pools, labels, n); write != "" {
			remedy = "Write `runs-on: " + write + "` in the workflow, or add " + strings.Join(lacks(n), ", ") + " to spec.labels of pool " + n.Pool.Name + "."
		}
		return remedy
	}
	instead := "Write the label of a pool in runs-on"
	if some := firstLabels(pools); len(some) > 0 {
		instead += ", such as " + strings.Join(some, " or ")
	}
	if len(labels) == 0 {
		return instead + "."
	}
	return instead + ", or add a RunnerPool with these labels."
}

// lacks are the labels of the job that the pool has not, however they are spelled.
func lacks(n NearPool) []string {
	all := slices.Clone(n.Missing)
	for _, s := range n.Spellings {
		all = append(all, s.Wrote)
	}
	return all
}

// runsOn is what a job has to ask for to be that pool's and no other's: its own labels as far as the pool has them, in the pool's spelling, or
// else the pool's first label. It is empty where several pools serve either.
func runsOn(pools []Pool, labels []string, n NearPool) string {
	var own []string
	for _, label := range labels {
		if i := slices.IndexFunc(n.Spellings, func(s Spelling) bool { return s.Wrote == label }); i >= 0 {
			label = n.Spellings[i].Means
		}
		if !slices.Contains(n.Missing, label) {
			own = append(own, label)
		}
	}
	for _, write := range [][]string{own, n.Labels[:min(1, len(n.Labels))]} {
		key := LabelKey(write)
		if slices.Contains(Route(pools, []LabelSet{{Key: key, Labels: write}}).Served[n.Pool], key) {
			if len(write) == 1 {
				return write[0]
			}
			return "[" + strings.Join(write, ", ") + "]"
		}
	}
	return ""
}

// mostNamedLabels is how many pools' labels a remedy names.
const mostNamedLabels = 3

// firstLabels are the first labels of some pools, by name.
func firstLabels(pools []Pool) []string {
	live := slices.DeleteFunc(slices.Clone(pools), func(p Pool) bool { return p.Terminating || len(p.Labels) == 0 })
	slices.SortFunc(live, func(a, b Pool) int { return compareRefs(a.Ref(), b.Ref()) })
	var labels []string
	for _, p := range live[:min(mostNamedLabels, len(live))] {
		labels = append(labels, p.Labels[0])
	}
	return labels
}

// ServableKeys lists the keys of the label sets that the pools serve, as far as they can be listed: of a pool with very many labels there are too
// many. FindUnserved leaves out what is served and not in it.
func ServableKeys(pools []Pool) []string {
	var keys []string
	for _, pool := range pools {
		if own, ok := pool.servable(); ok && !pool.Terminating {
			keys = append(keys, own...)
		}
	}
	slices.Sort(keys)
	return slices.Compact(keys)
}
