package runnerpod

import (
	"maps"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/bullpen-ci/bullpen/api/runnerapi"
	"github.com/bullpen-ci/bullpen/api/v1alpha1"
)

// The defaults of RunnerTemplate's fields, for pools that were made without the API server's defaulting.
const (
	DefaultGraceSeconds = 6 * 60 * 60 // GitHub's own limit for a job that sets none
	DefaultRunAsUser    = 1001        // the user of GitHub's runner image
)

func podSpec(pool *v1alpha1.RunnerPool, options Options, name string) corev1.PodSpec {
	spec := commonSpec(pool, options.on(pool.Spec.Platform), name)
	if pool.Spec.Platform == v1alpha1.PlatformMacOS {
		toMac(&spec, pool.Spec.Template.AgentResources)
		return spec
	}
	spec.Containers = append(spec.Containers, idleContainer(options, pool.Spec.Template.AgentResources))
	if pool.Spec.Template.JobContainers != nil {
		addJobContainers(&spec, pool, options)
	}
	share := poolDisk(pool) // TEN-6
	share.bound(spec.InitContainers, spec.Volumes)
	share.bound(spec.Containers, spec.Volumes)
	return spec
}

// commonSpec is the pod of every platform, except for what differs on Macs.
func commonSpec(pool *v1alpha1.RunnerPool, options Options, name string) corev1.PodSpec {
	template := pool.Spec.Template.DeepCopy() // no pointer into the pool leaves this package
	spec := corev1.PodSpec{
		ServiceAccountName:            name,
		AutomountServiceAccountToken:  ptr.To(false), // the one token is the projected one below
		RestartPolicy:                 corev1.RestartPolicyNever,
		TerminationGracePeriodSeconds: ptr.To(ptr.Deref(template.TerminationGracePeriodSeconds, DefaultGraceSeconds)),
		EnableServiceLinks:            ptr.To(false),
		SecurityContext:               podSecurity(template), // POD-2
		ImagePullSecrets:              template.ImagePullSecrets,
		RuntimeClassName:              template.RuntimeClassName,
		PriorityClassName:             template.PriorityClassName,
		NodeSelector:                  maps.Clone(nodeSelectorOf(pool)),
		Affinity:                      template.Affinity,
		Tolerations:                   append(template.Tolerations, stayTolerations()...),
		Volumes:                       append(template.Volumes, volumes()...),
		InitContainers:                []corev1.Container{agentContainer(options, template.AgentResources)},
		Containers:                    []corev1.Container{runnerContainer(pool, template), pollerContainer(options, template.AgentResources)},
	}
	if template.Dind != nil {
		addDind(&spec, pool, template)
	}
	if template.Build == v1alpha1.BuildWithBuildKit {
		addBuildKit(&spec, pool)
	}
	options.Egress.addTo(&spec, pool.Spec.Platform)
	return spec
}

// stayTolerations keep a runner on a node that stops answering for a while: Kubernetes would evict it after five
// minutes, mid-job (POOL-9).
func stayTolerations() []corev1.Toleration {
	stay := func(key string) corev1.Toleration {
		return corev1.Toleration{Key: key, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute}
	}
	return []corev1.Toleration{stay(corev1.TaintNodeNotReady), stay(corev1.TaintNodeUnreachable)}
}

func volumes() []corev1.Volume {
	return []corev1.Volume{
		{Name: VolumeShared, VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}},
		{Name: VolumeWork, VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}},
		{Name: VolumeToken, VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{
			// A kubelet applies it only in a pod whose containers run as different users, as beside Docker's daemon: there
			// the token is root's, and the poller is not. No other container mounts it (NET-3).
			DefaultMode: ptr.To[int32](0o444),
			Sources: []corev1.VolumeProjection{{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{
				Audience:          runnerapi.AudienceDispatch,
				ExpirationSeconds: ptr.To[int64](TokenSeconds),
				Path:              tokenFile,
			}}},
		}}},
	}
}

func sharedMount() corev1.VolumeMount {
	return corev1.VolumeMount{Name: VolumeShared, MountPath: MountShared}
}

// agentContainer puts the agent's binary where the other two start it from, so that the runner's image needs nothing
// of ours. Paths are always given by argument or environment: a back end without mount namespaces replaces them.
func agentContainer(options Options, resources *v1alpha1.ContainerResources) corev1.Container {
	return corev1.Container{
		Name:            ContainerAgent,
		Image:           options.AgentImage,
		Command:         []string{options.agentCommand(), "install", "--to", agentBinary},
		Resources:       agentResources(resources), // POD-1
		SecurityContext: noPrivileges(),
		VolumeMounts:    []corev1.VolumeMount{sharedMount()},
	}
}

// pollerContainer holds the token and nothing of the customer's.
func pollerContainer(options Options, resources *v1alpha1.ContainerResources) corev1.Container {
	return corev1.Container{
		Name:    ContainerPoller,
		Image:   options.AgentImage,
		Command: []string{agentBinary, "poll"},
		Env: []corev1.EnvVar{
			{Name: EnvDispatchURL, Value: options.DispatchURL},
			{Name: EnvTokenFile, Value: MountToken + "/" + tokenFile},
			{Name: EnvSharedDir, Value: MountShared},
			fieldEnv(EnvPodName, "metadata.name"),
			fieldEnv(EnvPodUID, "metadata.uid"),
		},
		Resources:       agentResources(resources), // POD-1
		SecurityContext: noPrivileges(),
		VolumeMounts: []corev1.VolumeMount{
			sharedMount(),
			{Name: VolumeToken, MountPath: MountToken, ReadOnly: true},
		},
	}
}

// idleContainer exits when a job has started in the runner's container (EXCL-4): the one sign of work that needs neither GitHub nor a
// token. A readiness probe would start a process every few seconds, and report each failure as an Event (docs/adr/0055).
func idleContainer(options Options, resources *v1alpha1.ContainerResources) corev1.Container {
	return corev1.Container{
		Name:            ContainerIdle,
		Image:           options.AgentImage,
		Command:         []string{agentBinary, "idle"},
		Env:             []corev1.EnvVar{{Name: EnvSharedDir, Value: MountShared}},
		Resources:       agentResources(resources), // POD-1
		SecurityContext: noPrivileges(),
		VolumeMounts:    []corev1.VolumeMount{sharedMount()},
	}
}

// runnerContainer runs the customer's job once. It has no token.
func runnerContainer(pool *v1alpha1.RunnerPool, template *v1alpha1.RunnerTemplate) corev1.Container {
	command := template.Command
	if len(command) == 0 {
		command = defaultCommand(pool.Spec.Platform)
	}
	env := []corev1.EnvVar{
		{Name: EnvSharedDir, Value: MountShared},
		{Name: EnvWorkDir, Value: MountWork},
		fieldEnv(EnvPodName, "metadata.name"),
		fieldEnv(EnvPodUID, "metadata.uid"),
	}
	mounts := []corev1.VolumeMount{sharedMount(), {Name: VolumeWork, MountPath: MountWork}}
	shape := shapeOf(pool)
	return corev1.Container{
		Name:            ContainerRunner,
		Image:           template.Image,
		Command:         append([]string{agentBinary, "run", "--"}, command...),
		Env:             append(env, template.Env...),
		Resources:       corev1.ResourceRequirements{Requests: shape, Limits: shape.DeepCopy()},
		VolumeMounts:    append(mounts, template.VolumeMounts...),
		SecurityContext: runnerSecurity(template), // POD-2
	}
}

func shapeOf(pool *v1alpha1.RunnerPool) corev1.ResourceList {
	return corev1.ResourceList{
		corev1.ResourceCPU:    pool.Spec.Resources.CPU.DeepCopy(),
		corev1.ResourceMemory: pool.Spec.Resources.Memory.DeepCopy(),
	}
}

// noPrivileges is the context of the containers that Bullpen adds, independently of the template: they conform to
// restricted in any pod.
func noPrivileges() *corev1.SecurityContext {
	return &corev1.SecurityContext{
		AllowPrivilegeEscalation: ptr.To(false),
		ReadOnlyRootFilesystem:   ptr.To(true), // they write into the pod's volumes alone
		Capabilities:             &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
		SeccompProfile:           runtimeProfile(),
	}
}

func fieldEnv(name, field string) corev1.EnvVar {
	return corev1.EnvVar{Name: name, ValueFrom: &corev1.EnvVarSource{
		FieldRef: &corev1.ObjectFieldSelector{APIVersion: "v1", FieldPath: field},
	}}
}
