package runnerpod

import (
	"path"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"

	"github.com/bullpen-ci/bullpen/api/v1alpha1"
)

// ContainerDind is the sidecar that runs a Docker daemon for the jobs of one pod; ContainerExternals is the init container
// that gives it the programs which the runner mounts into the containers of jobs.
const (
	ContainerDind      = "dind"
	ContainerExternals = "externals"
)

// The defaults of Dind's fields, for pools that were made without the API server's defaulting.
const (
	DefaultDindImage   = "docker:28-dind"
	DefaultDindStorage = "20Gi"
)

const (
	volumeDocker    = "bullpen-docker"    // the daemon's images and containers
	volumeSocket    = "bullpen-socket"    // its socket
	volumeExternals = "bullpen-externals" // a copy of the runner's own programs

	mountDisk      = "/bullpen/docker"
	mountSocket    = "/var/run" // where the runner, actions and people's scripts look for docker.sock
	mountCopy      = "/bullpen/externals"
	dockerSocket   = "unix://" + mountSocket + "/docker.sock"
	dockerGroup    = 2375 // of the socket, and of every process in the pod; only those that mount it can use it
	dindStartLimit = 120  // seconds until a daemon that does not respond is restarted

	runnerHome      = "/home/runner" // in GitHub's image, and those derived from it
	runnerExternals = runnerHome + "/externals"
)

// DefaultMicroVMClasses are the runtime classes that, by the names which the Kata Containers project gives them, put each
// pod into a virtual machine of its own. The same list is in charts/bullpen/values.yaml (microVMRuntimeClasses).
func DefaultMicroVMClasses() []string {
	return []string{
		"kata", "kata-clh", "kata-cloud-hypervisor", "kata-dragonball", "kata-fc", "kata-mshv-vm-isolation",
		"kata-qemu", "kata-qemu-snp", "kata-qemu-tdx",
	}
}

// startDaemon gives the daemon a file system of its own, in a sparse file, and starts it. The volume itself would not do: a
// microVM shares it with the node, and the layers of images cannot lie on such a file system. The file is a little smaller
// than the volume may become, so that a daemon that fills it reports a full disk to the job, where its node would evict the
// whole runner. A restarted daemon finds what it had.
const startDaemon = `set -eu
disk=` + mountDisk + `/disk
if [ ! -e "$disk" ]; then
  truncate -s "$1" "$disk.new"
  mkfs.ext4 -q -F -m 0 "$disk.new"
  mv "$disk.new" "$disk"
fi
shift
mkdir -p /var/lib/docker
mount -o loop "$disk" /var/lib/docker
exec dockerd-entrypoint.sh "$@"`

// diskSlack is what the file system's own bookkeeping may take beside the file.
const diskSlack = 64 << 20

func (o Options) microVM(class *string) bool {
	classes := o.MicroVMClasses
	if classes == nil {
		classes = DefaultMicroVMClasses()
	}
	return class != nil && slices.Contains(classes, *class)
}

// checkPrivileges keeps everything that allows an escape from a container out of pods that share their node's
// kernel (NET-7).
func checkPrivileges(pool *v1alpha1.RunnerPool, options Options) error {
	template := &pool.Spec.Template
	if template.Dind != nil && pool.Spec.Platform != v1alpha1.PlatformLinux {
		return refuse("spec.template.dind is for platform linux: remove it")
	}
	if options.microVM(template.RuntimeClassName) { // NET-7
		return checkSocketMounts(template)
	}
	const wayOut = "set spec.template.runtimeClassName to a runtime class that runs each pod in a microVM (listed in the controller's --microvm-runtime-classes)"
	if template.Dind != nil {
		return refuse("spec.template.dind runs a privileged container, and runtime class %q is not a known class of microVMs: %s, or remove dind", // NET-7
			ptr.Deref(template.RuntimeClassName, ""), wayOut)
	}
	for _, v := range template.Volumes {
		if v.HostPath != nil {
			return refuse("volume %q is a hostPath, through which a job could reach the node: use an emptyDir or a claim, or %s", v.Name, wayOut) // NET-7
		}
	}
	return checkSecurity(template.SecurityContext, wayOut) // NET-7
}

// checkSocketMounts keeps the template's mounts from hiding the daemon's socket.
func checkSocketMounts(template *v1alpha1.RunnerTemplate) error {
	if template.Dind == nil {
		return nil
	}
	for _, m := range template.VolumeMounts {
		if at := path.Clean(m.MountPath); at == mountSocket || at == "/run" || at == "/var" {
			return refuse("the mount at %s would hide the Docker socket of spec.template.dind at %s; mount it elsewhere", m.MountPath, mountSocket)
		}
	}
	return nil
}

// dindDefaults fills in what the API server would have.
func dindDefaults(dind *v1alpha1.Dind) v1alpha1.Dind {
	filled := *dind
	if filled.Image == "" {
		filled.Image = DefaultDindImage
	}
	if filled.Storage == nil {
		filled.Storage = ptr.To(resource.MustParse(DefaultDindStorage))
	}
	return filled
}

// addDind gives the pod a Docker daemon: a sidecar that is up before the runner starts and ends after it. It has the
// jobs' work directory at the runner's own path, because the runner asks the daemon to mount parts of it into the
// containers of a job. It has no token (NET-3), and is privileged, inside the pod's own virtual machine (NET-7).
func addDind(spec *corev1.PodSpec, pool *v1alpha1.RunnerPool, template *v1alpha1.RunnerTemplate) {
	dind := dindDefaults(template.Dind)
	socket := corev1.VolumeMount{Name: volumeSocket, MountPath: mountSocket}
	spec.SecurityContext.SupplementalGroups = append(spec.SecurityContext.SupplementalGroups, dockerGroup)
	spec.Volumes = append(spec.Volumes,
		corev1.Volume{Name: volumeDocker, VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{SizeLimit: ptr.To(dind.Storage.DeepCopy())}}},
		corev1.Volume{Name: volumeSocket, VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}},
	)
	sidecar := dindContainer(dind, shapeOf(pool))
	work, own := workMount(template)
	sidecar.VolumeMounts = append(sidecar.VolumeMounts, socket, work)
	if externals, ok := externalsContainer(template.Image, template.Command, template.AgentResources); ok {
		spec.Volumes = append(spec.Volumes, corev1.Volume{Name: volumeExternals, VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}})
		sidecar.VolumeMounts = append(sidecar.VolumeMounts, corev1.VolumeMount{Name: volumeExternals, MountPath: runnerExternals})
		spec.InitContainers = append(spec.InitContainers, externals)
	}
	spec.InitContainers = append(spec.InitContainers, sidecar)
	for i := range spec.Containers {
		if c := &spec.Containers[i]; c.Name == ContainerRunner {
			c.VolumeMounts = append(c.VolumeMounts, socket)
			if !own {
				c.VolumeMounts = append(c.VolumeMounts, work)
			}
			c.Env = append([]corev1.EnvVar{{Name: "DOCKER_HOST", Value: dockerSocket}}, c.Env...) // the template's own wins
		}
	}
}

// workMount is the mount of the work directory of GitHub's runner: configurations name it relative to the runner's own. own
// says that it is the template's, which the daemon then shares.
func workMount(template *v1alpha1.RunnerTemplate) (mount corev1.VolumeMount, own bool) {
	at := path.Join(runnerHome, DefaultWorkFolder)
	for _, m := range template.VolumeMounts {
		if path.Clean(m.MountPath) == at {
			return m, true
		}
	}
	return corev1.VolumeMount{Name: VolumeWork, MountPath: at}, false
}

func dindContainer(dind v1alpha1.Dind, runner corev1.ResourceList) corev1.Container {
	return corev1.Container{
		Name:  ContainerDind,
		Image: dind.Image,
		Command: []string{
			"sh", "-c", startDaemon, ContainerDind, strconv.FormatInt(dind.Storage.Value()-diskSlack, 10),
			"dockerd", "--host=" + dockerSocket, "--group=" + strconv.Itoa(dockerGroup),
		},
		Resources:     daemonResources(runner, dind.Resources), // POD-1
		RestartPolicy: ptr.To(corev1.ContainerRestartPolicyAlways),
		SecurityContext: &corev1.SecurityContext{
			Privileged: ptr.To(true), // NET-7
			RunAsUser:  ptr.To[int64](0),
		},
		StartupProbe: &corev1.Probe{
			ProbeHandler:     corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{"docker", "--host=" + dockerSocket, "version"}}},
			PeriodSeconds:    1,
			TimeoutSeconds:   5,
			FailureThreshold: dindStartLimit,
		},
		VolumeMounts: []corev1.VolumeMount{
			{Name: volumeDocker, MountPath: mountDisk},
			{Name: VolumeWork, MountPath: MountWork},
		},
	}
}

// externalsContainer copies the runner's own Node.js out of its image. Jobs in containers have it mounted, by the daemon,
// which sees its own files and not the runner's. Where a runner that is started by another command keeps it is unknown.
func externalsContainer(image string, command []string, resources *v1alpha1.ContainerResources) (corev1.Container, bool) {
	if len(command) > 0 && !strings.HasPrefix(command[0], runnerHome+"/") {
		return corev1.Container{}, false
	}
	return corev1.Container{
		Name:            ContainerExternals,
		Image:           image,
		Command:         []string{"cp", "-r", runnerExternals + "/.", mountCopy},
		Resources:       agentResources(resources), // POD-1
		SecurityContext: noPrivileges(),
		VolumeMounts:    []corev1.VolumeMount{{Name: volumeExternals, MountPath: mountCopy}},
	}, true
}
