package arcmigration

import (
	"path"
	"regexp"
	"slices"
	"strings"
)

// release is a use of a Helm chart, as a values file or an object of a tool that installs charts describes it.
type release struct {
	// name of the Helm release, which is the scale set's unless its values name another.
	name string
	// namespace that the release is installed in, and where that is or would be written.
	namespace   *value
	namespaceAt *value
	// chart is the name of the chart, or of the object that leads to it; often empty.
	chart string
	// values are what the chart is given; nil if nothing is written down. valuesAt is where they would be.
	values   *value
	valuesAt *value
	// unread are values that are somewhere else, overridden those that others replace.
	unread, overridden []remark
	// problems keep the values from being read.
	problems []remark
}

// remark is what there is to say of a value of a release.
type remark struct {
	value          *value
	reason, advice string
}

const (
	chartScaleSet     = "gha-runner-scale-set"
	chartExperimental = "gha-runner-scale-set-experimental"
)

// installers are the kinds of the tools that install charts, and how they are read.
var installers = map[string]func(*value) []*release{
	"helm.toolkit.fluxcd.io/HelmRelease": fluxRelease,
	"helm.fluxcd.io/HelmRelease":         fluxRelease,
	"argoproj.io/Application":            argoReleases,
	"helm.cattle.io/HelmChart":           k3sRelease,
}

// releasesOf are those that a document describes. A document that is no object holds the values of one.
func releasesOf(d document, options Options) []*release {
	root := d.root
	if root.shape != shapeMapping {
		return nil
	}
	if root.fields["kind"] == nil && root.fields["apiVersion"] == nil {
		return []*release{{name: options.Name, values: root, valuesAt: root}}
	}
	group, _, _ := strings.Cut(root.get("apiVersion").peek(), "/")
	if read := installers[group+"/"+root.get("kind").peek()]; read != nil && root.get("spec") != nil && root.get("spec").shape == shapeMapping {
		for _, field := range []*value{root.get("apiVersion"), root.get("kind"), root.get("metadata", "name"), root.get("metadata", "namespace")} {
			field.use()
		}
		return read(root)
	}
	return nil
}

// usualFields are those of the chart of scale sets; two of them are values of it.
var usualFields = []string{
	"githubConfigSecret", "runnerScaleSetName", "scaleSetLabels", "minRunners", "maxRunners", "runnerGroup", "containerMode", "listenerTemplate",
	"controllerServiceAccount", "githubServerTLS",
}

// isScaleSet tells the values of the chart of scale sets from others.
func (v *value) isScaleSet() bool {
	if v == nil || v.shape != shapeMapping {
		return false
	}
	if at := v.fields["githubConfigUrl"]; at != nil {
		return at.shape == shapeScalar || at.shape == shapeNull
	}
	usual := 0
	for _, field := range usualFields {
		if v.fields[field] != nil {
			usual++
		}
	}
	return usual >= 2 || v.isExperimental()
}

// isExperimental knows the values of the experimental chart, which has other names for everything.
func (v *value) isExperimental() bool {
	set, auth := v.get("scaleset"), v.get("auth")
	return set != nil && (auth != nil || set.get("minRunners") != nil || set.get("maxRunners") != nil || set.get("runnerGroup") != nil) ||
		auth.get("url") != nil && v.get("runner") != nil
}

// scaleSets are the values of scale sets in those of a release: its own, or those below the keys of the charts that its chart depends on.
func (r *release) scaleSets() []*value {
	chart := chartName(r.chart)
	if r.values == nil || r.values.shape != shapeMapping {
		if len(r.problems) > 0 || chart == chartScaleSet || chart == chartExperimental {
			at := *r.valuesAt
			at.shape, at.fields = shapeMapping, map[string]*value{}
			return []*value{&at}
		}
		return nil
	}
	if r.values.isScaleSet() || chart == chartScaleSet || chart == chartExperimental {
		return []*value{r.values}
	}
	var found []*value
	var look func(*value)
	look = func(v *value) {
		if v.isScaleSet() {
			found = append(found, v)
			return
		}
		for _, key := range v.keys {
			look(v.fields[key])
		}
		for _, item := range v.items {
			look(item)
		}
	}
	look(r.values)
	return found
}

func chartName(chart string) string { return path.Base(strings.TrimSuffix(chart, "/")) }

// describedScaleSet is a text that holds the values of a scale set's chart.
var describedScaleSet = regexp.MustCompile(`(?m)^[\s"'{-]*githubConfigUrl["']?\s*:`)

// hidden finds where an object of another kind describes runners of the peer's: in the values of a chart, in a text, or as a whole manifest.
func (c *conversion) hidden() *value {
	if c.object.Kind == "CustomResourceDefinition" {
		return nil
	}
	for _, key := range c.root.keys {
		if key == "metadata" || key == "status" {
			continue
		}
		found := c.root.fields[key].find(func(v *value) bool {
			group, _, _ := strings.Cut(v.get("apiVersion").peek(), "/")
			known := converters[group+"/"+v.get("kind").peek()] != nil || group == legacyGroup && v.get("kind").peek() == kindAutoscaler
			at := v.get("githubConfigUrl")
			return describedScaleSet.MatchString(v.peek()) || known && v.get("spec") != nil || at != nil && at.shape == shapeScalar || c.usesChart(v)
		})
		if found != nil {
			return found
		}
	}
	return nil
}

// usesChart says whether a part of an object installs the chart of scale sets. The sources of charts do not.
func (c *conversion) usesChart(v *value) bool {
	chart := chartName(v.get("chart").peek())
	if strings.HasPrefix(v.field, "helmCharts[") { // of kustomize
		chart = chartName(v.get("name").peek())
	}
	return (chart == chartScaleSet || chart == chartExperimental) && c.group() != "source.toolkit.fluxcd.io"
}

// outsideReasons are for what is in the object of a tool beside the values of scale sets.
var outsideReasons = map[string]reason{
	"spec.postRenderers": {Dropped, "Flux changes the chart's output with it, and this is not converted", "make the same changes in the converted objects"},
	"spec.kubeConfig":    {Dropped, "it is the cluster in which Flux installs the release", "apply the converted objects in that cluster"},
	"spec.source.plugin": {Dropped, "a plugin creates the manifests, and is not run here", "convert the manifests that it creates"},
}

// outside speaks of everything in a document beside the values of scale sets. inValues says that it is a value of the release all the same.
func (c *conversion) outside(v *value, sets []*value, inValues bool) {
	inValues = inValues || v == c.release.values
	holds := v.find(func(v *value) bool { return slices.Contains(sets, v) })
	switch {
	case v == nil || v.settled() || holds == v:
		return
	case holds != nil || v.field == "spec" || v.field == "metadata" && !v.leaf():
		for _, key := range v.keys {
			c.outside(v.fields[key], sets, inValues)
		}
		for _, item := range v.items {
			c.outside(item, sets, inValues)
		}
		return
	}
	why, known := outsideReasons[v.field]
	switch {
	case known:
	case inValues:
		why = reason{Unneeded, "it is for a chart other than that of a scale set", ""}
	default:
		why = reason{Unneeded, "it is of the " + c.object.Kind + ", not of the runners", ""}
	}
	v.tell()
	c.find(why.verdict, v, why.reason, why.advice)
}

// chartValues converts the values of a chart.
func (c *conversion) chartValues() {
	r, v := c.release, c.values
	if c.object.Kind == "" {
		c.object.Kind = "values of a scale set"
	}
	for _, problem := range r.problems {
		c.fail(problem.value, problem.reason, problem.advice)
	}
	if c.failed() || !c.filledIn(v) {
		return
	}
	if v.isExperimental() || chartName(r.chart) == chartExperimental {
		c.experimental()
		return
	}
	p := &scaleSetParts{conversion: c, v: v, meta: fields{}}
	c.explain("", scaleSetReasons)
	c.ofRelease()
	if v.get("githubConfigUrl") == nil && len(r.unread) > 0 {
		for _, at := range r.unread {
			c.fail(at.value, at.reason+", and without them githubConfigUrl is missing", at.advice)
		}
		return
	}
	name := v.get("runnerScaleSetName").peek()
	if name == "" {
		name = r.name
	}
	if c.root.get("kind") == nil {
		c.object.Name = name
	}
	if name == "" {
		c.fail(v.place("runnerScaleSetName"), "the values have no name of a scale set (runnerScaleSetName)", "set the Helm release's name with --name")
		return
	}
	p.meta["name"] = strings.ReplaceAll(strings.ToLower(name), "_", "-")
	namespace, where := v.get("namespaceOverride"), v.place("namespaceOverride")
	if namespace == nil && c.root.get("kind") != nil {
		namespace, where = r.namespace, r.namespaceAt
	}
	set(p.meta, "namespace", c.namespace(namespace, where))
	c.marks(v, p.meta)
	p.name("scaleSetLabels", name)
	p.chartMode()
	p.convertScaleSet()
}

// ofRelease speaks of values that are not where the others are.
func (c *conversion) ofRelease() {
	for _, at := range c.release.overridden {
		c.find(Unneeded, at.value, at.reason, at.advice)
	}
	if c.values.get("githubConfigUrl") == nil {
		return
	}
	for _, at := range c.release.unread {
		c.todo(at.value, at.reason, at.advice)
	}
}

// experimental refuses what the experimental chart is given, and names it.
func (c *conversion) experimental() {
	at := c.values.place("scaleset")
	if name := c.values.get("scaleset", "name"); name != nil {
		at = name
	}
	if c.root.get("kind") == nil {
		c.object.Name = at.peek()
	}
	c.fail(at, "these are values of the chart "+chartExperimental+" (scaleset.name, auth.url), whose fields have other names and are not supported",
		"render the chart with helm template, and convert the resulting AutoscalingRunnerSet")
}
