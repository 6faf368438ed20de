package words

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var lower = flag.Bool("lower", false, "lower the ceilings to what there is now")

const (
	top          = "../.."
	ceilingsFile = "ceilings.txt"
)

func TestWords_NoDirectoryIsAboveItsCeiling(t *testing.T) {
	source, err := Read(top)
	require.NoError(t, err)
	require.Greater(t, len(source.Texts), 10_000, "the repository was not read")
	text, err := os.ReadFile(ceilingsFile)
	require.NoError(t, err)
	ceilings, err := ParseCeilings(string(text))
	require.NoError(t, err)
	if *lower {
		var found []Finding
		for _, text := range source.Texts {
			found = append(found, Search(text)...)
		}
		ceilings = Lower(ceilings, CountByDirectory(found))
		require.NoError(t, os.WriteFile(ceilingsFile, []byte(FormatCeilings(ceilings)), 0o644)) //nolint:gosec // a list
	}
	require.Empty(t, strings.Join(Check(source, ceilings), "\n"), "these wordings are too many")
}

func TestSearch(t *testing.T) {
	for _, c := range []struct {
		body string
		kind Kind
		want string
	}{
		{"Whoever reads it", Comment, "1 whoever"},
		{"the server is\ntold of it", Comment, "2 told"},
		{"it tells\nof a job", Comment, "1 tell of"},
		{"the first line\nlooked\nat twice", Page, "2 look at"},
		{"lets the poll go", Comment, "1 let go"},
		{"how long it may run", Message, "1 how long it may"},
		{"starts by itself", Message, "1 by itself"},
		{"starts by itself", Comment, ""},
		{"changed meanwhile", Chart, "1 meanwhile"},
		{"the newest first, a directory", Page, ""},
		{"the file work-folder, user=nobody", Message, ""},
		{"amend, tolder, folderless, outlook atlas", Page, ""},
	} {
		var got []string
		for _, f := range Search(Text{File: "a/b.go", Line: 1, Kind: c.kind, Body: c.body}) {
			got = append(got, fmt.Sprint(f.Line, " ", f.Pattern.Name))
		}
		require.Equal(t, c.want, strings.Join(got, ", "), c.body)
	}
}

func TestSplit_CommentsAndMessagesOfWhatShips(t *testing.T) {
	source := "// a\n// b\n\npackage x // c\n\nvar s = \"a m\" + `an` + `a n`\n"
	require.Equal(t, []Text{
		{File: "cmd/x.go", Line: 1, Kind: Comment, Body: " a\n b"},
		{File: "cmd/x.go", Line: 4, Kind: Comment, Body: " c"},
		{File: "cmd/x.go", Line: 6, Kind: Message, Body: `"a m"`},
		{File: "cmd/x.go", Line: 6, Kind: Message, Body: "`a n`"},
	}, Split("cmd/x.go", []byte(source)))
	for _, name := range []string{"cmd/x_test.go", "test/kit/x.go"} {
		require.Len(t, Split(name, []byte(source)), 2, "literals of tests are no messages")
	}
}

func TestSearched_WhatUsersAndDevelopersRead(t *testing.T) {
	for name, want := range map[string]bool{
		"a/b.go": true, "docs/x.md": true, "examples/pool.yaml": true, "charts/bullpen/templates/_helpers.tpl": true, "scripts/test.sh": true,
		"Makefile": true, ".ci/run": true, "api/openapi/openapi.yaml": false, "package.json": false, "go.sum": false,
		"internal/x/testdata/case.yaml": false,
	} {
		require.Equal(t, want, searched(name), name)
	}
}

func TestCheck_OnlyWhatIsAboveACeilingIsReported(t *testing.T) {
	text := func(file, body string) Text { return Text{File: file, Line: 3, Kind: Comment, Body: body} }
	source := Source{Lines: 10_000, Texts: []Text{text("old/a.go", "nobody, anew"), text("new/a.go", "somebody")}}
	ceilings := map[string]Count{"old": {Pronouns: 1, Others: 1}}
	require.Empty(t, Check(source, ceilings), "one pronoun in ten thousand lines is within the budget")

	source.Texts = append(source.Texts, text("old/b.go", "in vain"))
	problems := Check(source, ceilings)
	require.Len(t, problems, 2, "both are named: which one is new is not known")
	require.Contains(t, problems[1], `old/b.go:3: "in vain": write without success, failed (the directory has 2, 1 allowed)`)

	source.Texts = append(source.Texts, text("new/b.go", "nobody"))
	require.Len(t, Check(source, ceilings), 4, "two pronouns are above the budget")
}

func TestLower_RaisesAndAddsNothing(t *testing.T) {
	ceilings := map[string]Count{"sinks": {3, 3}, "rose": {1, 1}, "clean": {2, 0}}
	counts := map[string]Count{"sinks": {2, 3}, "rose": {5, 0}, "new": {1, 1}}
	require.Equal(t, map[string]Count{"sinks": {2, 3}, "rose": {1, 0}}, Lower(ceilings, counts))
	again, err := ParseCeilings(FormatCeilings(ceilings))
	require.NoError(t, err)
	require.Equal(t, ceilings, again)
}
