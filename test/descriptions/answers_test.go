package descriptions

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/internal/dev/github/standin"
	"github.com/bullpen-ci/bullpen/test/kit/await"
)

// undescribed are routes of the stand-in that GitHub has and does not describe, and why it has them.
var undescribed = map[string]string{
	"/repositories/{repo_id}":                         "where GitHub redirects calls by a repository's former name to",
	"/actions/runner-registration":                    "the runner's own registration",
	"/actions/runners/register":                       "the runner's own registration",
	"GET /repos/{login}/{repo}/actions/runner-groups": "which a runner that registers itself at a repository reads",
}

// difference is one that stays.
type difference struct {
	within string // where in the answer, and nowhere else
	why    string
}

// differing are the answers that are not as described, by operation and status.
var differing = map[string]difference{
	"GET /app/installations 200": {"/account", "the description has an account be a user and an enterprise at once (allOf); that of one installation has it be either"},
}

// enterpriseRoutes are described for GitHub Enterprise Cloud alone.
const enterpriseRoutes = "/enterprises/"

const workflow = "on: push\njobs:\n  build:\n    runs-on: [self-hosted, linux]\n    steps:\n      - run: echo hello\n"

// answers validates what the stand-in answers to each call.
type answers struct {
	t                 *testing.T
	cloud, enterprise *api
	in                *standin.Local
	patterns          *http.ServeMux // of all REST routes
	called            map[string]bool
	used              map[string]bool // of differing
}

func newAnswers(t *testing.T) *answers {
	t.Helper()
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, `{"status":"recorded"}`) }))
	t.Cleanup(receiver.Close)
	in, err := standin.Start(t.Context(), standin.Options{
		WebhookURL: receiver.URL, WebhookSecret: secret,
		Installations: []standin.Installation{
			{ID: 11, Account: "acme", Repositories: []string{"app"}, RunnerGroups: []string{"gpu"}},
			{ID: 12, Account: "octo", Type: "User", Repositories: []string{"solo"}},
			{ID: 13, Account: "idle", Repositories: []string{"app"}},
		},
		Enterprises: []standin.Enterprise{{Slug: "big", Accounts: []string{"acme"}}},
		Tokens:      []standin.PersonalToken{{Name: "ada", Value: "ghp_ada"}},
	})
	require.NoError(t, err)
	t.Cleanup(in.Close)
	require.NoError(t, in.Suspend(13))
	a := &answers{
		t: t, cloud: newAPI(t, "api.github.com"), enterprise: newAPI(t, "ghec"), in: in, patterns: http.NewServeMux(), called: map[string]bool{}, used: map[string]bool{},
	}
	for _, pattern := range in.RESTRoutes() {
		a.patterns.HandleFunc(pattern, func(http.ResponseWriter, *http.Request) {})
	}
	return a
}

// appToken is a JWT of the App.
func (a *answers) appToken() string {
	a.t.Helper()
	key, err := jwt.ParseRSAPrivateKeyFromPEM(a.in.AppKeyPEM)
	require.NoError(a.t, err)
	now := time.Now()
	text, err := jwt.NewWithClaims(jwt.SigningMethodRS256, jwt.RegisteredClaims{
		Issuer: "1", IssuedAt: jwt.NewNumericDate(now.Add(-time.Minute)), ExpiresAt: jwt.NewNumericDate(now.Add(5 * time.Minute)),
	}).SignedString(key)
	require.NoError(a.t, err)
	return "Bearer " + text
}

// call asks, checks the status, validates the answer, and returns it.
func (a *answers) call(as, method, path string, body any, want int) map[string]any {
	a.t.Helper()
	var payload io.Reader
	if body != nil {
		raw, err := json.Marshal(body)
		require.NoError(a.t, err)
		payload = bytes.NewReader(raw)
	}
	request, err := http.NewRequestWithContext(a.t.Context(), method, a.in.URL+path, payload)
	require.NoError(a.t, err)
	request.Header.Set("Authorization", as)
	client := &http.Client{Timeout: await.Limit, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	response, err := client.Do(request)
	require.NoError(a.t, err)
	raw, err := io.ReadAll(response.Body)
	require.NoError(a.t, err)
	require.NoError(a.t, response.Body.Close())
	require.Equal(a.t, want, response.StatusCode, "%s %s: %s", method, path, raw)
	a.compare(request, response, raw)
	var out map[string]any
	if json.Unmarshal(raw, &out) != nil {
		var list []map[string]any
		if json.Unmarshal(raw, &list) == nil && len(list) > 0 {
			out = list[0]
		}
	}
	return out
}

func (a *answers) compare(request *http.Request, response *http.Response, raw []byte) {
	a.t.Helper()
	_, pattern := a.patterns.Handler(request)
	a.called[pattern] = true
	for route := range undescribed {
		if pattern == route || strings.Contains(pattern, route) {
			return
		}
	}
	by, path := a.cloud, request.URL.Path
	if strings.HasPrefix(path, enterpriseRoutes) {
		by = a.enterprise
	}
	template, ok := by.template(request.Method, path)
	if !ok {
		a.t.Errorf("%s is not described: list it under undescribed, or leave it out", pattern)
		return
	}
	found := by.differences(a.t, request.Method, template, response.StatusCode, response.Header, raw)
	if len(found) == 0 {
		return
	}
	key := fmt.Sprintf("%s %s %d", request.Method, template, response.StatusCode)
	if known := differing[key]; known.why != "" && !slices.ContainsFunc(found, func(one string) bool { return !strings.HasPrefix(one, known.within) }) {
		a.used[key] = true
		return
	}
	a.t.Errorf("%s is not as described:\n  %s", key, strings.Join(found, "\n  "))
}

func number(value any) int64 {
	n, _ := value.(float64)
	return int64(n)
}

// A client that was generated from GitHub's description takes every answer of the stand-in.
func TestStandin_EveryAnswerIsAsGitHubDescribesIt(t *testing.T) {
	t.Parallel()
	a := newAnswers(t)
	app := a.appToken()
	installation := "token " + fmt.Sprint(a.call(app, "POST", "/app/installations/11/access_tokens", nil, 201)["token"])
	a.app(app)
	a.registration()
	a.installation(installation)
	a.runners(installation, "/orgs/acme")
	a.runners(installation, "/repos/acme/app")
	a.runners("token ghp_ada", "/enterprises/big")
	a.runs(installation)
	a.redirected(installation)
	for _, pattern := range a.in.RESTRoutes() {
		known := a.called[pattern]
		for route := range undescribed {
			known = known || pattern == route || strings.Contains(pattern, route)
		}
		require.True(t, known, "%s is not called here", pattern)
	}
	for key := range differing {
		require.True(t, a.used[key], "%s is as described now: take it off the list", key)
	}
}

func (a *answers) app(app string) {
	a.t.Helper()
	a.call("Bearer none", "GET", "/app", nil, 401)
	a.call(app, "GET", "/app", nil, 200)
	a.call(app, "GET", "/app/installations", nil, 200)
	for _, id := range []int{11, 12, 13} {
		a.call(app, "GET", fmt.Sprint("/app/installations/", id), nil, 200)
	}
	a.call(app, "GET", "/app/installations/99", nil, 404)
	a.call(app, "POST", "/app/installations/13/access_tokens", nil, 403)
	a.call(app, "POST", "/app/installations/99/access_tokens", nil, 404)
	a.call(app, "GET", "/orgs/acme/installation", nil, 200)
	a.call(app, "GET", "/orgs/none/installation", nil, 404)
	a.call(app, "GET", "/users/octo/installation", nil, 200)
	a.call(app, "GET", "/repos/acme/app/installation", nil, 200)
	a.call(app, "GET", "/repos/acme/none/installation", nil, 404)
	a.call(app, "GET", "/app/hook/config", nil, 200)
	require.Eventually(a.t, func() bool { return a.listed(app) }, await.Limit, 20*time.Millisecond, "a delivery is listed")
	delivery := number(a.call(app, "GET", "/app/hook/deliveries?status=success", nil, 200)["id"])
	a.call(app, "GET", fmt.Sprint("/app/hook/deliveries/", delivery), nil, 200)
	a.call(app, "GET", "/app/hook/deliveries/1", nil, 404)
	a.call(app, "POST", fmt.Sprintf("/app/hook/deliveries/%d/attempts", delivery), nil, 202)
}

// registration exchanges the code of an App that was registered by a manifest.
func (a *answers) registration() {
	a.t.Helper()
	client := &http.Client{Timeout: await.Limit, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	post := func(path string, form url.Values) (*http.Response, string) {
		response, err := client.PostForm(a.in.URL+path, form)
		require.NoError(a.t, err)
		defer response.Body.Close()
		raw, err := io.ReadAll(response.Body)
		require.NoError(a.t, err)
		return response, string(raw)
	}
	_, page := post("/organizations/acme/settings/apps/new", url.Values{"manifest": {
		`{"name":"a-new-app","url":"https://example.com","redirect_url":"http://127.0.0.1:1/","hook_attributes":{"url":"https://example.com"},` +
			`"default_permissions":{"actions":"read"},"default_events":["workflow_job"]}`,
	}})
	token := regexp.MustCompile(`name="token" value="(\w+)"`).FindStringSubmatch(page)
	require.Len(a.t, token, 2, page)
	response, page := post("/settings/apps/confirm-manifest", url.Values{"token": {token[1]}, "name": {"a-new-app"}})
	require.Equal(a.t, http.StatusFound, response.StatusCode, page)
	back, err := response.Location()
	require.NoError(a.t, err)
	conversion := "/app-manifests/" + back.Query().Get("code") + "/conversions"
	a.call("", "POST", conversion, nil, 201)
	a.call("", "POST", conversion, nil, 404)
}

// listed reports whether a delivery is in the list, with what the receiver has answered.
func (a *answers) listed(app string) bool {
	request, err := http.NewRequestWithContext(a.t.Context(), http.MethodGet, a.in.URL+"/app/hook/deliveries?status=success", nil)
	if err != nil {
		return false
	}
	request.Header.Set("Authorization", app)
	response, err := await.HTTP.Do(request)
	if err != nil {
		return false
	}
	defer func() { _ = response.Body.Close() }()
	var list []any
	return json.NewDecoder(response.Body).Decode(&list) == nil && len(list) > 0
}

func (a *answers) installation(token string) {
	a.t.Helper()
	a.call(token, "GET", "/installation/repositories", nil, 200)
	a.call(token, "GET", "/rate_limit", nil, 200)
	a.call(token, "GET", "/repos/acme/app", nil, 200)
	a.call(token, "GET", "/repos/acme/none", nil, 404)
}

func (a *answers) runners(token, scope string) {
	a.t.Helper()
	at := scope + "/actions/runners"
	name := "runner-of-" + strings.ReplaceAll(strings.Trim(scope, "/"), "/", "-")
	ask := map[string]any{"name": name, "runner_group_id": 1, "labels": []string{"linux"}, "work_folder": "_work"}
	made := a.call(token, "POST", at+"/generate-jitconfig", ask, 201)
	a.call(token, "POST", at+"/generate-jitconfig", ask, 409)
	a.call(token, "POST", at+"/generate-jitconfig", map[string]any{"name": "", "runner_group_id": 1, "labels": []string{"linux"}}, 422)
	a.call(token, "POST", at+"/registration-token", nil, 201)
	a.call(token, "POST", at+"/remove-token", nil, 201)
	a.call(token, "GET", at, nil, 200)
	runner, _ := made["runner"].(map[string]any)
	one := fmt.Sprint(at, "/", number(runner["id"]))
	a.call(token, "GET", one, nil, 200)
	a.call(token, "GET", one+"/labels", nil, 200)
	a.call(token, "DELETE", one, nil, 204)
	a.call(token, "GET", one, nil, 404)
	if !strings.HasPrefix(scope, "/repos/") {
		a.call(token, "GET", scope+"/actions/runner-groups", nil, 200)
	}
	if strings.HasPrefix(scope, "/orgs/") {
		a.call(token, "GET", scope+"/actions/runner-groups/1", nil, 200)
		a.call(token, "GET", scope+"/actions/runner-groups/1/repositories", nil, 200)
		a.call(token, "GET", scope+"/actions/runner-groups/99", nil, 404)
	}
}

func (a *answers) runs(token string) {
	a.t.Helper()
	const at = "/repos/acme/app/actions"
	submitted, err := a.in.Submit(standin.Submission{FileName: "ci.yaml", Content: workflow, Repo: "acme/app"})
	require.NoError(a.t, err)
	run := fmt.Sprint(at, "/runs/", submitted[0].ID)
	jobs, _ := a.call(token, "GET", run+"/jobs", nil, 200)["jobs"].([]any)
	require.Len(a.t, jobs, 1)
	first, _ := jobs[0].(map[string]any)
	job := fmt.Sprint(at, "/jobs/", number(first["id"]))
	a.call(token, "GET", at+"/runs", nil, 200)
	a.call(token, "GET", run, nil, 200)
	a.call(token, "GET", run+"/attempts/1/jobs", nil, 200)
	a.call(token, "GET", job, nil, 200)
	a.call(token, "GET", job+"/logs", nil, 404)
	a.call(token, "POST", run+"/rerun", nil, 403)
	a.call(token, "POST", run+"/cancel", nil, 202)
	a.call(token, "POST", run+"/cancel", nil, 409)
	a.call(token, "GET", run, nil, 200)
	a.call(token, "GET", job, nil, 200)
	a.call(token, "POST", run+"/rerun", nil, 201)
	a.call(token, "POST", run+"/force-cancel", nil, 202)
	a.call(token, "POST", run+"/force-cancel", nil, 409)
	a.call(token, "POST", run+"/rerun-failed-jobs", nil, 201)
	a.call(token, "POST", run+"/cancel", nil, 202)
	jobs, _ = a.call(token, "GET", run+"/jobs", nil, 200)["jobs"].([]any)
	latest, _ := jobs[0].(map[string]any)
	a.call(token, "POST", fmt.Sprint(at, "/jobs/", number(latest["id"]), "/rerun"), nil, 201)
	a.call(token, "GET", at+"/runs/1", nil, 404)
}

// redirected shows that a former name leads to a path by id, which is the same route.
func (a *answers) redirected(token string) {
	a.t.Helper()
	require.NoError(a.t, a.in.RenameRepository("acme/app", "renamed"))
	request, err := http.NewRequestWithContext(a.t.Context(), http.MethodGet, a.in.URL+"/repos/acme/app", nil)
	require.NoError(a.t, err)
	request.Header.Set("Authorization", token)
	response, err := await.HTTP.Do(request)
	require.NoError(a.t, err)
	defer func() { _ = response.Body.Close() }()
	require.Equal(a.t, http.StatusOK, response.StatusCode)
	require.Contains(a.t, response.Request.URL.Path, "/repositories/")
}

// Deviations from the description are found.
func TestDifferences_AreFound(t *testing.T) {
	a := newAPI(t, "api.github.com")
	template, ok := a.template("GET", "/orgs/acme/actions/runners/7")
	require.True(t, ok)
	require.True(t, strings.HasPrefix(template, "/orgs/{org}/actions/runners/{"), template)
	_, ok = a.template("PUT", "/orgs/acme/actions/runners/7")
	require.False(t, ok)
	header := http.Header{"Content-Type": {"application/json"}}
	const good = `{"id":1,"name":"x","os":"linux","status":"online","busy":false,"labels":[]}`
	require.Empty(t, a.differences(t, "GET", template, 200, header, []byte(good)))
	for _, bad := range []string{
		strings.Replace(good, `"name":"x",`, "", 1), strings.Replace(good, `"busy":false`, `"busy":null`, 1), strings.Replace(good, `"labels":[]`, `"labels":[{}]`, 1), `[]`, `{`,
	} {
		require.NotEmpty(t, a.differences(t, "GET", template, 200, header, []byte(bad)), bad)
	}
	require.NotEmpty(t, a.differences(t, "GET", template, 201, header, []byte(good)), "a status that is not described")
	require.Empty(t, a.differences(t, "GET", template, 503, header, []byte(`{"message":"away"}`)), "a refusal is a basic error")
	require.NotEmpty(t, a.differences(t, "GET", template, 503, header, []byte(`{"message":1}`)))
}
