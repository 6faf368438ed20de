package runnerpod

import (
	"fmt"
	"path"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/bullpen-ci/bullpen/api/v1alpha1"
	"github.com/bullpen-ci/bullpen/internal/jobcontainer"
)

// check refuses what a self-registering runner's template must not have, once what was added by an earlier building is out
// of it.
func (r *Registered) check(spec *corev1.PodSpec, options Options) error {
	if err := r.checkContainers(spec); err != nil {
		return err
	}
	if err := r.checkVolumes(spec); err != nil {
		return err
	}
	if err := r.checkMode(spec); err != nil {
		return err
	}
	if err := r.checkBuild(spec, options); err != nil {
		return err
	}
	if err := r.checkJobContainers(spec, options); err != nil {
		return err
	}
	if err := checkResources("agentResources", r.Spec.AgentResources); err != nil {
		return err
	}
	if r.Spec.Dind != nil {
		if err := checkResources("dind.resources", r.Spec.Dind.Resources); err != nil {
			return err
		}
	}
	switch {
	case len(spec.EphemeralContainers) > 0:
		return refuse("template.spec.ephemeralContainers is for running pods only: remove it")
	case spec.ActiveDeadlineSeconds != nil: // EXCL-7
		return refuse("template.spec.activeDeadlineSeconds would stop the runner in the middle of a job: remove it, and limit jobs in their workflow (timeout-minutes)")
	}
	for _, t := range spec.Tolerations {
		if t.TolerationSeconds != nil { // POOL-9
			return refuse("the toleration of %s has tolerationSeconds, after which Kubernetes would delete the runner; remove them", t.Key) // POOL-9
		}
	}
	return r.checkPrivileges(spec, options)
}

// checkBuild is for a spec that came past the API server, and for mounts.
func (r *Registered) checkBuild(spec *corev1.PodSpec, options Options) error {
	switch {
	case r.Spec.Build == "" && r.Spec.BuildKit != nil:
		return refuse("buildKit has an effect with build: BuildKit only: set build, or remove buildKit")
	case r.Spec.Build == "":
		return nil
	case r.Spec.Build != v1alpha1.BuildWithBuildKit:
		return refuse("build is %q, but must be BuildKit", r.Spec.Build)
	case r.Spec.ContainerMode == v1alpha1.ContainerModeDind:
		return refuse("build and containerMode Dind exclude each other, because a Docker daemon builds images itself: remove one of them")
	}
	if options.microVM(spec.RuntimeClassName) {
		return refuse("build gives the pod a user namespace, which pods in microVMs do not have: " + buildInMicroVM) // NET-7
	}
	for _, m := range named(spec.Containers, ContainerRunner).VolumeMounts {
		if overlaps(m.MountPath, jobcontainer.Dir) {
			return refuse("the mount at %s overlaps the pod's own at %s; mount it elsewhere", m.MountPath, jobcontainer.Dir)
		}
	}
	if r.Spec.BuildKit == nil {
		return nil
	}
	return checkResources("buildKit.resources", r.Spec.BuildKit.Resources)
}

// checkPlaces repeats what the API server has checked, for specs that came past it.
func (r *Registered) checkPlaces() error {
	places := 0
	for _, place := range []string{r.Spec.Enterprise, r.Spec.Organization, r.Spec.Repository} {
		if place != "" {
			places++
		}
	}
	if places != 1 {
		return refuse("a runner registers in one place: set exactly one of enterprise, organization and repository")
	}
	if (r.Spec.ContainerMode == v1alpha1.ContainerModeKubernetes) != (r.Spec.Kubernetes != nil) {
		return refuse("kubernetes and containerMode Kubernetes belong together: set both or neither")
	}
	return nil
}

func (r *Registered) checkContainers(spec *corev1.PodSpec) error {
	reserved := []string{ContainerAgent, ContainerPoller, ContainerIdle, ContainerCourier} // JOB-6: a pod with a courier is one that may be added to
	if r.Spec.ContainerMode == v1alpha1.ContainerModeDind {
		reserved = append(reserved, ContainerDind, ContainerExternals)
	}
	if r.Spec.JobContainers != nil {
		reserved = append(reserved, ContainerExternals)
	}
	if r.Spec.Build != "" {
		reserved = append(reserved, ContainerBuildKit)
	}
	if named(spec.InitContainers, ContainerRunner) != nil {
		return refuse("init container %s: the name is reserved for the container in which jobs run; choose another", ContainerRunner)
	}
	for _, list := range [][]corev1.Container{spec.InitContainers, spec.Containers} {
		for i := range list {
			c := &list[i]
			if slices.Contains(reserved, c.Name) {
				return refuse("container %q: the name is reserved for the controller; choose another", c.Name)
			}
			for _, e := range c.Env {
				if strings.HasPrefix(e.Name, reservedEnvPrefix) {
					return refuse("variable %s of container %s: names that begin with %s are reserved for the agent; choose another", e.Name, c.Name, reservedEnvPrefix)
				}
			}
			if err := checkProbes(c); err != nil {
				return err
			}
		}
	}
	return nil
}

// checkProbes keeps what says whether a job runs readable (EXCL-4, EXCL-7): by the readiness of the runner, and by when all
// containers were last ready.
func checkProbes(c *corev1.Container) error {
	switch {
	case c.Name == ContainerRunner && c.ReadinessProbe != nil:
		return refuse("container %s has a readinessProbe, but its readiness shows whether it has a job: remove the probe", c.Name)
	case c.Name == ContainerRunner && c.LivenessProbe != nil:
		return refuse("container %s has a livenessProbe, which could stop it in the middle of a job: remove the probe", c.Name)
	case c.Name == ContainerRunner && c.StartupProbe != nil: // nothing asks for readiness before it has succeeded
		return refuse("container %s has a startupProbe, which would hide its first job, and could stop it: remove the probe", c.Name)
	case c.ReadinessProbe != nil:
		return refuse("container %s has a readinessProbe, which would hide whether the runner has a job: use a startupProbe", c.Name)
	case c.Name == ContainerRunner && c.RestartPolicy != nil:
		return refuse("container %s has a restartPolicy, but a runner is never started twice: remove it", c.Name) // RUN-7
	}
	return nil
}

func (r *Registered) checkVolumes(spec *corev1.PodSpec) error {
	known := slices.Clone(r.Claims)
	for _, v := range spec.Volumes {
		if strings.HasPrefix(v.Name, reservedPrefix) {
			return refuse("volume %q: names that begin with %s are reserved for the controller; choose another", v.Name, reservedPrefix)
		}
		if v.Projected != nil && slices.ContainsFunc(v.Projected.Sources, func(s corev1.VolumeProjection) bool { return s.ServiceAccountToken != nil }) {
			return refuse("volume %q holds a ServiceAccount token, which jobs could use: remove it", v.Name) // NET-3
		}
		known = append(known, v.Name)
	}
	for _, name := range r.Claims {
		if strings.HasPrefix(name, reservedPrefix) {
			return refuse("volume %q: names that begin with %s are reserved for the controller; choose another", name, reservedPrefix)
		}
	}
	for _, list := range [][]corev1.Container{spec.InitContainers, spec.Containers} {
		for i := range list {
			for _, m := range list[i].VolumeMounts {
				if strings.HasPrefix(m.Name, reservedPrefix) {
					return refuse("container %s mounts volume %q, which holds the runner's registration or status: mount volumes of the template only", list[i].Name, m.Name) // NET-3
				}
				if !slices.Contains(known, m.Name) {
					return refuse("container %s mounts volume %q, which is not in template.spec.volumes: add the volume, or remove the mount", list[i].Name, m.Name)
				}
				if list[i].Name != ContainerRunner {
					continue
				}
				for _, ours := range []string{MountShared, MountRegistration, MountCA} {
					if overlaps(m.MountPath, ours) {
						return refuse("the mount at %s overlaps the pod's own at %s; mount it elsewhere", m.MountPath, ours)
					}
				}
			}
		}
	}
	return nil
}

// checkMode refuses what contradicts the container mode.
func (r *Registered) checkMode(spec *corev1.PodSpec) error {
	runner := named(spec.Containers, ContainerRunner)
	at := func(m corev1.VolumeMount) string { return path.Clean(m.MountPath) }
	switch r.Spec.ContainerMode {
	case v1alpha1.ContainerModeDind:
		for _, m := range runner.VolumeMounts {
			if p := at(m); p == mountSocket || p == "/run" || p == "/var" {
				return refuse("the mount at %s would hide the Docker socket at %s; mount it elsewhere", m.MountPath, mountSocket)
			}
		}
	case v1alpha1.ContainerModeKubernetes:
		for _, v := range spec.Volumes {
			if v.Name == volumeHookWork {
				return refuse("volume %q is created by kubernetes.workVolumeClaim; remove it from the template", v.Name)
			}
		}
		if slices.Contains(r.Claims, volumeHookWork) {
			return refuse("volume %q is created by kubernetes.workVolumeClaim; rename the claim template", volumeHookWork)
		}
		for _, m := range runner.VolumeMounts {
			if p := at(m); p == r.workPath() || strings.HasPrefix(p, r.workPath()+"/") || p == mountKubeAccess {
				return refuse("the mount at %s conflicts with that of containerMode Kubernetes; remove it", m.MountPath)
			}
		}
		modes := r.Spec.Kubernetes.WorkVolumeClaim.AccessModes
		if !slices.Contains(modes, corev1.ReadWriteOnce) && !slices.Contains(modes, corev1.ReadWriteMany) {
			return refuse("the runner and its jobs' pods both write to kubernetes.workVolumeClaim: accessModes must include ReadWriteOnce or ReadWriteMany")
		}
	}
	return nil
}

// checkPrivileges keeps everything that allows an escape from a container out of pods that share their node's
// kernel (NET-7).
func (r *Registered) checkPrivileges(spec *corev1.PodSpec, options Options) error {
	if options.microVM(spec.RuntimeClassName) { // NET-7
		return nil
	}
	what := ""
	switch {
	case r.Spec.ContainerMode == v1alpha1.ContainerModeDind:
		what = "containerMode Dind runs a privileged container"
	case spec.HostNetwork || spec.HostPID || spec.HostIPC:
		what = "template.spec uses a namespace of the host"
	}
	for _, v := range spec.Volumes {
		if v.HostPath != nil {
			what = fmt.Sprintf("volume %q is a hostPath", v.Name)
		}
	}
	for _, list := range [][]corev1.Container{spec.InitContainers, spec.Containers} {
		for i := range list {
			s := list[i].SecurityContext
			if s != nil && (ptr.Deref(s.Privileged, false) || s.WindowsOptions != nil && ptr.Deref(s.WindowsOptions.HostProcess, false)) {
				what = fmt.Sprintf("container %s is privileged", list[i].Name)
			}
			if ptr.Deref(spec.HostUsers, true) && s != nil && administers(s.Capabilities) {
				what = fmt.Sprintf("container %s adds the capability SYS_ADMIN without a user namespace (hostUsers: false)", list[i].Name)
			}
		}
	}
	if what == "" {
		return nil
	}
	return refuse("%s, and runtime class %q is not a known class of microVMs: remove it, or set template.spec.runtimeClassName to a runtime class that "+ // NET-7
		"runs each pod in a microVM (listed in the controller's --microvm-runtime-classes)", what, ptr.Deref(spec.RuntimeClassName, ""))
}
