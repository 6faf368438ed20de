package docs

import (
	"io/fs"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var (
	// below is a table's introduction or head that says below which directory those of its rows are.
	below  = regexp.MustCompile("`(internal/(?:[a-z]+/)?)`")
	quoted = regexp.MustCompile("`([^`]+)`")
)

// rooms are the directories that the tables of a page have rows for. One that ends in a slash, or whose row goes on with "…", stands for all
// below it.
func rooms(page string) (each map[string]bool, whole []string) {
	each = map[string]bool{}
	prefix := ""
	for line := range strings.Lines(page) {
		if found := below.FindStringSubmatch(line); found != nil && (strings.HasPrefix(line, "**") || strings.HasPrefix(line, "| `internal/` |")) {
			prefix = found[1]
			continue
		}
		cells := strings.Split(line, "|")
		switch {
		case strings.HasPrefix(line, "### "), strings.HasPrefix(line, "**"):
			prefix = ""
		case len(cells) < 3:
		case strings.TrimSpace(cells[1]) == "(itself)":
			each[strings.TrimSuffix(prefix, "/")] = true
		default:
			first := ""
			for _, found := range quoted.FindAllStringSubmatch(cells[1], -1) {
				name, relative := strings.CutPrefix(found[1], "…/")
				switch {
				case relative: // to the first of the row, or beside it
					each[path.Join(prefix, first, name)], each[path.Join(prefix, path.Dir(first), name)] = true, true
				default:
					first = name
					each[path.Join(prefix, name)] = true
				}
				if strings.HasSuffix(name, "/") {
					whole = append(whole, path.Join(prefix, name)+"/")
				}
			}
			if strings.HasSuffix(strings.TrimSpace(cells[1]), "` …") {
				whole = append(whole, path.Join(prefix, first)+"/")
			}
		}
	}
	return each, whole
}

// Each package has a row in the architecture's tables.
func TestArchitecture_HasARowForEachPackage(t *testing.T) {
	each, whole := rooms(pages(t)["ARCHITECTURE.md"])
	looked := 0
	var missing []string
	for _, dir := range []string{"api", "cmd", "internal"} {
		require.NoError(t, filepath.WalkDir(filepath.Join(top, dir), func(file string, entry fs.DirEntry, err error) error {
			if err != nil || entry.Name() != "doc.go" {
				return err
			}
			name, err := filepath.Rel(top, filepath.Dir(file))
			looked++
			name = filepath.ToSlash(name)
			grouped := slices.ContainsFunc(whole, func(group string) bool { return strings.HasPrefix(name, group) })
			if !each[name] && !grouped {
				missing = append(missing, name)
			}
			return err
		}))
	}
	require.Empty(t, missing, "ARCHITECTURE.md says nothing of these packages: add each to a row of a table")
	require.Greater(t, looked, 100)
}

func TestRooms(t *testing.T) {
	each, whole := rooms("### What ships\n\n| directory | what |\n|---|---|\n| `cmd/a`, `api/b` | x |\n\n**Shared**\n\n| `internal/` | what |\n|---|---|\n| `c`, `…/d` | x |\n\n" +
		"**`bullpen server`**: `internal/server/`\n\n| directory | what |\n|---|---|\n| (itself) | x |\n| `e/f`, `…/g` | `no` |\n| `h/`, `i` | x |\n| `j`, `…/k` … | x |\n\n### Never\n\n| `l` | x |\n")
	for _, name := range []string{"cmd/a", "api/b", "internal/c", "internal/c/d", "internal/server", "internal/server/e/f", "internal/server/e/g", "internal/server/i", "internal/server/j/k", "l"} {
		require.True(t, each[name], name)
	}
	require.False(t, each["internal/server/no"])
	require.Equal(t, []string{"internal/server/h/", "internal/server/j/"}, whole)
}
