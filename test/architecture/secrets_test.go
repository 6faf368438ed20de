package architecture

import (
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// constantTime lists every function that compares something secret with what a stranger sent, and how often. How long such a comparison takes
// must not depend on how much of it is right (NET-6), which no test of behaviour can show: that the right function is called, this one can.
var constantTime = map[string]int{
	"internal/github/signature.go Verify":              2, // of a webhook, with either secret
	"internal/server/console/oidc.go endOIDC":          1, // a login's state
	"internal/server/console/oidc.go identify":         1, // a login's nonce
	"internal/machost/steps/refused.go wasRefused":     1, // a password's digest
	"internal/dev/mac/machine.go hasPassword":          1,
	"internal/dev/github/standin/admin.go adminRoutes": 1, // the administrator's token
	"internal/cli/githubapp/callback.go same":          1, // the key, the cookie and the state of an App's registration
}

// TestSecrets_NET6_AreComparedInConstantTime compares the list with the code, and refuses any other comparison of bytes in a file that
// makes codes of authentication, or compares in constant time elsewhere.
func TestSecrets_NET6_AreComparedInConstantTime(t *testing.T) {
	got := map[string]int{}
	for path, text := range repositoryFiles(t) {
		ours := strings.HasPrefix(path, "internal/") || strings.HasPrefix(path, "cmd/") || strings.HasPrefix(path, "api/")
		if !ours || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			continue
		}
		calls, others := comparisons(t, path, text)
		maps.Copy(got, calls)
		require.Empty(t, others, "%s makes or compares what is secret: compare with hmac.Equal or subtle.ConstantTimeCompare", path)
	}
	require.Equal(t, constantTime, got, "a comparison of something secret was added, moved or taken out: keep the list in step")
}

// TestSecrets_FindsOtherComparisons shows that a mutant is found.
func TestSecrets_FindsOtherComparisons(t *testing.T) {
	const file = "package a\nimport (\"bytes\"; \"crypto/hmac\"; \"slices\")\nfunc f(a, b []byte) bool { return %s }\nvar _ = hmac.New\n"
	for code, want := range map[string]int{
		"hmac.Equal(a, b)": 0, "bytes.Equal(a, b)": 1, "bytes.Compare(a, b) == 0": 1, "slices.Equal(a, b)": 1, "string(a) == string(b)": 1, "string(a) != string(b)": 1,
	} {
		_, others := comparisons(t, "a.go", strings.Replace(file, "%s", code, 1))
		require.Len(t, others, want, code)
	}
}

// comparisons finds the calls in constant time, by file and function, and in a file that imports what they come from any other
// comparison of bytes.
func comparisons(t *testing.T, path, text string) (calls map[string]int, others []string) {
	t.Helper()
	set := token.NewFileSet()
	file, err := parser.ParseFile(set, path, text, parser.SkipObjectResolution)
	require.NoError(t, err)
	if !slices.ContainsFunc(file.Imports, func(i *ast.ImportSpec) bool {
		name, _ := strconv.Unquote(i.Path.Value)
		return name == "crypto/hmac" || name == "crypto/subtle"
	}) {
		return nil, nil
	}
	calls = map[string]int{}
	for _, declaration := range file.Decls {
		function, ok := declaration.(*ast.FuncDecl)
		if !ok {
			continue
		}
		ast.Inspect(function, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.CallExpr:
				switch name := called(n); name {
				case "hmac.Equal", "subtle.ConstantTimeCompare":
					calls[filepath.ToSlash(path)+" "+function.Name.Name]++
				case "bytes.Equal", "bytes.Compare", "bytes.EqualFold", "slices.Equal", "slices.Compare", "reflect.DeepEqual":
					others = append(others, set.Position(n.Pos()).String()+" "+name)
				}
			case *ast.BinaryExpr:
				if (n.Op == token.EQL || n.Op == token.NEQ) && isConversion(n.X) && isConversion(n.Y) {
					others = append(others, set.Position(n.Pos()).String()+" "+n.Op.String())
				}
			}
			return true
		})
	}
	return calls, others
}

func called(call *ast.CallExpr) string {
	selector, ok := call.Fun.(*ast.SelectorExpr)
	if !ok {
		return ""
	}
	if of, ok := selector.X.(*ast.Ident); ok {
		return of.Name + "." + selector.Sel.Name
	}
	return ""
}

func isConversion(e ast.Expr) bool {
	call, ok := e.(*ast.CallExpr)
	if !ok {
		return false
	}
	name, ok := call.Fun.(*ast.Ident)
	return ok && name.Name == "string"
}
