package bench

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/bullpen-ci/bullpen/test/bench/results"
)

var resultsFile = flag.String("results", "", "file that the table is written to as JSON")

// writeResults writes what was reported. Rows of an id that this run did not measure stay as the file has them, so that one can be measured again.
func writeResults(file string, now time.Time) error {
	table.Lock()
	defer table.Unlock()
	if file == "" || len(table.rows) == 0 {
		return nil
	}
	run := results.Run{At: now.UTC().Truncate(time.Second), Cores: runtime.NumCPU(), Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	measured := map[string]bool{}
	for _, r := range table.rows {
		measured[r.id] = true
		run.Rows = append(run.Rows, results.Row{
			ID: r.id, What: r.what, Measured: r.measured, Limit: r.limit, Result: r.result, Value: r.value, Samples: r.samples, Spread: r.spread, Budget: r.budget, Kept: r.kept,
		})
	}
	var former results.Run
	if text, err := os.ReadFile(file); err == nil && json.Unmarshal(text, &former) == nil {
		for _, r := range former.Rows {
			if !measured[r.ID] {
				run.Rows = append(run.Rows, r)
			}
		}
	}
	slices.SortStableFunc(run.Rows, func(a, b results.Row) int { return results.Order(a.ID, b.ID) })
	text, err := json.MarshalIndent(run, "", "  ")
	if err != nil {
		return fmt.Errorf("encoding the results: %w", err)
	}
	if err := os.WriteFile(file, append(text, '\n'), 0o644); err != nil { //nolint:gosec // world-readable
		return fmt.Errorf("writing the results: %w", err)
	}
	fmt.Println("\nAs JSON:", strings.TrimSpace(file))
	return nil
}
