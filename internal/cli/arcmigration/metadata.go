package arcmigration

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
)

// defaultNamespace is the chart's default namespace of runners.
const defaultNamespace = "bullpen-runners"

var serverFields = []string{
	"uid", "resourceVersion", "generation", "creationTimestamp", "managedFields", "selfLink", "deletionTimestamp", "deletionGracePeriodSeconds",
}

// metadata converts that of an object.
func (c *conversion) metadata() fields {
	v := c.root.get("metadata")
	made := fields{}
	name := v.get("name")
	if name == nil {
		c.fail(c.root.place("metadata", "name"), "the object has no name", "set metadata.name")
	}
	set(made, "name", c.text(name))
	c.from("metadata.name", name)
	namespace := v.get("namespace")
	set(made, "namespace", c.namespace(namespace, c.root.place("metadata", "namespace")))
	c.marks(v, made)
	for _, key := range serverFields {
		c.unneeded(v.get(key), "the API server writes it")
	}
	c.unneeded(v.get("finalizers"), "actions-runner-controller sets and removes it; Bullpen's controller sets its own")
	c.unneeded(c.root.get("status"), "the controller writes it")
	return made
}

// namespace converts that of an object; at is where it is, or would be.
func (c *conversion) namespace(v, at *value) string {
	given := c.text(v)
	wanted := c.options.Namespace
	c.from("metadata.namespace", at)
	switch {
	case wanted == "" && given != defaultNamespace:
		is := "none is set"
		if given != "" {
			is = "it stays in " + given
		}
		c.todo(at, fmt.Sprintf("Bullpen's controller serves only one namespace (%s by default), and %s", defaultNamespace, is),
			"convert with --namespace")
	case wanted != "" && given != "" && wanted != given:
		c.find(Changed, v, fmt.Sprintf("changed from %s to %s", given, wanted),
			"copy the Secrets, ConfigMaps, ServiceAccounts and claims that it names to that namespace")
	}
	if wanted != "" {
		return wanted
	}
	return given
}

// todo is a finding of something to do, and a comment above the object.
func (c *conversion) todo(v *value, why, advice string) {
	c.find(ToDo, v, why, advice)
	if advice != "" {
		why += "; " + advice
	}
	c.notes = append(c.notes, fmt.Sprintf("TODO: %s: %s", c.object.Findings[len(c.object.Findings)-1].place(), why))
}

// marks converts labels and annotations.
func (c *conversion) marks(v *value, into fields) {
	for _, kind := range []string{"labels", "annotations"} {
		kept := fields{}
		found := v.get(kind)
		if found != nil && found.shape != shapeMapping {
			c.fail(found, "it is "+found.words()+", but must be a mapping", "")
			continue
		}
		if found == nil {
			continue
		}
		for _, key := range found.keys {
			child := found.fields[key]
			if child.told {
				continue
			}
			if why, ok := foreign(key, found); ok {
				c.leave(why.verdict, child, why.reason, why.advice)
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
		return "is not a valid key: " + problems[0]
	}
	if kind != "labels" {
		return ""
	}
	if problems := validation.IsValidLabelValue(text); len(problems) > 0 {
		return "has an invalid label value: " + problems[0]
	}
	return ""
}
