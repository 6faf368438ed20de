package architecture

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"slices"
	"strings"
)

// bounded begins the comment that allows a wait on its line, and says why it ends.
const bounded = "// bounded: "

func place(path string, line int) string { return fmt.Sprintf("%s:%d", path, line) }

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

// unboundedWaits returns the places of a file where its code may wait forever. source is nil for the content of the file. It sees
//   - receives outside a select,
//   - selects without a default, a timer, or the Done of a context,
//   - loops over channels that the file declares (by make, as a parameter or a field), and over ResultChan() of a watch,
//   - calls of Wait(), such as those of a WaitGroup, an errgroup and an exec.Cmd,
//   - Run(), Output() and CombinedOutput() of commands without a context of their own.
//
// It reads no types. So it does not see sends, locks, methods that wait inside, channels that another file declares, or whether a
// variable named ctx has a deadline. Only a receive and a select count in a goroutine: for the others, whoever waits for the goroutine needs the bound.
// Waits in a bubble of synctest end, as it fails when all its goroutines wait.
func unboundedWaits(path string, source any) ([]string, error) {
	set := token.NewFileSet()
	file, err := parser.ParseFile(set, path, source, parser.ParseComments)
	if err != nil {
		return nil, err
	}
	line := func(n ast.Node) int { return set.Position(n.Pos()).Line }
	allowed := map[int]bool{}
	for _, group := range file.Comments {
		for _, comment := range group.List {
			if strings.Contains(comment.Text, bounded) {
				allowed[line(comment)] = true
			}
		}
	}
	channels, timers := channelsOf(file), timersOf(file)
	ends := func(channel ast.Expr) bool {
		name, ok := channel.(*ast.Ident)
		return ok && timers[name.Name] || alwaysEnds(channel)
	}
	inSelect := map[ast.Node]bool{}
	var found []string
	var above []ast.Node
	ast.Inspect(file, func(n ast.Node) bool {
		if n == nil {
			above = above[:len(above)-1]
			return true
		}
		waits := false
		switch n := n.(type) {
		case *ast.CommClause: // is visited before what is in it
			if n.Comm != nil {
				ast.Inspect(n.Comm, func(n ast.Node) bool { inSelect[n] = true; return true })
			}
		case *ast.UnaryExpr:
			waits = n.Op == token.ARROW && !inSelect[n] && !ends(n.X)
		case *ast.SelectStmt:
			waits = !slices.ContainsFunc(n.Body.List, func(clause ast.Stmt) bool { return endsSelect(clause, ends) })
		case *ast.RangeStmt:
			waits = isChannel(n.X, channels) && !elsewhere(above)
		case *ast.CallExpr:
			waits = (isWait(n) && !killedBefore(n, above) || isPatientCommand(n, above)) && !elsewhere(above)
		}
		if waits && !allowed[line(n)] {
			found = append(found, place(path, line(n)))
		}
		above = append(above, n)
		return true
	})
	return slices.Compact(found), nil
}

// elsewhere: the innermost functions around are run by await, in a goroutine, or in a bubble of synctest.
func elsewhere(above []ast.Node) bool {
	for i, n := range above {
		if _, ok := n.(*ast.GoStmt); ok {
			return true
		}
		call, ok := n.(*ast.CallExpr)
		if !ok || i+1 == len(above) || !slices.ContainsFunc(call.Args, func(arg ast.Expr) bool { return arg == above[i+1] }) {
			continue
		}
		if function, ok := call.Fun.(*ast.SelectorExpr); ok && (isPackage(function.X, "await") || isPackage(function.X, "synctest") || function.Sel.Name == "Go") {
			return true
		}
	}
	return false
}

func isWait(call *ast.CallExpr) bool {
	function, ok := call.Fun.(*ast.SelectorExpr)
	return ok && function.Sel.Name == "Wait" && len(call.Args) == 0 && !isPackage(function.X, "synctest")
}

// killedBefore: a process exits that the same block kills.
func killedBefore(wait *ast.CallExpr, above []ast.Node) bool {
	for _, n := range slices.Backward(above) {
		block, ok := n.(*ast.BlockStmt)
		if !ok {
			continue
		}
		killed := false
		for _, statement := range block.List {
			if statement.Pos() < wait.Pos() {
				ast.Inspect(statement, func(n ast.Node) bool {
					killed = killed || n != nil && n.Pos() < wait.Pos() && kills(n, root(wait))
					return true
				})
			}
		}
		return killed
	}
	return false
}

// kills reports whether n kills what has the name: by its method Kill, or by a call with SIGKILL.
func kills(n ast.Node, name string) bool {
	call, ok := n.(*ast.CallExpr)
	if !ok {
		return false
	}
	if function, ok := call.Fun.(*ast.SelectorExpr); ok && function.Sel.Name == "Kill" && len(call.Args) == 0 {
		return root(call) == name
	}
	named, sigkill := false, false
	ast.Inspect(call, func(n ast.Node) bool {
		of, ok := n.(*ast.Ident)
		named, sigkill = named || ok && of.Name == name, sigkill || ok && of.Name == "SIGKILL"
		return true
	})
	return named && sigkill
}

// root returns the first name of the function that is called.
func root(call *ast.CallExpr) string {
	of := call.Fun
	for {
		switch part := of.(type) {
		case *ast.SelectorExpr:
			of = part.X
		case *ast.Ident:
			return part.Name
		default:
			return "?"
		}
	}
}

// channelsOf returns the names that a file declares for channels.
func channelsOf(file *ast.File) map[string]bool {
	names := map[string]bool{}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.Field:
			if _, ok := n.Type.(*ast.ChanType); ok {
				for _, name := range n.Names {
					names[name.Name] = true
				}
			}
		case *ast.AssignStmt:
			for i, value := range n.Rhs {
				made, ok := value.(*ast.CallExpr)
				if !ok || !isPackage(made.Fun, "make") || len(n.Lhs) != len(n.Rhs) {
					continue
				}
				name, isName := n.Lhs[i].(*ast.Ident)
				if _, ok := made.Args[0].(*ast.ChanType); ok && isName {
					names[name.Name] = true
				}
			}
		}
		return true
	})
	return names
}

// timersOf returns the variables of a file that time.After has made.
func timersOf(file *ast.File) map[string]bool {
	names := map[string]bool{}
	ast.Inspect(file, func(n ast.Node) bool {
		assignment, ok := n.(*ast.AssignStmt)
		if !ok || len(assignment.Lhs) != len(assignment.Rhs) {
			return true
		}
		for i, value := range assignment.Rhs {
			call, ok := value.(*ast.CallExpr)
			name, isName := assignment.Lhs[i].(*ast.Ident)
			if ok && isName && isTimeAfter(call) {
				names[name.Name] = true
			}
		}
		return true
	})
	return names
}

func isTimeAfter(call *ast.CallExpr) bool {
	function, ok := call.Fun.(*ast.SelectorExpr)
	return ok && isPackage(function.X, "time") && function.Sel.Name == "After"
}

func isChannel(ranged ast.Expr, channels map[string]bool) bool {
	switch ranged := ranged.(type) {
	case *ast.Ident:
		return channels[ranged.Name]
	case *ast.SelectorExpr:
		return channels[ranged.Sel.Name]
	case *ast.CallExpr:
		function, ok := ranged.Fun.(*ast.SelectorExpr)
		return ok && function.Sel.Name == "ResultChan"
	}
	return false
}

// commandsOf returns the variables of a function that are commands without a bound.
func commandsOf(function ast.Node) map[string]bool {
	names := map[string]bool{}
	ast.Inspect(function, func(n ast.Node) bool {
		assignment, ok := n.(*ast.AssignStmt)
		if ok && len(assignment.Lhs) == 1 && makesPatientCommand(assignment.Rhs[0]) {
			if name, ok := assignment.Lhs[0].(*ast.Ident); ok {
				names[name.Name] = true
			}
		}
		return true
	})
	return names
}

func isPatientCommand(call *ast.CallExpr, above []ast.Node) bool {
	function, ok := call.Fun.(*ast.SelectorExpr)
	if !ok || len(call.Args) != 0 || !slices.Contains([]string{"Run", "Output", "CombinedOutput"}, function.Sel.Name) {
		return false
	}
	if name, ok := function.X.(*ast.Ident); ok {
		return commandsOf(above[1])[name.Name] // above[0] is the file, and this the function
	}
	return makesPatientCommand(function.X)
}

// makesPatientCommand: the context of a test has no deadline, and ends only after the test has.
func makesPatientCommand(expression ast.Expr) bool {
	call, ok := expression.(*ast.CallExpr)
	if !ok {
		return false
	}
	function, ok := call.Fun.(*ast.SelectorExpr)
	if !ok || !isPackage(function.X, "exec") {
		return false
	}
	if function.Sel.Name != "CommandContext" {
		return function.Sel.Name == "Command"
	}
	of, ok := call.Args[0].(*ast.CallExpr)
	if !ok {
		return false
	}
	method, ok := of.Fun.(*ast.SelectorExpr)
	return ok && (method.Sel.Name == "Background" || method.Sel.Name == "Context" && !isPackage(method.X, "await"))
}

func endsSelect(clause ast.Stmt, ends func(channel ast.Expr) bool) bool {
	comm, ok := clause.(*ast.CommClause)
	if !ok || comm.Comm == nil {
		return ok
	}
	bound := false
	ast.Inspect(comm.Comm, func(n ast.Node) bool {
		receive, ok := n.(*ast.UnaryExpr)
		bound = bound || ok && receive.Op == token.ARROW && ends(receive.X)
		return true
	})
	return bound
}

// alwaysEnds: a timer fires, and the context of a call ends with its caller, which waits with a bound.
func alwaysEnds(channel ast.Expr) bool {
	switch channel := channel.(type) {
	case *ast.SelectorExpr:
		return channel.Sel.Name == "C"
	case *ast.CallExpr:
		function, ok := channel.Fun.(*ast.SelectorExpr)
		if isTimeAfter(channel) {
			return true
		}
		if !ok || function.Sel.Name != "Done" {
			return false
		}
		switch of := function.X.(type) {
		case *ast.Ident:
			return of.Name == "ctx"
		case *ast.SelectorExpr:
			return of.Sel.Name == "ctx"
		case *ast.CallExpr:
			method, ok := of.Fun.(*ast.SelectorExpr)
			return ok && method.Sel.Name == "Context"
		}
	}
	return false
}
