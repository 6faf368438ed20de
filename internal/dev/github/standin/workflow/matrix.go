package workflow

import (
	"errors"
	"fmt"
	"strings"

	"github.com/rhysd/actionlint"
	"go.yaml.in/yaml/v4"
)

// ErrMatrix marks a matrix that cannot be expanded.
var ErrMatrix = errors.New("bad matrix")

// combination is one job of a matrix.
type combination struct {
	values *Object
	// label is what goes between the parentheses of the job's name.
	label []string
}

// expandMatrix multiplies the rows of an evaluated matrix, drops what exclude matches, and adds include: to
// every combination whose original values it does not change, or as a combination of its own.
func expandMatrix(matrix *Object) ([]combination, error) {
	rows := NewObject()
	for _, name := range matrix.Keys() {
		if strings.EqualFold(name, "include") || strings.EqualFold(name, "exclude") {
			continue
		}
		v, _ := matrix.Get(name)
		list, ok := v.([]any)
		if !ok || len(list) == 0 {
			return nil, fmt.Errorf("%w: %q needs a list with at least one value", ErrMatrix, name)
		}
		rows.Set(name, list)
	}
	include, err := objects(matrix, "include")
	if err != nil {
		return nil, err
	}
	exclude, err := objects(matrix, "exclude")
	if err != nil {
		return nil, err
	}
	for _, filter := range exclude {
		for _, k := range filter.Keys() {
			if _, isRow := rows.Get(k); !isRow {
				return nil, fmt.Errorf("%w: exclude names %q, which is no row of it", ErrMatrix, k)
			}
		}
	}
	combos, err := multiply(rows, exclude)
	if err != nil {
		return nil, err
	}
	combos = addIncludes(combos, rows, include)
	if len(combos) > MaxMatrix {
		return nil, fmt.Errorf("%w: it makes %d jobs, more than %d", ErrMatrix, len(combos), MaxMatrix)
	}
	return combos, nil
}

func objects(matrix *Object, key string) ([]*Object, error) {
	v, ok := matrix.Get(key)
	if !ok || v == nil {
		return nil, nil
	}
	list, ok := v.([]any)
	if !ok {
		return nil, fmt.Errorf("%w: %q must be a list", ErrMatrix, key)
	}
	out := make([]*Object, len(list))
	for i, item := range list {
		if out[i], ok = item.(*Object); !ok {
			return nil, fmt.Errorf("%w: entry %d of %q must be a map", ErrMatrix, i+1, key)
		}
	}
	return out, nil
}

// maxProduct bounds the product before exclude: exclude may bring it under MaxMatrix again.
const maxProduct = 100_000

func multiply(rows *Object, exclude []*Object) ([]combination, error) {
	if rows.Len() == 0 {
		return nil, nil
	}
	combos := []combination{{values: NewObject()}}
	for _, name := range rows.Keys() {
		list, _ := rows.Get(name)
		values := list.([]any)
		if len(combos)*len(values) > maxProduct {
			return nil, fmt.Errorf("%w: its rows multiply to more than %d combinations", ErrMatrix, maxProduct)
		}
		next := make([]combination, 0, len(combos)*len(values))
		for _, c := range combos {
			for _, v := range values {
				grown := combination{values: c.values.Clone(), label: append(append([]string(nil), c.label...), scalars(v)...)}
				grown.values.Set(name, v)
				next = append(next, grown)
			}
		}
		combos = next
	}
	kept := combos[:0]
	for _, c := range combos {
		drop := false
		for _, filter := range exclude {
			drop = drop || (filter.Len() > 0 && matches(c.values, filter))
		}
		if !drop {
			kept = append(kept, c)
		}
	}
	return kept, nil
}

func addIncludes(combos []combination, rows *Object, include []*Object) []combination {
	originals := len(combos)
	for _, extra := range include {
		filter := NewObject()
		for _, k := range extra.Keys() {
			if _, isRow := rows.Get(k); isRow {
				v, _ := extra.Get(k)
				filter.Set(k, v)
			}
		}
		added := false
		for _, c := range combos[:originals] {
			if !matches(c.values, filter) {
				continue
			}
			added = true
			for _, k := range extra.Keys() {
				if _, isRow := rows.Get(k); !isRow {
					v, _ := extra.Get(k)
					c.values.Set(k, v)
				}
			}
		}
		if !added {
			combos = append(combos, combination{values: extra.Clone(), label: scalars(extra)})
		}
	}
	return combos
}

// matches reports whether got has every value of want.
func matches(got, want *Object) bool {
	for _, k := range want.Keys() {
		w, _ := want.Get(k)
		g, ok := got.Get(k)
		if !ok || !sameValue(g, w) {
			return false
		}
	}
	return true
}

func sameValue(a, b Value) bool {
	switch x := a.(type) {
	case *Object:
		y, ok := b.(*Object)
		return ok && matches(x, y)
	case []any:
		y, ok := b.([]any)
		if !ok || len(x) != len(y) {
			return false
		}
		for i := range x {
			if !sameValue(x[i], y[i]) {
				return false
			}
		}
		return true
	}
	return looseEqual(a, b)
}

// scalars lists the plain values within v, for the job's name.
func scalars(v Value) []string {
	var out []string
	switch v := v.(type) {
	case []any:
		for _, item := range v {
			out = append(out, scalars(item)...)
		}
	case *Object:
		for _, k := range v.Keys() {
			item, _ := v.Get(k)
			out = append(out, scalars(item)...)
		}
	default:
		if text := ToString(v); text != "" {
			out = append(out, text)
		}
	}
	return out
}

// maxName is the length at which GitHub cuts the name of a matrix job, in characters.
const maxName = 100

func matrixName(base string, label []string) string {
	if len(label) == 0 {
		return base
	}
	name := []rune(base + " (" + strings.Join(label, ", ") + ")")
	if len(name) > maxName {
		return string(name[:maxName-3]) + "..."
	}
	return string(name)
}

// matrices reads each job's matrix from the YAML tree, because actionlint's tree keeps neither the order of
// its rows nor the types of its values. It checks the matrix's expressions, and its size where that is known
// already.
func (c *checker) matrices(src *actionlint.Workflow, doc *yaml.Node) map[string]Value {
	out := map[string]Value{}
	for id, job := range src.Jobs {
		if job.Strategy == nil || job.Strategy.Matrix == nil {
			continue
		}
		pos := job.Strategy.Matrix.Pos
		node := child(child(child(child(doc, "jobs"), job.ID.Value), "strategy"), "matrix")
		v := fromYAML(node)
		dynamic := false
		walkStrings(v, func(s string) {
			dynamic = dynamic || strings.Contains(s, "${{")
			c.text(s, pos, "jobs.<job_id>.strategy")
		})
		if obj, ok := v.(*Object); ok && !dynamic {
			if _, err := expandMatrix(obj); err != nil {
				c.add(pos, "", err.Error())
			}
		}
		out[id] = v
	}
	return out
}

func walkStrings(v Value, visit func(string)) {
	switch v := v.(type) {
	case string:
		visit(v)
	case []any:
		for _, item := range v {
			walkStrings(item, visit)
		}
	case *Object:
		for _, k := range v.Keys() {
			item, _ := v.Get(k)
			walkStrings(item, visit)
		}
	}
}

func child(n *yaml.Node, key string) *yaml.Node {
	n = resolve(n)
	if n == nil || n.Kind != yaml.MappingNode {
		return nil
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		if strings.EqualFold(n.Content[i].Value, key) {
			return n.Content[i+1]
		}
	}
	return nil
}

func resolve(n *yaml.Node) *yaml.Node {
	for n != nil {
		switch {
		case n.Kind == yaml.AliasNode:
			n = n.Alias
		case n.Kind == yaml.DocumentNode && len(n.Content) > 0:
			n = n.Content[0]
		default:
			return n
		}
	}
	return nil
}

func fromYAML(n *yaml.Node) Value {
	n = resolve(n)
	if n == nil {
		return nil
	}
	switch n.Kind {
	case yaml.SequenceNode:
		list := make([]any, 0, len(n.Content))
		for _, item := range n.Content {
			list = append(list, fromYAML(item))
		}
		return list
	case yaml.MappingNode:
		obj := NewObject()
		for i := 0; i+1 < len(n.Content); i += 2 {
			obj.Set(n.Content[i].Value, fromYAML(n.Content[i+1]))
		}
		return obj
	}
	switch n.ShortTag() {
	case "!!null":
		return nil
	case "!!bool":
		var b bool
		if n.Decode(&b) == nil {
			return b
		}
	case "!!int", "!!float":
		var f float64
		if n.Decode(&f) == nil {
			return f
		}
	}
	return n.Value
}
