package workflow

import (
	"errors"
	"fmt"
	"strings"
)

// TokenKind is the type of a template token, by the numbers the runner protocol uses.
type TokenKind int

// The kinds of template tokens.
const (
	TokenString     TokenKind = 0
	TokenSequence   TokenKind = 1
	TokenMapping    TokenKind = 2
	TokenExpression TokenKind = 3
	TokenInsert     TokenKind = 4
	TokenBool       TokenKind = 5
	TokenNumber     TokenKind = 6
	TokenNull       TokenKind = 7
)

// ErrMessage marks a job message that does not have the protocol's shape.
var ErrMessage = errors.New("bad job message")

// Token is a template token: a piece of the workflow file that the runner evaluates itself. The zero value
// is the empty string.
type Token struct {
	Kind TokenKind
	// Text is a literal string, or the source of an expression without its ${{ }}.
	Text   string
	Bool   bool
	Number float64
	Items  []Token
	Pairs  []TokenPair
}

// TokenPair is one entry of a mapping.
type TokenPair struct{ Key, Value Token }

// TextToken makes the token of a text that may hold ${{ }}.
func TextToken(text string) (Token, error) {
	parts, err := splitTemplate(text)
	if err != nil {
		return Token{}, err
	}
	for _, p := range parts {
		if p.node != nil {
			return Token{Kind: TokenExpression, Text: joinTemplate(parts)}, nil
		}
	}
	return Token{Text: text}, nil
}

// scalarToken makes the token of a boolean or a number that may be one expression instead.
func scalarToken(text string) (Token, error) {
	switch {
	case strings.Contains(text, "${{"):
		return TextToken(strings.TrimSpace(text))
	case text == "true" || text == "false":
		return Token{Kind: TokenBool, Bool: text == "true"}, nil
	}
	return Token{Kind: TokenNumber, Number: parseNumber(text)}, nil
}

func mappingToken(pairs []Pair) (Token, error) {
	out := Token{Kind: TokenMapping}
	for _, p := range pairs {
		key, err := TextToken(p.Name)
		if err != nil {
			return Token{}, err
		}
		value, err := TextToken(p.Value)
		if err != nil {
			return Token{}, err
		}
		out.Pairs = append(out.Pairs, TokenPair{key, value})
	}
	return out, nil
}

// Get finds an entry of a mapping by its literal key.
func (t Token) Get(key string) (Token, bool) {
	for _, p := range t.Pairs {
		if p.Key.Kind == TokenString && strings.EqualFold(p.Key.Text, key) {
			return p.Value, true
		}
	}
	return Token{}, false
}

// EvalToken evaluates a token: expressions become their values, mappings objects, sequences lists.
func (s Scope) EvalToken(t Token) (Value, error) {
	switch t.Kind {
	case TokenString:
		return t.Text, nil
	case TokenExpression:
		return s.Eval(t.Text)
	case TokenBool:
		return t.Bool, nil
	case TokenNumber:
		return t.Number, nil
	case TokenNull:
		return nil, nil
	case TokenSequence:
		list := make([]any, 0, len(t.Items))
		for _, item := range t.Items {
			v, err := s.EvalToken(item)
			if err != nil {
				return nil, err
			}
			list = append(list, v)
		}
		return list, nil
	case TokenMapping:
		obj := NewObject()
		for _, p := range t.Pairs {
			key, err := s.EvalToken(p.Key)
			if err != nil {
				return nil, err
			}
			v, err := s.EvalToken(p.Value)
			if err != nil {
				return nil, err
			}
			obj.Set(ToString(key), v)
		}
		return obj, nil
	}
	return nil, fmt.Errorf("%w: template tokens of type %d are not supported", ErrMessage, t.Kind)
}

// MarshalJSON writes scalars plainly and the rest as {"type": …}, as the service does.
func (t Token) MarshalJSON() ([]byte, error) {
	switch t.Kind {
	case TokenString:
		return encodeJSON(t.Text, "")
	case TokenBool:
		return encodeJSON(t.Bool, "")
	case TokenNumber:
		return encodeJSON(t.Number, "")
	case TokenNull:
		return []byte("null"), nil
	case TokenExpression:
		return encodeJSON(NewObject("type", int(t.Kind), "expr", t.Text), "")
	case TokenInsert:
		return encodeJSON(NewObject("type", int(t.Kind), "directive", t.Text), "")
	case TokenSequence:
		out := NewObject("type", int(t.Kind))
		if len(t.Items) > 0 {
			out.Set("seq", t.Items)
		}
		return encodeJSON(out, "")
	case TokenMapping:
		pairs := make([]*Object, len(t.Pairs))
		for i, p := range t.Pairs {
			pairs[i] = NewObject("Key", p.Key, "Value", p.Value)
		}
		out := NewObject("type", int(t.Kind))
		if len(pairs) > 0 {
			out.Set("map", pairs)
		}
		return encodeJSON(out, "")
	}
	return nil, fmt.Errorf("%w: unknown template token type %d", ErrMessage, t.Kind)
}

// UnmarshalJSON reads both the plain and the {"type": …} form.
func (t *Token) UnmarshalJSON(data []byte) error {
	v, err := FromJSON(data)
	if err != nil {
		return err
	}
	*t, err = tokenOf(v)
	return err
}

func tokenOf(v Value) (Token, error) {
	switch v := v.(type) {
	case nil:
		return Token{Kind: TokenNull}, nil
	case string:
		return Token{Text: v}, nil
	case bool:
		return Token{Kind: TokenBool, Bool: v}, nil
	case float64:
		return Token{Kind: TokenNumber, Number: v}, nil
	case *Object:
		return objectToken(v)
	}
	return Token{}, fmt.Errorf("%w: a template token cannot be a list", ErrMessage)
}

func objectToken(v *Object) (Token, error) {
	number, _ := v.Get("type")
	kind, _ := number.(float64)
	t := Token{Kind: TokenKind(kind)}
	switch t.Kind {
	case TokenString:
		t.Text = v.String("lit")
	case TokenExpression:
		t.Text = v.String("expr")
	case TokenInsert:
		t.Text = v.String("directive")
	case TokenBool:
		b, _ := v.Get("bool")
		t.Bool = Truthy(b)
	case TokenNumber:
		n, _ := v.Get("num")
		t.Number, _ = n.(float64)
	case TokenNull:
	case TokenSequence:
		seq, _ := v.Get("seq")
		items, _ := seq.([]any)
		for _, item := range items {
			it, err := tokenOf(item)
			if err != nil {
				return Token{}, err
			}
			t.Items = append(t.Items, it)
		}
	case TokenMapping:
		entries, _ := v.Get("map")
		list, _ := entries.([]any)
		for _, entry := range list {
			pair, ok := entry.(*Object)
			if !ok {
				return Token{}, fmt.Errorf("%w: an entry of a mapping token must be an object", ErrMessage)
			}
			p, err := pairOf(pair)
			if err != nil {
				return Token{}, err
			}
			t.Pairs = append(t.Pairs, p)
		}
	default:
		return Token{}, fmt.Errorf("%w: unknown template token type %v", ErrMessage, number)
	}
	return t, nil
}

func pairOf(pair *Object) (TokenPair, error) {
	k, _ := pair.Get("key")
	v, _ := pair.Get("value")
	key, err := tokenOf(k)
	if err != nil {
		return TokenPair{}, err
	}
	value, err := tokenOf(v)
	return TokenPair{key, value}, err
}

// ContextData is a context in the protocol's encoding: scalars plainly, lists and objects with a type.
type ContextData struct{ Value Value }

// MarshalJSON writes the protocol's encoding.
func (c ContextData) MarshalJSON() ([]byte, error) {
	switch v := c.Value.(type) {
	case []any:
		out := NewObject("t", 1)
		if len(v) > 0 {
			items := make([]ContextData, len(v))
			for i, item := range v {
				items[i] = ContextData{item}
			}
			out.Set("a", items)
		}
		return encodeJSON(out, "")
	case *Object:
		out := NewObject("t", 2)
		if v.Len() > 0 {
			entries := make([]*Object, 0, v.Len())
			for _, k := range v.Keys() {
				item, _ := v.Get(k)
				entries = append(entries, NewObject("k", k, "v", ContextData{item}))
			}
			out.Set("d", entries)
		}
		return encodeJSON(out, "")
	}
	return encodeJSON(c.Value, "")
}

// UnmarshalJSON reads the protocol's encoding.
func (c *ContextData) UnmarshalJSON(data []byte) error {
	v, err := FromJSON(data)
	if err != nil {
		return err
	}
	c.Value, err = contextOf(v)
	return err
}

func contextOf(v Value) (Value, error) {
	obj, ok := v.(*Object)
	if !ok {
		if _, isList := v.([]any); isList {
			return nil, fmt.Errorf("%w: context data cannot be a bare list", ErrMessage)
		}
		return v, nil
	}
	number, _ := obj.Get("t")
	kind, _ := number.(float64)
	switch kind {
	case 0:
		return obj.String("s"), nil
	case 1:
		a, _ := obj.Get("a")
		items, _ := a.([]any)
		list := make([]any, 0, len(items))
		for _, item := range items {
			e, err := contextOf(item)
			if err != nil {
				return nil, err
			}
			list = append(list, e)
		}
		return list, nil
	case 2, 5: // 5 is an object whose keys are case-sensitive; only `env` on Linux is one
		return contextObject(obj)
	case 3:
		b, _ := obj.Get("b")
		return Truthy(b), nil
	case 4:
		n, _ := obj.Get("n")
		return toNumber(n), nil
	}
	return nil, fmt.Errorf("%w: unknown context data type %v", ErrMessage, number)
}

func contextObject(obj *Object) (Value, error) {
	d, _ := obj.Get("d")
	entries, _ := d.([]any)
	out := NewObject()
	for _, entry := range entries {
		pair, ok := entry.(*Object)
		if !ok {
			return nil, fmt.Errorf("%w: an entry of context data must be an object", ErrMessage)
		}
		item, _ := pair.Get("v")
		e, err := contextOf(item)
		if err != nil {
			return nil, err
		}
		out.Set(pair.String("k"), e)
	}
	return out, nil
}
