package v1alpha1

import (
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// KindRunnerPool is the kind's name.
const KindRunnerPool = "RunnerPool"

// Platform is the operating system that a pool's runners offer.
// +kubebuilder:validation:Enum=linux;macos
type Platform string

// The platforms.
const (
	PlatformLinux Platform = "linux"
	PlatformMacOS Platform = "macos"
)

// Architecture is a processor architecture, as Kubernetes names it.
// +kubebuilder:validation:Enum=amd64;arm64
type Architecture string

// The architectures.
const (
	ArchitectureAMD64 Architecture = "amd64"
	ArchitectureARM64 Architecture = "arm64"
)

// RunnerLabel is GitHub's label for the architecture; empty for one that has none.
func (a Architecture) RunnerLabel() string {
	switch a {
	case ArchitectureAMD64:
		return "X64"
	case ArchitectureARM64:
		return "ARM64"
	default:
		return ""
	}
}

// Queueing is the order in which a pool's jobs are assigned.
// +kubebuilder:validation:Enum=FIFO;FairShare
type Queueing string

// The orders.
const (
	// QueueingFIFO serves the oldest job first.
	QueueingFIFO Queueing = "FIFO"
	// QueueingFairShare serves the account with the fewest runners in this pool first, then the oldest job.
	QueueingFairShare Queueing = "FairShare"
)

// Intake says whether a pool's runners receive jobs.
// +kubebuilder:validation:Enum=Open;Paused;Drained
type Intake string

// The intakes. None of them affects busy runners.
const (
	// IntakeOpen assigns jobs to idle runners.
	IntakeOpen Intake = "Open"
	// IntakePaused assigns no jobs and keeps the runners.
	IntakePaused Intake = "Paused"
	// IntakeDrained assigns no jobs and removes idle runners.
	IntakeDrained Intake = "Drained"
)

// AnnotationIntakeNote of a pool records the user who paused or drained it, the time and the reason. It is informational.
const AnnotationIntakeNote = "bullpen.dev/intake-note"

// AnnotationChangedBy of a pool names the user who changed its spec, as ChangedBy writes it. An admission policy of the chart verifies the
// name.
const AnnotationChangedBy = "bullpen.dev/changed-by"

// ChangedBy is the value of AnnotationChangedBy: the pool's UID, the generation after the change, and the user. The UID makes it void in a
// copy of the pool, and the generation after the next change.
func ChangedBy(uid types.UID, generation int64, user string) string {
	return string(uid) + " " + strconv.FormatInt(generation, 10) + " " + user
}

// Scope says where runners are registered.
// +kubebuilder:validation:Enum=Organization;Repository
type Scope string

// The scopes.
const (
	// ScopeOrganization registers a runner with the organization that owns the job's repository.
	ScopeOrganization Scope = "Organization"
	// ScopeRepository registers a runner with the job's repository: what repositories owned by a user need.
	ScopeRepository Scope = "Repository"
)

// RunnerPool keeps a number of idle, ephemeral runners of one image, size and node placement. Runners of a pool serve all
// accounts; a runner is registered with an account when a job is dispatched to it.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=runnerpools,scope=Namespaced,shortName=rpool,categories=bullpen
// +kubebuilder:subresource:status
// +kubebuilder:subresource:scale:specpath=.spec.replicas,statuspath=.status.replicas,selectorpath=.status.selector
// +kubebuilder:printcolumn:name="Label",type=string,JSONPath=`.spec.labels[0]`,description="The label to use in runs-on"
// +kubebuilder:printcolumn:name="Desired",type=integer,JSONPath=`.status.desiredReplicas`,description="Desired number of runners"
// +kubebuilder:printcolumn:name="Idle",type=integer,JSONPath=`.status.idle`,description="Runners that can take a job"
// +kubebuilder:printcolumn:name="Busy",type=integer,JSONPath=`.status.busy`,description="Runners with a job"
// +kubebuilder:printcolumn:name="Starting",type=integer,JSONPath=`.status.starting`,description="Runners that are not idle yet"
// +kubebuilder:printcolumn:name="Available",type=string,JSONPath=`.status.conditions[?(@.type=="Available")].status`,description="At least one runner is available, or none is desired"
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Terminating",type=integer,JSONPath=`.status.terminating`,priority=1,description="Runners being removed"
// +kubebuilder:printcolumn:name="Max",type=integer,JSONPath=`.spec.autoscaling.maxReplicas`,priority=1,description="Maximum number of runners"
// +kubebuilder:printcolumn:name="Saturated",type=string,JSONPath=`.status.conditions[?(@.type=="Saturated")].status`,priority=1,description="Jobs are queued and the pool is at its maximum"
// +kubebuilder:printcolumn:name="Starved",type=string,JSONPath=`.status.conditions[?(@.type=="Starved")].status`,priority=1,description="Desired runners cannot start"
// +kubebuilder:printcolumn:name="Intake",type=string,JSONPath=`.spec.intake`,priority=1,description="Whether the pool's runners receive jobs"
// +kubebuilder:printcolumn:name="Image",type=string,JSONPath=`.spec.template.image`,priority=1
// +kubebuilder:printcolumn:name="Message",type=string,JSONPath=`.status.conditions[?(@.type=="Progressing")].message`,priority=1,description="Current state, or what blocks progress"
// +kubebuilder:validation:XValidation:rule="size(self.metadata.name) <= 50",message="a RunnerPool's name has at most 50 characters, because its pods are named <pool>-<8 characters> and the name is a label's value: choose a shorter name"
// +kubebuilder:validation:XValidation:rule="self.metadata.name.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$')",message="a RunnerPool's name holds lower-case letters, digits and dashes only, because pods are named after it: remove the dots"
type RunnerPool struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +required
	Spec RunnerPoolSpec `json:"spec"`
	// +optional
	Status RunnerPoolStatus `json:"status,omitempty"`
}

// RunnerPoolSpec is what a pool should be.
//
// +kubebuilder:validation:XValidation:rule="self.platform == oldSelf.platform",message="platform cannot be changed, because accounts have limits per platform: create another RunnerPool and delete this one (its busy runners finish first)"
// +kubebuilder:validation:XValidation:rule="!has(self.maxRunnerAge) || duration(self.maxRunnerAge) == duration('0s') || !has(self.provisioning) || !has(self.provisioning.startTimeout) || duration(self.maxRunnerAge) > duration(self.provisioning.startTimeout)",message="maxRunnerAge must be greater than provisioning.startTimeout, or a runner could expire before it has started: raise maxRunnerAge, or lower startTimeout"
// +kubebuilder:validation:XValidation:rule="!has(self.template.nodeSelector) || !('kubernetes.io/os' in self.template.nodeSelector) || self.template.nodeSelector['kubernetes.io/os'] == (self.platform == 'macos' ? 'darwin' : 'linux')",message="template.nodeSelector contradicts platform: remove kubernetes.io/os from it, or set it to linux for platform linux and darwin for platform macos"
// +kubebuilder:validation:XValidation:rule="!has(self.architecture) || !has(self.template.nodeSelector) || !('kubernetes.io/arch' in self.template.nodeSelector) || self.template.nodeSelector['kubernetes.io/arch'] == self.architecture",message="template.nodeSelector contradicts architecture: remove kubernetes.io/arch from it"
// +kubebuilder:validation:XValidation:rule="!has(self.architecture) || self.architecture == 'arm64' || self.platform == 'linux'",message="macOS runners are virtual machines on Apple silicon: remove architecture, or set it to arm64"
// +kubebuilder:validation:XValidation:rule="!has(self.template.securityContext) || self.platform == 'linux'",message="template.securityContext is for platform linux, jobs in a macOS virtual machine run as the image's user: remove it"
// +kubebuilder:validation:XValidation:rule="!has(self.template.dind) || self.platform == 'linux'",message="template.dind is a Docker daemon for runners of platform linux: remove dind, or put it into a RunnerPool for linux"
// +kubebuilder:validation:XValidation:rule="!has(self.imagePrepull) || !self.imagePrepull.enabled || self.platform == 'linux'",message="imagePrepull is for platform linux, a Mac keeps the images of its virtual machines itself: remove it"
// +kubebuilder:validation:XValidation:rule="!has(self.template.runtimeClassName) || self.platform == 'linux'",message="template.runtimeClassName is for platform linux, a macOS runner is a virtual machine already: remove it"
// +kubebuilder:validation:XValidation:rule="self.platform == 'linux' || (!has(self.template.volumes) || self.template.volumes.size() == 0) && (!has(self.template.volumeMounts) || self.template.volumeMounts.size() == 0)",message="template.volumes is for platform linux, a macOS virtual machine shares no directories of its host with jobs: remove volumes and volumeMounts, and add the files that jobs need to the image"
// +kubebuilder:validation:XValidation:rule="self.platform == 'linux' || quantity(string(self.resources.cpu)).isInteger()",message="resources.cpu must be a whole number for platform macos, because a virtual machine has whole CPUs: write it without a unit, such as 4"
// +kubebuilder:validation:XValidation:rule="self.platform == 'linux' || !has(self.resources.ephemeralStorage)",message="resources.ephemeralStorage is for platform linux, a macOS virtual machine has the disk of its image: remove it"
// +kubebuilder:validation:XValidation:rule="!has(self.runnerGroup) || self.runnerGroup == 1 || self.scope == 'Organization'",message="runnerGroup requires scope Organization: remove runnerGroup, or set scope to Organization"
type RunnerPoolSpec struct {
	// Platform is the operating system of the runners. Accounts have limits per platform. Immutable.
	// +required
	Platform Platform `json:"platform"`

	// Architecture is the CPU architecture of the runners' nodes (node label kubernetes.io/arch). The default is the one in
	// template.nodeSelector, or any. If the cluster's nodes differ, the default is amd64, or without amd64 nodes the first by name.
	// Macs are arm64.
	// +optional
	Architecture Architecture `json:"architecture,omitempty"`

	// Labels that jobs can request. The pool serves a job if it has every label in the job's runs-on, including self-hosted and
	// linux if the job names them. The first label must be unique to this pool. A runner is registered with the labels of its job.
	// +required
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=20
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=100
	// +kubebuilder:validation:items:Pattern=`^[A-Za-z0-9][A-Za-z0-9._-]*$`
	// +kubebuilder:validation:XValidation:rule="self.size() == 0 || !(self[0].lowerAscii() in ['self-hosted', 'linux', 'macos', 'windows', 'x64', 'arm64', 'arm'])",message="the first label is the one for runs-on and must be unique to this pool: put a label of your own first, such as linux-4cpu"
	// +kubebuilder:validation:XValidation:rule="self.all(a, self.exists_one(b, a.lowerAscii() == b.lowerAscii()))",message="labels must be unique, and GitHub ignores case: remove the duplicate"
	// +listType=atomic
	Labels []string `json:"labels"`

	// Resources are the CPU, memory and storage of one runner: its requests and limits, and its share of the account's limits.
	// +required
	Resources RunnerResources `json:"resources"`

	// Template describes the runner's container and its scheduling.
	// +required
	Template RunnerTemplate `json:"template"`

	// Replicas is the number of runners to keep, including busy ones. 0 removes idle runners and lets busy ones finish. It has
	// no effect while autoscaling is enabled, and neither has kubectl scale. The default is 1.
	// +optional
	// +kubebuilder:default=1
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=10000
	Replicas *int32 `json:"replicas,omitempty"`

	// Rollout limits how fast idle runners are replaced after a template change. Busy runners are never replaced.
	// +optional
	// +kubebuilder:default={}
	Rollout Rollout `json:"rollout,omitempty,omitzero"`

	// ImagePrepull pulls the images of the pool's pods onto every node on which they can run, before a runner needs them there.
	// +optional
	ImagePrepull *ImagePrepull `json:"imagePrepull,omitempty"`

	// Provisioning sets timeouts and limits for starting runners.
	// +optional
	// +kubebuilder:default={}
	Provisioning Provisioning `json:"provisioning,omitempty,omitzero"`

	// Autoscaling sets the number of runners from queued and running jobs. The number is in status.desiredReplicas. Replicas is
	// then ignored and never written, so that a chart and the controller do not overwrite each other.
	// +optional
	Autoscaling *Autoscaling `json:"autoscaling,omitempty"`

	// IdleTimeout is how long a runner may be idle before it is retired and, if still desired, replaced, within the limits of
	// rollout. Unset or 0s: no timeout.
	// +optional
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('0s')",message="idleTimeout must be 0s or greater, such as 12h"
	IdleTimeout *metav1.Duration `json:"idleTimeout,omitempty"`

	// MaxRunnerAge is the maximum age of an idle runner, from its creation. Older runners are retired and replaced within the
	// limits of rollout; busy ones finish first. Unset or 0s: no maximum.
	// +optional
	// +kubebuilder:validation:XValidation:rule="duration(self) == duration('0s') || duration(self) >= duration('1m')",message="maxRunnerAge must be 0s or at least 1m, such as 24h"
	MaxRunnerAge *metav1.Duration `json:"maxRunnerAge,omitempty"`

	// Intake says whether this pool's runners receive jobs. Paused: jobs stay queued, and idle runners are kept. Drained: jobs stay
	// queued, and idle runners are removed, whatever replicas and autoscaling say. Busy and claimed runners finish their jobs.
	// +optional
	// +kubebuilder:default=Open
	Intake Intake `json:"intake,omitempty"`

	// Queueing is the order in which this pool's jobs are assigned.
	// +optional
	// +kubebuilder:default=FIFO
	Queueing Queueing `json:"queueing,omitempty"`

	// Scope is where runners are registered at GitHub.
	// +optional
	// +kubebuilder:default=Organization
	Scope Scope `json:"scope,omitempty"`

	// RunnerGroup is the organization's runner group that runners join: its name (case-insensitive) or its numeric ID. A pool serves
	// many organizations, and groups of one name have different IDs there. In an organization without this group, the pool's jobs
	// stay queued. 1 is the group Default, which every organization has.
	// +optional
	// +kubebuilder:default=1
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:XValidation:rule="type(self) == int ? self >= 1 && self <= 2147483647 : self.size() >= 1 && self.size() <= 64",message="runnerGroup must be the name of a runner group, or its ID, which is at least 1"
	RunnerGroup *intstr.IntOrString `json:"runnerGroup,omitempty"`
}

// Rollout limits how fast idle runners are replaced after a template change.
type Rollout struct {
	// MaxUnavailable is the maximum number of desired runners that may be unavailable during a rollout: a number, or a percentage
	// of replicas (rounded down). A rollout always replaces at least one runner at a time.
	// +optional
	// +kubebuilder:default="5%"
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:XValidation:rule="type(self) == int ? int(self) >= 0 : string(self).matches('^(100|[0-9]{1,2})%$')",message="maxUnavailable must be 0 or greater, or a percentage from 0% to 100%"
	MaxUnavailable *intstr.IntOrString `json:"maxUnavailable,omitempty"`

	// MaxSurge is the maximum number of runners above replicas during a rollout: a number, or a percentage of replicas (rounded
	// up). 0 needs no spare capacity on the nodes.
	// +optional
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:XValidation:rule="type(self) == int ? int(self) >= 0 : string(self).matches('^(100|[0-9]{1,2})%$')",message="maxSurge must be 0 or greater, or a percentage from 0% to 100%"
	MaxSurge *intstr.IntOrString `json:"maxSurge,omitempty"`
}

// ImagePrepull pulls the images of the pool's pods (agent, runner, Docker daemon) with a DaemonSet, NAME-prepull, of one small pod per node.
type ImagePrepull struct {
	// Enabled turns pre-pulling on. After a template change with a new image, idle runners are then replaced only on nodes that have the
	// image; a runner that exits is replaced at once, and new runners prefer nodes with the image. The condition ImagesPulled says on how
	// many nodes the images are, and why a pull fails.
	// +optional
	// +kubebuilder:default=false
	Enabled bool `json:"enabled"`

	// MaxConcurrentPulls limits the nodes that pull changed images at once: a number, or a percentage of the nodes (rounded up). Nodes that
	// cannot pull count. It has no effect when pre-pulling is turned on, and on new nodes: these pull at once.
	// +optional
	// +kubebuilder:default="25%"
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:XValidation:rule="type(self) == int ? int(self) >= 1 : string(self).matches('^(100|[1-9][0-9]?)%$')",message="maxConcurrentPulls must be 1 or greater, or a percentage from 1% to 100%"
	MaxConcurrentPulls *intstr.IntOrString `json:"maxConcurrentPulls,omitempty"`
}

// Provisioning sets timeouts and limits for starting runners.
type Provisioning struct {
	// StartTimeout is the timeout from a runner's scheduling until it is idle. Slower runners are removed and replaced, with an
	// Event that names the cause. The time before scheduling does not count. 0s: no timeout.
	// +optional
	// +kubebuilder:default="10m"
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('0s')",message="startTimeout must be 0s or greater, such as 10m"
	StartTimeout *metav1.Duration `json:"startTimeout,omitempty"`

	// UnschedulableTimeout is the timeout for scheduling a runner. Runners that are not scheduled in time are removed and
	// replaced, with an Event that repeats the scheduler's message. The default gives a node autoscaler time to add a node.
	// 0s: no timeout.
	// +optional
	// +kubebuilder:default="15m"
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('0s')",message="unschedulableTimeout must be 0s or greater, such as 15m"
	UnschedulableTimeout *metav1.Duration `json:"unschedulableTimeout,omitempty"`

	// MaxConcurrentStarts limits the runners that start at once per usable node of the pool's fleet: the pools of one platform
	// whose pods can run on the same nodes. If these pools differ, the lowest value applies. Each pool may always start one
	// runner. Set it where starts are expensive, such as with microVMs or large images. Unset: no limit.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000
	MaxConcurrentStarts *int32 `json:"maxConcurrentStarts,omitempty"`
}

// Autoscaling sets the number of runners from queued and running jobs.
//
// +kubebuilder:validation:XValidation:rule="!self.enabled || has(self.maxReplicas)",message="autoscaling requires maxReplicas"
// +kubebuilder:validation:XValidation:rule="!has(self.maxReplicas) || !has(self.minIdle) || self.minIdle <= self.maxReplicas",message="minIdle must not be greater than maxReplicas: raise maxReplicas, or lower minIdle"
type Autoscaling struct {
	// Enabled turns autoscaling on. When it is turned off, replicas applies at once and idle runners beyond it are removed: set
	// replicas first.
	// +optional
	// +kubebuilder:default=false
	Enabled bool `json:"enabled"`

	// MinIdle is the number of idle runners to keep in addition to those that jobs need. When nodes are short, jobs of other pools
	// take precedence. 0 lets the pool scale to zero; the first job then waits for a runner to start. The default is 1.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=10000
	MinIdle *int32 `json:"minIdle,omitempty"`

	// MinWarm is the former name of minIdle. Stored pools keep theirs, which applies as long as minIdle is not set; new values are
	// rejected.
	// +optional
	// +kubebuilder:validation:XValidation:rule="oldSelf.hasValue() && oldSelf.value() == self",optionalOldSelf=true,message="minWarm is now minIdle: rename it"
	MinWarm *int32 `json:"minWarm,omitempty"`

	// MaxReplicas is the maximum number of runners, including busy ones. A rollout may add rollout.maxSurge. If it is lowered, busy
	// runners finish their jobs. Required when autoscaling is enabled.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=10000
	MaxReplicas *int32 `json:"maxReplicas,omitempty"`

	// ScaleDownCooldown is the minimum time between two scale-downs. The default is 5m; 0s: none.
	// +optional
	// +kubebuilder:default="5m"
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('0s')",message="scaleDownCooldown must be 0s or greater, such as 5m"
	ScaleDownCooldown *metav1.Duration `json:"scaleDownCooldown,omitempty"`

	// Stabilization is the window before a scale-down: the highest number of runners needed within it applies. At most 1h. The
	// default is 3m; 0s: scale down at once.
	// +optional
	// +kubebuilder:default="3m"
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('0s') && duration(self) <= duration('1h')",message="stabilization must be from 0s to 1h, such as 3m"
	Stabilization *metav1.Duration `json:"stabilization,omitempty"`
}

// Condition types of a RunnerPool.
const (
	// ConditionAvailable: at least one runner is idle or busy, or none is desired.
	ConditionAvailable = "Available"
	// ConditionProgressing: the pool does not match its spec yet; the message says what is being done, or what blocks it.
	ConditionProgressing = "Progressing"
	// ConditionDraining: the pool is being deleted and waits for its busy runners.
	ConditionDraining = "Draining"
	// ConditionDeletionProtected: a finalizer keeps the pool until its last runner is gone. The message names the command to run when
	// no controller is left to remove it (POOL-13).
	ConditionDeletionProtected = "DeletionProtected"
	// ConditionRemovalBlocked: runners cannot be removed, because the fence is unreachable: nothing idle is deleted (EXCL-3).
	ConditionRemovalBlocked = "RemovalBlocked"
	// ConditionSaturated: jobs are queued, no runner is idle, and the pool is at its maximum.
	ConditionSaturated = "Saturated"
	// ConditionStarved: desired runners cannot start: no node has room, none is usable, or starts are limited.
	ConditionStarved = "Starved"
	// ConditionLabelConflict: the first label of one of two pools is also a label of the other. Jobs that request only that label are
	// assigned to neither (CLAIM-12).
	ConditionLabelConflict = "LabelConflict"
	// ConditionStuckTerminating: pods are not deleted in time: a busy one still exists after its grace period, any other
	// minutes after its deletion, or the API server rejects the deletion (POOL-10).
	ConditionStuckTerminating = "StuckTerminating"
	// ConditionOutdated: GitHub rejects the runners' version as too old: the image must be updated (RUN-7).
	ConditionOutdated = "Outdated"
	// ConditionRefused: GitHub rejects registrations for some of the pool's jobs, or assigns its runners none of a repository's jobs. The
	// message has GitHub's error and the next attempt; other jobs are not affected (CLAIM-19, CLAIM-20).
	ConditionRefused = "RefusedByGitHub"
	// ConditionImagesPulled: with spec.imagePrepull, the images of the template are on every node on which the pool's pods can run.
	// False with reason PullFailed: a node cannot pull them.
	ConditionImagesPulled = "ImagesPulled"
	// ConditionScalingActive: the autoscaler has the data it needs. False: data is missing, and the size is unchanged.
	// Unknown: no data yet.
	ConditionScalingActive = "ScalingActive"
)

// ReasonPullFailed of the condition ImagesPulled: a node cannot pull an image, or cannot run the pod that pulls it.
const ReasonPullFailed = "PullFailed"

// RunnerPoolStatus is the observed state of a pool. The counts add up to the existing pods.
type RunnerPoolStatus struct {
	// ObservedGeneration is the generation that this status was computed from.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// Replicas is the number of runners that are not finished.
	// +optional
	Replicas int32 `json:"replicas"`

	// DesiredReplicas is the desired number of runners: spec.replicas, or the number that the autoscaler has set.
	// +optional
	DesiredReplicas *int32 `json:"desiredReplicas,omitempty"`

	// LastScaleDownTime is when the autoscaler last scaled down; the cooldown starts then.
	// +optional
	LastScaleDownTime *metav1.Time `json:"lastScaleDownTime,omitempty"`

	// ReadyReplicas is the number of idle runners.
	// +optional
	ReadyReplicas int32 `json:"readyReplicas"`

	// Selector selects the pool's pods, for the scale subresource.
	// +optional
	Selector string `json:"selector,omitempty"`

	// Starting is the number of runners that are not idle yet.
	// +optional
	Starting int32 `json:"starting"`

	// Idle is the number of runners that can take a job.
	// +optional
	Idle int32 `json:"idle"`

	// Busy is the number of runners with a job.
	// +optional
	Busy int32 `json:"busy"`

	// Terminating is the number of runners that the controller is removing.
	// +optional
	Terminating int32 `json:"terminating"`

	// Finished is the number of exited runners whose pods still exist.
	// +optional
	Finished int32 `json:"finished"`

	// TemplateHash is the hash of the current template.
	// +optional
	TemplateHash string `json:"templateHash,omitempty"`

	// Conditions: Available, Progressing, Draining, DeletionProtected, RemovalBlocked, Saturated, Starved, LabelConflict,
	// StuckTerminating, Outdated, RefusedByGitHub, ImagesPulled, ScalingActive.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// RunnerPoolList is a list of RunnerPools.
//
// +kubebuilder:object:root=true
type RunnerPoolList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []RunnerPool `json:"items"`
}
