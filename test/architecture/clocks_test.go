package architecture

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// ownTime may use another time than the database's, or none: they only measure how long something lasts within one process.
var ownTime = map[string]string{
	"internal/server/cluster":       "for how long an answer of the API server is remembered",
	"internal/server/restore/epoch": "since when a copy could not be read",
}

// RECV-2, RECV-4: everything that a server records, or judges by its age, uses the database's clock. A part that is wired
// without a clock takes its machine's own, which may be wrong by minutes, so no part of the server may be.
func TestClocks_RECV4_TheServersPartsGoByTheDatabases(t *testing.T) {
	files, err := filepath.Glob("../../cmd/bullpen/server*.go")
	require.NoError(t, err)
	wired := 0
	for _, path := range append(files, "../../cmd/bullpen/epoch.go") {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		require.NoError(t, err)
		ast.Inspect(file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.CallExpr:
				if sel, ok := n.Fun.(*ast.SelectorExpr); ok && sel.Sel.Name == "New" && len(n.Args) > 0 {
					wired += checkWiring(t, file, path, n.Args[len(n.Args)-1])
				}
			case *ast.AssignStmt: // of options that flags have begun
				for i, left := range n.Lhs {
					if sel, ok := left.(*ast.SelectorExpr); ok && sel.Sel.Name == "Now" {
						requireDatabaseClock(t, n.Rhs[i], path)
						wired++
					}
				}
			case *ast.SelectorExpr:
				if x, ok := n.X.(*ast.Ident); ok && x.Name == "faultpoint" && n.Sel.Name == "Now" {
					require.Equal(t, "server.go", filepath.Base(path), "the machine's own clock is for package clock alone, which tells people how wrong it is")
				}
			}
			return true
		})
	}
	require.GreaterOrEqual(t, wired, 10, "a fence that sees nothing guards nothing")
}

// checkWiring checks pkg.Options{...} of a package of ours whose Options have a clock, and counts it.
func checkWiring(t *testing.T, file *ast.File, path string, arg ast.Expr) int {
	t.Helper()
	options, ok := arg.(*ast.CompositeLit)
	if !ok {
		return 0
	}
	sel, ok := options.Type.(*ast.SelectorExpr)
	if !ok || sel.Sel.Name != "Options" {
		return 0
	}
	pkg := imported(file, sel.X.(*ast.Ident).Name)
	if _, own := ownTime[pkg]; own || !hasClock(t, pkg) {
		return 0
	}
	for _, element := range options.Elts {
		if pair, ok := element.(*ast.KeyValueExpr); ok && pair.Key.(*ast.Ident).Name == "Now" {
			requireDatabaseClock(t, pair.Value, path+": "+pkg)
			return 1
		}
	}
	require.Fail(t, "a part of the server has no clock", "%s: give %s the database's: Now: r.clock.Now", path, pkg)
	return 0
}

// requireDatabaseClock wants r.clock.Now.
func requireDatabaseClock(t *testing.T, value ast.Expr, where string) {
	t.Helper()
	now, ok := value.(*ast.SelectorExpr)
	require.True(t, ok && now.Sel.Name == "Now", where)
	from, ok := now.X.(*ast.SelectorExpr)
	require.True(t, ok && from.Sel.Name == "clock", "%s goes by another clock than the database's", where)
}

// imported is the path inside the module of what a file calls by that name; empty for what is not ours.
func imported(file *ast.File, name string) string {
	for _, spec := range file.Imports {
		path, ours := strings.CutPrefix(strings.Trim(spec.Path.Value, `"`), module+"/")
		if ours && (spec.Name != nil && spec.Name.Name == name || spec.Name == nil && filepath.Base(path) == name) {
			return path
		}
	}
	return ""
}

// hasClock reports whether the package's Options have a field Now.
func hasClock(t *testing.T, pkg string) bool {
	t.Helper()
	if pkg == "" {
		return false
	}
	files, err := filepath.Glob(filepath.Join("../..", pkg, "*.go"))
	require.NoError(t, err)
	for _, path := range files {
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		require.NoError(t, err)
		if object := file.Scope.Lookup("Options"); object != nil {
			fields := object.Decl.(*ast.TypeSpec).Type.(*ast.StructType).Fields.List
			return slices.ContainsFunc(fields, func(f *ast.Field) bool {
				return slices.ContainsFunc(f.Names, func(n *ast.Ident) bool { return n.Name == "Now" })
			})
		}
	}
	return false
}
