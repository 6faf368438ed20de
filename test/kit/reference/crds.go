package reference

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"sigs.k8s.io/yaml"
)

// definition is what is read of a CustomResourceDefinition.
type definition struct {
	Spec struct {
		Group string
		Names struct {
			Kind, Plural string
			ShortNames   []string
		}
		Scope    string
		Versions []struct {
			Name                     string
			Schema                   struct{ OpenAPIV3Schema schema }
			AdditionalPrinterColumns []struct {
				Name, JSONPath, Description string
				Priority                    int
			}
		}
	}
}

// schema is what is read of a structural schema.
type schema struct {
	Type, Format, Description, Pattern    string
	Default                               any
	Enum                                  []any
	Required                              []string
	Properties                            map[string]schema
	Items                                 *schema
	AdditionalProperties                  *schema
	Minimum, Maximum                      *float64
	MinLength, MaxLength                  *int64
	MinItems, MaxItems                    *int64
	MinProperties, MaxProperties          *int64
	Nullable                              bool
	IntOrString                           bool   `json:"x-kubernetes-int-or-string"`
	ListType                              string `json:"x-kubernetes-list-type"`
	Validations                           []rule `json:"x-kubernetes-validations"`
	PreserveUnknownFields, EmbeddedObject bool
}

type rule struct{ Rule, Message, MessageExpression string }

// CRDs is the pages of docs/reference/crds by file name, one for each kind and an index, of definitions in YAML.
func CRDs(definitions [][]byte) (map[string]string, error) {
	pages := map[string]string{}
	index := map[string]string{}
	for _, text := range definitions {
		var crd definition
		if err := yaml.Unmarshal(text, &crd); err != nil {
			return nil, fmt.Errorf("reading a definition: %w", err)
		}
		kind := crd.Spec.Names.Kind
		for _, version := range crd.Spec.Versions {
			root := version.Schema.OpenAPIV3Schema
			var b strings.Builder
			fmt.Fprintf(&b, "# %s\n\n%s\n`apiVersion: %s/%s`, `kind: %s`; `kubectl get %s`", kind, written, crd.Spec.Group, version.Name, kind, crd.Spec.Names.Plural)
			if len(crd.Spec.Names.ShortNames) > 0 {
				b.WriteString(" or `" + strings.Join(crd.Spec.Names.ShortNames, "`, `") + "`")
			}
			fmt.Fprintf(&b, ". %s.\n\n%s\n", crd.Spec.Scope, flow(root.Description))
			for _, r := range root.Validations {
				b.WriteString("\n" + r.line("") + "\n")
			}
			for _, part := range []string{"spec", "status"} {
				if below, has := root.Properties[part]; has {
					fmt.Fprintf(&b, "\n## %s\n\n%s\n\n", part, flow(below.Description))
					writeRules(&b, below, "")
					writeFields(&b, part, below, 0)
				}
			}
			pages[kind+".md"] = b.String()
			index[kind] = fmt.Sprintf("| [%s](%s.md) | %s |\n", kind, kind, cell(firstSentence(root.Description)))
		}
	}
	var b strings.Builder
	b.WriteString("# Kinds\n\n" + written + `
What the objects of the group ` + "`bullpen.dev`" + ` hold: every field, its type, its default, what the API server refuses and in which
words. ` + "`kubectl explain`" + ` says the same of an installed version. Fields that are Kubernetes' own (` + "`template.spec`" + ` of a pod, claims
for volumes) are named and not repeated.

| kind | |
|---|---|
`)
	for _, kind := range slices.Sorted(maps.Keys(index)) {
		b.WriteString(index[kind])
	}
	pages["README.md"] = b.String()
	return pages, nil
}

func flow(text string) string {
	return strings.NewReplacer("<", "&lt;", "*", `\*`).Replace(strings.Join(strings.Fields(text), " "))
}

func firstSentence(text string) string {
	text = flow(text)
	if at := strings.Index(text, ". "); at >= 0 {
		return text[:at+1]
	}
	return text
}

func (r rule) line(prefix string) string {
	says := r.Message
	if says == "" {
		says = "refused otherwise"
	}
	return prefix + "Rule: *" + flow(says) + "* `" + strings.Join(strings.Fields(r.Rule), " ") + "`"
}

func writeRules(b *strings.Builder, s schema, prefix string) {
	for _, r := range s.Validations {
		b.WriteString(r.line(prefix+"- ") + "\n")
	}
}

// kubernetes reports whether everything below is Kubernetes' own: a pod, or a claim for a volume.
func (s schema) kubernetes() bool {
	_, pod := s.Properties["containers"]
	_, claim := s.Properties["accessModes"]
	return pod || claim
}

// own reports whether a field of the schema has a description: what Kubernetes brings has none left.
func (s schema) own() bool {
	for _, below := range s.Properties {
		if below.Description != "" {
			return true
		}
	}
	return false
}

// writeFields lists the fields of an object, each before those below it.
func writeFields(b *strings.Builder, path string, s schema, depth int) {
	for _, name := range slices.Sorted(maps.Keys(s.Properties)) {
		field := s.Properties[name]
		full := path + "." + name
		about := field.kind()
		if slices.Contains(s.Required, name) {
			about += ", required"
		}
		if limits := field.limits(); limits != "" {
			about += ", " + limits
		}
		if field.Default != nil {
			about += ", default `" + compact(field.Default) + "`"
		}
		fmt.Fprintf(b, "%s- **`%s`** (%s)", strings.Repeat("  ", depth), full, about)
		if field.Description != "" {
			b.WriteString(": " + flow(field.Description))
		}
		b.WriteString("\n")
		inner := field
		for inner.Items != nil || (inner.AdditionalProperties != nil && inner.Properties == nil) {
			if inner.Items != nil {
				inner, full = *inner.Items, full+"[]"
			} else {
				inner, full = *inner.AdditionalProperties, full+".*"
			}
			writeRules(b, inner, strings.Repeat("  ", depth+1))
		}
		writeRules(b, field, strings.Repeat("  ", depth+1))
		switch {
		case inner.kubernetes():
			fmt.Fprintf(b, "%s- Its fields are Kubernetes' own.\n", strings.Repeat("  ", depth+1))
		case inner.own():
			writeFields(b, full, inner, depth+1)
		}
	}
}

func (s schema) kind() string {
	switch {
	case s.IntOrString:
		return "integer or string"
	case s.Items != nil:
		list := "list"
		if s.ListType == "set" {
			list = "set"
		}
		return list + " of " + s.Items.kind()
	case s.AdditionalProperties != nil:
		return "map of " + s.AdditionalProperties.kind()
	case s.Format != "":
		return s.Type + " " + s.Format
	case s.Type == "":
		return "anything"
	}
	return s.Type
}

func (s schema) limits() string {
	var all []string
	between := func(least, most, what string) {
		switch {
		case least != "" && most != "":
			all = append(all, strings.TrimSpace(least+" to "+most+" "+what))
		case least != "":
			all = append(all, strings.TrimSpace("at least "+least+" "+what))
		case most != "":
			all = append(all, strings.TrimSpace("at most "+most+" "+what))
		}
	}
	between(number(s.Minimum), number(s.Maximum), "")
	between(whole(s.MinLength), whole(s.MaxLength), "characters")
	between(whole(s.MinItems), whole(s.MaxItems), "entries")
	between(whole(s.MinProperties), whole(s.MaxProperties), "keys")
	if len(s.Enum) > 0 {
		values := make([]string, len(s.Enum))
		for i, value := range s.Enum {
			values[i] = "`" + compact(value) + "`"
		}
		all = append(all, "one of "+strings.Join(values, ", "))
	}
	if s.Pattern != "" {
		all = append(all, "like `"+s.Pattern+"`")
	}
	if s.Items != nil {
		if each := s.Items.limits(); each != "" {
			all = append(all, "each "+each)
		}
	}
	return strings.Join(all, ", ")
}

func number(n *float64) string {
	if n == nil {
		return ""
	}
	return strconv.FormatFloat(*n, 'f', -1, 64)
}

func whole(n *int64) string {
	if n == nil {
		return ""
	}
	return strconv.FormatInt(*n, 10)
}

// compact is a value in one line of YAML.
func compact(value any) string {
	if text, is := value.(string); is {
		if text == "" {
			return `""`
		}
		return text
	}
	text, err := yaml.Marshal(value)
	if err != nil {
		return fmt.Sprint(value)
	}
	line := strings.TrimSpace(string(text))
	if strings.Contains(line, "\n") {
		if text, err = yaml.YAMLToJSON(text); err == nil {
			line = string(text)
		}
	}
	return line
}
