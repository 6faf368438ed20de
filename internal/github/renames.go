package github

import (
	"context"
	"errors"
	"fmt"
	"strings"

	gh "github.com/google/go-github/v88/github"

	"github.com/bullpen-ci/bullpen/internal/fleet"
)

// GitHub redirects a call by a former name of a repository to the same repository under its id, until another repository takes the old
// name. From then on the name is the other's, which can be read and has none of the first one's jobs and runners.
// (developer.github.com/changes/2015-04-17-preview-repository-redirects; docs.github.com, "Renaming a repository".) So absence under a name
// proves something only if the name is still the repository's own. If its id is known, that is checked before anything is concluded from an
// absence, and the call is repeated under the name that the repository has by then.

const opRepository = "reading a repository"

// RepositoryName reads what a repository is called now ("owner/name"), by its id.
func (c *Client) RepositoryName(ctx context.Context, installationID, id int64) (string, error) {
	var found *gh.Repository
	do := func(ctx context.Context, api *gh.Client) (resp *gh.Response, err error) {
		found, resp, err = api.Repositories.GetByID(ctx, id)
		return resp, err
	}
	if err := c.asInstallation(ctx, installationID, opRepository, classRead, nil, do); err != nil {
		return "", err
	}
	if found.GetID() != id || found.GetFullName() == "" {
		return "", fmt.Errorf("%s: %w: the response is about another repository", opRepository, fleet.ErrUncertain)
	}
	return clean(found.GetFullName()), nil
}

// current is the scope under the name that its repository has now; moved says that it is another one. Without a
// repository's id, the name is all there is. Any error is ErrUncertain: a repository that cannot be read by its id
// proves nothing about what it holds (EXCL-6).
func (c *Client) current(ctx context.Context, installationID int64, scope fleet.Scope) (_ fleet.Scope, moved bool, _ error) {
	if scope.Repo == "" || scope.RepositoryID == 0 {
		return scope, false, nil
	}
	name, err := c.RepositoryName(ctx, installationID, scope.RepositoryID)
	var limited *fleet.RateLimitedError
	switch {
	case errors.As(err, &limited):
		return scope, false, err
	case err != nil: // also one that is not found: not ErrNotFound, which would be about what was asked first
		return scope, false, fmt.Errorf("%w: asking whether %s is still the same repository: %v", fleet.ErrUncertain, scope, err) //nolint:errorlint // on purpose
	case strings.EqualFold(name, scope.String()):
		return scope, false, nil
	}
	now, err := repositoryScope(opRepository, name)
	if err != nil {
		return scope, false, fmt.Errorf("%w: %v", fleet.ErrUncertain, err) //nolint:errorlint // as above
	}
	c.options.Log.InfoContext(ctx, "a repository has another name than it was known by", "was", scope.String(), "is", name,
		"repository_id", scope.RepositoryID)
	return now.Of(scope.RepositoryID), true, nil
}

// whereItIs does something in a scope, and once more under the repository's present name if doubted says that the outcome
// would mean something else in another repository.
func (c *Client) whereItIs(
	ctx context.Context, installationID int64, scope fleet.Scope, doubted func(error) bool, do func(context.Context, fleet.Scope) error,
) error {
	err := do(ctx, scope)
	if !doubted(err) {
		return err
	}
	ctx = notFree(ctx) // what is asked besides is nothing that its caller has counted
	now, moved, unknown := c.current(ctx, installationID, scope)
	switch {
	case unknown != nil:
		return unknown
	case moved:
		return do(ctx, now)
	default:
		return err
	}
}

// notThere: an answer that the wrong repository would give, too.
func notThere(err error) bool {
	return errors.Is(err, fleet.ErrNotFound) || errors.Is(err, fleet.ErrForbidden)
}

// witness: an answer about the wrong repository proves nothing.
func witness(err error) bool { return err == nil || notThere(err) }
