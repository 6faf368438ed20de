package reference

import (
	"encoding/json"
	"fmt"
	"strings"

	"go.yaml.in/yaml/v3"
)

// valueSchema is what is read of the schema of values.
type valueSchema struct {
	Type             any
	Enum             []any
	Pattern          string
	Description      string
	Minimum, Maximum *float64
	Properties       map[string]*valueSchema
	Items            *valueSchema
}

// Configuration is docs/reference/configuration.md, of the chart's values and their schema.
func Configuration(values, schema []byte) (string, error) {
	var document yaml.Node
	if err := yaml.Unmarshal(values, &document); err != nil {
		return "", fmt.Errorf("reading the values: %w", err)
	}
	var root valueSchema
	if err := json.Unmarshal(schema, &root); err != nil {
		return "", fmt.Errorf("reading the schema of the values: %w", err)
	}
	var b strings.Builder
	b.WriteString("# Configuration\n\n" + written + `
What can be set, and where: the values of the Helm chart, the environment variables of the programs, and their flags
([server](cli/server.md), [controller](cli/controller.md), [node](cli/node.md), [up](cli/up.md)). Pools and other objects are [kinds](crds/README.md).

## Values of the chart

`)
	top := document.Content[0]
	b.WriteString(words(document.HeadComment+"\n"+top.HeadComment) + "\n")
	for i := 0; i < len(top.Content); i += 2 {
		key, value := top.Content[i], top.Content[i+1]
		about := key.HeadComment
		if i == 0 { // the library gives the file's first comment and the first key's to the document
			about = strings.TrimPrefix(about, top.HeadComment)
		}
		fmt.Fprintf(&b, "\n### %s\n\n", key.Value)
		if text := words(about); text != "" {
			b.WriteString(text + "\n\n")
		}
		b.WriteString("| value | type | default | |\n|---|---|---|---|\n")
		writeValue(&b, key.Value, "", value, root.Properties[key.Value])
	}
	b.WriteString("\n" + environmentPage())
	return b.String(), nil
}

// writeValue writes a row for each leaf. An empty map or list is one.
func writeValue(b *strings.Builder, path, about string, value *yaml.Node, s *valueSchema) {
	if value.Kind == yaml.MappingNode && len(value.Content) > 0 && value.Style&yaml.FlowStyle == 0 {
		if about != "" {
			fmt.Fprintf(b, "| `%s` | | | %s |\n", path, cell(about))
		}
		for i := 0; i < len(value.Content); i += 2 {
			key := value.Content[i]
			var below *valueSchema
			if s != nil {
				below = s.Properties[key.Value]
			}
			writeValue(b, path+"."+key.Value, comment(key), value.Content[i+1], below)
		}
		return
	}
	if about == "" && s != nil {
		about = s.Description
	}
	fmt.Fprintf(b, "| `%s` | %s | `%s` | %s |\n", path, cell(s.kind()), cell(leaf(value)), cell(about))
}

func comment(key *yaml.Node) string { return words(key.HeadComment + "\n" + key.LineComment) }

// words are a comment's text, without its marks. An indented example stays with it.
func words(comment string) string {
	var lines []string
	for _, line := range strings.Split(comment, "\n") {
		lines = append(lines, strings.TrimPrefix(strings.TrimPrefix(line, "#"), " "))
	}
	var out []string
	code := false
	for _, line := range lines {
		if indented := strings.HasPrefix(line, "  "); indented != code && strings.TrimSpace(line) != "" {
			code = indented
			out = append(out, "")
		}
		if code && strings.TrimSpace(line) != "" {
			line = "  " + line
		}
		out = append(out, line)
	}
	return strings.TrimSpace(collapse(strings.Join(out, "\n")))
}

// leaf is a value in one line.
func leaf(value *yaml.Node) string {
	var held any
	if err := value.Decode(&held); err != nil {
		return value.Value
	}
	text, err := json.Marshal(held)
	if err != nil {
		return value.Value
	}
	return string(text)
}

func (s *valueSchema) kind() string {
	switch {
	case s == nil:
		return ""
	case len(s.Enum) > 0:
		values := make([]string, len(s.Enum))
		for i, value := range s.Enum {
			values[i] = fmt.Sprint(value)
		}
		return "one of " + strings.Join(values, ", ")
	}
	kind := ""
	switch is := s.Type.(type) {
	case string:
		kind = is
	case []any:
		for i, one := range is {
			if i > 0 {
				kind += " or "
			}
			kind += fmt.Sprint(one)
		}
	}
	if s.Items != nil {
		if each := s.Items.kind(); each != "" {
			kind += " of " + each
		}
	}
	switch {
	case s.Minimum != nil && s.Maximum != nil:
		kind += ", " + number(s.Minimum) + " to " + number(s.Maximum)
	case s.Minimum != nil:
		kind += ", at least " + number(s.Minimum)
	case s.Maximum != nil:
		kind += ", at most " + number(s.Maximum)
	}
	return kind
}
