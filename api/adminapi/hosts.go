package adminapi

import "time"

// PathHosts lists the Macs that are prepared as nodes (kind MacHost).
const PathHosts = "/api/v1/hosts"

// ResourceHosts is what Kubernetes is asked about for them. MacHost is a kind of the group itself, and a right on machosts is another thing.
const ResourceHosts = "hosts"

// Host is a Mac, as the controller that prepares it has last described it. Nothing of how one gets there is in it.
type Host struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	Node      string `json:"node,omitempty"` // the name of its Node
	Pool      string `json:"pool,omitempty"` // of Macs
	// Ready says that it is as its configuration says and that its Node is ready, State what is being done or what is in the way, in one word,
	// and Message in a sentence.
	Ready     bool       `json:"ready"`
	State     string     `json:"state,omitempty"`
	Message   string     `json:"message,omitempty"`
	AppliedAt *time.Time `json:"appliedAt,omitempty"` // all steps were last found or made right
	// Attempts have begun and not ended well since something was changed; Unreachable is how many in a row did not come as far as the Mac.
	Attempts    int64      `json:"attempts"`
	Unreachable int64      `json:"unreachable"`
	NextAttempt *time.Time `json:"nextAttempt,omitempty"` // the earliest time of it
	LastError   string     `json:"lastError,omitempty"`   // of the last attempt, without a secret
	NodeMissing *time.Time `json:"nodeMissing,omitempty"` // since when its Node has not been there, or has been silent
	// Problems are the conditions that do not hold, a sentence each; Ready is not among them.
	Problems []Problem `json:"problems"`
	Deleting bool      `json:"deleting,omitempty"`
}

// HostList is all of them, by name.
type HostList struct {
	Hosts []Host `json:"hosts"`
	// Watched is false where the server was not told to look at MacHosts (--mac-hosts), or has not seen them yet.
	Watched bool `json:"watched"`
}
