package arcmigration

import (
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// fields is a mapping that is being made.
type fields = map[string]any

func sorted[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// set puts something below into, unless it is nothing.
func set(into fields, key string, made any) {
	switch made := made.(type) {
	case nil:
		return
	case string:
		if made == "" {
			return
		}
	case fields:
		if len(made) == 0 {
			return
		}
	case []any:
		if len(made) == 0 {
			return
		}
	}
	into[key] = made
}

func isTime(text string) bool {
	_, err := time.Parse(time.RFC3339, text)
	return err == nil
}

// conversion is of one object.
type conversion struct {
	document
	options Options
	object  Object
	// reasons say why fields are left, by their paths.
	reasons map[string]reason
	// made is the object of Bullpen's, and kind its kind; nil where there is none.
	made fields
	kind string
	// notes are lines above it in the output.
	notes []string
	// partOf is what an autoscaler has become a part of.
	partOf *conversion
	// release is the use of a chart that the object is made from, and values those of its scale set; nil for a manifest.
	release *release
	values  *value
	// origins are the values that parts of what was made come from, by their paths there.
	origins map[string]*value
}

// reason is what there is to say of a field that is not carried.
type reason struct {
	verdict        Verdict
	reason, advice string
}

// pathOf is a value's path in its object, which may be an item of a List.
func (c *conversion) pathOf(v *value) string {
	return strings.TrimPrefix(strings.TrimPrefix(v.path, c.base), ".")
}

func (c *conversion) find(verdict Verdict, v *value, why, advice string) {
	finding := Finding{Verdict: verdict, Reason: why, Advice: advice}
	if v != nil {
		finding.Path, finding.Line, finding.Column, finding.Names = c.pathOf(v), v.line, v.column, v.names()
	}
	c.object.Findings = append(c.object.Findings, finding)
}

// fail has the object not be converted.
func (c *conversion) fail(v *value, why, advice string) {
	v.tell()
	c.find(Failed, v, why, advice)
}

func (c *conversion) failed() bool {
	return slices.ContainsFunc(c.object.Findings, func(f Finding) bool { return f.Verdict == Failed })
}

// leave reports what is not carried, and everything below it.
func (c *conversion) leave(verdict Verdict, v *value, why, advice string) {
	if v == nil || v.settled() {
		return
	}
	for _, left := range v.leftovers() {
		left.tell()
		c.find(verdict, left, why, advice)
	}
}

// drop reports what has an effect that is lost.
func (c *conversion) drop(v *value, why, advice string) { c.leave(Dropped, v, why, advice) }

// unneeded reports what is not carried, and not missed.
func (c *conversion) unneeded(v *value, why string) { c.leave(Unneeded, v, why, "") }

// text uses a value that must be a text.
func (c *conversion) text(v *value) string {
	if v == nil {
		return ""
	}
	text, ok := v.scalar.(string)
	if !ok {
		advice := "write it in quotes"
		if v.shape != shapeScalar {
			advice = ""
		}
		c.fail(v, "it is "+v.words()+" where a text is wanted", advice)
		return ""
	}
	v.use()
	return text
}

// numeral uses a number, which may be written as a text.
func (c *conversion) numeral(v *value) string {
	if n, ok := number(scalarOf(v)); ok {
		v.use()
		return strconv.FormatFloat(n, 'f', -1, 64)
	}
	return strings.TrimSpace(c.text(v))
}

func (v *value) words() string {
	switch v.shape {
	case shapeMapping:
		return typeWords["object"]
	case shapeSequence:
		return typeWords["array"]
	}
	return typeWords[typeOf(v.scalar)]
}

// boolean uses a value that must be one; otherwise is what it is where there is none.
func (c *conversion) boolean(v *value, otherwise bool) bool {
	if v == nil {
		return otherwise
	}
	b, ok := v.scalar.(bool)
	if !ok {
		c.fail(v, "it is "+v.words()+" where true or false is wanted", "")
		return otherwise
	}
	v.use()
	return b
}

// integer uses a value that must be a whole number.
func (c *conversion) integer(v *value) (int64, bool) {
	if v == nil {
		return 0, false
	}
	n, ok := v.scalar.(int64)
	if !ok {
		c.fail(v, "it is "+v.words()+" where a whole number is wanted", "")
		return 0, false
	}
	v.use()
	return n, true
}

// texts uses a list of texts.
func (c *conversion) texts(v *value) []string {
	if v != nil && v.shape != shapeSequence {
		c.fail(v, "it is "+v.words()+" where a list is wanted", "")
		return nil
	}
	var found []string
	for _, item := range v.elements() {
		found = append(found, c.text(item))
	}
	v.useEmpty()
	return found
}

// useEmpty uses a list or a mapping in which there is nothing.
func (v *value) useEmpty() {
	if v != nil && v.leaf() && v.shape != shapeScalar {
		v.used = true
	}
}

// keep copies a value as it is, as far as the schema knows it. What the schema does not know stays to be reported.
func (c *conversion) keep(v *value, s schema) any {
	if v == nil || v.shape == shapeNull || v.told {
		return nil
	}
	switch v.shape {
	case shapeMapping:
		return c.keepMapping(v, s)
	case shapeSequence:
		if s["type"] != "array" && !s.open() {
			c.fail(v, "it is a list where "+s.wants()+" is wanted", "")
			return nil
		}
		kept := []any{}
		for _, item := range v.items {
			if item.shape == shapeNull || item.told {
				continue
			}
			kept = append(kept, c.keep(item, s.items()))
		}
		v.useEmpty()
		return kept
	}
	if problem := s.scalarProblem(v.scalar); problem != "" {
		c.fail(v, problem, "")
		return nil
	}
	v.used = true
	return v.scalar
}

func (c *conversion) keepMapping(v *value, s schema) any {
	if s["type"] != "object" && !s.open() {
		c.fail(v, "it is a mapping where "+s.wants()+" is wanted", "")
		return nil
	}
	kept := fields{}
	for _, key := range v.keys {
		child := v.fields[key]
		next, known := s.child(key)
		if !known && s.open() {
			next, known = schema{"x-kubernetes-preserve-unknown-fields": true}, true
		}
		if made := any(nil); known {
			if made = c.keep(child, next); made != nil {
				kept[key] = made
			}
		}
	}
	v.useEmpty()
	return kept
}

// keepFields copies the named fields of v into a mapping.
func (c *conversion) keepFields(into fields, v *value, s schema, names ...string) {
	for _, name := range names {
		set(into, name, c.keep(v.get(name), s.at(name)))
	}
}

// from remembers where a part of what is made comes from.
func (c *conversion) from(path string, v *value) {
	if c.origins == nil {
		c.origins = map[string]*value{}
	}
	if v != nil {
		c.origins[path] = v
	}
}

// origin is the value that a part of what was made comes from, as exactly as is known.
func (c *conversion) origin(path string) *value {
	for below := path; below != ""; below = parent(below) {
		v, known := c.origins[below]
		if !known {
			continue
		}
		for rest := path[len(below):]; ; {
			next := v.step(&rest)
			if next == nil {
				return v
			}
			v = next
		}
	}
	return nil
}

// step goes down by the first part of a path, and takes that off; nil if there is nothing.
func (v *value) step(path *string) *value {
	for _, key := range v.keys {
		below := strings.TrimPrefix(childPath("x", key), "x")
		if rest, ok := strings.CutPrefix(*path, below); ok && (rest == "" || rest[0] == '.' || rest[0] == '[') {
			*path = rest
			return v.fields[key]
		}
	}
	for i, item := range v.items {
		if rest, ok := strings.CutPrefix(*path, itemPath("", i)); ok {
			*path = rest
			return item
		}
	}
	return nil
}

func parent(path string) string {
	return path[:max(strings.LastIndexByte(path, '.'), strings.LastIndexByte(path, '['), 0)]
}

var indices = regexp.MustCompile(`\[\d+\]`)

// explain adds reasons for what lies below a path.
func (c *conversion) explain(below string, reasons map[string]reason) {
	if c.reasons == nil {
		c.reasons = map[string]reason{}
	}
	for path, why := range reasons {
		switch {
		case below == "":
			c.reasons[path] = why
		case path == "":
			c.reasons[below] = why
		default:
			c.reasons[below+"."+path] = why
		}
	}
}

var unknown = reason{Dropped, "Bullpen has nothing that corresponds to it, or does not know the field", "see whether something depends on it"}

// why looks for the reason of a field, or of what it lies in; own says that it is the field's.
func (c *conversion) why(field string) (found reason, own bool) {
	field = indices.ReplaceAllString(field, "[]")
	for at := field; at != ""; at = parent(at) {
		if found, ok := c.reasons[at]; ok {
			return found, at == field
		}
	}
	return unknown, false
}

// structure are the fields that hold others and say nothing by themselves: what is lost is one of those in them.
var structure = regexp.MustCompile(`^((spec\.)?template(\.metadata|\.spec)?|spec|metadata|containerMode|)$`)

// finish reports what was overlooked: each field by itself, and as a whole if nothing in it was converted.
func (c *conversion) finish() {
	c.finishBelow(c.scope())
}

// scope is what an object is made from.
func (c *conversion) scope() *value {
	if c.values != nil {
		return c.values
	}
	return c.root
}

func (c *conversion) finishBelow(v *value) {
	if v == nil || v.settled() {
		return
	}
	why, own := c.why(v.field)
	structural := structure.MatchString(v.field) && !(own && strings.HasSuffix(v.field, "template.metadata"))
	switch {
	case v.leaf() && v.shape != shapeScalar && (own || structural || knownField(v.field)):
		v.used = true // an empty mapping or list, as kubectl get prints them
	case !v.touched() && (v.leaf() || !structural):
		v.tell()
		c.find(why.verdict, v, why.reason, why.advice)
	default:
		for _, key := range v.keys {
			c.finishBelow(v.fields[key])
		}
		for _, item := range v.items {
			c.finishBelow(item)
		}
	}
}
