package bench

import (
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"text/tabwriter"
	"time"

	"github.com/bullpen-ci/bullpen/internal/dev/stats"
)

var discard = slog.New(slog.DiscardHandler)

// row is one line of the table: what was measured, the limit it is held to, how many samples that rests on and how far
// they lie apart, and whether it keeps its budget.
type row struct {
	id, what, measured, limit, result string
	value                             float64 // the result as a number
	samples                           int
	spread                            string // of the result or of what was measured; empty for a count
	budget                            string
	kept                              bool
}

var table struct {
	sync.Mutex
	rows []row
}

func report(r row) {
	table.Lock()
	defer table.Unlock()
	table.rows = slices.DeleteFunc(table.rows, func(old row) bool { return old.id == r.id && old.what == r.what })
	table.rows = append(table.rows, r)
}

func printTable() {
	table.Lock()
	defer table.Unlock()
	if len(table.rows) == 0 {
		return
	}
	slices.SortStableFunc(table.rows, func(a, b row) int { return strings.Compare(a.id, b.id) })
	fmt.Println()
	w := tabwriter.NewWriter(os.Stdout, 2, 4, 2, ' ', 0)
	_, _ = fmt.Fprintln(w, "id\twhat\tmeasured\tlimit in the same run\tresult\tsamples\tspread\tbudget\t")
	for _, r := range table.rows {
		mark := "ok"
		if !r.kept {
			mark = "MISSED"
		}
		spread := r.spread
		if spread == "" {
			spread = "–"
		}
		_, _ = fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%d\t%s\t%s\t%s\n", r.id, r.what, r.measured, r.limit, r.result, r.samples, spread, r.budget, mark)
	}
	_ = w.Flush()
}

// quartiles says between which two the middle half of the samples lies.
func quartiles(samples []time.Duration) string {
	return ms(stats.Quantile(samples, .25)) + "–" + ms(stats.Quantile(samples, .75))
}

// ratios compares two that were measured round by round: the median of the rounds' ratios, the lowest and the highest.
func ratios(of, to []time.Duration) (middle, low, high float64) {
	var all []float64
	for i := range of {
		all = append(all, float64(of[i])/float64(to[i]))
	}
	return stats.Median(all), slices.Min(all), slices.Max(all)
}

func seconds(d time.Duration) string { return fmt.Sprintf("%.2f s", d.Seconds()) }

func ms(d time.Duration) string { return fmt.Sprintf("%.2f ms", float64(d)/float64(time.Millisecond)) }
