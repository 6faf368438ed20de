package fleet

import (
	"errors"
	"fmt"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
)

type answered struct {
	status  int
	meaning error
}

func (a answered) Error() string         { return fmt.Sprint(a.status) }
func (a answered) Unwrap() error         { return a.meaning }
func (a answered) GitHubStatus() int     { return a.status }
func (a answered) GitHubMessage() string { return "" }

// CLAIM-19: the scope of each status, by where the runner was to be registered.
func TestRefusedBy_CLAIM19_EveryStatusAndRoute(t *testing.T) {
	organization, repository := Scope{Owner: "acme"}, Scope{Owner: "acme", Repo: "app"}
	for _, c := range []struct {
		err            error
		atOwner, atRep Refused
	}{
		{answered{http.StatusBadRequest, ErrRejected}, RefusedJob, RefusedJob},
		{answered{http.StatusUnauthorized, ErrCredentials}, RefusedAccount, RefusedAccount},
		{answered{http.StatusForbidden, ErrForbidden}, RefusedJob, RefusedRepository},
		{answered{http.StatusNotFound, ErrNotFound}, RefusedJob, RefusedRepository},
		{answered{http.StatusMethodNotAllowed, ErrRejected}, RefusedJob, RefusedRepository},
		{answered{http.StatusConflict, ErrNameTaken}, RefusedJob, RefusedJob},
		{answered{http.StatusGone, ErrRejected}, RefusedJob, RefusedRepository},
		{answered{http.StatusUnprocessableEntity, ErrRejected}, RefusedJob, RefusedJob},
		{answered{http.StatusUnavailableForLegalReasons, ErrRejected}, RefusedJob, RefusedRepository},
		{answered{http.StatusMovedPermanently, ErrRejected}, RefusedJob, RefusedRepository},
		{answered{http.StatusInternalServerError, ErrUncertain}, RefusedAccount, RefusedRepository},
		{answered{http.StatusBadGateway, ErrUncertain}, RefusedAccount, RefusedRepository},
		{fmt.Errorf("%w: %w", ErrUncertain, errors.New("connection reset")), RefusedAccount, RefusedRepository},
		{fmt.Errorf("%w: %w", ErrUncertain, ErrNoToken), RefusedAccount, RefusedAccount},
		{fmt.Errorf("minting: %w: %w", ErrNoRunnerGroup, answered{http.StatusNotFound, ErrNotFound}), RefusedPool, RefusedPool},
		{fmt.Errorf("%w: no such place", ErrRejected), RefusedJob, RefusedRepository},
	} {
		require.Equal(t, c.atOwner, RefusedBy(fmt.Errorf("minting: %w", c.err), organization), c.err)
		require.Equal(t, c.atRep, RefusedBy(fmt.Errorf("minting: %w", c.err), repository), c.err)
	}
}

func TestGroupAccess_CLAIM20_NamesTheSetting(t *testing.T) {
	for want, g := range map[string]GroupAccess{
		"": {Name: "builders", Visibility: "all", Serves: true},
		"runner group builders is restricted to certain workflows":                                  {Name: "builders", Serves: true, RestrictedToWorkflows: true},
		"runner group builders is open to selected repositories only, and acme/app is none of them": {Name: "builders", Visibility: "selected", AllowsPublicRepositories: true},
		"runner group builders does not allow public repositories, and acme/app is public":          {Name: "builders", Visibility: "all"},
		"runner group builders is open to selected repositories only, and acme/app is none of them, or is public, which the group does not allow": {
			Name: "builders", Visibility: "selected",
		},
	} {
		require.Equal(t, want, g.Obstacle("acme/app"))
	}
}
