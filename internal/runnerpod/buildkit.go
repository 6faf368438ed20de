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

// buildInMicroVM says what to do. Outside of a user namespace BuildKit has its steps make cgroups, which a container that is not privileged
// cannot, and a microVM shares the volume of the layers with the node in a way that overlays cannot be on.
const buildInMicroVM = "use dind there, whose Docker daemon builds images, or remove runtimeClassName"

// checkBuild refuses a pool whose runners could not have a BuildKit daemon.
func checkBuild(pool *v1alpha1.RunnerPool, options Options) error {
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
	if options.microVM(template.RuntimeClassName) {
		return refuse("spec.template.build gives the pod a user namespace, which pods in microVMs do not have: " + buildInMicroVM) // NET-7
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

// addBuildKit gives the pod a BuildKit daemon, and a user namespace: what the daemon may do, it may in this namespace alone (NET-7).
//
// It is a container like the others, and no sidecar: its first process waits for the first use of the daemon, so that an idle runner costs
// neither the daemon's memory nor its start, and ends with the runner (JOB-2).
func addBuildKit(spec *corev1.PodSpec, pool *v1alpha1.RunnerPool) {
	template := &pool.Spec.Template
	spec.HostUsers = ptr.To(false) // NET-7
	kit := buildKitDefaults(template.BuildKit)
	spec.Volumes = append(spec.Volumes, buildKitVolume(kit))
	alone := template.JobContainers == nil // otherwise addJobContainers does the same
	if alone {
		spec.Volumes = append(spec.Volumes, emptyVolume(VolumeJob), emptyVolume(VolumeGuard))
	}
	installBuilder(named(spec.InitContainers, ContainerAgent), alone)
	runner := named(spec.Containers, ContainerRunner)
	env := append(buildKitEnv(), corev1.EnvVar{Name: podenv.AwaitSocket, Value: jobcontainer.BuildKitSocket})
	if alone {
		env = append(env, corev1.EnvVar{Name: podenv.JobDir, Value: jobcontainer.Dir})
		runner.VolumeMounts = append(runner.VolumeMounts, jobMount())
	}
	runner.Env = append(env, runner.Env...) // the template's own win
	spec.Containers = append(spec.Containers, buildKitContainer(kit, shapeOf(pool)))
	if !alone {
		joinActions(&spec.Containers[len(spec.Containers)-1])
	}
}

// addBuildKit does the same for a runner that registers itself. additions.add gives the pod its user namespace.
func (r *Registered) addBuildKit(a *additions, runner *corev1.Container) {
	kit := buildKitDefaults(r.Spec.BuildKit)
	daemon := buildKitContainer(kit, runner.Resources.Limits)
	a.volumes = append(a.volumes, buildKitVolume(kit))
	alone := r.Spec.JobContainers == nil // otherwise addJobContainers does the same
	installBuilder(named(a.first, ContainerAgent), alone)
	a.absent = append(a.absent, buildKitEnv()...)
	a.set = append(a.set, corev1.EnvVar{Name: podenv.AwaitSocket, Value: jobcontainer.BuildKitSocket})
	if alone {
		a.volumes, a.mounts = append(a.volumes, emptyVolume(VolumeJob), emptyVolume(VolumeGuard)), append(a.mounts, jobMount())
		a.set = append(a.set, corev1.EnvVar{Name: podenv.JobDir, Value: jobcontainer.Dir})
	} else {
		joinActions(&daemon)
	}
	a.beside = append(a.beside, daemon)
	a.ownUsers = true
}

// joinActions lets containers of actions with a Dockerfile run in BuildKit's container: with the mounts of the job's other containers (JOB-1), except
// for /dev/shm, of which those containers have one each.
func joinActions(kit *corev1.Container) {
	kit.Command = append(kit.Command, "--actions-socket", jobcontainer.ActionsSocket)
	for _, mount := range sharedMounts() {
		if mount.Name != VolumeJob { // which it has
			kit.VolumeMounts = append(kit.VolumeMounts, mount)
		}
	}
}

func buildKitVolume(kit *v1alpha1.BuildKit) corev1.Volume {
	return corev1.Volume{Name: volumeBuildKit, VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{SizeLimit: ptr.To(kit.Storage.DeepCopy())}}}
}

func emptyVolume(name string) corev1.Volume {
	return corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}
}

func jobMount() corev1.VolumeMount {
	return corev1.VolumeMount{Name: VolumeJob, MountPath: jobcontainer.Dir}
}

// guardMount is that of the container that writes the volume, or of those that run what is in it.
func guardMount(readOnly bool) corev1.VolumeMount {
	return corev1.VolumeMount{Name: VolumeGuard, MountPath: jobcontainer.GuardDir, ReadOnly: readOnly}
}

// installBuilder has the agent's init container write the configuration of docker buildx and, if no hook is installed, its own binary for BuildKit.
func installBuilder(agent *corev1.Container, alone bool) {
	agent.Command = append(agent.Command, "--buildx-config", jobcontainer.BuildxConfig, "--buildkit-host", buildKitAddress)
	if alone {
		agent.Command = append(agent.Command, jobcontainer.Binary)
		agent.VolumeMounts = append(agent.VolumeMounts, jobMount(), guardMount(false))
	}
}

// buildKitEnv is how the clients in a runner's container find the daemon.
func buildKitEnv() []corev1.EnvVar {
	return []corev1.EnvVar{
		{Name: "BUILDKIT_HOST", Value: buildKitAddress}, // of buildctl, and of "docker buildx create --driver remote"
		{Name: "BUILDX_CONFIG", Value: jobcontainer.BuildxConfig},
		{Name: "BUILDX_BUILDER", Value: jobcontainer.BuildxBuilder}, // without it, docker build asks for a Docker daemon
	}
}

// buildKitContainer runs the daemon as root of the pod's user namespace. Of all that its node has, this root may mount file systems that
// Linux lets user namespaces mount, and nothing more: mounting layers is what builders need SYS_ADMIN for. The seccomp profile and the
// other capabilities stay the container runtime's. It has no token (NET-3). Its program is one that jobs cannot write to: it would run with more
// rights than a job has.
func buildKitContainer(kit *v1alpha1.BuildKit, runner corev1.ResourceList) corev1.Container {
	return corev1.Container{
		Name:      ContainerBuildKit,
		Image:     kit.Image,
		Command:   []string{jobcontainer.Binary, "buildkit", "--storage", strconv.FormatInt(kit.Storage.Value(), 10)},
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
			guardMount(true),
			jobMount(),
			{Name: volumeBuildKit, MountPath: mountBuildKit},
		},
	}
}
