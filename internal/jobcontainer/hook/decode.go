package hook

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
)

// MaxInput is the most bytes of a call that a hook should read: far more than variables of a job can have.
const MaxInput = 16 << 20

// maxDepth bounds nesting. GitHub's input has 5 levels; only state may have more.
const maxDepth = 64

// SyntaxError is returned for input that is not one JSON object.
type SyntaxError struct{ Reason string }

func (e *SyntaxError) Error() string {
	return "reading the container hook's input: " + e.Reason + "; only GitHub's runner calls this command"
}

// FieldError is returned for a field that is missing, has the wrong type, or may not be there.
type FieldError struct{ Field, Reason string }

func (e *FieldError) Error() string {
	return fmt.Sprintf("reading the container hook's input: %s %s; this version may not know the runner's version yet: update Bullpen, or use an older runner", e.Field, e.Reason)
}

// CommandError is returned for a command that is not known.
type CommandError struct{ Command string }

func (e *CommandError) Error() string {
	return fmt.Sprintf("reading the container hook's input: unknown command %q; this version may not know the runner's version yet: update Bullpen, or use an older runner", shorten(e.Command))
}

func shorten(text string) string {
	if len(text) > 64 {
		return strings.ToValidUTF8(text[:64], "") + "…"
	}
	return text
}

// decode checks the whole input: one object, no name twice, bounded nesting.
func decode(data []byte) (json.RawMessage, error) {
	if len(data) > MaxInput {
		return nil, &SyntaxError{Reason: fmt.Sprintf("it is larger than %d MiB", MaxInput>>20)}
	}
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.UseNumber()
	if err := checkValue(decoder, 0); err != nil {
		return nil, err
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return nil, &SyntaxError{Reason: "something follows the JSON object"}
	}
	return data, nil
}

// checkValue reads one value.
func checkValue(decoder *json.Decoder, depth int) error {
	token, err := decoder.Token()
	if err != nil {
		return syntax(err)
	}
	delimiter, nested := token.(json.Delim)
	if !nested {
		return nil
	}
	if depth >= maxDepth {
		return &SyntaxError{Reason: fmt.Sprintf("it is nested deeper than %d levels", maxDepth)}
	}
	seen := map[string]bool{}
	for decoder.More() {
		if delimiter == '{' {
			name, err := decoder.Token()
			if err != nil {
				return syntax(err)
			}
			text, _ := name.(string)
			if seen[text] {
				return &SyntaxError{Reason: fmt.Sprintf("the name %q occurs twice in an object", shorten(text))}
			}
			seen[text] = true
		}
		if err := checkValue(decoder, depth+1); err != nil {
			return err
		}
	}
	if _, err := decoder.Token(); err != nil {
		return syntax(err)
	}
	return nil
}

func syntax(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return &SyntaxError{Reason: "the JSON ends too early"}
	}
	return &SyntaxError{Reason: "invalid JSON"}
}

type need bool

const (
	optional need = false
	required need = true
)

// reader keeps the first error, and the fields that were ignored.
type reader struct {
	err     error
	ignored []string
}

func (r *reader) fail(field, reason string) {
	if r.err == nil {
		r.err = &FieldError{Field: field, Reason: reason}
	}
}

// object is one object of the input. Its methods return zero values after an error.
type object struct {
	reader *reader
	path   string
	fields map[string]json.RawMessage
	read   map[string]bool
}

func (r *reader) object(path string, data json.RawMessage) object {
	o := object{reader: r, path: path, fields: map[string]json.RawMessage{}, read: map[string]bool{}}
	if kind(data) != "an object" {
		name := path
		if name == "" {
			name = "the input"
		}
		r.fail(name, "must be an object, got "+kind(data))
		return o
	}
	if err := json.Unmarshal(data, &o.fields); err != nil {
		r.fail(path, "is invalid")
	}
	return o
}

func (o object) name(field string) string {
	if o.path == "" {
		return field
	}
	return o.path + "." + field
}

// value returns a field, or nil if it is absent or null.
func (o object) value(field string) json.RawMessage {
	o.read[field] = true
	value, found := o.fields[field]
	if !found || kind(value) == "null" {
		return nil
	}
	return value
}

func (o object) text(field string, need need) string {
	value := o.value(field)
	if value == nil {
		if need {
			o.reader.fail(o.name(field), "is missing")
		}
		return ""
	}
	text := o.reader.text(o.name(field), value)
	if need && text == "" {
		o.reader.fail(o.name(field), "is empty")
	}
	return text
}

func (r *reader) text(name string, value json.RawMessage) string {
	var text string
	if kind(value) != "a string" || json.Unmarshal(value, &text) != nil {
		r.fail(name, "must be a string, got "+kind(value))
	} else if strings.ContainsRune(text, 0) {
		r.fail(name, "contains a NUL character")
	}
	return text
}

func (o object) flag(field string) bool {
	value := o.value(field)
	var flag bool
	if value != nil && json.Unmarshal(value, &flag) != nil {
		o.reader.fail(o.name(field), "must be true or false, got "+kind(value))
	}
	return flag
}

func (o object) raw(field string) json.RawMessage {
	value := o.value(field)
	if value != nil && kind(value) != "an object" {
		o.reader.fail(o.name(field), "must be an object, got "+kind(value))
	}
	return value
}

func (o object) list(field string) []json.RawMessage {
	value := o.value(field)
	var list []json.RawMessage
	if value != nil && (kind(value) != "a list" || json.Unmarshal(value, &list) != nil) {
		o.reader.fail(o.name(field), "must be a list, got "+kind(value))
	}
	return list
}

func (o object) texts(field string) []string {
	var texts []string
	for i, value := range o.list(field) {
		texts = append(texts, o.reader.text(fmt.Sprintf("%s[%d]", o.name(field), i), value))
	}
	return texts
}

func (o object) objects(field string) []object {
	var objects []object
	for i, value := range o.list(field) {
		objects = append(objects, o.reader.object(fmt.Sprintf("%s[%d]", o.name(field), i), value))
	}
	return objects
}

// environment reads variables. The runner has null for a variable without a value.
func (o object) environment(field string) map[string]string {
	value := o.value(field)
	if value == nil {
		return nil
	}
	variables := o.reader.object(o.name(field), value)
	environment := map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(variables.fields)) {
		if name == "" || strings.ContainsAny(name, "=\x00") {
			o.reader.fail(o.name(field), fmt.Sprintf("has the variable %q, which is no name", shorten(name)))
		}
		environment[name] = variables.text(name, optional)
	}
	return environment
}

func (o object) nullable(field string) *object {
	value := o.value(field)
	if value == nil {
		return nil
	}
	nested := o.reader.object(o.name(field), value)
	return &nested
}

// nested reads an object that may be null or absent: it then has no fields.
func (o object) nested(field string) object {
	if nested := o.nullable(field); nested != nil {
		return *nested
	}
	return object{reader: o.reader, path: o.name(field), read: map[string]bool{}}
}

func (o object) unknown() []string {
	var unknown []string
	for _, field := range slices.Sorted(maps.Keys(o.fields)) {
		if !o.read[field] {
			unknown = append(unknown, o.name(shorten(field)))
		}
	}
	return unknown
}

// tolerate notes fields that were not read.
func (o object) tolerate() { o.reader.ignored = append(o.reader.ignored, o.unknown()...) }

// refuse fails for fields that were not read.
func (o object) refuse() {
	if unknown := o.unknown(); len(unknown) > 0 {
		o.reader.fail(unknown[0], "is not known")
	}
}

// kind names the type of a JSON value that is valid.
func kind(value json.RawMessage) string {
	trimmed := bytes.TrimLeft(value, " \t\r\n")
	if len(trimmed) == 0 {
		return "nothing"
	}
	switch trimmed[0] {
	case '{':
		return "an object"
	case '[':
		return "a list"
	case '"':
		return "a string"
	case 't', 'f':
		return "true or false"
	case 'n':
		return "null"
	default:
		return "a number"
	}
}
