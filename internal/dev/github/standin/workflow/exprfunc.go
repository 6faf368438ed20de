package workflow

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/rhysd/actionlint"
)

// builtin is a function of the expression language with the least and the most arguments it takes (most < 0:
// any number).
type builtin struct {
	least, most int
	call        func(args []Value) (Value, error)
}

var builtins = map[string]builtin{
	"contains":   {2, 2, func(a []Value) (Value, error) { return contains(a[0], a[1]), nil }},
	"startswith": {2, 2, func(a []Value) (Value, error) { return fold(a, strings.HasPrefix), nil }},
	"endswith":   {2, 2, func(a []Value) (Value, error) { return fold(a, strings.HasSuffix), nil }},
	"format":     {1, -1, format},
	"join":       {1, 2, join},
	"tojson":     {1, 1, toJSON},
	"fromjson":   {1, 1, fromJSON},
	"case":       {1, -1, caseOf},
}

func (s Scope) call(n *actionlint.FuncCallNode) (Value, error) {
	name := strings.ToLower(n.Callee)
	if v, ok, err := s.status(name, len(n.Args)); ok || err != nil {
		return v, err
	}
	fn, ok := builtins[name]
	if !ok {
		return nil, fmt.Errorf("%w: there is no function %s() here", ErrExpression, n.Callee)
	}
	if len(n.Args) < fn.least || (fn.most >= 0 && len(n.Args) > fn.most) {
		return nil, fmt.Errorf("%w: %s() does not take %d arguments", ErrExpression, n.Callee, len(n.Args))
	}
	args := make([]Value, len(n.Args))
	for i, arg := range n.Args {
		v, err := s.evalNode(arg)
		if err != nil {
			return nil, err
		}
		args[i] = v
	}
	v, err := fn.call(args)
	if err != nil {
		return nil, fmt.Errorf("%w: calling %s(): %w", ErrExpression, n.Callee, err)
	}
	return v, nil
}

func (s Scope) status(name string, args int) (Value, bool, error) {
	var fn func() bool
	switch name {
	case "success":
		fn = s.Success
	case "failure":
		fn = s.Failure
	case "cancelled":
		fn = s.Cancelled
	case "always":
		if s.Success != nil {
			fn = func() bool { return true }
		}
	default:
		return nil, false, nil
	}
	if fn == nil {
		return nil, false, fmt.Errorf("%w: %s() can be used in `if` only", ErrExpression, name)
	}
	if args != 0 {
		return nil, false, fmt.Errorf("%w: %s() takes no arguments", ErrExpression, name)
	}
	return fn(), true, nil
}

func contains(in, item Value) bool {
	if list, ok := in.([]any); ok {
		for _, v := range list {
			if looseEqual(v, item) {
				return true
			}
		}
		return false
	}
	if _, ok := in.(*Object); ok {
		return false
	}
	return fold([]Value{in, item}, strings.Contains)
}

func fold(args []Value, test func(s, sub string) bool) bool {
	return test(strings.ToLower(ToString(args[0])), strings.ToLower(ToString(args[1])))
}

func join(args []Value) (Value, error) {
	sep := ","
	if len(args) == 2 {
		sep = ToString(args[1])
	}
	list, ok := args[0].([]any)
	if !ok {
		return ToString(args[0]), nil
	}
	texts := make([]string, len(list))
	for i, v := range list {
		texts[i] = ToString(v)
	}
	return strings.Join(texts, sep), nil
}

func toJSON(args []Value) (Value, error) {
	text, err := encodeJSON(args[0], "  ")
	return string(text), err
}

func fromJSON(args []Value) (Value, error) {
	return FromJSON([]byte(ToString(args[0])))
}

func caseOf(args []Value) (Value, error) {
	if len(args) < 3 || len(args)%2 == 0 {
		return nil, fmt.Errorf("it takes pairs of a condition and a value, then a default, not %d arguments", len(args))
	}
	for i := 0; i+1 < len(args); i += 2 {
		if Truthy(args[i]) {
			return args[i+1], nil
		}
	}
	return args[len(args)-1], nil
}

// format replaces {0}, {1}, …; {{ and }} stand for the braces themselves.
func format(args []Value) (Value, error) {
	text := ToString(args[0])
	var b strings.Builder
	for i := 0; i < len(text); i++ {
		c := text[i]
		if c != '{' && c != '}' {
			b.WriteByte(c)
			continue
		}
		if i+1 < len(text) && text[i+1] == c {
			b.WriteByte(c)
			i++
			continue
		}
		end := strings.IndexByte(text[i:], '}')
		if c == '}' || end < 0 {
			return nil, fmt.Errorf("the brace at %d of %q has no partner", i, text)
		}
		n, err := strconv.ParseUint(text[i+1:i+end], 10, 16)
		if err != nil {
			return nil, fmt.Errorf("%q is no argument number", text[i+1:i+end])
		}
		if int(n)+1 >= len(args) {
			return nil, fmt.Errorf("{%d} has no argument", n)
		}
		b.WriteString(ToString(args[n+1]))
		i += end
	}
	return b.String(), nil
}
