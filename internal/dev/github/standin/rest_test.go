package standin_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v4"
	"github.com/google/go-github/v88/github"
	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/internal/dev/github/standin"
	"github.com/bullpen-ci/bullpen/test/kit/await"
)

func must[T any](value T, _ *github.Response, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

func jit(name string, labels ...string) *github.GenerateJITConfigRequest {
	return &github.GenerateJITConfigRequest{Name: name, RunnerGroupID: 1, Labels: labels}
}

func statusOf(response *github.Response) int {
	if response == nil {
		return 0
	}
	return response.StatusCode
}

func TestApp_InstallationsAndTokens(t *testing.T) {
	w := newWorld(t, nil)
	app := must(w.app.Apps.Get(w.ctx, ""))
	require.EqualValues(t, 1, app.GetID())
	installs := must(w.app.Apps.ListInstallations(w.ctx, nil))
	require.Len(t, installs, 2)
	require.Equal(t, "User", installs[1].GetAccount().GetType())
	found := must(w.app.Apps.GetOrganizationInstallation(w.ctx, "ACME"))
	require.EqualValues(t, 11, found.GetID())
	require.EqualValues(t, 12, must(w.app.Apps.GetUserInstallation(w.ctx, "octo")).GetID())
	require.EqualValues(t, 11, must(w.app.Apps.GetRepositoryInstallation(w.ctx, "acme", "lib")).GetID())
	_, response, err := w.app.Apps.GetOrganizationInstallation(w.ctx, "octo")
	require.Error(t, err)
	require.Equal(t, http.StatusNotFound, statusOf(response))

	token := must(w.app.Apps.CreateInstallationToken(w.ctx, 11, nil))
	require.WithinDuration(t, w.clock.Now().Add(time.Hour), token.GetExpiresAt().Time, 2*time.Second)
	list := func() int {
		request, err := http.NewRequestWithContext(w.ctx, "GET", w.in.URL+"/orgs/acme/actions/runners", nil)
		require.NoError(t, err)
		request.Header.Set("Authorization", "token "+token.GetToken())
		response, err := await.HTTP.Do(request)
		require.NoError(t, err)
		require.NoError(t, response.Body.Close())
		return response.StatusCode
	}
	require.Equal(t, http.StatusOK, list(), "the bare form of the path serves too")
	w.clock.Advance(61 * time.Minute)
	require.Equal(t, http.StatusUnauthorized, list(), "the token is expired")
}

func TestApp_JWTIsChecked(t *testing.T) {
	w := newWorld(t, func(o *standin.Options) { o.AppID = 77 }) // the client says 1
	_, response, err := w.app.Apps.Get(w.ctx, "")
	require.Error(t, err)
	require.Equal(t, http.StatusUnauthorized, statusOf(response))
	w = newWorld(t, nil)
	for name, c := range map[string]struct {
		issued, ends time.Duration // from GitHub's now
		want         int
	}{
		"as GitHub's documentation has it": {-time.Minute, 10 * time.Minute, http.StatusOK},
		"issued now":                       {0, time.Minute, http.StatusOK},
		"issued in the future":             {time.Second, time.Minute, http.StatusUnauthorized},
		"ended":                            {-10 * time.Minute, -time.Second, http.StatusUnauthorized},
		"too far in the future":            {0, 10*time.Minute + time.Second, http.StatusUnauthorized},
	} {
		require.Equal(t, c.want, w.asApp(c.issued, c.ends), name)
	}
}

// asApp reads the App with a JWT that was issued and ends then, and returns the status.
func (w *world) asApp(issued, ends time.Duration) int {
	w.t.Helper()
	_, private, err := appKey()
	require.NoError(w.t, err)
	key, err := jwt.ParseRSAPrivateKeyFromPEM(private)
	require.NoError(w.t, err)
	now := w.clock.Now().Truncate(time.Second)
	text, err := jwt.NewWithClaims(jwt.SigningMethodRS256, jwt.RegisteredClaims{
		Issuer: "1", IssuedAt: jwt.NewNumericDate(now.Add(issued)), ExpiresAt: jwt.NewNumericDate(now.Add(ends)),
	}).SignedString(key)
	require.NoError(w.t, err)
	request, err := http.NewRequestWithContext(w.ctx, http.MethodGet, w.in.URL+"/app", nil)
	require.NoError(w.t, err)
	request.Header.Set("Authorization", "Bearer "+text)
	response, err := await.HTTP.Do(request)
	require.NoError(w.t, err)
	require.NoError(w.t, response.Body.Close())
	return response.StatusCode
}

func TestRunners_MintListGetDelete(t *testing.T) {
	w := newWorld(t, nil)
	config := must(w.org.Actions.GenerateOrgJITConfig(w.ctx, "acme", jit("pod-1", "self-hosted", "linux")))
	require.Equal(t, "offline", config.GetRunner().GetStatus())
	require.Equal(t, "pod-1", config.GetRunner().GetName())
	require.Len(t, config.GetRunner().Labels, 2)

	_, response, err := w.org.Actions.GenerateOrgJITConfig(w.ctx, "acme", jit("POD-1", "self-hosted"))
	require.Error(t, err)
	require.Equal(t, http.StatusConflict, statusOf(response))
	for name, request := range map[string]*github.GenerateJITConfigRequest{
		"long name": jit(strings.Repeat("x", 65), "a"),
		"bad name":  jit("a/b", "a"),
		"no labels": jit("x"),
		"no group":  {Name: "x", Labels: []string{"a"}},
	} {
		_, response, err := w.org.Actions.GenerateOrgJITConfig(w.ctx, "acme", request)
		require.Error(t, err, name)
		require.Equal(t, http.StatusUnprocessableEntity, statusOf(response), name)
	}
	_, response, err = w.org.Actions.GenerateOrgJITConfig(w.ctx, "octo", jit("x", "a"))
	require.Error(t, err)
	require.Equal(t, http.StatusNotFound, statusOf(response), "another account's installation")

	for i := range 4 {
		must(w.org.Actions.GenerateOrgJITConfig(w.ctx, "acme", jit(strings.Repeat("n", i+2), "a")))
	}
	opts := &github.ListRunnersOptions{ListOptions: github.ListOptions{PerPage: 2}}
	var names []string
	for {
		runners, response, err := w.org.Actions.ListOrganizationRunners(w.ctx, "acme", opts)
		require.NoError(t, err)
		require.Equal(t, 5, runners.TotalCount)
		for _, rn := range runners.Runners {
			names = append(names, rn.GetName())
		}
		if response.NextPage == 0 {
			break
		}
		opts.Page = response.NextPage
	}
	require.Equal(t, []string{"pod-1", "nn", "nnn", "nnnn", "nnnnn"}, names)
	byName := must(w.org.Actions.ListOrganizationRunners(w.ctx, "acme", &github.ListRunnersOptions{Name: github.Ptr("nnn")}))
	require.Len(t, byName.Runners, 1)

	id := config.GetRunner().GetID()
	require.Equal(t, "pod-1", must(w.org.Actions.GetOrganizationRunner(w.ctx, "acme", id)).GetName())
	response, err = w.org.Actions.RemoveOrganizationRunner(w.ctx, "acme", id)
	require.NoError(t, err)
	require.Equal(t, http.StatusNoContent, response.StatusCode)
	response, err = w.org.Actions.RemoveOrganizationRunner(w.ctx, "acme", id)
	require.Error(t, err)
	require.Equal(t, http.StatusNotFound, statusOf(response))

	repoLevel := must(w.user.Actions.GenerateRepoJITConfig(w.ctx, "octo", "solo", jit("pod-1", "a")))
	require.Len(t, must(w.user.Actions.ListRunners(w.ctx, "octo", "solo", nil)).Runners, 1)
	_, err = w.user.Actions.RemoveRunner(w.ctx, "octo", "solo", repoLevel.GetRunner().GetID())
	require.NoError(t, err)
}

func TestRunners_RemovalIsRefusedWhileBusy(t *testing.T) {
	w := newWorld(t, nil)
	r := w.mint("a", "self-hosted", "linux").start(w.clock.Now())
	w.submit(oneJob)
	response, err := w.org.Actions.RemoveOrganizationRunner(w.ctx, "acme", r.id)
	require.Error(t, err, "assigned, not yet acquired: it may start any moment")
	require.Equal(t, http.StatusUnprocessableEntity, statusOf(response))
	r.take()
	require.True(t, must(w.org.Actions.GetOrganizationRunner(w.ctx, "acme", r.id)).GetBusy())
	response, err = w.org.Actions.RemoveOrganizationRunner(w.ctx, "acme", r.id)
	require.Error(t, err)
	require.Equal(t, http.StatusUnprocessableEntity, statusOf(response))
	require.Equal(t, http.StatusOK, r.complete("succeeded", nil), "its job was not disturbed")
}

func TestRunners_RemovedOneStartsNoJob(t *testing.T) {
	w := newWorld(t, nil)
	r := w.mint("a", "self-hosted", "linux").start(w.clock.Now())
	_, err := w.org.Actions.RemoveOrganizationRunner(w.ctx, "acme", r.id)
	require.NoError(t, err)
	run := w.submit(oneJob)
	require.False(t, w.job(run, "build").Assigned)
	_, code := r.poll("Online")
	require.Equal(t, http.StatusNotFound, code)
}

func TestActions_JobsRunsAndLogs(t *testing.T) {
	w := newWorld(t, nil)
	run := w.submit(oneJob)
	j := w.job(run, "build")
	job := must(w.org.Actions.GetWorkflowJobByID(w.ctx, "acme", "app", j.ID))
	require.Equal(t, "queued", job.GetStatus())
	require.Nil(t, job.RunnerID)
	queued := must(w.org.Actions.ListRepositoryWorkflowRuns(w.ctx, "acme", "app", &github.ListWorkflowRunsOptions{Status: "queued"}))
	require.Equal(t, 1, queued.GetTotalCount())
	r := w.mint("a", "self-hosted", "linux").start(w.clock.Now()).take()
	require.Equal(t, "in_progress", must(w.org.Actions.GetWorkflowRunByID(w.ctx, "acme", "app", run.ID)).GetStatus())
	_, response, err := w.org.Actions.GetWorkflowJobLogs(w.ctx, "acme", "app", j.ID, 1)
	require.Error(t, err, "there is no log yet")
	require.Equal(t, http.StatusNotFound, statusOf(response))

	r.upload("GetJobLogsSignedBlobURL", "", "first line\n", "second line\n")
	require.Equal(t, http.StatusOK, r.complete("failed", nil))
	address, _, err := w.org.Actions.GetWorkflowJobLogs(w.ctx, "acme", "app", j.ID, 1)
	require.NoError(t, err)
	require.Equal(t, "first line\nsecond line\n", download(t, address.String()))
	listed := must(w.org.Actions.ListWorkflowJobs(w.ctx, "acme", "app", run.ID, nil))
	require.Equal(t, "failure", listed.Jobs[0].GetConclusion())
	require.Equal(t, "a", listed.Jobs[0].GetRunnerName())
	require.Equal(t, "failure", must(w.org.Actions.GetWorkflowRunByID(w.ctx, "acme", "app", run.ID)).GetConclusion())
	_, response, err = w.user.Actions.GetWorkflowJobByID(w.ctx, "acme", "app", j.ID)
	require.Error(t, err)
	require.Equal(t, http.StatusNotFound, statusOf(response))
}

func TestRateLimit_HeadersBucketsAndRefusal(t *testing.T) {
	w := newWorld(t, func(o *standin.Options) {
		o.Registration = standin.RateLimit{Limit: 2, Window: time.Minute}
		o.Core = standin.RateLimit{Limit: 3, Window: time.Hour}
	})
	_, response, err := w.org.Actions.GenerateOrgJITConfig(w.ctx, "acme", jit("a", "x"))
	require.NoError(t, err)
	require.Equal(t, "actions_runner_registration", response.Header.Get("x-ratelimit-resource"))
	require.Equal(t, "2", response.Header.Get("x-ratelimit-limit"))
	require.Equal(t, "1", response.Header.Get("x-ratelimit-remaining"))
	require.Equal(t, "1", response.Header.Get("x-ratelimit-used"))
	must(w.org.Actions.GenerateOrgJITConfig(w.ctx, "acme", jit("b", "x")))
	_, response, err = w.org.Actions.GenerateOrgJITConfig(w.ctx, "acme", jit("c", "x"))
	var limited *github.RateLimitError
	require.ErrorAs(t, err, &limited)
	require.Equal(t, http.StatusForbidden, statusOf(response))
	require.NotEmpty(t, response.Header.Get("retry-after"))
	_, response, err = w.org.Actions.ListOrganizationRunners(w.ctx, "acme", nil)
	require.NoError(t, err, "another bucket")
	require.Equal(t, "core", response.Header.Get("x-ratelimit-resource"))
	w.clock.Advance(time.Minute)
	must(w.org.Actions.GenerateOrgJITConfig(w.ctx, "acme", jit("c", "x")))

	calls := w.in.Stats().Routes["POST /orgs/{login}/actions/runners/generate-jitconfig"]
	require.Equal(t, 4, calls.Calls)
	require.Equal(t, map[int]int{201: 3, 403: 1}, calls.ByStatus)
	require.Equal(t, 3, w.in.Stats().Minted)
}

func TestRateLimit_Secondary(t *testing.T) {
	w := newWorld(t, func(o *standin.Options) { o.SecondaryPoints = 5 })
	must(w.org.Actions.GenerateOrgJITConfig(w.ctx, "acme", jit("a", "x")))
	_, _, err := w.org.Actions.GenerateOrgJITConfig(w.ctx, "acme", jit("b", "x"))
	var abuse *github.AbuseRateLimitError
	require.ErrorAs(t, err, &abuse)
	require.Positive(t, abuse.GetRetryAfter())
}
