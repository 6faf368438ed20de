package standin_test

import (
	"context"
	"encoding/json"
	"maps"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-github/v88/github"
	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/internal/dev/github/standin"
	devrunner "github.com/bullpen-ci/bullpen/internal/dev/runner"
	"github.com/bullpen-ci/bullpen/test/kit/await"
)

// person is a client with a token.
func (w *world) person(token standin.PersonalToken) *github.Client {
	w.t.Helper()
	made, err := w.in.Admin.AddToken(w.ctx, token)
	require.NoError(w.t, err)
	return w.client(withToken(made.Value))
}

type withToken string

func (t withToken) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "token "+string(t))
	return http.DefaultTransport.RoundTrip(r)
}

// configure registers a static runner, and returns its directory.
func (w *world) configure(where, token, name string) (string, error) {
	root := w.t.TempDir()
	prefix := "ACTIONS_RUNNER_INPUT_"
	return root, devrunner.Configure(w.ctx, devrunner.ConfigureOptions{Root: root, Environ: []string{
		prefix + "URL=" + w.in.URL + "/" + where, prefix + "TOKEN=" + token, prefix + "NAME=" + name, prefix + "LABELS=linux",
	}})
}

func TestRegistrationToken_IsForOneScopeAndAnHour(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	org, _, err := w.org.Actions.CreateOrganizationRegistrationToken(w.ctx, "acme")
	require.NoError(t, err)
	require.WithinDuration(t, w.clock.Now().Add(time.Hour), org.GetExpiresAt().Time, 2*time.Second)
	repo, _, err := w.org.Actions.CreateRegistrationToken(w.ctx, "acme", "app")
	require.NoError(t, err)
	removal, _, err := w.org.Actions.CreateOrganizationRemoveToken(w.ctx, "acme")
	require.NoError(t, err)
	for name, one := range map[string]struct {
		where, token string
		want         bool
	}{
		"org-one": {"acme", org.GetToken(), true}, "org-two": {"acme", org.GetToken(), true}, "repo": {"acme/app", repo.GetToken(), true},
		"other": {"acme/app", org.GetToken(), false}, "up": {"acme", repo.GetToken(), false}, "beside": {"acme/lib", repo.GetToken(), false},
		"remove": {"acme", removal.GetToken(), false}, "made-up": {"acme", "AAAA", false},
	} {
		_, err := w.configure(one.where, one.token, name)
		require.Equal(t, one.want, err == nil, "%s: %v", name, err)
		if err != nil {
			require.ErrorContains(t, err, "404")
		}
	}
	w.clock.Advance(time.Hour)
	_, err = w.configure("acme", org.GetToken(), "late")
	require.ErrorContains(t, err, "404")
	all, err := w.in.Admin.Runners(w.ctx)
	require.NoError(t, err)
	require.Len(t, all, 3)
}

// A registration token lists runners and groups of its scope, and may do nothing else.
func TestRegistrationToken_CannotAdminister(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	r := w.mint("one", "linux")
	token, _, err := w.org.Actions.CreateOrganizationRegistrationToken(w.ctx, "acme")
	require.NoError(t, err)
	for path, want := range map[string]int{
		"GET /orgs/acme/actions/runners": 200, "GET /orgs/acme/actions/runner-groups": 200, "GET /repos/acme/app/actions/runners": 404,
		"DELETE /orgs/acme/actions/runners/" + itoa(r.id): 401, "POST /orgs/acme/actions/runners/registration-token": 401,
	} {
		method, address, _ := strings.Cut(path, " ")
		require.Equal(t, want, w.remote(method, address, token.GetToken(), "", nil), path)
	}
}

// The answer has the members that GitHub's runner 2.336.0 needed when it registered, by their names.
func TestRegistration_BeginsAsGitHubsRunnerReadsIt(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	token, _, err := w.org.Actions.CreateOrganizationRegistrationToken(w.ctx, "acme")
	require.NoError(t, err)
	body := `{"url": "` + w.in.URL + `/acme", "runner_event": "register"}`
	var answer map[string]any
	require.Equal(t, http.StatusOK, w.remote(http.MethodPost, "/actions/runner-registration", token.GetToken(), body, &answer))
	require.Equal(t, []string{"token", "token_schema", "url", "use_v2_flow"}, slices.Sorted(maps.Keys(answer)))
	require.Equal(t, true, answer["use_v2_flow"])
}

// A removal token removes a runner of its scope, as GitHub's runner does with it, and nothing of another.
func TestRemovalToken_RemovesARunnerOfItsScope(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	r := w.mint("one", "linux")
	token, _, err := w.org.Actions.CreateOrganizationRemoveToken(w.ctx, "acme")
	require.NoError(t, err)
	for _, step := range []struct {
		path string
		want int
	}{
		{"/repos/acme/app/actions/runners/" + itoa(r.id), 404}, {"/orgs/acme/actions/runners/" + itoa(r.id), 204}, {"/orgs/acme/actions/runners/" + itoa(r.id), 404},
	} {
		require.Equal(t, step.want, w.remote(http.MethodDelete, step.path, token.GetToken(), "", nil), step.path)
	}
}

// remote is a request with a registration or removal token; it returns the status, and decodes the answer into out unless that is nil.
func (w *world) remote(method, path, token, body string, out any) int {
	w.t.Helper()
	req, err := http.NewRequestWithContext(w.ctx, method, w.in.URL+path, strings.NewReader(body))
	require.NoError(w.t, err)
	req.Header.Set("Authorization", "RemoteAuth "+token)
	req.Header.Set("Content-Type", "application/json")
	res, err := await.HTTP.Do(req)
	require.NoError(w.t, err)
	defer res.Body.Close()
	if out != nil {
		require.NoError(w.t, json.NewDecoder(res.Body).Decode(out))
	}
	return res.StatusCode
}

func itoa(n int64) string { text, _ := json.Marshal(n); return string(text) }

// A static runner takes one job after the other, is cleaned up late, and survives a restart of GitHub.
func TestStaticRunner_TakesJobAfterJobAndStays(t *testing.T) {
	t.Parallel()
	state := filepath.Join(t.TempDir(), "state.json")
	w := newWorld(t, func(o *standin.Options) {
		o.StateFile = state
		o.Enterprises = []standin.Enterprise{{Slug: "big", Accounts: []string{"acme"}, RunnerGroups: []string{"builders"}}}
	})
	owner := w.person(standin.PersonalToken{Name: "owner", Accounts: []string{"enterprises/big"}})
	token, _, err := owner.Enterprise.CreateRegistrationToken(w.ctx, "big")
	require.NoError(t, err)
	root, err := w.configure("enterprises/big", token.GetToken(), "static")
	require.NoError(t, err)
	ctx, stop := context.WithCancel(w.ctx)
	r, err := devrunner.New(devrunner.Options{Root: root, WorkDir: root})
	require.NoError(t, err)
	ended := make(chan error, 1)
	go func() { ended <- r.Run(ctx) }()
	for range 3 {
		run := w.submit(oneJob)
		w.eventually(func() bool { return w.job(run, "build").Conclusion == "success" }, "the job")
		require.Equal(t, "static", w.job(run, "build").RunnerName)
	}
	listed, _, err := owner.Enterprise.ListRunners(w.ctx, "big", nil)
	require.NoError(t, err)
	require.Len(t, listed.Runners, 1)
	stop()
	require.NoError(t, await.Receive(t, ended, "the message session ends"))

	w.in.Close()
	public, _, err := appKey()
	require.NoError(t, err)
	again, err := standin.New(standin.Options{URL: w.in.URL, AppID: 1, AppKey: public, StateFile: state, Now: w.clock.Now, RunnerKeys: 1})
	require.NoError(t, err)
	require.Len(t, again.Ledger().Runners, 1)
	w.clock.Advance(13 * 24 * time.Hour)
	again.Tick()
	require.Equal(t, 1, again.State().Runners, "static runners stay for a fortnight")
	w.clock.Advance(2 * 24 * time.Hour)
	again.Tick()
	require.Zero(t, again.State().Runners)
}

func TestPersonalToken_ReachesWhatItSays(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	_, err := w.in.Admin.AddEnterprise(w.ctx, standin.Enterprise{Slug: "big", Accounts: []string{"acme"}, RunnerGroups: []string{"builders"}})
	require.NoError(t, err)
	_, err = w.in.Admin.Install(w.ctx, standin.Installation{Account: "acme", RunnerGroups: []string{"testers", "builders"}})
	require.NoError(t, err)
	acme := w.person(standin.PersonalToken{Name: "acme", Accounts: []string{"acme"}})
	reader := w.person(standin.PersonalToken{Name: "reader", Powerless: true})
	everything := w.person(standin.PersonalToken{Name: "all"})

	status := func(answer *github.Response, _ error) int { return answer.StatusCode }
	_, answer, err := acme.Actions.CreateOrganizationRegistrationToken(w.ctx, "acme")
	require.Equal(t, http.StatusCreated, status(answer, err))
	_, answer, err = acme.Actions.CreateRegistrationToken(w.ctx, "octo", "solo")
	require.Equal(t, http.StatusNotFound, status(answer, err))
	_, answer, err = acme.Enterprise.CreateRegistrationToken(w.ctx, "big")
	require.Equal(t, http.StatusNotFound, status(answer, err))
	_, answer, err = w.org.Enterprise.CreateRegistrationToken(w.ctx, "big")
	require.Equal(t, http.StatusForbidden, status(answer, err), "Apps cannot register there")
	_, answer, err = reader.Actions.CreateOrganizationRegistrationToken(w.ctx, "acme")
	require.Equal(t, http.StatusForbidden, status(answer, err))
	_, answer, err = reader.Actions.ListRepositoryWorkflowRuns(w.ctx, "acme", "app", nil)
	require.Equal(t, http.StatusOK, status(answer, err))

	groups, _, err := everything.Actions.ListOrganizationRunnerGroups(w.ctx, "acme", nil)
	require.NoError(t, err)
	require.Len(t, groups.RunnerGroups, 3)
	require.Equal(t, "builders", groups.RunnerGroups[2].GetName())
	require.Equal(t, int64(3), groups.RunnerGroups[2].GetID())
	enterprise, _, err := everything.Enterprise.ListRunnerGroups(w.ctx, "big", nil)
	require.NoError(t, err)
	require.Len(t, enterprise.RunnerGroups, 2)

	minted, _, err := everything.Enterprise.GenerateEnterpriseJITConfig(w.ctx, "big", &github.GenerateJITConfigRequest{Name: "jit", RunnerGroupID: 1, Labels: []string{"linux"}})
	require.NoError(t, err)
	_, err = everything.Enterprise.RemoveRunner(w.ctx, "big", minted.GetRunner().GetID())
	require.NoError(t, err)

	require.NoError(t, w.in.Admin.RevokeToken(w.ctx, "all"))
	_, answer, err = everything.Actions.CreateOrganizationRegistrationToken(w.ctx, "acme")
	require.Equal(t, http.StatusUnauthorized, status(answer, err))
}

// What GitHub may answer to a removal, with the list readable beside it.
func TestRemoval_EveryAnswerOnDemand(t *testing.T) {
	t.Parallel()
	for want, fault := range map[int]standin.Fault{
		http.StatusForbidden:           {Kind: standin.FaultForbidden, Route: "DELETE", Times: 1},
		http.StatusNotFound:            {Kind: standin.FaultMissing, Route: "DELETE", Times: 1},
		http.StatusUnprocessableEntity: {Kind: standin.FaultRemoveRefused, Times: 1},
		http.StatusTooManyRequests:     {Kind: standin.FaultRateEmpty, Route: "DELETE", Status: 429, Delay: standin.Duration(90 * time.Second), Times: 1},
		http.StatusBadGateway:          {Kind: standin.FaultRESTStatus, Route: "DELETE", Status: 502, Times: 1},
	} {
		w := newWorld(t, nil)
		r := w.mint("one", "linux")
		w.fault(fault)
		answer, err := w.org.Actions.RemoveOrganizationRunner(w.ctx, "acme", r.id)
		require.Error(t, err)
		require.Equal(t, want, answer.StatusCode)
		if want == http.StatusTooManyRequests {
			require.WithinDuration(t, w.clock.Now().Add(90*time.Second), answer.Rate.Reset.Time, 2*time.Second)
			continue
		}
		_, _, err = w.org.Actions.ListOrganizationRunners(w.ctx, "acme", nil)
		require.NoError(t, err, want)
	}
}
