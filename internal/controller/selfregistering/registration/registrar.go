package registration

import (
	"context"
	"errors"
	"time"

	"github.com/bullpen-ci/bullpen/internal/fleet"
	"github.com/bullpen-ci/bullpen/internal/plan/lifecycle"
)

// Errors of this package, beside those of fleet (ErrForbidden, ErrRejected, ErrUncertain, ErrNameTaken, *RateLimitedError). Each
// comes with a sentence that says what to do.
var (
	// ErrCredentials: there are none that can be used: the Secret is missing, or what it holds is no credential. It lasts
	// until the Secret changes.
	ErrCredentials = errors.New("there are no usable credentials")
	// ErrTarget: the credentials work, and GitHub does not let them register runners there: no such place, no such group, or
	// no permission.
	ErrTarget = errors.New("GitHub does not allow these credentials to register runners there")
	// ErrBusy: so much is under way with these credentials that nothing more was begun. Nothing was sent; try again soon.
	ErrBusy = errors.New("too many requests in flight with these credentials")
)

// Credentials names a Secret. With no name it is the installation's own GitHub App.
type Credentials struct{ Namespace, Secret string }

// Target is where a runner is registered: exactly one of the first three is set.
type Target struct {
	Enterprise   string `json:"enterprise,omitempty"`
	Organization string `json:"organization,omitempty"`
	Repository   string `json:"repository,omitempty"` // owner/name
	// RepositoryID is GitHub's id of the repository; 0: not known. It survives a rename, after which the name may be another
	// repository's: who keeps a Target to remove a runner later keeps the one that Registrar.Target gives.
	RepositoryID int64 `json:"repositoryID,omitempty"`
	// Group is the name of a runner group; empty for the default one.
	Group string `json:"group,omitempty"`
}

// JITRequest is what a just-in-time configuration is asked for with.
type JITRequest struct {
	Name       string // at most 64 characters, unique per mint (CLAIM-10)
	Labels     []string
	WorkFolder string // relative to the runner's root; empty: _work
}

// Token registers static runners until it expires. GitHub gives it for an hour.
type Token struct {
	Value     fleet.Secret
	ExpiresAt time.Time
	// URL is the place to register with it, in the runner's form: https://github.com/acme/app.
	URL string
}

// Subject is a runner to remove.
type Subject struct {
	// ID of the registration; 0 where it is not known: it is then looked for by Name.
	ID   int64
	Name string
	// Ended: the runner's container has ended, so that a job of it cannot go on, whatever GitHub says (a 422 may last for
	// minutes after the end).
	Ended bool
	// NeverStarted: the runner's container was never started, so that a registration by token cannot exist yet.
	NeverStarted bool
	// Lost: the runner's node is authoritatively gone, so that its own signs prove nothing. A registration that GitHub has removed, or does
	// not have, is then the proof that its work is over (POOL-7).
	Lost bool
}

// Registration is one runner as GitHub lists it. Busy lags.
type Registration = fleet.Registration

// Registrar registers and removes the runners of one target with one set of credentials. It is safe for concurrent use; every
// call has a deadline of its own, and none sleeps or repeats itself.
type Registrar interface {
	// JIT registers an ephemeral runner. fleet.ErrNameTaken: a runner of that name exists, perhaps by an earlier try whose
	// answer was lost. fleet.ErrUncertain: one may exist now.
	JIT(ctx context.Context, ask JITRequest) (fleet.JIT, error)
	// Token gives a token for static runners.
	Token(ctx context.Context) (Token, error)
	// Remove asks GitHub to remove a runner and says what its answer means (removal.go has the table). It never fails: what is
	// not known is lifecycle.Unknown, with Answer.NotBefore where GitHub has said when to ask again.
	Remove(ctx context.Context, subject Subject) lifecycle.Answer
	// Find looks a registration up by its whole name. An error that is github.ErrAbsent: there is none, and the list was
	// readable just now.
	Find(ctx context.Context, name string) (Registration, error)
	// List yields every registration of the target until yield returns false. Absence from it proves nothing. A Roster lists for
	// many who ask.
	List(ctx context.Context, yield func(Registration) bool) error
	// Target is the one that the Registrar was asked for, with its RepositoryID.
	Target() Target
}

// Registrars gives out a Registrar.
type Registrars interface {
	// For returns ErrCredentials or ErrTarget, with a sentence, where there can be none. It may speak to GitHub.
	For(ctx context.Context, credentials Credentials, target Target) (Registrar, error)
}
