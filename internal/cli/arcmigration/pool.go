package arcmigration

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"

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
	p.from("spec.template", pod)
	runner := p.findRunner(pod.get("containers"))
	if p.mode == "dind" {
		resources := p.daemonResources()
		p.takeDaemon(p.daemon, pod, []*value{runner}, template)
		set(template["dind"].(fields), "resources", resources)
	}
	if class := p.text(pod.get("runtimeClassName")); class != "" {
		template["runtimeClassName"] = class
	} else if p.mode == "dind" {
		p.poolMicroVM(template, p.modeAt, "the Docker daemon is privileged, so Bullpen starts it only in a microVM", "remove dind if no job uses Docker")
	}
	p.poolWork(pod, runner)
	p.poolAccount(pod)
	p.poolMetadata(template)
	p.poolPod(pod, template)
	p.poolContainer(runner, template)
	p.proxy(template)
	p.poolUser(pod, runner, template)
	p.poolSecurity(pod, runner, template)
	p.shape(runner, spec)
	p.poolArchitecture(pod, runner, spec)
	spec["template"] = template
	p.produce(v1alpha1.KindRunnerPool, p.meta, spec)
}

// poolScope says where the runners of a pool are registered.
func (p *scaleSetParts) poolScope(spec fields) {
	v := p.v.get("githubConfigUrl")
	serves := "a RunnerPool serves every account with the App installed, by the pool's label, not only "
	advice := "see docs/guides/accounts.md for the limits of accounts"
	switch {
	case p.place["repository"] != nil:
		spec["scope"] = string(v1alpha1.ScopeRepository)
		p.find(Changed, v, serves+fmt.Sprint("the repository ", p.place["repository"]), advice)
	case p.place["organization"] != nil:
		p.find(Changed, v, serves+fmt.Sprint("the organization ", p.place["organization"]), advice)
	case p.place["enterprise"] != nil:
		p.todo(v, serves+fmt.Sprint("the enterprise ", p.place["enterprise"]), "install the App on the enterprise's organizations")
	}
}

func (p *scaleSetParts) poolScaling(spec fields) {
	if p.closed(spec) {
		return
	}
	least, _ := p.integer(p.v.get("minRunners"))
	p.from("spec.autoscaling.minIdle", p.v.get("minRunners"))
	p.from("spec.autoscaling.maxReplicas", p.v.place("maxRunners"))
	scaling := fields{"enabled": true}
	p.ceiling(scaling, poolSchema().at("autoscaling", "maxReplicas"))
	if ceiling, ok := number(scaling["maxReplicas"]); ok && float64(least) > ceiling {
		p.find(Changed, p.v.get("minRunners"), "it is more than maxRunners, and is lowered to it", "")
		least = int64(ceiling)
	}
	scaling["minIdle"] = max(least, 0)
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
		p.from("spec.runnerGroup", v)
	}
}

// findRunner finds the container that jobs run in. The others are reported as what a pool cannot have.
func (p *scaleSetParts) findRunner(v *value) *value {
	runner := runnerOf(v)
	runner.get("name").use()
	v.useEmpty()
	return runner
}

// poolMicroVM puts a pool's privileged containers into a microVM, and says that its class is an assumption; at and why say what is privileged, and
// otherwise what there is to do without one.
func (p *scaleSetParts) poolMicroVM(template fields, at *value, why, otherwise string) {
	template["runtimeClassName"] = p.options.RuntimeClass
	if p.options.RuntimeClass == "" {
		template["runtimeClassName"] = "kata"
		p.todo(at, why+"; the runtimeClassName kata is an assumption", "set the cluster's runtime class of microVMs with --runtime-class, or "+otherwise)
	}
}

// poolWork removes mounts of the jobs' working directory: each pod of a pool has a directory of its own there.
func (p *scaleSetParts) poolWork(pod, runner *value) {
	const own = "each pod of a pool has its own work directory"
	gone := map[string]bool{}
	for _, volume := range pod.get("volumes").elements() {
		if volume.get("projected") != nil && !volume.settled() {
			gone[volume.get("name").peek()] = true
			p.drop(volume, "a pool's runner may not mount a projected volume, because it can hold a ServiceAccount token", "use a volume of a Secret, a ConfigMap or the downward API") // NET-3
		}
	}
	for _, mount := range runner.get("volumeMounts").elements() {
		switch {
		case path.Clean(mount.get("mountPath").peek()) == runnerFolder+"/_work":
			p.unneeded(mount, own)
		case gone[mount.get("name").peek()]:
			p.drop(mount, "its volume is not converted", "")
		}
	}
	if work := volumeNamed(pod, "work"); work != nil && !work.settled() && !mounts(runner, "work") {
		if source := work.get("emptyDir"); source != nil && source.leaf() {
			p.unneeded(work, own)
		} else {
			p.drop(work, own+", whose volume cannot be set", "")
		}
	}
	for _, volume := range pod.get("volumes").elements() {
		if source := volume.get("emptyDir"); source != nil && !source.leaf() && workAt(runner, volume.get("name").peek()) && !mounts(runner, volume.get("name").peek()) {
			p.drop(volume, own+", whose volume cannot be set", "resources.ephemeralStorage limits what a runner may write")
		}
	}
	p.orphans(pod, runner)
}

// mounts says whether a container still mounts a volume, after what was taken out.
func mounts(container *value, name string) bool {
	return slices.ContainsFunc(container.get("volumeMounts").elements(), func(mount *value) bool {
		return mount.get("name").peek() == name && !mount.settled()
	})
}

// workAt says whether a container mounts a volume where jobs work.
func workAt(container *value, name string) bool {
	return slices.ContainsFunc(container.get("volumeMounts").elements(), func(mount *value) bool {
		return mount.get("name").peek() == name && workPath(mount.get("mountPath").peek())
	})
}

// poolAccount speaks of the ServiceAccount that a scale set's runners have, and of what it gives their jobs.
func (p *scaleSetParts) poolAccount(pod *value) {
	for _, field := range []string{"serviceAccountName", "serviceAccount"} {
		account := pod.get(field)
		if ofTheChart(account) {
			p.unneeded(account, "each pod of a RunnerPool has its own ServiceAccount without rights, like this one of the old chart") // NET-3
			continue
		}
		p.drop(account, "each pod of a RunnerPool has its own ServiceAccount without rights: jobs lose what this one gives them, such as a cloud identity or rights in the cluster", // NET-3
			"let jobs log in to the cloud with GitHub's OpenID Connect, or convert with --to RunnerDeployment, which keeps the account")
	}
	if automount := pod.get("automountServiceAccountToken"); scalarOf(automount) == false {
		p.unneeded(automount, "the runner of a RunnerPool's pod has no Kubernetes token") // NET-3
	}
}

// poolPod converts what a pool can choose of its pods.
func (p *scaleSetParts) poolPod(pod *value, template fields) {
	s := poolSchema().at("template")
	p.neverInRunners(pod, nil)
	for _, name := range []string{"nodeSelector", "tolerations", "priorityClassName", "affinity", "volumes", "imagePullSecrets"} {
		if field := pod.get(name); field != nil && !field.used {
			set(template, name, p.keep(field, s.at(name)))
		}
	}
	p.podLabels(pod, template)
	p.unneeded(pod.get("os"), "the pool's platform sets it")
	grace := pod.get("terminationGracePeriodSeconds")
	if n, ok := number(scalarOf(grace)); ok && n < 30 {
		grace.use()
		p.find(Changed, grace, "the minimum is 30 seconds", "")
		template["terminationGracePeriodSeconds"] = int64(30)
		return
	}
	set(template, "terminationGracePeriodSeconds", p.keep(grace, s.at("terminationGracePeriodSeconds")))
}

// podLabels speaks of rules that choose pods by labels which the pods of a pool do not have.
func (p *scaleSetParts) podLabels(pod *value, template fields) {
	metadata, _ := template["metadata"].(fields)
	labels, _ := metadata["labels"].(fields)
	for _, kind := range []string{"podAffinity", "podAntiAffinity"} {
		pod.get("affinity", kind).find(func(v *value) bool {
			if selector := v.get("labelSelector"); selector != nil && !selector.leaf() && !chosenBy(selector, labels) {
				p.todo(selector, "it selects pods by labels that the pool's pods do not have", "to select the pool's own pods, use the label bullpen.dev/pool with the pool's name")
			}
			return false
		})
	}
}

// poolArchitecture converts what says that the nodes are of another architecture than the one that a pool has unless it says otherwise.
func (p *scaleSetParts) poolArchitecture(pod, runner *value, spec fields) {
	label, said := architecture(pod, runner.get("image"))
	switch {
	case said == nil || label == "X64":
	case label != "ARM64":
		p.todo(said, "its runners are of "+strings.ToLower(label)+", but a pool's runners are amd64 or arm64", "use nodes and an image of one of these")
	default:
		spec["architecture"] = string(v1alpha1.ArchitectureARM64)
		p.from("spec.architecture", said)
		if said == runner.get("image") {
			p.find(Changed, said, "the image's name says arm64, so the pool's architecture is arm64", "")
		}
	}
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
	for _, name := range []string{"image", "command", "env", "volumeMounts"} {
		p.from("spec.template."+name, v.get(name))
	}
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
		p.unneeded(all, "the container has its own runAsUser")
	}
	set(template, "runAsUser", p.keep(own, poolSchema().at("template", "runAsUser")))
}

// shape converts what one runner may use. A pool's runners have one shape: requests and limits alike.
func (p *scaleSetParts) shape(runner *value, spec fields) {
	made := fields{}
	for _, r := range []struct{ name, field, otherwise string }{{"cpu", "cpu", "2"}, {"memory", "memory", "4Gi"}, {"ephemeral-storage", "ephemeralStorage", ""}} {
		limit, request := runner.get("resources", "limits", r.name), runner.get("resources", "requests", r.name)
		s := poolSchema().at("resources", r.field)
		switch {
		case limit != nil:
			made[r.field] = p.keep(limit, s)
			p.from("spec.resources."+r.field, limit)
			p.raised(request, limit, r.name)
		case request != nil:
			made[r.field] = p.keep(request, s)
			p.from("spec.resources."+r.field, request)
			p.limited(request, r.name)
		case r.otherwise != "":
			made[r.field] = r.otherwise
			p.todo(p.resourceAt(runner, r.name), "the container runner does not set "+r.name+", which a RunnerPool requires; "+r.otherwise+" is an assumption", "set resources."+r.name)
		default:
			p.find(Changed, p.resourceAt(runner, r.name), "a runner may write 10Gi to its node, and is evicted if it writes more", "set resources.ephemeralStorage to what jobs need") // TEN-6
		}
	}
	spec["resources"] = made
}

// resourceAt is where the limit of a resource would be written.
func (p *scaleSetParts) resourceAt(runner *value, name string) *value {
	if runner != nil {
		return runner.place("resources", "limits", name)
	}
	return p.v.place("template", "spec", "containers")
}

var resourceWords = map[string]string{"cpu": "CPUs", "memory": "of memory", "ephemeral-storage": "of ephemeral storage"}

// raised speaks of a request that becomes as high as the limit: nodes that the runner was made to fit may have no room for it.
func (p *scaleSetParts) raised(request, limit *value, name string) {
	if request == nil {
		return
	}
	from, err := resource.ParseQuantity(fmt.Sprint(request.scalar))
	to, otherErr := resource.ParseQuantity(fmt.Sprint(limit.scalar))
	request.use()
	switch {
	case err != nil || otherErr != nil:
		p.find(Changed, request, "a pool's runner has requests equal to its limits", "")
	case from.Cmp(to) < 0:
		p.todo(request, fmt.Sprintf("a pool's runner has requests equal to its limits: %v %s instead of %v, so it may not fit the nodes that it was sized for", limit.scalar, resourceWords[name], request.scalar),
			fmt.Sprintf("lower resources.%s of the pool to what a node can provide, such as %v", name, request.scalar))
	case from.Cmp(to) > 0:
		p.find(Changed, request, fmt.Sprintf("it is more than the limit, and is lowered to it: %v", limit.scalar), "")
	}
}

// limited speaks of a limit where there was none.
func (p *scaleSetParts) limited(request *value, name string) {
	if name == "memory" {
		p.todo(request, fmt.Sprintf("a pool's runner has limits equal to its requests: a job that uses more memory than %v, which had no limit, is killed by the kernel", request.scalar),
			"raise resources.memory of the pool to the maximum that jobs use")
		return
	}
	p.find(Changed, request, "a pool's runner has limits equal to its requests", "")
}
