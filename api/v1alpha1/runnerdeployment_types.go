package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// KindRunnerDeployment is the kind's name.
const KindRunnerDeployment = "RunnerDeployment"

// RunnerDeployment keeps a number of self-registering runners, and replaces them when their template changes, without
// ending a job: one RunnerReplicaSet for each template.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=runnerdeployments,scope=Namespaced,shortName=rdeploy,categories=bullpen
// +kubebuilder:subresource:status
// +kubebuilder:subresource:scale:specpath=.spec.replicas,statuspath=.status.replicas,selectorpath=.status.selector
// +kubebuilder:printcolumn:name="Desired",type=integer,JSONPath=`.status.desiredReplicas`
// +kubebuilder:printcolumn:name="Current",type=integer,JSONPath=`.status.replicas`
// +kubebuilder:printcolumn:name="Updated",type=integer,JSONPath=`.status.updatedReplicas`,description="Runners of the present template"
// +kubebuilder:printcolumn:name="Idle",type=integer,JSONPath=`.status.idle`
// +kubebuilder:printcolumn:name="Busy",type=integer,JSONPath=`.status.busy`
// +kubebuilder:printcolumn:name="Available",type=string,JSONPath=`.status.conditions[?(@.type=="Available")].status`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Most",type=integer,JSONPath=`.spec.autoscaling.maxReplicas`,priority=1
// +kubebuilder:printcolumn:name="Doing",type=string,JSONPath=`.status.conditions[?(@.type=="Progressing")].message`,priority=1
// +kubebuilder:validation:XValidation:rule="size(self.metadata.name) <= 40",message="a RunnerDeployment's name has at most 40 characters, because RunnerReplicaSets and Runners are named after it: choose a shorter name"
// +kubebuilder:validation:XValidation:rule="self.metadata.name.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$')",message="a RunnerDeployment's name holds lower-case letters, digits and dashes only, because Runners are named after it: remove the dots"
type RunnerDeployment struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +required
	Spec RunnerDeploymentSpec `json:"spec"`
	// +optional
	Status RunnerDeploymentStatus `json:"status,omitempty"`
}

// RunnerDeploymentSpec is what a RunnerDeployment should be.
type RunnerDeploymentSpec struct {
	// Replicas is the number of runners to keep, busy ones included. It has no effect while autoscaling is set.
	// +optional
	// +kubebuilder:default=1
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1000
	Replicas *int32 `json:"replicas,omitempty"`

	// Rollout limits how a changed template replaces runners. Busy runners are never replaced.
	// +optional
	// +kubebuilder:default={}
	Rollout RunnerRollout `json:"rollout,omitempty,omitzero"`

	// RecreationHold is that of a RunnerReplicaSet.
	// +optional
	// +kubebuilder:default="10m"
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('0s')",message="recreationHold is a duration that is not negative, such as 10m"
	RecreationHold *metav1.Duration `json:"recreationHold,omitempty"`

	// Autoscaling lets the controller choose the number.
	// +optional
	Autoscaling *RunnerAutoscaling `json:"autoscaling,omitempty"`

	// Template of the Runners.
	// +required
	Template RunnerTemplateSpec `json:"template"`
}

// RunnerRollout limits how a changed template replaces self-registering runners.
type RunnerRollout struct {
	// MaxSurge is how many runners above the wanted number there may be during a roll: a number, or a share of it (rounded
	// up). The default is 100%: the new runners are all started, and the old ones go when those are there.
	// +optional
	// +kubebuilder:default="100%"
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:XValidation:rule="type(self) == int ? int(self) >= 0 : string(self).matches('^(100|[0-9]{1,2})%$')",message="maxSurge is a number that is not negative, or a share from 0% to 100%"
	MaxSurge *intstr.IntOrString `json:"maxSurge,omitempty"`

	// MaxUnavailable is how many of the wanted runners a roll may keep from serving at once: a number, or a share of it
	// (rounded down). The default is 0. A roll always moves at least one.
	// +optional
	// +kubebuilder:default=0
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:XValidation:rule="type(self) == int ? int(self) >= 0 : string(self).matches('^(100|[0-9]{1,2})%$')",message="maxUnavailable is a number that is not negative, or a share from 0% to 100%"
	MaxUnavailable *intstr.IntOrString `json:"maxUnavailable,omitempty"`
}

// RunnerDeploymentStatus is what a RunnerDeployment is.
type RunnerDeploymentStatus struct {
	RunnerCounts `json:",inline"`
	// ObservedGeneration is the generation of the spec that this status was computed from.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// DesiredReplicas is the number of runners that the controller works towards.
	// +optional
	DesiredReplicas *int32 `json:"desiredReplicas,omitempty"`
	// UpdatedReplicas is the number of runners of the present template.
	// +optional
	UpdatedReplicas int32 `json:"updatedReplicas"`
	// Selector selects the pods, for the scale subresource.
	// +optional
	Selector string `json:"selector,omitempty"`
	// TemplateHash is the hash of the template that new runners are made from.
	// +optional
	TemplateHash string `json:"templateHash,omitempty"`
	// Autoscaling is what the autoscaler has decided.
	// +optional
	Autoscaling *AutoscalingStatus `json:"autoscaling,omitempty"`
	// Conditions: Valid, Available, Progressing, Draining, DeletionProtected, RemovalBlocked, Outdated, ScalingActive.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// RunnerDeploymentList is a list of RunnerDeployments.
//
// +kubebuilder:object:root=true
type RunnerDeploymentList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []RunnerDeployment `json:"items"`
}
