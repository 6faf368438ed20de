package architecture

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// bounded begins the comment that allows a bare receive on its line, and says why it ends.
const bounded = "// bounded: "

// TEN-9: each wait of a test has a bound of its own, so that a guard that is removed fails one test in seconds. A receive
// outside a select has none.
func TestWaits_TEN9_NoReceiveWithoutABound(t *testing.T) {
	eachTestFile(t, func(path string) error {
		found, err := bareReceives(path, nil)
		for _, at := range found {
			t.Errorf("%s: wait with await.Receive of test/kit/await, or say on the line why the wait ends: %s…", at, bounded)
		}
		return err
	})
}

// TEN-9: a request has a bound if its client has a timeout.
func TestWaits_TEN9_NoRequestWithoutABound(t *testing.T) {
	eachTestFile(t, func(path string) error {
		found, err := patientClients(path, nil)
		for _, at := range found {
			t.Errorf("%s: use await.HTTP of test/kit/await, or give the client a Timeout", at)
		}
		return err
	})
}

func eachTestFile(t *testing.T, check func(path string) error) {
	t.Helper()
	files := 0
	root := filepath.Join("..", "..")
	require.NoError(t, filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() && (strings.HasPrefix(entry.Name(), ".") && path != root || entry.Name() == "node_modules") {
			return filepath.SkipDir
		}
		if !strings.HasSuffix(path, "_test.go") {
			return nil
		}
		files++
		return check(path)
	}))
	require.Greater(t, files, 300, "a fence that sees nothing guards nothing")
}

func TestWaits_TheFenceSeesThem(t *testing.T) {
	found, err := bareReceives("x_test.go", `package x
func wait(ch chan int, ctx context.Context) {
	<-ch
	use((<-ch), "")
	go func() { <-ctx.Done(); <-r.Context().Done() }()
	<-server.Done()
	<-time.After(second)
	<-ticker.C
	<-ch // bounded: it has a value
	select {
	case <-ch:
		<-ch
	case use(<-ch) <- 1:
	}
}`)
	require.NoError(t, err)
	require.Equal(t, []string{"x_test.go:3", "x_test.go:4", "x_test.go:6", "x_test.go:12"}, found)
}

func TestWaits_TheFenceSeesClients(t *testing.T) {
	found, err := patientClients("x_test.go", `package x
func ask() {
	http.Get(url)
	http.DefaultClient.Do(request)
	client := &http.Client{Jar: jar}
	other := http.Client{Jar: jar, Timeout: time.Second}
	await.HTTP.Get(url)
	http.NewRequest("GET", url, nil)
}`)
	require.NoError(t, err)
	require.Equal(t, []string{"x_test.go:3", "x_test.go:4", "x_test.go:5"}, found)
}

// patientClients returns the places of a file where a request may wait forever for its answer. source is nil for the content of the file.
func patientClients(path string, source any) ([]string, error) {
	set := token.NewFileSet()
	file, err := parser.ParseFile(set, path, source, 0)
	if err != nil {
		return nil, err
	}
	var found []string
	ast.Inspect(file, func(n ast.Node) bool {
		patient := false
		switch n := n.(type) {
		case *ast.SelectorExpr:
			patient = slices.Contains([]string{"Get", "Head", "Post", "PostForm", "DefaultClient"}, n.Sel.Name) && isPackage(n.X, "http")
		case *ast.CompositeLit:
			client, ok := n.Type.(*ast.SelectorExpr)
			patient = ok && client.Sel.Name == "Client" && isPackage(client.X, "http") && !slices.ContainsFunc(n.Elts, isTimeout)
		}
		if patient {
			found = append(found, fmt.Sprintf("%s:%d", path, set.Position(n.Pos()).Line))
		}
		return true
	})
	return slices.Compact(found), nil
}

func isPackage(expression ast.Expr, name string) bool {
	of, ok := expression.(*ast.Ident)
	return ok && of.Name == name
}

func isTimeout(element ast.Expr) bool {
	field, ok := element.(*ast.KeyValueExpr)
	return ok && isPackage(field.Key, "Timeout")
}

// bareReceives returns the places of a file's receives that may wait forever. source is nil for the content of the file.
func bareReceives(path string, source any) ([]string, error) {
	set := token.NewFileSet()
	file, err := parser.ParseFile(set, path, source, parser.ParseComments)
	if err != nil {
		return nil, err
	}
	line := func(n ast.Node) int { return set.Position(n.Pos()).Line }
	allowed := map[int]bool{}
	for _, group := range file.Comments {
		for _, comment := range group.List {
			if strings.HasPrefix(comment.Text, bounded) {
				allowed[line(comment)] = true
			}
		}
	}
	inSelect := map[ast.Node]bool{}
	var found []string
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.CommClause: // is visited before what is in it
			if n.Comm != nil {
				ast.Inspect(n.Comm, func(n ast.Node) bool { inSelect[n] = true; return true })
			}
		case *ast.UnaryExpr:
			if n.Op == token.ARROW && !inSelect[n] && !allowed[line(n)] && !alwaysEnds(n.X) {
				found = append(found, fmt.Sprintf("%s:%d", path, line(n)))
			}
		}
		return true
	})
	return slices.Compact(found), nil
}

// alwaysEnds: a timer fires, and the context of a call ends with its caller, which waits with a bound.
func alwaysEnds(channel ast.Expr) bool {
	switch channel := channel.(type) {
	case *ast.SelectorExpr:
		return channel.Sel.Name == "C"
	case *ast.CallExpr:
		function, ok := channel.Fun.(*ast.SelectorExpr)
		if !ok {
			return false
		}
		if of, ok := function.X.(*ast.Ident); ok {
			return of.Name == "time" && function.Sel.Name == "After" || of.Name == "ctx" && function.Sel.Name == "Done"
		}
		of, ok := function.X.(*ast.CallExpr)
		if !ok || function.Sel.Name != "Done" {
			return false
		}
		method, ok := of.Fun.(*ast.SelectorExpr)
		return ok && method.Sel.Name == "Context"
	}
	return false
}
