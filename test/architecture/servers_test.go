package architecture

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TEN-3: each HTTP server that ships is made where its bounds are. net/http's own bound of headers is 1 MiB, which takes 16 MiB of memory, and
// it waits for a client without end.
func TestServers_TEN3_HaveBoundsOnHeaders(t *testing.T) {
	const home = "internal/lib/httpserver"
	made := 0
	for name, text := range repositoryFiles(t) {
		if path.Ext(name) != ".go" || strings.HasSuffix(name, "_test.go") || !withinAny(name, []string{"cmd", "internal"}) || withinAny(name, neverShips) {
			continue
		}
		fields, calls := httpServers(t, text)
		require.Empty(t, calls, "%s: use %s", name, home)
		for _, has := range fields {
			made++
			require.True(t, within(name, home), "%s makes an http.Server: use %s", name, home)
			require.True(t, has["MaxHeaderBytes"] && has["ReadHeaderTimeout"], "%s: set MaxHeaderBytes and ReadHeaderTimeout", name)
		}
	}
	require.Positive(t, made)
}

func TestServers_AreFound(t *testing.T) {
	fields, calls := httpServers(t, `package a
		var _, _ = &http.Server{MaxHeaderBytes: 1}, new(http.Server)
		func _() { http.ListenAndServe("", nil); http.Serve(nil, nil); http.Get("") }`)
	require.Equal(t, []map[string]bool{{"MaxHeaderBytes": true}}, fields)
	require.Equal(t, []string{"new(http.Server)", "http.ListenAndServe", "http.Serve"}, calls)
}

// httpServers returns the fields of each http.Server in a file, and what else makes one.
func httpServers(t *testing.T, text string) (fields []map[string]bool, calls []string) {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), "", text, 0)
	require.NoError(t, err)
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.CompositeLit:
			if ofHTTP(n.Type) == "Server" {
				has := map[string]bool{}
				for _, element := range n.Elts {
					if pair, ok := element.(*ast.KeyValueExpr); ok {
						has[pair.Key.(*ast.Ident).Name] = true
					}
				}
				fields = append(fields, has)
			}
		case *ast.CallExpr:
			name := ofHTTP(n.Fun)
			if strings.HasPrefix(name, "ListenAndServe") || name == "Serve" || name == "ServeTLS" {
				calls = append(calls, "http."+name)
			}
			if built, ok := n.Fun.(*ast.Ident); ok && built.Name == "new" && ofHTTP(n.Args[0]) == "Server" {
				calls = append(calls, "new(http.Server)")
			}
		}
		return true
	})
	return fields, calls
}

// ofHTTP returns the name of what an expression takes from net/http, or nothing.
func ofHTTP(e ast.Expr) string {
	if sel, ok := e.(*ast.SelectorExpr); ok {
		if x, ok := sel.X.(*ast.Ident); ok && x.Name == "http" {
			return sel.Sel.Name
		}
	}
	return ""
}
