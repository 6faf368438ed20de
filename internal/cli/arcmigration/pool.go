package arcmigration

import (
	"fmt"
	"path"
	"strings"

	"github.com/bullpen-ci/bullpen/api/v1alpha1"
)

func poolSchema() schema { return kindSchemas()[v1alpha1.KindRunnerPool].at("spec") }

// toPool converts a scale set to a RunnerPool.
func (p *scaleSetParts) toPool() {
	p.explain(p.below+"template", poolReasons)
	spec := fields{"platform": string(v1alpha1.PlatformLinux), "labels": p.labels}
	p.poolScope(spec)
	p.poolScaling(spec)
	p.poolGroup(spec)
	secret := p.v.get("githubConfigSecret")
	if secret != nil && secret.shape == shapeScalar {
		p.unneeded(secret, "the GitHub App of this installation of Bullpen registers the runners of every pool: install it on the organization or the repository")
	} else {
		p.secretInValues(secret)
	}
	pod := p.v.get("template", "spec")
	template := fields{}
	runner := p.findRunner(pod.get("containers"))
	p.poolDind(pod, runner, template)
	p.poolPod(pod, template)
	p.poolContainer(runner, template)
	p.proxy(template)
	p.poolUser(pod, runner, template)
	p.shape(runner, spec)
	spec["template"] = template
	p.produce(v1alpha1.KindRunnerPool, p.meta, spec)
}

// poolScope says where the runners of a pool are registered.
func (p *scaleSetParts) poolScope(spec fields) {
	v := p.v.get("githubConfigUrl")
	serves := "a RunnerPool serves every account that has installed the App, by the pool's label, and not only "
	advice := "see the guide to accounts for their limits"
	switch {
	case p.place["repository"] != nil:
		spec["scope"] = string(v1alpha1.ScopeRepository)
		p.find(Changed, v, serves+fmt.Sprint("the repository ", p.place["repository"]), advice)
	case p.place["organization"] != nil:
		p.find(Changed, v, serves+fmt.Sprint("the organization ", p.place["organization"]), advice)
	case p.place["enterprise"] != nil:
		p.todo(v, "", serves+fmt.Sprint("the enterprise ", p.place["enterprise"]), "install the App on the enterprise's organizations")
	}
}

func (p *scaleSetParts) poolScaling(spec fields) {
	if p.closed(spec) {
		return
	}
	least, _ := p.integer(p.v.get("minRunners"))
	scaling := fields{"enabled": true}
	p.ceiling(scaling, poolSchema().at("autoscaling", "maxReplicas"))
	if ceiling, ok := number(scaling["maxReplicas"]); ok && float64(least) > ceiling {
		p.find(Changed, p.v.get("minRunners"), "it is more than maxRunners, and is lowered to that", "")
		least = int64(ceiling)
	}
	scaling["minWarm"] = max(least, 0)
	spec["autoscaling"] = scaling
}

func scalarOf(v *value) any {
	if v == nil {
		return nil
	}
	return v.scalar
}

func (p *scaleSetParts) poolGroup(spec fields) {
	v := p.v.get("runnerGroup")
	name := p.text(v)
	switch {
	case name == "" || strings.EqualFold(name, "default"):
	case spec["scope"] != nil:
		p.find(Dropped, v, "runner groups belong to organizations, and this pool registers its runners with repositories", "")
	default:
		spec["runnerGroup"] = name
	}
}

// findRunner finds the container that jobs run in. The others are reported as what a pool cannot have.
func (p *scaleSetParts) findRunner(v *value) *value {
	var runner *value
	for _, container := range v.elements() {
		if container.get("name").peek() == containerRunner {
			runner = container
			container.get("name").use()
		}
	}
	v.useEmpty()
	return runner
}

// The names that the chart gives what belongs to its Docker daemon.
var dindVolumes = []string{"dind-sock", "dind-externals", "dind-etc", "dind-home"}

// poolDind converts the Docker daemon, and takes out what the chart makes for it.
func (p *scaleSetParts) poolDind(pod, runner *value, template fields) {
	if p.mode != "dind" {
		return
	}
	dind := fields{}
	for _, containers := range []*value{pod.get("containers"), pod.get("initContainers")} {
		for _, container := range containers.elements() {
			switch container.get("name").peek() {
			case "dind":
				container.get("name").use()
				if image := container.get("image"); image.peek() == "docker:dind" {
					p.unneeded(image, "the daemon's image has a default")
				} else {
					set(dind, "image", p.text(image))
				}
				p.drop(container.get("resources"), "the Docker daemon's container has no resources of its own", "add them to the pool's: in a microVM they share them")
				p.unneeded(container, "template.dind brings the Docker daemon")
			case "init-dind-externals":
				p.unneeded(container, "template.dind brings the Docker daemon")
			}
		}
	}
	template["dind"] = dind
	for _, volume := range pod.get("volumes").elements() {
		if contains(anys(dindVolumes), volume.get("name").peek()) {
			p.unneeded(volume, "template.dind brings the Docker daemon")
		}
	}
	for _, mount := range runner.get("volumeMounts").elements() {
		if contains(anys(dindVolumes), mount.get("name").peek()) {
			p.unneeded(mount, "template.dind brings the Docker daemon")
		}
	}
	for _, variable := range runner.get("env").elements() {
		switch name := variable.get("name").peek(); name {
		case "DOCKER_HOST", "RUNNER_WAIT_FOR_DOCKER_IN_SECONDS":
			p.unneeded(variable, "template.dind sees to it: the runner starts when the daemon is there")
		}
	}
	class := p.text(pod.get("runtimeClassName"))
	if class == "" {
		class = p.options.RuntimeClass
	}
	if class == "" {
		class = "kata"
		p.todo(p.v.get("githubConfigUrl"), "", "the Docker daemon is privileged, and Bullpen starts it in a microVM only; runtimeClassName kata is a guess",
			"name the cluster's class of microVMs with --runtime-class, or remove dind if no job uses Docker")
	}
	template["runtimeClassName"] = class
}

func anys(texts []string) []any {
	var found []any
	for _, text := range texts {
		found = append(found, text)
	}
	return found
}

// poolPod converts what a pool can choose of its pods.
func (p *scaleSetParts) poolPod(pod *value, template fields) {
	s := poolSchema().at("template")
	gone := map[string]bool{}
	for _, volume := range pod.get("volumes").elements() {
		name := volume.get("name").peek()
		switch {
		case volume.told:
		case volume.get("projected") != nil:
			gone[name] = true
			p.drop(volume, "a pool's runner may not mount a projected volume, because it can hold a ServiceAccount token (NET-3)", "use a volume of a Secret, a ConfigMap or the downward API")
		case name == "work":
			gone[name] = true
			if source := volume.get("emptyDir"); source != nil && source.leaf() {
				p.unneeded(volume, "jobs of a pool work in a folder that each pod has")
			} else {
				p.drop(volume, "jobs of a pool work in a folder that each pod has, and its volume cannot be chosen", "")
			}
		}
	}
	for _, container := range pod.get("containers").elements() {
		for _, mount := range container.get("volumeMounts").elements() {
			name := mount.get("name").peek()
			if gone[name] || container.get("name").peek() == containerRunner && path.Clean(mount.get("mountPath").peek()) == runnerFolder+"/_work" {
				p.unneeded(mount, "the volume that it mounts is not converted, or is where jobs of a pool do not work")
			}
		}
	}
	p.neverInRunners(pod, nil)
	for _, name := range []string{"nodeSelector", "tolerations", "priorityClassName", "affinity", "volumes", "runtimeClassName"} {
		if field := pod.get(name); field != nil && !field.used {
			set(template, name, p.keep(field, s.at(name)))
		}
	}
	grace := pod.get("terminationGracePeriodSeconds")
	if n, ok := number(scalarOf(grace)); ok && n < 30 {
		grace.use()
		p.find(Changed, grace, "30 seconds are the least that a runner has to stop", "")
		template["terminationGracePeriodSeconds"] = int64(30)
		return
	}
	set(template, "terminationGracePeriodSeconds", p.keep(grace, s.at("terminationGracePeriodSeconds")))
}

// poolContainer converts the container that jobs run in.
func (p *scaleSetParts) poolContainer(v *value, template fields) {
	image := p.text(v.get("image"))
	if image == "" {
		image = runnerImage
	} else if !strings.HasPrefix(image, "ghcr.io/actions/actions-runner:") && !strings.HasPrefix(image, "ghcr.io/actions/actions-runner@") {
		p.find(Changed, v.get("image"), "Bullpen starts "+runnerFolder+"/bin/Runner.Listener, as it is in GitHub's own image and those made from it", "if the image has the runner elsewhere, set command")
	}
	template["image"] = image
	p.standardCommand(v.get("command"))
	for _, name := range []string{"command", "env", "volumeMounts"} {
		set(template, name, p.keep(v.get(name), poolSchema().at("template", name)))
	}
}

// poolUser converts the user that jobs run as: the container's before the pod's.
func (p *scaleSetParts) poolUser(pod, runner *value, template fields) {
	own, all := runner.get("securityContext", "runAsUser"), pod.get("securityContext", "runAsUser")
	if own == nil {
		own = all
	} else {
		p.unneeded(all, "the container has a runAsUser of its own")
	}
	set(template, "runAsUser", p.keep(own, poolSchema().at("template", "runAsUser")))
}

// shape converts what one runner may use. A pool's runners have one shape: requests and limits alike.
func (p *scaleSetParts) shape(runner *value, spec fields) {
	made := fields{}
	v := runner.get("resources")
	for _, r := range []struct{ name, field, otherwise string }{{"cpu", "cpu", "2"}, {"memory", "memory", "4Gi"}, {"ephemeral-storage", "ephemeralStorage", ""}} {
		limit, request := v.get("limits", r.name), v.get("requests", r.name)
		switch {
		case limit != nil:
			made[r.field] = p.keep(limit, poolSchema().at("resources", r.field))
			if request != nil && fmt.Sprint(request.scalar) != fmt.Sprint(limit.scalar) {
				request.use()
				p.find(Changed, request, "a pool's runner requests what it is limited to", "")
			} else {
				request.use()
			}
		case request != nil:
			made[r.field] = p.keep(request, poolSchema().at("resources", r.field))
			p.find(Changed, request, "a pool's runner is limited to what it requests", "")
		case r.otherwise != "":
			made[r.field] = r.otherwise
			p.todo(p.v.get("githubConfigUrl"), "", "the container runner says nothing of "+r.name+", and a RunnerPool has a shape; "+r.otherwise+" is a guess", "set resources."+r.name)
		}
	}
	spec["resources"] = made
}
