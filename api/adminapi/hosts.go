package adminapi

import "time"

// PathHosts lists MacHosts, the Macs that are nodes.
const PathHosts = "/api/v1/hosts"

// ResourceHosts is the resource of access reviews for them. Rights on the kind MacHost are separate.
const ResourceHosts = "hosts"

// Host is a MacHost with its last status. It contains neither addresses nor credentials.
type Host struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	Node      string `json:"node,omitempty"` // the name of its Node
	Pool      string `json:"pool,omitempty"` // of Macs
	// Ready means that it matches its configuration and its Node is ready. State is the current state or problem in one word, Message in a
	// sentence.
	Ready     bool       `json:"ready"`
	State     string     `json:"state,omitempty"`
	Message   string     `json:"message,omitempty"`
	AppliedAt *time.Time `json:"appliedAt,omitempty"` // all steps were last applied
	// Attempts that failed since the last change; Unreachable is the number of consecutive ones that could not reach the Mac.
	Attempts    int64      `json:"attempts"`
	Unreachable int64      `json:"unreachable"`
	NextAttempt *time.Time `json:"nextAttempt,omitempty"` // at the earliest
	LastError   string     `json:"lastError,omitempty"`   // of the last attempt, without secrets
	NodeMissing *time.Time `json:"nodeMissing,omitempty"` // since when its Node does not exist or does not report
	// Problems are its conditions that are False, without Ready.
	Problems []Problem `json:"problems"`
	Deleting bool      `json:"deleting,omitempty"`
}

// HostList is all MacHosts, by name.
type HostList struct {
	Hosts []Host `json:"hosts"`
	// Watched is false if MacHosts are disabled (--mac-hosts), or not listed yet.
	Watched bool `json:"watched"`
}
