package installations_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/api/adminapi"
	"github.com/bullpen-ci/bullpen/internal/dev/github/standin"
	"github.com/bullpen-ci/bullpen/internal/fleet"
	"github.com/bullpen-ci/bullpen/internal/github"
	"github.com/bullpen-ci/bullpen/internal/server/dispatch"
	"github.com/bullpen-ci/bullpen/internal/server/events/installations"
)

// watched is the real client, of which it is seen what GitHub was asked.
type watched struct {
	*github.Client
	fresh, unchanged int
	rate             *fleet.RateState
	page             func(installation int64, number int) (github.RepositoryPage, error)
}

func (w *watched) RepositoryPage(ctx context.Context, installation int64, number int, etag string) (github.RepositoryPage, error) {
	if w.page != nil {
		return w.page(installation, number)
	}
	page, err := w.Client.RepositoryPage(ctx, installation, number, etag)
	w.fresh++
	if page.Unchanged {
		w.fresh--
		w.unchanged++
	}
	return page, err
}

func (w *watched) ReadRate(installation int64) (fleet.RateState, bool) {
	if w.rate != nil {
		return *w.rate, true
	}
	return w.Client.ReadRate(installation)
}

// repositories is the pass on the scene, an hour after what happened; later calls are another hour on.
func (s *scene) repositories() (*watched, func()) {
	s.t.Helper()
	client, err := github.New(github.Options{BaseURL: s.github.URL, AppID: 1, PrivateKey: s.github.AppKeyPEM})
	require.NoError(s.t, err)
	forge := &watched{Client: client}
	pass, err := installations.NewRepositories(installations.RepositoriesOptions{
		Forge: forge, Store: s.store, Now: func() time.Time { return time.Now().Add(s.later) },
	})
	require.NoError(s.t, err)
	return forge, func() {
		s.t.Helper()
		s.later += installations.RepositoriesEvery
		require.NoError(s.t, pass.Run(s.t.Context()))
	}
}

func (s *scene) job(id, repositoryID int64, repository string) {
	s.t.Helper()
	acme := s.account("acme")
	_, err := s.store.RecordJob(s.t.Context(), dispatch.Delivery{GUID: uuid.NewString(), Event: "workflow_job", At: time.Now()}, dispatch.JobEvent{
		Kind: fleet.JobEventQueued, JobID: id, Repository: repository, RepositoryID: repositoryID, Labels: []string{"linux"},
		QueuedAt: time.Now(), Account: dispatch.Account{ID: acme.ID, Login: "acme", InstallationID: acme.InstallationID},
	})
	require.NoError(s.t, err)
}

func (s *scene) take(action string, repositories ...string) {
	s.t.Helper()
	s.takeAt(time.Now(), action, repositories...)
}

func (s *scene) takeAt(at time.Time, action string, repositories ...string) {
	s.t.Helper()
	acme := s.account("acme")
	_, err := s.store.RecordInstallation(s.t.Context(), dispatch.Delivery{GUID: uuid.NewString(), At: at}, dispatch.Installation{
		Action: action, Account: dispatch.Account{ID: acme.ID, Login: "acme", InstallationID: acme.InstallationID}, Repositories: repositories,
	})
	require.NoError(s.t, err)
}

// RECV-8: lost messages about an installation's repositories are made up for by its own list: one that was added at once,
// one that was removed when two lists lack it.
func TestRepositories_RECV8_GivenBackAndTakenUnheard(t *testing.T) {
	s := newScene(t)
	s.becomes("acme", adminapi.AccountActive)
	s.becomes("beta", adminapi.AccountActive) // its pages are counted, too
	forge, compare := s.repositories()
	s.job(1, 0, "acme/app")
	s.job(2, 0, "acme/taken")
	s.take(dispatch.RepositoriesRemoved, "acme/app")
	require.EqualValues(t, 1, s.account("acme").Blocked)
	compare()
	require.EqualValues(t, 0, s.account("acme").Blocked, "GitHub lists it: it was given back")
	require.Equal(t, 2, forge.fresh, "one page of each account")
	compare()
	require.EqualValues(t, 1, s.account("acme").Blocked, "a second list lacks the other one")
	require.EqualValues(t, 1, s.account("acme").Queued)
	require.Equal(t, 2, forge.fresh)
	require.Equal(t, 2, forge.unchanged, "GitHub is asked for what has changed")
	_, err := s.github.Install(standin.Installation{Account: "acme", Repositories: []string{"taken"}})
	require.NoError(t, err)
	compare()
	require.EqualValues(t, 0, s.account("acme").Blocked)
}

// One list is no proof that a repository was taken: it may have been read while it changed.
func TestRepositories_OneListIsNoProof(t *testing.T) {
	s := newScene(t)
	s.becomes("acme", adminapi.AccountActive)
	forge, compare := s.repositories()
	s.job(2, 0, "acme/taken")
	compare()
	require.EqualValues(t, 0, s.account("acme").Blocked)
	_, err := s.github.Install(standin.Installation{Account: "acme", Repositories: []string{"taken"}})
	require.NoError(t, err)
	compare()
	forge.page = func(int64, int) (github.RepositoryPage, error) { // it is lacking again: for the first time
		return github.RepositoryPage{Repositories: []fleet.Repository{{Name: "acme/app", ID: 1}}, Total: 1}, nil
	}
	compare()
	require.EqualValues(t, 0, s.account("acme").Blocked)
	compare()
	require.EqualValues(t, 1, s.account("acme").Blocked)
}

// A list that cannot be read, is cut short, or is empty removes nothing.
func TestRepositories_ADoubtfulListTakesNothing(t *testing.T) {
	s := newScene(t)
	s.becomes("acme", adminapi.AccountActive)
	s.job(2, 0, "acme/taken")
	other := []fleet.Repository{{Name: "acme/app", ID: 1}}
	for _, page := range []func(int64, int) (github.RepositoryPage, error){
		func(int64, int) (github.RepositoryPage, error) {
			return github.RepositoryPage{}, errors.New("GitHub does not answer")
		},
		func(int64, int) (github.RepositoryPage, error) { return github.RepositoryPage{}, nil },
		func(int64, int) (github.RepositoryPage, error) {
			return github.RepositoryPage{Repositories: other, Total: 2}, nil
		},
		func(_ int64, number int) (github.RepositoryPage, error) { // more pages than are read
			return github.RepositoryPage{Repositories: []fleet.Repository{{Name: "acme/app", ID: int64(number)}}, Total: 1000, Next: number + 1}, nil
		},
		func(_ int64, number int) (github.RepositoryPage, error) { // it grows while it is read
			return github.RepositoryPage{Repositories: []fleet.Repository{{Name: "acme/app", ID: int64(number)}}, Total: number, Next: 2 * (2 - number)}, nil
		},
	} {
		forge, compare := s.repositories()
		forge.page = page
		for range 3 {
			compare()
		}
		require.EqualValues(t, 0, s.account("acme").Blocked)
	}
}

// An event after the start of the list is newer than the list.
func TestRepositories_NewerEventsAreLeftAlone(t *testing.T) {
	s := newScene(t)
	s.becomes("acme", adminapi.AccountActive)
	s.job(1, 0, "acme/app")
	forge, compare := s.repositories()
	forge.page = func(int64, int) (github.RepositoryPage, error) {
		return github.RepositoryPage{Repositories: []fleet.Repository{{Name: "acme/app", ID: 1}}, Total: 1}, nil
	}
	s.takeAt(time.Now().Add(installations.RepositoriesEvery+time.Minute), dispatch.RepositoriesRemoved, "acme/app")
	compare() // begun an hour from now
	require.EqualValues(t, 1, s.account("acme").Blocked)
	compare() // and an hour later
	require.EqualValues(t, 0, s.account("acme").Blocked)
}

// The App gets no event of a rename; the list shows it, and the repository's rows follow.
func TestRepositories_ARenameIsFound(t *testing.T) {
	s := newScene(t)
	s.becomes("acme", adminapi.AccountActive)
	forge, compare := s.repositories()
	page, err := forge.Client.RepositoryPage(t.Context(), 101, 1, "")
	require.NoError(t, err)
	require.Len(t, page.Repositories, 1)
	s.job(1, page.Repositories[0].ID, "acme/app")
	require.NoError(t, s.github.RenameRepository("acme/app", "former-app"))
	_, err = s.github.Install(standin.Installation{Account: "acme", Repositories: []string{"app"}})
	require.NoError(t, err)
	compare()
	s.take(dispatch.RepositoriesRemoved, "acme/former-app")
	require.EqualValues(t, 1, s.account("acme").Blocked, "its job is known by the new name")
}

// An installation that has few requests left is not asked.
func TestRepositories_LeavesTheLastRequestsToOthers(t *testing.T) {
	s := newScene(t)
	s.becomes("acme", adminapi.AccountActive)
	forge, compare := s.repositories()
	forge.rate = &fleet.RateState{Limit: 100, Remaining: 9, Reset: time.Now().Add(10 * time.Hour)}
	compare()
	require.Zero(t, forge.fresh)
}
