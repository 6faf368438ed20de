package arcmigration

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

type shape int

const (
	shapeNull shape = iota
	shapeScalar
	shapeMapping
	shapeSequence
)

// value is a part of a decoded object. It remembers whether it was converted or spoken about, so that what was overlooked can
// be found. All methods may be called on nil, which is a value that is not there.
type value struct {
	// path is where it is written in its document. field is what it is a field of: the same, unless the object is an item of a
	// List or the values of a chart within another object.
	path, field string
	// line and column are those of the key, or of the item in a list.
	line, column int
	shape        shape
	// scalar is a string, a bool, an int64 or a float64.
	scalar any
	keys   []string
	fields map[string]*value
	items  []*value

	// block is set for a text in a block (|): where its first line is, and how far it is indented.
	block *block

	used bool // it is in what was made, or has decided about it
	told bool // a finding speaks of it
}

type block struct{ line, indent int }

var plainKey = regexp.MustCompile(`^[A-Za-z0-9_-]+$`)

func childPath(path, key string) string {
	switch {
	case !plainKey.MatchString(key):
		return path + "[" + strconv.Quote(key) + "]"
	case path == "":
		return key
	default:
		return path + "." + key
	}
}

func itemPath(path string, i int) string { return fmt.Sprintf("%s[%d]", path, i) }

// get goes down by keys; nil if there is nothing, or null.
func (v *value) get(keys ...string) *value {
	for _, key := range keys {
		if v == nil {
			return nil
		}
		v = v.fields[key]
	}
	if v == nil || v.shape == shapeNull {
		return nil
	}
	return v
}

// place is the value below keys, or else an empty one that has the path and the position where it would be.
func (v *value) place(keys ...string) *value {
	if v == nil {
		return nil
	}
	at := v
	for i, key := range keys {
		if next := at.fields[key]; next != nil {
			at = next
			continue
		}
		gone := &value{path: at.path, field: at.field, line: at.line, column: at.column}
		for _, key := range keys[i:] {
			gone.path, gone.field = childPath(gone.path, key), childPath(gone.field, key)
		}
		return gone
	}
	return at
}

// named gives a value and everything below it the names of fields, counted from here.
func (v *value) named(field string) {
	v.field = field
	for _, key := range v.keys {
		v.fields[key].named(childPath(field, key))
	}
	for i, item := range v.items {
		item.named(itemPath(field, i))
	}
}

// names are those of the entries of a list, or of an entry: what a reader knows them by.
func (v *value) names() []string {
	if v == nil {
		return nil
	}
	if v.shape == shapeMapping && strings.HasSuffix(v.path, "]") {
		if name := v.get("name").peek(); name != "" {
			return []string{name}
		}
	}
	var found []string
	for _, item := range v.items {
		found = append(found, item.names()...)
	}
	return found
}

// find calls f for the value and everything below it, until f is true, and returns where that was.
func (v *value) find(f func(*value) bool) *value {
	if v == nil || f(v) {
		return v
	}
	for _, key := range v.keys {
		if found := v.fields[key].find(f); found != nil {
			return found
		}
	}
	for _, item := range v.items {
		if found := item.find(f); found != nil {
			return found
		}
	}
	return nil
}

func (v *value) elements() []*value {
	if v == nil {
		return nil
	}
	return v.items
}

// peek is the text of a scalar that is one; it uses nothing.
func (v *value) peek() string {
	if v == nil {
		return ""
	}
	text, _ := v.scalar.(string)
	return text
}

// mark calls f for the value and everything below it.
func (v *value) mark(f func(*value)) {
	if v == nil {
		return
	}
	f(v)
	for _, key := range v.keys {
		v.fields[key].mark(f)
	}
	for _, item := range v.items {
		item.mark(f)
	}
}

func (v *value) use() { v.mark(func(v *value) { v.used = true }) }

func (v *value) tell() { v.mark(func(v *value) { v.told = true }) }

func (v *value) leaf() bool { return len(v.keys) == 0 && len(v.items) == 0 }

// settled reports whether nothing at or below the value was overlooked. Null is nothing.
func (v *value) settled() bool {
	if v.leaf() {
		return v.used || v.told || v.shape == shapeNull
	}
	for _, key := range v.keys {
		if !v.fields[key].settled() {
			return false
		}
	}
	for _, item := range v.items {
		if !item.settled() {
			return false
		}
	}
	return true
}

// touched reports whether something at or below the value was converted or named in a finding.
func (v *value) touched() bool {
	found := false
	v.mark(func(v *value) { found = found || v.leaf() && (v.used || v.told) })
	return found
}

// leftovers are the values that were overlooked, each as high up as everything below it was.
func (v *value) leftovers() []*value {
	switch {
	case v == nil || v.settled():
		return nil
	case !v.touched():
		return []*value{v}
	}
	var found []*value
	for _, key := range v.keys {
		found = append(found, v.fields[key].leftovers()...)
	}
	for _, item := range v.items {
		found = append(found, item.leftovers()...)
	}
	return found
}
