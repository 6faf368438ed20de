package runnerkinds

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// tests are the test functions of a package's folder, from the top of the repository.
func tests(t *testing.T, folder string) map[string]bool {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("..", "..", folder, "*_test.go"))
	require.NoError(t, err)
	found := map[string]bool{}
	for _, file := range files {
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
		require.NoError(t, err)
		for _, declaration := range parsed.Decls {
			function, is := declaration.(*ast.FuncDecl)
			if is && function.Recv == nil && strings.HasPrefix(function.Name.Name, "Test") {
				found[function.Name.Name] = true
			}
		}
	}
	return found
}

func TestRegistry_ItemsAreWhole(t *testing.T) {
	seen := map[string]bool{}
	for _, section := range Sections() {
		require.NotEmpty(t, section.Items, section.Title)
		for _, item := range section.Items {
			require.False(t, seen[item.ID], "two items are called %s", item.ID)
			seen[item.ID] = true
			require.NotEmpty(t, item.Expected, item.ID)
			require.Contains(t, []Standard{Matched, Better, Regression}, item.Standard, item.ID)
			require.True(t, len(item.Shown) > 0 || item.Missing != "", "%s has no test, and does not say what is missing", item.ID)
		}
	}
}

// A test that an item rests on and that was renamed or deleted is noticed here.
func TestRegistry_EveryNamedTestExists(t *testing.T) {
	folders := map[string]map[string]bool{}
	for _, section := range Sections() {
		for _, item := range section.Items {
			for _, test := range item.Shown {
				if folders[test.Folder] == nil {
					folders[test.Folder] = tests(t, test.Folder)
				}
				require.True(t, folders[test.Folder][test.Name],
					"item %s is shown by %s of %s, which does not exist: was it renamed?", item.ID, test.Name, test.Folder)
			}
		}
	}
}

func TestDocument_IsWhatIsCommitted(t *testing.T) {
	committed, err := os.ReadFile(filepath.Join("..", "..", "docs", "reference", "runner-kinds.md"))
	require.NoError(t, err)
	require.Equal(t, Document(), string(committed), "run make generate")
}
