package arcmigration

import (
	"strings"

	"github.com/bullpen-ci/bullpen/api/v1alpha1"
)

// legacyPod is what a legacy runner's pod is written in: the fields of a pod, and beside them, or in them, those of the runner's container.
type legacyPod struct {
	// pod has the fields of a pod.
	pod *value
	// flat has env and volumeMounts of the runner beside those of its container; nil for RunnerSets.
	flat *value
	work *value
}

// runners are where the variables and the mounts of the runner's container are.
func (l legacyPod) runners() []*value {
	var found []*value
	for _, at := range []*value{runnerOf(l.pod.get("containers")), l.flat} {
		if at != nil {
			found = append(found, at)
		}
	}
	return found
}

// mode converts how jobs use containers, and takes out of the pod what is there for that. What is left of the pod is converted after it.
func (p *runnerParts) mode(l legacyPod) {
	v := p.config
	given := v.get("containerMode")
	inside := p.boolean(v.get("dockerdWithinRunnerContainer"), false)
	enabled := p.boolean(v.get("dockerEnabled"), true)
	mode := p.text(given)
	hooks := findHooks(l.pod, l.flat.get("env"))
	switch {
	case mode == "kubernetes":
		p.hookMode(l, l.work, given, "workVolumeClaimTemplate")
		return
	case hooks != nil && hooks.mode() == "kubernetes-novolume":
		p.fail(hooks.variable, "container hooks without a shared volume have no equivalent", "use the hooks in /home/runner/k8s, with a workVolumeClaimTemplate")
		return
	case hooks != nil:
		claim := l.work
		if claim == nil {
			claim = workClaim(l.pod, l.flat.get("volumeMounts"))
		}
		p.hookMode(l, claim, hooks.variable, "volume with an ephemeral.volumeClaimTemplate, mounted where jobs work, or a workVolumeClaimTemplate")
		return
	case mode != "" && mode != "dind":
		p.find(Dropped, given, `"`+mode+`" is not a known container mode`, "")
	}
	p.dockerMode(l, inside, enabled)
}

// hookMode converts runners whose jobs run containers as pods.
func (p *runnerParts) hookMode(l legacyPod, claim, at *value, field string) {
	p.takeHooks(l.pod, runnerOf(l.pod.get("containers")), claim, l.flat)
	p.standardHooksOf(l)
	p.kubernetesMode(claim, accountOf(p.config, l.pod), at, field)
}

// standardHooksOf keeps hooks of its own images from being looked for where those have the runner.
func (p *runnerParts) standardHooksOf(l legacyPod) {
	for _, at := range l.runners() {
		for _, variable := range at.get("env").elements() {
			if !variable.settled() && variable.get("name").peek() == hooksVariable && strings.HasPrefix(variable.get("value").peek(), legacyFolder+"/") {
				p.todo(variable, "the hooks are expected in "+legacyFolder+", the runner's directory in the images of actions-runner-controller", "set their path in the new image: "+runnerFolder+"/k8s/index.js")
			}
		}
	}
}

// dockerMode converts whether there is a Docker daemon: the peer's own, or one that the pod's author has written down.
func (p *runnerParts) dockerMode(l legacyPod, inside, enabled bool) {
	v := p.config
	p.daemon = findDaemon(l.pod, l.runners(), l.pod.get("sidecarContainers"))
	if !inside && enabled && p.daemon == nil {
		p.daemon = overrides(l.pod)
	}
	if !inside && !enabled && p.daemon == nil {
		p.noDaemon(l.runners()...)
		return
	}
	p.spec["containerMode"] = string(v1alpha1.ContainerModeDind)
	switch {
	case inside:
		p.find(Changed, v.get("dockerdWithinRunnerContainer"), "the Docker daemon runs in its own container instead of the runner's, and jobs find it by DOCKER_HOST", "")
	case v.get("dockerEnabled") == nil && p.daemon == nil:
		p.find(Changed, v.place("dockerEnabled"), "actions-runner-controller gives each runner a Docker daemon unless dockerEnabled is false, and so does containerMode Dind",
			"if no job uses Docker, remove containerMode and runtimeClassName")
	}
	p.takeDaemon(p.daemon, l.pod, l.runners(), p.spec)
	if dind, _ := p.spec["dind"].(fields); len(dind) == 0 {
		delete(p.spec, "dind")
	}
	keepers := keptContainers(l.pod)
	if l.flat != nil {
		keepers = append(keepers, l.flat)
	}
	p.orphans(l.pod, keepers...)
	class := l.pod.get("runtimeClassName")
	if class.peek() == "" {
		p.microVM(l.pod.place("runtimeClassName"))
	}
}

// overrides finds what is said of the peer's own daemon: a container of its name.
func overrides(pod *value) *daemon {
	for _, container := range pod.get("containers").elements() {
		if container.get("name").peek() == containerDocker {
			return &daemon{container: container}
		}
	}
	return nil
}

// microVM sees to it that a privileged daemon is kept off its node. at is where the class would be named.
func (p *runnerParts) microVM(at *value) {
	if at.peek() != "" {
		return
	}
	class := p.options.RuntimeClass
	if class == "" {
		class = "kata"
		p.todo(at, "the Docker daemon is privileged, so Bullpen starts it only in a microVM; the runtimeClassName kata is an assumption",
			"set the cluster's runtime class of microVMs with --runtime-class, or remove containerMode Dind if no job uses Docker")
	}
	p.pod["runtimeClassName"] = class
}

// accountOf is the ServiceAccount that a pod names, by either name of the field, or that its runner's config does.
func accountOf(places ...*value) *value {
	for _, at := range places {
		for _, field := range []string{"serviceAccountName", "serviceAccount"} {
			if account := at.get(field); account.peek() != "" {
				return account
			}
		}
	}
	return nil
}

// ofTheChart says whether the peer's chart makes the ServiceAccount, for runners without rights.
func ofTheChart(account *value) bool { return strings.HasSuffix(account.peek(), "-no-permission") }

// rights speaks of what a ServiceAccount gives to the jobs of a runner that registers by itself.
func (p *runnerParts) rights(account *value) {
	if account.peek() == "" {
		return
	}
	p.todo(account, "the ServiceAccount is kept, but no container has its Kubernetes token: a cloud identity of the account still works, but jobs do not have its rights in the cluster", // NET-3
		"check what the account is for; jobs that use the cluster's API need their own credentials")
}

// kubernetesMode converts the mode in which jobs run containers as pods. at is what asks for it, and field what the claim is called there.
func (p *runnerParts) kubernetesMode(work, account, at *value, field string) {
	claim, _ := p.keep(work, runnerSchema().at("kubernetes", "workVolumeClaim")).(fields)
	if claim == nil {
		p.fail(at, "container mode kubernetes needs a volume per runner, shared with the pods of its jobs: there is no "+field, "add it")
		return
	}
	name := p.text(account)
	switch {
	case name == "":
		name = placeholderHooks
		p.todo(p.config.place("serviceAccountName"), "actions-runner-controller creates a ServiceAccount for jobs' pods; Bullpen does not, and "+placeholderHooks+" is an assumption",
			"create a ServiceAccount that may create pods, pods/exec, pods/log, Jobs and Secrets in the runners' namespace, and set kubernetes.serviceAccountName")
	case strings.HasSuffix(name, "-kube-mode"):
		p.todo(account, "the old chart creates this ServiceAccount, and it is deleted with the old release", "create your own with the same rights, and set kubernetes.serviceAccountName")
	}
	p.from(p.at+".kubernetes.workVolumeClaim", work)
	p.spec["containerMode"] = string(v1alpha1.ContainerModeKubernetes)
	p.spec["kubernetes"] = fields{"workVolumeClaim": claim, "serviceAccountName": name}
}
