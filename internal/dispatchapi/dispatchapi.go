package dispatchapi

import "time"

// Paths of the internal interface.
const (
	PathDispatch    = "/internal/v1/dispatch"
	PathAcknowledge = "/internal/v1/dispatch/ack"
	PathRetire      = "/internal/v1/retire"
	PathPodsStopped = "/internal/v1/pods/stopped"
)

// Audiences of the tokens that are accepted there.
const (
	// AudienceDispatch is the audience of a pod's own projected token: dispatch and acknowledge only.
	AudienceDispatch = "bullpen-dispatch"
	// AudienceServer is the audience of the controller's token: retire and pods/stopped only.
	AudienceServer = "bullpen-server"
)

// PollHold is how long the server holds a poll that finds no work before it answers 204. Clients give up no earlier
// than PollClientTimeout, which leaves room for a mint.
const (
	PollHold          = 25 * time.Second
	PollClientTimeout = 60 * time.Second
)

// Dispatch answers PathDispatch (POST, empty JSON object as body, the pod's token as bearer):
//
//	200  Dispatch: a JIT configuration; stage it, acknowledge, never poll again
//	204  no work yet: ask again at once
//	401, 403  the token is not accepted: exit 1
//	410  this pod's shot is spent or the fleet takes the pod: exit 0
//	429, 503  come back after Retry-After seconds
//
// A lost 200 costs nothing: the next poll of the same pod is given a fresh configuration (CLAIM-7).
type Dispatch struct {
	// JITConfig is the base64 blob for the runner. It is never logged or stored by anyone (NET-3).
	JITConfig string `json:"jit_config"`
	// RunnerName is the registration's name.
	RunnerName string `json:"runner_name"`
	// Generation identifies this answer; it is sent back in the acknowledgement (CLAIM-15).
	Generation int64 `json:"generation"`
}

// Acknowledge is the body of PathAcknowledge (POST, the pod's token): the configuration is staged. 204 when it is
// noted, also when it was before; 409 when a later answer has replaced that generation. Best effort: that the poller
// has terminated says the same.
type Acknowledge struct {
	Generation int64 `json:"generation"`
}

// RetireRequest is the body of PathRetire (POST, the controller's token): may these pods be removed?
type RetireRequest struct {
	Pods []PodRef `json:"pods"`
}

// PodRef names one pod, by UID; name and namespace are kept with the row for people to read.
type PodRef struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	UID       string `json:"uid"`
	Pool      string `json:"pool"`
}

// RetireResponse answers in the order of the request.
type RetireResponse struct {
	Answers []RetireAnswer `json:"answers"`
}

// Verdict of a retire request for one pod.
type Verdict string

// The verdicts. Anything else, and any pod that is not answered, is to be taken as Unknown.
const (
	Granted Verdict = "granted"
	Busy    Verdict = "busy"
	Unknown Verdict = "unknown"
)

// RetireAnswer says whether one pod may be removed. Busy names the owner and the state of the claim.
type RetireAnswer struct {
	UID     string  `json:"uid"`
	Verdict Verdict `json:"verdict"`
	Owner   string  `json:"owner,omitempty"`
	State   string  `json:"state,omitempty"`
}

// PodStopped is the body of PathPodsStopped (POST, the controller's token): the pod is terminal, or gone. 204 also
// when nothing was open; any other status: report it again.
type PodStopped struct {
	Pod     PodRef    `json:"pod"`
	EndedAt time.Time `json:"ended_at"`
	// ExitCode of the runner container; nil when it never ran or its end is unknown.
	ExitCode *int32 `json:"exit_code,omitempty"`
	Reason   string `json:"reason,omitempty"`
}

// Error is the body of every answer of 400 and above.
type Error struct {
	Error string `json:"error"`
}
