package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ContainerMode says how jobs of a self-registering runner use containers.
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

// Registration says where a self-registering runner is registered, and as what.
//
// +kubebuilder:validation:XValidation:rule="[has(self.enterprise), has(self.organization), has(self.repository)].filter(x, x).size() == 1",message="a runner is registered in one place: set exactly one of enterprise, organization and repository"
// +kubebuilder:validation:XValidation:rule="!has(self.noDefaultLabels) || !self.noDefaultLabels || has(self.labels) && size(self.labels) > 0",message="a runner needs a label: set labels, or remove noDefaultLabels"
// +kubebuilder:validation:XValidation:rule="!has(self.group) || !has(self.repository)",message="runner groups belong to organizations and enterprises: remove group, or register with an organization"
type Registration struct {
	// Enterprise is the slug of the enterprise that the runner serves. GitHub Apps may not register there: the credentials
	// must hold a token.
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

	// Labels that the runner is registered with, beside self-hosted and those of its system and architecture, such as Linux and X64. Workflows
	// name them in runs-on.
	// +optional
	// +kubebuilder:validation:MaxItems=20
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=100
	// +kubebuilder:validation:items:Pattern=`^[A-Za-z0-9][A-Za-z0-9._-]*$`
	// +kubebuilder:validation:XValidation:rule="self.all(a, self.exists_one(b, a.lowerAscii() == b.lowerAscii()))",message="labels must differ from each other; GitHub does not tell upper case from lower case: remove the one that is there twice"
	// +listType=atomic
	Labels []string `json:"labels,omitempty"`

	// NoDefaultLabels registers the runner with Labels alone, so that it gets no job that asks for self-hosted or for its system only.
	// +optional
	NoDefaultLabels bool `json:"noDefaultLabels,omitempty"`

	// Ephemeral runners take one job and end; they are registered by a just-in-time configuration that nobody can use twice.
	// Static ones (false) go on taking jobs in the same pod, one after the other. The default is true.
	// +optional
	// +kubebuilder:default=true
	Ephemeral *bool `json:"ephemeral,omitempty"`

	// Credentials to register with. The default is the GitHub App of this installation of Bullpen.
	// +optional
	Credentials *GitHubCredentials `json:"credentials,omitempty"`

	// WorkFolder is where jobs work, relative to the runner's root. The default is _work.
	// +optional
	// +kubebuilder:validation:MaxLength=200
	// +kubebuilder:validation:Pattern=`^[^/].*$`
	WorkFolder string `json:"workFolder,omitempty"`
}

// GitHubCredentials names a Secret in the runner's namespace with credentials for GitHub.
type GitHubCredentials struct {
	// SecretName of a Secret that holds either token (a personal access token), or app-id and private-key.pem of a GitHub
	// App, and installation-id where it is not to be looked up. Changes in it are used without a restart.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	SecretName string `json:"secretName"`
}

// KubernetesMode configures runners whose jobs run containers as pods.
type KubernetesMode struct {
	// WorkVolumeClaim is the volume that the runner and the pods of its jobs share. It is made for each runner, and goes with it.
	// +required
	// +kubebuilder:validation:XValidation:rule="has(self.accessModes) && size(self.accessModes) > 0 && self.accessModes[0] in ['ReadWriteOnce', 'ReadWriteMany']",message="the runner and its jobs' pods both write there: the first of accessModes must be ReadWriteOnce or ReadWriteMany"
	WorkVolumeClaim corev1.PersistentVolumeClaimSpec `json:"workVolumeClaim"`

	// ServiceAccountName of the runner, which must be allowed to make the pods, Jobs and Secrets of GitHub's container hooks.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	ServiceAccountName string `json:"serviceAccountName"`
}

// RunnerSpec is what one self-registering runner should be. A runner that exists is not changed by a change of it.
//
// +kubebuilder:validation:XValidation:rule="(has(self.containerMode) && self.containerMode == 'Kubernetes') == has(self.kubernetes)",message="kubernetes and containerMode Kubernetes belong together: set both or neither"
// +kubebuilder:validation:XValidation:rule="!has(self.dind) || has(self.containerMode) && self.containerMode == 'Dind'",message="dind is for containerMode Dind: set it, or remove dind"
// +kubebuilder:validation:XValidation:rule="self.template.spec.containers.exists(c, c.name == 'runner')",message="template holds no container named runner, in which jobs run: add it, or give one of the others that name"
type RunnerSpec struct {
	Registration `json:",inline"`

	// ContainerMode says how jobs use containers. The default is None.
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

	// AgentResources are the requests and limits of each container that Bullpen adds to the template: agent, and externals with
	// containerMode Dind. The defaults are requests of 10m cpu and 32Mi memory, limits of 500m cpu and 128Mi memory, and 128Mi
	// ephemeral-storage for both.
	// +optional
	AgentResources *ContainerResources `json:"agentResources,omitempty"`

	// RegistrationTimeout is how long a runner whose pod is ready may be unknown to GitHub; one that takes longer is replaced.
	// +optional
	// +kubebuilder:default="10m"
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('1m')",message="registrationTimeout is a duration of at least 1m, such as 10m"
	RegistrationTimeout *metav1.Duration `json:"registrationTimeout,omitempty"`

	// Template is the pod. It must hold a container named runner, in which jobs run; its command, if it has one, starts the
	// runner. restartPolicy has no effect: a runner is never started twice.
	// +required
	Template corev1.PodTemplateSpec `json:"template"`
}

// RunnerAutoscaling lets the controller choose the number of self-registering runners. It writes it into
// status.autoscaling, never into spec.
//
// +kubebuilder:validation:XValidation:rule="!has(self.minReplicas) || self.minReplicas <= self.maxReplicas",message="minReplicas is more than maxReplicas: raise maxReplicas, or lower minReplicas"
type RunnerAutoscaling struct {
	// MinReplicas is the fewest runners that there are to be, busy ones included. An active schedule replaces it.
	// +optional
	// +kubebuilder:default=1
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1000
	MinReplicas *int32 `json:"minReplicas,omitempty"`

	// MaxReplicas is the most runners that there are to be, busy ones included. Nothing goes beyond it.
	// +required
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000
	MaxReplicas int32 `json:"maxReplicas"`

	// ScaleDownCooldown is how long fewer runners must have been enough before there are fewer.
	// +optional
	// +kubebuilder:default="10m"
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('0s')",message="scaleDownCooldown is a duration that is not negative, such as 10m"
	ScaleDownCooldown *metav1.Duration `json:"scaleDownCooldown,omitempty"`

	// Jobs has a runner for each job that waits or runs. Jobs are known by their ids, from GitHub's messages and from its
	// queue. Unset: jobs are not looked at.
	// +optional
	Jobs *JobDemand `json:"jobs,omitempty"`

	// PercentageBusy changes the number by the share of runners that work. Where jobs are looked at as well, the larger
	// number counts.
	// +optional
	PercentageBusy *PercentageBusy `json:"percentageBusy,omitempty"`

	// Schedules replace minReplicas at certain times. The first that is active counts.
	// +optional
	// +kubebuilder:validation:MaxItems=64
	// +listType=map
	// +listMapKey=name
	Schedules []ScalingSchedule `json:"schedules,omitempty"`
}

// JobDemand says how jobs are counted.
type JobDemand struct {
	// MinIdle is how many runners to keep waiting beside those that work.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1000
	MinIdle int32 `json:"minIdle,omitempty"`

	// Repositories (owner/name) whose queue is read from GitHub, in addition to its messages, for runners of an organization or
	// an enterprise; a runner of one repository has that read without being told.
	// +optional
	// +kubebuilder:validation:MaxItems=100
	// +kubebuilder:validation:items:MaxLength=200
	// +kubebuilder:validation:items:Pattern=`^[A-Za-z0-9_.-]+/[A-Za-z0-9_.-]+$`
	// +listType=set
	Repositories []string `json:"repositories,omitempty"`

	// ReadEvery is how often GitHub's queue is read, to make good messages that were lost.
	// +optional
	// +kubebuilder:default="5m"
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('30s')",message="readEvery is a duration of at least 30s, such as 5m: each reading costs calls to GitHub"
	ReadEvery *metav1.Duration `json:"readEvery,omitempty"`
}

// PercentageBusy scales by the share of busy runners. All numbers are percentages.
//
// +kubebuilder:validation:XValidation:rule="self.downBelow < self.upAbove",message="downBelow must be less than upAbove, or the number would swing"
type PercentageBusy struct {
	// UpAbove: when more than this share works, the number is multiplied by UpFactor.
	// +optional
	// +kubebuilder:default=80
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100
	UpAbove int32 `json:"upAbove,omitempty"`
	// DownBelow: when less than this share works, the number is multiplied by DownFactor.
	// +optional
	// +kubebuilder:default=30
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=99
	DownBelow int32 `json:"downBelow"`
	// UpFactor is more than 100; the result is rounded up.
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

// Frequency of a schedule that comes again.
// +kubebuilder:validation:Enum=Daily;Weekly;Monthly;Yearly
type Frequency string

// The frequencies.
const (
	FrequencyDaily   Frequency = "Daily"
	FrequencyWeekly  Frequency = "Weekly"
	FrequencyMonthly Frequency = "Monthly"
	FrequencyYearly  Frequency = "Yearly"
)

// ScalingSchedule replaces minReplicas from Start to End, once or again and again.
//
// +kubebuilder:validation:XValidation:rule="self.start < self.end",message="a schedule ends after it starts: end must be later than start"
type ScalingSchedule struct {
	// Name tells schedules apart, in status and in Events.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Name string `json:"name"`
	// Start and End of the (first) time that the schedule is active.
	// +required
	Start metav1.Time `json:"start"`
	// +required
	End metav1.Time `json:"end"`
	// Repeat has it come again, at the same time of day in TimeZone. Unset: once.
	// +optional
	Repeat Frequency `json:"repeat,omitempty"`
	// Until is when it stops coming again. Unset: never.
	// +optional
	Until *metav1.Time `json:"until,omitempty"`
	// TimeZone in which days are counted, such as Europe/Berlin, so that a time of day survives the change of the clocks. The default is UTC.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	TimeZone string `json:"timeZone,omitempty"`
	// MinReplicas while it is active.
	// +required
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1000
	MinReplicas int32 `json:"minReplicas"`
}

// AutoscalingStatus is what the autoscaler has decided. Nobody else writes it.
type AutoscalingStatus struct {
	// DesiredReplicas is the number of runners to work towards.
	// +optional
	DesiredReplicas *int32 `json:"desiredReplicas,omitempty"`
	// ScaledAt is when the number was last found to be needed: raised, or confirmed by jobs that wait. Ephemeral runners that
	// are missing are made again only for a need that is newer than the last time that all were there, or when the hold is over.
	// +optional
	ScaledAt *metav1.Time `json:"scaledAt,omitempty"`
	// LastScaleDownTime is when the number was last lowered.
	// +optional
	LastScaleDownTime *metav1.Time `json:"lastScaleDownTime,omitempty"`
	// Queued and Running are the jobs that were counted.
	// +optional
	Queued int32 `json:"queued"`
	// +optional
	Running int32 `json:"running"`
	// Schedule is the one that is active.
	// +optional
	Schedule string `json:"schedule,omitempty"`
	// Problem is what keeps the autoscaler from seeing what it decides on; the number stands meanwhile. Empty: nothing.
	// +optional
	Problem string `json:"problem,omitempty"`
}

// RunnerCounts are the runners of an owner, by what they do. They add up to the runners that exist.
type RunnerCounts struct {
	// Replicas is the number of runners that exist and are not finished.
	// +optional
	Replicas int32 `json:"replicas"`
	// Booting runners exist and cannot take work yet.
	// +optional
	Booting int32 `json:"booting"`
	// Idle runners can take work now.
	// +optional
	Idle int32 `json:"idle"`
	// Busy runners show a sign of work.
	// +optional
	Busy int32 `json:"busy"`
	// Leaving runners are being removed.
	// +optional
	Leaving int32 `json:"leaving"`
	// Finished runners have ended and are not yet gone.
	// +optional
	Finished int32 `json:"finished"`
}

// Condition types of the kinds of self-registering runners, beside those of RunnerPool: Available, Progressing, Draining, DeletionProtected,
// RemovalBlocked, StuckTerminating, Outdated, ScalingActive.
const (
	// ConditionValid: pods can be built from the spec. False: the message says what to change.
	ConditionValid = "Valid"
	// ConditionRegistered: GitHub knows the runner. False: the message says why not.
	ConditionRegistered = "Registered"
	// ConditionRecreationDelayed: runners are missing and are not recreated yet, because the finished ones may have run the last jobs.
	ConditionRecreationDelayed = "RecreationDelayed"
)
