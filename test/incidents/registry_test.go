package incidents

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// tests are the test functions of a package's directory, from the top of the repository.
func tests(t *testing.T, dir string) map[string]bool {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("..", "..", dir, "*_test.go"))
	require.NoError(t, err)
	found := map[string]bool{}
	for _, file := range files {
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
		require.NoError(t, err)
		for _, declaration := range parsed.Decls {
			function, is := declaration.(*ast.FuncDecl)
			if is && function.Recv == nil && strings.HasPrefix(function.Name.Name, "Test") && function.Name.Name != "TestMain" {
				found[function.Name.Name] = true
			}
		}
	}
	return found
}

func TestRegistry_EntriesAreWhole(t *testing.T) {
	seen := map[string]bool{}
	for _, incident := range All() {
		require.NoError(t, incident.check())
		require.False(t, seen[incident.ID], "two incidents are called %s", incident.ID)
		seen[incident.ID] = true
		for _, rule := range incident.Rules {
			require.Regexp(t, regexp.MustCompile(`^(EXCL|POOL|POD|CLAIM|RECV|NET|NODE|HOST|RUN|SCALE|TEN)-\d+$`), rule, incident.ID)
		}
	}
}

// A test that an incident rests on and that was renamed or deleted is noticed here.
func TestRegistry_EveryNamedTestExists(t *testing.T) {
	dirs := map[string]map[string]bool{}
	for _, incident := range All() {
		for _, test := range incident.Shown {
			if dirs[test.Folder()] == nil {
				dirs[test.Folder()] = tests(t, test.Folder())
			}
			require.True(t, dirs[test.Folder()][test.Name],
				"incident %s is shown by %s of %s, which does not exist: was it renamed?", incident.ID, test.Name, test.Folder())
		}
	}
}

func TestRegistry_EveryScenarioIsAnIncident(t *testing.T) {
	named := map[string]bool{}
	for _, incident := range All() {
		for _, test := range incident.Shown {
			named[test.Folder()+" "+test.Name] = true
		}
	}
	for name := range tests(t, "test/incidents") {
		if strings.HasPrefix(name, "TestRegistry_") || strings.HasPrefix(name, "TestDocument_") || strings.HasPrefix(name, "TestClock_") {
			continue
		}
		require.True(t, named["test/incidents "+name], "%s is the scenario of no incident: name it in the registry", name)
	}
}

func TestDocument_IsWhatTheRegistrySays(t *testing.T) {
	written, err := os.ReadFile(filepath.Join("..", "..", "docs", "incidents.md"))
	require.NoError(t, err)
	require.True(t, Document() == string(written), "docs/incidents.md is out of date: run make generate")
}

// A link that is printed leads to a page, and says when it was written. Only a peer's incident has one.
func TestRegistry_ReportsAreLinksWithADay(t *testing.T) {
	reported := 0
	for _, incident := range All() {
		require.NoError(t, incident.Report.check(), incident.ID)
		if incident.Report != (Report{}) {
			reported++
			require.Equal(t, Peer, incident.Source, incident.ID)
		}
	}
	require.NotZero(t, reported)
	for _, wrong := range []Report{
		{URL: "http://example.com/1", Date: "2022-03-05"}, {URL: "https://example.com", Date: "2022-03-05"}, {URL: "example.com/1", Date: "2022-03-05"},
		{Date: "2022-03-05"}, {URL: "https://example.com/1"}, {URL: "https://example.com/1", Date: "March 2022"}, {URL: "https://example.com/1", Date: "2022-02-30"},
	} {
		require.Error(t, wrong.check(), "%+v", wrong)
	}
}
