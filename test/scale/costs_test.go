package scale

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/test/kit"
	"github.com/bullpen-ci/bullpen/test/kit/postgrestest"
	"github.com/bullpen-ci/bullpen/test/kit/rig"
)

var updateFlag = flag.Bool("update", false, "write the measured costs into docs/reference/costs.md")

const (
	costsFile  = "../../docs/reference/costs.md"
	costsBegin = "<!-- begin: measured by make costs -->\n"
	costsEnd   = "<!-- end -->\n"
	costJobs   = 20
	costBudget = 6 // P5
)

// TestCosts counts what one job costs over its whole life, from the pod that waits for it to the pod that takes its
// place, and holds docs/reference/costs.md to it. The jobs run one after another, in a small pool that is otherwise idle.
func TestCosts_P5_OneJobsCallsAreThoseOfTheDocument(t *testing.T) {
	fleet := rig.Start(t, rig.Options{Cluster: kit.Cluster(t), Database: postgrestest.NewDatabase(t, nil), Nodes: 1, PodsEach: 50})
	measured := fleet.CostOfAJob(costJobs)
	writes := rig.WritesOfAJob(measured)
	t.Logf("%.2f writes per job by server and controller:\n%s", writes, costTable(measured))
	require.LessOrEqual(t, writes, float64(costBudget), "P5")
	document, err := os.ReadFile(costsFile)
	require.NoError(t, err)
	before, rest, found := bytes.Cut(document, []byte(costsBegin))
	require.True(t, found)
	table, after, found := bytes.Cut(rest, []byte(costsEnd))
	require.True(t, found)
	if *updateFlag {
		document = fmt.Appendf(nil, "%s%s%s%s%s", before, costsBegin, costTable(measured), costsEnd, after)
		require.NoError(t, os.WriteFile(costsFile, document, 0o600))
		return
	}
	require.Equal(t, listed(string(table)), listed(costTable(measured)), "the document is out of date: run make costs, and check the changes")
}

// listed reduces a table to what does not depend on how busy the machine is: which calls there are, and the counts of
// those that are made exactly so often for each job.
func listed(table string) []string {
	var rows []string
	for line := range strings.Lines(table) {
		cells := strings.Split(strings.Trim(line, "|\n "), "|")
		if len(cells) != 4 || !exact(strings.TrimSpace(cells[0]), strings.TrimSpace(cells[2]), strings.TrimSpace(cells[1])) {
			continue
		}
		rows = append(rows, line)
	}
	return rows
}

// exact reports whether a job causes exactly that many of these calls, however things interleave. A status may be written once for two
// changes, Events are aggregated, and a poll is repeated for as long as there is no work.
func exact(component, resource, verb string) bool {
	switch component {
	case rig.Controller:
		return (verb == "create" || verb == "delete") && (resource == "pods" || resource == "serviceaccounts")
	case rig.Server:
		return resource == "pods" && verb == "patch"
	case rig.NodeAgent:
		return resource == "serviceaccounts/token"
	case rig.Poller:
		return strings.HasSuffix(resource, "200") || strings.HasPrefix(resource, "/internal/v1/dispatch/ack")
	}
	return false
}

func costTable(measured map[rig.Call]float64) string {
	var out strings.Builder
	out.WriteString("| component | verb | resource | calls per job |\n|---|---|---|--:|\n")
	for _, call := range rig.Sorted(measured) {
		n := fmt.Sprintf("%.1f", measured[call])
		if exact(call.Component, call.Resource, call.Verb) {
			n = fmt.Sprintf("%.0f", measured[call])
		}
		fmt.Fprintf(&out, "| %s | %s | %s | %s |\n", call.Component, call.Verb, call.Resource, n)
	}
	return out.String()
}
