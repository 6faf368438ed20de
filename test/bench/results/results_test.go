package results_test

import (
	"encoding/json"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/test/bench/results"
)

func TestTable_ShowsEveryRunAndTheWorst(t *testing.T) {
	row := func(result string, kept bool) results.Row {
		return results.Row{ID: "P2", What: "rate", Measured: "9/s", Limit: "script: 10/s", Result: result, Budget: "≥ 0.5", Kept: kept}
	}
	runs := []results.Run{{Rows: []results.Row{row("0.40", false)}}, {Rows: []results.Row{row("0.90", true), {ID: "P10", What: "new", Result: "1×", Budget: "≤ 2×", Kept: true}}}}
	table := results.Table(runs)
	require.Contains(t, table, "results of 2 runs")
	require.Contains(t, table, "| P2 | rate | 9/s | script: 10/s | 0.40, 0.90 | ≥ 0.5 | **missed** |\n")
	require.Contains(t, table, "| P10 | new |  |  | 1× | ≤ 2× | kept |\n")
	runs[1].Rows = append(runs[1].Rows, results.Row{ID: "P2", What: "rate, one account", Measured: "8/s"}, results.Row{ID: "P4", What: "no headline"},
		results.Row{ID: "P6", What: "calls", Measured: "1", Limit: "count"})
	require.Equal(t, "| | measured | for comparison |\n|---|---|---|\n| rate | 9/s | script: 10/s |\n| calls | 1 |  |\n| new |  |  |\n", results.Short(runs),
		"the first row of each headline, in their order")
	require.Negative(t, results.Order("P2", "P10"))
	page, err := results.Between("a <b> old <e> c", "<b>", "<e>", "new\n")
	require.NoError(t, err)
	require.Equal(t, "a <b>\nnew\n<e> c", page)
	_, err = results.Between("a <e> <b>", "<b>", "<e>", "new")
	require.Error(t, err)
}

// The pages have the tables of the runs that lie beside them.
func TestPages_AreOfTheRunsBesideThem(t *testing.T) {
	var runs []results.Run
	text, err := os.ReadFile("../../../docs/internals/performance.json")
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(text, &runs))
	require.NotEmpty(t, runs)
	for page, table := range map[string]string{"../../../docs/internals/performance.md": results.Table(runs), "../../../README.md": results.Short(runs)} {
		text, err := os.ReadFile(page)
		require.NoError(t, err)
		require.Contains(t, string(text), table, "%s: run `make performance`", page)
	}
}
