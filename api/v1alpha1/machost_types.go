package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// KindMacHost is the kind's name.
const KindMacHost = "MacHost"

// LabelMacPool is the label of a Mac's Node that says spec.pool of its MacHost: what the nodeSelector of a RunnerPool names.
const LabelMacPool = "bullpen.dev/mac-pool"

// AnnotationReapply on a MacHost has its Mac prepared again whenever its value changes, whatever it is.
const AnnotationReapply = "bullpen.dev/reapply"

// MacHost is a Mac that the controller makes a node of the cluster and keeps as its configuration says: over SSH, by the steps
// of `bullpen host apply`. Deleting it leaves the Mac and its Node as they are.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=machosts,scope=Namespaced,shortName=mac,categories=bullpen
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Address",type=string,JSONPath=`.spec.address`
// +kubebuilder:printcolumn:name="Node",type=string,JSONPath=`.status.nodeName`,description="The Mac's Node"
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`,description="The Mac is as its configuration says, and its Node is ready"
// +kubebuilder:printcolumn:name="State",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`,description="What is being done, or what is in the way"
// +kubebuilder:printcolumn:name="Applied",type=date,JSONPath=`.status.appliedTime`,description="When all steps were last found or made right"
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Pool",type=string,JSONPath=`.spec.pool`,priority=1
// +kubebuilder:printcolumn:name="Attempts",type=integer,JSONPath=`.status.attempts`,priority=1,description="Attempts that failed since something was last changed, or went well"
// +kubebuilder:printcolumn:name="Message",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].message`,priority=1
// +kubebuilder:validation:XValidation:rule="size(self.metadata.name) <= 63 && self.metadata.name.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$')",message="a MacHost's name has at most 63 lower-case letters, digits and dashes, because the Mac and its Node are named after it: choose such a name"
type MacHost struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +required
	Spec MacHostSpec `json:"spec"`
	// +optional
	Status MacHostStatus `json:"status,omitempty"`
}

// MacHostSpec is which Mac it is, how to get there, and what it is to be.
//
// +kubebuilder:validation:XValidation:rule="has(self.config) != has(self.configRef)",message="what the Mac is to be is said in one place: give either configRef, the name of a ConfigMap that many Macs share, or config"
// +kubebuilder:validation:XValidation:rule="has(self.nodeName) == has(oldSelf.nodeName) && (!has(self.nodeName) || self.nodeName == oldSelf.nodeName)",message="nodeName cannot be changed, because the Mac would become another node and leave the old one behind: delete this MacHost and the old Node, and create another MacHost"
type MacHostSpec struct {
	// Address is the Mac's name or IP address, as the controller reaches it by SSH.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9]([A-Za-z0-9.:_-]*[A-Za-z0-9])?$`
	// +kubebuilder:validation:XValidation:rule="!self.matches('^[^:]*:[^:]*$')",message="address is a name or an IP address alone: write the port into port"
	Address string `json:"address"`

	// Port of the SSH server.
	// +optional
	// +kubebuilder:default=22
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	Port int32 `json:"port,omitempty"`

	// User to log in as by SSH: an administrator of the Mac. The default is the configuration's user, who logs in at the
	// console. Another one needs sudo without a password.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:Pattern=`^[A-Za-z_][A-Za-z0-9._-]*$`
	User string `json:"user,omitempty"`

	// SSHKeySecretRef is the private key that logs in. Secrets are those of the controller's own namespace, not of this
	// one, and only those that the chart's macHosts.secrets names: what is here may be mounted into runners.
	// +required
	SSHKeySecretRef SecretKey `json:"sshKeySecretRef"`

	// HostKey is the fingerprint of the Mac's SSH host key, as `ssh-keygen -lf` prints it. Without it the first key that
	// answers is trusted, kept in status.hostKey, and no other is accepted from then on. To accept another one, after the
	// Mac was reinstalled, write it here.
	// +optional
	// +kubebuilder:validation:Pattern=`^SHA256:[A-Za-z0-9+/]{43}$`
	HostKey string `json:"hostKey,omitempty"`

	// PasswordSecretRef is the password of the configuration's user: for the login at the console, and for the first
	// sudo. Without it both must have been set up on the Mac (bullpen host prepare), and are only checked.
	// +optional
	PasswordSecretRef *SecretKey `json:"passwordSecretRef,omitempty"`

	// BootstrapKubeconfigSecretRef is the kubeconfig by which the node agent asks for its first certificate. It is not
	// needed any more once the Node has been there.
	// +optional
	BootstrapKubeconfigSecretRef *SecretKey `json:"bootstrapKubeconfigSecretRef,omitempty"`

	// Pool is the pool of Macs that this one is of: its Node has the label bullpen.dev/mac-pool with this value, by which
	// the nodeSelector of any number of RunnerPools asks for it. Disruptive changes reach the Macs of a pool one at a
	// time. Unset: no label, and the pool of all Macs without one.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?$`
	Pool string `json:"pool,omitempty"`

	// ConfigRef is the key of a ConfigMap of this namespace with what the Mac is to be, as `bullpen host apply --config`
	// takes it. Many MacHosts share one; a change of it reaches them all.
	// +optional
	ConfigRef *ConfigMapKey `json:"configRef,omitempty"`

	// Config is the same, for this Mac alone. It holds no secret.
	// +optional
	// +kubebuilder:pruning:PreserveUnknownFields
	// +kubebuilder:validation:Schemaless
	// +kubebuilder:validation:Type=object
	Config *runtime.RawExtension `json:"config,omitempty"`

	// Hostname is what the Mac calls itself. The default is the MacHost's name.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	Hostname string `json:"hostname,omitempty"`

	// NodeName is the name of the Mac's Node. The default is the MacHost's name. It cannot be changed: the Mac would become
	// another node, and the old one be left behind.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	NodeName string `json:"nodeName,omitempty"`

	// NodeIP is the address at which the API server reaches the node agent, for logs and exec. Unset: none is offered.
	// +optional
	// +kubebuilder:validation:MaxLength=45
	// +kubebuilder:validation:XValidation:rule="isIP(self)",message="nodeIP is an IP address, such as 10.0.0.21"
	NodeIP string `json:"nodeIP,omitempty"`

	// Paused leaves the Mac alone: no attempt begins, and its Node is uncordoned if the controller had cordoned it. What is
	// under way ends.
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
	// ConditionReady: all that is wanted is applied, and the Node is ready. The reason says what is being done otherwise.
	ConditionReady = "Ready"
	// ConditionReachable: the last attempt came in by SSH.
	ConditionReachable = "Reachable"
	// ConditionBootstrapped: every step has been right at once, at least one time.
	ConditionBootstrapped = "Bootstrapped"
	// ConditionDrained is there while a disruptive change waits: whether the Node is cordoned, and its runners are gone.
	ConditionDrained = "Drained"
	// ConditionStepPrefix begins the type of the condition of a step, such as step/auto-login: it is as it should be.
	ConditionStepPrefix = "step/"
)

// MacHostStatus is what is known of the Mac, and of the attempts to make it what it is to be.
type MacHostStatus struct {
	// ObservedGeneration is the generation of the spec that this status was computed from.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// NodeName is the name of the Mac's Node.
	// +optional
	NodeName string `json:"nodeName,omitempty"`

	// HostKey is the fingerprint that the Mac's SSH server has shown.
	// +optional
	HostKey string `json:"hostKey,omitempty"`

	// AppliedHash is the hash of all that was wanted when every step was last right: configuration, the bullpen binary,
	// versions of the Secrets.
	// +optional
	AppliedHash string `json:"appliedHash,omitempty"`

	// AppliedTime is when that was.
	// +optional
	AppliedTime *metav1.Time `json:"appliedTime,omitempty"`

	// WantedHash is the hash of all that was wanted by the attempts that the numbers below count.
	// +optional
	WantedHash string `json:"wantedHash,omitempty"`

	// Attempts that have begun and not ended well. After five it is left alone for an hour, or until something changes.
	// +optional
	Attempts int32 `json:"attempts,omitempty"`

	// Unreachable counts attempts in a row that did not come as far as the Mac. There is no limit.
	// +optional
	Unreachable int32 `json:"unreachable,omitempty"`

	// NextAttempt is the earliest time of the next one.
	// +optional
	NextAttempt *metav1.Time `json:"nextAttempt,omitempty"`

	// Outcome of the last attempt: Running, Succeeded, Deferred, Unreachable, LoginRefused, HostKeyChanged, WrongPassword,
	// Failed.
	// +optional
	Outcome string `json:"outcome,omitempty"`

	// HeldBy is the hash of what must change before another attempt, after a wrong password (an account may be locked by
	// another) or a changed host key.
	// +optional
	HeldBy string `json:"heldBy,omitempty"`

	// NodeMissingSince is since when the Node has not been there, or has been silent.
	// +optional
	NodeMissingSince *metav1.Time `json:"nodeMissingSince,omitempty"`

	// LastError is why the last attempt failed, without a secret. Empty after one that went well.
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
