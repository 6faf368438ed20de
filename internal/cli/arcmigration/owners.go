package arcmigration

import (
	"fmt"
	"slices"

	"github.com/bullpen-ci/bullpen/api/v1alpha1"
)

// runner converts a Runner.
func (c *conversion) runner() {
	meta := c.metadata()
	c.explain("spec", runnerReasons)
	podMeta := fields{}
	copyMarks(meta, podMeta) // the peer gives a pod what its Runner has
	c.produce(v1alpha1.KindRunner, meta, c.runnerSpec(c.root.get("spec"), "spec", podMeta))
}

func (c *conversion) replicaSet() {
	spec := c.owner()
	c.produce(v1alpha1.KindRunnerReplicaSet, c.metadata(), spec)
}

func (c *conversion) deployment() {
	spec := c.owner()
	c.produce(v1alpha1.KindRunnerDeployment, c.metadata(), spec)
}

// owner converts what RunnerReplicaSets and RunnerDeployments have in common.
func (c *conversion) owner() fields {
	c.explain("spec", ownerReasons)
	c.explain("spec.template.spec", runnerReasons)
	v := c.root.get("spec")
	made, template := fields{}, fields{}
	set(made, "replicas", c.keep(v.get("replicas"), kindSchemas()[v1alpha1.KindRunnerDeployment].at("spec", "replicas")))
	marks, podMeta := fields{}, fields{}
	c.marks(v.get("template", "metadata"), marks)
	copyMarks(marks, podMeta) // the peer gives a pod what its Runner has
	set(template, "metadata", marks)
	template["spec"] = c.runnerSpec(v.get("template", "spec"), "spec.template.spec", podMeta)
	made["template"] = template
	return made
}

// podFields are the fields that a legacy spec shares with a pod's.
var podFields = []string{
	"affinity", "automountServiceAccountToken", "dnsConfig", "dnsPolicy", "enableServiceLinks", "hostAliases", "imagePullSecrets",
	"initContainers", "nodeSelector", "priorityClassName", "runtimeClassName", "securityContext", "serviceAccountName",
	"terminationGracePeriodSeconds", "tolerations", "topologySpreadConstraints", "volumes",
}

// runnerSpec converts the spec of a Runner, or that in an owner's template. at is its path in what is made.
func (c *conversion) runnerSpec(v *value, at string, podMeta fields) fields {
	p := c.newParts(v, at)
	p.from(at+".template.spec", v)
	containers, sidecars := v.get("containers"), v.get("sidecarContainers")
	if p.windowsRunner(v, append(slices.Clone(containers.elements()), sidecars.elements()...)) {
		return p.finished(podMeta)
	}
	p.registration()
	p.mode(legacyPod{pod: v, flat: v, work: v.get("workVolumeClaimTemplate")})
	if p.spec["kubernetes"] == nil {
		p.rights(accountOf(v))
	}
	p.neverInRunners(v, containers)
	p.neverInRunners(nil, sidecars)
	p.keepFields(p.pod, v, podSchema(), podFields...)
	p.containers(containers)
	p.flatRunner(v)
	p.keepSidecars(sidecars)
	return p.finished(podMeta)
}

// windowsRunner looks for what only Windows has in a legacy runner, whose image and labels may be beside its pod.
func (p *runnerParts) windowsRunner(pod *value, containers []*value) bool {
	return p.windows(pod, p.config.get("labels").elements(), append([]*value{p.config}, containers...))
}

// containers converts the list of them, and finds the runner's.
func (p *runnerParts) containers(v *value) {
	runner := runnerOf(v)
	for _, container := range v.elements() {
		if container != runner && !container.told {
			p.other(container)
		}
	}
	if runner != nil {
		p.from(p.at+".template.spec.containers[0]", runner)
		p.env(runner.get("env"))
		image := runner.get("image")
		for _, name := range runner.keys {
			if child := runner.get(name); child != image && child != nil {
				if known, ok := containerSchema().child(name); ok {
					set(p.runner, name, p.keep(child, known))
				}
			}
		}
	}
	v.useEmpty()
	p.image(runner)
	mounts, _ := p.runner["volumeMounts"].([]any)
	p.move(mounts, runner.get("volumeMounts"))
}

// flatRunner converts what legacy specs say of the runner's container outside of containers. What is in containers counts more.
func (p *runnerParts) flatRunner(v *value) {
	p.env(v.get("env"))
	for _, name := range []string{"env", "envFrom", "imagePullPolicy"} {
		field := v.get(name)
		if p.runner[name] != nil {
			p.drop(field, "the container runner has "+name+" of its own, and actions-runner-controller uses that", "")
			continue
		}
		set(p.runner, name, p.keep(field, containerSchema().at(name)))
	}
	resources, _ := p.runner["resources"].(fields)
	if resources == nil {
		resources = fields{}
	}
	for _, name := range []string{"limits", "requests"} {
		field := v.get("resources", name)
		if resources[name] != nil {
			p.drop(field, "the container runner has resources."+name+" of its own, and actions-runner-controller uses that", "")
			continue
		}
		set(resources, name, p.keep(field, containerSchema().at("resources", name)))
	}
	p.keepFields(resources, v.get("resources"), containerSchema().at("resources"), "claims")
	v.get("resources").useEmpty()
	set(p.runner, "resources", resources)

	mounts, _ := p.keep(v.get("volumeMounts"), containerSchema().at("volumeMounts")).([]any)
	p.move(mounts, v.get("volumeMounts"))
	before, _ := p.runner["volumeMounts"].([]any)
	set(p.runner, "volumeMounts", append(before, mounts...))
}

func (p *runnerParts) keepSidecars(v *value) {
	for _, container := range v.elements() {
		if !container.told {
			p.other(container)
		}
	}
	v.useEmpty()
}

// other converts a container beside the runner's.
func (p *runnerParts) other(container *value) {
	p.others = append(p.others, p.keep(container, containerSchema()))
	p.from(itemPath(p.at+".template.spec.containers", len(p.others)), container)
}

// runnerSet converts a RunnerSet.
func (c *conversion) runnerSet() {
	meta := c.metadata()
	c.explain("spec", runnerReasons)
	c.explain("spec", runnerSetReasons)
	v := c.root.get("spec")
	p := c.newParts(v, "spec")
	pod := v.get("template", "spec")
	p.from("spec.template.spec", pod)
	podMeta := fields{}
	if p.windowsRunner(pod, pod.get("containers").elements()) {
		return
	}
	p.registration()
	c.marks(v.get("template", "metadata"), podMeta)
	p.mode(legacyPod{pod: pod, work: v.get("workVolumeClaimTemplate")})
	gone := unmounted(pod, keptContainers(pod)...)
	account := v.get("serviceAccountName")
	p.wholePod(pod)
	switch inPod := pod.get("serviceAccountName"); {
	case account.peek() == "":
		p.text(account)
		account = inPod
	default:
		set(p.pod, "serviceAccountName", p.text(account))
		if inPod.peek() != account.peek() && inPod.peek() != "" {
			p.find(Dropped, inPod, "serviceAccountName of the spec is there too, and actions-runner-controller uses that", "")
		}
	}
	if p.spec["kubernetes"] == nil {
		p.rights(accountOf(v, pod))
	}
	p.containers(pod.get("containers"))
	made := p.finished(podMeta)
	set(made, "replicas", c.keep(v.get("replicas"), kindSchemas()[v1alpha1.KindRunnerSet].at("spec", "replicas")))
	c.claims(v, made, gone)
	c.produce(v1alpha1.KindRunnerSet, meta, made)
}

// wholePod converts the spec of a pod, but for its containers.
func (p *runnerParts) wholePod(v *value) {
	if v == nil {
		return
	}
	p.neverInRunners(v, v.get("containers"))
	p.unneeded(v.get("restartPolicy"), "a runner is never started twice")
	p.drop(v.get("ephemeralContainers"), "no pod can be made with ephemeral containers", "")
	for _, name := range v.keys {
		if known, ok := podSchema().child(name); ok && name != "containers" {
			set(p.pod, name, p.keep(v.get(name), known))
		}
	}
}

// claims converts the volumes of a RunnerSet's runners, but for those in gone, which nothing mounts any more.
func (c *conversion) claims(v *value, made fields, gone map[string]bool) {
	s := kindSchemas()[v1alpha1.KindRunnerSet].at("spec", "volumeClaimTemplates", "[]")
	var kept []any
	for i, template := range v.get("volumeClaimTemplates").elements() {
		claim, meta := fields{}, fields{}
		name := template.get("metadata", "name")
		if name == nil {
			c.fail(template.place("metadata", "name"), fmt.Sprintf("the volumeClaimTemplate %d has no name", i), "")
		}
		if gone[name.peek()] {
			c.drop(template, onlyLeftOut, "delete the claims of the old runners once their contents are not needed")
			continue
		}
		set(claim, "name", c.keep(name, s.at("name")))
		c.marks(template.get("metadata"), meta)
		set(claim, "metadata", meta)
		set(claim, "spec", c.keep(template.get("spec"), s.at("spec")))
		for _, key := range []string{"apiVersion", "kind", "status"} {
			c.unneeded(template.get(key), "it is that of every claim")
		}
		kept = append(kept, claim)
	}
	v.get("volumeClaimTemplates").useEmpty()
	set(made, "volumeClaimTemplates", kept)
	if len(kept) > 0 {
		c.find(Changed, v.get("volumeClaimTemplates"), "the runners begin with volumes that are empty: the claims of the old pods have other names, and stay", "")
	}
	switch policy := v.get("persistentVolumeClaimRetentionPolicy", "whenDeleted"); c.text(policy) {
	case "Delete":
		made["volumeRetention"] = string(v1alpha1.VolumesDeleted)
	case "Retain":
		made["volumeRetention"] = string(v1alpha1.VolumesRetained)
	case "":
	default:
		c.find(Dropped, policy, "it is neither Retain nor Delete", "")
	}
	if scaled := v.get("persistentVolumeClaimRetentionPolicy", "whenScaled"); scaled.peek() == "Retain" {
		c.unneeded(scaled, "the volumes of runners that are gone wait for the next ones")
	}
}
