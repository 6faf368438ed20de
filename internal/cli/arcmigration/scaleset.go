package arcmigration

import (
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/bullpen-ci/bullpen/api/v1alpha1"
)

// scaleSetParts are what a scale set is converted from: an AutoscalingRunnerSet, or the values of the chart that makes one.
type scaleSetParts struct {
	*conversion
	// v holds the fields, and below is the path of it.
	v     *value
	below string
	meta  fields
	// labels that workflows may name, the scale set's name first.
	labels []any
	// mode is the container mode: "", dind, kubernetes or kubernetes-novolume. modeAt is what says so, and claim the volume of kubernetes.
	mode   string
	modeAt *value
	claim  *value
	// daemon is a Docker daemon that is written into the pod; nil if the chart, or nothing, brings one.
	daemon *daemon
	// where runners are registered, and a word for it.
	place fields
}

// scaleSet converts an AutoscalingRunnerSet.
func (c *conversion) scaleSet() {
	p := &scaleSetParts{conversion: c, v: c.root.place("spec"), below: "spec.", meta: c.metadata()}
	c.explain("spec", scaleSetReasons)
	name, _ := p.meta["name"].(string)
	p.name("runnerScaleSetLabels", name)
	p.writtenMode()
	p.convertScaleSet()
}

// chartModes are the container modes of the chart. It takes every other word for none.
var chartModes = []string{"dind", "kubernetes", "kubernetes-novolume"}

// chartMode reads the container mode from values: the chart's own, or that which is written into the pod.
func (p *scaleSetParts) chartMode() {
	mode := p.v.get("containerMode")
	given := p.text(mode.get("type"))
	mode.useEmpty()
	if slices.Contains(chartModes, given) {
		p.mode, p.modeAt, p.claim = given, mode.get("type"), mode.get("kubernetesModeWorkVolumeClaim")
		pod := p.v.get("template", "spec")
		p.daemon = findDaemon(pod, []*value{runnerOf(pod.get("containers"))})
		if p.claim == nil && given == "kubernetes" {
			p.claim = workClaim(pod)
		}
		return
	}
	p.writtenMode()
	switch given {
	case "":
	case "none", "None":
		p.find(Unneeded, mode.get("type"), fmt.Sprintf("%q is not a container mode of the chart, which ignores it", given), "")
	default:
		p.todo(mode.get("type"), fmt.Sprintf("%q is not a container mode of the chart, which ignores it, as Bullpen does", given),
			"check whether "+strings.Join(chartModes[:2], " or ")+" was meant")
	}
}

// writtenMode tells the container mode from the pod: as the chart has made it, or as its author has written it.
func (p *scaleSetParts) writtenMode() {
	pod := p.v.get("template", "spec")
	p.daemon = findDaemon(pod, []*value{runnerOf(pod.get("containers"))})
	if hooks := findHooks(pod); hooks != nil {
		p.mode, p.modeAt, p.claim = hooks.mode(), hooks.variable, workClaim(pod)
		return
	}
	if p.daemon != nil {
		p.mode, p.modeAt = "dind", p.daemon.container
	}
}

// name converts the scale set's name and labels; otherwise is its name where none is given.
func (p *scaleSetParts) name(labels, otherwise string) {
	given := p.v.get("runnerScaleSetName")
	name := p.text(given)
	if name == "" {
		name = otherwise
	}
	p.from("spec.labels", p.v.place("runnerScaleSetName"))
	if given == nil && p.meta["name"] != nil && p.below != "" {
		p.from("spec.labels", p.root.place("metadata", "name"))
	}
	seen := map[string]bool{}
	for _, label := range append([]string{name}, p.texts(p.v.get(labels))...) {
		if lower := strings.ToLower(label); !seen[lower] {
			seen[lower] = true
			p.labels = append(p.labels, label)
		}
	}
	for i, item := range p.v.get(labels).elements() {
		for at, label := range p.labels {
			if at > 0 && strings.EqualFold(label.(string), item.peek()) {
				p.from(itemPath("spec.labels", at), p.v.get(labels).items[i])
			}
		}
	}
}

func (p *scaleSetParts) convertScaleSet() {
	pod := p.v.get("template", "spec")
	texts := make([]*value, 0, 4)
	texts = append(texts, p.v.get("runnerScaleSetName"))
	for _, labels := range []string{"runnerScaleSetLabels", "scaleSetLabels"} {
		texts = append(texts, p.v.get(labels).elements()...)
	}
	if p.windows(pod, texts, pod.get("containers").elements()) {
		return
	}
	if hooks := findHooks(pod); hooks != nil && p.mode != hooks.mode() {
		p.fail(hooks.variable, "the runner is configured to use container hooks, which create pods, but container mode "+p.mode+" gives it no rights to do so", "remove the variable, or the container mode")
		return
	}
	if p.mode == "" {
		p.noDaemon(runnerOf(pod.get("containers")))
	}
	p.destination()
	p.unneeded(p.v.get("minRunners").null(), "it is not set")
	switch {
	case p.mode == "kubernetes-novolume":
		p.fail(p.modeAt, "container mode kubernetes-novolume has no equivalent", "use container mode kubernetes, with a "+p.claimField())
	case p.mode == "kubernetes" || p.options.To == v1alpha1.KindRunnerDeployment:
		p.toDeployment()
	default:
		p.toPool()
	}
}

// claimField is what the volume of container mode kubernetes is called where the scale set is written down.
func (p *scaleSetParts) claimField() string {
	if p.below == "" {
		return "kubernetesModeWorkVolumeClaim"
	}
	return "volume work with an ephemeral.volumeClaimTemplate"
}

// null is v if it is there and null.
func (v *value) null() *value {
	if v == nil || v.shape != shapeNull {
		return nil
	}
	return v
}

const urlForms = "https://github.com/ORGANIZATION, https://github.com/OWNER/REPOSITORY or https://github.com/enterprises/ENTERPRISE"

// destination reads where the runners are registered from the URL.
func (p *scaleSetParts) destination() {
	v := p.v.get("githubConfigUrl")
	if v == nil {
		p.fail(p.v.place("githubConfigUrl"), "githubConfigUrl is missing: the runners need a place to register", "set it to "+urlForms)
		return
	}
	given := p.text(v)
	refuse := func() {
		advice := "write " + urlForms
		if strings.Contains(given, "${") {
			advice = "replace its variables by their values, and " + advice
		}
		quoted := strconv.Quote(given)
		if strings.Contains(given, "@") { // there may be credentials in it
			quoted = "it"
		}
		p.fail(v, quoted+" is not the URL of an organization, an enterprise or a repository", advice)
	}
	at, err := url.Parse(given)
	if err != nil || at.Host == "" || strings.ContainsAny(given, "${} ") {
		refuse()
		return
	}
	if at.Host != "github.com" && at.Host != "www.github.com" {
		api := "https://" + at.Host + "/api/v3"
		if strings.HasSuffix(at.Host, ".ghe.com") {
			api = "https://api." + at.Host
		}
		p.todo(v, "the runners are of "+at.Host, "start Bullpen's server with --github-url "+api+" (github.url in the chart)")
	}
	parts := strings.Split(strings.Trim(at.Path, "/"), "/")
	p.place = fields{}
	switch {
	case len(parts) == 2 && parts[0] == "enterprises":
		p.place["enterprise"] = parts[1]
	case len(parts) == 2 && parts[0] != "orgs":
		p.place["repository"] = parts[0] + "/" + parts[1]
	case len(parts) == 1 && parts[0] != "":
		p.place["organization"] = parts[0]
	default:
		refuse()
	}
}

// secretInValues reports credentials that are written into values, without their content.
func (p *scaleSetParts) secretInValues(v *value) {
	if v == nil {
		return
	}
	v.tell()
	p.find(Dropped, v, "Bullpen reads no credentials from a manifest", "a RunnerPool needs none; for a RunnerDeployment put them into a Secret, and set credentials.secretName")
}

// proxy converts that of the runners. That of the server and the controller is not theirs.
func (p *scaleSetParts) proxy(container fields) {
	v := p.v.get("proxy")
	if v == nil || v.leaf() {
		v.useEmpty()
		return
	}
	env, _ := container["env"].([]any)
	add := func(name, text string) {
		for _, variable := range env {
			if variable, _ := variable.(fields); variable["name"] == name {
				return
			}
		}
		env = append(env, fields{"name": name, "value": text})
	}
	for _, scheme := range []string{"http", "https"} {
		at := v.get(scheme)
		if at.get("credentialSecretRef") != nil || at.get("tls") != nil {
			p.drop(at, "a proxy with credentials cannot be converted", "put its URL with the credentials into a Secret, and set the chart's proxy.secret: server, controller and runners then use it")
			continue
		}
		if to := p.text(at.get("url")); to != "" {
			add(scheme+"_proxy", to)
		}
		at.useEmpty()
	}
	if without := p.texts(v.get("noProxy")); len(without) > 0 {
		add("no_proxy", strings.Join(without, ","))
	}
	v.useEmpty()
	set(container, "env", env)
	p.find(Changed, v, "the runners' proxy is in their environment; Bullpen's server and controller have their own", "set proxy in the chart's values if the server and the controller need it")
}

// standardCommand takes out the one by which GitHub's image starts the runner.
func (p *scaleSetParts) standardCommand(v *value) {
	if items := v.elements(); len(items) == 1 && (items[0].peek() == "/home/runner/run.sh" || items[0].peek() == "./run.sh") {
		p.unneeded(v, "Bullpen knows how to start the runner of GitHub's image")
	}
}
