package bench

import (
	"flag"
	"fmt"
	"runtime"
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
	for _, r := range table.rows {
		run.Rows = append(run.Rows, results.Row{
			ID: r.id, What: r.what, Measured: r.measured, Limit: r.limit, Result: r.result, Value: r.value, Samples: r.samples, Spread: r.spread, Budget: r.budget, Kept: r.kept,
		})
	}
	if err := results.Merge(file, run); err != nil {
		return err
	}
	fmt.Println("\nAs JSON:", strings.TrimSpace(file))
	return nil
}
