package runnerpod

import (
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/component-helpers/resource"
	"k8s.io/utils/ptr"

	"github.com/bullpen-ci/bullpen/api/v1alpha1"
	"github.com/bullpen-ci/bullpen/internal/jobcontainer"
	"github.com/bullpen-ci/bullpen/internal/jobcontainer/courier"
	"github.com/bullpen-ci/bullpen/internal/jobcontainer/imagename"
	"github.com/bullpen-ci/bullpen/internal/jobcontainer/letter"
	"github.com/bullpen-ci/bullpen/internal/runnerpod/podenv"
)

// Volumes of a pod whose job may have containers. They share VolumeWork and VolumeExternals with their runner as well.
const (
	VolumeJob     = "bullpen-job"     // sockets and the lock
	VolumeGuard   = "bullpen-guard"   // the agent's binary of the job's containers and of BuildKit's; no job can write to it
	VolumeCourier = "bullpen-courier" // requests and responses; in the runner and in couriers alone
	VolumeGitHub  = "bullpen-github"  // /github
	VolumeShm     = "bullpen-shm"     // /dev/shm, if it has a size of its own

	VolumeExternals = volumeExternals
)

// ContainerHook is the file by which GitHub's runner calls the agent for a job's containers. The agent writes it.
const ContainerHook = MountShared + "/container-hook.sh"

// envContainerHooks is GitHub's (Constants.cs of actions/runner).
const envContainerHooks = "ACTIONS_RUNNER_CONTAINER_HOOKS"

// PullSecret is the name of the Secret with the credentials that images of a pod's job are pulled with. Pods name it from their beginning,
// because that cannot change; the controller makes and fills it.
func PullSecret(pod string) string { return pod + "-pull" }

// PullSecretOf returns the name of the pull Secret of a pod. For the pod of a Runner it contains the Runner's UID: users choose the names of Runners, and
// with a name alone the controller could overwrite an existing Secret.
func PullSecretOf(pod *corev1.Pod) string {
	if owner := metav1.GetControllerOfNoCopy(pod); owner != nil && pod.Labels[LabelSelfRegistering] == "true" {
		return registeredPullSecret(pod.Name, owner.UID)
	}
	return PullSecret(pod.Name)
}

func registeredPullSecret(pod string, owner types.UID) string {
	return PullSecret(pod + "-" + string(owner))
}

// checkJobContainers refuses a pool whose pods could not have them, or not be bounded with them (JOB-5).
func checkJobContainers(pool *v1alpha1.RunnerPool, options Options) error {
	template := &pool.Spec.Template
	switch {
	case template.JobContainers == nil:
		return nil
	case pool.Spec.Platform == v1alpha1.PlatformMacOS:
		return refuse("spec.template.jobContainers is for platform linux: remove it")
	case template.Dind != nil:
		return refuse("spec.template.jobContainers and spec.template.dind exclude each other: remove one of them")
	case options.JobContainersKey == "":
		return refuse("spec.template.jobContainers is set, and the controller runs without --job-containers: " +
			"install the chart with jobContainers.enabled=true, or remove jobContainers from the pool")
	}
	if err := checkPermitted("spec.template.jobContainers", template.JobContainers); err != nil {
		return err
	}
	if err := checkJobMounts(template.VolumeMounts); err != nil {
		return err
	}
	for _, e := range template.Env {
		if e.Name == envContainerHooks {
			return refuse("variable %s contradicts spec.template.jobContainers: remove one of them", envContainerHooks)
		}
	}
	return nil
}

// checkPermitted refuses patterns and registries that cannot be read, at a field of that path. Otherwise a job would be the first to meet them.
func checkPermitted(field string, containers *v1alpha1.JobContainers) error {
	if size := containers.ShmSize; size != nil && size.Value() < jobcontainer.DefaultShm {
		return refuse("%s.shmSize is %s, but must be at least 64Mi: raise it, or remove it", field, size.String())
	}
	if _, err := imagename.ParsePolicy(containers.AllowedImages, containers.Registries); err != nil {
		return refuse("%s is invalid: %s", field, strings.ReplaceAll(err.Error(), "\n", "; "))
	}
	return nil
}

// checkJobMounts refuses mounts of the runner that would hide those of jobMounts.
func checkJobMounts(mounts []corev1.VolumeMount) error {
	for _, m := range mounts {
		for _, ours := range jobMounts {
			if overlaps(m.MountPath, ours) {
				return refuse("the mount at %s overlaps the pod's own at %s; mount it elsewhere", m.MountPath, ours)
			}
		}
	}
	return nil
}

// jobMounts are the paths of the runner's container that a template's own mounts may not hide.
var jobMounts = []string{jobcontainer.Dir, courier.Dir, jobcontainer.GitHubDir, jobcontainer.RunnerWorkDir}

// addJobContainers prepares a pod for ephemeral containers, in which nothing but an image can be chosen later: with volumes, and the
// container that carries the first request.
func addJobContainers(spec *corev1.PodSpec, pool *v1alpha1.RunnerPool, options Options) {
	template := pool.Spec.Template.DeepCopy()
	for _, volume := range []string{VolumeJob, VolumeGuard, VolumeCourier, VolumeGitHub, VolumeExternals} {
		spec.Volumes = append(spec.Volumes, emptyVolume(volume))
	}
	spec.Volumes = append(spec.Volumes, shmVolume(template.JobContainers)...)
	// Files of the runner and of a container are each other's by this group, with jobcontainer.Umask, whichever user a container has.
	if template.UserAssignment != v1alpha1.UserFromCluster && runAsUser(template) != 0 {
		spec.SecurityContext.FSGroup = ptr.To(runAsUser(template))
	}
	installHook(named(spec.InitContainers, ContainerAgent))
	if externals, ok := externalsContainer(template.Image, template.Command, template.AgentResources); ok {
		spec.InitContainers = append(spec.InitContainers, externals)
	}
	runner := named(spec.Containers, ContainerRunner)
	runner.VolumeMounts = append(runner.VolumeMounts, runnerMounts()...)
	runner.Env = append(hookEnv(shapeOf(pool), template.JobContainers, options), runner.Env...)
	spec.Containers = append(spec.Containers, courierContainer(options, template.AgentResources))
	limitCourier(spec)
}

// installHook has the agent's init container write the hook, and its own binary for the containers of the job.
func installHook(agent *corev1.Container) {
	agent.Command = append(agent.Command, "--container-hook", ContainerHook, jobcontainer.Binary)
	agent.VolumeMounts = append(agent.VolumeMounts, jobMount(), guardMount(false))
}

// runnerMounts are what the runner shares with the containers of its job. The work directory is where GitHub's runner has it, with
// the tool cache in it: the runner names that by its path in the work directory (ContainerInfo.cs of actions/runner).
func runnerMounts() []corev1.VolumeMount {
	return []corev1.VolumeMount{
		jobMount(),
		{Name: VolumeCourier, MountPath: courier.Dir},
		{Name: VolumeGitHub, MountPath: jobcontainer.GitHubDir},
		{Name: VolumeWork, MountPath: jobcontainer.RunnerWorkDir},
	}
}

// hookEnv is for a runner with those limits.
func hookEnv(limits corev1.ResourceList, containers *v1alpha1.JobContainers, options Options) []corev1.EnvVar {
	env := []corev1.EnvVar{
		{Name: podenv.JobDir, Value: jobcontainer.Dir},
		{Name: podenv.Resources, Value: limits.Cpu().String() + " CPU, " + limits.Memory().String()},
		{Name: courier.EnvPublicKey, Value: options.JobContainersKey},
		{Name: envContainerHooks, Value: ContainerHook},
	}
	if containers.SecurityProfile == v1alpha1.ProfileRestricted {
		env = append(env, corev1.EnvVar{Name: podenv.JobProfile, Value: string(v1alpha1.ProfileRestricted)})
	}
	if size := containers.ShmSize; size != nil {
		env = append(env, corev1.EnvVar{Name: podenv.ShmSize, Value: strconv.FormatInt(size.Value(), 10)})
	}
	return env
}

// shmVolume is memory of the containers that write there, so their pod's limit counts it (JOB-5).
func shmVolume(containers *v1alpha1.JobContainers) []corev1.Volume {
	if containers.ShmSize == nil {
		return nil
	}
	memory := &corev1.EmptyDirVolumeSource{Medium: corev1.StorageMediumMemory, SizeLimit: ptr.To(containers.ShmSize.DeepCopy())}
	return []corev1.Volume{{Name: VolumeShm, VolumeSource: corev1.VolumeSource{EmptyDir: memory}}}
}

// limitCourier says how much of a request the first courier may carry: containers of a pod share the size of its termination messages.
func limitCourier(spec *corev1.PodSpec) {
	first := named(spec.Containers, ContainerCourier)
	first.Command = append(first.Command, argLimit, strconv.Itoa(letter.Limit(len(spec.InitContainers)+len(spec.Containers))))
}

// argLimit is an argument of the courier.
const argLimit = "--limit"

// courierContainer runs the binary of its own image, which needs no volume.
func courierContainer(options Options, resources *v1alpha1.ContainerResources) corev1.Container {
	return corev1.Container{
		Name:            ContainerCourier,
		Image:           options.AgentImage,
		Command:         []string{options.agentCommand(), "courier"},
		Resources:       agentResources(resources), // POD-1
		SecurityContext: noPrivileges(),
		VolumeMounts:    CourierMounts(),
	}
}

// CourierMounts are those of every courier.
func CourierMounts() []corev1.VolumeMount {
	return []corev1.VolumeMount{
		{Name: VolumeCourier, MountPath: courier.Dir},
		{Name: VolumeJob, MountPath: jobcontainer.Dir, ReadOnly: true}, // for the lock
	}
}

// JobMounts are those of every container of a job (JOB-1), in a pod with these volumes. The externals are the runner's.
func JobMounts(volumes []corev1.Volume) []corev1.VolumeMount {
	mounts := append(sharedMounts(), guardMount(true))
	if slices.ContainsFunc(volumes, func(v corev1.Volume) bool { return v.Name == VolumeShm }) {
		mounts = append(mounts, corev1.VolumeMount{Name: VolumeShm, MountPath: "/dev/shm"})
	}
	return mounts
}

// sharedMounts are those of the containers of a job in every pod.
func sharedMounts() []corev1.VolumeMount {
	return []corev1.VolumeMount{
		{Name: VolumeJob, MountPath: jobcontainer.Dir},
		{Name: VolumeWork, MountPath: jobcontainer.WorkDir},
		{Name: VolumeGitHub, MountPath: jobcontainer.GitHubDir},
		{Name: VolumeExternals, MountPath: jobcontainer.ExternalsDir, ReadOnly: true},
	}
}

// checkShm refuses a size that containers would not have: a kubelet gives a volume in memory at most its pod's limit (calculateEmptyDirMemorySize in
// pkg/volume/emptydir/empty_dir.go of Kubernetes 1.36).
func checkShm(field string, spec *corev1.PodSpec, containers *v1alpha1.JobContainers) error {
	limits := resource.PodLimits(&corev1.Pod{Spec: *spec}, resource.PodResourcesOptions{})
	size, limit := containers.ShmSize, limits[corev1.ResourceMemory]
	if size != nil && size.Cmp(limit) > 0 {
		return refuse("%s.shmSize is %s, and the memory limit of the pod is %s, which /dev/shm counts towards: lower it, or raise the limit", field, size.String(), limit.String())
	}
	return nil
}

// checkBounded refuses a pod in which a container has no limit: its cgroup would have none, and a container of a job, which can have none
// of its own, could take the whole node (JOB-5).
func checkBounded(spec *corev1.PodSpec) error {
	if name, missing := Unbounded(spec); name != "" {
		return refuse("spec.template.jobContainers requires a limit for each container, and container %s has none for %s: set it in spec.template.agentResources.limits",
			name, missing)
	}
	return nil
}

// Unbounded names a container without a limit, if that leaves the pod without one; empty: the pod is limited. A kubelet limits a pod only if each of its
// containers is limited, or the pod is (ResourceConfigForPod in pkg/kubelet/cm/helpers_linux.go of Kubernetes 1.36).
func Unbounded(spec *corev1.PodSpec) (container string, resource corev1.ResourceName) {
	for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
		if r := spec.Resources; r != nil && limited(r.Limits, name) {
			continue
		}
		for _, list := range [][]corev1.Container{spec.InitContainers, spec.Containers} {
			for i := range list {
				if !limited(list[i].Resources.Limits, name) {
					return list[i].Name, name
				}
			}
		}
	}
	return "", ""
}

func limited(limits corev1.ResourceList, name corev1.ResourceName) bool {
	limit := limits[name]
	return limit.Sign() > 0
}
