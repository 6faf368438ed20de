package tart

import (
	"fmt"
	"path"
	"path/filepath"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/bullpen-ci/bullpen/internal/agent/guestshare"
	"github.com/bullpen-ci/bullpen/internal/node/sandbox"
	"github.com/bullpen-ci/bullpen/internal/runnerpod"
)

// minMemory is what a guest gets at the least, in bytes: macOS does not boot with less.
const minMemory = 2 << 30

// placeholder stands in guest.json for the guest's own directory. No path of a pod has it.
const placeholder = "@bullpen-guest@"

// place says where a mount of the runner is in the guest.
type place struct {
	mountPath string
	volume    string
	shared    bool // the read-only share; otherwise a directory on the guest's own disk
}

func (p place) guestPath() string {
	if p.shared {
		return path.Join(placeholder, guestshare.GuestShared)
	}
	return path.Join(placeholder, p.folder())
}

func (p place) folder() string { return path.Join("volumes", p.volume) }

// machine is what is made of a pod's runner.
type machine struct {
	cpus     int64
	memoryMB int64
	places   []place
}

func invalid(format string, args ...any) error {
	return &sandbox.InvalidError{Reason: sandbox.ReasonConfigError, Message: fmt.Sprintf(format, args...)}
}

// plan checks the pod and says what its runner needs. It is pure; its errors are *sandbox.InvalidError and name the field.
func plan(pod *corev1.Pod) (machine, error) {
	if !plainName.MatchString(string(pod.UID)) {
		return machine{}, invalid("metadata.uid %q cannot be part of a virtual machine's name", pod.UID)
	}
	for i, c := range pod.Spec.InitContainers {
		if c.Name != runnerpod.ContainerAgent {
			return machine{}, invalid("spec.initContainers[%d].name %q: on a Mac a pod may only have the init container %q",
				i, c.Name, runnerpod.ContainerAgent)
		}
	}
	at := -1
	for i, c := range pod.Spec.Containers {
		switch c.Name {
		case runnerpod.ContainerRunner:
			at = i
		case runnerpod.ContainerPoller:
		default:
			return machine{}, invalid("spec.containers[%d].name %q: on a Mac a pod may only have the containers %q and %q",
				i, c.Name, runnerpod.ContainerRunner, runnerpod.ContainerPoller)
		}
	}
	if at < 0 {
		return machine{}, invalid("spec.containers: container %q, the virtual machine, is missing", runnerpod.ContainerRunner)
	}
	return planRunner(pod, at)
}

func planRunner(pod *corev1.Pod, at int) (machine, error) {
	c, field := pod.Spec.Containers[at], fmt.Sprintf("spec.containers[%d]", at)
	var m machine
	if !reference.MatchString(c.Image) {
		return m, invalid("%s.image %q: name an image of a registry, as in ghcr.io/cirruslabs/macos-sequoia-base:latest", field, c.Image)
	}
	if len(c.Command) == 0 {
		return m, invalid("%s.command: set a command; an image of a virtual machine has none", field)
	}
	cpu, memory := c.Resources.Limits.Cpu(), c.Resources.Limits.Memory()
	m.cpus = cpu.Value()
	if cpu.Cmp(*resource.NewQuantity(m.cpus, resource.DecimalSI)) < 0 {
		m.cpus-- // down: a machine must not get more than the scheduler has counted
	}
	if m.cpus < 1 {
		return m, invalid("%s.resources.limits.cpu %q: a virtual machine needs at least 1", field, cpu)
	}
	if memory.Value() < minMemory {
		return m, invalid("%s.resources.limits.memory %q: a virtual machine needs at least 2Gi", field, memory)
	}
	m.memoryMB = memory.Value() >> 20
	for i, mount := range c.VolumeMounts {
		p, err := planMount(pod, mount, fmt.Sprintf("%s.volumeMounts[%d]", field, i))
		if err != nil {
			return m, err
		}
		m.places = append(m.places, p)
	}
	if !slices.ContainsFunc(m.places, func(p place) bool { return p.shared }) {
		return m, invalid("%s.volumeMounts: the volume %q is missing, which passes the command to the guest", field, runnerpod.VolumeShared)
	}
	return m, nil
}

// planMount finds a place for a volume. A guest sees two directories of its host and no more, so a volume is either the shared one or an
// emptyDir of this container alone.
func planMount(pod *corev1.Pod, mount corev1.VolumeMount, field string) (place, error) {
	p := place{mountPath: filepath.Clean(mount.MountPath), volume: mount.Name, shared: mount.Name == runnerpod.VolumeShared}
	i := slices.IndexFunc(pod.Spec.Volumes, func(v corev1.Volume) bool { return v.Name == mount.Name })
	switch {
	case mount.SubPath != "" || mount.SubPathExpr != "":
		return p, invalid("%s.subPath: a virtual machine gets whole volumes only", field)
	case i < 0 || pod.Spec.Volumes[i].EmptyDir == nil:
		return p, invalid("%s.name %q: only emptyDir volumes can be mounted in a virtual machine", field, mount.Name)
	case p.shared:
		return p, nil
	case p.mountPath == "/":
		return p, invalid("%s.mountPath: nothing can be mounted at the root of a virtual machine", field)
	}
	for _, c := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
		if c.Name != runnerpod.ContainerRunner && slices.ContainsFunc(c.VolumeMounts, func(m corev1.VolumeMount) bool { return m.Name == mount.Name }) {
			return p, invalid("%s.name %q: the container %q mounts it, too, and only %q can be shared with a virtual machine",
				field, mount.Name, c.Name, runnerpod.VolumeShared)
		}
	}
	return p, nil
}
