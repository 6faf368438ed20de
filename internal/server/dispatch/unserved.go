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
	AccountID  int64
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
	// Accounts has Jobs by account.
	Accounts map[int64]int64
}

// UnservedSet is one set of labels that no pool serves.
type UnservedSet struct {
	Labels     []string
	Jobs       int64
	More       bool // there are more jobs than were counted
	Oldest     time.Time
	JobID      int64  // of the oldest
	Repository string // of the oldest
	Near       []fleet.NearPool
	Remedy     string
}

// MostUnservedSets is how many label sets are named.
const MostUnservedSets = 20

// FindUnserved says which of the jobs no pool serves. It is pure.
func FindUnserved(pools []Pool, outside fleet.OutsideRunners, lanes UnservedLanes) Unserved {
	u := Unserved{Outside: map[fleet.Outside]int64{}, Accounts: map[int64]int64{}}
	sets := map[string]*UnservedSet{}
	for _, lane := range lanes.Lanes {
		labels, ok := LabelsOf(lane.LabelKey)
		if !ok || lane.Jobs == 0 || !Unroutable(pools, labels) {
			continue // CLAIM-12: jobs that several pools serve are counted there
		}
		kind := Elsewhere(pools, outside.Of(labels), labels)
		if kind != fleet.OutsideNone { // CLAIM-21
			u.Outside[kind] += lane.Jobs
			continue
		}
		set := sets[lane.LabelKey]
		if set == nil {
			set = &UnservedSet{Labels: labels}
			sets[lane.LabelKey] = set
		}
		set.add(lane)
		u.Accounts[lane.AccountID] += lane.Jobs
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
	labelled := Labelled(pools)
	for i := range u.Sets {
		s := &u.Sets[i]
		s.Near = fleet.Nearest(labelled, s.Labels)
		s.Remedy = fleet.UnservedRemedy(labelled, s.Labels, s.Near)
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
		return text + " queued whose runs-on names only a runner group. Any runner of that group may take such a job, but a pool starts runners for labels only."
	}
	text += fmt.Sprintf(" queued for labels that no pool serves: %s.", strings.Join(s.Labels, ", "))
	if near := fleet.NearestText(s.Near); near != "" {
		text += " " + near
	}
	return text
}

// Elsewhere says which runners outside of RunnerPools a job is for that no pool serves, given which ones have its labels.
func Elsewhere(pools []Pool, outside fleet.Outside, labels []string) fleet.Outside {
	if len(labels) == 0 && !slices.ContainsFunc(pools, Pool.ownGroup) {
		return fleet.OutsideOther // GitHub assigns it to a runner of its group, and no pool's runners are in one
	}
	return outside
}

// Unroutable reports whether no live pool serves those labels.
func Unroutable(pools []Pool, labels []string) bool {
	return len(Route(pools, []LabelSet{{Key: LabelKey(labels), Labels: labels}}).Unserved) > 0
}

// Labelled are the pools as far as labels are compared with theirs.
func Labelled(pools []Pool) []fleet.LabelledPool {
	out := make([]fleet.LabelledPool, len(pools))
	for i, p := range pools {
		out[i] = fleet.LabelledPool{Namespace: p.Namespace, Name: p.Name, Labels: p.Labels, Terminating: p.Terminating}
	}
	return out
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
