package standin_test

import (
	"flag"
	"fmt"
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/internal/dev/github/standin"
)

var update = flag.Bool("update", false, "write the list of faults into docs/internals/github-stand-in.md")

const referencePage = "../../../../docs/internals/github-stand-in.md"

// catalogueAsMarkdown is the generated part of the page.
func catalogueAsMarkdown() string {
	var b strings.Builder
	for _, one := range standin.FaultCatalogue() {
		fmt.Fprintf(&b, "### `%s`\n\n%s\n\n", one.Kind, one.What)
		fields := make([]string, 0, len(one.Reads))
		for _, name := range one.Reads {
			field := "`" + name + "`"
			for _, needed := range one.Needs {
				if needed == name {
					field += " (needed)"
				}
			}
			fields = append(fields, field)
		}
		fmt.Fprintf(&b, "- Fields: %s\n- Imitates: %s\n- From: %s\n\n", strings.Join(fields, ", "), one.Imitates, one.Source)
	}
	return b.String()
}

func TestReference_ListsEveryFault(t *testing.T) {
	data, err := os.ReadFile(referencePage)
	require.NoError(t, err)
	page := string(data)
	const begin, end = "-update -->\n", "<!-- end -->"
	from, to := strings.Index(page, begin), strings.Index(page, end)
	require.Positive(t, from)
	require.Greater(t, to, from)
	from += len(begin)
	want := page[:from] + catalogueAsMarkdown() + page[to:]
	if *update {
		require.NoError(t, os.WriteFile(referencePage, []byte(want), 0o644))
		return
	}
	require.Equal(t, want, page, "run: go test ./internal/dev/github/standin -run TestReference -update")
}

// TestReference_IsComplete fails when a kind is not documented in full, or names a field that no fault has.
func TestReference_IsComplete(t *testing.T) {
	known := map[string]bool{}
	for f := range reflect.TypeFor[standin.Fault]().Fields() {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		known[name] = true
	}
	seen := map[standin.FaultKind]bool{}
	for _, one := range standin.FaultCatalogue() {
		require.False(t, seen[one.Kind], "%s is listed twice", one.Kind)
		seen[one.Kind] = true
		require.NotEmpty(t, one.What, one.Kind)
		require.NotEmpty(t, one.Imitates, one.Kind)
		require.NotEmpty(t, one.Source, one.Kind)
		require.NotEmpty(t, one.Reads, one.Kind)
		for _, name := range one.Reads {
			require.True(t, known[name], "%s reads %q, which no fault has", one.Kind, name)
		}
		require.Subset(t, one.Reads, one.Needs, one.Kind)
	}
}
