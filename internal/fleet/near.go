package fleet

import (
	"cmp"
	"slices"
	"strings"
)

// LabelledPool is a pool of runners as far as labels are compared with its own.
type LabelledPool struct {
	Namespace, Name string
	Labels          []string
	Terminating     bool // being deleted: it serves no new job
}

// Serves reports whether the pool takes a job with those labels (CLAIM-18): it has all of them.
func (p LabelledPool) Serves(labels []string) bool {
	for _, label := range labels {
		if !hasLabel(p.Labels, label) {
			return false
		}
	}
	return len(labels) > 0 && !p.Terminating
}

func hasLabel(labels []string, label string) bool {
	return slices.ContainsFunc(labels, func(own string) bool { return foldLabel(own) == foldLabel(label) })
}

// foldLabel is a label as GitHub compares it: without regard to case.
func foldLabel(label string) string { return strings.ToLower(strings.TrimSpace(label)) }

// NearPool is a pool that has some of a job's labels, or labels that are spelled alike.
type NearPool struct {
	Namespace   string
	Name        string
	Labels      []string // the pool's own, as its author wrote them
	Missing     []string // labels of the job that it lacks
	Spellings   []Spelling
	Terminating bool // it is being deleted
}

// Spelling is a label of a job, and the label of a pool that it is probably meant to be.
type Spelling struct{ Wrote, Means string }

// mostNear is how many pools Nearest names.
const mostNear = 3

// Nearest are the pools that lack the fewest of the labels, up to three. A label that is spelled like one of the pool's counts half.
func Nearest(pools []LabelledPool, labels []string) []NearPool {
	var near []NearPool
	for _, pool := range pools {
		n := NearPool{Namespace: pool.Namespace, Name: pool.Name, Labels: pool.Labels, Terminating: pool.Terminating}
		for _, label := range labels {
			if hasLabel(pool.Labels, label) {
				continue
			}
			if means := alike(pool.Labels, foldLabel(label)); means != "" {
				n.Spellings = append(n.Spellings, Spelling{label, means})
			} else {
				n.Missing = append(n.Missing, label)
			}
		}
		if len(labels) == 0 || len(n.Missing) == len(labels) {
			continue
		}
		near = append(near, n)
	}
	slices.SortFunc(near, func(a, b NearPool) int {
		return cmp.Or(cmp.Compare(a.distance(), b.distance()), cmp.Compare(a.Name, b.Name), cmp.Compare(a.Namespace, b.Namespace))
	})
	return near[:min(mostNear, len(near))]
}

func (n NearPool) distance() int { return 2*len(n.Missing) + len(n.Spellings) }

// alike is the label that is closest to one in lower case, if it differs in few letters; the first of several.
func alike(labels []string, folded string) string {
	best, closest := "", min(2, len([]rune(folded))/3)+1
	for _, label := range labels {
		if d := editDistance(folded, foldLabel(label)); d < closest {
			best, closest = strings.TrimSpace(label), d
		}
	}
	return best
}

// editDistance is how many letters must be added, removed or changed to make one text the other.
func editDistance(a, b string) int {
	from, to := []rune(a), []rune(b)
	row := make([]int, len(to)+1)
	for j := range row {
		row[j] = j
	}
	for i, x := range from {
		diagonal := row[0]
		row[0] = i + 1
		for j, y := range to {
			changed := diagonal
			if x != y {
				changed++
			}
			diagonal = row[j+1]
			row[j+1] = min(changed, row[j+1]+1, row[j]+1)
		}
	}
	return row[len(to)]
}

// Text says what the pool lacks: "pool gpu lacks h100".
func (n NearPool) Text() string {
	var says []string
	for _, s := range n.Spellings {
		says = append(says, "has "+s.Means+", not "+s.Wrote)
	}
	if len(n.Missing) > 0 {
		says = append(says, "lacks "+strings.Join(n.Missing, ", "))
	}
	if n.Terminating {
		says = append(says, "is being deleted")
	}
	return "pool " + n.Name + " " + strings.Join(says, " and ")
}

// NearestText names those pools in one sentence; empty if there is none.
func NearestText(near []NearPool) string {
	if len(near) == 0 {
		return ""
	}
	texts := make([]string, len(near))
	for i, n := range near {
		texts[i] = n.Text()
	}
	return "Nearest: " + strings.Join(texts, "; ") + "."
}

// UnservedRemedy says what to write in runs-on, or what to add to a pool, where no pool serves those labels.
func UnservedRemedy(pools []LabelledPool, labels []string, near []NearPool) string {
	if i := slices.IndexFunc(near, func(n NearPool) bool { return !n.Terminating }); i >= 0 {
		n := near[i]
		remedy := "Add " + strings.Join(lacks(n), ", ") + " to spec.labels of pool " + n.Name + "."
		if write := runsOn(pools, labels, n); write != "" {
			remedy = "Write `runs-on: " + write + "` in the workflow, or add " + strings.Join(lacks(n), ", ") + " to spec.labels of pool " + n.Name + "."
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
func runsOn(pools []LabelledPool, labels []string, n NearPool) string {
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
		if n.servesAlone(pools, write) {
			if len(write) == 1 {
				return write[0]
			}
			return "[" + strings.Join(write, ", ") + "]"
		}
	}
	return ""
}

// servesAlone reports whether that pool takes a job with those labels, and no other does (CLAIM-12).
func (n NearPool) servesAlone(pools []LabelledPool, labels []string) bool {
	serving := slices.DeleteFunc(slices.Clone(pools), func(p LabelledPool) bool { return !p.Serves(labels) })
	return len(serving) == 1 && serving[0].Name == n.Name && serving[0].Namespace == n.Namespace
}

// mostNamedLabels is how many pools' labels a remedy names.
const mostNamedLabels = 3

// firstLabels are the first labels of some pools, by name, as far as no other pool serves them.
func firstLabels(pools []LabelledPool) []string {
	sorted := slices.SortedFunc(slices.Values(pools), func(a, b LabelledPool) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Namespace, b.Namespace))
	})
	var labels []string
	for _, p := range sorted {
		own := p.Labels[:min(1, len(p.Labels))]
		if len(labels) < mostNamedLabels && (NearPool{Namespace: p.Namespace, Name: p.Name}).servesAlone(pools, own) {
			labels = append(labels, own...)
		}
	}
	return labels
}
