package github

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Queries and alerts name operations by their label, so each constant has its own, in snake case.
func TestOperationLabels_EachOperationHasOne(t *testing.T) {
	snake := regexp.MustCompile(`^[a-z]+(_[a-z]+)*$`)
	files, err := filepath.Glob("*.go")
	require.NoError(t, err)
	operations, labels := 0, map[string]string{}
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		require.NoError(t, err)
		ast.Inspect(file, func(node ast.Node) bool {
			spec, is := node.(*ast.ValueSpec)
			if !is || len(spec.Values) != 1 || !regexp.MustCompile(`^op[A-Z]`).MatchString(spec.Names[0].Name) {
				return true
			}
			phrase, err := strconv.Unquote(spec.Values[0].(*ast.BasicLit).Value) //nolint:forcetypeassert // a constant's literal
			require.NoError(t, err)
			label := operationLabels[phrase]
			require.Regexp(t, snake, label, spec.Names[0].Name)
			require.Empty(t, labels[label], label)
			operations, labels[label] = operations+1, phrase
			return true
		})
	}
	require.Len(t, operationLabels, operations)
}
