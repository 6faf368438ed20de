package arcmigration

import (
	"cmp"
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
	// To is the kind that scale sets become: RunnerDeployment, or else a RunnerPool where that can be.
	To string
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
			all = append(all, open(d, options)...)
		}
	}
	for _, c := range all {
		c.convert()
	}
	for _, c := range all {
		if c.object.Kind == kindAutoscaler && c.group() == legacyGroup && c.object.Outcome == "" && !c.failed() {
			c.autoscaler(all)
		}
	}
	for _, c := range all {
		c.end()
	}
	result.Conflicts = findConflicts(all)
	refuseTwins(all)
	for _, c := range all {
		if c.partOf != nil && c.partOf.object.Outcome != Converted {
			c.fail(c.root.place("spec", "scaleTargetRef"), "its target could not be converted", "")
			c.object.Outcome, c.object.Into = NotConverted, nil
		}
		if c.object.Outcome == Converted {
			result.made = append(result.made, c)
		}
		slices.SortStableFunc(c.object.Findings, func(a, b Finding) int { return cmp.Or(a.Line-b.Line, a.Column-b.Column) })
		result.Objects = append(result.Objects, c.object)
	}
	result.noteSelfRegistering()
	result.sum()
	return result
}

// open begins the conversions of a document: one, or one for each scale set in what a release of a chart is given.
func open(d document, options Options) []*conversion {
	d.root.named("")
	releases := releasesOf(d, options)
	var found []*conversion
	var sets []*value
	for _, r := range releases {
		for _, values := range r.scaleSets() {
			c := begin(d, options)
			c.release, c.values = r, values
			found, sets = append(found, c), append(sets, values)
		}
	}
	if len(found) == 0 {
		return []*conversion{begin(d, options)}
	}
	for i, c := range found {
		sets[i].named("")
		if len(found) > 1 {
			c.object.Item, c.object.Line = c.pathOf(sets[i]), sets[i].line
		}
	}
	found[0].outside(d.root, sets, false)
	return found
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

func ofThePeersGroups(group string) bool { return group == legacyGroup || group == scaleSetGroup }

func (c *conversion) convert() {
	switch {
	case c.root.shape != shapeMapping:
		c.fail(c.root, "it is not an object", "")
	case c.release != nil:
		c.chartValues()
	case c.object.Kind == "":
		c.fail(c.root.place("kind"), "the document has no kind, and is not the values of a scale set's chart, which have githubConfigUrl", "give whole manifests, or the values of gha-runner-scale-set")
	case c.root.get("apiVersion") == nil:
		c.fail(c.root.place("apiVersion"), "the object has no apiVersion", "set the apiVersion that it has in the cluster")
	case ofThePeersGroups(c.group()):
		c.manifest()
	default:
		c.foreign()
	}
}

// filledIn says whether nothing is left of a template, and fails otherwise.
func (c *conversion) filledIn(v *value) bool {
	if found := v.template(); found != nil {
		c.fail(found, "it contains {{ }}, like the templates of a Helm chart", "render it first, with helm template")
		return false
	}
	return true
}

// manifest converts an object of the peer's.
func (c *conversion) manifest() {
	group := c.group()
	if given := c.root.get("apiVersion").peek(); given != group+"/"+version {
		c.fail(c.root.get("apiVersion"), fmt.Sprintf("version %s cannot be converted; %s/%s can", given, group, version), "")
		return
	}
	c.root.get("apiVersion").use()
	c.root.get("kind").use()
	if slices.Contains(madeByItself, c.object.Kind) && group == scaleSetGroup || c.owned() {
		c.object.Outcome = Skipped
		c.root.tell()
		return
	}
	if !c.filledIn(c.root) {
		return
	}
	if c.object.Kind == kindAutoscaler && group == legacyGroup {
		return // when its target is there
	}
	convert, known := converters[group+"/"+c.object.Kind]
	if !known {
		c.fail(c.root.get("kind"), fmt.Sprintf("unknown kind %s of %s", c.object.Kind, group), "")
		return
	}
	convert(c)
}

// foreign passes over an object of another kind, unless a scale set or a runner is written down in it.
func (c *conversion) foreign() {
	if found := c.hidden(); found != nil {
		c.fail(found, "it contains runners of actions-runner-controller, which are not converted inside a "+c.object.Kind,
			"put the manifest, or the values of the chart, into a file of its own, and convert that")
		return
	}
	c.object.Outcome = Ignored
}

// owned says whether the peer's controller made the object, and would be asked for by its owner.
func (c *conversion) owned() bool {
	return slices.ContainsFunc(c.root.get("metadata", "ownerReferences").elements(), func(owner *value) bool {
		group, _, _ := strings.Cut(owner.get("apiVersion").peek(), "/")
		return ofThePeersGroups(group)
	})
}

// end reports what is left, and looks whether an API server would take what was made.
func (c *conversion) end() {
	if c.object.Outcome == Ignored || c.object.Outcome == Skipped {
		return
	}
	if !c.failed() { // of what is not converted, nothing is carried
		c.finish()
	}
	if c.made != nil && !c.failed() {
		c.check()
	}
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
