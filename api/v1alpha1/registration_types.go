package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ContainerMode is how jobs of a self-registering runner use containers.
// +kubebuilder:validation:Enum=None;Dind;Kubernetes
type ContainerMode string

// The container modes.
const (
	// ContainerModeNone: jobs run in the runner's container, and use no others.
	ContainerModeNone ContainerMode = "None"
	// ContainerModeDind: beside the runner there is a Docker daemon of its own, in a microVM (NET-7).
	ContainerModeDind ContainerMode = "Dind"
	// ContainerModeKubernetes: jobs that name containers run them as pods of their own, through GitHub's container hooks.
	ContainerModeKubernetes ContainerMode = "Kubernetes"
)

// Registration is where a self-registering runner is registered, and with which labels.
//
// +kubebuilder:validation:XValidation:rule="[has(self.enterprise), has(self.organization), has(self.repository)].filter(x, x).size() == 1",message="set exactly one of enterprise, organization and repository"
// +kubebuilder:validation:XValidation:rule="!has(self.noDefaultLabels) || !self.noDefaultLabels || has(self.labels) && size(self.labels) > 0",message="noDefaultLabels requires labels: set labels, or remove noDefaultLabels"
// +kubebuilder:validation:XValidation:rule="!has(self.group) || !has(self.repository)",message="runner groups belong to organizations and enterprises: remove group, or register with an organization"
type Registration struct {
	// Enterprise is the slug of the enterprise that the runner serves. GitHub Apps cannot register there: the credentials must
	// contain a token.
	// +optional
	// +kubebuilder:validation:MaxLength=100
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9_.-]+$`
	Enterprise string `json:"enterprise,omitempty"`

	// Organization is the login of the organization that the runner serves.
	// +optional
	// +kubebuilder:validation:MaxLength=100
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9_.-]+$`
	Organization string `json:"organization,omitempty"`

	// Repository is the one repository that the runner serves, as owner/name.
	// +optional
	// +kubebuilder:validation:MaxLength=200
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9_.-]+/[A-Za-z0-9_.-]+$`
	Repository string `json:"repository,omitempty"`

	// Group is the name of the runner group that the runner joins. The default is the group Default.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	Group string `json:"group,omitempty"`

	// Labels of the runner, in addition to self-hosted and those of its operating system and architecture, such as Linux and X64.
	// Workflows request them in runs-on.
	// +optional
	// +kubebuilder:validation:MaxItems=20
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=100
	// +kubebuilder:validation:items:Pattern=`^[A-Za-z0-9][A-Za-z0-9._-]*$`
	// +kubebuilder:validation:XValidation:rule="self.all(a, self.exists_one(b, a.lowerAscii() == b.lowerAscii()))",message="labels must be unique, and GitHub ignores case: remove the duplicate"
	// +listType=atomic
	Labels []string `json:"labels,omitempty"`

	// NoDefaultLabels registers the runner with labels only, so that it receives no job that requests just self-hosted or its
	// operating system.
	// +optional
	NoDefaultLabels bool `json:"noDefaultLabels,omitempty"`

	// Ephemeral runners run one job and exit; they register with a just-in-time configuration that works once.
	// Static runners (false) run jobs one after the other in the same pod. The default is true.
	// +optional
	// +kubebuilder:default=true
	Ephemeral *bool `json:"ephemeral,omitempty"`

	// Credentials to register with. The default is the GitHub App of this installation of Bullpen.
	// +optional
	Credentials *GitHubCredentials `json:"credentials,omitempty"`

	// WorkFolder is the work directory of jobs, relative to the runner's root. The default is _work.
	// +optional
	// +kubebuilder:validation:MaxLength=200
	// +kubebuilder:validation:Pattern=`^[^/].*$`
	WorkFolder string `json:"workFolder,omitempty"`
}

// GitHubCredentials names a Secret in the runner's namespace with credentials for GitHub.
type GitHubCredentials struct {
	// SecretName is the name of a Secret with either token (a personal access token), or app-id and private-key.pem of a GitHub
	// App and, optionally, installation-id. Changes apply without a restart.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	SecretName string `json:"secretName"`
}

// KubernetesMode configures runners whose jobs run containers as pods.
type KubernetesMode struct {
	// WorkVolumeClaim is the volume that the runner and the pods of its jobs share. It is created and deleted with each runner.
	// +required
	// +kubebuilder:validation:XValidation:rule="has(self.accessModes) && size(self.accessModes) > 0 && self.accessModes[0] in ['ReadWriteOnce', 'ReadWriteMany']",message="the first of accessModes must be ReadWriteOnce or ReadWriteMany, because the runner and its jobs' pods write to the volume"
	WorkVolumeClaim corev1.PersistentVolumeClaimSpec `json:"workVolumeClaim"`

	// ServiceAccountName of the runner. It needs permission to create the pods, Jobs and Secrets of GitHub's container hooks.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	ServiceAccountName string `json:"serviceAccountName"`
}

// RunnerSpec is the desired state of a self-registering runner. Changes do not affect existing runners, except that jobContainers of a Runner
// decides on each request of its job.
//
// +kubebuilder:validation:XValidation:rule="(has(self.containerMode) && self.containerMode == 'Kubernetes') == has(self.kubernetes)",message="kubernetes and containerMode Kubernetes require each other: set both or neither"
// +kubebuilder:validation:XValidation:rule="!has(self.dind) || has(self.containerMode) && self.containerMode == 'Dind'",message="dind requires containerMode Dind: set it, or remove dind"
// +kubebuilder:validation:XValidation:rule="!has(self.build) || !has(self.containerMode) || self.containerMode != 'Dind'",message="build and containerMode Dind exclude each other, because a Docker daemon builds images itself: remove one of them"
// +kubebuilder:validation:XValidation:rule="!has(self.buildKit) || has(self.build) && self.build == 'BuildKit'",message="buildKit has an effect with build: BuildKit only: set build, or remove buildKit"
// +kubebuilder:validation:XValidation:rule="!has(self.jobContainers) || !has(self.containerMode) || self.containerMode == 'None'",message="jobContainers and containerMode exclude each other: remove one of them"
// +kubebuilder:validation:XValidation:rule="!has(self.jobContainers) || !has(self.ephemeral) || self.ephemeral",message="jobContainers is for ephemeral runners, because a pod keeps the containers of a job until it ends: remove ephemeral: false, or jobContainers"
// +kubebuilder:validation:XValidation:rule="self.template.spec.containers.exists(c, c.name == 'runner')",message="template has no container named runner, in which jobs run: add it, or rename another one"
type RunnerSpec struct {
	Registration `json:",inline"`

	// ContainerMode is how jobs use containers. The default is None.
	// +optional
	// +kubebuilder:default=None
	ContainerMode ContainerMode `json:"containerMode,omitempty"`

	// Dind is the Docker daemon of containerMode Dind. It is privileged, so template.spec.runtimeClassName must name a class
	// of microVMs.
	// +optional
	Dind *Dind `json:"dind,omitempty"`

	// Kubernetes is for containerMode Kubernetes.
	// +optional
	Kubernetes *KubernetesMode `json:"kubernetes,omitempty"`

	// JobContainers allows jobs to run in containers (container:), to have services (services:), and to use container actions, as
	// template.jobContainers of a RunnerPool does: in the runner's own pod, without privileges and without a Docker daemon. Every container
	// of the template needs limits for CPU and memory, or the pod does. The controller must run with --job-containers (the chart's
	// jobContainers.enabled). For ephemeral runners, except those of a RunnerSet.
	// +optional
	JobContainers *JobContainers `json:"jobContainers,omitempty"`

	// Build gives the runner what builds images, as template.build of a RunnerPool does. BuildKit: a BuildKit daemon in the user namespace
	// of the pod (hostUsers: false), which "docker build", "docker buildx" and "buildctl" of jobs use.
	// +optional
	Build BuildMode `json:"build,omitempty"`

	// BuildKit configures the daemon of build: BuildKit.
	// +optional
	BuildKit *BuildKit `json:"buildKit,omitempty"`

	// AgentResources are the requests and limits of each container that Bullpen adds to the template: agent, idle, courier with
	// jobContainers, and externals with jobContainers or containerMode Dind. The defaults are requests of 10m cpu and 32Mi memory, limits
	// of 500m cpu and 128Mi memory, and 128Mi ephemeral-storage for both.
	// +optional
	AgentResources *ContainerResources `json:"agentResources,omitempty"`

	// RegistrationTimeout is the timeout for registering with GitHub once the pod is ready. Slower runners are replaced.
	// +optional
	// +kubebuilder:default="10m"
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('1m')",message="registrationTimeout must be at least 1m, such as 10m"
	RegistrationTimeout *metav1.Duration `json:"registrationTimeout,omitempty"`

	// Template of the pod. It must have a container named runner, in which jobs run; its command, if set, starts the runner.
	// restartPolicy has no effect: a runner is never restarted.
	// +required
	Template corev1.PodTemplateSpec `json:"template"`
}

// RunnerAutoscaling sets the number of self-registering runners. The controller writes it to status.autoscaling, never to spec.
//
// +kubebuilder:validation:XValidation:rule="!has(self.minReplicas) || self.minReplicas <= self.maxReplicas",message="minReplicas must not be greater than maxReplicas: raise maxReplicas, or lower minReplicas"
type RunnerAutoscaling struct {
	// MinReplicas is the minimum number of runners, including busy ones. An active schedule overrides it.
	// +optional
	// +kubebuilder:default=1
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1000
	MinReplicas *int32 `json:"minReplicas,omitempty"`

	// MaxReplicas is the maximum number of runners, including busy ones. It is never exceeded.
	// +required
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000
	MaxReplicas int32 `json:"maxReplicas"`

	// ScaleDownCooldown is how long fewer runners must suffice before a scale-down.
	// +optional
	// +kubebuilder:default="10m"
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('0s')",message="scaleDownCooldown must be 0s or greater, such as 10m"
	ScaleDownCooldown *metav1.Duration `json:"scaleDownCooldown,omitempty"`

	// Jobs scales to one runner per queued or running job, from GitHub's webhooks and its queue. Unset: jobs are ignored.
	// +optional
	Jobs *JobDemand `json:"jobs,omitempty"`

	// PercentageBusy scales by the percentage of busy runners. If jobs is set too, the larger number applies.
	// +optional
	PercentageBusy *PercentageBusy `json:"percentageBusy,omitempty"`

	// Schedules override minReplicas at certain times. The first active one applies.
	// +optional
	// +kubebuilder:validation:MaxItems=64
	// +listType=map
	// +listMapKey=name
	Schedules []ScalingSchedule `json:"schedules,omitempty"`
}

// JobDemand configures how jobs are counted.
type JobDemand struct {
	// MinIdle is the number of idle runners to keep in addition to busy ones.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1000
	MinIdle int32 `json:"minIdle,omitempty"`

	// Repositories (owner/name) whose queue is read from GitHub in addition to webhooks, for runners of an organization or an
	// enterprise. For runners of one repository, its queue is always read.
	// +optional
	// +kubebuilder:validation:MaxItems=100
	// +kubebuilder:validation:items:MaxLength=200
	// +kubebuilder:validation:items:Pattern=`^[A-Za-z0-9_.-]+/[A-Za-z0-9_.-]+$`
	// +listType=set
	Repositories []string `json:"repositories,omitempty"`

	// ReadEvery is the interval for reading GitHub's queue, which makes up for lost webhooks.
	// +optional
	// +kubebuilder:default="5m"
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('30s')",message="readEvery must be at least 30s, such as 5m, because each read uses GitHub's request quota"
	ReadEvery *metav1.Duration `json:"readEvery,omitempty"`
}

// PercentageBusy scales by the percentage of busy runners. All numbers are percentages.
//
// +kubebuilder:validation:XValidation:rule="self.downBelow < self.upAbove",message="downBelow must be less than upAbove"
type PercentageBusy struct {
	// UpAbove: when a larger percentage is busy, the number is multiplied by upFactor.
	// +optional
	// +kubebuilder:default=80
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100
	UpAbove int32 `json:"upAbove,omitempty"`
	// DownBelow: when a smaller percentage is busy, the number is multiplied by downFactor.
	// +optional
	// +kubebuilder:default=30
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=99
	DownBelow int32 `json:"downBelow"`
	// UpFactor is greater than 100; the result is rounded up.
	// +optional
	// +kubebuilder:default=130
	// +kubebuilder:validation:Minimum=101
	// +kubebuilder:validation:Maximum=1000
	UpFactor int32 `json:"upFactor,omitempty"`
	// DownFactor is less than 100; the result is rounded down.
	// +optional
	// +kubebuilder:default=70
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=99
	DownFactor int32 `json:"downFactor"`
}

// Frequency of a recurring schedule.
// +kubebuilder:validation:Enum=Daily;Weekly;Monthly;Yearly
type Frequency string

// The frequencies.
const (
	FrequencyDaily   Frequency = "Daily"
	FrequencyWeekly  Frequency = "Weekly"
	FrequencyMonthly Frequency = "Monthly"
	FrequencyYearly  Frequency = "Yearly"
)

// ScalingSchedule overrides minReplicas from start to end, once or repeatedly.
//
// +kubebuilder:validation:XValidation:rule="self.start < self.end",message="end must be later than start"
type ScalingSchedule struct {
	// Name of the schedule in status and Events.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Name string `json:"name"`
	// Start of the (first) period in which the schedule is active.
	// +required
	Start metav1.Time `json:"start"`
	// End of that period.
	// +required
	End metav1.Time `json:"end"`
	// Repeat makes the schedule recur at the same time of day in timeZone. Unset: once.
	// +optional
	Repeat Frequency `json:"repeat,omitempty"`
	// Until is when it stops recurring. Unset: never.
	// +optional
	Until *metav1.Time `json:"until,omitempty"`
	// TimeZone of the schedule, such as Europe/Berlin, so that times of day follow daylight saving time. The default is UTC.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	TimeZone string `json:"timeZone,omitempty"`
	// MinReplicas while it is active.
	// +required
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1000
	MinReplicas int32 `json:"minReplicas"`
}

// AutoscalingStatus is the autoscaler's state. Only the autoscaler writes it.
type AutoscalingStatus struct {
	// DesiredReplicas is the desired number of runners.
	// +optional
	DesiredReplicas *int32 `json:"desiredReplicas,omitempty"`
	// ScaledAt is when the number was last raised or confirmed by queued jobs. Missing ephemeral runners are recreated only for a
	// newer need than the last time that all existed, or after recreationHold.
	// +optional
	ScaledAt *metav1.Time `json:"scaledAt,omitempty"`
	// LastScaleDownTime is the time of the last scale-down.
	// +optional
	LastScaleDownTime *metav1.Time `json:"lastScaleDownTime,omitempty"`
	// Queued is the number of queued jobs that were counted.
	// +optional
	Queued int32 `json:"queued"`
	// Running is the number of running jobs that were counted.
	// +optional
	Running int32 `json:"running"`
	// Schedule is the name of the active schedule.
	// +optional
	Schedule string `json:"schedule,omitempty"`
	// Problem is why the autoscaler lacks data; the number does not fall until it is resolved. Empty: none.
	// +optional
	Problem string `json:"problem,omitempty"`
}

// RunnerCounts are the runners of an owner by stage. They add up to the existing runners.
type RunnerCounts struct {
	// Replicas is the number of runners that are not finished.
	// +optional
	Replicas int32 `json:"replicas"`
	// Starting is the number of runners that are not idle yet.
	// +optional
	Starting int32 `json:"starting"`
	// Idle is the number of runners that can take a job.
	// +optional
	Idle int32 `json:"idle"`
	// Busy is the number of runners with a job.
	// +optional
	Busy int32 `json:"busy"`
	// Terminating is the number of runners that are being removed.
	// +optional
	Terminating int32 `json:"terminating"`
	// Finished is the number of exited runners whose pods still exist.
	// +optional
	Finished int32 `json:"finished"`
}

// Condition types of the kinds of self-registering runners, beside those of RunnerPool: Available, Progressing, Draining, DeletionProtected,
// RemovalBlocked, StuckTerminating, Outdated, ScalingActive.
const (
	// ConditionValid: pods can be created from the spec. False: the message says what to change.
	ConditionValid = "Valid"
	// ConditionRegistered: the runner is registered at GitHub. False: the message says why not.
	ConditionRegistered = "Registered"
	// ConditionRecreationDelayed: runners are missing and are not recreated yet, because the finished ones may have run the last jobs.
	ConditionRecreationDelayed = "RecreationDelayed"
)
