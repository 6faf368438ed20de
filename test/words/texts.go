package words

import (
	"go/scanner"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// skipped are directories without a text of ours: what is built or installed, and what is generated from texts that are searched.
var skipped = []string{
	".git", "bin", "dist", "node_modules",
	"charts/bullpen/crds", "charts/rendered", "docs/reference/cli", "docs/reference/crds", "internal/server/ledger/sqlcgen",
	"test/words", // its own lists and examples
}

// quoted are files whose texts are generated, or retell what other projects write.
var quoted = []string{
	"api/openapi/openapi.yaml", "api/v1alpha1/zz_generated*.go", "docs/incidents.md", "docs/reference/api.md", "docs/reference/configuration.md", "docs/reference/runner-kinds.md",
	"test/incidents/entries_*.go",
}

// Source is what was read of the repository.
type Source struct {
	Texts []Text
	Lines int // of Go
}

// Read reads all texts below the top of the repository.
func Read(top string) (Source, error) {
	var source Source
	err := filepath.WalkDir(top, func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		short, err := filepath.Rel(top, name)
		if err != nil {
			return err
		}
		short = filepath.ToSlash(short)
		if entry.IsDir() {
			if slices.Contains(skipped, short) || slices.Contains(skipped[:4], entry.Name()) {
				return filepath.SkipDir
			}
			return nil
		}
		if !searched(short) {
			return nil
		}
		content, err := os.ReadFile(name) //nolint:gosec // a file of the repository
		if err != nil {
			return err
		}
		if path.Ext(short) == ".go" {
			source.Lines += strings.Count(string(content), "\n")
		}
		source.Texts = append(source.Texts, Split(short, content)...)
		return nil
	})
	return source, err
}

func searched(name string) bool {
	for _, pattern := range quoted {
		if is, _ := path.Match(pattern, name); is {
			return false
		}
	}
	switch path.Ext(name) {
	case ".go", ".md":
		return true
	case ".yaml", ".sh":
		return !strings.Contains(name, "/testdata/") // what tests are given
	case ".tpl", ".txt", ".json":
		return strings.HasPrefix(name, "charts/")
	}
	return slices.Contains([]string{"Makefile", ".ci/run"}, name)
}

// Split takes a file apart into its texts: pages, and files of the chart, of examples and of scripts, are one each.
func Split(name string, content []byte) []Text {
	switch path.Ext(name) {
	case ".go":
		return splitGo(name, content)
	case ".md":
		return []Text{{File: name, Line: 1, Kind: Page, Body: string(content)}}
	}
	return []Text{{File: name, Line: 1, Kind: Chart, Body: string(content)}}
}

// splitGo scans instead of parsing, which takes a tenth of the time. Comments on lines that follow each other are one text, so that a
// wording is found across the end of a line. String literals of tests, and those of one word, are no messages.
func splitGo(name string, content []byte) []Text {
	var texts []Text
	files := token.NewFileSet()
	file := files.AddFile(name, -1, len(content))
	var s scanner.Scanner
	s.Init(file, content, nil, scanner.ScanComments)
	ships := !strings.HasSuffix(name, "_test.go") && !strings.HasPrefix(name, "test/")
	end := 0 // the line on which the last comment ended
	for {
		pos, tok, literal := s.Scan()
		switch tok {
		case token.EOF:
			return texts
		case token.COMMENT:
			line := file.Line(pos)
			body := strings.TrimPrefix(literal, "//")
			if last := len(texts) - 1; last >= 0 && texts[last].Kind == Comment && line == end+1 {
				texts[last].Body += "\n" + body
			} else {
				texts = append(texts, Text{File: name, Line: line, Kind: Comment, Body: body})
			}
			end = line + strings.Count(literal, "\n")
		case token.STRING:
			if ships && strings.Contains(literal, " ") { // otherwise it is a key, a name or a tag
				texts = append(texts, Text{File: name, Line: file.Line(pos), Kind: Message, Body: literal})
			}
		}
	}
}
