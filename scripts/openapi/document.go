package main

import (
	"cmp"
	"fmt"
	"maps"
	"net/http"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/bullpen-ci/bullpen/api/adminapi"
	"github.com/bullpen-ci/bullpen/internal/server/admin"
)

const intro = `The admin API of a Bullpen server. Requests are authenticated by a Kubernetes token as a bearer token, for the audience of the
cluster or bullpen-api, and authorized by the cluster's roles: bullpen-viewer can read, bullpen-admin can also change. The audit log records
each change with its user. Errors (status 400 and above) have a sentence as their body that says what to do. Within v1, fields may be added to
responses; none is removed or changes its meaning. Request bodies with unknown fields are rejected.`

// all are the statuses that every operation may have.
var all = []int{http.StatusBadRequest, http.StatusUnauthorized, http.StatusForbidden, http.StatusServiceUnavailable}

var refusals = map[int]string{
	http.StatusBadRequest:           "The request is invalid.",
	http.StatusUnauthorized:         "The token is missing or invalid.",
	http.StatusForbidden:            "The cluster's roles deny it.",
	http.StatusNotFound:             "Not found.",
	http.StatusConflict:             "The current state does not allow it, or a login is ambiguous.",
	http.StatusPreconditionFailed:   "It has changed since it was read: read it again and retry.",
	http.StatusPreconditionRequired: "If-Match is missing.",
	http.StatusServiceUnavailable:   "Kubernetes or the database does not respond: retry after Retry-After.",
}

// describe writes the document. It fails when routes and operations do not cover each other.
func describe(routes []admin.Route, list []operation, w words) ([]byte, error) {
	rights := map[string]admin.Right{}
	for _, route := range routes {
		rights[route.Pattern] = route.Right
	}
	described := map[string]bool{}
	s := &schemas{words: w, all: object{}}
	s.of(reflect.TypeFor[adminapi.Error]())
	paths := object{}
	for _, one := range list {
		right, served := rights[one.route]
		if !served {
			return nil, fmt.Errorf("scripts/openapi/operations.go describes %q, which is no route any more: take it out", one.route)
		}
		described[one.route] = true
		method, path := one.at()
		item, there := paths[path].(object)
		if !there {
			item = object{}
			paths[path] = item
		}
		item[strings.ToLower(method)] = one.describe(s, path, right)
	}
	for _, route := range routes {
		if !described[route.Pattern] {
			return nil, fmt.Errorf("the route %q is not described: add an operation to scripts/openapi/operations.go, then run make generate", route.Pattern)
		}
	}
	text, err := yaml.Marshal(object{
		"openapi": "3.0.3",
		"info":    object{"title": "Bullpen", "version": "v1", "description": intro, "license": object{"name": "Apache-2.0", "url": "https://www.apache.org/licenses/LICENSE-2.0"}},
		"servers": []any{object{"url": "/"}},
		"tags":    tags(list),
		"paths":   paths,
		"components": object{
			"schemas": s.all, "responses": responses(),
			"securitySchemes": object{"token": object{"type": "http", "scheme": "bearer", "description": "A token that the cluster accepts."}},
		},
		"security": []any{object{"token": []string{}}},
	})
	if err != nil {
		return nil, fmt.Errorf("writing the document: %w", err)
	}
	return append([]byte("# Written by make generate; the tests compare.\n"), text...), nil
}

func (o operation) at() (method, path string) {
	method, path, _ = strings.Cut(o.route, " ")
	return method, cmp.Or(o.path, path)
}

func tags(list []operation) []any {
	var names []string
	for _, one := range list {
		if !slices.Contains(names, one.tag) {
			names = append(names, one.tag)
		}
	}
	out := make([]any, len(names))
	for i, name := range names {
		out[i] = object{"name": name}
	}
	return out
}

func responses() object {
	out := object{}
	for status, says := range refusals {
		out[strconv.Itoa(status)] = object{"description": says, "content": object{
			"application/json": object{"schema": object{"$ref": "#/components/schemas/Error"}},
		}}
	}
	return out
}

var placeholder = regexp.MustCompile(`\{(\w+)\}`)

var placeholders = map[string]string{
	"account": "Its login, or @ and its id.", "job": "Its id at GitHub.", "namespace": "The namespace of the pool and its runners.",
	"pool": "Its name.", "runner": "The name of its pod.",
}

func (o operation) describe(s *schemas, path string, right admin.Right) object {
	var parameters []any
	for _, found := range placeholder.FindAllStringSubmatch(path, -1) {
		says, known := placeholders[found[1]]
		if !known {
			panic("say in scripts/openapi what {" + found[1] + "} of a path is")
		}
		parameters = append(parameters, object{"name": found[1], "in": "path", "required": true, "description": says, "schema": object{"type": "string"}})
	}
	for _, p := range o.query {
		parameters = append(parameters, p.describe())
	}
	if o.ifMatch != "" {
		parameters = append(parameters, object{
			"name": "If-Match", "in": "header", "required": o.ifMatch == "required", "schema": object{"type": "string"},
			"description": "The ETag of the state that is changed, or * for whatever it is.",
		})
	}
	answers := object{}
	for _, status := range slices.Concat(all, o.errors) {
		answers[strconv.Itoa(status)] = object{"$ref": "#/components/responses/" + strconv.Itoa(status)}
	}
	if o.answer == nil {
		answers["204"] = object{"description": "It is done."}
	} else {
		done := object{"description": "It is done.", "content": object{"application/json": object{"schema": s.of(reflect.TypeOf(o.answer))}}}
		if o.etag {
			done["headers"] = object{"ETag": object{"description": "Of what administrators decide, for If-Match.", "schema": object{"type": "string"}}}
		}
		answers["200"] = done
	}
	out := object{
		"operationId": o.id, "tags": []string{o.tag}, "summary": o.says, "responses": answers,
		"description": "Needs the right " + right.Verb + " on " + right.Resource + "." + adminapi.Group + ".",
	}
	if len(parameters) > 0 {
		out["parameters"] = parameters
	}
	if o.body != nil {
		s.closed = true
		out["requestBody"] = object{"required": o.needs, "content": object{"application/json": object{"schema": s.of(reflect.TypeOf(o.body))}}}
		s.closed = false
	}
	return out
}

func (p parameter) describe() object {
	schema := object{"type": p.kind}
	if len(p.enum) > 0 {
		schema["enum"] = p.enum
	}
	if p.list {
		schema = object{"type": "array", "items": schema}
	}
	return object{"name": p.name, "in": "query", "description": p.says, "schema": schema}
}

// readable is docs/reference/api.md.
func readable(routes []admin.Route, list []operation, w words) string {
	rights := map[string]admin.Right{}
	for _, route := range routes {
		rights[route.Pattern] = route.Right
	}
	var b strings.Builder
	b.WriteString("# HTTP API\n\n<!-- Written by make generate; the tests compare. -->\n\n" + intro + `

The whole of it, for programs, is [openapi.yaml](../../api/openapi/openapi.yaml) (OpenAPI 3.0), which each server has at
` + "`" + admin.PathDocument + "`" + `. The tests hold what the server answers against it. ` + "`bullpen … -o json`" + ` prints the same objects.

| request | | right on ` + "`bullpen.dev`" + ` | answer |
|---|---|---|---|
`)
	for _, one := range list {
		method, path := one.at()
		var query []string
		for _, p := range one.query {
			query = append(query, "`"+p.name+"`")
		}
		says := one.says
		if len(query) > 0 {
			says += " Query: " + strings.Join(query, ", ") + "."
		}
		answer := "204"
		if one.answer != nil {
			name := reflect.TypeOf(one.answer).Name()
			answer = "[" + name + "](#" + strings.ToLower(name) + ")"
		}
		right := rights[one.route]
		fmt.Fprintf(&b, "| `%s %s` | %s | %s %s | %s |\n", method, path, says, right.Verb, right.Resource, answer)
	}
	b.WriteString("\n## Statuses\n\n| status | |\n|---|---|\n")
	for _, status := range slices.Sorted(maps.Keys(refusals)) {
		fmt.Fprintf(&b, "| %d | %s |\n", status, refusals[status])
	}
	s := &schemas{words: w, all: object{}}
	for _, one := range append(list, operation{answer: adminapi.Error{}}) {
		for _, value := range []any{one.answer, one.body} {
			if value != nil {
				s.of(reflect.TypeOf(value))
			}
		}
	}
	b.WriteString("\n## Objects\n\nFields marked * are always there.\n")
	for _, name := range slices.Sorted(maps.Keys(s.all)) {
		one, _ := s.all[name].(object)
		writeObject(&b, name, one)
	}
	return b.String()
}

func writeObject(b *strings.Builder, name string, schema object) {
	says, _ := schema["description"].(string)
	fmt.Fprintf(b, "\n### %s\n\n%s\n\n| field | type | |\n|---|---|---|\n", name, says)
	properties, _ := schema["properties"].(object)
	required, _ := schema["required"].([]string)
	for _, field := range slices.Sorted(maps.Keys(properties)) {
		property, _ := properties[field].(object)
		mark := ""
		if slices.Contains(required, field) {
			mark = "*"
		}
		says, _ := property["description"].(string)
		fmt.Fprintf(b, "| `%s`%s | %s | %s |\n", field, mark, kindOf(property), strings.ReplaceAll(says, "|", `\|`))
	}
}

func kindOf(property object) string {
	if every, is := property["allOf"].([]any); is {
		property, _ = every[0].(object)
	}
	if reference, is := property["$ref"].(string); is {
		name := reference[strings.LastIndex(reference, "/")+1:]
		return "[" + name + "](#" + strings.ToLower(name) + ")"
	}
	if items, is := property["items"].(object); is {
		return "list of " + kindOf(items)
	}
	if values, is := property["additionalProperties"].(object); is {
		return "map of " + kindOf(values)
	}
	if enum, is := property["enum"].([]string); is {
		return "`" + strings.Join(enum, "`, `") + "`"
	}
	kind, _ := property["type"].(string)
	if format, is := property["format"].(string); is && format == "date-time" {
		return "time"
	}
	return cmp.Or(kind, "any JSON")
}
