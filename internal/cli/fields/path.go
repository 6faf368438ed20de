package fields

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strings"

	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/client-go/util/jsonpath"
)

// ErrSyntax is returned for an expression or template that JSONPath does not have.
var ErrSyntax = errors.New("invalid JSONPath")

// UnknownError is returned for an expression whose first field values of this kind do not have.
type UnknownError struct {
	Field string
	Known []string
}

// Error names the fields that there are.
func (e *UnknownError) Error() string {
	return fmt.Sprintf("unknown field %s: expected one of %s", e.Field, strings.Join(e.Known, ", "))
}

// Value returns what the JSON of v holds. Whole numbers stay whole: the ID of a job is not printed as 3.1e+10.
func Value(v any) (any, error) {
	encoded, err := json.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf("encoding: %w", err)
	}
	var value any
	if err := utiljson.Unmarshal(encoded, &value); err != nil {
		return nil, fmt.Errorf("decoding: %w", err)
	}
	return value, nil
}

// Names are the JSON fields of a struct type, in its order.
func Names(t reflect.Type) []string {
	var names []string
	for i := range t.NumField() {
		field := t.Field(i)
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		switch {
		case name == "-" || !field.IsExported() && !field.Anonymous:
		case name == "" && field.Anonymous && field.Type.Kind() == reflect.Struct:
			names = append(names, Names(field.Type)...)
		case name == "":
			names = append(names, field.Name)
		default:
			names = append(names, name)
		}
	}
	return names
}

// Path is the JSONPath expression of one field.
type Path struct{ expression string }

// firstField finds the name that an expression begins with.
var firstField = regexp.MustCompile(`^\.([A-Za-z0-9_-]+)`)

// ParsePath reads an expression as kubectl takes it for a field: .name, name or {.name}. With known names, it must begin with one of them.
func ParsePath(text string, known []string) (Path, error) {
	inner := strings.TrimSpace(text)
	if strings.HasPrefix(inner, "{") && strings.HasSuffix(inner, "}") {
		inner = strings.TrimSpace(inner[1 : len(inner)-1])
	}
	inner = strings.TrimPrefix(inner, "$")
	if strings.Trim(inner, ".") == "" || strings.ContainsAny(inner, "{}") || len(splitOutside(inner, " \t\n")) > 1 {
		return Path{}, ErrSyntax
	}
	if inner[0] != '.' && inner[0] != '[' {
		inner = "." + inner
	}
	path := Path{"{" + inner + "}"}
	if _, err := compile(path.expression); err != nil {
		return Path{}, err
	}
	if first := firstField.FindStringSubmatch(inner); first != nil && known != nil && !slices.Contains(known, first[1]) {
		return Path{}, &UnknownError{Field: first[1], Known: known}
	}
	return path, nil
}

// compile is called for each use: the library's expressions change while they are evaluated.
func compile(template string) (*jsonpath.JSONPath, error) {
	compiled := jsonpath.New("template").AllowMissingKeys(true)
	if err := compiled.Parse(template); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrSyntax, err)
	}
	return compiled, nil
}

// Find returns what a value has at the path; nothing if it does not have the field.
func (p Path) Find(value any) ([]any, error) {
	compiled, err := compile(p.expression)
	if err != nil {
		return nil, err
	}
	results, err := compiled.FindResults(value)
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", p.expression, err)
	}
	var found []any
	for _, result := range results {
		for _, one := range result {
			found = append(found, one.Interface())
		}
	}
	return found, nil
}
