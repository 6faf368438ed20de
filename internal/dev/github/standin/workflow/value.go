package workflow

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
)

// Value is what an expression evaluates to: nil, bool, float64, string, []any (elements are Values) or *Object.
type Value = any

// Object is an insertion-ordered map with case-insensitive keys, as contexts are. The zero value is not
// usable: see [NewObject]. It is not safe for concurrent change.
type Object struct {
	keys   []string
	values map[string]Value
}

// NewObject makes an object from alternating keys and values. It panics when a key is not a string or the
// last key has no value: that is a mistake in the calling code, never in data.
func NewObject(pairs ...any) *Object {
	if len(pairs)%2 != 0 {
		panic("workflow.NewObject: a key without a value")
	}
	o := &Object{values: make(map[string]Value, len(pairs)/2)}
	for i := 0; i < len(pairs); i += 2 {
		o.Set(pairs[i].(string), pairs[i+1])
	}
	return o
}

// Set stores v under key. A key that is there already, in any case, keeps its place and spelling.
func (o *Object) Set(key string, v Value) {
	folded := strings.ToLower(key)
	if _, ok := o.values[folded]; !ok {
		o.keys = append(o.keys, key)
	}
	o.values[folded] = v
}

// Get finds key in any case of letters.
func (o *Object) Get(key string) (Value, bool) {
	if o == nil {
		return nil, false
	}
	v, ok := o.values[strings.ToLower(key)]
	return v, ok
}

// String is the value under key as a string, "" when it is missing.
func (o *Object) String(key string) string {
	v, _ := o.Get(key)
	return ToString(v)
}

// Keys lists the keys in the order in which they were first set.
func (o *Object) Keys() []string {
	if o == nil {
		return nil
	}
	return append([]string(nil), o.keys...)
}

// Len is the number of keys.
func (o *Object) Len() int {
	if o == nil {
		return 0
	}
	return len(o.keys)
}

// Clone copies the object itself; the values are shared.
func (o *Object) Clone() *Object {
	c := NewObject()
	for _, k := range o.Keys() {
		v, _ := o.Get(k)
		c.Set(k, v)
	}
	return c
}

// MarshalJSON keeps the order of the keys.
func (o *Object) MarshalJSON() ([]byte, error) {
	var b bytes.Buffer
	b.WriteByte('{')
	for i, k := range o.keys {
		if i > 0 {
			b.WriteByte(',')
		}
		key, err := encodeJSON(k, "")
		if err != nil {
			return nil, err
		}
		v, err := encodeJSON(o.values[strings.ToLower(k)], "")
		if err != nil {
			return nil, fmt.Errorf("writing %q as JSON: %w", k, err)
		}
		b.Write(key)
		b.WriteByte(':')
		b.Write(v)
	}
	b.WriteByte('}')
	return b.Bytes(), nil
}

// encodeJSON writes v without the escapes that encoding/json adds for the sake of HTML: toJSON() has none.
func encodeJSON(v any, indent string) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", indent)
	if err := enc.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}

// maxDepth bounds nesting of outside data, so that no input can exhaust the stack.
const maxDepth = 100

var errTooDeep = fmt.Errorf("nested more than %d levels deep", maxDepth)

// FromJSON reads one JSON value, keeping the order of keys.
func FromJSON(data []byte) (Value, error) {
	dec := json.NewDecoder(bytes.NewReader(data))
	v, err := decodeJSON(dec, 0)
	if err != nil {
		return nil, err
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("there is text after the JSON value")
	}
	return v, nil
}

func decodeJSON(dec *json.Decoder, depth int) (Value, error) {
	if depth > maxDepth {
		return nil, errTooDeep
	}
	tok, err := dec.Token()
	if errors.Is(err, io.EOF) {
		return nil, io.ErrUnexpectedEOF
	}
	if err != nil {
		return nil, err
	}
	delim, ok := tok.(json.Delim)
	if !ok {
		return tok, nil // nil, bool, float64 and string are Values as they are
	}
	if delim == '[' {
		list := []any{}
		for dec.More() {
			v, err := decodeJSON(dec, depth+1)
			if err != nil {
				return nil, err
			}
			list = append(list, v)
		}
		_, err := dec.Token()
		return list, err
	}
	obj := NewObject()
	for dec.More() {
		key, err := dec.Token()
		if err != nil {
			return nil, err
		}
		v, err := decodeJSON(dec, depth+1)
		if err != nil {
			return nil, err
		}
		obj.Set(key.(string), v)
	}
	_, err = dec.Token()
	return obj, err
}

// ToString renders a value the way GitHub does when it lands in text.
func ToString(v Value) string {
	switch v := v.(type) {
	case nil:
		return ""
	case bool:
		return strconv.FormatBool(v)
	case float64:
		return formatNumber(v)
	case string:
		return v
	case []any:
		return "Array"
	case *Object:
		return "Object"
	default:
		return fmt.Sprint(v)
	}
}

func formatNumber(f float64) string {
	switch {
	case math.IsNaN(f):
		return "NaN"
	case math.IsInf(f, 1):
		return "Infinity"
	case math.IsInf(f, -1):
		return "-Infinity"
	case f == 0:
		return "0" // also for negative zero
	}
	return strconv.FormatFloat(f, 'G', 15, 64)
}

// Truthy reports whether GitHub takes v for true in a condition.
func Truthy(v Value) bool {
	switch v := v.(type) {
	case nil:
		return false
	case bool:
		return v
	case float64:
		return v != 0 && !math.IsNaN(v)
	case string:
		return v != ""
	default:
		return true
	}
}

// toNumber is GitHub's coercion for comparisons of unlike types; what has no number is NaN.
func toNumber(v Value) float64 {
	switch v := v.(type) {
	case nil:
		return 0
	case bool:
		if v {
			return 1
		}
		return 0
	case float64:
		return v
	case string:
		return parseNumber(v)
	default:
		return math.NaN()
	}
}

func parseNumber(s string) float64 {
	s = strings.TrimSpace(s)
	if s == "" {
		return 0
	}
	if n, err := strconv.ParseInt(s, 0, 64); err == nil && (strings.HasPrefix(s, "0x") || strings.HasPrefix(s, "0o")) {
		return float64(n)
	}
	// ParseFloat knows more spellings ("inf", "1_0", hexadecimal floats) than GitHub does.
	if strings.ContainsAny(strings.TrimLeft(s, "+-"), "iInN_xXpP") {
		return math.NaN()
	}
	f, err := strconv.ParseFloat(s, 64)
	if err != nil && !errors.Is(err, strconv.ErrRange) {
		return math.NaN()
	}
	return f
}
