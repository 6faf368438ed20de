package arcmigration

import (
	"fmt"

	"github.com/bullpen-ci/bullpen/api/v1alpha1"
)

// runner converts a Runner.
func (c *conversion) runner() {
	meta := c.metadata()
	c.explain("spec", runnerReasons)
	podMeta := fields{}
	copyMarks(meta, podMeta) // the peer gives a pod what its Runner has
	c.produce(v1alpha1.KindRunner, meta, c.runnerSpec(c.root.get("spec"), podMeta))
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
	template["spec"] = c.runnerSpec(v.get("template", "spec"), podMeta)
	made["template"] = template
	return made
}

// podFields are the fields that a legacy spec shares with a pod's.
var podFields = []string{
	"affinity", "automountServiceAccountToken", "dnsConfig", "dnsPolicy", "enableServiceLinks", "hostAliases", "imagePullSecrets",
	"initContainers", "nodeSelector", "priorityClassName", "runtimeClassName", "securityContext", "serviceAccountName",
	"terminationGracePeriodSeconds", "tolerations", "topologySpreadConstraints", "volumes",
}

// runnerSpec converts the spec of a Runner, or that in an owner's template.
func (c *conversion) runnerSpec(v *value, podMeta fields) fields {
	p := c.newParts(v)
	p.registration()
	account := v.get("serviceAccountName")
	p.neverInRunners(v, v.get("containers"))
	p.neverInRunners(nil, v.get("sidecarContainers"))
	p.keepFields(p.pod, v, podSchema(), podFields...)
	p.containers(v.get("containers"))
	p.flatRunner(v)
	p.keepSidecars(v.get("sidecarContainers"))
	p.mode(v.get("workVolumeClaimTemplate"), account)
	return p.finished(podMeta)
}

// containers converts the list of them, and finds the runner's and the daemon's.
func (p *runnerParts) containers(v *value) {
	var runner *value
	for _, container := range v.elements() {
		switch container.get("name").peek() {
		case containerRunner:
			runner = container
			p.env(container.get("env"))
			image := container.get("image")
			for _, name := range container.keys {
				if child := container.get(name); child != image && child != nil {
					if known, ok := containerSchema().child(name); ok {
						set(p.runner, name, p.keep(child, known))
					}
				}
			}
		case containerDocker:
			p.docker = container
		default:
			p.others = append(p.others, p.keep(container, containerSchema()))
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
		p.others = append(p.others, p.keep(container, containerSchema()))
	}
	v.useEmpty()
}

// runnerSet converts a RunnerSet.
func (c *conversion) runnerSet() {
	meta := c.metadata()
	c.explain("spec", runnerReasons)
	c.explain("spec", runnerSetReasons)
	v := c.root.get("spec")
	p := c.newParts(v)
	p.registration()
	pod := v.get("template", "spec")
	podMeta := fields{}
	c.marks(v.get("template", "metadata"), podMeta)
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
	p.containers(pod.get("containers"))
	p.mode(v.get("workVolumeClaimTemplate"), account)
	made := p.finished(podMeta)
	set(made, "replicas", c.keep(v.get("replicas"), kindSchemas()[v1alpha1.KindRunnerSet].at("spec", "replicas")))
	c.claims(v, made)
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

// claims converts the volumes of a RunnerSet's runners.
func (c *conversion) claims(v *value, made fields) {
	s := kindSchemas()[v1alpha1.KindRunnerSet].at("spec", "volumeClaimTemplates", "[]")
	var kept []any
	for i, template := range v.get("volumeClaimTemplates").elements() {
		claim, meta := fields{}, fields{}
		name := template.get("metadata", "name")
		if name == nil {
			c.fail(template, fmt.Sprintf("the volumeClaimTemplate %d has no name", i), "")
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
