package architecture

import (
	"maps"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var (
	comment   = regexp.MustCompile(`(?m)(?:^|[\s;{}()])//[^\n]*`)
	namedPage = regexp.MustCompile(`(?:^|[\s("'` + "`" + `])((?:[\w-]+/)*[\w.-]+\.md)\b`)
	seed      = regexp.MustCompile(`\b[Ss]eeds? 00\d`)
)

// TestComments_CitePagesThatExist: a comment that cites a page names one that a reader of the repository can open.
func TestComments_CitePagesThatExist(t *testing.T) {
	files := repositoryFiles(t)
	require.Empty(t, unknownPages(files))
	cited := 0
	for name, text := range files {
		if path.Ext(name) == ".go" {
			for _, words := range comment.FindAllString(text, -1) {
				cited += len(namedPage.FindAllString(words, -1))
			}
		}
	}
	require.Greater(t, cited, 20, "no comment was read")
}

func TestComments_FindUnknownPages(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"// as docs/a.md says", ""},
		{"// the page a.md", ""},
		{"x() // (see docs/a.md)", ""},
		{"// the table of b.md", "x.go cites b.md"},
		{"// docs/guides/a.md", "x.go cites docs/guides/a.md"},
		{"// https://example.com/b.md", ""},
		{`name + "b.md"`, ""},
		{"// RECV-1, seed 002: it goes", "x.go cites seed 002"},
		{"// seeds 003/004", "x.go cites seeds 003"},
		{"// the same for seed 7", ""},
	} {
		got := unknownPages(map[string]string{"docs/a.md": "", "x.go": c.text + "\n"})
		require.Equal(t, c.want, strings.Join(got, ", "), c.text)
	}
}

// unknownPages are the citations in comments that lead nowhere. A page may be named by its path from the top, or by its base name.
func unknownPages(files map[string]string) []string {
	exist := map[string]bool{}
	for name := range files {
		exist[name], exist[path.Base(name)] = true, true
	}
	var unknown []string
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if path.Ext(name) != ".go" || name == "test/architecture/citations_test.go" { // its inputs are made up
			continue
		}
		for _, words := range comment.FindAllString(files[name], -1) {
			for _, found := range namedPage.FindAllStringSubmatch(words, -1) {
				if !exist[found[1]] {
					unknown = append(unknown, name+" cites "+found[1])
				}
			}
			if found := seed.FindString(words); found != "" {
				unknown = append(unknown, name+" cites "+found)
			}
		}
	}
	return unknown
}

// sourceName is a Go file in prose. A pattern (p1_*.go) names no one file.
var sourceName = regexp.MustCompile(`(?:^|[\s("'` + "`" + `])((?:[\w.-]+/)*[\w-]+\.go)\b`)

// TestPackageComments_NameFilesThatExist holds each doc.go to the files beside it.
func TestPackageComments_NameFilesThatExist(t *testing.T) {
	files := repositoryFiles(t)
	require.Empty(t, unknownFiles(files))
	named := 0
	for name, text := range files {
		if path.Base(name) == "doc.go" {
			named += len(sourceName.FindAllString(text, -1))
		}
	}
	require.Greater(t, named, 150, "no package comment was read")
}

func TestPackageComments_FindUnknownFiles(t *testing.T) {
	for text, want := range map[string]string{
		"// Begin with a.go, then b_linux.go.":    "",
		"// See other/c.go and ../other/c.go.":    "",
		"// From the top: internal/x/other/c.go.": "",
		"// Begin with network.go.":               "internal/x/doc.go names network.go",
		"// begin in other/a.go":                  "internal/x/doc.go names other/a.go",
		"//   - (gone.go)":                        "internal/x/doc.go names gone.go",
	} {
		got := unknownFiles(map[string]string{
			"internal/x/doc.go": text + "\n", "internal/x/a.go": "", "internal/x/b_linux.go": "", "internal/x/other/c.go": "", "internal/other/c.go": "", "internal/y/network.go": "",
		})
		require.Equal(t, want, strings.Join(got, ", "), text)
	}
}

// unknownFiles are those that a doc.go names and that are neither in its directory, nor at that path from it, nor from the top.
func unknownFiles(files map[string]string) []string {
	var unknown []string
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if filepath.Base(name) != "doc.go" {
			continue
		}
		for _, found := range sourceName.FindAllStringSubmatch(files[name], -1) {
			_, beside := files[path.Join(path.Dir(name), found[1])]
			_, fromTop := files[found[1]]
			if !beside && !fromTop {
				unknown = append(unknown, name+" names "+found[1])
			}
		}
	}
	return unknown
}

// namedPath is a path from the top of the repository in prose. A pattern (docs/adr/*.md) names no one file, and a record may be named by its number.
var namedPath = regexp.MustCompile(`(?:^|[\s("'` + "`" + `])((?:api|charts|cmd|devcluster|docs|examples|images|internal|scripts|test|tools)/[\w./-]*\w)(/?[*…{$<]?)`)

// TestComments_NamePathsThatExist: a comment that names a directory or a file of the repository is right about it.
func TestComments_NamePathsThatExist(t *testing.T) {
	files := repositoryFiles(t)
	require.Empty(t, unknownPaths(files, func(path string) bool {
		for _, end := range []string{"", "-*"} { // docs/adr/0017
			if found, err := filepath.Glob(filepath.Join("../..", path+end)); err == nil && len(found) > 0 {
				return true
			}
		}
		return false
	}))
}

func TestComments_FindUnknownPaths(t *testing.T) {
	exists := func(path string) bool {
		return slices.Contains([]string{"internal/x", "docs/adr/0001", "internal/y/test/data"}, path)
	}
	for text, want := range map[string]string{
		"// in internal/x.":                  "",
		"// (internal/x, docs/adr/0001)":     "",
		"// internal/gone holds it":          "internal/y/a.go names internal/gone",
		"// charts/x/*.yaml and internal/z…": "",
		"// of test/data, beside it":         "",
		"// https://example.com/internal/z":  "",
	} {
		require.Equal(t, want, strings.Join(unknownPaths(map[string]string{"internal/y/a.go": text + "\n"}, exists), ", "), text)
	}
}

// unknownPaths are the paths in comments that lead nowhere, neither from the top nor from the directory of the file.
func unknownPaths(files map[string]string, exists func(path string) bool) []string {
	var unknown []string
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if path.Ext(name) != ".go" || name == "test/architecture/citations_test.go" { // its inputs are made up
			continue
		}
		for _, words := range comment.FindAllString(files[name], -1) {
			for _, found := range namedPath.FindAllStringSubmatch(words, -1) {
				if strings.Trim(found[2], "/") == "" && !exists(found[1]) && !exists(path.Join(path.Dir(name), found[1])) {
					unknown = append(unknown, name+" names "+found[1])
				}
			}
		}
	}
	return unknown
}
