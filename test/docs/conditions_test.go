package docs

import (
	"cmp"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const conditionsPage = "docs/reference/conditions.md"

// sources are the files of a package without its tests, or one file.
func sources(t *testing.T, of string) []*ast.File {
	t.Helper()
	pattern := filepath.Join(top, of)
	if !strings.HasSuffix(of, ".go") {
		pattern = filepath.Join(pattern, "*.go")
	}
	names, err := filepath.Glob(pattern)
	require.NoError(t, err)
	var all []*ast.File
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		require.NoError(t, err)
		all = append(all, file)
	}
	return all
}

// constantsIn are the string constants below a node, by name. Those that are other constants resolve through known.
func constantsIn(node ast.Node, known map[string]string) map[string]string {
	all := map[string]string{}
	ast.Inspect(node, func(n ast.Node) bool {
		spec, is := n.(*ast.ValueSpec)
		if !is {
			return true
		}
		for i, name := range spec.Names {
			if i < len(spec.Values) {
				if value := valueOf(spec.Values[i], known); value != "" {
					all[name.Name] = value
				}
			}
		}
		return true
	})
	return all
}

// valueOf is the text of a literal, of a constant, or of a conversion of one; empty if it is none.
func valueOf(e ast.Expr, known map[string]string) string {
	switch e := e.(type) {
	case *ast.BasicLit:
		if text, err := strconv.Unquote(e.Value); e.Kind == token.STRING && err == nil {
			return text
		}
	case *ast.Ident:
		return known[e.Name]
	case *ast.SelectorExpr:
		return known[e.Sel.Name]
	case *ast.CallExpr:
		if len(e.Args) == 1 {
			return valueOf(e.Args[0], known)
		}
	}
	return ""
}

// writers are the methods of the controller that write a condition, with the argument that is its reason.
var writers = map[string]int{"set": 2, "put": 2, "clear": 1, "clearLater": 1}

// reasonsOf are the reasons with which the controller writes each condition of a pool.
func reasonsOf(t *testing.T) map[string]map[string]bool {
	t.Helper()
	known := map[string]string{}
	for _, dir := range []string{"api/v1alpha1", "internal/runnerpod", "internal/plan/lifecycle", "internal/controller/pool"} {
		for _, file := range sources(t, dir) {
			for _, declared := range file.Decls {
				if general, is := declared.(*ast.GenDecl); is {
					maps.Copy(known, constantsIn(general, nil))
				}
			}
		}
	}
	all := map[string]map[string]bool{}
	for _, file := range sources(t, "internal/controller/pool") {
		for _, declared := range file.Decls {
			function, is := declared.(*ast.FuncDecl)
			if !is || writers[function.Name.Name] > 0 {
				continue
			}
			kind := constantsIn(function, known)["kind"]
			ast.Inspect(function, func(n ast.Node) bool {
				args, at := written(n)
				if at == 0 {
					return true
				}
				condition := cmp.Or(valueOf(args[0], known), kind)
				reason := valueOf(args[at], known)
				require.NotEmpty(t, condition, "%s writes a condition that is not a constant", function.Name.Name)
				require.NotEmpty(t, reason, "%s writes %s with a reason that is not a constant", function.Name.Name, condition)
				note(all, condition, reason)
				return true
			})
		}
	}
	return all
}

// written are the arguments of a call that writes a condition, and which of them is its reason; 0 for everything else.
func written(n ast.Node) (args []ast.Expr, reason int) {
	call, is := n.(*ast.CallExpr)
	if !is {
		return nil, 0
	}
	method, is := call.Fun.(*ast.SelectorExpr)
	if !is {
		return nil, 0
	}
	if on, is := method.X.(*ast.Ident); !is || on.Name != "c" || len(call.Args) <= writers[method.Sel.Name] {
		return nil, 0
	}
	return call.Args, writers[method.Sel.Name]
}

func note(all map[string]map[string]bool, condition, reason string) {
	if all[condition] == nil {
		all[condition] = map[string]bool{}
	}
	all[condition][reason] = true
}

// The page of conditions has each condition of a pool, with the reasons that the controller writes and no others.
func TestConditions_HaveEachReason(t *testing.T) {
	listed, condition := map[string]map[string]bool{}, ""
	code := regexp.MustCompile("`([A-Za-z]+)`")
	for _, row := range regexp.MustCompile(`(?m)^\| .*\|$`).FindAllString(pages(t)[conditionsPage], -1) {
		cells := strings.Split(row, "|")
		if name := code.FindStringSubmatch(cells[1]); name != nil {
			condition = name[1]
		}
		for _, reason := range code.FindAllStringSubmatch(cells[2], -1) {
			note(listed, condition, reason[1])
		}
	}
	require.Equal(t, reasonsOf(t), listed, "%s is not what the controller writes", conditionsPage)

	declared := 0
	for _, file := range sources(t, "api/v1alpha1/runnerpool_types.go") {
		for name, value := range constantsIn(file, nil) {
			if strings.HasPrefix(name, "Condition") {
				declared++
				require.Contains(t, listed, value, "%s has no row for it", conditionsPage)
			}
		}
	}
	require.Greater(t, declared, 10)
}
