package plan

import (
	"fmt"
	"time"

	"github.com/bullpen-ci/bullpen/internal/jobcontainer"
)

// Texts for the job's log about what only shows when containers start or run.

// NamesUnresolvableText is a warning: /etc/hosts can't be written.
func NamesUnresolvableText() string {
	return "Service names can't be resolved in this job, because no container of it runs as root; use localhost."
}

// Titled names a container in a sentence.
func Titled(role jobcontainer.Role, name string) string {
	if role == jobcontainer.RoleService {
		return "service '" + name + "'"
	}
	return "container '" + name + "'"
}

// PortTakenText is the error of a port that can't be opened, of a container as Titled names it. by is the container that has it; empty: another
// process.
func PortTakenText(port int, of, by string) string {
	if by != "" {
		by = " by " + by
	}
	return fmt.Sprintf("Port %d of %s can't be opened: address already in use%s.", port, of, by)
}

// PortInUseText is the hint when the log of a service that does not run shows that it can't bind.
func PortInUseText(service string) string {
	return fmt.Sprintf("The log of service '%s' shows a port that is in use. On this runner all containers of a job share one network address; give one of them another port.", service)
}

// StartTimeoutText is the error of containers whose images a node has not pulled, with no failure, for so long.
func StartTimeoutText(waited time.Duration) string {
	return fmt.Sprintf("The job's containers did not start within %.0f minutes. Use smaller images, or ask an administrator to pull them on the nodes before jobs do, and to set serializeImagePulls: false in the configuration of the kubelets.", waited.Minutes())
}

// NeedsPID1Text is the hint when the log of a service that does not run shows an init that must be the first process. That is the guard.
func NeedsPID1Text(service string) string {
	return fmt.Sprintf("The image of service '%s' has an init that must be process 1, which it can't be on this runner. Use a variant of the image without it, or a pool with a Docker daemon (dind).", service)
}

// SamePortText is the error of two services that listen on one port.
func SamePortText(a, b string, port int) string {
	return fmt.Sprintf("Services '%s' and '%s' both listen on port %d. On this runner all containers of a job share one network address; give one of them another port.", a, b, port)
}

// VolumeNotEmptyText is the error of a volume whose target is in use.
func VolumeNotEmptyText(volume string) string {
	return fmt.Sprintf("Volume '%s' can't be mounted: the target is not empty.", volume)
}

// NoShellText is the error of a step whose shell is not in the image.
func NoShellText(shell, image string) string {
	return fmt.Sprintf("Shell '%s' is not in image '%s'.", shell, image)
}

// NoCommandText is the error of a container action whose entrypoint is not in its image.
func NoCommandText(command, image string) string {
	return fmt.Sprintf("Command '%s' is not in image '%s'.", command, image)
}

// KilledForMemoryText is the error of a container whose state is OOMKilled. memory is the pool's, as 16Gi; empty: not said.
func KilledForMemoryText(container, memory string) string {
	if memory != "" {
		memory = " (" + memory + ")"
	}
	return fmt.Sprintf("Container '%s' was killed: the job used more memory than the pool allows%s.", container, memory)
}

// ProcessKilledText is the error of a process that the kernel has killed for memory, in a container that goes on. It may also have been the node's
// memory. memory is the pool's, as 16Gi; empty: not said.
func ProcessKilledText(container, memory string) string {
	if memory != "" {
		memory = " The pool allows " + memory + "."
	}
	return fmt.Sprintf("A process of container '%s' was killed for lack of memory.%s", container, memory)
}

// EndedText is a warning, once, about a service that ended while the job runs.
func EndedText(service string, exitCode int) string {
	return fmt.Sprintf("Service '%s' exited with code %d. It is not started again.", service, exitCode)
}

// NeedsLinuxText is the error of a job with containers on another platform.
func NeedsLinuxText() string { return "Job containers need a Linux pool." }

// DockerfileText is the error of an action that must be built.
func DockerfileText(action string) string {
	return fmt.Sprintf("Action '%s' is built from a Dockerfile; this runner has no builder. Use an image.", action)
}

// LogsTitle is the title of the group with a service's log, at the end of a job.
func LogsTitle(service string) string { return "Print service container logs: " + service }

// PlatformText is the error of an image for another platform.
func PlatformText(image, want, found string) string {
	return fmt.Sprintf("Image '%s' has no %s variant (found: %s).", image, want, found)
}

// RootText is the error of an image that runs as root where it may not.
func RootText(image string) string {
	return fmt.Sprintf("Image '%s' runs as root, which this pool does not permit.", image)
}

// UserText is the error of a container with a user that the pool does not permit.
func UserText(container, image string, user, permitted uint32) string {
	return fmt.Sprintf("Container '%s' of image '%s' runs as user %d, and this pool permits only user %d. If the image works as that user, add `options: --user %d`.",
		container, image, user, permitted, permitted)
}

// DockerSocketText is the error of a job that mounts the docker socket.
func DockerSocketText() string {
	return "The docker socket is not available to job containers on this runner."
}

// HostPathText is the error of a volume that is a path of the host which containers can't have.
func HostPathText(file, volume string) string {
	return fmt.Sprintf("Host path '%s' of volume '%s' is not available to job containers on this runner. Use a path below the workspace.", file, volume)
}

// HostPathMadeText is a warning about a volume that is a path of the host which is not there.
func HostPathMadeText(file, volume string) string {
	return fmt.Sprintf("Host path '%s' of volume '%s' does not exist on this runner: an empty directory is used, which the containers of this job share and its steps on the runner do not.", file, volume)
}
