package github

import (
	"context"
	"fmt"
	"net/http"
	"strings"

	gh "github.com/google/go-github/v88/github"

	"github.com/bullpen-ci/bullpen/internal/fleet"
)

const opGroupAccess = "reading whom a runner group serves"

// GroupAccess reads whether the jobs of a repository of the organization may use a runner group, given by name, or by id if
// name is empty. fleet.ErrNoRunnerGroup: there is no such group.
func (c *Client) GroupAccess(
	ctx context.Context, installationID int64, organization, name string, id int64, repository string,
) (fleet.GroupAccess, error) {
	scope := fleet.Scope{Owner: organization}
	if err := checkScope(opGroupAccess, scope); err != nil {
		return fleet.GroupAccess{}, err
	}
	in, err := repositoryScope(opGroupAccess, repository)
	if err != nil {
		return fleet.GroupAccess{}, err
	}
	wanted := func(group *gh.RunnerGroup) bool {
		return name == "" && group.GetID() == max(id, defaultGroup) || name != "" && strings.EqualFold(group.GetName(), name)
	}
	group, err := c.groupWhere(ctx, installationID, scope, opGroupAccess, "", wanted)
	if err != nil {
		return fleet.GroupAccess{}, err
	}
	if group == nil {
		return fleet.GroupAccess{}, fmt.Errorf("%s: %w", opGroupAccess, fleet.ErrNoRunnerGroup)
	}
	visible, err := c.groupWhere(ctx, installationID, scope, opGroupAccess, in.Repo, func(one *gh.RunnerGroup) bool { return one.GetID() == group.GetID() })
	if err != nil {
		return fleet.GroupAccess{}, err
	}
	return fleet.GroupAccess{
		ID: group.GetID(), Name: clean(group.GetName()), Visibility: clean(group.GetVisibility()),
		AllowsPublicRepositories: group.GetAllowsPublicRepositories(), RestrictedToWorkflows: group.GetRestrictedToWorkflows(), Serves: visible != nil,
	}, nil
}

// groupWhere finds a group of the organization, among those only that serve the repository if one is named; nil when there is none.
func (c *Client) groupWhere(
	ctx context.Context, installationID int64, scope fleet.Scope, name, visibleTo string, wanted func(*gh.RunnerGroup) bool,
) (*gh.RunnerGroup, error) {
	options := gh.ListOptions{PerPage: pageSize}
	for range maxGroupPages {
		var page *gh.RunnerGroups
		next := 0
		query := pageQuery(options)
		if visibleTo != "" {
			query.Set("visible_to_repository", visibleTo)
		}
		list := call(http.MethodGet, actionsPath(scope)+"runner-groups?"+query.Encode(), nil, &page)
		do := func(ctx context.Context, api *gh.Client) (*gh.Response, error) {
			resp, err := list(ctx, api)
			if resp != nil {
				next = resp.NextPage
			}
			return resp, err
		}
		if err := c.asInstallation(ctx, installationID, name, classRead, nil, do); err != nil {
			return nil, err
		}
		if page == nil || page.RunnerGroups == nil { // an empty body must not read as "no groups"
			return nil, fmt.Errorf("%s: %w: the response has no list", name, fleet.ErrUncertain)
		}
		for _, one := range page.RunnerGroups {
			if one.GetID() > 0 && wanted(one) {
				return one, nil
			}
		}
		if next <= options.Page {
			return nil, nil //nolint:nilnil // absence is an answer
		}
		options.Page = next
	}
	return nil, fmt.Errorf("%s: %w: there are too many groups", name, fleet.ErrRejected)
}
