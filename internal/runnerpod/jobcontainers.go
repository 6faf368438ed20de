package runnerpod

import (
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/bullpen-ci/bullpen/api/v1alpha1"
	"github.com/bullpen-ci/bullpen/internal/jobcontainer"
	"github.com/bullpen-ci/bullpen/internal/jobcontainer/courier"
	"github.com/bullpen-ci/bullpen/internal/jobcontainer/letter"
	"github.com/bullpen-ci/bullpen/internal/runnerpod/podenv"
)

// Volumes of a pod whose job may have containers. They share VolumeWork and VolumeExternals with their runner as well.
const (
	VolumeJob     = "bullpen-job"     // sockets, the lock and the agent's binary of the job's containers
	VolumeCourier = "bullpen-courier" // requests and responses; in the runner and in couriers alone
	VolumeGitHub  = "bullpen-github"  // /github

	VolumeExternals = volumeExternals
)

// ContainerHook is the file by which GitHub's runner calls the agent for a job's containers. The agent writes it.
const ContainerHook = MountShared + "/container-hook.sh"

// envContainerHooks is GitHub's (Constants.cs of actions/runner).
const envContainerHooks = "ACTIONS_RUNNER_CONTAINER_HOOKS"

// PullSecret is the name of the Secret with the credentials that images of a pod's job are pulled with. Pods name it from their beginning,
// because that cannot change; the controller makes and fills it.
func PullSecret(pod string) string { return pod + "-pull" }

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
	for _, m := range template.VolumeMounts {
		for _, ours := range jobMounts {
			if overlaps(m.MountPath, ours) {
				return refuse("the mount at %s overlaps the pod's own at %s; mount it elsewhere", m.MountPath, ours)
			}
		}
	}
	for _, e := range template.Env {
		if e.Name == envContainerHooks {
			return refuse("variable %s contradicts spec.template.jobContainers: remove one of them", envContainerHooks)
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
	for _, volume := range []string{VolumeJob, VolumeCourier, VolumeGitHub, VolumeExternals} {
		spec.Volumes = append(spec.Volumes, corev1.Volume{Name: volume, VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}})
	}
	// Files of the runner and of a container are each other's by this group, with jobcontainer.Umask, whichever user a container has.
	if template.UserAssignment != v1alpha1.UserFromCluster && runAsUser(template) != 0 {
		spec.SecurityContext.FSGroup = ptr.To(runAsUser(template))
	}
	for i := range spec.InitContainers {
		if c := &spec.InitContainers[i]; c.Name == ContainerAgent {
			c.Command = append(c.Command, "--container-hook", ContainerHook, jobcontainer.Binary)
			c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: VolumeJob, MountPath: jobcontainer.Dir})
		}
	}
	if externals, ok := externalsContainer(template.Image, template.Command, template.AgentResources); ok {
		spec.InitContainers = append(spec.InitContainers, externals)
	}
	for i := range spec.Containers {
		if c := &spec.Containers[i]; c.Name == ContainerRunner {
			joinJob(c, pool, options)
		}
	}
	spec.Containers = append(spec.Containers, courierContainer(options, template.AgentResources))
	first := &spec.Containers[len(spec.Containers)-1]
	first.Command = append(first.Command, "--limit", strconv.Itoa(letter.Limit(len(spec.InitContainers)+len(spec.Containers))))
}

// joinJob gives the runner what it shares with the containers of its job. The work directory is where GitHub's runner has it, with
// the tool cache in it: the runner names that by its path in the work directory (ContainerInfo.cs of actions/runner).
func joinJob(runner *corev1.Container, pool *v1alpha1.RunnerPool, options Options) {
	runner.VolumeMounts = append(runner.VolumeMounts,
		corev1.VolumeMount{Name: VolumeJob, MountPath: jobcontainer.Dir},
		corev1.VolumeMount{Name: VolumeCourier, MountPath: courier.Dir},
		corev1.VolumeMount{Name: VolumeGitHub, MountPath: jobcontainer.GitHubDir},
		corev1.VolumeMount{Name: VolumeWork, MountPath: jobcontainer.RunnerWorkDir},
	)
	runner.Env = append([]corev1.EnvVar{
		{Name: podenv.JobDir, Value: jobcontainer.Dir},
		{Name: podenv.Resources, Value: pool.Spec.Resources.CPU.String() + " CPU, " + pool.Spec.Resources.Memory.String()},
		{Name: courier.EnvPublicKey, Value: options.JobContainersKey},
		{Name: envContainerHooks, Value: ContainerHook},
	}, runner.Env...)
}

// courierContainer runs the binary of its own image: the volume of the job's containers is theirs to change.
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

// JobMounts are those of every container of a job (JOB-1). The externals are the runner's.
func JobMounts() []corev1.VolumeMount {
	return []corev1.VolumeMount{
		{Name: VolumeJob, MountPath: jobcontainer.Dir},
		{Name: VolumeWork, MountPath: jobcontainer.WorkDir},
		{Name: VolumeGitHub, MountPath: jobcontainer.GitHubDir},
		{Name: VolumeExternals, MountPath: jobcontainer.ExternalsDir, ReadOnly: true},
	}
}

// checkBounded refuses a pod in which a container has no limit: its cgroup would have none, and a container of a job, which can have none
// of its own, could take the whole node (JOB-5). A kubelet limits a pod only if each of its containers is limited
// (ResourceConfigForPod in pkg/kubelet/cm/helpers_linux.go of Kubernetes 1.36).
func checkBounded(spec *corev1.PodSpec) error {
	for _, list := range [][]corev1.Container{spec.InitContainers, spec.Containers} {
		for i := range list {
			for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
				if limit := list[i].Resources.Limits[name]; limit.Sign() <= 0 {
					return refuse("spec.template.jobContainers requires a limit for each container, and container %s has none for %s: set it in spec.template.agentResources.limits",
						list[i].Name, name)
				}
			}
		}
	}
	return nil
}
