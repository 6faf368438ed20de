package runnerpod

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/utils/ptr"

	"github.com/bullpen-ci/bullpen/api/v1alpha1"
)

// Variables by which GitHub's container hooks know in which pod they are, and what jobs may do (containerMode Kubernetes).
const (
	envHookPod     = "ACTIONS_RUNNER_POD_NAME"
	envJobRequired = "ACTIONS_RUNNER_REQUIRE_JOB_CONTAINER"

	defaultHooks = runnerHome + "/k8s/index.js" // in GitHub's image

	// volumeHookWork is a name that the hooks expect: they mount the claim of the pod's name, a dash and this into jobs' pods.
	volumeHookWork = "work"

	volumeKubeAccess = "bullpen-kube-access"
	mountKubeAccess  = "/var/run/secrets/kubernetes.io/serviceaccount" // where clients of Kubernetes look
)

// LabelHookPod is what GitHub's container hooks label the pods and Secrets of jobs with: the name of the runner's pod.
const LabelHookPod = "runner-pod"

// additions are what a pod has beside its template. The same ones in a template are taken for what they are: it has been
// built from one before.
type additions struct {
	volumes []corev1.Volume
	first   []corev1.Container // init containers, before those of the template
	beside  []corev1.Container // containers, after those of the template
	mounts  []corev1.VolumeMount
	set     []corev1.EnvVar // of the runner, instead of any of that name anywhere in the pod (RUN-5)
	absent  []corev1.EnvVar // of the runner, where the template has none of that name
	group   int64           // of every process; 0 for none
	fsGroup int64           // of volumes, where the template names none; 0 for none
	user    *int64          // of the pod, where the template names none; nil for none
	// ownUsers gives the pod a user namespace (NET-7).
	ownUsers bool
	pull     string                        // the Secret that images of the job's containers are pulled with; empty for none
	pulls    []corev1.LocalObjectReference // beside it, where the template names none
}

func (r *Registered) additions(spec *corev1.PodSpec, runner *corev1.Container, options Options) *additions {
	a := &additions{
		volumes: []corev1.Volume{
			{Name: VolumeShared, VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}},
			// Not optional: a runner whose Secret is missing does not start.
			{Name: VolumeRegistration, VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{
				SecretName: r.Secret, DefaultMode: ptr.To[int32](0o444), // the image may run as any user
			}}},
		},
		first: []corev1.Container{agentContainer(options, r.Spec.AgentResources)},
		mounts: []corev1.VolumeMount{
			sharedMount(),
			{Name: VolumeRegistration, MountPath: MountRegistration, ReadOnly: true}, // NET-3: in the runner, and nowhere else
		},
		set: []corev1.EnvVar{{Name: EnvRunnerName, Value: r.Facts.Name}},
	}
	if r.showsByExit() {
		a.beside = []corev1.Container{idleContainer(options, r.Spec.AgentResources)}
	}
	if !r.ephemeral() {
		// NET-3: blank. A container's variables are visible to every job in its first process, and in each probe, for as
		// long as the pod lives. The token is in a file instead, and is removed from it.
		a.set = append(a.set, corev1.EnvVar{Name: EnvRunnerToken})
	}
	switch r.Spec.ContainerMode {
	case v1alpha1.ContainerModeDind:
		r.addDaemon(a, runner)
	case v1alpha1.ContainerModeKubernetes:
		r.addHooks(a)
	}
	if r.Spec.Build == v1alpha1.BuildWithBuildKit {
		r.addBuildKit(a, runner)
	}
	if r.Spec.JobContainers != nil {
		r.addJobContainers(a, spec, runner, options)
	}
	options.Egress.addToRegistered(a, runner)
	return a
}

// addDaemon gives the pod a Docker daemon, as addDind does for pools. The work directory is the runner's own, or the
// volume that the template has there, and the daemon has it at the same path.
func (r *Registered) addDaemon(a *additions, runner *corev1.Container) {
	given := r.Spec.Dind
	if given == nil {
		given = &v1alpha1.Dind{}
	}
	dind := dindDefaults(given)
	socket := corev1.VolumeMount{Name: volumeSocket, MountPath: mountSocket}
	work := corev1.VolumeMount{Name: VolumeWork, MountPath: r.workPath()}
	if at := slices.IndexFunc(runner.VolumeMounts, func(m corev1.VolumeMount) bool {
		return m.Name != VolumeWork && strings.TrimSuffix(m.MountPath, "/") == work.MountPath
	}); at >= 0 {
		work = runner.VolumeMounts[at]
	} else {
		a.volumes = append(a.volumes, corev1.Volume{Name: VolumeWork, VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}})
		a.mounts = append(a.mounts, work)
	}
	a.volumes = append(a.volumes,
		corev1.Volume{Name: volumeDocker, VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{SizeLimit: ptr.To(dind.Storage.DeepCopy())}}},
		corev1.Volume{Name: volumeSocket, VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}})
	a.mounts = append(a.mounts, socket)
	a.absent = append(a.absent, corev1.EnvVar{Name: "DOCKER_HOST", Value: dockerSocket})
	a.group = dockerGroup
	sidecar := dindContainer(dind, runner.Resources.Limits)
	sidecar.VolumeMounts = []corev1.VolumeMount{{Name: volumeDocker, MountPath: mountDisk}, work, socket}
	if externals, ok := externalsContainer(runner.Image, runner.Command, r.Spec.AgentResources); ok {
		externals.ImagePullPolicy = runner.ImagePullPolicy
		a.volumes = append(a.volumes, corev1.Volume{Name: volumeExternals, VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}})
		sidecar.VolumeMounts = append(sidecar.VolumeMounts, corev1.VolumeMount{Name: volumeExternals, MountPath: runnerExternals})
		a.first = append(a.first, externals)
	}
	a.first = append(a.first, sidecar)
}

// addHooks lets the runner make pods for jobs that name containers: with a volume that it shares with them, and with a token
// of its ServiceAccount, which no other container of the pod has.
func (r *Registered) addHooks(a *additions) {
	a.volumes = append(a.volumes,
		corev1.Volume{Name: volumeHookWork, VolumeSource: corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{
			VolumeClaimTemplate: &corev1.PersistentVolumeClaimTemplate{Spec: *r.Spec.Kubernetes.WorkVolumeClaim.DeepCopy()},
		}}},
		corev1.Volume{Name: volumeKubeAccess, VolumeSource: corev1.VolumeSource{Projected: kubeAccess()}})
	a.mounts = append(a.mounts,
		corev1.VolumeMount{Name: volumeHookWork, MountPath: r.workPath()},
		corev1.VolumeMount{Name: volumeKubeAccess, MountPath: mountKubeAccess, ReadOnly: true})
	a.set = append(a.set, fieldEnv(envHookPod, "metadata.name"))
	a.absent = append(a.absent,
		corev1.EnvVar{Name: envContainerHooks, Value: defaultHooks}, corev1.EnvVar{Name: envJobRequired, Value: "true"})
	a.fsGroup = DefaultRunAsUser
}

// kubeAccess is what Kubernetes would mount into every container by default.
func kubeAccess() *corev1.ProjectedVolumeSource {
	return &corev1.ProjectedVolumeSource{
		DefaultMode: ptr.To[int32](0o644),
		Sources: []corev1.VolumeProjection{
			{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Path: "token", ExpirationSeconds: ptr.To[int64](TokenSeconds + 7)}},
			{ConfigMap: &corev1.ConfigMapProjection{
				LocalObjectReference: corev1.LocalObjectReference{Name: "kube-root-ca.crt"}, Items: []corev1.KeyToPath{{Key: "ca.crt", Path: "ca.crt"}},
			}},
			{DownwardAPI: &corev1.DownwardAPIProjection{Items: []corev1.DownwardAPIVolumeFile{{
				Path: "namespace", FieldRef: &corev1.ObjectFieldSelector{APIVersion: "v1", FieldPath: "metadata.namespace"},
			}}}},
		},
	}
}

func same[T any](list []T) func(T) bool {
	return func(one T) bool {
		return slices.ContainsFunc(list, func(other T) bool { return equality.Semantic.DeepEqual(one, other) })
	}
}

// strip removes from a template exactly what add adds, and every variable that the product sets (RUN-5). The CA is found by its name: a
// template may have been built while another one was trusted. It returns the runner, which may have moved.
func (a *additions) strip(spec *corev1.PodSpec) *corev1.Container {
	unlimit(spec.Containers)
	spec.Containers = slices.DeleteFunc(spec.Containers, same(a.beside))
	spec.ImagePullSecrets = slices.DeleteFunc(spec.ImagePullSecrets, func(s corev1.LocalObjectReference) bool { return a.pull != "" && s.Name == a.pull })
	runner := named(spec.Containers, ContainerRunner)
	addedVolume := same(a.volumes)
	spec.Volumes = slices.DeleteFunc(spec.Volumes, func(v corev1.Volume) bool { return v.Name == VolumeCA || addedVolume(v) })
	spec.InitContainers = slices.DeleteFunc(spec.InitContainers, same(a.first))
	addedMount := same(a.mounts)
	runner.VolumeMounts = slices.DeleteFunc(runner.VolumeMounts, func(m corev1.VolumeMount) bool { return m.Name == VolumeCA || addedMount(m) })
	ours := func(e corev1.EnvVar) bool {
		return e.Name == EnvRunnerName || e.Name == EnvRunnerToken || e.Name == EnvCAFile || // RUN-5: whether or not this runner has a token
			slices.ContainsFunc(a.set, func(s corev1.EnvVar) bool { return s.Name == e.Name })
	}
	for _, list := range [][]corev1.Container{spec.InitContainers, spec.Containers} {
		for i := range list {
			list[i].Env = slices.DeleteFunc(list[i].Env, ours)
		}
	}
	return runner
}

func (a *additions) add(spec *corev1.PodSpec, runner *corev1.Container) {
	spec.Volumes = append(spec.Volumes, a.volumes...)
	spec.InitContainers = append(slices.Clone(a.first), spec.InitContainers...)
	runner.VolumeMounts = append(runner.VolumeMounts, a.mounts...)
	for _, e := range a.absent {
		if !slices.ContainsFunc(runner.Env, func(has corev1.EnvVar) bool { return has.Name == e.Name }) {
			runner.Env = append(runner.Env, e)
		}
	}
	runner.Env = append(slices.Clone(a.set), runner.Env...)
	if a.ownUsers {
		spec.HostUsers = ptr.To(false)
	}
	if a.pull != "" {
		if len(spec.ImagePullSecrets) == 0 {
			spec.ImagePullSecrets = slices.Clone(a.pulls) // as the API server would
		}
		spec.ImagePullSecrets = append(spec.ImagePullSecrets, corev1.LocalObjectReference{Name: a.pull})
	}
	if a.group == 0 && a.fsGroup == 0 && a.user == nil {
		return
	}
	if spec.SecurityContext == nil {
		spec.SecurityContext = &corev1.PodSecurityContext{}
	}
	if spec.SecurityContext.RunAsUser == nil {
		spec.SecurityContext.RunAsUser = a.user
	}
	if a.group != 0 && !slices.Contains(spec.SecurityContext.SupplementalGroups, a.group) {
		spec.SecurityContext.SupplementalGroups = append(spec.SecurityContext.SupplementalGroups, a.group)
	}
	if a.fsGroup != 0 && spec.SecurityContext.FSGroup == nil {
		spec.SecurityContext.FSGroup = ptr.To(a.fsGroup)
	}
}

// readinessProbe is of the container of a runner whose pod has no container idle, and means "no job has started in me"
// (EXCL-4).
func readinessProbe(command ...string) *corev1.Probe {
	return &corev1.Probe{
		ProbeHandler:        corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: command}},
		InitialDelaySeconds: 1, // the supervisor has begun to wait by then, or the next probe is a period away
		PeriodSeconds:       5, // each probe starts a process; what it tells is a veto, and no hurry
		TimeoutSeconds:      5,
		SuccessThreshold:    1,
		FailureThreshold:    1, // one answer of "a job may have started" is enough
	}
}
