package runnerpod

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"

	"github.com/bullpen-ci/bullpen/api/v1alpha1"
)

// DefaultEphemeralStorage is that of RunnerResources. The API server does not fill it in, because a pool of platform macos must not have it.
const DefaultEphemeralStorage = "10Gi"

// leastEphemeralStorage is what a runner needs for its own programs and logs; with less the kubelet evicts it under any
// job.
const leastEphemeralStorage = 1 << 30

// What the other parts of a pod may write. A kubelet bounds a pod by the sum of its containers' limits, and each emptyDir by its own.
const (
	helperDisk    = 128 << 20 // a container's logs, which the kubelet rotates at 50 MiB
	sharedDisk    = 1 << 30   // VolumeShared and VolumeGuard: the agent's binary, and the runner's signs
	socketDisk    = 256 << 20 // the state of the Docker daemon's containers
	externalsDisk = 2 << 30   // the runner's own programs; half a gibibyte in GitHub's image
)

// disk is how much of its node's disk a pod may take (TEN-6). The zero value is for nodes that do not count it: nothing is requested, and
// nothing limited.
type disk struct {
	runner resource.Quantity
}

// poolDisk is what the pool says, or the default. Nodes that do not count their disk take no pod that requests any, so 0 requests none.
func poolDisk(pool *v1alpha1.RunnerPool) disk {
	if given := pool.Spec.Resources.EphemeralStorage; given != nil {
		return disk{given.DeepCopy()}
	}
	return disk{resource.MustParse(DefaultEphemeralStorage)}
}

// checkDisk repeats what the API server has checked, for pools that came past it.
func checkDisk(pool *v1alpha1.RunnerPool) error {
	given := pool.Spec.Resources.EphemeralStorage
	switch {
	case given == nil:
	case pool.Spec.Platform == v1alpha1.PlatformMacOS:
		return refuse("spec.resources.ephemeralStorage is for platform linux, a macOS virtual machine has the disk of its image: remove it")
	case !given.IsZero() && given.Value() < leastEphemeralStorage:
		return refuse("spec.resources.ephemeralStorage is %s, but must be at least 1Gi, or 0 for no limit: write the unit, such as 20Gi", given.String())
	}
	return nil
}

// registeredDisk is what the container of a self-registering runner says, or the default and what the template's own emptyDirs may hold.
func registeredDisk(spec *corev1.PodSpec, runner *corev1.Container) disk {
	if limit, said := runner.Resources.Limits[corev1.ResourceEphemeralStorage]; said {
		return disk{limit.DeepCopy()}
	}
	size := resource.MustParse(DefaultEphemeralStorage)
	for i := range spec.Volumes {
		if dir := spec.Volumes[i].EmptyDir; dir != nil && dir.Medium == corev1.StorageMediumDefault && dir.SizeLimit != nil {
			size.Add(*dir.SizeLimit)
		}
	}
	if request, said := runner.Resources.Requests[corev1.ResourceEphemeralStorage]; said && request.Cmp(size) > 0 {
		size = request.DeepCopy()
	}
	return disk{size}
}

// bound gives containers and volumes without a size their shares.
func (d disk) bound(containers []corev1.Container, volumes []corev1.Volume) {
	if d.runner.Sign() <= 0 {
		return
	}
	for i := range volumes {
		d.boundVolume(&volumes[i])
	}
	for i := range containers {
		switch c := &containers[i]; c.Name {
		case ContainerRunner:
			limitDisk(c, d.runner)
		case ContainerDind:
			limitDisk(c, daemonDisk(volumes, volumeDocker, volumeSocket, volumeExternals))
		case ContainerBuildKit:
			limitDisk(c, daemonDisk(volumes, volumeBuildKit))
		default:
			limitDisk(c, *resource.NewQuantity(helperDisk, resource.BinarySI))
		}
	}
}

// boundRunner limits the container in which jobs run.
func (d disk) boundRunner(runner *corev1.Container) {
	if d.runner.Sign() > 0 {
		limitDisk(runner, d.runner)
	}
}

// boundVolume limits what a job can write to. A volume of the template that has no limit may take all that the runner may.
func (d disk) boundVolume(v *corev1.Volume) {
	if v.EmptyDir == nil || v.EmptyDir.Medium != corev1.StorageMediumDefault || v.EmptyDir.SizeLimit != nil {
		return
	}
	size := d.runner.DeepCopy()
	switch v.Name {
	case VolumeShared, VolumeGuard:
		size = *resource.NewQuantity(sharedDisk, resource.BinarySI)
	case volumeSocket:
		size = *resource.NewQuantity(socketDisk, resource.BinarySI)
	case volumeExternals:
		size = *resource.NewQuantity(externalsDisk, resource.BinarySI)
	}
	v.EmptyDir.SizeLimit = ptr.To(size)
}

// daemonDisk is what a daemon takes: its own logs, and its volumes, which are full before the pod's limit is reached.
func daemonDisk(volumes []corev1.Volume, its ...string) resource.Quantity {
	size := *resource.NewQuantity(helperDisk, resource.BinarySI)
	for i := range volumes {
		if v := &volumes[i]; slices.Contains(its, v.Name) {
			size.Add(*v.EmptyDir.SizeLimit)
		}
	}
	return size
}

// limitDisk requests and limits the same, so that what pods may write together is never more than their node has.
func limitDisk(c *corev1.Container, size resource.Quantity) {
	const name = corev1.ResourceEphemeralStorage
	if _, said := c.Resources.Limits[name]; !said {
		set(&c.Resources.Limits, name, size)
	}
	if _, said := c.Resources.Requests[name]; !said {
		set(&c.Resources.Requests, name, c.Resources.Limits[name])
	}
}

func set(list *corev1.ResourceList, name corev1.ResourceName, size resource.Quantity) {
	if *list == nil {
		*list = corev1.ResourceList{}
	}
	(*list)[name] = size.DeepCopy()
}
