package growth

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/bullpen-ci/bullpen/internal/dev/stats"
)

// Run is a fleet under load, sampled at intervals of a number of jobs.
type Run struct {
	Pods     int      `json:"pods"`
	Nodes    int      `json:"nodes"`
	Queued   int      `json:"queued"` // jobs that wait, all the while
	Accounts int      `json:"accounts"`
	Samples  []Sample `json:"samples"` // in the order of Jobs; the first one is taken when most runners have a job and the backlog is there
}

// Sample is one sample of a run.
type Sample struct {
	Jobs          int             `json:"jobs"` // that have ended so far
	Seconds       float64         `json:"seconds"`
	Queued        int             `json:"queued"`
	Executing     int             `json:"executing"`
	DatabaseBytes int64           `json:"database_bytes"`
	Parts         map[string]Part `json:"parts"` // by name
}

// Part is what a process takes.
type Part struct {
	// HeapBytes is what was alive in its heap at the last collection.
	HeapBytes     float64 `json:"heap_bytes"`
	ResidentBytes float64 `json:"resident_bytes"`
	Goroutines    float64 `json:"goroutines"`
	CPUSeconds    float64 `json:"cpu_seconds"` // since its start
}

// The definition of growth: what an hour's jobs would add, beyond a share of the present value and a fixed amount, because a cache that
// fills and a list that doubles are no leak.
const (
	share           = 0.1
	spareBytes      = 4 << 20
	spareGoroutines = 400
	dearer          = 0.5 // of the processor time: by no more it may rise in an hour, for a busy machine makes all work dearer
	slower          = 0.5 // of the jobs that end a second: by no more they may become fewer
	jobsToTellCosts = 1000
)

// jobsAnHour is how many jobs a runner does in an hour, at most. Jobs of a second may end a thousand times as often, and a
// run of a minute says nothing of an hour.
const jobsAnHour = 4

// hour is how many jobs end in an hour: as many as did, by how long that took.
func (r Run) hour() float64 {
	most := float64(jobsAnHour * r.Pods)
	seconds := r.Samples[len(r.Samples)-1].Seconds - r.Samples[0].Seconds
	if seconds <= 0 {
		return most
	}
	return min(most, float64(r.jobs())*3600/seconds)
}

// names are the parts that were sampled.
func (r Run) names() []string {
	if len(r.Samples) == 0 {
		return nil
	}
	return slices.Sorted(maps.Keys(r.Samples[0].Parts))
}

// settled are the samples without the first quarter, in which caches fill.
func (r Run) settled() []Sample { return r.Samples[len(r.Samples)/4:] }

// Growing says of each part what grows with the jobs that have ended; nothing, if nothing does.
func (r Run) Growing() []string {
	if len(r.settled()) < 4 {
		return []string{fmt.Sprintf("%d samples tell nothing", len(r.Samples))}
	}
	var found []string
	for _, name := range r.names() {
		for _, what := range []struct {
			name, unit string
			of         func(Part) float64
			spare      float64
		}{
			{"heap", "bytes", func(p Part) float64 { return p.HeapBytes }, spareBytes},
			{"goroutines", "of them", func(p Part) float64 { return p.Goroutines }, spareGoroutines},
		} {
			perJob, middle := r.slope(name, what.of), r.median(name, what.of)
			if hour := perJob * r.hour(); hour > share*middle+what.spare {
				found = append(found, fmt.Sprintf("%s of the %s: %.1f %s a job, %.0f in an hour, and %.0f are there", what.name, name, perJob, what.unit, hour, middle))
			}
		}
		if r.restarted(name) {
			found = append(found, fmt.Sprintf("the %s was restarted in the meantime: its figures are of two", name))
			continue
		}
		if rise := r.dearer(name); r.jobs() >= jobsToTellCosts && rise > dearer {
			found = append(found, fmt.Sprintf("processor time of the %s: %.0f %% more in an hour", name, 100*rise))
		}
	}
	if rate := r.rates(); r.jobs() >= jobsToTellCosts && -slope(rate)*r.hour() > slower*stats.Median(ys(rate)) {
		found = append(found, fmt.Sprintf("time from one job's end to the next: %.1f end a second, and %.1f fewer after an hour", stats.Median(ys(rate)), -slope(rate)*r.hour()))
	}
	return found
}

func (r Run) jobs() int {
	if len(r.Samples) == 0 {
		return 0
	}
	return r.Samples[len(r.Samples)-1].Jobs - r.Samples[0].Jobs
}

// slope is by how much a job raises it.
func (r Run) slope(part string, of func(Part) float64) float64 {
	var points []point
	for _, s := range r.settled() {
		points = append(points, point{float64(s.Jobs), of(s.Parts[part])})
	}
	return slope(points)
}

func (r Run) median(part string, of func(Part) float64) float64 {
	var values []float64
	for _, s := range r.settled() {
		values = append(values, of(s.Parts[part]))
	}
	return stats.Median(values)
}

// dearer is the relative increase of the part's processor time per hour. The cost depends on time (idle runners, leases) and on jobs, and
// jobs end in bursts: so each stretch between two samples is compared with the prediction of all of them for a stretch of the same length
// and number of jobs.
func (r Run) dearer(part string) float64 {
	settled := r.settled()
	var rates, spent []float64 // jobs a second, and processor time a second
	for i, s := range settled[1:] {
		seconds := s.Seconds - settled[i].Seconds
		rates = append(rates, float64(s.Jobs-settled[i].Jobs)/seconds)
		spent = append(spent, (s.Parts[part].CPUSeconds-settled[i].Parts[part].CPUSeconds)/seconds)
	}
	aSecond, aJob := fit(rates, spent)
	var points []point
	for i, s := range settled[1:] {
		points = append(points, point{float64(s.Jobs), spent[i] / (aSecond + aJob*rates[i])})
	}
	return slope(points) * r.hour()
}

// restarted: its processor time is counted from a later start.
func (r Run) restarted(part string) bool {
	for i, s := range r.Samples[1:] {
		if s.Parts[part].CPUSeconds < r.Samples[i].Parts[part].CPUSeconds {
			return true
		}
	}
	return false
}

// rates are how many jobs ended a second, between each two samples.
func (r Run) rates() []point {
	var points []point
	settled := r.settled()
	for i, s := range settled[1:] {
		points = append(points, point{float64(s.Jobs), float64(s.Jobs-settled[i].Jobs) / (s.Seconds - settled[i].Seconds)})
	}
	return points
}

// fit is the line through these points that is nearest to them, by least squares: none of its parts is below zero, for neither a second nor a job gives time back.
func fit(xs, ys []float64) (base, each float64) {
	x, y := mean(xs), mean(ys)
	var both, square float64
	for i := range xs {
		both += (xs[i] - x) * (ys[i] - y)
		square += (xs[i] - x) * (xs[i] - x)
	}
	if square == 0 || both <= 0 {
		return y, 0
	}
	if each = both / square; each*x > y {
		return 0, y / x
	}
	return y - each*x, each
}

func mean(values []float64) (sum float64) {
	for _, v := range values {
		sum += v
	}
	return sum / float64(len(values))
}

func ys(points []point) []float64 {
	var all []float64
	for _, p := range points {
		all = append(all, p.y)
	}
	return all
}

type point struct{ x, y float64 }

// slope is the median of all slopes between two points, which single high ones do not move.
func slope(points []point) float64 {
	var slopes []float64
	for i, a := range points {
		for _, b := range points[i+1:] {
			if b.x > a.x {
				slopes = append(slopes, (b.y-a.y)/(b.x-a.x))
			}
		}
	}
	return stats.Median(slopes)
}

// perJob is the part's processor time for each job between two samples, in milliseconds.
func perJob(part string, from, to Sample) float64 {
	return 1000 * (to.Parts[part].CPUSeconds - from.Parts[part].CPUSeconds) / float64(max(to.Jobs-from.Jobs, 1))
}

const mib = 1 << 20

// Table shows the run in Markdown, a row for every tenth of it.
func (r Run) Table() string {
	var out strings.Builder
	out.WriteString("| jobs ended | minutes | queued | executing |")
	rule := "|--:|--:|--:|--:|"
	for _, name := range r.names() {
		fmt.Fprintf(&out, " %s: heap, MiB | resident, MiB | goroutines | processor time a job, ms |", name)
		rule += "--:|--:|--:|--:|"
	}
	fmt.Fprintf(&out, " database, kB a job |\n%s--:|\n", rule)
	rows := min(10, len(r.Samples)-1)
	for i := range rows + 1 {
		at := i * (len(r.Samples) - 1) / max(rows, 1)
		s, before := r.Samples[at], r.Samples[(max(i, 1)-1)*(len(r.Samples)-1)/max(rows, 1)]
		fmt.Fprintf(&out, "| %d | %.1f | %d | %d |", s.Jobs, s.Seconds/60, s.Queued, s.Executing)
		for _, name := range r.names() {
			cost := "–"
			if i > 0 {
				cost = fmt.Sprintf("%.2f", perJob(name, before, s))
			}
			p := s.Parts[name]
			fmt.Fprintf(&out, " %.1f | %.1f | %.0f | %s |", p.HeapBytes/mib, p.ResidentBytes/mib, p.Goroutines, cost)
		}
		grown := "–"
		if i > 0 {
			grown = fmt.Sprintf("%.2f", float64(s.DatabaseBytes-before.DatabaseBytes)/1000/float64(max(s.Jobs-before.Jobs, 1)))
		}
		fmt.Fprintf(&out, " %s |\n", grown)
	}
	return out.String()
}

// Sentence says what was run.
func (r Run) Sentence() string {
	if len(r.Samples) == 0 {
		return "Nothing was sampled."
	}
	last := r.Samples[len(r.Samples)-1]
	return fmt.Sprintf("%d pods on %d nodes, %d jobs queued, %d accounts; %d jobs ended in %.0f minutes, %.1f a second.",
		r.Pods, r.Nodes, r.Queued, r.Accounts, r.jobs(), last.Seconds/60, float64(r.jobs())/cmp.Or(last.Seconds-r.Samples[0].Seconds, 1))
}
