package architecture

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/test/kit/deep"
)

var nameOfTest = regexp.MustCompile(`\bTest[A-Z]\w*`)

// Each test that make test leaves out names a smaller instance, which must exist and must not be left out itself.
func TestDeep_EachSmallerInstanceRuns(t *testing.T) {
	declared, left, named := map[string]bool{}, map[string]bool{}, map[string]string{}
	eachTestFile(t, func(path string) error {
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		if err != nil {
			return err
		}
		for _, declaration := range file.Decls {
			function, ok := declaration.(*ast.FuncDecl)
			if ok && function.Recv == nil && nameOfTest.MatchString(function.Name.Name) {
				declared[function.Name.Name] = true
				left[function.Name.Name] = len(function.Body.List) > 0 && onlyDeep(function.Body.List[0]) != nil
			}
		}
		for _, reason := range smallerInstances(file) {
			names := nameOfTest.FindAllString(reason, -1)
			require.NotEmpty(t, names, "%s: deep.Only names no test, or not by a constant or a field of a table: %q", path, reason)
			for _, name := range names {
				named[name] = path
			}
		}
		return nil
	})
	require.Greater(t, len(named), 5, "a fence that sees nothing guards nothing")
	for name, path := range named {
		require.True(t, declared[name], "%s names %s, which is no test", path, name)
		require.False(t, left[name], "%s names %s, which make test leaves out, too", path, name)
	}
}

func TestDeep_TheFenceReadsLiteralsAndTables(t *testing.T) {
	file, err := parser.ParseFile(token.NewFileSet(), "x_test.go", `package x
var phases = []struct {
	name    string
	smaller string
}{{"a", ""}, {"b", "TestB"}, {name: "c", smaller: "isolation"}}
func TestA(t *testing.T) {
	deep.Only(t, "TestC")
	deep.Only(t, phase.smaller)
	deep.Only(t, reason())
	deep.Only(t, other.field)
	other.Only(t, "TestD")
}`, 0)
	require.NoError(t, err)
	require.Equal(t, []string{"TestC", "TestB", "isolation", "", ""}, smallerInstances(file))
}

// smallerInstances are the reasons of a file's deep.Only: literals, and those of the field of a table. An argument that is neither has "".
func smallerInstances(file *ast.File) []string {
	var reasons []string
	ast.Inspect(file, func(n ast.Node) bool {
		switch argument := onlyDeep(n).(type) {
		case nil:
		case *ast.BasicLit:
			reasons = append(reasons, text(argument))
		case *ast.SelectorExpr:
			found := ofField(file, argument.Sel.Name)
			if len(found) == 0 {
				found = []string{""}
			}
			reasons = append(reasons, found...)
		default:
			reasons = append(reasons, "")
		}
		return true
	})
	return reasons
}

// onlyDeep is the reason of a deep.Only; nil for another statement.
func onlyDeep(n ast.Node) ast.Expr {
	statement, ok := n.(*ast.ExprStmt)
	if !ok {
		return nil
	}
	call, ok := statement.X.(*ast.CallExpr)
	if !ok || len(call.Args) != 2 {
		return nil
	}
	function, ok := call.Fun.(*ast.SelectorExpr)
	if !ok || function.Sel.Name != "Only" || !isPackage(function.X, "deep") {
		return nil
	}
	return call.Args[1]
}

// ofField returns the texts, "" aside, of a field in the tables of a file whose type is in the literal.
func ofField(file *ast.File, name string) []string {
	var texts []string
	ast.Inspect(file, func(n ast.Node) bool {
		table, ok := n.(*ast.CompositeLit)
		if !ok {
			return true
		}
		list, ok := table.Type.(*ast.ArrayType)
		if !ok {
			return true
		}
		row, ok := list.Elt.(*ast.StructType)
		if !ok {
			return true
		}
		var fields []string
		for _, field := range row.Fields.List {
			for _, of := range field.Names {
				fields = append(fields, of.Name)
			}
		}
		for _, element := range table.Elts {
			values, ok := element.(*ast.CompositeLit)
			if !ok {
				continue
			}
			for at, value := range values.Elts {
				of := fields[min(at, len(fields)-1)]
				if keyed, ok := value.(*ast.KeyValueExpr); ok {
					of, value = keyed.Key.(*ast.Ident).Name, keyed.Value
				}
				if of == name && text(value) != "" {
					texts = append(texts, text(value))
				}
			}
		}
		return true
	})
	return texts
}

// text is the value of a literal of a string; empty for another expression.
func text(value ast.Expr) string {
	literal, ok := value.(*ast.BasicLit)
	if !ok {
		return ""
	}
	unquoted, _ := strconv.Unquote(literal.Value)
	return unquoted
}

// The module of the images cannot import test/kit/deep: it reads the same variable, which make test-deep sets for both.
func TestDeep_OneVariableForEachModule(t *testing.T) {
	images, err := os.ReadFile(filepath.Join("..", "..", "images", "product_test.go"))
	require.NoError(t, err)
	require.Contains(t, string(images), `os.Getenv("`+deep.Env+`")`)
	makefile, err := os.ReadFile(filepath.Join("..", "..", "Makefile"))
	require.NoError(t, err)
	recipe := regexp.MustCompile(`(?m)^test-deep:.*\n(\t.*\n)+`).FindString(string(makefile))
	require.Regexp(t, `export `+deep.Env+`=1 .* test .*\$\(DEEP\)`, recipe)
	require.Regexp(t, `\$\(PLAIN\) `+deep.Env+`=1; cd images && .* test `, recipe)
}
