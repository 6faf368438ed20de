package architecture

import (
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const invariantsPage = "docs/internals/invariants.md"

// A prefix that is missing here is no id: UTF-8 and SHA-256 have the same form.
const idPrefixes = `(EXCL|POOL|POD|CLAIM|RECV|NET|NODE|HOST|RUN|SCALE|JOB|TEN)`

var (
	listedID = regexp.MustCompile(`(?m)^\| ` + idPrefixes + `-(\d+) \|`)
	citedID  = regexp.MustCompile(`\b` + idPrefixes + `-(\d+)\b`)
	testName = regexp.MustCompile(`(?m)^func ((?:Test|Fuzz)\w*)\(`)
	nameID   = regexp.MustCompile(`_` + idPrefixes + `(\d+)(?:_|$)`)
)

// TestInvariants_AreListedGuardedAndProven compares the page of the invariants with the ids in the repository.
func TestInvariants_AreListedGuardedAndProven(t *testing.T) {
	files := repositoryFiles(t)
	require.Greater(t, len(files), 500, "the repository was not read")
	page := files[invariantsPage]
	delete(files, invariantsPage)
	require.Greater(t, len(ids(listedID, page)), 70, "the page was not read")
	require.Empty(t, invariantProblems(page, files))
}

// TestInvariants_FindWhatIsMissing shows that each kind of problem is found.
func TestInvariants_FindWhatIsMissing(t *testing.T) {
	const page = "| EXCL-1 | a rule | an incident |\n"
	guard := func(path string) map[string]string {
		return map[string]string{path: "// EXCL-1", "a/a_test.go": "func TestA_EXCL1_Holds(t *testing.T) {"}
	}
	const unguarded = "EXCL-1 has no guard: no Go, SQL, YAML or chart file of the product cites it"
	for name, c := range map[string]struct {
		page  string
		files map[string]string
		want  []string
	}{
		"guarded in Go and proven":     {page, guard("internal/a/a.go"), nil},
		"guarded in SQL":               {page, guard("internal/a/a.sql"), nil},
		"guarded in the chart":         {page, guard("charts/bullpen/templates/a.yaml"), nil},
		"not by a package comment":     {page, guard("internal/a/doc.go"), []string{unguarded}},
		"not by a page":                {page, guard("docs/a.md"), []string{unguarded}},
		"not by what only tests use":   {page, guard("test/a/a.go"), []string{unguarded}},
		"not by a comment in a test":   {page, guard("internal/a/b_test.go"), []string{unguarded}},
		"not by an id that begins so":  {page, map[string]string{"internal/a/a.go": "// EXCL-12", "a_test.go": "func TestA_EXCL1(t"}, []string{"EXCL-12 is cited in internal/a/a.go and not listed", unguarded}},
		"no test":                      {page, map[string]string{"internal/a/a.go": "// EXCL-1"}, []string{"EXCL-1 has no proof: no test has EXCL1 in its name"}},
		"a call is no test":            {page, map[string]string{"internal/a/a.go": "// EXCL-1", "a_test.go": "\tTestA_EXCL1(t)"}, []string{"EXCL-1 has no proof: no test has EXCL1 in its name"}},
		"cited and not listed":         {"", map[string]string{"internal/a/a.go": "// TEN-3"}, []string{"TEN-3 is cited in internal/a/a.go and not listed"}},
		"in a name and not listed":     {"", map[string]string{"internal/a/a_test.go": "func FuzzA_RUN9(f"}, []string{"RUN-9 is cited in internal/a/a_test.go and not listed"}},
		"two ids in a name":            {"", map[string]string{"a_test.go": "func TestA_RUN8_RUN9_B(t"}, []string{"RUN-8 is cited in a_test.go and not listed", "RUN-9 is cited in a_test.go and not listed"}},
		"in a page and not listed":     {"", map[string]string{"docs/a.md": "see EXCL-8"}, []string{"EXCL-8 is cited in docs/a.md and not listed"}},
		"listed twice":                 {page + page, guard("internal/a/a.go"), []string{"EXCL-1 is listed twice"}},
		"what only looks like ids":     {"", map[string]string{"internal/a/a.go": "UTF-8 SHA-256 node-1 MYNODE-1"}, nil},
		"an id in prose is not a list": {"EXCL-1", guard("internal/a/a.go"), []string{"EXCL-1 is cited in a/a_test.go and not listed", "EXCL-1 is cited in internal/a/a.go and not listed"}},
	} {
		t.Run(name, func(t *testing.T) { require.Equal(t, c.want, invariantProblems(c.page, c.files)) })
	}
}

// invariantProblems compares the page with the other files, by their paths from the top of the repository.
func invariantProblems(page string, files map[string]string) []string {
	var problems []string
	listed := map[string]bool{}
	for _, id := range ids(listedID, page) {
		if listed[id] {
			problems = append(problems, id+" is listed twice")
		}
		listed[id] = true
	}
	guarded, proven := map[string]bool{}, map[string]bool{}
	for _, path := range slices.Sorted(maps.Keys(files)) {
		cited := ids(citedID, files[path])
		if guards(path) {
			for _, id := range cited {
				guarded[id] = true
			}
		}
		if strings.HasSuffix(path, "_test.go") {
			named := idsOfTests(files[path])
			for _, id := range named {
				proven[id] = true
			}
			cited = append(cited, named...)
		}
		slices.Sort(cited)
		for _, id := range slices.Compact(cited) {
			// The inputs above are made up.
			if !listed[id] && path != "test/architecture/invariants_test.go" {
				problems = append(problems, id+" is cited in "+path+" and not listed")
			}
		}
	}
	for _, id := range slices.Sorted(maps.Keys(listed)) {
		if !guarded[id] {
			problems = append(problems, id+" has no guard: no Go, SQL, YAML or chart file of the product cites it")
		}
		if !proven[id] {
			problems = append(problems, id+" has no proof: no test has "+strings.ReplaceAll(id, "-", "")+" in its name")
		}
	}
	return problems
}

// guards reports whether an id in that file marks a guard. A package comment describes, and what only tests use guards nothing.
func guards(path string) bool {
	// A rule for tests (TEN-9) is guarded in the test kit.
	return withinAny(path, []string{"api", "charts", "cmd", "internal", "test/kit/await"}) && !within(path, "internal/dev") &&
		slices.Contains([]string{".go", ".sql", ".yaml", ".tpl"}, filepath.Ext(path)) &&
		!strings.HasSuffix(path, "_test.go") && filepath.Base(path) != "doc.go"
}

func ids(pattern *regexp.Regexp, text string) []string {
	var found []string
	for _, match := range pattern.FindAllStringSubmatch(text, -1) {
		found = append(found, match[1]+"-"+match[2])
	}
	return found
}

// idsOfTests are those in the names of a file's tests: TestA_RUN7_B has RUN-7. Neighbours share an underscore, which is doubled to find both.
func idsOfTests(text string) []string {
	var found []string
	for _, match := range testName.FindAllStringSubmatch(text, -1) {
		found = append(found, ids(nameID, strings.ReplaceAll(match[1], "_", "__"))...)
	}
	return found
}

// repositoryFiles are the texts of the repository's sources and pages, by their paths from its top.
func repositoryFiles(t *testing.T) map[string]string {
	t.Helper()
	const root = "../.."
	files := map[string]string{}
	require.NoError(t, filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() {
			if slices.Contains([]string{".git", "bin", "dist", "node_modules"}, entry.Name()) {
				return filepath.SkipDir
			}
			return nil
		}
		if !slices.Contains([]string{".go", ".md", ".sh", ".sql", ".tpl", ".yaml", ".yml"}, filepath.Ext(path)) {
			return nil
		}
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		short, err := filepath.Rel(root, path)
		files[filepath.ToSlash(short)] = string(content)
		return err
	}))
	return files
}
