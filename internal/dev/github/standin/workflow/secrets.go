package workflow

import (
	"strings"

	"github.com/rhysd/actionlint"
	"go.yaml.in/yaml/v4"
)

// secretNames are the secrets that the expressions of a file look up by a name that is written out.
func secretNames(doc *yaml.Node) []string {
	found, seen := map[string]bool{}, map[*yaml.Node]bool{}
	var walk func(n *yaml.Node)
	walk = func(n *yaml.Node) {
		if n == nil || seen[n] {
			return
		}
		seen[n] = true
		walk(n.Alias)
		for _, inner := range n.Content {
			walk(inner)
		}
		if n.Kind != yaml.ScalarNode || !strings.Contains(n.Value, "${{") {
			return
		}
		parts, _ := splitTemplate(n.Value) // what is no expression was reported by the checks
		for _, p := range parts {
			if p.node != nil {
				secretsOf(p.node, found)
			}
		}
	}
	walk(doc)
	delete(found, "GITHUB_TOKEN")
	return sortedKeys(found)
}

func secretsOf(node actionlint.ExprNode, found map[string]bool) {
	actionlint.VisitExprNode(node, func(n, _ actionlint.ExprNode, entering bool) {
		if !entering {
			return
		}
		var receiver actionlint.ExprNode
		name := ""
		switch n := n.(type) {
		case *actionlint.ObjectDerefNode:
			receiver, name = n.Receiver, n.Property
		case *actionlint.IndexAccessNode:
			receiver = n.Operand
			if index, ok := n.Index.(*actionlint.StringNode); ok {
				name = index.Value
			}
		}
		if v, ok := receiver.(*actionlint.VariableNode); ok && v.Name == "secrets" && name != "" {
			found[strings.ToUpper(name)] = true
		}
	})
}
