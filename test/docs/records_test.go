package docs

import (
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const (
	records        = "docs/adr/"
	recordsIndex   = records + "README.md"
	recordTemplate = records + "0000-template.md"
)

// The index of decisions has each record once, with its title.
func TestRecords_AreInTheirIndex(t *testing.T) {
	all := pages(t)
	var want, got []string
	for name, text := range all {
		if !strings.HasPrefix(name, records) || name == recordsIndex || name == recordTemplate {
			continue
		}
		title, _, _ := strings.Cut(text, "\n")
		number, said, is := strings.Cut(strings.TrimPrefix(title, "# "), ": ")
		require.True(t, is && strings.HasPrefix(path.Base(name), number+"-"), "%s: its title is not its number, a colon and a decision: %q", name, title)
		want = append(want, "- ["+number+"]("+path.Base(name)+"): "+said)
	}
	for line := range strings.Lines(all[recordsIndex]) {
		if strings.HasPrefix(line, "- [") {
			got = append(got, strings.TrimSpace(line))
		}
	}
	slices.Sort(want)
	for _, line := range want {
		require.Contains(t, got, line, "%s lacks a record: add the line below the heading of its subject", recordsIndex)
	}
	for _, line := range got {
		require.Contains(t, want, line, "%s lists what is no record", recordsIndex)
	}
	require.Len(t, got, len(want), "%s lists a record twice", recordsIndex)
	require.Greater(t, len(got), 60)
}
