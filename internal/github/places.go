package github

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	gh "github.com/google/go-github/v88/github"

	"github.com/bullpen-ci/bullpen/internal/fleet"
)

// What runners that register themselves need to know of the place where they do it.

const (
	opToken        = "asking for a registration token"
	opGroup        = "looking up a runner group"
	opInstalled    = "looking up the App's installation"
	opRepositoryID = "looking up a repository"
	// defaultGroup is the id of the group that runners join when none is named.
	defaultGroup = 1
	// maxGroupPages bounds one reading: 1,000 groups, which is what GitHub allows an enterprise.
	maxGroupPages = 100
)

// RegistrationToken registers any number of runners in one scope until it expires.
type RegistrationToken struct {
	Value     fleet.Secret
	ExpiresAt time.Time
}

// RegistrationToken asks for a token with which runners register themselves.
func (c *Client) RegistrationToken(ctx context.Context, installationID int64, scope fleet.Scope) (RegistrationToken, error) {
	if err := checkScope(opToken, scope); err != nil {
		return RegistrationToken{}, err
	}
	var given *gh.RegistrationToken
	do := call(http.MethodPost, actionsPath(scope)+"runners/registration-token", nil, &given)
	if err := c.asInstallation(ctx, installationID, opToken, classToken, nil, do); err != nil {
		return RegistrationToken{}, err
	}
	token := RegistrationToken{Value: fleet.NewSecret(given.GetToken()), ExpiresAt: given.GetExpiresAt().Time}
	if given.GetToken() == "" || !token.ExpiresAt.After(c.options.Now()) {
		return RegistrationToken{}, fmt.Errorf("%s: %w: the response has no valid token", opToken, fleet.ErrUncertain)
	}
	return token, nil
}

type groupKey struct {
	installationID int64
	scope, name    string // in lower case
}

func groupOf(installationID int64, scope fleet.Scope, name string) groupKey {
	return groupKey{installationID, strings.ToLower(scope.String()), strings.ToLower(name)}
}

// RunnerGroup looks up the id of a runner group of an organization or enterprise, in any case of letters;
// fleet.ErrNoRunnerGroup if there is none. A result is cached for 10 minutes, a missing one for one.
func (c *Client) RunnerGroup(ctx context.Context, installationID int64, scope fleet.Scope, name string) (int64, error) {
	if name == "" {
		return defaultGroup, nil
	}
	if err := checkScope(opGroup, scope); err != nil {
		return 0, err
	}
	if scope.Repo != "" {
		return 0, fmt.Errorf("%s: %w: repositories have no runner groups", opGroup, fleet.ErrRejected)
	}
	missing := func(err error) bool { return errors.Is(err, fleet.ErrNoRunnerGroup) }
	return c.groups.get(ctx, groupOf(installationID, scope, name), missing, func() (int64, error) {
		return c.findGroup(ctx, installationID, scope, func(group *gh.RunnerGroup) bool { return strings.EqualFold(group.GetName(), name) })
	})
}

// ForgetRunnerGroup has a group looked up again, when GitHub does not know the id that it had.
func (c *Client) ForgetRunnerGroup(installationID int64, scope fleet.Scope, name string) {
	c.groups.forget(groupOf(installationID, scope, name))
}

// mintGroup is the id of the group in which a runner must be registered.
func (c *Client) mintGroup(ctx context.Context, installationID int64, ask fleet.MintRequest) (int64, error) {
	if ask.RunnerGroup == "" {
		return max(ask.RunnerGroupID, defaultGroup), nil
	}
	return c.RunnerGroup(ctx, installationID, ask.Scope, ask.RunnerGroup)
}

// groupless reports whether GitHub has refused a registration because the scope has no such group; its answer does not say so.
// A group may also have been made again, with another id: its name is looked up again next time.
func (c *Client) groupless(ctx context.Context, installationID int64, ask fleet.MintRequest, id int64, refusal error) bool {
	if id == defaultGroup || !errors.Is(refusal, fleet.ErrNotFound) && !errors.Is(refusal, fleet.ErrRejected) {
		return false
	}
	c.ForgetRunnerGroup(installationID, ask.Scope, ask.RunnerGroup)
	_, err := c.findGroup(ctx, installationID, ask.Scope, func(group *gh.RunnerGroup) bool { return group.GetID() == id })
	return errors.Is(err, fleet.ErrNoRunnerGroup)
}

func (c *Client) findGroup(ctx context.Context, installationID int64, scope fleet.Scope, wanted func(*gh.RunnerGroup) bool) (int64, error) {
	group, err := c.groupWhere(ctx, installationID, scope, opGroup, "", wanted)
	switch {
	case err != nil:
		return 0, err
	case group == nil:
		return 0, fmt.Errorf("%s: %w", opGroup, fleet.ErrNoRunnerGroup)
	}
	return group.GetID(), nil
}

func isNotFound(err error) bool { return errors.Is(err, fleet.ErrNotFound) }

// InstallationFor looks up the App's installation that serves an organization or a repository; fleet.ErrNotFound if there
// is none. A result is cached for 10 minutes, a missing one for one. Enterprises have none: fleet.ErrRejected.
func (c *Client) InstallationFor(ctx context.Context, scope fleet.Scope) (int64, error) {
	if err := checkScope(opInstalled, scope); err != nil {
		return 0, err
	}
	path := "orgs/" + scope.Owner + "/installation"
	switch {
	case scope.Enterprise != "":
		return 0, fmt.Errorf("%s: %w: GitHub Apps register no runners of enterprises", opInstalled, fleet.ErrRejected)
	case scope.Repo != "":
		path = "repos/" + scope.String() + "/installation"
	}
	return c.installations.get(ctx, strings.ToLower(scope.String()), isNotFound, func() (int64, error) {
		var found *gh.Installation
		if err := c.asApp(ctx, opInstalled, call(http.MethodGet, path, nil, &found)); err != nil {
			return 0, err
		}
		if found.GetID() <= 0 {
			return 0, fmt.Errorf("%s: %w: the response has no installation", opInstalled, fleet.ErrUncertain)
		}
		return found.GetID(), nil
	})
}

// ForgetInstallation has a scope's installation looked up again, when GitHub gives no token for the one that it had.
func (c *Client) ForgetInstallation(scope fleet.Scope) {
	c.installations.forget(strings.ToLower(scope.String()))
}

type repositoryKey struct {
	installationID int64
	name           string // in lower case
}

// Repository looks a repository up by its name, or by a former one: its id, and its present name. The result is cached for 10 minutes,
// fleet.ErrNotFound for one.
func (c *Client) Repository(ctx context.Context, installationID int64, name string) (fleet.Repository, error) {
	scope, err := repositoryScope(opRepositoryID, name)
	if err != nil {
		return fleet.Repository{}, err
	}
	key := repositoryKey{installationID, strings.ToLower(scope.String())}
	return c.repositories.get(ctx, key, isNotFound, func() (fleet.Repository, error) {
		var found *gh.Repository
		do := call(http.MethodGet, "repos/"+scope.String(), nil, &found)
		if err := c.asInstallation(ctx, installationID, opRepositoryID, classRead, nil, do); err != nil {
			return fleet.Repository{}, err
		}
		out := fleet.Repository{Name: clean(found.GetFullName()), ID: found.GetID()}
		if _, err := repositoryScope(opRepositoryID, out.Name); err != nil || out.ID <= 0 {
			return fleet.Repository{}, fmt.Errorf("%s: %w: the response has no repository", opRepositoryID, fleet.ErrUncertain)
		}
		return out, nil
	})
}

// WebURL is where a scope is seen in a browser, and what a runner is configured with: https://github.com/acme/app.
func (c *Client) WebURL(scope fleet.Scope) string {
	return webRoot(c.options.BaseURL) + "/" + scope.String()
}

// Site is where GitHub is seen in a browser: https://github.com.
func (c *Client) Site() string { return webRoot(c.options.BaseURL) }

// webRoot is the site that an API belongs to: https://github.com for https://api.github.com, https://acme.ghe.com for
// https://api.acme.ghe.com, and https://HOST for https://HOST/api/v3.
func webRoot(api string) string {
	at, err := url.Parse(api)
	if err != nil {
		return api // New has parsed it before
	}
	if at.Path == "" && (at.Host == "api.github.com" || strings.HasSuffix(at.Host, ".ghe.com")) {
		at.Host = strings.TrimPrefix(at.Host, "api.")
	}
	at.Path = strings.TrimSuffix(at.Path, "/api/v3")
	return at.String()
}

// Limits is what GitHub last said of each limit of the client's token or installations; where several have a limit of one name,
// the one with the least left.
func (c *Client) Limits() []fleet.RateState {
	connections := c.cache.all()
	if c.hasToken() {
		connections = []*installation{c.own}
	}
	least := map[string]fleet.RateState{}
	for _, in := range connections {
		for _, state := range in.rates.all() {
			if known, ok := least[state.Resource]; !ok || state.Remaining < known.Remaining {
				least[state.Resource] = state
			}
		}
	}
	return slices.Collect(maps.Values(least))
}
