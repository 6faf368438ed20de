package descriptions

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
)

// api is a description of the REST API, of which each operation is read when it is asked for: all of it takes a loader many seconds.
type api struct {
	whole      document
	operations map[string]*openapi3.Operation // by method and path, as described
	errorsLike *openapi3.Schema               // what a refusal is whose status is not described
	modern     bool                           // OpenAPI 3.1
}

func newAPI(t testing.TB, name string) *api {
	t.Helper()
	d := document(description(t, packageREST, name))
	version, _ := d["openapi"].(string)
	a := &api{whole: d, operations: map[string]*openapi3.Operation{}, modern: strings.HasPrefix(version, "3.1")}
	loaded := a.load(t, map[string]any{}, []any{map[string]any{"$ref": "#/components/schemas/basic-error"}})
	a.errorsLike = loaded.Components.Schemas["basic-error"].Value
	return a
}

// template finds the path of the description that an address is of: the one with the most literal steps.
func (a *api) template(method, path string) (string, bool) {
	steps := strings.Split(path, "/")
	best, most := "", -1
	paths, _ := a.whole["paths"].(map[string]any)
	for candidate, item := range paths {
		if literal := matches(strings.Split(candidate, "/"), steps); literal > most && a.whole.at(item, strings.ToLower(method)) != nil {
			best, most = candidate, literal
		}
	}
	return best, most >= 0
}

// matches counts the literal steps of a template that fits; -1 where it does not.
func matches(template, steps []string) int {
	if len(template) != len(steps) {
		return -1
	}
	literal := 0
	for i, step := range template {
		switch {
		case strings.HasPrefix(step, "{"):
		case step != steps[i]:
			return -1
		default:
			literal++
		}
	}
	return literal
}

func (a *api) operation(t testing.TB, method, template string) *openapi3.Operation {
	t.Helper()
	key := method + " " + template
	if known := a.operations[key]; known != nil {
		return known
	}
	operation := a.whole.at(a.whole["paths"], template, strings.ToLower(method))
	responses := map[string]any{"responses": a.whole.at(operation, "responses")}
	loaded := a.load(t, map[string]any{template: map[string]any{strings.ToLower(method): responses}}, []any{responses})
	a.operations[key] = loaded.Paths.Value(template).GetOperation(method)
	return a.operations[key]
}

// load reads some paths, with the components that they, and what is named beside them, refer to.
func (a *api) load(t testing.TB, paths map[string]any, with []any) *openapi3.T {
	t.Helper()
	components := map[string]any{}
	for _, one := range with {
		a.gather(one, components)
	}
	raw, err := json.Marshal(map[string]any{
		"openapi": a.whole["openapi"], "info": map[string]any{"title": "GitHub", "version": "1"}, "paths": paths, "components": components,
	})
	if err != nil {
		t.Fatalf("writing a part of GitHub's description: %v", err)
	}
	loaded, err := openapi3.NewLoader().LoadFromData(raw)
	if err != nil {
		t.Fatalf("reading a part of GitHub's description: %v", err)
	}
	return loaded
}

// gather copies the components that a part refers to, and those that they refer to. Examples are left behind.
func (a *api) gather(part any, into map[string]any) {
	switch node := part.(type) {
	case map[string]any:
		delete(node, "examples")
		delete(node, "example")
		if ref, ok := node["$ref"].(string); ok {
			a.take(ref, into)
		}
		for _, below := range node {
			a.gather(below, into)
		}
	case []any:
		for _, below := range node {
			a.gather(below, into)
		}
	}
}

func (a *api) take(ref string, into map[string]any) {
	steps := strings.Split(strings.TrimPrefix(ref, "#/components/"), "/")
	if len(steps) < 2 {
		return
	}
	kind, ok := into[steps[0]].(map[string]any)
	if !ok {
		kind = map[string]any{}
		into[steps[0]] = kind
	}
	if _, taken := kind[steps[1]]; taken {
		return
	}
	component := a.whole.at(a.whole["components"], steps[0], steps[1])
	kind[steps[1]] = component
	a.gather(component, into)
}

// differences are where an answer is not as it is described: each a place and what is wrong there, sorted.
func (a *api) differences(t testing.TB, method, template string, status int, header http.Header, body []byte) []string {
	t.Helper()
	operation := a.operation(t, method, template)
	response := operation.Responses.Value(fmt.Sprint(status))
	if response == nil || response.Value == nil {
		if status < 400 {
			return []string{"the status is not described"}
		}
		return a.validate(a.errorsLike, body)
	}
	content := response.Value.Content
	if len(content) == 0 {
		if len(body) > 0 {
			return []string{"there is a body, and none is described"}
		}
		return nil
	}
	if kind := header.Get("Content-Type"); !strings.HasPrefix(kind, "application/json") {
		return []string{"the content type is " + kind}
	}
	media := content.Get("application/json")
	if media == nil || media.Schema == nil {
		return []string{"no JSON is described"}
	}
	return a.validate(media.Schema.Value, body)
}

func (a *api) validate(schema *openapi3.Schema, body []byte) []string {
	var value any
	if err := json.Unmarshal(body, &value); err != nil {
		return []string{"the body is no JSON"}
	}
	options := []openapi3.SchemaValidationOption{openapi3.MultiErrors(), openapi3.VisitAsResponse()}
	if a.modern {
		options = append(options, openapi3.EnableJSONSchema2020())
	}
	var found []string
	tell(schema.VisitJSON(value, options...), &found)
	slices.Sort(found)
	return slices.Compact(found)
}

// tell lists single errors: the place, without positions in lists, and the reason.
func tell(err error, found *[]string) {
	var several openapi3.MultiError
	var one *openapi3.SchemaError
	switch {
	case err == nil:
	case errors.As(err, &several) && len(several) > 0:
		for _, part := range several {
			tell(part, found)
		}
	case errors.As(err, &one):
		place := ""
		for _, step := range one.JSONPointer() {
			if strings.Trim(step, "0123456789") != "" {
				place += "/" + step
			}
		}
		*found = append(*found, place+": "+one.Reason)
	default:
		*found = append(*found, err.Error())
	}
}
