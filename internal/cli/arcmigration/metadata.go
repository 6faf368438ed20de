package arcmigration

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
)

// defaultNamespace is where the chart has runners, unless it is told otherwise.
const defaultNamespace = "bullpen-runners"

// foreignMarks are labels and annotations of those who made or run the object at the peer's, and would act on Bullpen's.
var foreignMarks = []struct{ prefix, reason string }{
	{"kubectl.kubernetes.io/last-applied-configuration", "it repeats the old object, for kubectl apply"},
	{"meta.helm.sh/", "it binds the object to the old Helm release"},
	{"helm.sh/", "it tells of the old chart"},
	{"app.kubernetes.io/managed-by", "Helm, or whatever else it names, does not manage the new object"},
	{"app.kubernetes.io/part-of", "the object is a part of something else now"},
	{"app.kubernetes.io/version", "it is the version of the old chart"},
	{"actions.github.com/", "only actions-runner-controller reads it"},
	{"actions-runner-controller/", "only actions-runner-controller reads it"},
	{"actions-runner-controller", "only actions-runner-controller reads it"},
	{"actions-runner/", "only actions-runner-controller reads it"},
	{"runner-deployment-name", "only actions-runner-controller reads it"},
	{"runner-template-hash", "only actions-runner-controller reads it"},
	{"bullpen.dev/", "Bullpen's controller alone writes labels and annotations of this name"},
}

var serverFields = []string{
	"uid", "resourceVersion", "generation", "creationTimestamp", "managedFields", "selfLink", "deletionTimestamp", "deletionGracePeriodSeconds",
}

// metadata converts that of an object.
func (c *conversion) metadata() fields {
	v := c.root.get("metadata")
	made := fields{}
	name := v.get("name")
	if name == nil {
		c.fail(v, "the object has no name", "give it one: metadata.name")
	}
	set(made, "name", c.text(name))
	set(made, "namespace", c.namespace(v.get("namespace")))
	c.marks(v, made)
	for _, key := range serverFields {
		c.unneeded(v.get(key), "the API server writes it")
	}
	c.unneeded(v.get("finalizers"), "actions-runner-controller sets and removes it; Bullpen's sets its own")
	c.unneeded(c.root.get("status"), "the controller writes it")
	return made
}

func (c *conversion) namespace(v *value) string {
	given := c.text(v)
	wanted := c.options.Namespace
	switch {
	case wanted == "" && given != defaultNamespace:
		is := "none is given"
		if given != "" {
			is = "it stays in " + given
		}
		c.todo(v, "metadata.namespace", fmt.Sprintf("Bullpen's controller looks at one namespace only (%s, if the chart was not told otherwise), and %s", defaultNamespace, is),
			"convert with --namespace")
	case wanted != "" && given != "" && wanted != given:
		c.find(Changed, v, fmt.Sprintf("it was %s, and is %s", given, wanted),
			"copy the Secrets, ConfigMaps, ServiceAccounts and claims that it names to that namespace")
	}
	if wanted != "" {
		return wanted
	}
	return given
}

// todo is a finding of something to do, and a comment above the object.
func (c *conversion) todo(v *value, path, why, advice string) {
	c.find(ToDo, v, why, advice)
	last := &c.object.Findings[len(c.object.Findings)-1]
	if v == nil {
		last.Path = path
	}
	if advice != "" {
		why += "; " + advice
	}
	c.notes = append(c.notes, fmt.Sprintf("To see to: %s: %s", last.place(), why))
}

// marks converts labels and annotations.
func (c *conversion) marks(v *value, into fields) {
	for _, kind := range []string{"labels", "annotations"} {
		kept := fields{}
		found := v.get(kind)
		if found != nil && found.shape != shapeMapping {
			c.fail(found, "it is "+found.words()+" where a mapping is wanted", "")
			continue
		}
		if found == nil {
			continue
		}
		for _, key := range found.keys {
			child := found.fields[key]
			if why := foreign(key); why != "" {
				c.unneeded(child, why)
				continue
			}
			if child.shape != shapeNull {
				kept[key] = c.text(child)
			}
		}
		found.useEmpty()
		set(into, kind, kept)
	}
}

func foreign(key string) string {
	for _, mark := range foreignMarks {
		if key == mark.prefix || strings.HasSuffix(mark.prefix, "/") && strings.HasPrefix(key, mark.prefix) {
			return mark.reason
		}
	}
	return ""
}

// copyMarks gives into copies of the labels and annotations of from.
func copyMarks(from, into fields) {
	for _, kind := range []string{"labels", "annotations"} {
		if given, ok := from[kind].(fields); ok {
			copied := fields{}
			for key, text := range given {
				copied[key] = text
			}
			into[kind] = copied
		}
	}
}

// markProblem says what the API server would have against a label or an annotation.
func markProblem(kind, key, text string) string {
	if problems := validation.IsQualifiedName(strings.ToLower(key)); len(problems) > 0 {
		return "is no name of a label or an annotation: " + problems[0]
	}
	if kind != "labels" {
		return ""
	}
	if problems := validation.IsValidLabelValue(text); len(problems) > 0 {
		return "has a value that no label may have: " + problems[0]
	}
	return ""
}
