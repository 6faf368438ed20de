package results

import (
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Row is one line of the table: what was measured, and what it is held to.
type Row struct {
	ID       string  `json:"id"`
	What     string  `json:"what"`
	Measured string  `json:"measured"`
	Limit    string  `json:"limit"`  // measured in the same run; "count" where there is none
	Result   string  `json:"result"` // as people read it
	Value    float64 `json:"value"`  // the same as a number
	Samples  int     `json:"samples"`
	Spread   string  `json:"spread,omitempty"`
	Budget   string  `json:"budget"`
	Kept     bool    `json:"kept"`
}

// Run is one run of all benchmarks.
type Run struct {
	At       time.Time `json:"at"`
	Cores    int       `json:"cores"`
	Go       string    `json:"go"`
	Platform string    `json:"platform"`
	Rows     []Row     `json:"rows"`
}

// Merge writes a run into a file. Rows of an id that the run did not measure stay as the file has them, so that one can be measured again. Without a
// file's name it does nothing.
func Merge(file string, run Run) error {
	if file == "" {
		return nil
	}
	measured := map[string]bool{}
	for _, r := range run.Rows {
		measured[r.ID] = true
	}
	var former Run
	if text, err := os.ReadFile(file); err == nil && json.Unmarshal(text, &former) == nil { //nolint:gosec // a file that the caller names
		for _, r := range former.Rows {
			if !measured[r.ID] {
				run.Rows = append(run.Rows, r)
			}
		}
	}
	slices.SortStableFunc(run.Rows, func(a, b Row) int { return Order(a.ID, b.ID) })
	text, err := json.MarshalIndent(run, "", "  ")
	if err != nil {
		return fmt.Errorf("encoding the results: %w", err)
	}
	if err := os.WriteFile(file, append(text, '\n'), 0o644); err != nil { //nolint:gosec // world-readable
		return fmt.Errorf("writing the results: %w", err)
	}
	return nil
}

// Order sorts ids as people do: P2 before P10.
func Order(a, b string) int {
	number := func(id string) int {
		n, _ := strconv.Atoi(strings.TrimPrefix(id, "P")) // an id without one comes first
		return n
	}
	return cmp.Or(cmp.Compare(number(a), number(b)), strings.Compare(a, b))
}

// Table is in Markdown: the rows of the last run, with the results of all.
func Table(runs []Run) string {
	if len(runs) == 0 {
		return ""
	}
	var b strings.Builder
	b.WriteString("| | what | measured | against | " + plural(len(runs)) + " | budget | |\n|---|---|---|---|---|---|---|\n")
	for _, r := range runs[len(runs)-1].Rows {
		var results []string
		kept := true
		for _, run := range runs {
			if same, ok := run.find(r); ok {
				results, kept = append(results, same.Result), kept && same.Kept
			}
		}
		verdict := "kept"
		if !kept {
			verdict = "**missed**"
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s | %s | %s |\n", r.ID, r.What, r.Measured, r.Limit, strings.Join(results, ", "), r.Budget, verdict)
	}
	return b.String()
}

func plural(runs int) string {
	if runs == 1 {
		return "result"
	}
	return fmt.Sprintf("results of %d runs", runs)
}

func (r Run) find(row Row) (Row, bool) {
	for _, other := range r.Rows {
		if other.ID == row.ID && other.What == row.What {
			return other, true
		}
	}
	return Row{}, false
}

// headlines are the benchmarks of the front page, in the order in which a job meets them.
var headlines = []string{"P1", "P3", "P2", "P7", "P6", "P10"}

// Short is the table of the front page: the first row of each headline in the last run, with what it is compared with. All rows, the
// results of all runs and the budgets are in Table.
func Short(runs []Run) string {
	if len(runs) == 0 {
		return ""
	}
	var b strings.Builder
	b.WriteString("| | measured | for comparison |\n|---|---|---|\n")
	for _, id := range headlines {
		for _, r := range runs[len(runs)-1].Rows {
			if r.ID == id {
				fmt.Fprintf(&b, "| %s | %s | %s |\n", r.What, r.Measured, strings.TrimPrefix(r.Limit, "count"))
				break
			}
		}
	}
	return b.String()
}

// Between puts a text between two marks of a page, which stay.
func Between(page, begin, end, text string) (string, error) {
	head, rest, found := strings.Cut(page, begin)
	if !found {
		return "", fmt.Errorf("the page has no %s", begin)
	}
	_, tail, found := strings.Cut(rest, end)
	if !found {
		return "", fmt.Errorf("the page has no %s after %s", end, begin)
	}
	return head + begin + "\n" + text + end + tail, nil
}
