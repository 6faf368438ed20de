//go:build unix

package tartcli

import (
	"errors"
	"fmt"
	"strings"
)

// Kind says what a failure means for the caller.
type Kind string

// The kinds. Each says what helps.
const (
	// KindUnknown is an unrecognized message.
	KindUnknown Kind = "Unknown"
	// KindNotFound: there is no such VM, or image in the cache. Deleting has succeeded, then.
	KindNotFound Kind = "NotFound"
	// KindNotRunning: stopping has succeeded, then; but a VM may still run without Tart's knowledge (tart#967).
	KindNotRunning Kind = "NotRunning"
	// KindRunning: the VM runs (already): adopt it, or stop it first.
	KindRunning Kind = "Running"
	// KindLimit: the host runs as many macOS VMs as it may, or Tart counts so (tart#1217). Retry later.
	KindLimit Kind = "Limit"
	// KindNoAddress: the guest has no address yet. Again, a bounded number of times.
	KindNoAddress Kind = "NoAddress"
	// KindGuestUnreachable: the guest does not answer: it is booting, it has no guest agent, or the socket is dead (tart#1220).
	KindGuestUnreachable Kind = "GuestUnreachable"
	// KindCorrupt: the VM lacks some of its files. Delete it.
	KindCorrupt Kind = "Corrupt"
	// KindStuck: the VM could not be ended, or something holds its storage. The host needs care.
	KindStuck Kind = "Stuck"
	// KindSoftnet: the host is not set up for Softnet.
	KindSoftnet Kind = "Softnet"
	// KindKeychain: credentials for the registry cannot be read: give them in the environment.
	KindKeychain Kind = "Keychain"
	// KindNoSession: the user has no session with an unlocked keychain, without which no VM starts.
	KindNoSession Kind = "NoSession"
	// KindNoSpace: the host's disk is full.
	KindNoSpace Kind = "NoSpace"
	// KindImageMissing: the registry does not know the image.
	KindImageMissing Kind = "ImageMissing"
	// KindUnauthorized: the registry wants other credentials, or some.
	KindUnauthorized Kind = "Unauthorized"
	// KindNetwork: the registry could not be reached.
	KindNetwork Kind = "Network"
	// KindUsage: Tart does not know the arguments: it is too old, or they are wrong.
	KindUsage Kind = "Usage"
	// KindUnreadable: Tart succeeded, and what it printed cannot be read.
	KindUnreadable Kind = "Unreadable"
	// KindNoProgram: there is no Tart on this host, or it cannot be executed.
	KindNoProgram Kind = "NoProgram"
	// KindTimeout: it took too long and was ended. Its effect is unknown.
	KindTimeout Kind = "Timeout"
	// KindCanceled: the caller stopped waiting. The effect is unknown.
	KindCanceled Kind = "Canceled"
	// KindEnded: `run` has ended, and said nothing that explains it.
	KindEnded Kind = "Ended"
)

// Kinds are all of them.
func Kinds() []Kind {
	return []Kind{
		KindUnknown, KindNotFound, KindNotRunning, KindRunning, KindLimit, KindNoAddress, KindGuestUnreachable, KindCorrupt, KindStuck,
		KindSoftnet, KindKeychain, KindNoSession, KindNoSpace, KindImageMissing, KindUnauthorized, KindNetwork, KindUsage, KindUnreadable,
		KindNoProgram, KindTimeout, KindCanceled, KindEnded,
	}
}

// usageCode is Tart's exit code for arguments that it does not understand.
const usageCode = 64

// messages tell kinds by what Tart prints, in lower case; the first that fits decides. A message has to contain all parts of one row.
var messages = []struct {
	parts []string
	kind  Kind
}{
	// The list of other VMs in this one may hold any names: it comes first.
	{[]string{"the number of vms exceeds the system limit"}, KindLimit},
	{[]string{"maximum supported number of active virtual machines"}, KindLimit},
	{[]string{"vzerrordomain", "code=6 "}, KindLimit}, // as older releases and other languages have it
	{[]string{"no ip address found"}, KindNoAddress},
	{[]string{"failed to connect to the vm using its control socket"}, KindGuestUnreachable},
	{[]string{"vm is missing some of its files"}, KindCorrupt},
	{[]string{"failed to forcefully terminate the vm"}, KindStuck},
	{[]string{"failed to lock auxiliary storage"}, KindStuck},
	{[]string{"softnet failed"}, KindSoftnet},
	{[]string{"softnet not found in path"}, KindSoftnet},
	{[]string{"softnet process terminated prematurely"}, KindSoftnet},
	{[]string{"user interaction is not allowed"}, KindKeychain},
	{[]string{"-25308"}, KindKeychain},
	{[]string{"seckeycreaterandomkey_ios failed"}, KindNoSession},
	{[]string{"failed to create new hostkey"}, KindNoSession},
	{[]string{"vzerrordomain", "code=-9 "}, KindNoSession},
	{[]string{"no space left on device"}, KindNoSpace},
	{[]string{"is out of space"}, KindNoSpace},
	{[]string{"isn’t enough space"}, KindNoSpace},
	{[]string{"isn't enough space"}, KindNoSpace},
	{[]string{"nsposixerrordomain", "code=28 "}, KindNoSpace},
	{[]string{"the specified vm", "does not exist"}, KindNotFound},
	{[]string{"is not a digest and doesn't point to a digest"}, KindNotFound}, // of a tag that was never pulled
	{[]string{"is already running!"}, KindRunning},
	{[]string{"is not running"}, KindNotRunning},
	{[]string{"vm \"", "\" is running"}, KindRunning},
	{[]string{"authfailed"}, KindUnauthorized},
	{[]string{"code: 401"}, KindUnauthorized},
	{[]string{"code: 403"}, KindUnauthorized},
	{[]string{"code: 404"}, KindImageMissing},
	{[]string{"manifest_unknown"}, KindImageMissing},
	{[]string{"nsurlerrordomain"}, KindNetwork},
}

// classify finds out what a failure means from Tart's output; it is the only place that matches the text of an error. The code alone only
// shows whether the arguments were understood.
func classify(code int, output string) Kind {
	if code == usageCode {
		return KindUsage
	}
	output = strings.ToLower(output)
	for _, m := range messages {
		fits := true
		for _, part := range m.parts {
			fits = fits && strings.Contains(output, part)
		}
		if fits {
			return m.kind
		}
	}
	return KindUnknown
}

// Error is how a call of Tart failed.
type Error struct {
	// Operation says what was tried, as in "cloning golden to runner".
	Operation string
	// Kind is the part to act on.
	Kind Kind
	// Code is Tart's exit code; -1 when it has none, as when it did not start or a signal ended it.
	Code int
	// Message is what Tart said, for people: one line, without secrets. It may be empty.
	Message string
	// Err is what failed on this side, if anything.
	Err error
}

// Error is one line.
func (e *Error) Error() string {
	switch {
	case e.Message != "":
		return fmt.Sprintf("%s: %s (%s, exit code %d)", e.Operation, e.Message, e.Kind, e.Code)
	case e.Err != nil:
		return fmt.Sprintf("%s: %v (%s)", e.Operation, e.Err, e.Kind)
	default:
		return fmt.Sprintf("%s: %s, exit code %d", e.Operation, e.Kind, e.Code)
	}
}

// Unwrap leads to what failed on this side.
func (e *Error) Unwrap() error { return e.Err }

// KindOf is the kind of a failed call: empty for nil, KindUnknown for an error that is not Tart's.
func KindOf(err error) Kind {
	var failed *Error
	switch {
	case err == nil:
		return ""
	case errors.As(err, &failed):
		return failed.Kind
	default:
		return KindUnknown
	}
}
