package machost

import (
	"context"

	"github.com/bullpen-ci/bullpen/internal/machost"
)

// Bootstrapper makes one attempt to bring a Mac to its desired state: a Bootstrap of package machost/remote.
type Bootstrapper interface {
	// Bootstrap returns when all is done, or nothing more can be; or soon after ctx has ended, wherever it was: another attempt
	// takes up what it has left. It calls Events from one goroutine at a time, and not after it has returned.
	Bootstrap(ctx context.Context, request Request) Result
	// CheckKey says in a sentence what is wrong with a private key, without showing any of it.
	CheckKey(key machost.Secret) error
}

// Request is what an attempt is for.
type Request struct {
	Address string // host:port
	User    string
	Key     machost.Secret // PEM
	// HostKey is the fingerprint of the only host key to accept; empty: the first that is shown.
	HostKey string
	Config  machost.Config
	Secrets machost.Secrets
	// Hold leaves disruptive changes undone: runners may start on the Mac at any time.
	Hold   bool
	Events func(machost.Event)
}

// Result is what came of an attempt.
type Result struct {
	Outcome Outcome
	// HostKey is what the Mac has shown, as far as it came to that, whatever the outcome.
	HostKey string
	// Deferred are the steps that wait until no machine runs.
	Deferred []string
	// Err is why it is not OutcomeSucceeded.
	Err error
}
