package registration

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/internal/fleet"
	"github.com/bullpen-ci/bullpen/internal/github"
)

func TestHub_SpeaksWithWhatTheSecretHolds(t *testing.T) {
	w := newWorld(t, nil)
	w.on("GET /orgs/acme/actions/runners", status(200, noRunners))
	w.on("GET /orgs/acme/installation", status(200, `{"id":42}`))
	key := string(testKey())
	for name, one := range map[string]struct {
		pairs []string
		as    string
		calls int
	}{
		"token":         {[]string{"token", "ghp_a\n"}, "Bearer ghp_a", 1},
		"peer's token":  {[]string{"github_token", "ghp_b"}, "Bearer ghp_b", 1},
		"App":           {[]string{"app-id", " 7", "private-key.pem", key}, "token installed-", 2},
		"App installed": {[]string{"app-id", "7", "private-key.pem", key, "installation-id", "42"}, "token installed-", 1},
		"peer's App": {[]string{"github_app_id", "7\n", "github_app_private_key", key, "github_app_installation_id", "42",
			"github_token", ""}, "token installed-", 1},
		"token and App": {[]string{"token", "ghp_c", "app-id", "7", "private-key.pem", key}, "Bearer ghp_c", 1},
	} {
		t.Run(name, func(t *testing.T) {
			w.calls()
			w.shelf.put(name, one.pairs...)
			require.NoError(t, w.registrar(t, name, acme).List(t.Context(), func(Registration) bool { return true }))
			require.True(t, strings.HasPrefix(w.lastAs(), one.as), w.lastAs())
			require.Len(t, w.calls(), one.calls)
		})
	}
	t.Run("the installation's own App", func(t *testing.T) {
		require.NoError(t, w.registrar(t, "", acme).List(t.Context(), func(Registration) bool { return true }))
		require.True(t, strings.HasPrefix(w.lastAs(), "token installed-"))
	})
}

func TestHub_CredentialsThatCannotBeUsedAreExplained(t *testing.T) {
	w := newWorld(t, nil)
	key := string(testKey())
	for want, pairs := range map[string][]string{
		"neither token nor app-id":      {"tokn", "ghp_hunter2"},
		"but no app-id":                 {"private-key.pem", key},
		"but no private-key.pem":        {"app-id", "7"},
		"app-id is not the number":      {"app-id", "Iv1.hunter2", "private-key.pem", key},
		"installation-id is not":        {"app-id", "7", "private-key.pem", key, "installation-id", "hunter2"},
		"not a PEM file":                {"app-id", "7", "private-key.pem", "hunter2"},
		"not an RSA key":                {"app-id", "7", "private-key.pem", "-----BEGIN X-----\naHVudGVyMg==\n-----END X-----\n"},
		"the token is not one":          {"token", "ghp hunter2"},
		"app-id is not the number that": {"app-id", "-7", "private-key.pem", key},
	} {
		w.shelf.put("bad", pairs...)
		_, err := w.hub.For(t.Context(), Credentials{"ci", "bad"}, acme)
		require.ErrorIs(t, err, ErrCredentials, want)
		require.ErrorContains(t, err, want)
		require.ErrorContains(t, err, "Secret bad in namespace ci")
		require.NotContains(t, err.Error(), "hunter2")
		require.Empty(t, w.hub.accounts)
	}
	_, err := w.hub.For(t.Context(), Credentials{"ci", "none"}, acme)
	require.ErrorIs(t, err, ErrCredentials)
	require.ErrorContains(t, err, "there is no Secret none in namespace ci")

	w.shelf.broken = errors.New("etcd is slow")
	_, err = w.hub.For(t.Context(), Credentials{"ci", "pat"}, acme)
	require.ErrorContains(t, err, "etcd is slow")
	require.NotErrorIs(t, err, ErrCredentials, "that is temporary")

	without := newWorld(t, func(o *HubOptions) { o.App = nil })
	_, err = without.hub.For(t.Context(), Credentials{Namespace: "ci"}, acme)
	require.ErrorIs(t, err, ErrCredentials)
	require.ErrorContains(t, err, "set credentials.secretName")
	require.Empty(t, w.calls())
}

func TestHub_TargetsThatCannotBeAreExplained(t *testing.T) {
	w := newWorld(t, nil)
	w.shelf.put("app", "app-id", "7", "private-key.pem", string(testKey()))
	for want, one := range map[string]struct {
		secret string
		target Target
	}{
		"exactly one":                        {"pat", Target{}},
		"exactly one of":                     {"pat", Target{Organization: "acme", Enterprise: "big"}},
		"is not owner/name":                  {"pat", Target{Repository: "acme"}},
		"repositories have no runner groups": {"pat", Target{Repository: "acme/app", Group: "g"}},
		"use a Secret with a token":          {"app", Target{Enterprise: "big"}},
		"the App is not installed for":       {"", acme},
		"lacks the permission":               {"pat", Target{Repository: "acme/none"}},
	} {
		_, err := w.hub.For(t.Context(), Credentials{"ci", one.secret}, one.target)
		require.ErrorIs(t, err, ErrTarget, want)
		require.ErrorContains(t, err, want)
	}
}

func TestHub_AChangedSecretIsUsedAtOnce(t *testing.T) {
	w := newWorld(t, nil)
	w.on("GET /orgs/acme/actions/runners", func(rw http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer ghp_new" {
			status(401, `{"message":"Bad credentials"}`)(rw, r)
			return
		}
		status(200, noRunners)(rw, r)
	})
	list := func() error {
		return w.registrar(t, "pat", acme).List(t.Context(), func(Registration) bool { return true })
	}
	for range 3 {
		err := list()
		require.ErrorIs(t, err, ErrCredentials)
		require.ErrorContains(t, err, "GitHub does not accept what Secret pat in namespace ci holds")
		require.NotContains(t, err.Error(), "hunter2")
	}
	require.Len(t, w.calls(), 1, "credentials that are not accepted are left alone for a while")
	w.clock.pass(31 * time.Second)
	require.ErrorIs(t, list(), ErrCredentials)
	require.Len(t, w.calls(), 1)

	w.shelf.put("pat", "token", "ghp_new")
	require.NoError(t, list())
	first := w.hub.accounts[Credentials{"ci", "pat"}]
	w.shelf.put("pat", "token", "ghp_new", "comment", "unrelated")
	require.NoError(t, list())
	require.Same(t, first, w.hub.accounts[Credentials{"ci", "pat"}], "another change keeps what is known of limits")
	require.Len(t, w.hub.accounts, 1)

	w.shelf.put("pat", "token", "not a token")
	_, err := w.hub.For(t.Context(), Credentials{"ci", "pat"}, acme)
	require.ErrorIs(t, err, ErrCredentials)
	require.Empty(t, w.hub.accounts, "what was replaced is not used any more")

	w.shelf.put("pat", "token", "ghp_new")
	require.NoError(t, list())
	delete(w.shelf.data, "pat")
	_, err = w.hub.For(t.Context(), Credentials{"ci", "pat"}, acme)
	require.ErrorIs(t, err, ErrCredentials)
	require.Empty(t, w.hub.accounts)
}

func TestHub_ClientsAreBoundedAndUnusedOnesDropped(t *testing.T) {
	w := newWorld(t, func(o *HubOptions) { o.MaxClients = 3 })
	for n := range 5 {
		name := strconv.Itoa(n)
		w.shelf.put(name, "token", "ghp_"+name)
		w.registrar(t, name, acme)
		w.clock.pass(time.Second)
		w.registrar(t, "0", acme)
	}
	require.Len(t, w.hub.accounts, 3)
	for _, name := range []string{"0", "3", "4"} {
		require.Contains(t, w.hub.accounts, Credentials{"ci", name})
	}
	w.clock.pass(61 * time.Minute)
	w.registrar(t, "pat", acme)
	require.Len(t, w.hub.accounts, 1)
}

// An App whose key GitHub does not know is not asked about again and again.
func TestHub_AnAppThatIsNotRecognizedIsLeftAlone(t *testing.T) {
	w := newWorld(t, nil)
	w.on("GET /orgs/acme/installation", status(401, `{}`))
	for range 3 {
		_, err := w.hub.For(t.Context(), Credentials{}, acme)
		require.ErrorIs(t, err, ErrCredentials)
	}
	require.LessOrEqual(t, len(w.calls()), 2, "once, and once more where the two clocks differ")
	w.on("GET /orgs/acme/installation", status(200, `{"id":42}`))
	w.clock.pass(31 * time.Second)
	w.registrar(t, "", acme)
}

// An App that was removed and installed again has another installation.
func TestHub_AnAppThatWasInstalledAnewIsLookedUpAgain(t *testing.T) {
	w := newWorld(t, nil)
	w.on("GET /orgs/acme/installation", status(200, `{"id":42}`))
	w.on("GET /orgs/acme/actions/runners", status(200, noRunners))
	w.on("POST /app/installations/42/access_tokens", status(404, `{}`))
	none := func(Registration) bool { return true }
	require.ErrorIs(t, w.registrar(t, "", acme).List(t.Context(), none), ErrCredentials)
	w.on("GET /orgs/acme/installation", status(200, `{"id":43}`))
	require.NoError(t, w.registrar(t, "", acme).List(t.Context(), none))
}

func TestPlace_RegistersInTheGroupByItsName(t *testing.T) {
	w := newWorld(t, nil)
	target := Target{Enterprise: "big", Group: "big iron"}
	w.on("GET /enterprises/big/actions/runner-groups", status(200, `{"total_count":1,"runner_groups":[{"id":9,"name":"Big Iron"}]}`))
	var body string
	w.on("POST /enterprises/big/actions/runners/generate-jitconfig", func(rw http.ResponseWriter, r *http.Request) {
		raw := make([]byte, 512)
		n, _ := r.Body.Read(raw)
		body = string(raw[:n])
		status(201, `{"runner":{"id":23,"name":"r-1"},"encoded_jit_config":"c2VjcmV0"}`)(rw, r)
	})
	w.on("POST /enterprises/big/actions/runners/registration-token", status(201, `{"token":"LLBF","expires_at":"2999-01-02T03:04:05Z"}`))
	at := w.registrar(t, "pat", target)
	require.Equal(t, target, at.Target())
	jit, err := at.JIT(t.Context(), JITRequest{Name: "r-1", Labels: []string{"x"}})
	require.NoError(t, err)
	require.Equal(t, int64(23), jit.RunnerID)
	require.JSONEq(t, `{"name":"r-1","runner_group_id":9,"labels":["x"],"work_folder":"_work"}`, body)
	token, err := at.Token(t.Context())
	require.NoError(t, err)
	require.Equal(t, "LLBF", token.Value.Reveal())
	require.Equal(t, w.URL+"/enterprises/big", token.URL)
	require.NotContains(t, fmt.Sprintf("%+v %v", token, jit), "LLBF")
	require.Len(t, w.calls(), 3, "the group is looked up once")

	// The group is created again, with another id.
	w.on("GET /enterprises/big/actions/runner-groups", status(200, `{"total_count":1,"runner_groups":[{"id":10,"name":"Big Iron"}]}`))
	w.on("POST /enterprises/big/actions/runners/generate-jitconfig", status(422, `{"message":"no such group"}`))
	_, err = at.JIT(t.Context(), JITRequest{Name: "r-2"})
	require.ErrorIs(t, err, fleet.ErrNoRunnerGroup)
	_, err = at.JIT(t.Context(), JITRequest{Name: "r-2"})
	require.ErrorIs(t, err, fleet.ErrRejected)
	require.NotErrorIs(t, err, fleet.ErrNoRunnerGroup, "it is there, under its other id")
	require.Len(t, w.calls(), 5, "after a refusal the group is read, and then looked up by its name again")

	none := w.registrar(t, "pat", Target{Enterprise: "big", Group: "none"})
	for _, err := range []error{
		func() error { _, err := none.JIT(t.Context(), JITRequest{Name: "r-3"}); return err }(),
		func() error { _, err := none.Token(t.Context()); return err }(),
	} {
		require.ErrorIs(t, err, ErrTarget)
		require.ErrorContains(t, err, `enterprises/big has no runner group "none"`)
	}
}

func TestPlace_RefusalsBecomeSentences(t *testing.T) {
	w := newWorld(t, nil)
	mint := "POST /orgs/acme/actions/runners/generate-jitconfig"
	for name, one := range map[string]struct {
		answer http.HandlerFunc
		want   []error
		not    []error
		says   string
	}{
		"403": {status(403, `{}`), []error{ErrTarget, fleet.ErrForbidden}, []error{ErrCredentials}, "admin:org"},
		"404": {status(404, `{}`), []error{ErrTarget, fleet.ErrNotFound}, []error{ErrCredentials}, "admin:org"},
		"409": {status(409, `{}`), []error{fleet.ErrNameTaken}, []error{ErrTarget, ErrCredentials}, ""},
		"422": {status(422, `{"message":"bad label"}`), []error{fleet.ErrRejected}, []error{ErrTarget, ErrCredentials}, "bad label"},
		"500": {status(500, `{}`), []error{fleet.ErrUncertain}, []error{ErrTarget, ErrCredentials}, ""},
		"401": {status(401, `{}`), []error{ErrCredentials}, []error{ErrTarget}, "does not accept"},
		"429": {status(429, `{}`), nil, []error{ErrTarget, ErrCredentials}, "rate limited"},
	} {
		t.Run(name, func(t *testing.T) {
			w.shelf.put("own-"+name, "token", "ghp_"+name)
			w.on(mint, one.answer)
			_, err := w.registrar(t, "own-"+name, acme).JIT(t.Context(), JITRequest{Name: "r-1"})
			for _, want := range one.want {
				require.ErrorIs(t, err, want)
			}
			for _, not := range one.not {
				require.NotErrorIs(t, err, not)
			}
			require.ErrorContains(t, err, one.says)
		})
	}
}

func TestPlace_QueueIsReadWithTheTargetsCredentials(t *testing.T) {
	w := newWorld(t, nil)
	w.on("GET /repos/acme/app", status(200, `{"id":77,"full_name":"acme/app"}`))
	w.on("GET /repos/acme/app/actions/runs", status(200, `{"total_count":1,"workflow_runs":[{"id":5,"status":"queued"}]}`))
	w.on("GET /repos/acme/app/actions/runs/5/jobs", status(200, `{"total_count":1,"jobs":[{"id":6,"status":"queued"}]}`))
	who := Credentials{"ci", "pat"}
	for _, target := range []Target{acme, {Repository: "acme/app"}} {
		runs, _, err := w.hub.Runs(t.Context(), who, target, "acme/app", github.RunQueued, 1)
		require.NoError(t, err)
		require.Equal(t, int64(5), runs[0].ID)
		jobs, _, err := w.hub.RunJobs(t.Context(), who, target, "acme/app", 5, 1)
		require.NoError(t, err)
		require.Equal(t, int64(6), jobs[0].ID)
	}
	require.Equal(t, "Bearer ghp_hunter2", w.lastAs())
	require.Len(t, w.calls(), 5, "the repository is looked up once")
	_, _, err := w.hub.RunJobs(t.Context(), who, acme, "acme/app", 9, 1)
	require.ErrorIs(t, err, fleet.ErrNotFound)
	require.NotErrorIs(t, err, ErrTarget, "a run may be deleted at any time")
	_, _, err = w.hub.Runs(t.Context(), who, acme, "acme", github.RunQueued, 1)
	require.ErrorIs(t, err, ErrTarget)
}

func TestHub_LimitsAreShownForEachSecretThatIsUsed(t *testing.T) {
	registry := prometheus.NewPedanticRegistry()
	w := newWorld(t, func(o *HubOptions) { o.Registerer = registry })
	w.on(listAcme, status(200, noRunners, "X-RateLimit-Remaining", "77", "X-RateLimit-Limit", "100", "X-RateLimit-Resource", "core"))
	none := func(Registration) bool { return true }
	require.NoError(t, w.registrar(t, "pat", acme).List(t.Context(), none))
	families, err := registry.Gather()
	require.NoError(t, err)
	shown := fmt.Sprint(families)
	for _, want := range []string{"bullpen_registration_rate_remaining", `value:"pat"`, `value:"core"`, "value:77"} {
		require.Contains(t, shown, want)
	}
	require.NotContains(t, shown, "hunter2")
	delete(w.shelf.data, "pat")
	_, err = w.hub.For(t.Context(), Credentials{"ci", "pat"}, acme)
	require.ErrorIs(t, err, ErrCredentials)
	families, err = registry.Gather()
	require.NoError(t, err)
	require.Empty(t, families)
}

// FuzzSecret: whatever a Secret holds, it is read or refused with a sentence that shows nothing of it.
func FuzzSecret(f *testing.F) {
	f.Add([]byte("ghp_x"), []byte(""), []byte(""), []byte(""))
	f.Add([]byte(""), []byte("7"), testKey(), []byte("42"))
	f.Add([]byte(" \n"), []byte("-1"), []byte("-----BEGIN"), []byte("x"))
	f.Fuzz(func(t *testing.T, token, app, key, installation []byte) {
		data := map[string][]byte{"token": token, "app-id": app, "github_app_private_key": key, "installation-id": installation}
		who, err := parseIdentity(data)
		if err == nil {
			require.True(t, (who.token.Reveal() != "") != (who.app > 0 && who.key.Reveal() != ""))
			require.GreaterOrEqual(t, who.installation, int64(0))
			_, err = who.client(github.Options{})
		}
		for _, secret := range [][]byte{token, key} {
			if err != nil && len(secret) > 40 {
				require.NotContains(t, err.Error(), string(secret))
			}
		}
	})
}
