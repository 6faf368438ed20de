package workflow

import (
	"fmt"
	"slices"
	"strings"

	"github.com/rhysd/actionlint"
	"go.yaml.in/yaml/v4"
)

// shape is what the schema of workflow files allows at one place: a text, a list, a mapping, or a text in place of a mapping. An
// expression may stand for each of them where the place has contexts. The same shape checks the file, and the value that a runner
// gets by evaluating it. (GitHub's schema: workflow-v1.0.json of actions/runner.)
type shape struct {
	text     bool
	nonEmpty bool              // of a text
	items    *shape            // of a list
	keys     map[string]*shape // of a mapping whose keys are known; they are case-sensitive
	values   *shape            // of a mapping whose keys are free
	where    string            // actionlint's name of the place, which says which contexts an expression may use; "" means that of the shape around it
}

// The texts of GitHub's own parser for a file that does not fit its schema.
const (
	unexpectedSequence = "A sequence was not expected"
	unexpectedMapping  = "A mapping was not expected"
	noEmptyImage       = "Container image cannot be empty"
)

func unexpectedValue(text string) string { return fmt.Sprintf("Unexpected value '%s'", text) }

func (s *shape) mapping() bool { return s.keys != nil || s.values != nil }

// shapeReader reads nodes of a file.
type shapeReader struct {
	c *checker
	// seen has the place of each node that was read.
	seen map[actionlint.Pos]bool
}

// read makes the token of a node, and reports all that the shape does not allow.
func (r *shapeReader) read(n *yaml.Node, s *shape, where string) Token {
	if s.where != "" {
		where = s.where
	}
	place := position(n)
	r.seen[*place] = true
	n = resolve(n)
	switch {
	case n.Kind == yaml.ScalarNode:
		return r.scalar(n, place, s, where)
	case n.Kind == yaml.SequenceNode && s.items != nil:
		out := Token{Kind: TokenSequence}
		for _, item := range n.Content {
			out.Items = append(out.Items, r.read(item, s.items, where))
		}
		return out
	case n.Kind == yaml.MappingNode && s.mapping():
		return r.readMapping(n, s, where)
	case n.Kind == yaml.SequenceNode:
		r.c.add(place, "", unexpectedSequence)
	default:
		r.c.add(place, "", unexpectedMapping)
	}
	r.skip(n)
	return Token{}
}

func position(n *yaml.Node) *actionlint.Pos { return &actionlint.Pos{Line: n.Line, Col: n.Column} }

// skip notes the places of a subtree that was reported as a whole.
func (r *shapeReader) skip(n *yaml.Node) {
	for _, inner := range n.Content {
		if place := *position(inner); !r.seen[place] {
			r.seen[place] = true
			r.skip(inner)
		}
	}
}

func (r *shapeReader) scalar(n *yaml.Node, place *actionlint.Pos, s *shape, where string) Token {
	v := fromYAML(n)
	if text, ok := v.(string); ok && strings.Contains(text, "${{") {
		return r.expression(text, place, where)
	}
	text := ToString(v)
	if !s.text || s.nonEmpty && text == "" {
		r.c.add(place, "", unexpectedValue(text))
	}
	return Token{Text: text}
}

// expression makes the token of a text with expressions. What they use must be known at this place.
func (r *shapeReader) expression(text string, place *actionlint.Pos, where string) Token {
	parts, err := splitTemplate(text)
	if err != nil {
		r.c.add(place, "", err.Error())
		return Token{}
	}
	for _, p := range parts {
		if p.node == nil {
			continue
		}
		if v, ok := p.node.(*actionlint.VariableNode); ok && v.Name == "insert" {
			r.c.unsupported(place, "insert", "write the entries out")
			continue
		}
		if problem := unrecognized(p.node, p.text, where); problem != "" {
			r.c.add(place, "", problem)
			continue
		}
		r.c.meaning(p.node, p.text, place, where)
	}
	return Token{Kind: TokenExpression, Text: joinTemplate(parts)}
}

// unrecognized names the first context of an expression that does not exist at its place, in GitHub's words; "" if there is none.
func unrecognized(node actionlint.ExprNode, source, where string) string {
	contexts, _ := actionlint.WorkflowKeyAvailability(where)
	problem := ""
	actionlint.VisitExprNode(node, func(n, _ actionlint.ExprNode, entering bool) {
		v, ok := n.(*actionlint.VariableNode)
		if !ok || !entering || problem != "" || slices.Contains(contexts, strings.ToLower(v.Name)) {
			return
		}
		problem = unrecognizedName(v.Name, source)
	})
	return problem
}

func unrecognizedName(name, source string) string {
	at := strings.Index(strings.ToLower(source), strings.ToLower(name)) + 1
	return fmt.Sprintf("Unrecognized named-value: '%s'. Located at position %d within expression: %s", name, at, source)
}

func (r *shapeReader) readMapping(n *yaml.Node, s *shape, where string) Token {
	out, known := Token{Kind: TokenMapping}, map[string]bool{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		place := position(key)
		r.seen[*place] = true
		name := Token{Text: ToString(fromYAML(key))}
		switch {
		case resolve(key).Kind != yaml.ScalarNode:
			r.c.add(place, "", "Expected a scalar value")
			r.skip(value)
			continue
		case strings.Contains(name.Text, "${{"):
			name = r.expression(name.Text, place, where)
		case known[strings.ToLower(name.Text)]:
			r.c.add(place, "", fmt.Sprintf("'%s' is already defined", name.Text))
			r.skip(value)
			continue
		default:
			known[strings.ToLower(name.Text)] = true
		}
		inner := s.values
		if s.keys != nil {
			inner = s.keys[name.Text]
		}
		if inner == nil || s.values != nil && name.Kind == TokenString && name.Text == "" {
			r.c.add(place, "", unexpectedValue(name.Text))
			r.seen[*position(value)] = true
			r.skip(value)
			continue
		}
		out.Pairs = append(out.Pairs, TokenPair{name, r.read(value, inner, where)})
	}
	return out
}

// dynamic reports whether a token has an expression in it.
func (t Token) dynamic() bool {
	return t.Kind == TokenExpression || slices.ContainsFunc(t.Items, Token.dynamic) ||
		slices.ContainsFunc(t.Pairs, func(p TokenPair) bool { return p.Key.dynamic() || p.Value.dynamic() })
}
