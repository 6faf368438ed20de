package fleet

import (
	"errors"
	"fmt"
	"time"
)

// The answers of GitHub that decide something. They are translated once, where the HTTP status is known, and are
// tested with errors.Is.
var (
	// ErrRunnerBusy: GitHub refuses to remove a runner because it runs a job (422). The claim stays.
	ErrRunnerBusy = errors.New("the runner is busy")
	// ErrNotFound: 404. It counts as "gone" only beside a successful control read of the same scope (EXCL-6).
	ErrNotFound = errors.New("not found at GitHub")
	// ErrNoRunnerGroup: the scope's list was read, and holds no runner group of that name or id. Nothing was registered.
	ErrNoRunnerGroup = fmt.Errorf("there is no such runner group: %w", ErrNotFound)
	// ErrForbidden: 403 that is not a rate limit. It proves nothing (EXCL-6).
	ErrForbidden = errors.New("forbidden by GitHub")
	// ErrCredentials: GitHub does not accept the credentials, or gives no token for them. It is an ErrForbidden too, and says nothing at all
	// about what was asked for.
	ErrCredentials = fmt.Errorf("GitHub does not accept the credentials: %w", ErrForbidden)
	// ErrNoToken comes with ErrUncertain: it is the request for a token that has no certain answer, and what was asked for was never sent.
	ErrNoToken = errors.New("GitHub gave no token")
	// ErrRejected: GitHub understood the request and did not do it (other 4xx). Nothing was created.
	ErrRejected = errors.New("rejected by GitHub")
	// ErrNameTaken: a registration of that name exists (409).
	ErrNameTaken = errors.New("the runner name is taken")
	// ErrLedgerFrozen: the database was restored or replaced, and what it has lost is being rebuilt. Until then no job is
	// handed out and no removal is granted (CLAIM-17).
	ErrLedgerFrozen = errors.New("the ledger is frozen after a restore")
	// ErrUnstorable: the database refuses a value itself, and would at every repetition. Nothing was stored.
	ErrUnstorable = errors.New("the value cannot be stored")
	// ErrUncertain: no answer, or a 5xx: the request may or may not have taken effect.
	ErrUncertain = errors.New("GitHub gave no certain answer")
)

// ResourceRepository of a RateLimitedError says that it is one repository's address that is left alone for a while, because calls there fail.
const ResourceRepository = "repository"

// RateLimitedError: GitHub refused before doing anything, and says when to retry.
type RateLimitedError struct {
	Resource string
	Until    time.Time
}

// Error says which bucket is empty and until when.
func (e *RateLimitedError) Error() string {
	return fmt.Sprintf("rate limited by GitHub (%s) until %s", e.Resource, e.Until.UTC().Format(time.RFC3339))
}

// Definite reports whether err proves that the request had no effect at GitHub.
func Definite(err error) bool {
	var limited *RateLimitedError
	return errors.As(err, &limited) || errors.Is(err, ErrRejected) || errors.Is(err, ErrForbidden) ||
		errors.Is(err, ErrNotFound) || errors.Is(err, ErrNameTaken)
}
