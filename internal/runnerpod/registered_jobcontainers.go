package runnerpod

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/bullpen-ci/bullpen/api/v1alpha1"
	"github.com/bullpen-ci/bullpen/internal/jobcontainer"
)

// addJobContainers prepares the pod of a self-registering runner for containers of its job, as addJobContainers does for pools.
func (r *Registered) addJobContainers(a *additions, spec *corev1.PodSpec, runner *corev1.Container, options Options) {
	for _, name := range []string{VolumeWork, VolumeJob, VolumeGuard, VolumeCourier, VolumeGitHub, VolumeExternals} {
		a.volumes = append(a.volumes, emptyVolume(name))
	}
	a.volumes = append(a.volumes, shmVolume(r.Spec.JobContainers)...)
	installHook(named(a.first, ContainerAgent))
	if externals, ok := externalsContainer(runner.Image, runner.Command, r.Spec.AgentResources); ok {
		externals.ImagePullPolicy = runner.ImagePullPolicy
		a.first = append(a.first, externals)
	}
	a.mounts = append(a.mounts, runnerMounts()...)
	limits := runner.Resources.Limits
	if spec.Resources != nil {
		limits = either(limits, spec.Resources.Limits)
	}
	a.set = append(a.set, append(hookEnv(limits, r.Spec.JobContainers, options), fieldEnv(EnvPodName, "metadata.name"))...)
	a.beside = append(a.beside, courierContainer(options, r.Spec.AgentResources))
	a.pull = PullSecret(r.Name)
	if len(r.Owners) > 0 {
		a.pull = registeredPullSecret(r.Name, r.Owners[0].UID)
	}
	a.pulls = r.PullSecrets
	a.user = ptr.To(jobUser(spec, runner))
	a.fsGroup = *a.user
}

// either is what a container may use: its own limits, or else its pod's.
func either(container, pod corev1.ResourceList) corev1.ResourceList {
	limits := corev1.ResourceList{}
	for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
		limits[name] = pod[name]
		if limited(container, name) {
			limits[name] = container[name]
		}
	}
	return limits
}

// jobUser is the user of the runner, as the template names it, or that of GitHub's image. The pod gets it: requests for containers, and the
// responses, are files of the runner and of the couriers, which have no user of their own.
func jobUser(spec *corev1.PodSpec, runner *corev1.Container) int64 {
	if s := runner.SecurityContext; s != nil && s.RunAsUser != nil {
		return *s.RunAsUser
	}
	if s := spec.SecurityContext; s != nil && s.RunAsUser != nil {
		return *s.RunAsUser
	}
	return DefaultRunAsUser
}

// checkJobUser refuses a template in which the user of the runner would become that of other containers, or cannot be that of the pod.
func checkJobUser(spec *corev1.PodSpec) error {
	runner := named(spec.Containers, ContainerRunner)
	user := jobUser(spec, runner)
	if s := spec.SecurityContext; user == 0 && s != nil && ptr.Deref(s.RunAsNonRoot, false) {
		return refuse("jobContainers gives the pod the user of the runner, which is root, and template.spec.securityContext.runAsNonRoot does not permit it: remove one of them")
	}
	if s := spec.SecurityContext; s != nil && s.RunAsUser != nil {
		if *s.RunAsUser != user {
			return refuse("jobContainers requires one user for the runner and its pod: container %s has runAsUser %d, and template.spec.securityContext has %d",
				ContainerRunner, user, *s.RunAsUser)
		}
		return nil
	}
	for _, list := range [][]corev1.Container{spec.InitContainers, spec.Containers} {
		for i := range list {
			if s := list[i].SecurityContext; list[i].Name != ContainerRunner && (s == nil || s.RunAsUser == nil) {
				return refuse("jobContainers gives the pod the user of the runner (%d), which would be that of container %s, too: "+
					"set runAsUser in the securityContext of the container, or in template.spec.securityContext", user, list[i].Name)
			}
		}
	}
	return nil
}

// unlimit undoes limitCourier, whose number depends on the pod's other containers.
func unlimit(containers []corev1.Container) {
	if c := named(containers, ContainerCourier); c != nil && len(c.Command) > 2 && c.Command[len(c.Command)-2] == argLimit {
		c.Command = c.Command[:len(c.Command)-2]
	}
}

// checkJobContainers refuses a template whose pods could not have containers of jobs. What is missing of limits is found when the pod is whole.
func (r *Registered) checkJobContainers(spec *corev1.PodSpec, options Options) error {
	if r.Spec.JobContainers == nil {
		return nil
	}
	switch {
	case r.Spec.ContainerMode != "" && r.Spec.ContainerMode != v1alpha1.ContainerModeNone:
		return refuse("jobContainers and containerMode %s exclude each other: remove one of them", r.Spec.ContainerMode)
	case !r.ephemeral():
		return refuse("jobContainers is for ephemeral runners, because a pod keeps the containers of a job until it ends: remove ephemeral: false, or jobContainers")
	case r.StatefulSet:
		return refuse("jobContainers is not for RunnerSets, because Kubernetes restarts the containers of their pods: use a RunnerDeployment")
	case options.JobContainersKey == "":
		return refuse("jobContainers is set, and the controller runs without --job-containers: " +
			"install the chart with jobContainers.enabled=true, or remove jobContainers")
	case ptr.Deref(spec.ShareProcessNamespace, false) || spec.HostPID:
		return refuse("template.spec.shareProcessNamespace and hostPID would let containers of a job reach the processes of others: remove them, or jobContainers") // JOB-1
	case r.workPath() != jobcontainer.RunnerWorkDir:
		return refuse("workFolder is %q, and the containers of jobs share %s with the runner: remove workFolder, or jobContainers", r.Spec.WorkFolder, DefaultWorkFolder)
	case r.Spec.JobContainers.SecurityProfile == v1alpha1.ProfileRestricted && jobUser(spec, named(spec.Containers, ContainerRunner)) == 0:
		return refuse("jobContainers.securityProfile Restricted does not permit root, and the runner has runAsUser 0: choose another user, or Baseline")
	}
	if err := checkPermitted("jobContainers", r.Spec.JobContainers); err != nil {
		return err
	}
	if err := checkJobMounts(named(spec.Containers, ContainerRunner).VolumeMounts); err != nil {
		return err
	}
	for _, list := range [][]corev1.Container{spec.InitContainers, spec.Containers} {
		for i := range list {
			if addedName(list[i].Name) {
				return refuse("container %q: with jobContainers such names are reserved for containers that are added for a job; choose another", list[i].Name)
			}
		}
	}
	if err := checkPodContext(spec.SecurityContext); err != nil {
		return err
	}
	return checkJobUser(spec)
}

// addedName reports whether a container that is added to the pod could have that name: names in a pod are unique.
func addedName(name string) bool {
	for _, prefix := range []string{ContainerCourier, "notice", "job", "service", "step"} {
		rest, found := strings.CutPrefix(name, prefix+"-")
		if found && strings.Trim(rest, "0123456789-") == "" {
			return true
		}
	}
	return false
}

// checkPodContext refuses what a container of a job would have of its pod: it may be root (JOB-1).
func checkPodContext(s *corev1.PodSecurityContext) error {
	const move = "would apply to containers of jobs as well: set it in the securityContext of the template's containers"
	switch {
	case s == nil:
		return nil
	case s.AppArmorProfile != nil && s.AppArmorProfile.Type == corev1.AppArmorProfileTypeUnconfined:
		return refuse("template.spec.securityContext.appArmorProfile Unconfined " + move)
	case s.SELinuxOptions != nil:
		return refuse("template.spec.securityContext.seLinuxOptions " + move)
	}
	return nil
}

// checkHooks refuses hooks of the template's own, before variables of the product's names are taken out of it.
func (r *Registered) checkHooks(runner *corev1.Container) error {
	if r.Spec.JobContainers == nil {
		return nil
	}
	for _, e := range runner.Env {
		if e.Name == envContainerHooks && e.Value != ContainerHook {
			return refuse("variable %s contradicts jobContainers: remove one of them", envContainerHooks)
		}
	}
	return nil
}

// bound finishes a pod whose job may have containers, when all its own are in it.
func (r *Registered) bound(spec *corev1.PodSpec) error {
	if r.Spec.JobContainers == nil {
		return nil
	}
	limitCourier(spec)
	if name, resource := Unbounded(spec); name != "" { // JOB-5
		return refuse("jobContainers requires a limit for each container, and container %s has none for %s: set it in template.spec, or in agentResources.limits",
			name, resource)
	}
	return checkShm("jobContainers", spec, r.Spec.JobContainers)
}
