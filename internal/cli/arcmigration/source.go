package arcmigration

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
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
	var found []document
	for number := 1; ; number++ {
		var node yaml.Node
		err := decoder.Decode(&node)
		if errors.Is(err, io.EOF) {
			return found, nil
		}
		if err != nil {
			if bytes.Contains(input.Content, []byte("{{")) {
				return found, fmt.Errorf("%s, document %d: %w; it holds {{ }}, as a Helm chart's templates do: render it first, with helm template", input.Name, number, err)
			}
			return found, fmt.Errorf("%s, document %d: %w", input.Name, number, err)
		}
		grower := grower{left: valueLimit}
		root, err := grower.grow(&node, "", 0)
		if err != nil {
			return found, fmt.Errorf("%s, document %d: %w", input.Name, number, err)
		}
		if root.shape == shapeNull {
			continue
		}
		found = append(found, split(document{file: input.Name, number: number, root: root})...)
	}
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

// grower makes values of YAML's nodes.
type grower struct{ left int }

func (g *grower) grow(node *yaml.Node, path string, depth int) (*value, error) {
	g.left--
	if g.left < 0 || depth > depthLimit {
		return nil, fmt.Errorf("line %d: more than %d values, or deeper than %d: that is no manifest", node.Line, valueLimit, depthLimit)
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
		v := &value{path: path, line: node.Line, shape: shapeSequence}
		for i, content := range node.Content {
			item, err := g.grow(content, itemPath(path, i), depth+1)
			if err != nil {
				return nil, err
			}
			v.items = append(v.items, item)
		}
		return v, nil
	case yaml.ScalarNode:
		return scalar(node, path), nil
	}
	return &value{path: path, line: node.Line}, nil
}

func (g *grower) mapping(node *yaml.Node, path string, depth int) (*value, error) {
	v := &value{path: path, line: node.Line, shape: shapeMapping, fields: map[string]*value{}}
	var merged []*yaml.Node
	for i := 0; i+1 < len(node.Content); i += 2 {
		key, content := node.Content[i], node.Content[i+1]
		if key.Kind == yaml.AliasNode {
			key = key.Alias
		}
		if key.Kind != yaml.ScalarNode {
			return nil, fmt.Errorf("line %d: a key that is no text", key.Line)
		}
		if key.ShortTag() == "!!merge" {
			merged = append(merged, content)
			continue
		}
		if v.fields[key.Value] != nil {
			return nil, fmt.Errorf("line %d: %q is there twice: remove one", key.Line, key.Value)
		}
		child, err := g.grow(content, childPath(path, key.Value), depth+1)
		if err != nil {
			return nil, err
		}
		if child.shape != shapeMapping && child.shape != shapeSequence || child.leaf() {
			child.line = key.Line
		}
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
		return fmt.Errorf("line %d: << wants a mapping", node.Line)
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

func scalar(node *yaml.Node, path string) *value {
	v := &value{path: path, line: node.Line, shape: shapeScalar, scalar: node.Value}
	if meant, ok := oldBooleans[node.Value]; ok && node.Style == 0 && len(node.Value) > 1 {
		v.scalar = meant
		return v
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
	return v
}
