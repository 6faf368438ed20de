package runnerkinds

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// sources are the tests of a package's directory, from the top of the repository.
func sources(t *testing.T, dir string) []*ast.File {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("..", "..", dir, "*_test.go"))
	require.NoError(t, err)
	var all []*ast.File
	for _, file := range files {
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
		require.NoError(t, err)
		all = append(all, parsed)
	}
	return all
}

// tests are the test functions of a package's directory.
func tests(t *testing.T, dir string) map[string]bool {
	t.Helper()
	found := map[string]bool{}
	for _, parsed := range sources(t, dir) {
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
	dirs := map[string]map[string]bool{}
	for _, section := range Sections() {
		for _, item := range section.Items {
			for _, test := range item.Shown {
				if dirs[test.Folder] == nil {
					dirs[test.Folder] = tests(t, test.Folder)
				}
				require.True(t, dirs[test.Folder][test.Name],
					"item %s is shown by %s of %s, which does not exist: was it renamed?", item.ID, test.Name, test.Folder)
			}
		}
	}
}

// named reports whether a test of the directory, or a case of one, has the word in its name: comments do not count.
func named(t *testing.T, test Test, word string) bool {
	t.Helper()
	if strings.Contains(test.Name, word) {
		return true
	}
	found := false
	for _, parsed := range sources(t, test.Folder) {
		ast.Inspect(parsed, func(n ast.Node) bool {
			text, is := n.(*ast.BasicLit)
			found = found || is && text.Kind == token.STRING && strings.Contains(text.Value, word)
			return true
		})
	}
	return found
}

// Every commit that fixed something there after the two code paths had become one is the name of a test here.
func TestRegistry_EveryMendedDefectIsANamedTest(t *testing.T) {
	var commits []string
	for _, section := range Sections() {
		for _, item := range section.Items {
			require.Equal(t, item.Standard == Regression, len(item.Commits) > 0, item.ID)
			for _, commit := range item.Commits {
				commits = append(commits, commit)
				require.True(t, slices.ContainsFunc(item.Shown, func(test Test) bool { return named(t, test, commit) }),
					"%s: no test, and no case of one, that shows it has %s in its name", item.ID, commit)
			}
		}
	}
	require.ElementsMatch(t, []string{
		"bed92705", "14a878bf", "c95e84a5", "fa287c43", "adc889ce", "c612e87d", "791634fb", "4551309e", "cbbc383a", "c4b24f83", "9628bb29",
		"f153870f", "efb7fca3", "a3072c11", "7ff5b7da", "23c8fe4a", "759349de", "e46b90f7", "b09c5404", "79a31328", "e2c8163b", "af96de61",
	}, commits)
}

func TestDocument_IsWhatIsCommitted(t *testing.T) {
	committed, err := os.ReadFile(filepath.Join("..", "..", "docs", "reference", "runner-kinds.md"))
	require.NoError(t, err)
	require.Equal(t, Document(), string(committed), "run make generate")
}

// An item that the code cites as K 2.2 is the same as elsewhere, and F 2.8 one that is better than elsewhere.
func TestItems_AreCitedByTheirLetter(t *testing.T) {
	letters := map[Standard]string{Matched: "K", Better: "F"}
	items := map[string]bool{}
	for _, section := range Sections() {
		for _, item := range section.Items {
			items[letters[item.Standard]+" "+item.ID] = true
		}
	}
	require.True(t, items["K 2.2"] && items["F 2.8"], "the examples of the page")
	citation := regexp.MustCompile(`\b[KF] \d+\.\d+\b`)
	cited := 0
	require.NoError(t, filepath.WalkDir("../../internal", func(path string, _ os.DirEntry, err error) error {
		if err != nil || filepath.Ext(path) != ".go" {
			return err
		}
		content, err := os.ReadFile(path)
		for _, found := range citation.FindAllString(string(content), -1) {
			cited++
			require.True(t, items[found], "%s cites %s", path, found)
		}
		return err
	}))
	require.Greater(t, cited, 20, "no citation was read")
}
