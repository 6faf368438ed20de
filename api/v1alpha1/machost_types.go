package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// KindMacHost is the kind's name.
const KindMacHost = "MacHost"

// LabelMacPool is the label of a Mac's Node that says spec.pool of its MacHost: what the nodeSelector of a RunnerPool names.
const LabelMacPool = "bullpen.dev/mac-pool"

// LabelMacAddress is the label of a Mac's Node with a hash of spec.address and spec.port of its MacHost. By it the controller finds the Node of a
// Mac that another MacHost gave another name.
const LabelMacAddress = "bullpen.dev/mac-address"

// AnnotationReapply on a MacHost makes the controller apply the configuration again whenever its value changes.
const AnnotationReapply = "bullpen.dev/reapply"

// MacHost is a Mac that the controller configures as a node of the cluster over SSH, with the steps of `bullpen host apply`.
// Deleting a MacHost does not change the Mac or its Node.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=machosts,scope=Namespaced,shortName=mac,categories=bullpen
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Address",type=string,JSONPath=`.spec.address`
// +kubebuilder:printcolumn:name="Node",type=string,JSONPath=`.status.nodeName`,description="The Mac's Node"
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`,description="The Mac matches its configuration, and its Node is ready"
// +kubebuilder:printcolumn:name="State",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`,description="Current state, or what blocks progress"
// +kubebuilder:printcolumn:name="Applied",type=date,JSONPath=`.status.appliedTime`,description="When all steps were last applied"
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Pool",type=string,JSONPath=`.spec.pool`,priority=1
// +kubebuilder:printcolumn:name="Attempts",type=integer,JSONPath=`.status.attempts`,priority=1,description="Failed attempts since the last change or success"
// +kubebuilder:printcolumn:name="Message",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].message`,priority=1
// +kubebuilder:validation:XValidation:rule="size(self.metadata.name) <= 63 && self.metadata.name.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$')",message="a MacHost's name has at most 63 lower-case letters, digits and dashes, because the Mac and its Node are named after it"
type MacHost struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +required
	Spec MacHostSpec `json:"spec"`
	// +optional
	Status MacHostStatus `json:"status,omitempty"`
}

// MacHostSpec is the Mac, how to connect to it, and its configuration.
//
// +kubebuilder:validation:XValidation:rule="has(self.config) != has(self.configRef)",message="set exactly one of configRef, a ConfigMap that many Macs can share, and config"
// +kubebuilder:validation:XValidation:rule="has(self.nodeName) == has(oldSelf.nodeName) && (!has(self.nodeName) || self.nodeName == oldSelf.nodeName)",message="nodeName cannot be changed, because the Mac would register another Node: cordon its Node, wait until it has no runners, delete this MacHost, create another one, and delete the old Node when the new one is ready"
type MacHostSpec struct {
	// Address is the Mac's host name or IP address for SSH from the controller.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9]([A-Za-z0-9.:_-]*[A-Za-z0-9])?$`
	// +kubebuilder:validation:XValidation:rule="!self.matches('^[^:]*:[^:]*$')",message="address must be a host name or an IP address without a port: set port"
	Address string `json:"address"`

	// Port of the SSH server.
	// +optional
	// +kubebuilder:default=22
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	Port int32 `json:"port,omitempty"`

	// User for SSH, an administrator of the Mac. The default is the configuration's user, who logs in at the console. Any other
	// user needs sudo without a password.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:Pattern=`^[A-Za-z_][A-Za-z0-9._-]*$`
	User string `json:"user,omitempty"`

	// SSHKeySecretRef is the private key for SSH. Secrets are in the controller's namespace, not in this one, and must be listed in
	// the chart's macHosts.secrets, because runners can mount Secrets of this namespace.
	// +required
	SSHKeySecretRef SecretKey `json:"sshKeySecretRef"`

	// HostKey is the fingerprint of the Mac's SSH host key, as printed by `ssh-keygen -lf`. If unset, the first key is trusted and
	// stored in status.hostKey, and no other is accepted. To accept another one after the Mac was reinstalled, set it here.
	// +optional
	// +kubebuilder:validation:Pattern=`^SHA256:[A-Za-z0-9+/]{43}$`
	HostKey string `json:"hostKey,omitempty"`

	// PasswordSecretRef is the password of the configuration's user, for the login at the console and the first sudo. Without it,
	// both must be set up on the Mac (bullpen host prepare) and are only checked.
	// +optional
	PasswordSecretRef *SecretKey `json:"passwordSecretRef,omitempty"`

	// BootstrapKubeconfigSecretRef is the kubeconfig with which the node agent requests its first certificate. It is no longer
	// needed once the Node exists.
	// +optional
	BootstrapKubeconfigSecretRef *SecretKey `json:"bootstrapKubeconfigSecretRef,omitempty"`

	// Pool of Macs that this one belongs to: the value of its Node's label bullpen.dev/mac-pool, for the nodeSelector of RunnerPools.
	// Disruptive changes are applied to one Mac of a pool at a time. Unset: no label; all Macs without a pool form one.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?$`
	Pool string `json:"pool,omitempty"`

	// ConfigRef is the key of a ConfigMap in this namespace with the configuration, as for `bullpen host apply --config`. MacHosts can
	// share it; a change applies to all of them.
	// +optional
	ConfigRef *ConfigMapKey `json:"configRef,omitempty"`

	// Config is the configuration of this Mac only. It contains no secrets.
	// +optional
	// +kubebuilder:pruning:PreserveUnknownFields
	// +kubebuilder:validation:Schemaless
	// +kubebuilder:validation:Type=object
	Config *runtime.RawExtension `json:"config,omitempty"`

	// Hostname of the Mac. The default is the MacHost's name.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	Hostname string `json:"hostname,omitempty"`

	// NodeName is the name of the Mac's Node. The default is the MacHost's name. Immutable.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	NodeName string `json:"nodeName,omitempty"`

	// NodeIP is the IP address at which the API server connects to the node agent, for logs and exec. Unset: not available.
	// +optional
	// +kubebuilder:validation:MaxLength=45
	// +kubebuilder:validation:XValidation:rule="isIP(self)",message="nodeIP must be an IP address, such as 10.0.0.21"
	NodeIP string `json:"nodeIP,omitempty"`

	// Paused stops configuring the Mac: no new attempt begins, and its Node is uncordoned if the controller had cordoned it. A
	// running attempt completes.
	// +optional
	Paused bool `json:"paused,omitempty"`
}

// SecretKey is a key of a Secret of the controller's namespace.
type SecretKey struct {
	// Name of the Secret.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
	// Key in it.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Key string `json:"key"`
}

// ConfigMapKey is a key of a ConfigMap of the MacHost's namespace.
type ConfigMapKey struct {
	// Name of the ConfigMap.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
	// Key in it.
	// +optional
	// +kubebuilder:default=host.yaml
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Key string `json:"key,omitempty"`
}

// Condition types of a MacHost, beside one for each step: ConditionStepPrefix and the step's name.
const (
	// ConditionReady: the configuration is applied, and the Node is ready. Otherwise the reason is the current state.
	ConditionReady = "Ready"
	// ConditionReachable: the last SSH connection succeeded.
	ConditionReachable = "Reachable"
	// ConditionBootstrapped: all steps have been applied at least once.
	ConditionBootstrapped = "Bootstrapped"
	// ConditionDrained exists while a disruptive change waits: the Node is cordoned, and its runners are gone.
	ConditionDrained = "Drained"
	// ConditionStepPrefix is the prefix of a step's condition, such as step/auto-login: the step is applied.
	ConditionStepPrefix = "step/"
)

// MacHostStatus is the observed state of the Mac and of the attempts to configure it.
type MacHostStatus struct {
	// ObservedGeneration is the generation that this status was computed from.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// NodeName is the name of the Mac's Node.
	// +optional
	NodeName string `json:"nodeName,omitempty"`

	// HostKey is the fingerprint of the Mac's SSH host key.
	// +optional
	HostKey string `json:"hostKey,omitempty"`

	// AppliedHash is the hash of what was last applied completely: configuration, bullpen binary, versions of the Secrets.
	// +optional
	AppliedHash string `json:"appliedHash,omitempty"`

	// AppliedTime is the time of that.
	// +optional
	AppliedTime *metav1.Time `json:"appliedTime,omitempty"`

	// DesiredHash is the hash of what the attempts counted below apply.
	// +optional
	DesiredHash string `json:"desiredHash,omitempty"`

	// Attempts that did not succeed. After five, the next one is in an hour, or when something changes.
	// +optional
	Attempts int32 `json:"attempts,omitempty"`

	// Unreachable is the number of consecutive attempts that could not reach the Mac. There is no limit.
	// +optional
	Unreachable int32 `json:"unreachable,omitempty"`

	// NextAttempt is the earliest time of the next one.
	// +optional
	NextAttempt *metav1.Time `json:"nextAttempt,omitempty"`

	// Outcome of the last attempt: Running, Succeeded, Deferred, Unreachable, LoginRefused, HostKeyChanged, WrongPassword,
	// Failed.
	// +optional
	Outcome string `json:"outcome,omitempty"`

	// BlockedBy is the hash of what must change before another attempt, after a wrong password (macOS may lock the account) or a
	// changed host key.
	// +optional
	BlockedBy string `json:"blockedBy,omitempty"`

	// NodeMissingSince is when the Node was deleted or stopped reporting.
	// +optional
	NodeMissingSince *metav1.Time `json:"nodeMissingSince,omitempty"`

	// LastError is the error of the last attempt, without secrets. Empty after a success.
	// +optional
	LastError string `json:"lastError,omitempty"`

	// Conditions: Ready, Reachable, Bootstrapped, Drained, and step/NAME for each step.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// MacHostList is a list of MacHosts.
//
// +kubebuilder:object:root=true
type MacHostList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []MacHost `json:"items"`
}
