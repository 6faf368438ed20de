package docs

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// anything stands in a literal for what is formatted or concatenated into it.
const anything = rune(0)

// literal is the text of a program: a string literal, or several that are concatenated.
type literal struct {
	text  string // with anything in place of values
	runes []rune
}

func newLiteral(text string) literal { return literal{text: text, runes: []rune(text)} }

// verb is one of a format, or a percent sign.
var verb = regexp.MustCompile(`%%|%[-+# 0]*(?:\[\d+\])?[\d*]*(?:\.[\d*]+)?[a-zA-Z]`)

// unformatted has anything in place of verbs.
func unformatted(format string) string {
	return verb.ReplaceAllStringFunc(format, func(verb string) string {
		if verb == "%%" {
			return "%"
		}
		return string(anything)
	})
}

// textOf is the text of a string literal, or of a sum that has one; otherwise the value is unknown.
func textOf(e ast.Expr) (text string, known bool) {
	switch e := e.(type) {
	case *ast.ParenExpr:
		return textOf(e.X)
	case *ast.BasicLit:
		if e.Kind == token.STRING {
			if value, err := strconv.Unquote(e.Value); err == nil {
				return unformatted(value), true
			}
		}
	case *ast.BinaryExpr:
		if e.Op == token.ADD {
			left, leftKnown := textOf(e.X)
			right, rightKnown := textOf(e.Y)
			return left + right, leftKnown || rightKnown
		}
	}
	return string(anything), false
}

// literalsOf are those of one file.
func literalsOf(file *ast.File) []literal {
	var all []literal
	ast.Inspect(file, func(n ast.Node) bool {
		e, is := n.(ast.Expr)
		if !is {
			return true
		}
		text, known := textOf(e)
		if known {
			all = append(all, newLiteral(text))
		}
		return !known // the parts of a sum are in it
	})
	return all
}

// shippedLiterals are those of the programs that users run, except of the one machine's parts.
func shippedLiterals(t *testing.T) []literal {
	t.Helper()
	var all []literal
	for _, dir := range []string{"api", "cmd", "internal"} {
		require.NoError(t, filepath.WalkDir(filepath.Join(top, dir), func(path string, entry fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			if entry.IsDir() && path == filepath.Join(top, "internal", "dev") {
				return filepath.SkipDir
			}
			if entry.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return nil
			}
			file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
			if err == nil {
				all = append(all, literalsOf(file)...)
			}
			return err
		}))
	}
	require.Greater(t, len(all), 5000)
	return all
}

// holds returns how many letters of a part a literal spells out, if the part can be a piece of what the literal becomes; -1: it cannot.
func (l literal) holds(part string) int {
	reached := make([]int, len(l.runes)+1) // at each place of the literal: how many letters were spelled out to get there
	for _, r := range part {
		next := slices.Repeat([]int{-1}, len(reached))
		for at, spelled := range reached {
			for to := at; spelled >= 0 && to < len(l.runes); to++ {
				if l.runes[to] == r {
					next[to+1] = max(next[to+1], spelled+1)
				}
				if l.runes[to] != anything {
					break
				}
				next[to] = max(next[to], spelled) // it is a part of the value
			}
		}
		reached = next
	}
	return slices.Max(reached)
}

// says reports whether a literal becomes a text that has all parts. Values are free, so the literal must spell out most of it.
func (l literal) says(parts []string) bool {
	spelled, all := 0, 0
	for _, part := range parts {
		n := l.holds(part)
		if n < 0 {
			return false
		}
		spelled += n
		all += len([]rune(part))
	}
	return spelled*10 >= all*7
}

// said reports whether one of the literals becomes a quoted text, in which "…" stands for anything.
func said(literals []literal, quote string) bool {
	var parts, words []string
	for _, part := range strings.Split(quote, "…") {
		if part = strings.TrimSpace(part); part != "" {
			parts = append(parts, part)
			words = append(words, strings.Fields(part)...)
		}
	}
	slices.SortFunc(words, func(a, b string) int { return len(b) - len(a) })
	words = words[:min(4, len(words))] // a literal without one of the longest words is not compared, which takes longer
	return slices.ContainsFunc(literals, func(l literal) bool {
		return slices.ContainsFunc(words, func(word string) bool { return strings.Contains(l.text, word) }) && l.says(parts)
	})
}

func TestSaid(t *testing.T) {
	file, err := parser.ParseFile(token.NewFileSet(), "x.go", "package x\nvar s = \"removing %s from the pool: it is \" + y + \", and %d%% busy\"\nvar _ = f(`a b`, \"%s: %s\")", 0)
	require.NoError(t, err)
	literals := literalsOf(file)
	require.Len(t, literals, 3)
	for quote, want := range map[string]bool{
		"removing … from the pool":               true,
		"removing a from the pool: it is new":    true,
		"from the pool: …, and 5% busy":          true,
		"it is idle, and 50% busy":               true,
		"a b":                                    true,
		"removing … from the node":               false,
		"values are free, but this is all value": false,
		"removing …; a b":                        false,
	} {
		require.Equal(t, want, said(literals, quote), quote)
	}
}
