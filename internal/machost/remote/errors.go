package remote

import (
	"fmt"
	"strings"
	"time"
)

// HostKeyError reports that the host did not prove to be the one that was meant. Nothing was sent to it but the offer to speak SSH.
type HostKeyError struct {
	Address string
	Want    []string // fingerprints, each "SHA256:…"; none: the host is unknown
	Got     []string // what it has; none: no key of a type that was wanted
	// Changed indicates that Want is the key that this very bootstrap began with.
	Changed bool
	// Revoked reports that the known hosts mark the key as revoked.
	Revoked bool
}

// Unknown reports whether no source names the right key.
func (e *HostKeyError) Unknown() bool { return len(e.Want) == 0 && !e.Revoked }

// Error says both keys, and what to do.
func (e *HostKeyError) Error() string {
	got := strings.Join(e.Got, ", ")
	if got == "" {
		got = "no key of that type"
	}
	want := strings.Join(e.Want, " or ")
	switch {
	case e.Revoked:
		return fmt.Sprintf("the host key of %s is %s, which is marked as revoked. Nothing was sent", e.Address, got)
	case e.Unknown():
		return fmt.Sprintf("the host key of %s is not known: it is %s. Compare it on the host (ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub) and give it as the one to trust", e.Address, got)
	case e.Changed:
		return fmt.Sprintf("the host key of %s has changed during the bootstrap from %s to %s. Nothing more was sent; find out which host has this address before another attempt", e.Address, want, got)
	}
	return fmt.Sprintf("the host key of %s is %s, but %s is expected. Nothing was sent. If the host was reinstalled, compare the key on the host and trust it again; otherwise another host has this address", e.Address, got, want)
}

// UnreachableError reports that no SSH server answered in time.
type UnreachableError struct {
	Address string
	Waited  time.Duration
	Err     error // of the last attempt
}

// Error says how long the connection was tried, and what to check.
func (e *UnreachableError) Error() string {
	return fmt.Sprintf("connecting to %s by SSH for %s: %v. Check that the host is on, that Remote Login is on (System Settings, General, Sharing), and the address",
		e.Address, e.Waited.Round(time.Second), e.Err)
}

// Unwrap returns the last attempt's reason.
func (e *UnreachableError) Unwrap() error { return e.Err }

// AuthError reports that the host does not accept the key for the user.
type AuthError struct {
	Address, User string
	Err           error
}

// Error says what to do.
func (e *AuthError) Error() string {
	return fmt.Sprintf("logging in to %s as %s: %v. Add the public key to ~%s/.ssh/authorized_keys on the host, and allow the user in Remote Login's settings",
		e.Address, e.User, e.Err, e.User)
}

// Unwrap returns the reason.
func (e *AuthError) Unwrap() error { return e.Err }

// UnsupportedError reports that what answers cannot be a host.
type UnsupportedError struct {
	Address string
	Found   string // "Linux x86_64"
}

// Error says what is needed.
func (e *UnsupportedError) Error() string {
	return fmt.Sprintf("%s runs %s: a host must be a Mac with Apple silicon (Darwin arm64)", e.Address, e.Found)
}

// SudoError reports that the user may not use sudo without a password, and that it could not be granted. It is never followed by another
// attempt with the same password: that would lock the account.
type SudoError struct {
	User string
	// Missing indicates that there was no password to try.
	Missing bool
	// Unknown indicates that the connection was lost during the attempt, and nothing shows that it succeeded.
	Unknown bool
	// Detail is the host's message, or how it was lost.
	Detail string
}

// Error says what to do.
func (e *SudoError) Error() string {
	byHand := fmt.Sprintf("run `sudo bullpen host grant-sudo --user %s` on the host", e.User)
	var text string
	switch {
	case e.Missing && e.Detail != "":
		return fmt.Sprintf("%s cannot use sudo without a password, and none was tried: %s. Otherwise %s", e.User, e.Detail, byHand)
	case e.Missing:
		return fmt.Sprintf("%s cannot use sudo without a password, and no password was given. Give it once, or %s", e.User, byHand)
	case e.Unknown:
		text = fmt.Sprintf("obtaining sudo for %s: the connection was lost during the only attempt. It is not retried automatically, because accounts get locked: check the host and run it again, or %s", e.User, byHand)
	default:
		text = fmt.Sprintf("obtaining sudo for %s: the host rejected the password, in the only attempt. Check the password, and that %s is an administrator", e.User, e.User)
	}
	if e.Detail != "" {
		text += " The host said: " + e.Detail
	}
	return text
}

// LostError reports that the connection was lost again and again, or at a time at which nothing can be tried again.
type LostError struct {
	Stage    Stage
	Attempts int
	Err      error
}

// Error says where it was lost.
func (e *LostError) Error() string {
	return fmt.Sprintf("%s: the connection was lost (attempt %d): %v. Run it again to continue", e.Stage, e.Attempts, e.Err)
}

// Unwrap returns the last loss.
func (e *LostError) Unwrap() error { return e.Err }

// StageError says in which stage something else failed.
type StageError struct {
	Stage  Stage
	Err    error
	Detail string // what the host said on its standard error, bounded and without secrets
}

// Error names the stage, the reason and what the host said.
func (e *StageError) Error() string {
	text := fmt.Sprintf("%s: %v", e.Stage, e.Err)
	if e.Detail != "" {
		text += ". The host said: " + e.Detail
	}
	return text
}

// Unwrap returns the reason.
func (e *StageError) Unwrap() error { return e.Err }
