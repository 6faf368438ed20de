package installations_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/api/adminapi"
	"github.com/bullpen-ci/bullpen/internal/dev/github/standin"
	"github.com/bullpen-ci/bullpen/internal/fleet"
	"github.com/bullpen-ci/bullpen/internal/github"
	"github.com/bullpen-ci/bullpen/internal/server/dispatch"
	"github.com/bullpen-ci/bullpen/internal/server/events/installations"
	"github.com/bullpen-ci/bullpen/internal/server/events/intake"
	"github.com/bullpen-ci/bullpen/internal/server/ledger"
	"github.com/bullpen-ci/bullpen/test/kit/postgrestest"
)

func TestMain(m *testing.M) { postgrestest.Main(m) }

const secret = "a secret of tests"

// scene is a GitHub with two accounts, its client, an intake for its webhooks, and a ledger.
type scene struct {
	t      *testing.T
	github *standin.Local
	store  *ledger.Store
	pass   *installations.Pass
	hooks  string
	later  time.Duration // the pass runs minutes after what happened: past the skew that it allows for
}

func newScene(t *testing.T) *scene {
	t.Helper()
	s := &scene{t: t}
	url := postgrestest.NewDatabase(t, ledger.Migrate)
	var err error
	s.store, err = ledger.Open(t.Context(), url, 0)
	require.NoError(t, err)
	t.Cleanup(s.store.Close)
	take, err := intake.New(intake.Options{Store: s.store})
	require.NoError(t, err)
	hooks := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if github.VerifySignature(secret, r.Header.Get(github.HeaderSignature), body) != nil {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		take.Take(r.Context(), intake.Delivery{
			GUID: r.Header.Get(github.HeaderDelivery), Event: r.Header.Get(github.HeaderEvent), Body: body, At: time.Now(),
		})
	}))
	t.Cleanup(hooks.Close)
	s.hooks = hooks.URL
	ctx, cancel := context.WithCancel(context.Background())
	s.github, err = standin.Start(ctx, standin.Options{WebhookURL: s.hooks, WebhookSecret: secret, Installations: []standin.Installation{
		{ID: 101, Account: "acme", Repositories: []string{"app"}}, {ID: 102, Account: "beta", Type: "User", Repositories: []string{"b"}},
	}})
	require.NoError(t, err)
	t.Cleanup(func() { cancel(); s.github.Close() })
	client, err := github.New(github.Options{BaseURL: s.github.URL, AppID: 1, PrivateKey: s.github.AppKeyPEM})
	require.NoError(t, err)
	s.pass, err = installations.New(installations.Options{
		Forge: client, Store: s.store, Now: func() time.Time { return time.Now().Add(s.later) },
	})
	require.NoError(t, err)
	return s
}

func (s *scene) account(login string) adminapi.Account {
	s.t.Helper()
	a, err := s.store.Account(s.t.Context(), login)
	require.NoError(s.t, err)
	return a
}

func (s *scene) becomes(login string, state adminapi.AccountState) {
	s.t.Helper()
	require.Eventually(s.t, func() bool {
		a, err := s.store.Account(s.t.Context(), login)
		return err == nil && a.State == state
	}, 10*time.Second, 5*time.Millisecond, "%s is %s", login, state)
}

func (s *scene) compare() {
	s.t.Helper()
	s.later += 5 * time.Minute
	require.NoError(s.t, s.pass.Run(s.t.Context()))
}

// GitHub's reports about its installations reach the ledger, and its own list makes up for lost ones.
func TestPass_ReportedAndUnreported(t *testing.T) {
	s := newScene(t)
	s.becomes("acme", adminapi.AccountActive)
	s.becomes("beta", adminapi.AccountActive)
	require.NoError(t, s.github.Suspend(101))
	s.becomes("acme", adminapi.AccountSuspended)
	require.NoError(t, s.github.Unsuspend(101))
	s.becomes("acme", adminapi.AccountActive)
	s.compare()
	require.Equal(t, adminapi.AccountActive, s.account("acme").State, "nothing to put right")

	require.NoError(t, s.github.SetWebhook("http://127.0.0.1:1/", secret)) // deliveries fail from now on
	require.NoError(t, s.github.Suspend(101))
	s.compare()
	require.True(t, s.account("acme").SuspendedByGitHub)
	require.NoError(t, s.github.Unsuspend(101))
	s.compare()
	require.Equal(t, adminapi.AccountActive, s.account("acme").State)

	acme := s.account("acme")
	_, err := s.store.RecordJob(t.Context(), dispatch.Delivery{GUID: "g", Event: "workflow_job", At: time.Now()}, dispatch.JobEvent{
		Kind: fleet.JobEventQueued, JobID: 1, Repository: "acme/app", Labels: []string{"linux"},
		Account: dispatch.Account{ID: acme.ID, Login: "acme", InstallationID: 101},
	})
	require.NoError(t, err)
	require.NoError(t, s.github.Uninstall(101))
	s.compare()
	require.Equal(t, adminapi.AccountActive, s.account("acme").State, "one list is no proof")
	s.compare()
	require.Equal(t, adminapi.AccountUninstalled, s.account("acme").State)
	again, err := s.github.Install(standin.Installation{Account: "acme", Repositories: []string{"app"}})
	require.NoError(t, err)
	require.NotEqualValues(t, 101, again.ID)
	s.compare()
	require.Equal(t, adminapi.AccountActive, s.account("acme").State)
	require.Equal(t, again.ID, s.account("acme").InstallationID)
	require.EqualValues(t, 1, s.account("acme").Queued, "its job was blocked, not lost")
}

type failing struct{ list []github.Installation }

func (f failing) Installations(context.Context) ([]github.Installation, error) {
	if f.list == nil {
		return nil, errors.New("GitHub does not answer")
	}
	return f.list, nil
}

// A list that cannot be read, or is empty, changes nothing.
func TestPass_FailedOrEmptyListChangesNothing(t *testing.T) {
	s := newScene(t)
	s.becomes("acme", adminapi.AccountActive)
	for _, forge := range []failing{{}, {list: []github.Installation{}}, {list: []github.Installation{{ID: 1}}}} {
		pass, err := installations.New(installations.Options{Forge: forge, Store: s.store})
		require.NoError(t, err)
		for range 3 {
			require.Equal(t, forge.list == nil, pass.Run(t.Context()) != nil)
		}
		require.Equal(t, adminapi.AccountActive, s.account("acme").State)
	}
}
