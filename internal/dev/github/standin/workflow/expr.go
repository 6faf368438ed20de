package workflow

import (
	"errors"
	"fmt"
	"math"
	"strings"

	"github.com/rhysd/actionlint"
)

// maxExpression is GitHub's own limit for one expression, in bytes. It bounds the parser's recursion as well.
const maxExpression = 21000

// ErrExpression marks every failure to parse or evaluate an expression.
var ErrExpression = errors.New("bad expression")

// Scope is what an expression sees. The zero value knows no context and no status function.
type Scope struct {
	// Contexts holds the named values: github, needs, env, steps, … A context that is missing is an error,
	// a property that is missing is null.
	Contexts *Object
	// Success, Failure and Cancelled answer the status functions. Where they are nil these functions, and
	// always(), are errors, as they are on GitHub outside of conditions.
	Success, Failure, Cancelled func() bool
}

// Eval evaluates one expression, without the ${{ }} around it.
func (s Scope) Eval(expr string) (Value, error) {
	node, err := parseExpr(expr)
	if err != nil {
		return nil, err
	}
	return s.evalNode(node)
}

// Interpolate replaces each ${{ }} in text by its value as a string.
func (s Scope) Interpolate(text string) (string, error) {
	parts, err := splitTemplate(text)
	if err != nil {
		return "", err
	}
	var b strings.Builder
	for _, p := range parts {
		if p.node == nil {
			b.WriteString(p.text)
			continue
		}
		v, err := s.evalNode(p.node)
		if err != nil {
			return "", err
		}
		b.WriteString(ToString(v))
	}
	return b.String(), nil
}

// Template evaluates text: when it is exactly one ${{ }} the value keeps its type, otherwise it is a string.
func (s Scope) Template(text string) (Value, error) {
	parts, err := splitTemplate(strings.TrimSpace(text))
	if err != nil {
		return nil, err
	}
	if len(parts) == 1 && parts[0].node != nil {
		return s.evalNode(parts[0].node)
	}
	return s.Interpolate(text)
}

// Condition evaluates an `if`: the ${{ }} are optional, and success() is implied unless the condition calls
// a status function itself.
func (s Scope) Condition(cond string) (bool, error) {
	full, err := fullCondition(cond)
	if err != nil {
		return false, err
	}
	v, err := s.Eval(full)
	return Truthy(v), err
}

// fullCondition writes the implied success() out, as the service does before it sends a step to a runner.
func fullCondition(cond string) (string, error) {
	expr := strings.TrimSpace(cond)
	if expr == "" {
		return "success()", nil
	}
	if strings.Contains(expr, "${{") {
		parts, err := splitTemplate(expr)
		if err != nil {
			return "", err
		}
		expr = joinTemplate(parts)
	}
	node, err := parseExpr(expr)
	if err != nil {
		return "", err
	}
	if callsAny(node, "success", "failure", "cancelled", "always") {
		return expr, nil
	}
	return "success() && (" + expr + ")", nil
}

// callsAny reports whether the expression calls one of the functions, whose names are given in lower case.
func callsAny(node actionlint.ExprNode, names ...string) bool {
	found := false
	actionlint.VisitExprNode(node, func(n, _ actionlint.ExprNode, entering bool) {
		call, ok := n.(*actionlint.FuncCallNode)
		if !ok || !entering {
			return
		}
		for _, name := range names {
			found = found || strings.EqualFold(call.Callee, name)
		}
	})
	return found
}

// part is a piece of a template: literal text, or an expression when node is set (text is then its source).
type part struct {
	text string
	node actionlint.ExprNode
}

func splitTemplate(text string) ([]part, error) {
	var parts []part
	for {
		open := strings.Index(text, "${{")
		if open < 0 {
			break
		}
		if open > 0 {
			parts = append(parts, part{text: text[:open]})
		}
		text = text[open+3:]
		lexer := actionlint.NewExprLexer(text)
		node, exprErr := actionlint.NewExprParser().Parse(lexer)
		if exprErr != nil {
			return nil, fmt.Errorf("%w: %s", ErrExpression, exprErr.Message)
		}
		end := lexer.Offset()
		if end > maxExpression {
			return nil, errTooLong
		}
		parts = append(parts, part{text: strings.TrimSpace(strings.TrimSuffix(text[:end], "}}")), node: node})
		text = text[end:]
	}
	if text != "" {
		parts = append(parts, part{text: text})
	}
	return parts, nil
}

var errTooLong = fmt.Errorf("%w: it is longer than %d characters", ErrExpression, maxExpression)

// joinTemplate writes parts as one expression: the expression alone, or a call of format().
func joinTemplate(parts []part) string {
	if len(parts) == 1 && parts[0].node != nil {
		return parts[0].text
	}
	var format strings.Builder
	var args []string
	for _, p := range parts {
		if p.node == nil {
			format.WriteString(strings.NewReplacer("{", "{{", "}", "}}", "'", "''").Replace(p.text))
			continue
		}
		fmt.Fprintf(&format, "{%d}", len(args))
		args = append(args, p.text)
	}
	return "format('" + format.String() + "'" + strings.Join(append([]string{""}, args...), ", ") + ")"
}

func parseExpr(expr string) (actionlint.ExprNode, error) {
	if len(expr) > maxExpression {
		return nil, errTooLong
	}
	lexer := actionlint.NewExprLexer(expr + "}}")
	node, err := actionlint.NewExprParser().Parse(lexer)
	if err != nil {
		return nil, fmt.Errorf("%w: %s", ErrExpression, err.Message)
	}
	if lexer.Offset() < len(expr)+2 {
		return nil, fmt.Errorf("%w: there is text after }}", ErrExpression)
	}
	return node, nil
}

// filtered is the result of `.*`: a list over which later property accesses are mapped.
type filtered []any

func (s Scope) evalNode(node actionlint.ExprNode) (Value, error) {
	v, err := s.eval(node)
	if f, ok := v.(filtered); ok {
		return []any(f), err
	}
	return v, err
}

func (s Scope) eval(node actionlint.ExprNode) (Value, error) {
	switch n := node.(type) {
	case *actionlint.NullNode:
		return nil, nil
	case *actionlint.BoolNode:
		return n.Value, nil
	case *actionlint.IntNode:
		return float64(n.Value), nil
	case *actionlint.FloatNode:
		return n.Value, nil
	case *actionlint.StringNode:
		return n.Value, nil
	case *actionlint.VariableNode:
		return s.variable(n.Name)
	case *actionlint.ObjectDerefNode:
		from, err := s.eval(n.Receiver)
		return property(from, n.Property), err
	case *actionlint.IndexAccessNode:
		return s.index(n)
	case *actionlint.ArrayDerefNode:
		from, err := s.eval(n.Receiver)
		return star(from), err
	case *actionlint.NotOpNode:
		v, err := s.evalNode(n.Operand)
		return !Truthy(v), err
	case *actionlint.CompareOpNode:
		return s.compareNodes(n)
	case *actionlint.LogicalOpNode:
		left, err := s.evalNode(n.Left)
		if err != nil || Truthy(left) == (n.Kind == actionlint.LogicalOpNodeKindOr) {
			return left, err
		}
		return s.evalNode(n.Right)
	case *actionlint.FuncCallNode:
		return s.call(n)
	default:
		return nil, fmt.Errorf("%w: unknown syntax %T", ErrExpression, node)
	}
}

func (s Scope) variable(name string) (Value, error) {
	switch name {
	case "infinity":
		return math.Inf(1), nil
	case "nan":
		return math.NaN(), nil
	}
	if v, ok := s.Contexts.Get(name); ok {
		return v, nil
	}
	return nil, fmt.Errorf("%w: the context %q is not available here", ErrExpression, name)
}

func property(from Value, name string) Value {
	switch from := from.(type) {
	case *Object:
		v, _ := from.Get(name)
		return v
	case filtered:
		out := filtered{}
		for _, item := range from {
			if obj, ok := item.(*Object); ok {
				if v, ok := obj.Get(name); ok {
					out = append(out, v)
				}
			}
		}
		return out
	}
	return nil
}

func star(from Value) Value {
	switch from := from.(type) {
	case *Object:
		out := filtered{}
		for _, k := range from.Keys() {
			v, _ := from.Get(k)
			out = append(out, v)
		}
		return out
	case []any:
		return filtered(from)
	case filtered:
		out := filtered{}
		for _, item := range from {
			if inner, ok := star(item).(filtered); ok {
				out = append(out, inner...)
			}
		}
		return out
	}
	return nil
}

func (s Scope) index(n *actionlint.IndexAccessNode) (Value, error) {
	from, err := s.eval(n.Operand)
	if err != nil {
		return nil, err
	}
	at, err := s.evalNode(n.Index)
	if err != nil {
		return nil, err
	}
	if list, ok := from.(filtered); ok {
		if key, isKey := at.(string); isKey {
			return property(list, key), nil
		}
		out := filtered{}
		for _, item := range list {
			if inner, ok := item.([]any); ok {
				if v, ok := element(inner, at); ok {
					out = append(out, v)
				}
			}
		}
		return out, nil
	}
	switch from := from.(type) {
	case *Object:
		switch at.(type) {
		case []any, *Object:
			return nil, nil
		}
		v, _ := from.Get(ToString(at))
		return v, nil
	case []any:
		v, _ := element(from, at)
		return v, nil
	}
	return nil, nil
}

func element(list []any, at Value) (Value, bool) {
	f := math.Floor(toNumber(at))
	if math.IsNaN(f) || f < 0 || f >= float64(len(list)) {
		return nil, false
	}
	return list[int(f)], true
}

func (s Scope) compareNodes(n *actionlint.CompareOpNode) (Value, error) {
	left, err := s.evalNode(n.Left)
	if err != nil {
		return nil, err
	}
	right, err := s.evalNode(n.Right)
	if err != nil {
		return nil, err
	}
	switch n.Kind {
	case actionlint.CompareOpNodeKindEq:
		return looseEqual(left, right), nil
	case actionlint.CompareOpNodeKindNotEq:
		return !looseEqual(left, right), nil
	}
	less, equal := order(left, right)
	switch n.Kind {
	case actionlint.CompareOpNodeKindLess:
		return less, nil
	case actionlint.CompareOpNodeKindLessEq:
		return less || equal, nil
	}
	less, equal = order(right, left)
	if n.Kind == actionlint.CompareOpNodeKindGreater {
		return less, nil
	}
	return less || equal, nil
}

// looseEqual compares as GitHub does: strings without regard to case, unlike types as numbers, objects and
// arrays by identity.
func looseEqual(a, b Value) bool {
	switch x := a.(type) {
	case nil:
		if b == nil {
			return true
		}
	case string:
		if y, ok := b.(string); ok {
			return strings.EqualFold(x, y)
		}
	case *Object:
		y, ok := b.(*Object)
		return ok && x == y
	case []any:
		y, ok := b.([]any)
		return ok && len(x) > 0 && len(x) == len(y) && &x[0] == &y[0]
	}
	return toNumber(a) == toNumber(b)
}

func order(a, b Value) (less, equal bool) {
	x, xIsText := a.(string)
	y, yIsText := b.(string)
	if xIsText && yIsText {
		x, y = strings.ToUpper(x), strings.ToUpper(y)
		return x < y, x == y
	}
	return toNumber(a) < toNumber(b), toNumber(a) == toNumber(b)
}
