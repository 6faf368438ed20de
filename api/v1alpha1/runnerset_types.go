package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// KindRunnerSet is the kind's name.
const KindRunnerSet = "RunnerSet"

// RunnerSet keeps a number of self-registering runners with persistent volumes. Each runner is a StatefulSet of one pod.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=runnersets,scope=Namespaced,shortName=rset,categories=bullpen
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
// +kubebuilder:validation:XValidation:rule="size(self.metadata.name) <= 40",message="a RunnerSet's name has at most 40 characters, because StatefulSets and pods are named after it: choose a shorter name"
// +kubebuilder:validation:XValidation:rule="self.metadata.name.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$')",message="a RunnerSet's name holds lower-case letters, digits and dashes only, because pods are named after it: remove the dots"
type RunnerSet struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +required
	Spec RunnerSetSpec `json:"spec"`
	// +optional
	Status RunnerSetStatus `json:"status,omitempty"`
}

// VolumeClaimTemplate is the template of a volume that each runner of the set has. The pod refers to it by name.
type VolumeClaimTemplate struct {
	// Name of the volume, for the volumeMounts of the runner's container.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=20
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	Name string `json:"name"`
	// Metadata of the claims.
	// +optional
	Metadata TemplateMetadata `json:"metadata,omitempty,omitzero"`
	// Spec of the claims.
	// +required
	Spec corev1.PersistentVolumeClaimSpec `json:"spec"`
}

// VolumeRetention is what happens to the volumes when the set is deleted.
// +kubebuilder:validation:Enum=Retain;Delete
type VolumeRetention string

// The retentions.
const (
	// VolumesRetained: they are kept, and a set of the same name reuses them.
	VolumesRetained VolumeRetention = "Retain"
	// VolumesDeleted: they are deleted with the set.
	VolumesDeleted VolumeRetention = "Delete"
)

// RunnerSetSpec is the desired state of a RunnerSet.
//
// +kubebuilder:validation:XValidation:rule="!has(self.jobContainers)",message="jobContainers is not for RunnerSets, because Kubernetes restarts the containers of their pods: use a RunnerDeployment"
type RunnerSetSpec struct {
	RunnerSpec `json:",inline"`

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

	// VolumeClaimTemplates are the volumes of each runner. When a runner is removed, its volumes are reused by the next one.
	// +optional
	// +kubebuilder:validation:MaxItems=16
	// +listType=map
	// +listMapKey=name
	VolumeClaimTemplates []VolumeClaimTemplate `json:"volumeClaimTemplates,omitempty"`

	// VolumeRetention is what happens to the volumes when the set is deleted.
	// +optional
	// +kubebuilder:default=Retain
	VolumeRetention VolumeRetention `json:"volumeRetention,omitempty"`
}

// RunnerSetStatus is the observed state of a RunnerSet.
type RunnerSetStatus struct {
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
	// CompleteAt is when all desired runners last existed or had been created: recreationHold starts then.
	// +optional
	CompleteAt *metav1.Time `json:"completeAt,omitempty"`
	// Autoscaling is what the autoscaler has decided.
	// +optional
	Autoscaling *AutoscalingStatus `json:"autoscaling,omitempty"`
	// Conditions: Valid, Available, Progressing, RecreationDelayed, Draining, DeletionProtected, RemovalBlocked, StuckTerminating, Outdated, ScalingActive.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// RunnerSetList is a list of RunnerSets.
//
// +kubebuilder:object:root=true
type RunnerSetList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []RunnerSet `json:"items"`
}
