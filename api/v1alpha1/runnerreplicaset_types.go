package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// KindRunnerReplicaSet is the kind's name.
const KindRunnerReplicaSet = "RunnerReplicaSet"

// RunnerReplicaSet keeps a number of Runners of one template. It is usually created by a RunnerDeployment.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=runnerreplicasets,scope=Namespaced,shortName=rrs,categories=bullpen
// +kubebuilder:subresource:status
// +kubebuilder:subresource:scale:specpath=.spec.replicas,statuspath=.status.replicas,selectorpath=.status.selector
// +kubebuilder:printcolumn:name="Desired",type=integer,JSONPath=`.spec.replicas`
// +kubebuilder:printcolumn:name="Current",type=integer,JSONPath=`.status.replicas`
// +kubebuilder:printcolumn:name="Idle",type=integer,JSONPath=`.status.idle`
// +kubebuilder:printcolumn:name="Busy",type=integer,JSONPath=`.status.busy`
// +kubebuilder:printcolumn:name="Starting",type=integer,JSONPath=`.status.starting`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Terminating",type=integer,JSONPath=`.status.terminating`,priority=1
// +kubebuilder:printcolumn:name="Message",type=string,JSONPath=`.status.conditions[?(@.type=="Progressing")].message`,priority=1
// +kubebuilder:validation:XValidation:rule="size(self.metadata.name) <= 50",message="a RunnerReplicaSet's name has at most 50 characters, because Runners are named after it: choose a shorter name"
// +kubebuilder:validation:XValidation:rule="self.metadata.name.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$')",message="a RunnerReplicaSet's name holds lower-case letters, digits and dashes only, because Runners are named after it: remove the dots"
type RunnerReplicaSet struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +required
	Spec RunnerReplicaSetSpec `json:"spec"`
	// +optional
	Status RunnerReplicaSetStatus `json:"status,omitempty"`
}

// RunnerTemplateSpec is the template of an owner's Runners.
type RunnerTemplateSpec struct {
	// Metadata of each Runner.
	// +optional
	Metadata TemplateMetadata `json:"metadata,omitempty,omitzero"`
	// +required
	Spec RunnerSpec `json:"spec"`
}

// TemplateMetadata is the metadata of objects created from a template.
type TemplateMetadata struct {
	// +optional
	Labels map[string]string `json:"labels,omitempty"`
	// +optional
	Annotations map[string]string `json:"annotations,omitempty"`
}

// RunnerReplicaSetSpec is the desired state of a RunnerReplicaSet.
type RunnerReplicaSetSpec struct {
	// Replicas is the number of runners to keep, including busy ones.
	// +optional
	// +kubebuilder:default=1
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1000
	Replicas *int32 `json:"replicas,omitempty"`

	// ScaledAt is when the autoscaler last raised or confirmed the number: see AutoscalingStatus.
	// +optional
	ScaledAt *metav1.Time `json:"scaledAt,omitempty"`

	// RecreationHold delays the recreation of finished ephemeral runners when an autoscaler sets the number, because the webhook
	// that lowers it may not have arrived yet. A newer need ends the delay. It does not apply to static runners.
	// +optional
	// +kubebuilder:default="10m"
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('0s')",message="recreationHold must be 0s or greater, such as 10m"
	RecreationHold *metav1.Duration `json:"recreationHold,omitempty"`

	// Template of the Runners.
	// +required
	Template RunnerTemplateSpec `json:"template"`
}

// RunnerReplicaSetStatus is the observed state of a RunnerReplicaSet.
type RunnerReplicaSetStatus struct {
	RunnerCounts `json:",inline"`
	// ObservedGeneration is the generation that this status was computed from.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// Selector selects the set's pods, for the scale subresource.
	// +optional
	Selector string `json:"selector,omitempty"`
	// TemplateHash is the hash of the current template.
	// +optional
	TemplateHash string `json:"templateHash,omitempty"`
	// CompleteAt is when all desired runners last existed or had been created: recreationHold starts then.
	// +optional
	CompleteAt *metav1.Time `json:"completeAt,omitempty"`
	// Conditions: Valid, Available, Progressing, RecreationDelayed, Draining, DeletionProtected, RemovalBlocked, StuckTerminating, Outdated.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// RunnerReplicaSetList is a list of RunnerReplicaSets.
//
// +kubebuilder:object:root=true
type RunnerReplicaSetList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []RunnerReplicaSet `json:"items"`
}
