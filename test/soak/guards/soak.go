package guards

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/bullpen-ci/bullpen/test/soak/check"
)

// Result is what the checker made of one soak.
type Result struct {
	Guard Guard
	// Found counts findings by row.
	Found map[string]int
	Took  time.Duration
}

// Caught reports whether the checker has found what it had to; of the sound product, which has no rows, that it found nothing.
func (r Result) Caught() bool {
	if len(r.Guard.Rows) == 0 {
		return len(r.Found) == 0
	}
	return !slices.ContainsFunc(r.Guard.Rows, func(row string) bool { return r.Found[row] == 0 })
}

// Findings are the rows that were not zero.
func (r Result) Findings() string {
	var all []string
	for _, row := range check.Rows() {
		if n := r.Found[row]; n > 0 {
			all = append(all, fmt.Sprintf("%s %d", row, n))
		}
	}
	if len(all) == 0 {
		return "nothing"
	}
	return strings.Join(all, ", ")
}

// Soak runs the guard's scenario on these executables in the directory dir, which must not exist yet, and returns the checker's findings.
// The soak's output goes to out.
func (g Guard) Soak(ctx context.Context, b Binaries, dir string, seed uint64, out io.Writer) (Result, error) {
	began := time.Now()
	result := Result{Guard: g, Found: map[string]int{}}
	plan, err := g.Scenario.Schedule(seed)
	if err != nil {
		return result, err
	}
	written := dir + ".schedule.json"
	data, err := json.Marshal(plan)
	if err != nil {
		return result, fmt.Errorf("encoding a schedule: %w", err)
	}
	if err := os.WriteFile(written, data, 0o600); err != nil {
		return result, fmt.Errorf("writing a schedule: %w", err)
	}
	defer os.Remove(written)
	args := append([]string{"-binary=" + b.Product, "-agent=" + b.Agent, "-dir=" + dir, "-replay=" + written}, g.Scenario.arguments()...)
	soak := exec.CommandContext(ctx, b.Soak, args...)
	soak.Stdout, soak.Stderr = out, out
	soak.Cancel = func() error { return soak.Process.Signal(syscall.SIGTERM) } // it ends what it has started
	soak.WaitDelay = 2 * time.Minute
	err = soak.Run()
	result.Took = time.Since(began)
	var exit *exec.ExitError
	if err != nil && !(errors.As(err, &exit) && exit.ExitCode() == 1) {
		return result, fmt.Errorf("running the soak %s without %s: %w", g.Scenario.Name, g.Name, err)
	}
	report, err := os.ReadFile(filepath.Join(dir, "rounds", "0", "report.json"))
	if err != nil {
		return result, fmt.Errorf("reading what the checker found: %w", err)
	}
	var found check.Report
	if err := json.Unmarshal(report, &found); err != nil {
		return result, fmt.Errorf("reading what the checker found: %w", err)
	}
	for _, f := range found.Findings {
		result.Found[f.Row]++
	}
	return result, nil
}
