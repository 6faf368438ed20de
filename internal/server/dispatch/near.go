package dispatch

import (
	"cmp"
	"slices"
	"strings"
)

// NearPool is a pool that has some of a job's labels, or labels that are spelled alike.
type NearPool struct {
	Pool        PoolRef
	Labels      []string // the pool's own, as its author wrote them
	Missing     []string // labels of the job that it lacks
	Spellings   []Spelling
	Terminating bool // it lacks nothing, and is being deleted
}

// Spelling is a label of a job, and the label of a pool that it is probably meant to be.
type Spelling struct{ Wrote, Means string }

// mostNear is how many pools Nearest names.
const mostNear = 3

// Nearest are the pools that lack the fewest of the labels, up to three. A label that is spelled like one of the pool's counts half.
func Nearest(pools []Pool, labels []string) []NearPool {
	var near []NearPool
	for _, pool := range pools {
		n := NearPool{Pool: pool.Ref(), Labels: pool.Labels}
		own := fold(pool.Labels)
		for _, label := range labels {
			folded := strings.ToLower(strings.TrimSpace(label))
			if slices.Contains(own, folded) {
				continue
			}
			if means := alike(pool.Labels, folded); means != "" {
				n.Spellings = append(n.Spellings, Spelling{label, means})
			} else {
				n.Missing = append(n.Missing, label)
			}
		}
		if len(labels) == 0 || len(n.Missing) == len(labels) {
			continue
		}
		n.Terminating = pool.Terminating && len(n.Missing)+len(n.Spellings) == 0
		near = append(near, n)
	}
	slices.SortFunc(near, func(a, b NearPool) int {
		return cmp.Or(cmp.Compare(a.distance(), b.distance()), cmp.Compare(a.Pool.Name, b.Pool.Name), cmp.Compare(a.Pool.Namespace, b.Pool.Namespace))
	})
	return near[:min(mostNear, len(near))]
}

func (n NearPool) distance() int { return 2*len(n.Missing) + len(n.Spellings) }

// alike is the label that is closest to one in lower case, if it differs in few letters; the first of several.
func alike(labels []string, folded string) string {
	best, closest := "", min(2, len([]rune(folded))/3)+1
	for _, label := range labels {
		if d := editDistance(folded, strings.ToLower(strings.TrimSpace(label))); d < closest {
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
	return "pool " + n.Pool.Name + " " + strings.Join(says, " and ")
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
