package arcmigration

import (
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"sync"
	"unicode/utf8"

	"sigs.k8s.io/yaml"

	"github.com/bullpen-ci/bullpen/charts"
)

// schema is a part of an OpenAPI schema of a CustomResourceDefinition.
type schema map[string]any

// kindSchemas are those of Bullpen's kinds, as the chart installs them.
var kindSchemas = sync.OnceValue(func() map[string]schema {
	files, err := charts.CRDs()
	if err != nil {
		panic(err) // they are embedded
	}
	found := map[string]schema{}
	for _, file := range files {
		var definition struct {
			Spec struct {
				Names    struct{ Kind string }
				Versions []struct {
					Schema struct {
						OpenAPIV3Schema schema `json:"openAPIV3Schema"`
					}
				}
			}
		}
		if err := yaml.Unmarshal(file.Content, &definition); err != nil {
			panic(fmt.Errorf("reading the embedded %s: %w", file.Name, err))
		}
		found[definition.Spec.Names.Kind] = definition.Spec.Versions[0].Schema.OpenAPIV3Schema
	}
	return found
})

// knownFields are the names of fields of which it is known what they say: those of Bullpen's kinds, whose pods are Kubernetes', and of the reasons.
var knownFields = sync.OnceValue(func() map[string]bool {
	known := map[string]bool{"status": true}
	var add func(schema)
	add = func(s schema) {
		properties, _ := s["properties"].(map[string]any)
		for name := range properties {
			known[name] = true
			child, _ := s.child(name)
			add(child)
		}
		if items := s.items(); items != nil {
			add(items)
		}
		if extra, ok := s["additionalProperties"].(map[string]any); ok {
			add(extra)
		}
	}
	for _, s := range kindSchemas() {
		add(s)
	}
	for _, reasons := range []map[string]reason{runnerReasons, ownerReasons, runnerSetReasons, autoscalerReasons, scaleSetReasons, poolReasons} {
		for path := range reasons {
			known[path[strings.LastIndexByte(path, '.')+1:]] = true
		}
	}
	return known
})

// knownField says whether a field's name is one of those.
func knownField(field string) bool {
	field = indices.ReplaceAllString(field, "")
	return knownFields()[field[strings.LastIndexByte(field, '.')+1:]]
}

// at goes down by properties; [] is the items of a list. It panics where there is nothing, because paths are written here.
func (s schema) at(path ...string) schema {
	for _, name := range path {
		next := s.items()
		if name != "[]" {
			next, _ = s.child(name)
		}
		if next == nil {
			panic(fmt.Sprintf("no schema of kind %q in %q", name, path))
		}
		s = next
	}
	return s
}

// child is the schema of a mapping's field.
func (s schema) child(name string) (schema, bool) {
	if properties, ok := s["properties"].(map[string]any); ok {
		if found, ok := properties[name].(map[string]any); ok {
			return found, true
		}
	}
	if extra, ok := s["additionalProperties"].(map[string]any); ok {
		return extra, true
	}
	return nil, false
}

func (s schema) items() schema {
	found, _ := s["items"].(map[string]any)
	return found
}

func (s schema) open() bool {
	all, _ := s["x-kubernetes-preserve-unknown-fields"].(bool)
	return all || s["type"] == "object" && s["properties"] == nil && s["additionalProperties"] == nil
}

func (s schema) intOrString() bool {
	both, _ := s["x-kubernetes-int-or-string"].(bool)
	return both
}

// words for what is wanted, and for what is there.
var typeWords = map[string]string{
	"string": "a text", "integer": "a whole number", "number": "a number", "boolean": "true or false", "array": "a list",
	"object": "a mapping", "": "a number or a string",
}

func (s schema) wants() string {
	kind, _ := s["type"].(string)
	return typeWords[kind]
}

// scalarProblem says in a few words what the API server would have against a scalar; "" for nothing.
func (s schema) scalarProblem(scalar any) string {
	if !s.fits(scalar) {
		if _, isText := scalar.(string); !isText && s["type"] == "string" {
			return fmt.Sprintf("it is %s, but must be a string: write it in quotes", typeWords[typeOf(scalar)])
		}
		return fmt.Sprintf("it is %s, but must be %s", typeWords[typeOf(scalar)], s.wants())
	}
	if allowed, ok := s["enum"].([]any); ok && !slices.Contains(allowed, scalar) {
		return fmt.Sprintf("it must be one of %s", strings.Trim(fmt.Sprint(allowed), "[]"))
	}
	if text, ok := scalar.(string); ok {
		return s.textProblem(text)
	}
	n, isNumber := number(scalar)
	if least, ok := number(s["minimum"]); ok && isNumber && n < least {
		return fmt.Sprintf("it is %v, but must be at least %v", scalar, least)
	}
	if most, ok := number(s["maximum"]); ok && isNumber && n > most {
		return fmt.Sprintf("it is %v, but must be at most %v", scalar, most)
	}
	return ""
}

func (s schema) textProblem(text string) string {
	length := utf8.RuneCountInString(text)
	if least, ok := number(s["minLength"]); ok && float64(length) < least {
		return "it is empty"
	}
	if most, ok := number(s["maxLength"]); ok && float64(length) > most {
		return fmt.Sprintf("it has %d characters, but may have at most %v", length, most)
	}
	if pattern, ok := s["pattern"].(string); ok && !regexp.MustCompile(pattern).MatchString(text) {
		return fmt.Sprintf("it is %q, which does not match %s", text, pattern)
	}
	if s["format"] == "date-time" && !isTime(text) {
		return fmt.Sprintf("it is %q, but must be a time such as 2026-01-31T08:00:00Z", text)
	}
	return ""
}

func (s schema) fits(scalar any) bool {
	kind := typeOf(scalar)
	switch s["type"] {
	case "string", "boolean":
		return s["type"] == kind
	case "integer":
		return kind == "integer" || kind == "number" && scalar.(float64) == float64(int64(scalar.(float64)))
	case "number":
		return kind == "integer" || kind == "number"
	case nil:
		return s.intOrString() && (kind == "integer" || kind == "string") || s.open()
	}
	return false
}

func typeOf(given any) string {
	switch given.(type) {
	case string:
		return "string"
	case bool:
		return "boolean"
	case int64:
		return "integer"
	case float64:
		return "number"
	case []any:
		return "array"
	}
	return "object"
}

func number(given any) (float64, bool) {
	switch n := given.(type) {
	case int64:
		return float64(n), true
	case float64:
		return n, true
	}
	return 0, false
}

// problem is what the API server would have against a part of what was made.
type problem struct{ path, text string }

// problems are all of them, the rules in CEL excepted.
func (s schema) problems(made any, path string) []problem {
	switch made := made.(type) {
	case map[string]any:
		return s.mappingProblems(made, path)
	case []any:
		return s.listProblems(made, path)
	}
	if text := s.scalarProblem(made); text != "" {
		return []problem{{path, ": " + text}}
	}
	return nil
}

func (s schema) mappingProblems(made map[string]any, path string) []problem {
	if s["type"] != "object" {
		return []problem{{path, " is a mapping, but must be " + s.wants()}}
	}
	var found []problem
	required, _ := s["required"].([]any)
	for _, name := range required {
		// What has a default is filled in before it is looked for.
		child, _ := s.child(name.(string))
		if _, there := made[name.(string)]; !there && child["default"] == nil {
			found = append(found, problem{childPath(path, name.(string)), " is missing"})
		}
	}
	for _, name := range sorted(made) {
		child, known := s.child(name)
		switch {
		case known:
			found = append(found, child.problems(made[name], childPath(path, name))...)
		case !s.open() && !(path == "" && (name == "metadata" || name == "apiVersion" || name == "kind")):
			found = append(found, problem{childPath(path, name), " is not a field of Bullpen"})
		}
	}
	return found
}

func (s schema) listProblems(made []any, path string) []problem {
	if s["type"] != "array" {
		return []problem{{path, " is a list, but must be " + s.wants()}}
	}
	var found []problem
	if least, ok := number(s["minItems"]); ok && float64(len(made)) < least {
		found = append(found, problem{path, " is empty"})
	}
	if most, ok := number(s["maxItems"]); ok && float64(len(made)) > most {
		found = append(found, problem{path, fmt.Sprintf(" has %d entries, but may have at most %v", len(made), most)})
	}
	for i, item := range made {
		found = append(found, s.items().problems(item, itemPath(path, i))...)
		for j := range i {
			if s.same(item, made[j]) {
				found = append(found, problem{itemPath(path, i), fmt.Sprintf(" is a duplicate of %s: remove one", itemPath(path, j))})
			}
		}
	}
	return found
}

// same says whether two entries of a list could not both be in it.
func (s schema) same(a, b any) bool {
	switch s["x-kubernetes-list-type"] {
	case "set":
		return reflect.DeepEqual(a, b)
	case "map":
		keys, _ := s["x-kubernetes-list-map-keys"].([]any)
		one, isMapping := a.(map[string]any)
		other, alsoMapping := b.(map[string]any)
		if !isMapping || !alsoMapping {
			return false
		}
		for _, key := range keys {
			if fmt.Sprint(s.keyOf(one, key.(string))) != fmt.Sprint(s.keyOf(other, key.(string))) {
				return false
			}
		}
		return true
	}
	return false
}

// keyOf is the value that tells an entry from others, with its default.
func (s schema) keyOf(entry map[string]any, key string) any {
	if given, ok := entry[key]; ok {
		return given
	}
	child, _ := s.items().child(key)
	return child["default"]
}
