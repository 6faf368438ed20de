package arcmigration

import (
	"fmt"

	"github.com/bullpen-ci/bullpen/api/v1alpha1"
)

// toDeployment converts a scale set to a RunnerDeployment: one of container mode kubernetes, which pools do not have, or any if requested.
func (p *scaleSetParts) toDeployment() {
	p.explain(p.below+"template", map[string]reason{
		"metadata": {Unneeded, "pods are named after their owner", ""},
	})
	if p.mode == "kubernetes" && p.options.To != v1alpha1.KindRunnerDeployment {
		p.find(Changed, p.modeAt, "pools have no container mode kubernetes, because their runners have no rights in the cluster: the scale set becomes a RunnerDeployment of self-registering runners", "") // NET-3
	}
	p.find(Changed, p.v.place("runnerScaleSetName"), "the self-registering runners of a RunnerDeployment also have the label self-hosted and those of their system and architecture; "+
		"those of a scale set do not. So they also take jobs that have self-hosted and none of these labels", "if they must not, put them into their own runner group, which only the intended repositories may use")
	parts := p.newParts(p.v.place("template", "spec"), "spec.template.spec")
	p.from("spec.template.spec", p.v)
	p.from("spec.template.spec.template.spec", p.v.get("template", "spec"))
	p.deploymentOrigins()
	parts.ofScaleSet = true
	for key, made := range p.place {
		parts.spec[key] = made
	}
	p.deploymentGroup(parts.spec)
	parts.spec["labels"] = p.labels
	if secret := p.v.get("githubConfigSecret"); secret != nil && secret.shape == shapeScalar {
		set(parts.spec, "credentials", fields{"secretName": p.text(secret)})
	} else {
		p.secretInValues(secret)
	}
	p.deploymentPod(parts)
	p.proxy(parts.runner)
	podMeta := fields{}
	p.marks(p.v.get("template", "metadata"), podMeta)
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

// deploymentOrigins says what has another name in a RunnerDeployment.
func (p *scaleSetParts) deploymentOrigins() {
	for _, place := range []string{"enterprise", "organization", "repository"} {
		p.from("spec.template.spec."+place, p.v.get("githubConfigUrl"))
	}
	p.from("spec.template.spec.group", p.v.get("runnerGroup"))
	p.from("spec.template.spec.kubernetes.workVolumeClaim", p.claim)
	p.from("spec.autoscaling.maxReplicas", p.v.place("maxRunners"))
	p.from("spec.autoscaling.jobs.minIdle", p.v.get("minRunners"))
	p.from("spec.template.spec.labels", p.v.place("runnerScaleSetName"))
	for i := range p.labels {
		p.from(itemPath("spec.template.spec.labels", i), p.origin(itemPath("spec.labels", i)))
	}
}

func (p *scaleSetParts) deploymentGroup(spec fields) {
	group := p.v.get("runnerGroup")
	if p.place["repository"] != nil {
		p.drop(group, "runner groups belong to organizations and enterprises", "")
	} else if group.peek() != "" {
		set(spec, "group", p.keep(group, runnerSchema().at("group")))
	} else {
		p.text(group)
	}
}

// deploymentPod converts the pod, and how its jobs use containers.
func (p *scaleSetParts) deploymentPod(parts *runnerParts) {
	pod := p.v.get("template", "spec")
	runner := runnerOf(pod.get("containers"))
	account := accountOf(pod)
	if p.mode != "kubernetes" && ofTheChart(account) {
		p.unneeded(account, "the old chart creates this ServiceAccount without rights, and it is deleted with the old release")
		account = nil
	}
	p.standardCommand(runner.get("command"))
	switch p.mode {
	case "kubernetes":
		p.takeHooks(pod, runner, p.claim)
		parts.kubernetesMode(p.claim, account, p.modeAt, p.claimField())
	case "dind":
		parts.spec["containerMode"] = string(v1alpha1.ContainerModeDind)
		p.takeDaemon(p.daemon, pod, []*value{runner}, parts.spec)
		if dind, _ := parts.spec["dind"].(fields); len(dind) == 0 {
			delete(parts.spec, "dind")
		}
		p.orphans(pod, keptContainers(pod)...)
		if class := p.v.place("template", "spec", "runtimeClassName"); class.peek() == "" {
			parts.microVM(class)
		}
		parts.rights(account)
	default:
		parts.rights(account)
	}
	parts.wholePod(pod)
	parts.containers(pod.get("containers"))
}

// closed converts a scale set that may have no runner at all.
func (p *scaleSetParts) closed(spec fields) bool {
	most := p.v.get("maxRunners")
	if n, isNumber := number(scalarOf(most)); !isNumber || n != 0 {
		return false
	}
	most.use()
	spec["replicas"] = int64(0)
	p.find(Changed, most, "no runner can be created: there are 0 replicas, and no autoscaling", "")
	if least := p.v.get("minRunners"); least != nil {
		if n, ok := p.integer(least); ok && n > 0 {
			p.find(Changed, least, "it is more than maxRunners, which is 0, and is lowered to it", "")
		}
	}
	return true
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
	p.todo(p.v.place("maxRunners"), fmt.Sprintf("the scale set has no maxRunners, which Bullpen requires: the highest possible, %d, is set", int64(limit)), "lower autoscaling.maxReplicas to what the nodes can run")
}
