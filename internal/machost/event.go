package machost

import "time"

// Event is one line of `bullpen host apply --output json`: what happened to one step. It holds no secret.
type Event struct {
	Time    time.Time `json:"time"`
	Step    string    `json:"step,omitempty"` // empty: of the whole
	Phase   Phase     `json:"phase"`
	Changes []string  `json:"changes,omitempty"`
	Message string    `json:"message,omitempty"`
	File    string    `json:"file,omitempty"`
	Remedy  string    `json:"remedy,omitempty"`
	// WrongPassword says with PhaseFailed that the reason is ErrWrongPassword: another attempt with the same one could lock the account.
	WrongPassword bool   `json:"wrongPassword,omitempty"`
	Hash          string `json:"hash,omitempty"`  // with PhaseDone: the drift hash that is now applied
	Token         string `json:"token,omitempty"` // with PhaseConfirm: what the answer on standard input repeats, "confirm TOKEN"
}

// Phase is the state of a step in an event.
type Phase string

// Phases. Each step ends in one of Unchanged, Planned, Applied, Deferred and Failed; the whole ends in Done, Deferred or Failed.
const (
	PhaseApplying  Phase = "Applying"
	PhaseUnchanged Phase = "Unchanged"
	PhasePlanned   Phase = "Planned"  // differs, in a plan
	PhaseApplied   Phase = "Applied"  // changed and verified
	PhaseDeferred  Phase = "Deferred" // waits until no virtual machine runs
	PhaseFailed    Phase = "Failed"
	PhaseConfirm   Phase = "Confirm" // asks the other end to prove that the host can still be reached (HOST-7)
	PhaseDone      Phase = "Done"
)
