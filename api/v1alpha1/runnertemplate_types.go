package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// RunnerResources is the shape of one runner: requests and limits alike, so that a runner's speed does not depend on
// its neighbours and a microVM has the size that was asked for.
type RunnerResources struct {
	// CPU in cores, such as "4" or "500m". A macOS virtual machine has whole ones.
	// +required
	// +kubebuilder:validation:XValidation:rule="quantity(string(self)).isGreaterThan(quantity('0'))",message="cpu must be more than 0, such as 4 or 500m"
	CPU resource.Quantity `json:"cpu"`

	// Memory, such as "16Gi".
	// +required
	// +kubebuilder:validation:XValidation:rule="!quantity(string(self)).isLessThan(quantity('1Mi'))",message="memory must be at least 1Mi; write the unit, such as 16Gi"
	Memory resource.Quantity `json:"memory"`

	// EphemeralStorage is what a runner may write to its node: its work folder, its containers' own files and logs, and the emptyDirs of
	// its template. A Docker daemon has template.dind.storage beside it. The kubelet evicts a runner that writes more, and its job is
	// lost. The default is 10Gi. 0 requests and limits nothing, for nodes that do not count their disk. For platform linux: a macOS
	// virtual machine has the disk of its image.
	// +optional
	// +kubebuilder:validation:XValidation:rule="quantity(string(self)).compareTo(quantity('0')) == 0 || !quantity(string(self)).isLessThan(quantity('1Gi'))",message="ephemeralStorage must be at least 1Gi, or 0 for no limit; write the unit, such as 20Gi"
	EphemeralStorage *resource.Quantity `json:"ephemeralStorage,omitempty"`
}

// ContainerResources are the requests and limits of a container. A resource that is not named has its default.
type ContainerResources struct {
	// Requests of cpu, memory and ephemeral-storage.
	// +optional
	// +kubebuilder:validation:MaxProperties=3
	// +kubebuilder:validation:XValidation:rule="self.all(name, name in ['cpu', 'memory', 'ephemeral-storage'])",message="requests may name cpu, memory and ephemeral-storage: remove the others"
	Requests map[corev1.ResourceName]resource.Quantity `json:"requests,omitempty"`
	// Limits of cpu, memory and ephemeral-storage. A limit below its request is refused by the API server.
	// +optional
	// +kubebuilder:validation:MaxProperties=3
	// +kubebuilder:validation:XValidation:rule="self.all(name, name in ['cpu', 'memory', 'ephemeral-storage'])",message="limits may name cpu, memory and ephemeral-storage: remove the others"
	Limits map[corev1.ResourceName]resource.Quantity `json:"limits,omitempty"`
}

// RunnerPodMetadata is what a pool adds to the metadata of its pods.
type RunnerPodMetadata struct {
	// Labels of the pods, such as one by which a service mesh leaves them out.
	// +optional
	// +kubebuilder:validation:MaxProperties=64
	// +kubebuilder:validation:XValidation:rule="self.all(key, !key.startsWith('bullpen.dev/'))",message="labels that begin with bullpen.dev/ are written by Bullpen alone, which finds its runners by them (NET-4): remove them from template.metadata.labels"
	Labels map[string]string `json:"labels,omitempty"`

	// Annotations of the pods, such as sidecar.istio.io/inject: "false".
	// +optional
	// +kubebuilder:validation:MaxProperties=64
	// +kubebuilder:validation:XValidation:rule="self.all(key, !key.startsWith('bullpen.dev/'))",message="annotations that begin with bullpen.dev/ are written by Bullpen alone: remove them from template.metadata.annotations"
	// +kubebuilder:validation:XValidation:rule="self.all(key, !(key in ['cluster-autoscaler.kubernetes.io/safe-to-evict', 'karpenter.sh/do-not-disrupt', 'kubectl.kubernetes.io/default-container']))",message="cluster-autoscaler.kubernetes.io/safe-to-evict, karpenter.sh/do-not-disrupt and kubectl.kubernetes.io/default-container of a runner's pod are written by Bullpen: remove them from template.metadata.annotations"
	Annotations map[string]string `json:"annotations,omitempty"`
}

// UserAssignment says where the user of a runner's pod comes from.
// +kubebuilder:validation:Enum=Template;Cluster
type UserAssignment string

// The assignments.
const (
	// UserFromTemplate: the pod runs as runAsUser.
	UserFromTemplate UserAssignment = "Template"
	// UserFromCluster: the pod names no user, and the cluster assigns one, as OpenShift's security context constraints do.
	UserFromCluster UserAssignment = "Cluster"
)

// RunnerTemplate describes the container "runner" and its place. The fields are those of a pod.
//
// +kubebuilder:validation:XValidation:rule="!has(self.env) || !self.env.exists(e, e.name.startsWith('BULLPEN_'))",message="environment variables that begin with BULLPEN_ belong to the agent in the pod: choose other names"
// +kubebuilder:validation:XValidation:rule="!has(self.volumes) || !self.volumes.exists(v, v.name.startsWith('bullpen-'))",message="volumes whose names begin with bullpen- are made by the controller: choose another name"
// +kubebuilder:validation:XValidation:rule="!has(self.volumeMounts) || !self.volumeMounts.exists(m, m.name.startsWith('bullpen-'))",message="volumeMounts may only name volumes of this template; those that begin with bullpen- hold the pod's credentials (NET-3)"
// +kubebuilder:validation:XValidation:rule="!has(self.volumes) || !self.volumes.exists(v, has(v.projected))",message="a runner may not mount a projected volume, because it can hold a ServiceAccount token and the runner runs other people's code (NET-3): use secret, configMap or downwardAPI volumes"
// +kubebuilder:validation:XValidation:rule="!has(self.tolerations) || !self.tolerations.exists(t, has(t.tolerationSeconds))",message="a runner tolerates a taint or it does not: with tolerationSeconds Kubernetes would delete it under way (POOL-9); remove tolerationSeconds"
// +kubebuilder:validation:XValidation:rule="!has(self.securityContext) || !has(self.securityContext.runAsUser)",message="every container of a runner's pod has one user, because they share files: remove securityContext.runAsUser, and set runAsUser of the template"
// +kubebuilder:validation:XValidation:rule="!has(self.securityContext) || !has(self.securityContext.privileged) || !self.securityContext.privileged || has(self.runtimeClassName) && self.runtimeClassName.size() > 0",message="a privileged runner is kept off the node by a microVM alone (NET-7): remove securityContext.privileged, or set runtimeClassName to a class of microVMs, such as kata"
// +kubebuilder:validation:XValidation:rule="!has(self.dind) || has(self.runtimeClassName) && self.runtimeClassName.size() > 0",message="dind runs a privileged container, which is kept off the node by a microVM alone (NET-7): set runtimeClassName to a class of microVMs, such as kata, or remove dind"
type RunnerTemplate struct {
	// Metadata adds labels and annotations to the pods. Labels that begin with bullpen.dev/ are reserved.
	// +optional
	Metadata *RunnerPodMetadata `json:"metadata,omitempty"`

	// Image of the container that runs jobs: GitHub's own runner image or one derived from it. On macOS the image of
	// the virtual machine, as Tart pulls it, such as ghcr.io/cirruslabs/macos-sequoia-base:latest.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	Image string `json:"image"`

	// Command starts the runner, given its configuration in the environment. The default is GitHub's runner where its
	// own image has it: /home/runner/bin/Runner.Listener run. On macOS it is a path in the virtual machine, and the default
	// that of Tart's public images: /Users/admin/actions-runner/bin/Runner.Listener run.
	// +optional
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=4096
	// +listType=atomic
	Command []string `json:"command,omitempty"`

	// RuntimeClassName chooses the container runtime, such as one that puts each pod into a microVM. For platform linux.
	// +optional
	RuntimeClassName *string `json:"runtimeClassName,omitempty"`

	// Dind gives each runner a Docker daemon of its own, for jobs that use Docker or run in containers. The daemon runs in
	// a privileged container, so this needs a runtimeClassName that puts each pod into a microVM (NET-7).
	// +optional
	Dind *Dind `json:"dind,omitempty"`

	// NodeSelector names the nodes that runners may use. Pods of platform macos have kubernetes.io/os=darwin beside it.
	// +optional
	// +mapType=atomic
	NodeSelector map[string]string `json:"nodeSelector,omitempty"`

	// Tolerations of the pods, beside those that keep a runner on a node that is not ready.
	// +optional
	// +kubebuilder:validation:MaxItems=64
	// +listType=atomic
	Tolerations []corev1.Toleration `json:"tolerations,omitempty"`

	// PriorityClassName is the PriorityClass of the pods; it must exist. Where runners share nodes with pods of a higher
	// priority, the scheduler may take a runner's place in the middle of its job: give runners a class of a high value, or
	// nodes of their own. Unset: the cluster's default.
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

	// VolumeMounts of the container that runs jobs; they name volumes above.
	// +optional
	// +kubebuilder:validation:MaxItems=32
	// +listType=map
	// +listMapKey=mountPath
	VolumeMounts []corev1.VolumeMount `json:"volumeMounts,omitempty"`

	// ImagePullSecrets pull the pod's images. The secrets of the namespace's ServiceAccount default are added to them.
	// +optional
	// +kubebuilder:validation:MaxItems=16
	// +listType=atomic
	ImagePullSecrets []corev1.LocalObjectReference `json:"imagePullSecrets,omitempty"`

	// SecurityContext of the container that runs jobs. Each field that is set replaces the default, by which the pod conforms to
	// the Pod Security level restricted: allowPrivilegeEscalation false, capabilities drop ALL, seccompProfile RuntimeDefault,
	// runAsNonRoot true. Jobs that use sudo need allowPrivilegeEscalation true and capabilities {}. With dind, or with runAsUser 0,
	// the default is that of the container runtime. It has no meaning on macOS.
	// +optional
	SecurityContext *corev1.SecurityContext `json:"securityContext,omitempty"`

	// AgentResources are the requests and limits of each container that Bullpen adds to the runner's: agent, poller and externals.
	// The defaults are requests of 10m cpu and 32Mi memory, limits of 500m cpu and 128Mi memory, and 128Mi ephemeral-storage for
	// both. On macOS the defaults request nothing.
	// +optional
	AgentResources *ContainerResources `json:"agentResources,omitempty"`

	// UserAssignment says where the user of the pod comes from: Template (the default) runs it as runAsUser, Cluster leaves user and
	// groups to the cluster, as OpenShift requires. With Cluster, every container must be assigned the same user.
	// +optional
	UserAssignment UserAssignment `json:"userAssignment,omitempty"`

	// RunAsUser is the numeric user of every container of the pod. It must be one, because the poller hands the runner
	// a file that no other user may read. The default of 1001 is the user of GitHub's own runner image; images that
	// run jobs as another user must say so here. It has no effect with userAssignment Cluster, and none on macOS.
	// +optional
	// +kubebuilder:default=1001
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=2147483647
	RunAsUser *int64 `json:"runAsUser,omitempty"`

	// TerminationGracePeriodSeconds is how long a job may go on after something outside the fleet has deleted its
	// pod (an eviction, a drained node). An idle runner stops at once whatever this says, so a long period costs
	// nothing. The default of six hours is GitHub's own limit for a job that sets none; 432000 (five days) is the
	// longest that GitHub lets a job run on a self-hosted runner.
	// +optional
	// +kubebuilder:default=21600
	// +kubebuilder:validation:Minimum=30
	// +kubebuilder:validation:Maximum=432000
	TerminationGracePeriodSeconds *int64 `json:"terminationGracePeriodSeconds,omitempty"`
}

// Dind is the Docker daemon beside a runner. Jobs find it by DOCKER_HOST, and its socket at /var/run/docker.sock.
type Dind struct {
	// Image holds the daemon: Docker's own image with "dind" in its tag, or one made from it.
	// +optional
	// +kubebuilder:default="docker:28-dind"
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	Image string `json:"image,omitempty"`

	// Storage is how much room there is for the daemon's images, containers and volumes. It is taken from the node as it is
	// used, and goes with the pod.
	// +optional
	// +kubebuilder:default="20Gi"
	// +kubebuilder:validation:XValidation:rule="!quantity(string(self)).isLessThan(quantity('1Gi'))",message="dind.storage must be at least 1Gi; write the unit, such as 20Gi"
	Storage *resource.Quantity `json:"storage,omitempty"`

	// Resources of the daemon's container. The defaults request what agentResources does and limit the daemon to the CPU and memory of
	// the runner, because containers of jobs run inside it. A microVM is as large as the limits of its containers together.
	// +optional
	Resources *ContainerResources `json:"resources,omitempty"`
}
