package arcmigration

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Input is one file.
type Input struct {
	// Name is what the report calls it.
	Name    string
	Content []byte
}

const (
	// valueLimit is how many values a document may have once its aliases are resolved; depthLimit how deep they may lie. Both
	// are far beyond what an API server takes, and keep a file that names itself again and again from taking the memory.
	valueLimit = 300_000
	depthLimit = 200
)

// document is one of a file's documents, or an item of a List: base is then the path that its paths begin with.
type document struct {
	file   string
	number int
	base   string
	root   *value
}

// read takes a file apart. Documents before a broken one are given out beside the error.
func read(input Input) ([]document, error) {
	decoder := yaml.NewDecoder(bytes.NewReader(input.Content))
	lines := strings.Split(string(input.Content), "\n")
	var found []document
	for number := 1; ; number++ {
		var node yaml.Node
		err := decoder.Decode(&node)
		if errors.Is(err, io.EOF) {
			return found, nil
		}
		var root *value
		if err == nil {
			root, err = grow(&node, "", at{lines: lines})
		}
		if err != nil {
			return found, fmt.Errorf("%s, document %d: %w%s", input.Name, number, err, templateHint(input.Content))
		}
		if root.shape == shapeNull {
			continue
		}
		found = append(found, split(document{file: input.Name, number: number, root: root})...)
	}
}

// templateHint is what there is to say of a file that cannot be read because it is a template.
func templateHint(content []byte) string {
	if !bytes.Contains(content, []byte("{{")) {
		return ""
	}
	return "; it contains {{ }}, like the templates of a Helm chart: render it first, with helm template"
}

// helmAction knows what Helm replaces. Commands of other programs that take such templates, like docker's --format, name no values of a chart.
var helmAction = regexp.MustCompile(`\{\{-?[^}]*(\.Values|\.Release|\.Chart|\.Capabilities|\.Files|\.Template|\binclude\s+"|\btemplate\s+"|\btoYaml\b|\btpl\s|\bnindent\b)`)

// template finds a text that Helm, or an ApplicationSet, has yet to fill in; also in a key.
func (v *value) template() *value {
	return v.find(func(v *value) bool {
		text, _ := v.scalar.(string)
		return helmAction.MatchString(text) || slices.ContainsFunc(v.keys, helmAction.MatchString)
	})
}

// graft replaces a text by what it says as YAML, such as the values that an Application of Argo CD holds in one text.
func (v *value) graft() error {
	var node yaml.Node
	text := v.peek()
	if err := yaml.Unmarshal([]byte(text), &node); err != nil {
		return err
	}
	where := at{line: v.line, column: v.column, fixed: true}
	if v.block != nil {
		where = at{line: v.block.line - 1, column: v.block.indent}
	}
	where.lines = strings.Split(text, "\n")
	root, err := grow(&node, v.path, where)
	if err != nil {
		return err
	}
	if root.shape != shapeMapping && root.shape != shapeNull {
		return errors.New("it is not a mapping")
	}
	v.shape, v.scalar, v.keys, v.fields, v.block = root.shape, nil, root.keys, root.fields, nil
	return nil
}

// split makes documents of the items of a List.
func split(d document) []document {
	items := d.root.get("items")
	if !strings.HasSuffix(d.root.get("kind").peek(), "List") || items == nil || items.shape != shapeSequence {
		return []document{d}
	}
	var found []document
	for _, item := range items.items {
		found = append(found, split(document{file: d.file, number: d.number, base: item.path, root: item})...)
	}
	return found
}

// at is where YAML's nodes are: their own lines, from somewhere in a file, or all in one place.
type at struct {
	lines        []string
	line, column int
	fixed        bool
}

func (a at) of(node *yaml.Node) (line, column int) {
	if a.fixed {
		return a.line, a.column
	}
	return a.line + node.Line, a.column + node.Column
}

// block says where a text in a block begins: below its indicator, and as far to the right as its first line is.
func (a at) block(node *yaml.Node) *block {
	if a.fixed || node.Style&yaml.LiteralStyle == 0 {
		return nil
	}
	for i, line := range strings.Split(node.Value, "\n") {
		if source := node.Line + i; strings.TrimSpace(line) != "" && source < len(a.lines) {
			indent := max(strings.Index(strings.TrimRight(a.lines[source], "\r"), line), 0)
			return &block{line: a.line + node.Line + 1, indent: a.column + indent}
		}
	}
	return nil
}

// grower makes values of YAML's nodes.
type grower struct {
	at   at
	left int
}

func grow(node *yaml.Node, path string, where at) (*value, error) {
	g := grower{at: where, left: valueLimit}
	return g.grow(node, path, 0)
}

func (g *grower) value(node *yaml.Node, path string, shape shape) *value {
	v := &value{path: path, shape: shape}
	v.line, v.column = g.at.of(node)
	return v
}

func (g *grower) grow(node *yaml.Node, path string, depth int) (*value, error) {
	g.left--
	if g.left < 0 || depth > depthLimit {
		return nil, fmt.Errorf("line %d: more than %d values, or deeper than %d: not a manifest", node.Line, valueLimit, depthLimit)
	}
	switch node.Kind {
	case yaml.DocumentNode:
		if len(node.Content) == 1 {
			return g.grow(node.Content[0], path, depth+1)
		}
	case yaml.AliasNode:
		return g.grow(node.Alias, path, depth+1)
	case yaml.MappingNode:
		return g.mapping(node, path, depth)
	case yaml.SequenceNode:
		v := g.value(node, path, shapeSequence)
		for i, content := range node.Content {
			item, err := g.grow(content, itemPath(path, i), depth+1)
			if err != nil {
				return nil, err
			}
			v.items = append(v.items, item)
		}
		return v, nil
	case yaml.ScalarNode:
		v := g.value(node, path, shapeScalar)
		v.block = g.at.block(node)
		readScalar(v, node)
		return v, nil
	}
	return g.value(node, path, shapeNull), nil
}

func (g *grower) mapping(node *yaml.Node, path string, depth int) (*value, error) {
	v := g.value(node, path, shapeMapping)
	v.fields = map[string]*value{}
	var merged []*yaml.Node
	for i := 0; i+1 < len(node.Content); i += 2 {
		key, content := node.Content[i], node.Content[i+1]
		if key.Kind == yaml.AliasNode {
			key = key.Alias
		}
		if key.Kind != yaml.ScalarNode {
			return nil, fmt.Errorf("line %d: a key is not a string", key.Line)
		}
		if key.ShortTag() == "!!merge" {
			merged = append(merged, content)
			continue
		}
		if v.fields[key.Value] != nil {
			return nil, fmt.Errorf("line %d: duplicate key %q: remove one", key.Line, key.Value)
		}
		child, err := g.grow(content, childPath(path, key.Value), depth+1)
		if err != nil {
			return nil, err
		}
		child.line, child.column = g.at.of(key)
		v.keys, v.fields[key.Value] = append(v.keys, key.Value), child
	}
	for _, content := range merged {
		if err := g.merge(v, content, depth); err != nil {
			return nil, err
		}
	}
	return v, nil
}

// merge gives a mapping what << brings, where it has nothing of its own.
func (g *grower) merge(into *value, node *yaml.Node, depth int) error {
	if node.Kind == yaml.SequenceNode {
		for _, content := range node.Content {
			if err := g.merge(into, content, depth+1); err != nil {
				return err
			}
		}
		return nil
	}
	from, err := g.grow(node, into.path, depth+1)
	if err != nil {
		return err
	}
	if from.shape != shapeMapping {
		return fmt.Errorf("line %d: << must be a mapping", node.Line)
	}
	for _, key := range from.keys {
		if into.fields[key] == nil {
			into.keys, into.fields[key] = append(into.keys, key), from.fields[key]
		}
	}
	return nil
}

// oldBooleans are words that kubectl takes for booleans, and newer YAML does not.
var oldBooleans = map[string]bool{
	"y": true, "Y": true, "yes": true, "Yes": true, "YES": true, "on": true, "On": true, "ON": true,
	"n": false, "N": false, "no": false, "No": false, "NO": false, "off": false, "Off": false, "OFF": false,
}

func readScalar(v *value, node *yaml.Node) {
	v.scalar = node.Value
	if meant, ok := oldBooleans[node.Value]; ok && node.Style == 0 && len(node.Value) > 1 {
		v.scalar = meant
		return
	}
	switch node.ShortTag() {
	case "!!null":
		v.shape, v.scalar = shapeNull, nil
	case "!!bool":
		var b bool
		if node.Decode(&b) == nil {
			v.scalar = b
		}
	case "!!int":
		var n int64
		if node.Decode(&n) == nil {
			v.scalar = n
		}
	case "!!float":
		var f float64
		if node.Decode(&f) == nil && !math.IsNaN(f) && !math.IsInf(f, 0) {
			v.scalar = f
		}
	}
}
