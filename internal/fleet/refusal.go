package fleet

import (
	"errors"
	"net/http"
)

// Refused is the scope of a failed request to GitHub, and so how much waits for it (CLAIM-19).
type Refused string

// The scopes of GitHub's refusals, the widest first.
const (
	// RefusedAccount: the App's own credentials, its installation, or GitHub as a whole.
	RefusedAccount Refused = "account"
	// RefusedPool: the runners of one pool at one account: it has no such runner group.
	RefusedPool Refused = "pool"
	// RefusedRepository: one repository.
	RefusedRepository Refused = "repository"
	// RefusedJob: as far as one answer tells, what was asked for one job. Many of them in a row tell more.
	RefusedJob Refused = "job"
)

// Answer is an error that is GitHub's own answer.
type Answer interface {
	error
	// GitHubStatus is the answer's HTTP status.
	GitHubStatus() int
	// GitHubMessage is GitHub's own explanation; empty where it gave none.
	GitHubMessage() string
}

// RefusedBy returns the scope of a refused registration. scope is where it was to be registered. A *RateLimitedError is the account's, and
// has its own end.
func RefusedBy(err error, scope Scope) Refused {
	var answer Answer
	switch {
	case errors.Is(err, ErrCredentials), errors.Is(err, ErrNoToken):
		return RefusedAccount
	case errors.Is(err, ErrNoRunnerGroup):
		return RefusedPool
	case errors.Is(err, ErrNameTaken), errors.As(err, &answer) && ofRequest(answer.GitHubStatus()):
		return RefusedJob // it is the request that GitHub does not accept: its name, its labels
	case scope.Repo != "": // it was asked for at the repository's address
		return RefusedRepository
	case errors.Is(err, ErrUncertain):
		return RefusedAccount
	default:
		return RefusedJob
	}
}

// ofRequest reports whether a status is about the request's content, and not about its target.
func ofRequest(status int) bool {
	return status == http.StatusBadRequest || status == http.StatusConflict || status == http.StatusUnprocessableEntity
}
