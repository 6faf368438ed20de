package pool

import (
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/types"
)

// rivalry finds the live pools that contend for a label (CLAIM-12). A pool serves each job whose labels it has. If
// another pool also has its first label, a job that requests only that label fits both, so neither gets it. Other shared
// labels are not reported: a job that also requests a first label fits one pool only.
//
// It is kept up to date with each pass of a pool, so that no pass lists pools.
type rivalry struct {
	labels map[types.NamespacedName][]string // of live pools, folded
	first  map[place]map[types.NamespacedName]bool
	any    map[place]map[types.NamespacedName]bool
}

// place is a label in a namespace.
type place struct{ namespace, label string }

// rival is another live pool, and the label that both contend for.
type rival struct{ pool, label string }

func newRivalry() *rivalry {
	return &rivalry{labels: map[types.NamespacedName][]string{}, first: map[place]map[types.NamespacedName]bool{},
		any: map[place]map[types.NamespacedName]bool{}}
}

// put notes the labels of a live pool; none, for one that is gone or is being deleted: that does not count. It returns the
// other pools whose rivals this has changed.
func (r *rivalry) put(key types.NamespacedName, labels []string) []types.NamespacedName {
	folded := make([]string, len(labels))
	for i, label := range labels {
		folded[i] = strings.ToLower(label) // GitHub does not tell upper case from lower case
	}
	if slices.Equal(folded, r.labels[key]) {
		return nil
	}
	before := r.of(key)
	for i, label := range r.labels[key] {
		drop(r.any, place{key.Namespace, label}, key)
		if i == 0 {
			drop(r.first, place{key.Namespace, label}, key)
		}
	}
	delete(r.labels, key)
	for i, label := range folded {
		add(r.any, place{key.Namespace, label}, key)
		if i == 0 {
			add(r.first, place{key.Namespace, label}, key)
			r.labels[key] = folded
		}
	}
	changed := map[types.NamespacedName]bool{}
	for _, rival := range append(before, r.of(key)...) {
		changed[types.NamespacedName{Namespace: key.Namespace, Name: rival.pool}] = true
	}
	return slices.Collect(maps.Keys(changed))
}

// of returns a pool's rivals, sorted. Rivalry is symmetric.
func (r *rivalry) of(key types.NamespacedName) []rival {
	var found []rival
	note := func(set map[types.NamespacedName]bool, label string) {
		for other := range set {
			if one := (rival{other.Name, label}); other != key && !slices.Contains(found, one) {
				found = append(found, one)
			}
		}
	}
	for i, label := range r.labels[key] {
		note(r.first[place{key.Namespace, label}], label)
		if i == 0 {
			note(r.any[place{key.Namespace, label}], label)
		}
	}
	slices.SortFunc(found, func(a, b rival) int {
		if c := strings.Compare(a.label, b.label); c != 0 {
			return c
		}
		return strings.Compare(a.pool, b.pool)
	})
	return found
}

func add(index map[place]map[types.NamespacedName]bool, at place, key types.NamespacedName) {
	if index[at] == nil {
		index[at] = map[types.NamespacedName]bool{}
	}
	index[at][key] = true
}

func drop(index map[place]map[types.NamespacedName]bool, at place, key types.NamespacedName) {
	delete(index[at], key)
	if len(index[at]) == 0 {
		delete(index, at)
	}
}

// serve notes which labels a pool serves, and returns its rivals and the other pools whose rivals have changed.
func (t *tracker) serve(key types.NamespacedName, labels []string) (rivals []rival, changed []types.NamespacedName) {
	t.mu.Lock()
	defer t.mu.Unlock()
	changed = t.rivalry.put(key, labels)
	return t.rivalry.of(key), changed
}
