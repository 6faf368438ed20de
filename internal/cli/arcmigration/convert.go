package arcmigration

import (
	"fmt"
	"slices"
	"strings"
)

// Options of a conversion.
type Options struct {
	// Namespace is where everything is put. Empty: where it was.
	Namespace string
	// RuntimeClass is of microVMs, for runners with a Docker daemon that name none. Empty: kata, and the report says so.
	RuntimeClass string
	// Name is for the values of a Helm chart that name no scale set.
	Name string
}

// Result is what was made of the inputs, and what there is to say of it.
type Result struct {
	Report
	made []*conversion
}

const (
	legacyGroup   = "actions.summerwind.dev"
	scaleSetGroup = "actions.github.com"
	version       = "v1alpha1"

	kindAutoscaler = "HorizontalRunnerAutoscaler"
	kindScaleSet   = "AutoscalingRunnerSet"
)

// converters of the kinds, by group and kind. Autoscalers come after everything else, since they are parts of it.
var converters = map[string]func(*conversion){
	legacyGroup + "/Runner":            (*conversion).runner,
	legacyGroup + "/RunnerReplicaSet":  (*conversion).replicaSet,
	legacyGroup + "/RunnerDeployment":  (*conversion).deployment,
	legacyGroup + "/RunnerSet":         (*conversion).runnerSet,
	scaleSetGroup + "/" + kindScaleSet: (*conversion).scaleSet,
}

// madeByItself are kinds that only the peer's controller makes.
var madeByItself = []string{"EphemeralRunnerSet", "EphemeralRunner", "AutoscalingListener"}

// Convert converts everything in the inputs. It fails for no input: what cannot be converted is in the report.
func Convert(inputs []Input, options Options) *Result {
	result := &Result{}
	var all []*conversion
	for _, input := range inputs {
		documents, err := read(input)
		if err != nil {
			result.Problems = append(result.Problems, err.Error())
		}
		for _, d := range documents {
			all = append(all, begin(d, options))
		}
	}
	for _, c := range all {
		c.convert()
	}
	for _, c := range all {
		if c.object.Kind == kindAutoscaler && c.group() == legacyGroup && c.object.Outcome == "" {
			c.autoscaler(all)
		}
	}
	for _, c := range all {
		c.end()
	}
	refuseTwins(all)
	for _, c := range all {
		if c.partOf != nil && c.partOf.object.Outcome != Converted {
			c.fail(nil, "its target could not be converted", "")
			c.object.Outcome, c.object.Into = NotConverted, nil
		}
		if c.object.Outcome == Converted {
			result.made = append(result.made, c)
		}
		result.Objects = append(result.Objects, c.object)
	}
	result.sum()
	return result
}

func begin(d document, options Options) *conversion {
	c := &conversion{document: d, options: options}
	c.object = Object{File: d.file, Document: d.number, Item: d.base, Line: d.root.line}
	meta := d.root.get("metadata")
	c.object.Reference = Reference{Kind: d.root.get("kind").peek(), Namespace: meta.get("namespace").peek(), Name: meta.get("name").peek()}
	return c
}

func (c *conversion) group() string {
	group, _, _ := strings.Cut(c.root.get("apiVersion").peek(), "/")
	return group
}

func (c *conversion) convert() {
	if c.root.shape != shapeMapping {
		c.fail(c.root, "it is no object", "")
		return
	}
	if c.isValues() {
		c.values()
		return
	}
	group := c.group()
	if group != legacyGroup && group != scaleSetGroup {
		c.object.Outcome = PassedOver
		return
	}
	if given := c.root.get("apiVersion").peek(); given != group+"/"+version {
		c.fail(c.root.get("apiVersion"), fmt.Sprintf("%s is not a version that can be converted; %s/%s is", given, group, version), "")
		return
	}
	c.root.get("apiVersion").use()
	c.root.get("kind").use()
	if slices.Contains(madeByItself, c.object.Kind) && group == scaleSetGroup || c.owned() {
		c.object.Outcome = NotCarried
		c.root.tell()
		return
	}
	if c.object.Kind == kindAutoscaler && group == legacyGroup {
		return // when its target is there
	}
	convert, known := converters[group+"/"+c.object.Kind]
	if !known {
		c.fail(c.root.get("kind"), fmt.Sprintf("%s is no kind of %s that is known", c.object.Kind, group), "")
		return
	}
	convert(c)
}

// owned says whether the peer's controller made the object, and would be asked for by its owner.
func (c *conversion) owned() bool {
	return slices.ContainsFunc(c.root.get("metadata", "ownerReferences").elements(), func(owner *value) bool {
		group, _, _ := strings.Cut(owner.get("apiVersion").peek(), "/")
		return group == legacyGroup || group == scaleSetGroup
	})
}

// end reports what is left, and looks whether an API server would take what was made.
func (c *conversion) end() {
	if c.object.Outcome == PassedOver || c.object.Outcome == NotCarried {
		return
	}
	if !c.failed() { // of what is not converted, nothing is carried
		c.finish()
	}
	if c.made != nil && !c.failed() {
		c.check()
	}
	slices.SortStableFunc(c.object.Findings, func(a, b Finding) int { return a.Line - b.Line })
	switch {
	case c.failed():
		c.object.Outcome, c.object.Into, c.made = NotConverted, nil, nil
	case c.object.Outcome == "":
		c.object.Outcome = Converted
	}
}

// produce says what the object becomes.
func (c *conversion) produce(kind string, meta, spec fields) {
	c.kind = kind
	c.made = fields{"apiVersion": "bullpen.dev/v1alpha1", "kind": kind, "metadata": meta, "spec": spec}
	namespace, _ := meta["namespace"].(string)
	name, _ := meta["name"].(string)
	c.object.Into = &Reference{Kind: kind, Namespace: namespace, Name: name}
}

// refuseTwins has no two objects of one name be made: the second would overwrite the first.
func refuseTwins(all []*conversion) {
	seen := map[Reference]*conversion{}
	for _, c := range all {
		if c.object.Outcome != Converted {
			continue
		}
		if first := seen[*c.object.Into]; first != nil {
			c.fail(nil, fmt.Sprintf("%s is made of %s, document %d, line %d already", c.object.Into, first.file, first.number, first.root.line),
				"give one of them another name, or convert them by themselves")
			c.object.Outcome, c.object.Into = NotConverted, nil
			continue
		}
		seen[*c.object.Into] = c
	}
}
