package bench

import (
	"fmt"
	"os/exec"
	"regexp"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/test/kit/await"
)

// BenchmarkP9 compares what one event of a pod costs the controller in a pool of 5,000 and in one of 50. The measured code lies inside the
// controller, so the benchmark does, too: BenchmarkReplacement in internal/controller/pool, which this one runs. It counts processor time,
// on which the load of the machine has little effect.
func BenchmarkP9(b *testing.B) {
	for b.Loop() {
		out, err := exec.CommandContext(await.ContextWithin(b, 20*time.Minute), "go", "test", "-run", "^$", "-bench", "^BenchmarkReplacement$", "-timeout", "5m",
			"github.com/bullpen-ci/bullpen/internal/controller/pool").CombinedOutput()
		require.NoError(b, err, "%s", out)
		metric := func(unit string) float64 {
			found := regexp.MustCompile(`\s([0-9.]+) ` + regexp.QuoteMeta(unit) + `\s`).FindSubmatch(out)
			require.NotNil(b, found, "no %s in:\n%s", unit, out)
			value, err := strconv.ParseFloat(string(found[1]), 64)
			require.NoError(b, err)
			return value
		}
		ratio := metric("ratio")
		b.ReportMetric(ratio, "ratio")
		report(row{
			id: "P9", what: "one pod's event, and its pass, in a pool of 5,000", measured: micros(metric("ns/event-of-5000")),
			limit: "in a pool of 50: " + micros(metric("ns/event-of-50")), result: fmt.Sprintf("%.2f×", ratio), value: ratio,
			samples: int(metric("rounds")), spread: fmt.Sprintf("%.2f–%.2f×", metric("ratio-q1"), metric("ratio-q3")),
			budget: "≤ 3×", kept: ratio <= 3,
		})
	}
}

func micros(ns float64) string { return fmt.Sprintf("%.0f µs of CPU", ns/1000) }
