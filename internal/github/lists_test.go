package github

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/internal/fleet"
)

// A response without a list proves no absence: a proxy's page, or a success without a body.
func TestLists_EXCL6_ASuccessWithoutAListIsUncertain(t *testing.T) {
	for name, answer := range map[string]http.HandlerFunc{
		"a proxy's page": status(200, `<html>Sign in</html>`), "no body": status(200, ``), "no content": status(204, ``), "null": status(200, `null`),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			client := newTestClient(t, newForge(t, answer), nil)
			check := func(what string, err error) {
				t.Helper()
				require.ErrorIs(t, err, fleet.ErrUncertain, what)
				require.NotErrorIs(t, err, ErrAbsent, what)
			}
			_, err := client.FindRunner(t.Context(), 42, org, "r")
			check("a runner by its name", err)
			check("runners", client.ListRunners(t.Context(), 42, org, func(fleet.Registration) bool { return true }))
			check("the witness", client.ControlRead(t.Context(), 42, org))
			_, err = client.Installations(t.Context())
			check("installations", err)
			_, err = client.DeliveryPage(t.Context(), "", "")
			check("deliveries", err)
			_, _, err = client.Repositories(t.Context(), 42, 10)
			check("repositories", err)
			_, err = client.RepositoryPage(t.Context(), 42, 1, "")
			check("a page of repositories", err)
			_, err = client.GroupAccess(t.Context(), 42, "acme", "big", 0, "acme/app")
			check("groups", err)
		})
	}
}
