package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/internal/server/admin"
)

const top = "../.."

// The committed description matches the routes and types, and is valid OpenAPI.
func TestDocument_IsWhatTheRoutesAndTypesSay(t *testing.T) {
	words, err := readWords(filepath.Join(top, "api/adminapi"))
	require.NoError(t, err)
	document, err := describe(admin.Routes(), operations(), words)
	require.NoError(t, err)
	for file, want := range map[string]string{"api/openapi/openapi.yaml": string(document), "docs/reference/api.md": readable(admin.Routes(), operations(), words)} {
		text, err := os.ReadFile(filepath.Join(top, file))
		require.NoError(t, err)
		require.Equal(t, string(text), want, "%s: run make generate", file)
	}
	parsed, err := openapi3.NewLoader().LoadFromData(document)
	require.NoError(t, err)
	require.NoError(t, parsed.Validate(t.Context()))
	var described int
	for _, item := range parsed.Paths.Map() {
		described += len(item.Operations())
	}
	require.Equal(t, len(operations()), described, "two operations have one method and path")
}

// A route without a description, and a description of no route, stop the generator.
func TestDescribe_RoutesAndOperationsCoverEachOther(t *testing.T) {
	words := words{says: map[string]string{}, enums: map[string][]string{}}
	more := append(admin.Routes(), admin.Route{Pattern: "GET /api/v1/more"})
	_, err := describe(more, operations(), words)
	require.ErrorContains(t, err, `"GET /api/v1/more" is not described`)
	_, err = describe(admin.Routes(), append(operations(), operation{route: "GET /api/v1/gone"}), words)
	require.ErrorContains(t, err, `"GET /api/v1/gone", which is no route any more`)
}

// Each parameter that the handlers read from a query is described, and none that they do not read.
func TestOperations_DescribeTheParametersThatAreRead(t *testing.T) {
	described := map[string]bool{}
	for _, one := range operations() {
		for _, p := range one.query {
			described[p.name] = true
		}
	}
	files, err := filepath.Glob(filepath.Join(top, "internal/server/admin/*.go"))
	require.NoError(t, err)
	read := map[string]bool{}
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
		require.NoError(t, err)
		ast.Inspect(parsed, func(n ast.Node) bool {
			if name := parameterRead(n); name != "" {
				read[name] = true
			}
			return true
		})
	}
	require.Greater(t, len(read), 10)
	require.Equal(t, read, described)
}

// parameterRead is the name of the parameter that an expression reads: q.Get("x"), or query["x"].
func parameterRead(n ast.Node) string {
	var literal ast.Expr
	switch e := n.(type) {
	case *ast.CallExpr:
		get, is := e.Fun.(*ast.SelectorExpr)
		if !is || get.Sel.Name != "Get" || len(e.Args) != 1 {
			return ""
		}
		if header, is := get.X.(*ast.SelectorExpr); is && header.Sel.Name == "Header" {
			return ""
		}
		literal = e.Args[0]
	case *ast.IndexExpr:
		if query, is := e.X.(*ast.Ident); !is || query.Name != "query" {
			return ""
		}
		literal = e.Index
	}
	text, is := literal.(*ast.BasicLit)
	if !is {
		return ""
	}
	name, err := strconv.Unquote(text.Value)
	if err != nil {
		return ""
	}
	return name
}

func TestSchemas_FieldsHaveWordsAndValues(t *testing.T) {
	words, err := readWords(filepath.Join(top, "api/adminapi"))
	require.NoError(t, err)
	require.Equal(t, []string{"active", "suspended", "uninstalled", "deleted"}, words.enums["AccountState"])
	s := &schemas{words: words, all: object{}}
	for _, one := range operations() {
		if one.answer != nil {
			s.of(reflect.TypeOf(one.answer))
		}
	}
	account, _ := s.all["Account"].(object)
	require.Contains(t, account["required"], "login")
	require.False(t, slices.Contains(account["required"].([]string), "installationId"), "it is left out where there is none")
}
