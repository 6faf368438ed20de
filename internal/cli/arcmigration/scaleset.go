package arcmigration

import (
	"fmt"
	"net/url"
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
	// mode is the container mode: "", dind or kubernetes; claim the volume of the latter.
	mode  string
	claim *value
	// where runners are registered, and a word for it.
	place fields
}

// scaleSet converts an AutoscalingRunnerSet.
func (c *conversion) scaleSet() {
	p := &scaleSetParts{conversion: c, v: c.root.get("spec"), below: "spec.", meta: c.metadata()}
	c.explain("spec", scaleSetReasons)
	p.name("runnerScaleSetLabels")
	p.mode, p.claim = p.renderedMode()
	p.convertScaleSet()
}

// isValues tells the values of the gha-runner-scale-set chart from other documents without a kind.
func (c *conversion) isValues() bool {
	return c.root.get("kind") == nil && c.root.get("apiVersion") == nil && c.root.get("githubConfigUrl") != nil
}

// values converts those of the chart.
func (c *conversion) values() {
	c.object.Kind = "values of a scale set"
	p := &scaleSetParts{conversion: c, v: c.root, meta: fields{}}
	c.explain("", scaleSetReasons)
	name := c.root.get("runnerScaleSetName").peek()
	if name == "" {
		name = c.options.Name
	}
	c.object.Name = name
	if name == "" {
		c.fail(c.root.get("githubConfigUrl"), "the values name no scale set (runnerScaleSetName)", "give the Helm release's name with --name")
		return
	}
	p.meta["name"] = strings.ReplaceAll(strings.ToLower(name), "_", "-")
	set(p.meta, "namespace", c.namespace(c.root.get("namespaceOverride")))
	c.marks(c.root, p.meta)
	p.name("scaleSetLabels")
	mode := c.root.get("containerMode")
	p.mode, p.claim = c.text(mode.get("type")), mode.get("kubernetesModeWorkVolumeClaim")
	mode.useEmpty()
	p.convertScaleSet()
}

// name converts the scale set's name and labels.
func (p *scaleSetParts) name(labels string) {
	name := p.text(p.v.get("runnerScaleSetName"))
	if name == "" {
		name = p.options.Name
	}
	if name == "" || p.below != "" && p.v.get("runnerScaleSetName") == nil {
		name, _ = p.meta["name"].(string)
	}
	seen := map[string]bool{}
	for _, label := range append([]string{name}, p.texts(p.v.get(labels))...) {
		if lower := strings.ToLower(label); !seen[lower] {
			seen[lower] = true
			p.labels = append(p.labels, label)
		}
	}
}

func (p *scaleSetParts) convertScaleSet() {
	p.destination()
	p.unneeded(p.v.get("minRunners").null(), "it is not set")
	switch p.mode {
	case "kubernetes":
		p.toDeployment()
	case "kubernetes-novolume":
		p.fail(p.v.get("githubConfigUrl"), "container mode kubernetes-novolume has no counterpart", "use container mode kubernetes, with a kubernetesModeWorkVolumeClaim")
	case "", "dind":
		p.toPool()
	default:
		p.fail(p.v.get("containerMode"), p.mode+" is no container mode that is known", "")
	}
}

// null is v if it is there and null.
func (v *value) null() *value {
	if v == nil || v.shape != shapeNull {
		return nil
	}
	return v
}

// destination reads where the runners are registered from the URL.
func (p *scaleSetParts) destination() {
	v := p.v.get("githubConfigUrl")
	given := p.text(v)
	at, err := url.Parse(given)
	if err != nil || at.Host == "" {
		p.fail(v, "it is no URL of an organization, an enterprise or a repository", "")
		return
	}
	if at.Host != "github.com" && at.Host != "www.github.com" {
		p.todo(v, "", "the runners are of "+at.Host, "start Bullpen's server with --github-url https://"+at.Host+"/api/v3 (github.url in the chart)")
	}
	parts := strings.Split(strings.Trim(at.Path, "/"), "/")
	p.place = fields{}
	switch {
	case len(parts) == 2 && parts[0] == "enterprises":
		p.place["enterprise"] = parts[1]
	case len(parts) == 2:
		p.place["repository"] = parts[0] + "/" + parts[1]
	case len(parts) == 1 && parts[0] != "":
		p.place["organization"] = parts[0]
	default:
		p.fail(v, "it is no URL of an organization, an enterprise or a repository", "")
	}
}

// renderedMode tells the container mode from the pod that the chart has made.
func (p *scaleSetParts) renderedMode() (mode string, claim *value) {
	pod := p.v.get("template", "spec")
	for _, containers := range []*value{pod.get("containers"), pod.get("initContainers")} {
		for _, container := range containers.elements() {
			if container.get("name").peek() == "dind" {
				return "dind", nil
			}
		}
	}
	for _, container := range pod.get("containers").elements() {
		if container.get("name").peek() != containerRunner {
			continue
		}
		for _, variable := range container.get("env").elements() {
			if variable.get("name").peek() == "ACTIONS_RUNNER_CONTAINER_HOOKS" {
				for _, volume := range pod.get("volumes").elements() {
					if claim := volume.get("ephemeral", "volumeClaimTemplate", "spec"); volume.get("name").peek() == "work" && claim != nil {
						return "kubernetes", claim
					}
				}
				return "kubernetes-novolume", nil
			}
		}
	}
	return "", nil
}

// toDeployment converts a scale set of container mode kubernetes, which pools do not have.
func (p *scaleSetParts) toDeployment() {
	p.explain(p.below+"template", map[string]reason{
		"metadata": {Unneeded, "pods are named after their owner", ""},
	})
	p.find(Changed, p.v.get("githubConfigUrl"), "pools have no container mode kubernetes, because their runners have no rights in the cluster (NET-3): the scale set becomes a RunnerDeployment, whose runners register by themselves", "")
	parts := p.newParts(nil)
	for key, made := range p.place {
		parts.spec[key] = made
	}
	group := p.v.get("runnerGroup")
	if p.place["repository"] != nil {
		p.drop(group, "runner groups belong to organizations and enterprises", "")
	} else if group.peek() != "" {
		set(parts.spec, "group", p.keep(group, runnerSchema().at("group")))
	}
	parts.spec["labels"] = p.labels
	if secret := p.v.get("githubConfigSecret"); secret != nil && secret.shape == shapeScalar {
		set(parts.spec, "credentials", fields{"secretName": p.text(secret)})
	} else {
		p.secretInValues(secret)
	}
	pod := p.v.get("template", "spec")
	p.hooks(pod)
	podMeta := fields{}
	p.marks(p.v.get("template", "metadata"), podMeta)
	account := pod.get("serviceAccountName")
	parts.wholePod(pod)
	parts.config = &value{shape: shapeMapping, path: p.v.path, line: p.v.line, fields: map[string]*value{}}
	parts.containers(pod.get("containers"))
	parts.config.fields["containerMode"] = p.v.get("githubConfigUrl")
	parts.kubernetesMode(p.claim, account)
	p.proxy(parts.runner)
	made := fields{"template": fields{"spec": parts.finished(podMeta)}}
	if !p.closed(made) {
		scaling, jobs := fields{"minReplicas": int64(0)}, fields{}
		set(jobs, "minIdle", p.keep(p.v.get("minRunners"), autoscalingSchema().at("jobs", "minIdle")))
		scaling["jobs"] = jobs
		p.ceiling(scaling, autoscalingSchema().at("maxReplicas"))
		made["autoscaling"] = scaling
	}
	p.produce(v1alpha1.KindRunnerDeployment, p.meta, made)
}

// closed converts a scale set that may have no runner at all.
func (p *scaleSetParts) closed(spec fields) bool {
	most := p.v.get("maxRunners")
	if n, isNumber := number(scalarOf(most)); !isNumber || n != 0 {
		return false
	}
	most.use()
	p.v.get("minRunners").use()
	spec["replicas"] = int64(0)
	p.find(Changed, most, "no runner may be made: there are 0 replicas, and no autoscaling", "")
	return true
}

// hooks takes out what the chart gives runners of container mode kubernetes, and Bullpen does too.
func (p *scaleSetParts) hooks(pod *value) {
	for _, volume := range pod.get("volumes").elements() {
		switch {
		case volume.get("name").peek() != "work":
		case volume.get("ephemeral", "volumeClaimTemplate", "spec") == p.claim:
			volume.get("name").use()
			volume.told = true // as a volume; the claim is converted by itself, and what is beside it is left over
		default:
			p.drop(volume, "containerMode Kubernetes brings the volume of this name", "")
		}
	}
	for _, container := range pod.get("containers").elements() {
		if container.get("name").peek() != containerRunner {
			continue
		}
		p.standardCommand(container.get("command"))
		for _, variable := range container.get("env").elements() {
			switch name := variable.get("name").peek(); {
			case name == "ACTIONS_RUNNER_POD_NAME", name == "ACTIONS_RUNNER_CONTAINER_HOOKS" && variable.get("value").peek() == "/home/runner/k8s/index.js":
				p.unneeded(variable, "containerMode Kubernetes sets "+name)
			}
		}
		for _, mount := range container.get("volumeMounts").elements() {
			if mount.get("name").peek() == "work" {
				p.unneeded(mount, "containerMode Kubernetes mounts the volume that the runner and the pods of its jobs share")
			}
		}
	}
}

// ceiling converts the most runners that there may be.
func (p *scaleSetParts) ceiling(into fields, s schema) {
	most := p.v.get("maxRunners")
	if most != nil {
		set(into, "maxReplicas", p.keep(most, s))
		return
	}
	limit, _ := number(s["maximum"])
	into["maxReplicas"] = int64(limit)
	p.todo(p.v.get("githubConfigUrl"), "", fmt.Sprintf("the scale set has no maxRunners, and Bullpen needs a ceiling: the highest that there is, %d, is written", int64(limit)), "lower autoscaling.maxReplicas to what the nodes can bear")
}

// secretInValues speaks of credentials that are written into values. It tells of no value.
func (p *scaleSetParts) secretInValues(v *value) {
	if v == nil {
		return
	}
	v.tell()
	p.find(Dropped, v, "Bullpen takes no credentials from a manifest", "for a RunnerPool none are needed; for a RunnerDeployment put them into a Secret, and name it in credentials.secretName")
}

// proxy converts that of the runners. That of the server and the controller is not theirs.
func (p *scaleSetParts) proxy(container fields) {
	v := p.v.get("proxy")
	if v == nil {
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
			p.drop(at, "a proxy that wants credentials cannot be converted", "put its URL with the credentials into a Secret, and name that in the container's env as "+scheme+"_proxy")
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
	p.find(Changed, v, "the runners' proxy is in their environment; Bullpen's server and controller have their own", "give the server and the controller the proxy in the chart's values, if they need it")
}

// standardCommand takes out the one by which GitHub's image starts the runner.
func (p *scaleSetParts) standardCommand(v *value) {
	if items := v.elements(); len(items) == 1 && (items[0].peek() == "/home/runner/run.sh" || items[0].peek() == "./run.sh") {
		p.unneeded(v, "Bullpen starts the runner of GitHub's image without being told how")
	}
}
