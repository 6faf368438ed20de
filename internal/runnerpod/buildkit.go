package runnerpod

import (
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"

	"github.com/bullpen-ci/bullpen/api/v1alpha1"
	"github.com/bullpen-ci/bullpen/internal/jobcontainer"
	"github.com/bullpen-ci/bullpen/internal/runnerpod/podenv"
)

// The defaults of BuildKit's fields, for pools that were made without the API server's defaulting.
const (
	DefaultBuildKitImage   = "moby/buildkit:v0.34.2"
	DefaultBuildKitStorage = "20Gi"
)

const (
	volumeBuildKit = "bullpen-buildkit" // the daemon's layers and cache
	mountBuildKit  = "/var/lib/buildkit"

	buildKitAddress = "unix://" + jobcontainer.BuildKitSocket
)

// checkBuild refuses a pool whose runners could not have a BuildKit daemon.
func checkBuild(pool *v1alpha1.RunnerPool) error {
	template := &pool.Spec.Template
	switch {
	case template.Build == "" && template.BuildKit != nil:
		return refuse("spec.template.buildKit has an effect with spec.template.build: BuildKit only: set build, or remove buildKit")
	case template.Build == "":
		return nil
	case template.Build != v1alpha1.BuildWithBuildKit:
		return refuse("spec.template.build is %q, but must be BuildKit", template.Build)
	case pool.Spec.Platform != v1alpha1.PlatformLinux:
		return refuse("spec.template.build is for platform linux: remove it")
	case template.Dind != nil:
		return refuse("spec.template.build and spec.template.dind exclude each other, because a Docker daemon builds images itself: remove one of them")
	}
	for _, m := range template.VolumeMounts {
		if overlaps(m.MountPath, jobcontainer.Dir) {
			return refuse("the mount at %s overlaps the pod's own at %s; mount it elsewhere", m.MountPath, jobcontainer.Dir)
		}
	}
	if template.BuildKit == nil {
		return nil
	}
	return checkResources("spec.template.buildKit.resources", template.BuildKit.Resources)
}

// buildKitDefaults fills in what the API server would have.
func buildKitDefaults(given *v1alpha1.BuildKit) *v1alpha1.BuildKit {
	filled := ptr.Deref(given.DeepCopy(), v1alpha1.BuildKit{})
	if filled.Image == "" {
		filled.Image = DefaultBuildKitImage
	}
	if filled.Storage == nil {
		filled.Storage = ptr.To(resource.MustParse(DefaultBuildKitStorage))
	}
	return &filled
}

// addBuildKit gives the pod a BuildKit daemon, and a user namespace: what the daemon may do, it may in this namespace alone (NET-7). A
// microVM confines it by itself, and few run pods with user namespaces.
//
// It is a container like the others, and no sidecar: its first process waits for the first use of the daemon, so that an idle runner costs
// neither the daemon's memory nor its start, and ends with the runner (JOB-2).
func addBuildKit(spec *corev1.PodSpec, pool *v1alpha1.RunnerPool, options Options) {
	template := &pool.Spec.Template
	microVM := options.microVM(template.RuntimeClassName)
	if !microVM {
		spec.HostUsers = ptr.To(false) // NET-7
	}
	kit := buildKitDefaults(template.BuildKit)
	spec.Volumes = append(spec.Volumes, corev1.Volume{Name: volumeBuildKit, VolumeSource: corev1.VolumeSource{
		EmptyDir: &corev1.EmptyDirVolumeSource{SizeLimit: ptr.To(kit.Storage.DeepCopy())},
	}})
	job := corev1.VolumeMount{Name: VolumeJob, MountPath: jobcontainer.Dir}
	alone := template.JobContainers == nil // otherwise addJobContainers does the same
	if alone {
		spec.Volumes = append(spec.Volumes, corev1.Volume{Name: VolumeJob, VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}})
	}
	for i := range spec.InitContainers {
		if c := &spec.InitContainers[i]; c.Name == ContainerAgent {
			c.Command = append(c.Command, "--buildx-config", jobcontainer.BuildxConfig, "--buildkit-host", buildKitAddress)
			if alone {
				c.VolumeMounts = append(c.VolumeMounts, job)
			}
		}
	}
	for i := range spec.Containers {
		c := &spec.Containers[i]
		if c.Name != ContainerRunner {
			continue
		}
		env := []corev1.EnvVar{
			{Name: "BUILDKIT_HOST", Value: buildKitAddress}, // of buildctl, and of "docker buildx create --driver remote"
			{Name: "BUILDX_CONFIG", Value: jobcontainer.BuildxConfig},
			{Name: podenv.AwaitSocket, Value: jobcontainer.BuildKitSocket},
			{Name: "BUILDX_BUILDER", Value: jobcontainer.BuildxBuilder}, // without it, docker build asks for a Docker daemon
		}
		if alone {
			env = append(env, corev1.EnvVar{Name: podenv.JobDir, Value: jobcontainer.Dir})
			c.VolumeMounts = append(c.VolumeMounts, job)
		}
		c.Env = append(env, c.Env...) // the template's own win
	}
	spec.Containers = append(spec.Containers, buildKitContainer(kit, shapeOf(pool), microVM))
}

// buildKitContainer runs the daemon as root of the pod's user namespace. Of all that its node has, this root may mount file systems that
// Linux lets user namespaces mount, and nothing more: mounting layers is what builders need SYS_ADMIN for. The seccomp profile stays the
// container runtime's. It has no token (NET-3), and what it runs comes from the shared volume, which it cannot write to.
func buildKitContainer(kit *v1alpha1.BuildKit, runner corev1.ResourceList, microVM bool) corev1.Container {
	command := []string{agentBinary, "buildkit", "--storage", strconv.FormatInt(kit.Storage.Value(), 10)}
	if microVM {
		command = append(command, "--host-users")
	}
	return corev1.Container{
		Name:      ContainerBuildKit,
		Image:     kit.Image,
		Command:   command,
		Resources: daemonResources(runner, kit.Resources), // POD-1
		// What keeps it from starting is in its log, and with this in the pod's status.
		TerminationMessagePolicy: corev1.TerminationMessageFallbackToLogsOnError,
		SecurityContext: &corev1.SecurityContext{
			RunAsUser:       ptr.To[int64](0),
			RunAsGroup:      ptr.To[int64](0),
			RunAsNonRoot:    ptr.To(false),
			Capabilities:    &corev1.Capabilities{Add: []corev1.Capability{"SYS_ADMIN"}},
			SeccompProfile:  runtimeProfile(),
			AppArmorProfile: &corev1.AppArmorProfile{Type: corev1.AppArmorProfileTypeUnconfined}, // the runtime's own refuses every mount
		},
		VolumeMounts: []corev1.VolumeMount{
			{Name: VolumeShared, MountPath: MountShared, ReadOnly: true},
			{Name: VolumeJob, MountPath: jobcontainer.Dir},
			{Name: volumeBuildKit, MountPath: mountBuildKit},
		},
	}
}
