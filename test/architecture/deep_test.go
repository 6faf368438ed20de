package architecture

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
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
			if !ok || function.Recv != nil || !nameOfTest.MatchString(function.Name.Name) {
				continue
			}
			declared[function.Name.Name] = true
			for at, statement := range function.Body.List {
				for _, name := range nameOfTest.FindAllString(smallerInstance(statement), -1) {
					named[name] = path
				}
				left[function.Name.Name] = left[function.Name.Name] || at == 0 && smallerInstance(statement) != ""
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

// smallerInstance is the reason of a deep.Only; empty for another statement.
func smallerInstance(statement ast.Stmt) string {
	expression, ok := statement.(*ast.ExprStmt)
	if !ok {
		return ""
	}
	call, ok := expression.X.(*ast.CallExpr)
	if !ok || len(call.Args) != 2 {
		return ""
	}
	function, ok := call.Fun.(*ast.SelectorExpr)
	if !ok || function.Sel.Name != "Only" || !isPackage(function.X, "deep") {
		return ""
	}
	reason, ok := call.Args[1].(*ast.BasicLit)
	if !ok {
		return ""
	}
	return reason.Value
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
