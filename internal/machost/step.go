package machost

import (
	"context"
	"errors"
	"fmt"
)

// Step is one part of the desired state of a host.
//
// Apply must converge from whatever a crash of an earlier Apply left, at any instant. None of the methods may cut off the connection by
// which the host is managed (HOST-7), and no text that they return may hold a secret (HOST-6).
type Step interface {
	// Name is a short name in kebab case, such as "auto-login". It never changes: conditions and documents refer to it.
	Name() string
	// Check says what differs from what is wanted. It changes nothing.
	Check(ctx context.Context, h Host) (Diff, error)
	// Apply changes what differs. It is called after a Check that found something, and after it Check must find nothing. An error that wraps
	// ErrBusy defers the step: Apply found virtual machines that its change would end, and has left the host as it was.
	Apply(ctx context.Context, h Host) error
	// Verify verifies that the configuration is in force. It is called in every apply, also where nothing differed (HOST-3), and in no
	// plan.
	Verify(ctx context.Context, h Host) error
}

// Keeper is a Step with a program that the host must not be left without.
type Keeper interface {
	Step
	// Keep starts the program again, as it was configured last, if the host was left without it. It is called in an apply that ends before
	// the step is done, with a context that does not end.
	Keep(ctx context.Context, h Host) error
}

// Diff is what a Check has found.
type Diff struct {
	// Changes are sentences for a person, without a full stop: "write /etc/kcpassword: mode 0644, want 0600". Empty when nothing differs.
	Changes []string
	// Disruptive indicates that applying would end virtual machines that run. The engine applies it only while none does.
	Disruptive bool
}

// Empty reports whether nothing differs.
func (d Diff) Empty() bool { return len(d.Changes) == 0 }

// StepError is why an apply stopped. It holds no secret.
type StepError struct {
	Step   string
	File   string // the file concerned, if any
	Remedy string // what a person should do, a whole sentence; if anything
	Err    error
}

// Error names step, file, reason and remedy.
func (e *StepError) Error() string {
	text := "step " + e.Step
	if e.File != "" {
		text += ": " + e.File
	}
	text = fmt.Sprintf("%s: %v", text, e.Err)
	if e.Remedy != "" {
		text += ". " + e.Remedy
	}
	return text
}

// Unwrap returns the reason.
func (e *StepError) Unwrap() error { return e.Err }

// ErrBusy reports that a disruptive change waits for virtual machines to end. Steps that do not need it were applied.
var ErrBusy = errors.New("virtual machines are running")

// ErrWrongPassword reports that macOS has refused the password. The same password is not tried again automatically: macOS locks accounts.
var ErrWrongPassword = errors.New("macOS refuses the password")
