package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// KindRunner is the kind's name.
const KindRunner = "Runner"

// Runner is one self-registering runner: a pod of the same name, registered with one repository, organization or enterprise.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=runners,scope=Namespaced,categories=bullpen
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Stage",type=string,JSONPath=`.status.stage`,description="starting, idle, busy, terminating, finished or lost"
// +kubebuilder:printcolumn:name="Enterprise",type=string,JSONPath=`.spec.enterprise`,priority=1
// +kubebuilder:printcolumn:name="Organization",type=string,JSONPath=`.spec.organization`
// +kubebuilder:printcolumn:name="Repository",type=string,JSONPath=`.spec.repository`
// +kubebuilder:printcolumn:name="Labels",type=string,JSONPath=`.spec.labels`,priority=1
// +kubebuilder:printcolumn:name="Registered",type=string,JSONPath=`.status.conditions[?(@.type=="Registered")].status`
// +kubebuilder:printcolumn:name="Id",type=integer,JSONPath=`.status.runnerID`,priority=1,description="GitHub's ID of the registration"
// +kubebuilder:printcolumn:name="Message",type=string,JSONPath=`.status.message`,priority=1
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule="size(self.metadata.name) <= 58",message="a Runner's name has at most 58 characters, because its name at GitHub has a suffix and at most 64: choose a shorter name"
// +kubebuilder:validation:XValidation:rule="self.metadata.name.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$')",message="a Runner's name holds lower-case letters, digits and dashes only, because its pod has the same name: remove the dots"
type Runner struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +required
	Spec RunnerSpec `json:"spec"`
	// +optional
	Status RunnerStatus `json:"status,omitempty"`
}

// RunnerStatus is the observed state of a runner.
type RunnerStatus struct {
	// ObservedGeneration is the generation that this status was computed from.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// Stage of the runner's life: starting, idle, busy, terminating, finished or lost.
	// +optional
	Stage string `json:"stage,omitempty"`
	// RunnerID is GitHub's ID of the registration; 0 if there is none or it is unknown.
	// +optional
	RunnerID int64 `json:"runnerID,omitempty"`
	// RunnerName is the runner's name at GitHub.
	// +optional
	RunnerName string `json:"runnerName,omitempty"`
	// PodUID is the UID of this runner's only pod.
	// +optional
	PodUID string `json:"podUID,omitempty"`
	// TokenExpiresAt is when a static runner's registration token expires, while it is in use.
	// +optional
	TokenExpiresAt *metav1.Time `json:"tokenExpiresAt,omitempty"`
	// Message describes the runner's current state.
	// +optional
	Message string `json:"message,omitempty"`
	// Conditions: Valid, Registered, DeletionProtected, RemovalBlocked, StuckTerminating.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// RunnerList is a list of Runners.
//
// +kubebuilder:object:root=true
type RunnerList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Runner `json:"items"`
}
