package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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

// Queueing is the order in which a pool's jobs are handed out.
// +kubebuilder:validation:Enum=FIFO;FairShare
type Queueing string

// The orders.
const (
	// QueueingFIFO serves the oldest job first.
	QueueingFIFO Queueing = "FIFO"
	// QueueingFairShare serves the account with the fewest runners in this pool first, then the oldest job.
	QueueingFairShare Queueing = "FairShare"
)

// Intake says whether a pool's runners are given jobs.
// +kubebuilder:validation:Enum=Open;Paused;Drained
type Intake string

// The intakes. None of them touches a runner that works.
const (
	// IntakeOpen gives jobs to idle runners.
	IntakeOpen Intake = "Open"
	// IntakePaused gives out no job, and keeps the runners.
	IntakePaused Intake = "Paused"
	// IntakeDrained gives out no job, and keeps no idle runner.
	IntakeDrained Intake = "Drained"
)

// AnnotationIntakeNote of a pool says who has paused or drained it, when and why, in a few words for people. Nothing goes by it.
const AnnotationIntakeNote = "bullpen.dev/intake-note"

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

// RunnerPool is an image, a shape and a place: warm single-shot runners of one kind, kept at one number. It knows no
// customer; who a runner works for is decided when a job is dispatched to it.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=runnerpools,scope=Namespaced,shortName=rpool,categories=bullpen
// +kubebuilder:subresource:status
// +kubebuilder:subresource:scale:specpath=.spec.replicas,statuspath=.status.replicas,selectorpath=.status.selector
// +kubebuilder:printcolumn:name="Label",type=string,JSONPath=`.spec.labels[0]`,description="What workflows write in runs-on"
// +kubebuilder:printcolumn:name="Desired",type=integer,JSONPath=`.status.desiredReplicas`,description="Runners wanted"
// +kubebuilder:printcolumn:name="Idle",type=integer,JSONPath=`.status.idle`,description="Runners that can take a job now"
// +kubebuilder:printcolumn:name="Busy",type=integer,JSONPath=`.status.busy`,description="Runners with any sign of work"
// +kubebuilder:printcolumn:name="Booting",type=integer,JSONPath=`.status.booting`,description="Runners that are starting"
// +kubebuilder:printcolumn:name="Available",type=string,JSONPath=`.status.conditions[?(@.type=="Available")].status`,description="At least one runner serves, or none is wanted"
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Leaving",type=integer,JSONPath=`.status.leaving`,priority=1,description="Runners being removed"
// +kubebuilder:printcolumn:name="Most",type=integer,JSONPath=`.spec.autoscaling.maxReplicas`,priority=1,description="The most runners that the autoscaler may make"
// +kubebuilder:printcolumn:name="Saturated",type=string,JSONPath=`.status.conditions[?(@.type=="Saturated")].status`,priority=1,description="Jobs wait, and there may be no more runners"
// +kubebuilder:printcolumn:name="Starved",type=string,JSONPath=`.status.conditions[?(@.type=="Starved")].status`,priority=1,description="There may be more runners, and they cannot start"
// +kubebuilder:printcolumn:name="Intake",type=string,JSONPath=`.spec.intake`,priority=1,description="Whether its runners are given jobs"
// +kubebuilder:printcolumn:name="Image",type=string,JSONPath=`.spec.template.image`,priority=1
// +kubebuilder:printcolumn:name="Doing",type=string,JSONPath=`.status.conditions[?(@.type=="Progressing")].message`,priority=1,description="What is being done, or what is in the way"
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
// +kubebuilder:validation:XValidation:rule="self.platform == oldSelf.platform",message="platform cannot be changed, because accounts are charged per platform: create another RunnerPool and delete this one (its busy runners finish first)"
// +kubebuilder:validation:XValidation:rule="!has(self.maxRunnerAge) || duration(self.maxRunnerAge) == duration('0s') || !has(self.provisioning) || !has(self.provisioning.startTimeout) || duration(self.maxRunnerAge) > duration(self.provisioning.startTimeout)",message="maxRunnerAge is not longer than provisioning.startTimeout, and a runner could be too old before it has started: raise maxRunnerAge, or lower startTimeout"
// +kubebuilder:validation:XValidation:rule="!has(self.template.nodeSelector) || !('kubernetes.io/os' in self.template.nodeSelector) || self.template.nodeSelector['kubernetes.io/os'] == (self.platform == 'macos' ? 'darwin' : 'linux')",message="template.nodeSelector asks for another operating system than platform: remove kubernetes.io/os from it, or write linux for platform linux and darwin for platform macos"
// +kubebuilder:validation:XValidation:rule="!has(self.architecture) || !has(self.template.nodeSelector) || !('kubernetes.io/arch' in self.template.nodeSelector) || self.template.nodeSelector['kubernetes.io/arch'] == self.architecture",message="template.nodeSelector asks for another architecture than architecture: remove kubernetes.io/arch from it"
// +kubebuilder:validation:XValidation:rule="!has(self.architecture) || self.architecture == 'arm64' || self.platform == 'linux'",message="macOS runners are virtual machines on Apple silicon: remove architecture, or set it to arm64"
// +kubebuilder:validation:XValidation:rule="!has(self.template.securityContext) || self.platform == 'linux'",message="template.securityContext is for platform linux, jobs in a macOS virtual machine run as the image's user: remove it"
// +kubebuilder:validation:XValidation:rule="!has(self.template.dind) || self.platform == 'linux'",message="template.dind is a Docker daemon for runners of platform linux: remove dind, or put it into a RunnerPool for linux"
// +kubebuilder:validation:XValidation:rule="!has(self.template.runtimeClassName) || self.platform == 'linux'",message="template.runtimeClassName is for platform linux, a macOS runner is a virtual machine already: remove it"
// +kubebuilder:validation:XValidation:rule="self.platform == 'linux' || (!has(self.template.volumes) || self.template.volumes.size() == 0) && (!has(self.template.volumeMounts) || self.template.volumeMounts.size() == 0)",message="template.volumes is for platform linux, a macOS virtual machine shares no folders of its host with jobs: remove volumes and volumeMounts, and put what jobs need into the image"
// +kubebuilder:validation:XValidation:rule="self.platform == 'linux' || quantity(string(self.resources.cpu)).isInteger()",message="resources.cpu must be a whole number for platform macos, because a virtual machine has whole CPUs: write it without a unit, such as 4"
// +kubebuilder:validation:XValidation:rule="self.platform == 'linux' || !has(self.resources.ephemeralStorage)",message="resources.ephemeralStorage is for platform linux, a macOS virtual machine has the disk of its image: remove it"
// +kubebuilder:validation:XValidation:rule="!has(self.runnerGroup) || self.runnerGroup == 1 || self.scope == 'Organization'",message="runnerGroup has a meaning only with scope Organization: remove runnerGroup, or set scope to Organization"
type RunnerPoolSpec struct {
	// Platform is the operating system of the runners; accounts have a budget for each. It cannot be changed.
	// +required
	Platform Platform `json:"platform"`

	// Architecture is the processor architecture of the runners' nodes, as the node label kubernetes.io/arch has it. Unset: the one in
	// template.nodeSelector; or any, unless the cluster's nodes differ: then amd64, or on clusters without amd64 the first by name.
	// Macs are arm64.
	// +optional
	Architecture Architecture `json:"architecture,omitempty"`

	// Labels are those that jobs may ask for. The pool takes a job if all labels of its runs-on are among them, self-hosted and linux too if it
	// names those. The first label belongs to this pool alone. A runner is registered with the labels of its job.
	// +required
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=20
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=100
	// +kubebuilder:validation:items:Pattern=`^[A-Za-z0-9][A-Za-z0-9._-]*$`
	// +kubebuilder:validation:XValidation:rule="self.size() == 0 || !(self[0].lowerAscii() in ['self-hosted', 'linux', 'macos', 'windows', 'x64', 'arm64', 'arm'])",message="the first label is the one that workflows use in runs-on and must belong to this pool alone: put a label of your own first, such as linux-4cpu"
	// +kubebuilder:validation:XValidation:rule="self.all(a, self.exists_one(b, a.lowerAscii() == b.lowerAscii()))",message="labels must differ from each other; GitHub does not tell upper case from lower case: remove the one that is there twice"
	// +listType=atomic
	Labels []string `json:"labels"`

	// Resources is the shape of one runner: what it may use, what a node must have free for it, and what the
	// account that uses it is charged with.
	// +required
	Resources RunnerResources `json:"resources"`

	// Template describes the runner's container and where it may run.
	// +required
	Template RunnerTemplate `json:"template"`

	// Replicas is the number of runners to keep, busy ones included. 0 keeps none and stops no busy one. It has no effect
	// while autoscaling is enabled, however it is set (kubectl scale included). The default is 1: a pool that was written
	// down without a number is meant to serve, and jobs that wait for ever because a number was forgotten are harder to
	// explain than one runner.
	// +optional
	// +kubebuilder:default=1
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=10000
	Replicas *int32 `json:"replicas,omitempty"`

	// Rollout limits how fast a changed template replaces idle runners. Busy runners are never replaced.
	// +optional
	// +kubebuilder:default={}
	Rollout Rollout `json:"rollout,omitempty,omitzero"`

	// Provisioning says how long a runner may take to start.
	// +optional
	// +kubebuilder:default={}
	Provisioning Provisioning `json:"provisioning,omitempty,omitzero"`

	// Autoscaling lets the controller choose the number of runners, from the jobs that wait and run. The number is in
	// status.desiredReplicas; replicas is not used then, and never written, so that a chart and the controller do not
	// fight over it.
	// +optional
	Autoscaling *Autoscaling `json:"autoscaling,omitempty"`

	// IdleTimeout is how long a runner may wait for a job. One that has waited longer is retired, through the same
	// fence as any other, and replaced if it is still wanted; so many at a time as a roll may take. Unset or 0s: for
	// ever.
	// +optional
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('0s')",message="idleTimeout is a duration that is not negative, such as 12h"
	IdleTimeout *metav1.Duration `json:"idleTimeout,omitempty"`

	// MaxRunnerAge is how old a runner without a job may become, counted from its creation. An older one is retired and
	// replaced like one of an old template; one that works finishes first. Unset or 0s: any age.
	// +optional
	// +kubebuilder:validation:XValidation:rule="duration(self) == duration('0s') || duration(self) >= duration('1m')",message="maxRunnerAge is 0s or at least 1m, such as 24h"
	MaxRunnerAge *metav1.Duration `json:"maxRunnerAge,omitempty"`

	// Intake says whether this pool's runners are given jobs. Paused: none is handed out, jobs wait, and idle runners stay for when
	// it is Open again. Drained: idle runners leave as well, as with 0 replicas, whatever replicas and autoscaling say. Runners that
	// work, or were chosen for a job, finish it either way.
	// +optional
	// +kubebuilder:default=Open
	Intake Intake `json:"intake,omitempty"`

	// Queueing is the order in which this pool's jobs are handed out.
	// +optional
	// +kubebuilder:default=FIFO
	Queueing Queueing `json:"queueing,omitempty"`

	// Scope says where runners are registered at GitHub.
	// +optional
	// +kubebuilder:default=Organization
	Scope Scope `json:"scope,omitempty"`

	// RunnerGroup is the organization's runner group that runners join: its name, in any case, or its id as a number. A pool serves
	// many organizations, in which groups of one name have different ids. The jobs of an organization that has no such group wait, in this pool
	// alone. 1 is the group Default, which every organization has.
	// +optional
	// +kubebuilder:default=1
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:XValidation:rule="type(self) == int ? self >= 1 && self <= 2147483647 : self.size() >= 1 && self.size() <= 64",message="runnerGroup is the name of a runner group, or its id, which is at least 1"
	RunnerGroup *intstr.IntOrString `json:"runnerGroup,omitempty"`
}

// Rollout limits how fast a changed template replaces idle runners.
type Rollout struct {
	// MaxUnavailable is how many of the wanted runners a roll may keep from serving at once: a number, or a share
	// of replicas (rounded down). A roll always moves at least one.
	// +optional
	// +kubebuilder:default="5%"
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:XValidation:rule="type(self) == int ? int(self) >= 0 : string(self).matches('^(100|[0-9]{1,2})%$')",message="maxUnavailable is a number that is not negative, or a share from 0% to 100%"
	MaxUnavailable *intstr.IntOrString `json:"maxUnavailable,omitempty"`

	// MaxSurge is how many runners above replicas a roll may start before old ones go: a number, or a share of
	// replicas (rounded up). 0 needs no spare room on the nodes.
	// +optional
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:XValidation:rule="type(self) == int ? int(self) >= 0 : string(self).matches('^(100|[0-9]{1,2})%$')",message="maxSurge is a number that is not negative, or a share from 0% to 100%"
	MaxSurge *intstr.IntOrString `json:"maxSurge,omitempty"`
}

// Provisioning says how runners are started.
type Provisioning struct {
	// StartTimeout is how long a runner may take from being placed on a node until it can take work; one that takes
	// longer is removed and replaced, with an Event that says what it was waiting for. The time that a pod waits for a
	// node does not count. 0s waits for ever.
	// +optional
	// +kubebuilder:default="10m"
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('0s')",message="startTimeout is a duration that is not negative, such as 10m"
	StartTimeout *metav1.Duration `json:"startTimeout,omitempty"`

	// UnschedulableTimeout is how long a runner may wait for a node; one that waits longer is removed and replaced, with
	// an Event that repeats what the scheduler said. The default leaves a node autoscaler time to add a node. 0s waits
	// for ever.
	// +optional
	// +kubebuilder:default="15m"
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('0s')",message="unschedulableTimeout is a duration that is not negative, such as 15m"
	UnschedulableTimeout *metav1.Duration `json:"unschedulableTimeout,omitempty"`

	// MaxConcurrentStarts is how many runners may be starting at once for each usable node of the pool's fleet: the
	// pools of one platform whose pods may run on the same nodes. Of pools that differ the lowest counts. Each pool that
	// wants a runner and has none starting may always start one, and a node on which starts hang takes up its own share
	// only. Set it where starting is dear: microVMs, large images. Unset: no limit.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000
	MaxConcurrentStarts *int32 `json:"maxConcurrentStarts,omitempty"`
}

// Autoscaling lets the controller choose the number of runners.
//
// +kubebuilder:validation:XValidation:rule="!self.enabled || has(self.maxReplicas)",message="autoscaling needs a ceiling: set maxReplicas"
// +kubebuilder:validation:XValidation:rule="!has(self.maxReplicas) || !has(self.minWarm) || self.minWarm <= self.maxReplicas",message="minWarm is more than maxReplicas: raise maxReplicas, or lower minWarm"
type Autoscaling struct {
	// Enabled turns autoscaling on. When it is turned off, replicas counts again at once, and idle runners beyond it go:
	// set replicas first.
	// +optional
	// +kubebuilder:default=false
	Enabled bool `json:"enabled"`

	// MinWarm is how many runners to keep waiting beyond those that jobs need. It yields to other pools' jobs where
	// nodes are short. 0 lets the pool scale to zero; the first job then waits for a runner to start. The default is 1.
	// +optional
	// +kubebuilder:default=1
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=10000
	MinWarm *int32 `json:"minWarm,omitempty"`

	// MaxReplicas is the most runners that there are to be, busy ones included. A roll may add rollout.maxSurge, and busy
	// runners beyond a lowered number finish their jobs. Required when autoscaling is on.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=10000
	MaxReplicas *int32 `json:"maxReplicas,omitempty"`

	// ScaleDownCooldown is the least time between two steps down. The default is 5m; 0s: none.
	// +optional
	// +kubebuilder:default="5m"
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('0s')",message="scaleDownCooldown is a duration that is not negative, such as 5m"
	ScaleDownCooldown *metav1.Duration `json:"scaleDownCooldown,omitempty"`

	// Stabilization is how long fewer runners must have been enough before the pool gets fewer: the most that was needed
	// in that time counts. At most 1h. The default is 3m; 0s: at once.
	// +optional
	// +kubebuilder:default="3m"
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('0s') && duration(self) <= duration('1h')",message="stabilization is a duration from 0s to 1h, such as 3m"
	Stabilization *metav1.Duration `json:"stabilization,omitempty"`
}

// Condition types of a RunnerPool.
const (
	// ConditionAvailable: at least one runner serves, idle or busy, or none is wanted.
	ConditionAvailable = "Available"
	// ConditionProgressing: the pool is not what its spec says; the message says what is being done, or what is in
	// the way.
	ConditionProgressing = "Progressing"
	// ConditionDraining: the pool is being deleted and waits for its busy runners.
	ConditionDraining = "Draining"
	// ConditionDeletionProtected: a finalizer holds the pool until its last runner is gone. The message, which is written while the controller
	// runs, says who takes it off and what to do when no controller does (POOL-13).
	ConditionDeletionProtected = "DeletionProtected"
	// ConditionRemovalBlocked: runners should go, and the fence cannot be asked: nothing idle is deleted (EXCL-3).
	ConditionRemovalBlocked = "RemovalBlocked"
	// ConditionSaturated: jobs wait, no runner is idle, and the pool is at the number that it may have.
	ConditionSaturated = "Saturated"
	// ConditionStarved: the pool wants more runners than it can start: no node has room, none is usable, or others are
	// starting.
	ConditionStarved = "Starved"
	// ConditionLabelConflict: another live pool has the first label of this one, or this one has the other's; neither is
	// given the jobs that ask for it (CLAIM-12).
	ConditionLabelConflict = "LabelConflict"
	// ConditionStuckTerminating: pods were deleted and are still there: a working one after its grace period, one that
	// shows no work or has ended minutes after its deletion (POOL-10).
	ConditionStuckTerminating = "StuckTerminating"
	// ConditionOutdated: GitHub has refused runners because their version is too old: the image must be renewed (RUN-7).
	ConditionOutdated = "Outdated"
	// ConditionRefused: GitHub registers no runner for some of the pool's jobs, or gives its runners none of a repository's jobs. The message has
	// GitHub's words and the next attempt; other jobs go on (CLAIM-19, CLAIM-20).
	ConditionRefused = "RefusedByGitHub"
	// ConditionScalingActive: the autoscaler can see what it decides on. False: it cannot, and leaves the number alone.
	// Unknown: it has not looked yet.
	ConditionScalingActive = "ScalingActive"
)

// RunnerPoolStatus is what a pool is. The counts add up to the pods that exist.
type RunnerPoolStatus struct {
	// ObservedGeneration is the generation of the spec that this status was computed from.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// Replicas is the number of runners that exist and are not finished.
	// +optional
	Replicas int32 `json:"replicas"`

	// DesiredReplicas is the number of runners that the controller works towards: spec.replicas, or what the autoscaler
	// has decided.
	// +optional
	DesiredReplicas *int32 `json:"desiredReplicas,omitempty"`

	// LastScaleDownTime is when the autoscaler last lowered the number; the cooldown counts from it.
	// +optional
	LastScaleDownTime *metav1.Time `json:"lastScaleDownTime,omitempty"`

	// ReadyReplicas is the number of runners that can take a job now.
	// +optional
	ReadyReplicas int32 `json:"readyReplicas"`

	// Selector selects the pool's pods, for the scale subresource.
	// +optional
	Selector string `json:"selector,omitempty"`

	// Booting runners exist and cannot take work yet.
	// +optional
	Booting int32 `json:"booting"`

	// Idle runners can take work now.
	// +optional
	Idle int32 `json:"idle"`

	// Busy runners show a sign of work.
	// +optional
	Busy int32 `json:"busy"`

	// Leaving runners are being removed by the fleet.
	// +optional
	Leaving int32 `json:"leaving"`

	// Finished runners have ended and are not yet gone.
	// +optional
	Finished int32 `json:"finished"`

	// TemplateHash is the hash of the template that new runners are made from.
	// +optional
	TemplateHash string `json:"templateHash,omitempty"`

	// Conditions: Available, Progressing, Draining, DeletionProtected, RemovalBlocked, Saturated, Starved, LabelConflict,
	// StuckTerminating, Outdated, ScalingActive.
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
