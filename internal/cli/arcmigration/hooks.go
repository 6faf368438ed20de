package arcmigration

import (
	"path"
	"regexp"
	"strings"
)

// hooks are GitHub's container hooks, as a pod's author has set them up.
type hooks struct {
	// variable is the one that configures the runner to use them, and path its value.
	variable *value
	path     string
}

const (
	hooksVariable    = "ACTIONS_RUNNER_CONTAINER_HOOKS"
	hooksPodVariable = "ACTIONS_RUNNER_POD_NAME"
)

// standardHooks are where GitHub's images and the peer's have the hooks that make pods.
var standardHooks = regexp.MustCompile(`^(/home/runner|/runner)/k8s/index\.js$`)

// findHooks looks for container hooks in the environment of the runner: in its container, and in other lists of variables. Hooks that use Docker
// make no pods.
func findHooks(pod *value, others ...*value) *hooks {
	for _, env := range append([]*value{runnerOf(pod.get("containers")).get("env")}, others...) {
		for _, variable := range env.elements() {
			at := variable.get("value").peek()
			if variable.get("name").peek() == hooksVariable && (at != "" || variable.get("valueFrom") != nil) && !strings.Contains(at, "/docker/") {
				return &hooks{variable: variable, path: at}
			}
		}
	}
	return nil
}

// mode is the container mode that hooks belong to.
func (h *hooks) mode() string {
	if strings.Contains(h.path, "novolume") {
		return "kubernetes-novolume"
	}
	return "kubernetes"
}

// runnerOf finds the container that jobs run in.
func runnerOf(containers *value) *value {
	for _, container := range containers.elements() {
		if container.get("name").peek() == containerRunner {
			return container
		}
	}
	return nil
}

// workVolume is the volume in which jobs of a runner work: the one that is mounted where they do, or else the one that is called work.
func workVolume(pod *value, others ...*value) *value {
	name := "work"
	for _, mounts := range append([]*value{runnerOf(pod.get("containers")).get("volumeMounts")}, others...) {
		for _, mount := range mounts.elements() {
			if workPath(mount.get("mountPath").peek()) {
				name = mount.get("name").peek()
			}
		}
	}
	for _, volume := range pod.get("volumes").elements() {
		if volume.get("name").peek() == name {
			return volume
		}
	}
	return nil
}

// workPath says whether jobs work there.
func workPath(at string) bool {
	at = path.Clean(at)
	return at == runnerFolder+"/_work" || at == legacyWorkPath
}

// workClaim is the claim of the volume in which jobs work, if each runner has one of its own.
func workClaim(pod *value, others ...*value) *value {
	return workVolume(pod, others...).get("ephemeral", "volumeClaimTemplate", "spec")
}

// takeHooks takes out what runners with container hooks are given, and Bullpen gives them too. claim is the volume that is converted by itself.
func (c *conversion) takeHooks(pod, runner, claim *value, others ...*value) {
	work := workVolume(pod, append(mountsOf(others), runner.get("volumeMounts"))...)
	name := "work"
	if work != nil {
		name = work.get("name").peek()
		if work.get("ephemeral", "volumeClaimTemplate", "spec") == claim && claim != nil {
			work.get("name").use()
			work.told = true // as a volume; the claim is converted by itself, and what is beside it is left over
		} else {
			c.drop(work, "containerMode Kubernetes brings the volume in which jobs work", "")
		}
	}
	for _, container := range append([]*value{runner}, others...) {
		for _, variable := range container.get("env").elements() {
			switch of := variable.get("name").peek(); {
			case of == hooksPodVariable, of == hooksVariable && standardHooks.MatchString(variable.get("value").peek()):
				c.unneeded(variable, "containerMode Kubernetes sets "+of)
			}
		}
		for _, mount := range container.get("volumeMounts").elements() {
			switch {
			case workPath(mount.get("mountPath").peek()):
				c.unneeded(mount, "containerMode Kubernetes mounts the volume that the runner and the pods of its jobs share")
			case mount.get("name").peek() == name:
				c.drop(mount, "the volume that the runner and the pods of its jobs share is mounted where jobs work, and nowhere else", "")
			}
		}
	}
}

func mountsOf(containers []*value) []*value {
	var found []*value
	for _, container := range containers {
		found = append(found, container.get("volumeMounts"))
	}
	return found
}
