package github

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/internal/dev/github/standin"
	"github.com/bullpen-ci/bullpen/internal/fleet"
)

// CLAIM-20: which setting of a runner group keeps a repository from it, as GitHub's stand-in shows it.
func TestGroupAccess_CLAIM20_EachVisibility(t *testing.T) {
	in, err := standin.Start(t.Context(), standin.Options{Installations: []standin.Installation{{
		ID: 42, Account: "acme", Repositories: []string{"app", "shop", "open"}, PublicRepositories: []string{"open"},
		RunnerGroups: []string{"chosen", "inner", "wide"},
		GroupAccess: map[string]standin.GroupAccess{
			"chosen": {Visibility: "selected", Repositories: []string{"shop"}}, "inner": {Visibility: "private", AllowsPublicRepositories: true},
			"wide": {AllowsPublicRepositories: true},
		},
	}}})
	require.NoError(t, err)
	t.Cleanup(in.Close)
	c, err := New(Options{BaseURL: in.URL + "/api/v3", AppID: 1, PrivateKey: in.AppKeyPEM})
	require.NoError(t, err)
	for group, serves := range map[string]map[string]bool{
		"Default": {"app": true, "shop": true, "open": false},
		"chosen":  {"app": false, "shop": true, "open": false},
		"INNER":   {"app": true, "shop": true, "open": false},
		"wide":    {"app": true, "shop": true, "open": true},
	} {
		for repository, want := range serves {
			access, err := c.GroupAccess(t.Context(), 42, "acme", group, 0, "acme/"+repository)
			require.NoError(t, err)
			require.Equal(t, want, access.Serves, "%s, %s", group, repository)
			require.Equal(t, want, access.Obstacle("acme/"+repository) == "")
		}
	}
	byID, err := c.GroupAccess(t.Context(), 42, "acme", "", 2, "acme/app")
	require.NoError(t, err)
	require.Equal(t, fleet.GroupAccess{ID: 2, Name: "chosen", Visibility: "selected"}, byID)
	_, err = c.GroupAccess(t.Context(), 42, "acme", "no such", 0, "acme/app")
	require.ErrorIs(t, err, fleet.ErrNoRunnerGroup)
}
