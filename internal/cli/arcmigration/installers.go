package arcmigration

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// fluxRelease reads a HelmRelease of Flux, of any of its versions.
func fluxRelease(root *value) []*release {
	spec, meta := root.get("spec"), root.get("metadata")
	r := &release{name: meta.get("name").peek(), namespace: meta.get("namespace"), namespaceAt: root.place("metadata", "namespace")}
	if target := spec.get("targetNamespace"); target.peek() != "" {
		target.use()
		r.namespace, r.namespaceAt, r.name = target, target, target.peek()+"-"+r.name
	}
	if given := spec.get("releaseName"); given.peek() != "" {
		given.use()
		r.name = given.peek()
	}
	r.chart = chartOf(spec.get("chart", "spec", "chart"), spec.get("chartRef", "name"), spec.get("chart", "name"))
	r.values, r.valuesAt = spec.get("values"), spec.place("values")
	for _, file := range spec.get("chart", "spec", "valuesFiles").elements() {
		r.elsewhere(file, "the file "+file.peek()+" of the chart")
	}
	for _, from := range spec.get("valuesFrom").elements() {
		r.elsewhere(from, fluxSource(from))
	}
	return []*release{r}
}

// chartOf is the name of a chart of scale sets if one of the names is that, or else the first that there is.
func chartOf(names ...*value) string {
	first := ""
	for _, name := range names {
		if base := chartName(name.peek()); base == chartScaleSet || base == chartExperimental {
			return base
		}
		if first == "" {
			first = name.peek()
		}
	}
	return first
}

// fluxSource names what Flux takes values from.
func fluxSource(from *value) string {
	kind, name := from.get("kind").peek(), from.get("name").peek()
	for _, key := range []string{"configMapKeyRef", "secretKeyRef"} { // of the first Flux
		if ref := from.get(key); ref != nil {
			kind, name = key[:len(key)-len("KeyRef")], ref.get("name").peek()
		}
	}
	source := strings.TrimSpace(kind + " " + name)
	if at := from.get("targetPath").peek(); at != "" {
		source += " (" + at + ")"
	}
	if source == "" {
		return "another place"
	}
	return "the " + source
}

// elsewhere notes values that are in another object or file.
func (r *release) elsewhere(at *value, source string) {
	at.use()
	r.unread = append(r.unread, remark{
		value: at, reason: "some values are in " + source + ", which is not read",
		advice: "convert a file with all values (helm get values), or the output of helm template",
	})
}

// k3sRelease reads a HelmChart of k3s.
func k3sRelease(root *value) []*release {
	spec, meta := root.get("spec"), root.get("metadata")
	r := &release{name: meta.get("name").peek(), namespace: meta.get("namespace"), namespaceAt: root.place("metadata", "namespace"), chart: spec.get("chart").peek()}
	if target := spec.get("targetNamespace"); target.peek() != "" {
		target.use()
		r.namespace, r.namespaceAt = target, target
	}
	r.valuesAt = spec.place("valuesContent")
	r.text(spec.get("valuesContent"))
	for _, from := range spec.get("valuesSecrets").elements() {
		r.elsewhere(from, "the Secret "+from.get("name").peek())
	}
	if given := spec.get("set"); given != nil {
		for _, name := range given.keys {
			r.override(name, given.fields[name], false)
		}
	}
	return []*release{r}
}

// argoReleases reads an Application of Argo CD: its sources that are charts, or hold values of one.
func argoReleases(root *value) []*release {
	spec := root.get("spec")
	sources := spec.get("sources").elements()
	if source := spec.get("source"); source != nil {
		sources = append(sources, source)
	}
	namespace, where := spec.get("destination", "namespace"), root.place("metadata", "namespace")
	if namespace != nil {
		namespace.use()
		where = namespace
	}
	var found []*release
	for _, source := range sources {
		r := &release{name: root.get("metadata", "name").peek(), namespace: namespace, namespaceAt: where}
		r.chart = chartOf(source.get("chart"), source.get("path"), source.get("repoURL"))
		helm := source.get("helm")
		r.valuesAt = source.place("helm", "valuesObject")
		if given := helm.get("releaseName"); given.peek() != "" {
			given.use()
			r.name = given.peek()
		}
		r.argoValues(helm)
		found = append(found, r)
	}
	return found
}

// argoValues reads the values of a source, what counts least first: files, values, parameters.
func (r *release) argoValues(helm *value) {
	for _, file := range helm.get("valueFiles").elements() {
		r.elsewhere(file, "the file "+file.peek())
	}
	object, text := helm.get("valuesObject"), helm.get("values")
	switch {
	case object != nil && text != nil:
		text.use()
		r.overridden = append(r.overridden, remark{value: text, reason: "valuesObject is set too, and Argo CD uses that"})
		r.values = object
	case object != nil:
		r.values = object
	default:
		r.text(text)
	}
	for _, parameter := range helm.get("parameters").elements() {
		name, given := parameter.get("name"), parameter.get("value")
		if name.peek() == "" || given == nil {
			continue
		}
		force, _ := scalarOf(parameter.get("forceString")).(bool)
		name.use()
		parameter.get("forceString").use()
		r.override(name.peek(), given, force)
	}
	for _, parameter := range helm.get("fileParameters").elements() {
		r.elsewhere(parameter, "the file "+parameter.get("path").peek())
	}
}

// text reads values that are written down in one text.
func (r *release) text(v *value) {
	if v == nil || v.shape == shapeMapping {
		r.values = v
		return
	}
	r.valuesAt = v
	if strings.TrimSpace(v.peek()) == "" {
		v.use()
		return
	}
	looksRight := describedScaleSet.MatchString(v.peek())
	if err := v.graft(); err != nil {
		if looksRight {
			r.problems = append(r.problems, remark{value: v, reason: fmt.Sprintf("the values in it cannot be read: %v%s", err, templateHint([]byte(v.peek())))})
		}
		return
	}
	r.values = v
}

// override sets a value as helm --set does.
func (r *release) override(name string, given *value, force bool) {
	keys, err := setPath(name)
	if err != nil {
		r.elsewhere(given, "a parameter whose name "+strconv.Quote(name)+" is not supported")
		return
	}
	if r.values == nil || r.values.shape != shapeMapping {
		r.values = &value{path: r.valuesAt.path, field: r.valuesAt.field, line: r.valuesAt.line, column: r.valuesAt.column, shape: shapeMapping, fields: map[string]*value{}}
	}
	set := *given
	if !force {
		set.typed()
	}
	given.use()
	r.values.put(keys, &set, func(before *value) {
		r.overridden = append(r.overridden, remark{value: before, reason: "the parameter " + name + " is set too, and is used instead"})
	})
}

// typed makes a number or a boolean of a text that looks like one, and null of null.
func (v *value) typed() {
	text, isText := v.scalar.(string)
	if !isText {
		return
	}
	switch n, err := strconv.ParseInt(text, 10, 64); {
	case text == "true" || text == "false":
		v.scalar = text == "true"
	case text == "null":
		v.shape, v.scalar = shapeNull, nil
	case err == nil && (text == "0" || !strings.HasPrefix(strings.TrimPrefix(text, "-"), "0")):
		v.scalar = n
	case strings.HasPrefix(text, "{") && strings.HasSuffix(text, "}"):
		list := *v
		v.shape, v.scalar = shapeSequence, nil
		for i, part := range strings.Split(strings.Trim(text, "{}"), ",") {
			item := list
			item.path, item.scalar = itemPath(list.path, i), part
			item.typed()
			v.items = append(v.items, &item)
		}
	}
}

// setPart is one part of the name of a parameter: a key, which may have indices behind it.
var setPart = regexp.MustCompile(`^((?:[^.\[\\]|\\.)+)((?:\[\d+\])*)(?:\.|$)`)

var setIndex = regexp.MustCompile(`\[(\d+)\]`)

// setPath takes the name of a parameter apart: a string for each key, an int for each index.
func setPath(name string) ([]any, error) {
	var keys []any
	for rest := name; rest != ""; {
		part := setPart.FindStringSubmatch(rest)
		if part == nil {
			return nil, fmt.Errorf("%q is not the name of a value", name)
		}
		keys = append(keys, strings.ReplaceAll(part[1], `\`, ""))
		for _, index := range setIndex.FindAllStringSubmatch(part[2], -1) {
			i, err := strconv.Atoi(index[1])
			if err != nil || i > 1000 {
				return nil, fmt.Errorf("%q is not the name of a value", name)
			}
			keys = append(keys, i)
		}
		rest = rest[len(part[0]):]
	}
	return keys, nil
}

// put sets what is below keys, and makes the mappings and lists on the way. What was there is given to replaced.
func (v *value) put(keys []any, set *value, replaced func(*value)) {
	child := v.child(keys[0], set)
	if len(keys) > 1 {
		child.put(keys[1:], set, replaced)
		return
	}
	if child.shape != shapeNull {
		before := *child
		replaced(&before)
	}
	*child = *set
}

// child is what is at a key or an index; where there is nothing, something empty is put there first, whose position is that of set.
func (v *value) child(key any, set *value) *value {
	fresh := &value{path: set.path, line: set.line, column: set.column}
	switch key := key.(type) {
	case string:
		if v.shape != shapeMapping {
			v.shape, v.scalar, v.items, v.keys, v.fields = shapeMapping, nil, nil, nil, map[string]*value{}
		}
		if v.fields[key] == nil {
			v.keys, v.fields[key] = append(v.keys, key), fresh
		}
		return v.fields[key]
	case int:
		if v.shape != shapeSequence {
			v.shape, v.scalar, v.items, v.keys, v.fields = shapeSequence, nil, nil, nil, nil
		}
		for len(v.items) <= key {
			v.items = append(v.items, &value{path: set.path, line: set.line, column: set.column})
		}
		return v.items[key]
	}
	return fresh
}
