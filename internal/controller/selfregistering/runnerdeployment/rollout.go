package runnerdeployment

import (
	"cmp"
	"slices"
	"time"
)

// Set is one RunnerReplicaSet of the deployment, as it was observed.
type Set struct {
	Name string
	// Hash of its template.
	Hash    string
	Created time.Time
	// Deleting: a client has deleted it. It drains, and takes no further jobs.
	Deleting bool
	// Replicas that it is asked for.
	Replicas int
	// Observed are the runners that it has, of which Serving can take a job or have one, and Busy have one.
	Observed, Serving, Busy int
	// Current reports that its status has observed Replicas: the status is of the present generation.
	Current bool
}

// room is how many runners of the set there are or may be at any moment, beyond those that work.
func (s Set) room() int {
	if s.Deleting {
		return max(0, s.Observed-s.Busy)
	}
	return max(0, max(s.Observed, s.Replicas)-s.Busy)
}

// Wish is what the deployment wants of its sets.
type Wish struct {
	Hash    string
	Desired int
	// MaxSurge and MaxUnavailable limit the roll. A roll always moves at least one.
	MaxSurge, MaxUnavailable int
	// Terminating: the deployment is being deleted.
	Terminating bool
}

// Rollout is what to do now.
type Rollout struct {
	// Create indicates that a set of the current template must be created, for New runners.
	Create bool
	New    int
	// Replicas are the sets, by name, that are asked for another number.
	Replicas map[string]int
	// Delete are the sets that were observed at zero after they had been asked for zero.
	Delete []string
	// Done: the deployment is being deleted, and no set is left.
	Done bool
}

// PlanRollout returns the changes that bring the sets closer to the wish. The set of the current template is created at once, as large as
// the limits allow. The others stay until it is available; they are then scaled to zero, and deleted once they are observed to be empty,
// which a busy runner may delay without limit (RUN-3). A current set that is being deleted is replaced at once: its last job may take
// hours. PlanRollout is a pure function: the same wish and sets give the same rollout.
func PlanRollout(wish Wish, sets []Set) Rollout {
	r := Rollout{Replicas: map[string]int{}}
	if wish.Terminating {
		r.shrink(sets, func(Set) int { return 0 })
		r.Done = len(sets) == 0
		return r
	}
	at := slices.IndexFunc(sets, func(s Set) bool { return s.Hash == wish.Hash && !s.Deleting })
	var present Set // the zero value where there is none yet
	var old []Set
	for i, s := range sets {
		if i == at {
			present = s
		} else {
			old = append(old, s)
		}
	}
	size := sizeOf(wish, present, old)
	switch {
	case at < 0:
		r.Create, r.New = true, size
	case present.Replicas != size:
		r.Replicas[present.Name] = size
	}
	r.shrink(old, keep(wish, present, old, size))
	return r
}

// sizeOf is how many runners the present set is asked for. It never shrinks for the sake of a roll.
func sizeOf(wish Wish, present Set, old []Set) int {
	room := wish.Desired + max(wish.MaxSurge, 0)
	for _, s := range old {
		room -= s.room()
	}
	return min(wish.Desired, max(room, present.Replicas, 0))
}

// keep says how many runners each of the old sets keeps.
func keep(wish Wish, present Set, old []Set, size int) func(Set) int {
	unavailable := max(wish.MaxUnavailable, 0)
	if unavailable == 0 && wish.MaxSurge <= 0 {
		unavailable = 1
	}
	needed := wish.Desired - unavailable - present.Serving
	if needed <= 0 {
		return func(Set) int { return 0 }
	}
	if size >= wish.Desired && unavailable == 0 {
		return func(s Set) int { return min(s.Replicas, max(wish.Desired, s.Busy)) } // K 3.2: untouched until the present set serves
	}
	// The sets that serve most keep what is needed; what does not serve makes room.
	order := slices.DeleteFunc(slices.Clone(old), func(s Set) bool { return s.Deleting })
	slices.SortFunc(order, func(a, b Set) int {
		return cmp.Or(cmp.Compare(b.Serving, a.Serving), a.Created.Compare(b.Created), cmp.Compare(a.Name, b.Name))
	})
	kept := map[string]int{}
	for _, s := range order {
		kept[s.Name] = min(s.Replicas, s.Serving, needed)
		needed -= kept[s.Name]
	}
	return func(s Set) int { return kept[s.Name] }
}

// shrink lowers sets to what keep allows, and deletes those that were observed at zero. It never raises one.
func (r *Rollout) shrink(sets []Set, keep func(Set) int) {
	for _, s := range sets {
		switch n := keep(s); {
		case s.Deleting:
		case s.Replicas > n:
			r.Replicas[s.Name] = n
		case s.Replicas == 0 && s.Observed == 0 && s.Current: // RUN-3: observed at zero, and only then
			r.Delete = append(r.Delete, s.Name)
		}
	}
	slices.Sort(r.Delete)
}
