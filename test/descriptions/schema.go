package descriptions

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
)

// document is an OpenAPI description of either version: 3.0 calls a member nullable, 3.1 has null among its types.
type document map[string]any

// deepest is how deep members are looked for: schemas refer to themselves.
const deepest = 12

// resolved is a schema with its references followed and the parts of allOf put together.
func (d document) resolved(schema any) map[string]any {
	node, ok := schema.(map[string]any)
	for range deepest {
		ref, isRef := node["$ref"].(string)
		if !ok || !isRef {
			break
		}
		node, ok = d.lookup(ref).(map[string]any)
	}
	parts, composed := node["allOf"].([]any)
	if !composed {
		return node
	}
	whole := maps.Clone(node)
	delete(whole, "allOf")
	properties, required := map[string]any{}, []any{}
	for _, part := range append([]any{maps.Clone(whole)}, parts...) {
		one := d.resolved(part)
		for name, value := range one {
			if _, taken := whole[name]; !taken {
				whole[name] = value
			}
		}
		members, _ := one["properties"].(map[string]any)
		maps.Copy(properties, members)
		needs, _ := one["required"].([]any)
		required = append(required, needs...)
	}
	whole["properties"], whole["required"] = properties, required
	return whole
}

func (d document) lookup(ref string) any {
	var at any = map[string]any(d)
	for step := range strings.SplitSeq(strings.TrimPrefix(ref, "#/"), "/") {
		node, ok := at.(map[string]any)
		if !ok {
			return nil
		}
		at = node[strings.NewReplacer("~1", "/", "~0", "~").Replace(step)]
	}
	return at
}

// kinds are the types of a schema, of which null may be one.
func kinds(schema map[string]any) []string {
	var out []string
	switch kind := schema["type"].(type) {
	case string:
		out = append(out, kind)
	case []any:
		for _, one := range kind {
			if text, ok := one.(string); ok {
				out = append(out, text)
			}
		}
	}
	if nullable, _ := schema["nullable"].(bool); nullable {
		out = append(out, "null")
	}
	return out
}

// alternatives are what a value may be by oneOf or anyOf; itself alone without.
func (d document) alternatives(schema any) (out []map[string]any, nullable bool) {
	node := d.resolved(schema)
	nullable = slices.Contains(kinds(node), "null")
	if values, _ := node["enum"].([]any); slices.Contains(values, nil) {
		nullable = true
	}
	for _, word := range []string{"oneOf", "anyOf"} {
		choices, _ := node[word].([]any)
		for _, choice := range choices {
			one, null := d.alternatives(choice)
			nullable = nullable || null
			out = append(out, one...)
		}
	}
	switch {
	case len(out) > 0 && node["properties"] != nil: // "one of these must be there", beside what it is
		return []map[string]any{node}, nullable
	case len(out) > 0:
		return out, nullable
	case slices.Equal(kinds(node), []string{"null"}):
		return nil, true
	}
	return []map[string]any{node}, nullable
}

// sample is a value of the schema: with all members that there may be, or with those alone that there must be.
func (d document) sample(schema any, full bool, depth int) any {
	choices, _ := d.alternatives(schema)
	if len(choices) == 0 || depth > deepest {
		return nil
	}
	return d.value(choices[0], full, depth)
}

func (d document) value(node map[string]any, full bool, depth int) any {
	if one, ok := node["const"]; ok {
		return one
	}
	values, _ := node["enum"].([]any)
	for _, value := range values {
		if value != nil {
			return value
		}
	}
	kind := ""
	for _, one := range kinds(node) {
		if one != "null" {
			kind = one
			break
		}
	}
	switch {
	case kind == "object" || kind == "" && node["properties"] != nil:
		return d.object(node, full, depth)
	case kind == "array":
		if !full || node["items"] == nil {
			return []any{}
		}
		return []any{d.sample(node["items"], full, depth+1)}
	case kind == "integer":
		return 7
	case kind == "number":
		return json.Number("7.0")
	case kind == "boolean":
		return true
	case kind == "string":
		return text(node)
	default:
		return map[string]any{}
	}
}

func (d document) object(node map[string]any, full bool, depth int) map[string]any {
	out := map[string]any{}
	required := needs(node)
	members, _ := node["properties"].(map[string]any)
	for name, schema := range members {
		if full && depth < deepest || required[name] {
			out[name] = d.sample(schema, full, depth+1)
			if strings.HasSuffix(name, "_at") && out[name] == text(nil) { // some are described as text alone
				out[name] = moment
			}
		}
	}
	return out
}

func needs(node map[string]any) map[string]bool {
	out := map[string]bool{}
	required, _ := node["required"].([]any)
	for _, one := range required {
		if name, ok := one.(string); ok {
			out[name] = true
		}
	}
	return out
}

const moment = "2026-01-02T03:04:05Z"

func text(node map[string]any) string {
	switch node["format"] {
	case "date-time":
		return moment
	case "date":
		return "2026-01-02"
	case "uri", "url", "uri-template":
		return "https://github.example/x"
	default:
		return "text"
	}
}

// variation is one way in which a value may differ from the sample with all members.
type variation struct {
	path []string // to a member; of a list, to those of its one entry
	how  string   // "null", "absent", or which alternative
	with any      // what it is instead; nothing where it is absent
}

const absent = "absent"

// variations are all of a schema, down to a depth of members: each nullable one null, each optional one absent, each that may be of several
// types of every one of them.
func (d document) variations(schema any, most int) []variation {
	return d.vary(schema, nil, most)
}

func (d document) vary(schema any, path []string, most int) []variation {
	choices, _ := d.alternatives(schema)
	if len(choices) == 0 || len(path) >= most || len(path) >= deepest {
		return nil
	}
	node := choices[0]
	if items := node["items"]; items != nil && slices.Contains(kinds(node), "array") {
		return d.vary(items, append(slices.Clone(path), "0"), most+1)
	}
	var out []variation
	required := needs(node)
	members, _ := node["properties"].(map[string]any)
	for _, name := range slices.Sorted(maps.Keys(members)) {
		at := append(slices.Clone(path), name)
		choices, nullable := d.alternatives(members[name])
		if nullable {
			out = append(out, variation{path: at, how: "null"})
		}
		if !required[name] {
			out = append(out, variation{path: at, how: absent})
		}
		for i, choice := range choices {
			if i > 0 {
				out = append(out, variation{path: at, how: "another type", with: d.value(choice, true, len(at))})
			}
		}
		out = append(out, d.vary(members[name], at, most)...)
	}
	return out
}

// apply changes a value in place, and returns what undoes it; false where the value has no such member.
func (v variation) apply(root any) (undo func(), ok bool) {
	at := root
	for _, step := range v.path[:len(v.path)-1] {
		switch node := at.(type) {
		case map[string]any:
			at = node[step]
		case []any:
			if len(node) == 0 {
				return nil, false
			}
			at = node[0]
		default:
			return nil, false
		}
	}
	node, isObject := at.(map[string]any)
	last := v.path[len(v.path)-1]
	was, there := node[last]
	if !isObject || !there {
		return nil, false
	}
	if v.how == absent {
		delete(node, last)
	} else {
		node[last] = v.with
	}
	return func() { node[last] = was }, true
}

// at follows names within a value.
func (d document) at(value any, names ...string) any {
	for _, name := range names {
		node, _ := value.(map[string]any)
		value = node[name]
	}
	return value
}
