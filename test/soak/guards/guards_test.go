package guards_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"

	"github.com/bullpen-ci/bullpen/test/soak/check"
	"github.com/bullpen-ci/bullpen/test/soak/guards"
	"github.com/bullpen-ci/bullpen/test/soak/schedule"
)

func root(t *testing.T) string {
	t.Helper()
	dir, err := guards.Root(".")
	require.NoError(t, err)
	return dir
}

// Every text that a guard names is still there, once; a table that names missing texts proves nothing.
func TestTable_NamesWhatIsThere(t *testing.T) {
	names := map[string]bool{}
	for _, g := range guards.Table() {
		require.False(t, names[g.Name], "%s is there twice", g.Name)
		names[g.Name] = true
		require.NotEmpty(t, g.Invariant, g.Name)
		require.NotEmpty(t, g.Off, g.Name)
		require.NotEmpty(t, g.Edits, g.Name)
		require.NotEmpty(t, g.Rows, g.Name)
		for _, row := range g.Rows {
			require.Contains(t, check.Rows(), row, g.Name)
		}
		files, err := g.Weaken(root(t))
		require.NoError(t, err)
		for path, text := range files {
			before, err := os.ReadFile(filepath.Join(root(t), path))
			require.NoError(t, err)
			require.NotEqual(t, string(before), text, "%s: %s", g.Name, path)
			if filepath.Ext(path) == ".yaml" {
				for document := range strings.SplitSeq(text, "\n---\n") {
					var object map[string]any
					require.NoError(t, yaml.Unmarshal([]byte(document), &object), "%s: %s", g.Name, path)
				}
			}
		}
	}
}

func TestWeaken_RefusesWhatIsNotThereOnce(t *testing.T) {
	g := guards.Guard{Name: "none", Edits: []guards.Edit{{File: "go.mod", Old: "no such line"}}}
	_, err := g.Weaken(root(t))
	require.ErrorIs(t, err, guards.ErrNotOnce)
	g.Edits[0].Old = "github.com/"
	_, err = g.Weaken(root(t))
	require.ErrorIs(t, err, guards.ErrNotOnce)
}

// Each row of the checker's table that the product protects has a guard that must be found in it.
func TestTable_CoversEveryRow(t *testing.T) {
	var covered []string
	for _, g := range guards.Table() {
		covered = append(covered, g.Rows...)
	}
	for _, row := range check.Rows() {
		_, unguarded := guards.Unguarded()[row]
		require.NotEqual(t, slices.Contains(covered, row), unguarded, "row %q", row)
	}
}

// A schedule can be made of each scenario, is the same for the same seed, and one name means one scenario.
func TestTable_SchedulesCanBeMade(t *testing.T) {
	seen := map[string]guards.Scenario{}
	for _, g := range guards.Table() {
		plan, err := g.Scenario.Schedule(5)
		require.NoError(t, err)
		again, err := g.Scenario.Schedule(5)
		require.NoError(t, err)
		require.Equal(t, plan, again)
		require.True(t, len(plan.Load) > 0 || plan.Keep != nil, g.Name)
		for i, step := range plan.Steps {
			require.Equal(t, i+1, step.Number)
			require.Contains(t, schedule.Kinds(), step.Kind, g.Name)
			require.LessOrEqual(t, step.At, plan.Options.Length, "%s: %s", g.Name, step)
			if step.Kind == schedule.GitHub {
				require.Contains(t, schedule.GitHubFaults(), step.Fault, g.Name)
			}
			if step.Kind == schedule.DieAt {
				require.Contains(t, schedule.Points(), step.Target, g.Name)
			}
		}
		before, known := seen[g.Scenario.Name]
		require.True(t, !known || assertSame(before, g.Scenario), "two scenarios are called %s", g.Scenario.Name)
		seen[g.Scenario.Name] = g.Scenario
	}
}

func assertSame(a, b guards.Scenario) bool {
	left, err := a.Schedule(1)
	if err != nil {
		return false
	}
	right, err := b.Schedule(1)
	return err == nil && len(left.Steps) == len(right.Steps) && len(left.Load) == len(right.Load) && a.Says == b.Says
}

// The product can be built without its guards. As many as possible are removed at once, and packages alone are compiled.
func TestTable_BuildsWithoutTheGuards(t *testing.T) {
	if testing.Short() {
		t.Skip("compiles some fifteen packages")
	}
	all, err := guards.Together(root(t), guards.Table())
	require.NoError(t, err)
	require.Less(t, len(all), 4, "most guards have nothing to do with each other")
	for _, g := range all {
		require.NoError(t, g.Compile(t.Context(), root(t), t.TempDir()))
	}
}

// The guide shows the table that is here.
func TestGuide_ShowsTheTable(t *testing.T) {
	guide, err := os.ReadFile(filepath.Join(root(t), "docs", "internals", "soak.md"))
	require.NoError(t, err)
	require.Contains(t, string(guide), guards.Markdown(), "print it anew: go run ./test/soak/guards/run -list")
}
