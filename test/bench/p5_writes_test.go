package bench

import (
	"fmt"
	"testing"

	"github.com/bullpen-ci/bullpen/test/kit"
	whole "github.com/bullpen-ci/bullpen/test/kit/rig"
)

const p5Jobs = 20

// BenchmarkP5 counts what server and controller write to the API server for one job, over its whole life. Everything is
// real but the inside of the pods. `make costs` writes the whole table of calls.
func BenchmarkP5(b *testing.B) {
	for b.Loop() {
		fleet := whole.Start(b, whole.Options{Cluster: kit.Private(b), Database: newDatabase(b), Nodes: 1, PodsEach: 50})
		perJob := fleet.CostOfAJob(p5Jobs)
		writes := whole.WritesOfAJob(perJob)
		b.ReportMetric(writes, "writes/job")
		parts := ""
		for _, call := range whole.Sorted(perJob) {
			if call.Write() && (call.Component == whole.Server || call.Component == whole.Controller) {
				parts += fmt.Sprintf("%s %s %.1f, ", call.Verb, call.Resource, perJob[call])
			}
		}
		report(row{
			id: "P5", what: "writes to the API server per job, server and controller", measured: parts[:max(0, len(parts)-2)], limit: "count",
			result: fmt.Sprintf("%.2f", writes), value: writes, samples: p5Jobs, budget: "≤ 6", kept: writes <= 6,
		})
	}
}
