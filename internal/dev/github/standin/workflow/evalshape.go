package workflow

import (
	"errors"
	"fmt"
	"strings"

	"github.com/rhysd/actionlint"
)

// ErrTemplate marks a value that does not fit the place for which it was evaluated. Its text is GitHub's.
var ErrTemplate = errors.New("The template is not valid.")

func notValid(what string) error { return fmt.Errorf("%w %s", ErrTemplate, what) }

// evalShape evaluates a token and makes sure that the result fits the shape. It has literal texts only.
func (s Scope) evalShape(t Token, sh *shape, where string) (Token, error) {
	if sh.where != "" {
		where = sh.where
	}
	if t.Kind == TokenExpression {
		v, err := s.within(where).Eval(t.Text)
		if err != nil {
			return Token{}, err
		}
		t = valueToken(v)
	}
	switch t.Kind {
	case TokenSequence:
		return s.evalSequence(t, sh, where)
	case TokenMapping:
		return s.evalMapping(t, sh, where)
	case TokenExpression, TokenInsert:
		return Token{}, notValid(unexpectedValue(t.Text))
	}
	v, err := s.EvalToken(t)
	if err != nil {
		return Token{}, err
	}
	text := ToString(v)
	if !sh.text || sh.nonEmpty && text == "" {
		return Token{}, notValid(unexpectedValue(text))
	}
	return Token{Text: text}, nil
}

// within keeps the contexts that the schema allows at a place.
func (s Scope) within(where string) Scope {
	allowed, _ := actionlint.WorkflowKeyAvailability(where)
	contexts := NewObject()
	for _, name := range allowed {
		if v, ok := s.Contexts.Get(name); ok {
			contexts.Set(name, v)
		}
	}
	return Scope{Contexts: contexts}
}

func (s Scope) evalSequence(t Token, sh *shape, where string) (Token, error) {
	if sh.items == nil {
		return Token{}, notValid(unexpectedSequence)
	}
	out := Token{Kind: TokenSequence}
	for _, item := range t.Items {
		value, err := s.evalShape(item, sh.items, where)
		if err != nil {
			return Token{}, err
		}
		out.Items = append(out.Items, value)
	}
	return out, nil
}

func (s Scope) evalMapping(t Token, sh *shape, where string) (Token, error) {
	if !sh.mapping() {
		return Token{}, notValid(unexpectedMapping)
	}
	out, known := Token{Kind: TokenMapping}, map[string]bool{}
	for _, p := range t.Pairs {
		key, err := s.within(where).EvalToken(p.Key)
		if err != nil {
			return Token{}, err
		}
		name := ToString(key)
		if known[strings.ToLower(name)] {
			return Token{}, notValid(fmt.Sprintf("'%s' is already defined", name))
		}
		known[strings.ToLower(name)] = true
		inner := sh.values
		if sh.keys != nil {
			inner = sh.keys[name]
		}
		if inner == nil || name == "" {
			return Token{}, notValid(unexpectedValue(name))
		}
		value, err := s.evalShape(p.Value, inner, where)
		if err != nil {
			return Token{}, err
		}
		out.Pairs = append(out.Pairs, TokenPair{Token{Text: name}, value})
	}
	return out, nil
}

// valueToken makes the token of a value that was evaluated.
func valueToken(v Value) Token {
	switch v := v.(type) {
	case []any:
		out := Token{Kind: TokenSequence}
		for _, item := range v {
			out.Items = append(out.Items, valueToken(item))
		}
		return out
	case *Object:
		out := Token{Kind: TokenMapping}
		for _, k := range v.Keys() {
			item, _ := v.Get(k)
			out.Pairs = append(out.Pairs, TokenPair{Token{Text: k}, valueToken(item)})
		}
		return out
	}
	return Token{Text: ToString(v)}
}
