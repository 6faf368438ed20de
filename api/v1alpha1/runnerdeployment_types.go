package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// KindRunnerDeployment is the kind's name.
const KindRunnerDeployment = "RunnerDeployment"

// RunnerDeployment keeps a number of self-registering runners and replaces them when their template changes, without
// interrupting jobs. It has one RunnerReplicaSet per template.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=runnerdeployments,scope=Namespaced,shortName=rdeploy,categories=bullpen
// +kubebuilder:subresource:status
// +kubebuilder:subresource:scale:specpath=.spec.replicas,statuspath=.status.replicas,selectorpath=.status.selector
// +kubebuilder:printcolumn:name="Desired",type=integer,JSONPath=`.status.desiredReplicas`
// +kubebuilder:printcolumn:name="Current",type=integer,JSONPath=`.status.replicas`
// +kubebuilder:printcolumn:name="Updated",type=integer,JSONPath=`.status.updatedReplicas`,description="Runners of the current template"
// +kubebuilder:printcolumn:name="Idle",type=integer,JSONPath=`.status.idle`
// +kubebuilder:printcolumn:name="Busy",type=integer,JSONPath=`.status.busy`
// +kubebuilder:printcolumn:name="Available",type=string,JSONPath=`.status.conditions[?(@.type=="Available")].status`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Max",type=integer,JSONPath=`.spec.autoscaling.maxReplicas`,priority=1
// +kubebuilder:printcolumn:name="Message",type=string,JSONPath=`.status.conditions[?(@.type=="Progressing")].message`,priority=1
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

// RunnerDeploymentSpec is the desired state of a RunnerDeployment.
type RunnerDeploymentSpec struct {
	// Replicas is the number of runners to keep, including busy ones. It has no effect while autoscaling is set.
	// +optional
	// +kubebuilder:default=1
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1000
	Replicas *int32 `json:"replicas,omitempty"`

	// Rollout limits how runners are replaced after a template change. Busy runners are never replaced.
	// +optional
	// +kubebuilder:default={}
	Rollout RunnerRollout `json:"rollout,omitempty,omitzero"`

	// RecreationHold delays the recreation of finished ephemeral runners; see RunnerReplicaSet.
	// +optional
	// +kubebuilder:default="10m"
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('0s')",message="recreationHold must be 0s or greater, such as 10m"
	RecreationHold *metav1.Duration `json:"recreationHold,omitempty"`

	// Autoscaling sets the number of runners.
	// +optional
	Autoscaling *RunnerAutoscaling `json:"autoscaling,omitempty"`

	// Template of the Runners.
	// +required
	Template RunnerTemplateSpec `json:"template"`
}

// RunnerRollout limits how self-registering runners are replaced after a template change.
type RunnerRollout struct {
	// MaxSurge is the maximum number of runners above the desired number during a rollout: a number, or a percentage of it
	// (rounded up). The default is 100%: all new runners are started before old ones are removed.
	// +optional
	// +kubebuilder:default="100%"
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:XValidation:rule="type(self) == int ? int(self) >= 0 : string(self).matches('^(100|[0-9]{1,2})%$')",message="maxSurge must be 0 or greater, or a percentage from 0% to 100%"
	MaxSurge *intstr.IntOrString `json:"maxSurge,omitempty"`

	// MaxUnavailable is the maximum number of desired runners that may be unavailable during a rollout: a number, or a percentage
	// of it (rounded down). The default is 0. A rollout always replaces at least one runner at a time.
	// +optional
	// +kubebuilder:default=0
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:XValidation:rule="type(self) == int ? int(self) >= 0 : string(self).matches('^(100|[0-9]{1,2})%$')",message="maxUnavailable must be 0 or greater, or a percentage from 0% to 100%"
	MaxUnavailable *intstr.IntOrString `json:"maxUnavailable,omitempty"`
}

// RunnerDeploymentStatus is the observed state of a RunnerDeployment.
type RunnerDeploymentStatus struct {
	RunnerCounts `json:",inline"`
	// ObservedGeneration is the generation that this status was computed from.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// DesiredReplicas is the desired number of runners.
	// +optional
	DesiredReplicas *int32 `json:"desiredReplicas,omitempty"`
	// UpdatedReplicas is the number of runners of the current template.
	// +optional
	UpdatedReplicas int32 `json:"updatedReplicas"`
	// Selector selects the pods, for the scale subresource.
	// +optional
	Selector string `json:"selector,omitempty"`
	// TemplateHash is the hash of the current template.
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
