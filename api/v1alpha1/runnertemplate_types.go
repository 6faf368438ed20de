package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// RunnerResources are the resources of one runner: requests and limits alike, so that a runner's speed does not depend on
// its neighbours and a microVM has the requested size.
type RunnerResources struct {
	// CPU in cores, such as "4" or "500m". A whole number for macOS virtual machines.
	// +required
	// +kubebuilder:validation:XValidation:rule="quantity(string(self)).isGreaterThan(quantity('0'))",message="cpu must be greater than 0, such as 4 or 500m"
	CPU resource.Quantity `json:"cpu"`

	// Memory, such as "16Gi".
	// +required
	// +kubebuilder:validation:XValidation:rule="!quantity(string(self)).isLessThan(quantity('1Mi'))",message="memory must be at least 1Mi; include the unit, such as 16Gi"
	Memory resource.Quantity `json:"memory"`

	// EphemeralStorage is how much a runner may write to its node: its work directory, its containers' files and logs, and the
	// emptyDirs of its template. A Docker daemon has template.dind.storage in addition. The kubelet evicts a runner that writes more,
	// and its job fails. The default is 10Gi. 0 sets no request and no limit, for nodes without local storage accounting. For
	// platform linux: a macOS virtual machine has the disk of its image.
	// +optional
	// +kubebuilder:validation:XValidation:rule="quantity(string(self)).compareTo(quantity('0')) == 0 || !quantity(string(self)).isLessThan(quantity('1Gi'))",message="ephemeralStorage must be at least 1Gi, or 0 for no limit; include the unit, such as 20Gi"
	EphemeralStorage *resource.Quantity `json:"ephemeralStorage,omitempty"`
}

// ContainerResources are the requests and limits of a container. Resources that are not set have their default.
type ContainerResources struct {
	// Requests of cpu, memory and ephemeral-storage.
	// +optional
	// +kubebuilder:validation:MaxProperties=3
	// +kubebuilder:validation:XValidation:rule="self.all(name, name in ['cpu', 'memory', 'ephemeral-storage'])",message="requests may name cpu, memory and ephemeral-storage: remove the others"
	Requests map[corev1.ResourceName]resource.Quantity `json:"requests,omitempty"`
	// Limits of cpu, memory and ephemeral-storage. The API server rejects a limit below its request.
	// +optional
	// +kubebuilder:validation:MaxProperties=3
	// +kubebuilder:validation:XValidation:rule="self.all(name, name in ['cpu', 'memory', 'ephemeral-storage'])",message="limits may name cpu, memory and ephemeral-storage: remove the others"
	Limits map[corev1.ResourceName]resource.Quantity `json:"limits,omitempty"`
}

// RunnerPodMetadata is additional metadata of a pool's pods.
type RunnerPodMetadata struct {
	// Labels of the pods, such as one that excludes them from a service mesh.
	// +optional
	// +kubebuilder:validation:MaxProperties=64
	// +kubebuilder:validation:XValidation:rule="self.all(key, !key.startsWith('bullpen.dev/'))",message="labels with the prefix bullpen.dev/ are reserved: remove them from template.metadata.labels"
	Labels map[string]string `json:"labels,omitempty"`

	// Annotations of the pods, such as sidecar.istio.io/inject: "false".
	// +optional
	// +kubebuilder:validation:MaxProperties=64
	// +kubebuilder:validation:XValidation:rule="self.all(key, !key.startsWith('bullpen.dev/'))",message="annotations with the prefix bullpen.dev/ are reserved: remove them from template.metadata.annotations"
	// +kubebuilder:validation:XValidation:rule="self.all(key, !(key in ['cluster-autoscaler.kubernetes.io/safe-to-evict', 'karpenter.sh/do-not-disrupt', 'kubectl.kubernetes.io/default-container']))",message="cluster-autoscaler.kubernetes.io/safe-to-evict, karpenter.sh/do-not-disrupt and kubectl.kubernetes.io/default-container are set by Bullpen: remove them from template.metadata.annotations"
	Annotations map[string]string `json:"annotations,omitempty"`
}

// UserAssignment is where the user of a runner's pod comes from.
// +kubebuilder:validation:Enum=Template;Cluster
type UserAssignment string

// The assignments.
const (
	// UserFromTemplate: the pod runs as runAsUser.
	UserFromTemplate UserAssignment = "Template"
	// UserFromCluster: the pod sets no user, and the cluster assigns one, as OpenShift's security context constraints do.
	UserFromCluster UserAssignment = "Cluster"
)

// RunnerTemplate describes the container "runner" and its scheduling. The fields are those of a pod.
//
// +kubebuilder:validation:XValidation:rule="!has(self.env) || !self.env.exists(e, e.name.startsWith('BULLPEN_'))",message="environment variables with the prefix BULLPEN_ are reserved: choose other names"
// +kubebuilder:validation:XValidation:rule="!has(self.volumes) || !self.volumes.exists(v, v.name.startsWith('bullpen-'))",message="volume names with the prefix bullpen- are reserved: choose another name"
// +kubebuilder:validation:XValidation:rule="!has(self.volumeMounts) || !self.volumeMounts.exists(m, m.name.startsWith('bullpen-'))",message="volumeMounts may only refer to volumes of this template; those with the prefix bullpen- contain the pod's credentials"
// +kubebuilder:validation:XValidation:rule="!has(self.volumes) || !self.volumes.exists(v, has(v.projected))",message="projected volumes are not allowed, because they can contain a ServiceAccount token and runners execute untrusted code: use secret, configMap or downwardAPI volumes"
// +kubebuilder:validation:XValidation:rule="!has(self.tolerations) || !self.tolerations.exists(t, has(t.tolerationSeconds))",message="tolerationSeconds is not allowed, because Kubernetes would delete busy runners: remove it"
// +kubebuilder:validation:XValidation:rule="!has(self.securityContext) || !has(self.securityContext.runAsUser)",message="all containers of a runner's pod run as one user, because they share files: remove securityContext.runAsUser, and set runAsUser of the template"
// +kubebuilder:validation:XValidation:rule="!has(self.securityContext) || !has(self.securityContext.privileged) || !self.securityContext.privileged || has(self.runtimeClassName) && self.runtimeClassName.size() > 0",message="privileged runners require a microVM: remove securityContext.privileged, or set runtimeClassName to a class of microVMs, such as kata"
// +kubebuilder:validation:XValidation:rule="!has(self.jobContainers) || !has(self.dind)",message="jobContainers and dind exclude each other: remove one of them"
// +kubebuilder:validation:XValidation:rule="!has(self.build) || !has(self.dind)",message="build and dind exclude each other, because a Docker daemon builds images itself: remove one of them"
// +kubebuilder:validation:XValidation:rule="!has(self.buildKit) || has(self.build) && self.build == 'BuildKit'",message="buildKit has an effect with build: BuildKit only: set build, or remove buildKit"
// +kubebuilder:validation:XValidation:rule="!has(self.dind) || has(self.runtimeClassName) && self.runtimeClassName.size() > 0",message="dind runs a privileged container, which requires a microVM: set runtimeClassName to a class of microVMs, such as kata, or remove dind"
type RunnerTemplate struct {
	// Metadata adds labels and annotations to the pods. The prefix bullpen.dev/ is reserved.
	// +optional
	Metadata *RunnerPodMetadata `json:"metadata,omitempty"`

	// Image of the container that runs jobs: GitHub's runner image or one derived from it. On macOS, the image of the virtual
	// machine for Tart, such as ghcr.io/cirruslabs/macos-sequoia-base:latest.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	Image string `json:"image"`

	// Command that starts the runner, with its configuration in the environment. The default is the path in GitHub's runner image:
	// /home/runner/bin/Runner.Listener run. On macOS it is a path in the virtual machine, by default that of Tart's public images:
	// /Users/admin/actions-runner/bin/Runner.Listener run.
	// +optional
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=4096
	// +listType=atomic
	Command []string `json:"command,omitempty"`

	// RuntimeClassName selects the container runtime, such as one that runs each pod in a microVM. For platform linux.
	// +optional
	RuntimeClassName *string `json:"runtimeClassName,omitempty"`

	// Dind adds a Docker daemon to each runner, for jobs that use Docker or run in containers. The daemon runs in a privileged
	// container, so this requires a runtimeClassName that runs each pod in a microVM.
	// +optional
	Dind *Dind `json:"dind,omitempty"`

	// JobContainers allows jobs to run in containers (container:), to have services (services:), and to use container actions. The
	// containers are ephemeral containers of the runner's own pod: they need no privilege, no Docker daemon and no token. The
	// controller must run with --job-containers (the chart's jobContainers.enabled). For platform linux.
	// +optional
	JobContainers *JobContainers `json:"jobContainers,omitempty"`

	// Build gives each runner what builds images. BuildKit: a BuildKit daemon, which "docker build", "docker buildx" and "buildctl" of jobs use.
	// It starts when a job first uses it. The pod has a user namespace of its own (hostUsers: false), in which the daemon has the
	// capability SYS_ADMIN; this requires Kubernetes 1.33, containerd 2.0 or CRI-O 1.25, Linux 6.3, and a namespace that admits Pod
	// Security level privileged. Jobs cannot run containers with it: see jobContainers. For platform linux.
	// +optional
	Build BuildMode `json:"build,omitempty"`

	// BuildKit configures the daemon of build: BuildKit.
	// +optional
	BuildKit *BuildKit `json:"buildKit,omitempty"`

	// NodeSelector selects the nodes for runners. Pods of platform macos also have kubernetes.io/os=darwin.
	// +optional
	// +mapType=atomic
	NodeSelector map[string]string `json:"nodeSelector,omitempty"`

	// Tolerations of the pods, in addition to those that keep a runner on a node that is not ready.
	// +optional
	// +kubebuilder:validation:MaxItems=64
	// +listType=atomic
	Tolerations []corev1.Toleration `json:"tolerations,omitempty"`

	// PriorityClassName of the pods; the PriorityClass must exist. On nodes shared with pods of a higher priority, the scheduler may
	// preempt a busy runner: use a class of a high value, or dedicated nodes. Unset: the cluster's default.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-.a-z0-9]*[a-z0-9])?$`
	PriorityClassName string `json:"priorityClassName,omitempty"`

	// Affinity of the pods.
	// +optional
	Affinity *corev1.Affinity `json:"affinity,omitempty"`

	// Env of the container that runs jobs.
	// +optional
	// +kubebuilder:validation:MaxItems=100
	// +listType=map
	// +listMapKey=name
	Env []corev1.EnvVar `json:"env,omitempty"`

	// Volumes of the pod. For platform linux.
	// +optional
	// +kubebuilder:validation:MaxItems=32
	// +listType=map
	// +listMapKey=name
	Volumes []corev1.Volume `json:"volumes,omitempty"`

	// VolumeMounts of the container that runs jobs, for the volumes above.
	// +optional
	// +kubebuilder:validation:MaxItems=32
	// +listType=map
	// +listMapKey=mountPath
	VolumeMounts []corev1.VolumeMount `json:"volumeMounts,omitempty"`

	// ImagePullSecrets for the pod's images, in addition to those of the namespace's ServiceAccount default.
	// +optional
	// +kubebuilder:validation:MaxItems=16
	// +listType=atomic
	ImagePullSecrets []corev1.LocalObjectReference `json:"imagePullSecrets,omitempty"`

	// SecurityContext of the container that runs jobs. Each field that is set overrides the default, which conforms to the Pod
	// Security level restricted: allowPrivilegeEscalation false, capabilities drop ALL, seccompProfile RuntimeDefault,
	// runAsNonRoot true. Jobs that use sudo need allowPrivilegeEscalation true and capabilities {}. With dind, or with runAsUser 0,
	// the default is that of the container runtime. It has no effect on macOS.
	// +optional
	SecurityContext *corev1.SecurityContext `json:"securityContext,omitempty"`

	// AgentResources are the requests and limits of each container that Bullpen adds to the pod: agent, poller, idle and externals. The
	// defaults are requests of 10m cpu and 32Mi memory, limits of 500m cpu and 128Mi memory, and 128Mi ephemeral-storage for both. On
	// macOS there are no default requests.
	// +optional
	AgentResources *ContainerResources `json:"agentResources,omitempty"`

	// UserAssignment is where the pod's user comes from: Template (the default) runs it as runAsUser, Cluster leaves user and groups
	// to the cluster, as OpenShift requires. With Cluster, every container must be assigned the same user.
	// +optional
	UserAssignment UserAssignment `json:"userAssignment,omitempty"`

	// RunAsUser is the numeric user of all containers of the pod, because they share files that no other user may read. The default,
	// 1001, is the user of GitHub's runner image; set it for images with another user. It has no effect with userAssignment Cluster,
	// or on macOS.
	// +optional
	// +kubebuilder:default=1001
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=2147483647
	RunAsUser *int64 `json:"runAsUser,omitempty"`

	// TerminationGracePeriodSeconds is how long a job may continue after its pod was deleted from outside, such as by an eviction or
	// a node drain. Idle runners stop at once, so a long period costs nothing. The default of six hours is GitHub's default job
	// timeout; 432000 (five days) is GitHub's maximum for self-hosted runners.
	// +optional
	// +kubebuilder:default=21600
	// +kubebuilder:validation:Minimum=30
	// +kubebuilder:validation:Maximum=432000
	TerminationGracePeriodSeconds *int64 `json:"terminationGracePeriodSeconds,omitempty"`
}

// Dind is the Docker daemon of a runner. Jobs connect to it through DOCKER_HOST or the socket /var/run/docker.sock.
type Dind struct {
	// Image of the daemon: Docker's image with "dind" in its tag, or one derived from it.
	// +optional
	// +kubebuilder:default="docker:28-dind"
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	Image string `json:"image,omitempty"`

	// Storage is the limit for the daemon's images, containers and volumes, on the node's disk. It is deleted with the pod.
	// +optional
	// +kubebuilder:default="20Gi"
	// +kubebuilder:validation:XValidation:rule="!quantity(string(self)).isLessThan(quantity('1Gi'))",message="dind.storage must be at least 1Gi; include the unit, such as 20Gi"
	Storage *resource.Quantity `json:"storage,omitempty"`

	// Resources of the daemon's container. The default requests are those of agentResources, and the default limits are the runner's
	// CPU and memory, because containers of jobs run inside it. A microVM is sized by the sum of its containers' limits.
	// +optional
	Resources *ContainerResources `json:"resources,omitempty"`
}

// BuildMode is what builds images for jobs.
// +kubebuilder:validation:Enum=BuildKit
type BuildMode string

// BuildWithBuildKit is a BuildKit daemon in the runner's pod.
const BuildWithBuildKit BuildMode = "BuildKit"

// BuildKit is the BuildKit daemon of a runner. Jobs connect to it through BUILDKIT_HOST.
type BuildKit struct {
	// Image of the daemon: one with the programs buildkitd and buildkit-runc, or runc, such as moby/buildkit without "rootless" in its tag.
	// Its file /etc/buildkit/buildkitd.toml is respected.
	// +optional
	// +kubebuilder:default="moby/buildkit:v0.34.2"
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	Image string `json:"image,omitempty"`

	// Storage is the limit for the daemon's layers and cache, on the node's disk. It is deleted with the pod. The kubelet evicts a runner
	// whose builds need more at once.
	// +optional
	// +kubebuilder:default="20Gi"
	// +kubebuilder:validation:XValidation:rule="!quantity(string(self)).isLessThan(quantity('1Gi'))",message="buildKit.storage must be at least 1Gi; include the unit, such as 20Gi"
	Storage *resource.Quantity `json:"storage,omitempty"`

	// Resources of the daemon's container. The default requests are those of agentResources, and the default limits are the runner's
	// CPU and memory, because the steps of a build run inside it.
	// +optional
	Resources *ContainerResources `json:"resources,omitempty"`
}

// SecurityProfile is a level of the Pod Security Standards.
// +kubebuilder:validation:Enum=Baseline;Restricted
type SecurityProfile string

// The profiles.
const (
	// ProfileBaseline: a container has the user of its image, which may be root, and the container runtime's default capabilities.
	ProfileBaseline SecurityProfile = "Baseline"
	// ProfileRestricted: a container runs as the pod's user, without capabilities.
	ProfileRestricted SecurityProfile = "Restricted"
)

// JobContainers are what jobs of a runner may have in containers. A job can choose an image, and nothing else of the pod: a job
// container, up to 16 services, and up to 32 steps that run in containers of their own. Together with their runner they may use
// the resources of the runner's pod.
type JobContainers struct {
	// AllowedImages are patterns of images that jobs may use, such as "postgres", "ghcr.io/acme/**" or "registry.example.com/ci/*:v1".
	// "*" is any text within one part of a name, "/**" at the end any number of parts. A pattern without a registry is one of Docker
	// Hub. Empty: every image of a registry with a public address.
	// +optional
	// +kubebuilder:validation:MaxItems=256
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=512
	// +listType=atomic
	AllowedImages []string `json:"allowedImages,omitempty"`

	// Registries are hosts, or hosts with ports, of registries and of their token services that may have private addresses, in
	// addition to those that allowedImages name. "http://HOST:PORT" allows requests without TLS.
	// +optional
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=300
	// +listType=atomic
	Registries []string `json:"registries,omitempty"`

	// SecurityProfile of the containers. Baseline (the default) runs each as the user of its image, and requires a namespace
	// that admits Pod Security level baseline. Restricted runs them as the runner's user, for namespaces of level restricted; images
	// that need another user do not work.
	// +optional
	// +kubebuilder:default=Baseline
	SecurityProfile SecurityProfile `json:"securityProfile,omitempty"`

	// ShmSize is the size of /dev/shm, which the containers of a job share, and so the most that `--shm-size` of a workflow may ask for.
	// What is written there counts as memory of the runner. Unset: the 64 MiB of container runtimes.
	// +optional
	// +kubebuilder:validation:XValidation:rule="!quantity(string(self)).isLessThan(quantity('64Mi'))",message="jobContainers.shmSize must be at least 64Mi; include the unit, such as 1Gi"
	ShmSize *resource.Quantity `json:"shmSize,omitempty"`
}
