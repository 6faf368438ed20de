package machost

import (
	"context"
	"errors"

	"golang.org/x/crypto/ssh"

	"github.com/bullpen-ci/bullpen/internal/machost"
	"github.com/bullpen-ci/bullpen/internal/machost/remote"
)

// SSH is the Bootstrapper that reaches Macs.
type SSH struct {
	// Binary is the file of this program for darwin/arm64.
	Binary string
	// RemoteRoot is for Macs that are models; see remote.Options.
	RemoteRoot string
	Timing     remote.Timing
}

// CheckKey implements Bootstrapper.
func (SSH) CheckKey(key machost.Secret) error {
	_, err := ssh.ParsePrivateKey([]byte(key.Reveal()))
	if missing := (*ssh.PassphraseMissingError)(nil); errors.As(err, &missing) {
		return errors.New("it has a passphrase: create a key without one for the controller")
	}
	if err != nil { // what the parser says could hold some of it
		return errors.New("not a PEM private key: create one with ssh-keygen -t ed25519 -N ''")
	}
	return nil
}

// Bootstrap implements Bootstrapper.
func (s SSH) Bootstrap(ctx context.Context, r Request) Result {
	signer, err := ssh.ParsePrivateKey([]byte(r.Key.Reveal()))
	if err != nil {
		return Result{Outcome: OutcomeFailed, Err: errors.New("reading the SSH key: not a PEM private key")}
	}
	result, err := remote.Bootstrap(ctx, remote.Options{
		Target:  remote.Target{Address: r.Address, User: r.User, Key: signer, HostKey: r.HostKey},
		Payload: machost.Payload{Config: r.Config, Secrets: r.Secrets},
		Binary:  s.Binary, RemoteRoot: s.RemoteRoot, Events: r.Events, Hold: r.Hold, Timing: s.Timing,
	})
	return Result{Outcome: outcomeOf(err), HostKey: result.HostKey, Deferred: result.Report.Deferred, Err: err}
}

// outcomeOf tells the errors of a bootstrap apart, by their types.
func outcomeOf(err error) Outcome {
	var hostKey *remote.HostKeyError
	var unreachable *remote.UnreachableError
	var lost *remote.LostError
	var refused *remote.AuthError
	var sudo *remote.SudoError
	switch {
	case err == nil:
		return OutcomeSucceeded
	case errors.Is(err, machost.ErrBusy):
		return OutcomeDeferred
	case errors.Is(err, machost.ErrWrongPassword), errors.As(err, &sudo) && !sudo.Missing:
		return OutcomeWrongPassword
	case errors.As(err, &hostKey):
		return OutcomeHostKeyChanged
	case errors.As(err, &refused):
		return OutcomeLoginRefused
	case errors.As(err, &lost) && lost.Stage == remote.StageApply:
		return OutcomeFailed // what the apply does to the Mac may be the reason, so there is a cap
	case errors.As(err, &unreachable), errors.As(err, &lost):
		return OutcomeUnreachable
	default:
		return OutcomeFailed
	}
}
