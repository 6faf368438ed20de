package admin

import (
	"context"
	"errors"
	"time"

	"github.com/bullpen-ci/bullpen/api/adminapi"
)

// Store keeps accounts, the audit log, jobs, and what was used. Every change is one transaction with its audit row.
type Store interface {
	// Accounts returns a page ordered by login, and where the next one begins (empty: nowhere).
	Accounts(ctx context.Context, q AccountQuery) (accounts []adminapi.Account, next string, err error)
	// Account finds by login or "@id". ErrNotFound, *ConflictError when a login names two.
	Account(ctx context.Context, ref string) (adminapi.Account, error)
	// ChangeLimits changes the budgets of those platforms; ErrNotFound, *VersionError, *ConflictError.
	ChangeLimits(ctx context.Context, c Change, platforms map[string]adminapi.LimitsChange) (adminapi.Account, error)
	// Pause suspends the account or resumes it; a repetition changes nothing and is not audited.
	Pause(ctx context.Context, c Change, paused bool) (adminapi.Account, error)
	// DeleteAccount ends what is queued and forgets the limits, or with purge everything; *ConflictError while anything of
	// the account is live, or the App is installed.
	DeleteAccount(ctx context.Context, c Change, purge bool) error
	// Audit returns a page, newest first; ErrNotFound for an account that neither exists nor has events.
	Audit(ctx context.Context, q AuditQuery) ([]adminapi.AuditEvent, error)

	JobStore
	UsageStore
	HistoryStore
	RunnerStore
	ClaimStore
	LogStore
}

// AccountQuery asks for a page of accounts.
type AccountQuery struct {
	After   string // where the former page said that the next one begins
	Most    int
	Deleted bool // deleted ones too
}

// AuditQuery asks for a page of the audit log.
type AuditQuery struct {
	Account string    // login or "@id"; empty: all
	Pool    string    // name or namespace/name; empty: all. Not together with Account
	Since   time.Time // zero: from the beginning
	Until   time.Time // not including it; zero: to the end
	Before  int64     // continues after the event with that ID; 0: the newest
	Most    int
}

// Change is a change of an account: its author, and the version that it is based on.
type Change struct {
	Account           string // login or "@id"
	Actor, Credential string
	Requester, Stated string // as User has them
	Reason            string
	Version           int64 // 0: whatever it is
	At                time.Time
}

// ErrNotFound: there is no such account, or job.
var ErrNotFound = errors.New("not found")

// ConflictError: the account's state forbids the change. Its sentence says what to do.
type ConflictError struct{ Sentence string }

// Error is the sentence.
func (e *ConflictError) Error() string { return e.Sentence }

// VersionError: the account has changed since it was read.
type VersionError struct{ Is int64 }

// Error says what to do.
func (e *VersionError) Error() string {
	return "the account has changed since you read it: read it again and retry"
}

// InvalidError: the change makes no sense.
type InvalidError struct{ Sentence string }

// Error is the sentence.
func (e *InvalidError) Error() string { return e.Sentence }

// User is whom a token speaks for.
type User struct {
	Name       string
	UID        string
	Groups     []string
	Extra      map[string][]string
	Credential string // the id of the token; empty when it has none
	// Requester is the user who requested a ServiceAccount's token, as the cluster verified. Stated is the same as the client stated it; at
	// most one of them is set.
	Requester, Stated string
}

// userKey is the context key of a user who was identified in this process.
type userKey struct{}

// As has the API take requests with that context as the user's own, without a token: for the console, which has identified its user itself.
// Nothing of a request from the network ends up there, so no client can name its user (NET-5). The user's rights are checked as usual.
func As(ctx context.Context, user User) context.Context {
	return context.WithValue(ctx, userKey{}, user)
}

// askedKey is where a context has what is to be filled with the user whom a request speaks for.
type askedKey struct{}

// Naming has the API write into who whom it takes requests with that context for, once it has identified them: for the console, which shows users their
// name.
func Naming(ctx context.Context, who *User) context.Context {
	return context.WithValue(ctx, askedKey{}, who)
}

// Right is a verb on a resource of group bullpen.dev.
type Right struct {
	Verb, Resource string
	Name           string // empty: not one of them
}

// ErrRejected: the token is not accepted.
var ErrRejected = errors.New("invalid token")

// Access asks Kubernetes. Implementations may remember a yes for a few seconds, and never a no.
type Access interface {
	// Identify returns ErrRejected for a token that is not accepted; any other error means that it could not be asked.
	Identify(ctx context.Context, token string) (User, error)
	Allowed(ctx context.Context, user User, right Right) (bool, error)
}
