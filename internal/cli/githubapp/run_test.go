package githubapp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/internal/dev/github/standin"
	"github.com/bullpen-ci/bullpen/internal/github"
	"github.com/bullpen-ci/bullpen/test/kit"
)

func TestMain(m *testing.M) { os.Exit(kit.Main(m)) }

// From the URL that is printed to the files, and no secret is seen on the way.
func TestRun_RegistersTheAppAndStoresItsCredentials(t *testing.T) {
	in, o := gitHub(t, nil)
	directory := filepath.Join(t.TempDir(), "app")
	o.Store = InDirectory{directory}
	o.App.Public = true
	r := begin(t.Context(), t, o)
	b := newBrowser(t)
	first := b.open(r.url)
	require.Equal(t, http.StatusOK, first.status)
	require.Contains(t, first.header.Get("Content-Security-Policy"), "default-src 'none'")
	require.Equal(t, "no-store", first.header.Get("Cache-Control"))
	for _, permission := range github.AppPermissions() {
		require.Contains(t, first.text, permission.Title)
	}
	confirm := b.submit(first)
	require.Equal(t, http.StatusOK, confirm.status, confirm.text)
	require.Equal(t, "bullpen-acme", confirm.fields.Get("name"))
	last := b.submit(confirm)
	result, err := r.end(t)
	require.NoError(t, err)

	apps := in.RegisteredApps()
	require.Len(t, apps, 1)
	require.Equal(t, standin.RegisteredApp{
		ID: apps[0].ID, Name: "bullpen-acme", Slug: "bullpen-acme", Owner: "acme", Public: true, HookURL: "https://bullpen.example.com/webhooks/github", HookActive: true,
		Permissions: map[string]string{"organization_self_hosted_runners": "write", "administration": "write", "actions": "read", "metadata": "read"},
		Events:      []string{"workflow_job"}, Converted: true,
	}, apps[0])

	require.Equal(t, apps[0].ID, result.ID)
	require.Equal(t, in.URL+"/apps/bullpen-acme/installations/new", result.InstallURL)
	require.Equal(t, in.URL+"/organizations/acme/settings/apps/bullpen-acme", result.SettingsURL)
	require.Equal(t, map[string]any{"github": map[string]any{"appID": apps[0].ID, "url": in.URL}}, result.Values)
	require.Equal(t, http.StatusOK, last.status)
	require.Contains(t, last.text, result.InstallURL)

	var written []string
	entries, err := os.ReadDir(directory)
	require.NoError(t, err)
	var secrets []string
	for _, entry := range entries {
		info, err := entry.Info()
		require.NoError(t, err)
		require.Equal(t, os.FileMode(0o600), info.Mode(), entry.Name())
		content, err := os.ReadFile(filepath.Join(directory, entry.Name()))
		require.NoError(t, err)
		written, secrets = append(written, entry.Name()), append(secrets, string(content))
	}
	require.Equal(t, []string{"private-key.pem", "webhook-secret"}, written)
	_, err = github.New(github.Options{BaseURL: o.API, AppID: result.ID, PrivateKey: []byte(secrets[0])})
	require.NoError(t, err, "the server takes the key")
	encoded, err := json.Marshal(result)
	require.NoError(t, err)
	require.NoError(t, result.Print(r.out))
	for _, shown := range []string{r.out.String(), string(encoded), first.text, last.text, fmt.Sprintf("%+v", result)} {
		require.NotContains(t, shown, "PRIVATE KEY")
		require.NotContains(t, shown, secrets[1])
	}
	require.Contains(t, r.out.String(), "--from-file="+directory)
}

// GitHub reports a name that is taken on its own page. The command keeps waiting.
func TestRun_ANameThatIsTakenIsChangedAtGitHub(t *testing.T) {
	in, o := gitHub(t, nil)
	o.Store, o.App.Name = InDirectory{t.TempDir()}, "Bullpen Dev" // the stand-in's own App
	r := begin(t.Context(), t, o)
	b := newBrowser(t)
	again := b.submit(b.submit(b.open(r.url)))
	require.Equal(t, http.StatusUnprocessableEntity, again.status)
	require.Contains(t, again.text, "Name is already taken")
	require.Equal(t, http.StatusUnprocessableEntity, b.submit(again, "name", "octo").status, "an account has that name")
	require.Equal(t, http.StatusOK, b.submit(again, "name", "acme").status, "its owner may give it its own")
	result, err := r.end(t)
	require.NoError(t, err)
	require.Equal(t, "acme", result.Name)
	require.Len(t, in.RegisteredApps(), 1)
}

// Only the browser that opened the page first, with the state of this registration, returns a code.
func TestRun_TakesNoCodeFromOthers(t *testing.T) {
	in, o := gitHub(t, nil)
	o.Store = InDirectory{t.TempDir()}
	r := begin(t.Context(), t, o)
	at, err := url.Parse(r.url)
	require.NoError(t, err)
	b, other := newBrowser(t), newBrowser(t)
	first := b.open(r.url)
	form, err := url.Parse(first.action)
	require.NoError(t, err)
	state := form.Query().Get("state")
	require.NotEmpty(t, state)
	callback := func(query url.Values) string { return "http://" + at.Host + "/callback?" + query.Encode() }

	require.Equal(t, http.StatusNotFound, other.open("http://"+at.Host+"/start/guessed").status)
	require.Equal(t, http.StatusForbidden, other.open(r.url).status, "the page was opened already")
	require.Equal(t, http.StatusOK, b.open(r.url).status, "a reload is allowed")
	require.Equal(t, http.StatusForbidden, other.open(callback(url.Values{"code": {"abc"}, "state": {state}})).status, "another browser")
	for _, wrong := range []string{"", "x", state + "x"} {
		require.Equal(t, http.StatusForbidden, b.open(callback(url.Values{"code": {"abc"}, "state": {wrong}})).status, "another state")
	}
	require.Equal(t, http.StatusBadRequest, b.open(callback(url.Values{"code": {"../x"}, "state": {state}})).status)
	rebound, err := http.NewRequestWithContext(t.Context(), http.MethodGet, r.url, nil)
	require.NoError(t, err)
	rebound.Host = "attacker.example:80"
	require.Equal(t, http.StatusMisdirectedRequest, b.do(rebound).status, "another name for this machine")

	require.Equal(t, http.StatusOK, b.submit(b.submit(first)).status)
	_, err = r.end(t)
	require.NoError(t, err)
	require.Contains(t, r.out.String(), "Ignored a callback")
	require.Len(t, in.RegisteredApps(), 1)
}

func TestRun_ACodeIsGoodForAnHour(t *testing.T) {
	var ahead atomic.Int64
	_, o := gitHub(t, func(opts *standin.Options) {
		opts.Now = func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }
	})
	directory := t.TempDir()
	o.Store = InDirectory{directory}
	r := begin(t.Context(), t, o)
	b := newBrowser(t)
	confirm := b.submit(b.open(r.url))
	back := b.staying(func() page { return b.submit(confirm) })
	require.Equal(t, http.StatusFound, back.status)
	ahead.Store(int64(time.Hour))
	last := b.open(back.location)
	require.Equal(t, http.StatusBadGateway, last.status)
	_, err := r.end(t)
	require.ErrorIs(t, err, github.ErrManifestCode)
	require.ErrorContains(t, err, "/organizations/acme/settings/apps")
	left, err := os.ReadDir(directory)
	require.NoError(t, err)
	require.Empty(t, left)
}

// A request that did not reach GitHub is repeated. One whose answer was lost cannot be: the code is used up, and the error says what is there.
func TestRun_ALostAnswer(t *testing.T) {
	for kind, want := range map[standin.FaultKind]error{standin.FaultRESTCutBefore: nil, standin.FaultRESTCut: github.ErrManifestCode} {
		t.Run(string(kind), func(t *testing.T) {
			in, o := gitHub(t, nil)
			o.Store = InDirectory{t.TempDir()}
			_, err := in.AddFault(standin.Fault{Kind: kind, Route: "/conversions", Times: 1})
			require.NoError(t, err)
			r := begin(t.Context(), t, o)
			b := newBrowser(t)
			b.submit(b.submit(b.open(r.url)))
			_, err = r.end(t)
			require.ErrorIs(t, err, want)
			if want != nil {
				require.ErrorContains(t, err, "delete it, and run the command again")
			}
		})
	}
}

func TestRun_EndsWithoutAnApp(t *testing.T) {
	_, o := gitHub(t, nil)
	o.Store = InDirectory{t.TempDir()}
	ctx, cancel := context.WithCancel(t.Context())
	r := begin(ctx, t, o)
	cancel()
	_, err := r.end(t)
	require.ErrorIs(t, err, ErrCanceled)
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, r.url, nil)
	require.NoError(t, err)
	_, err = newBrowser(t).client.Do(request)
	require.Error(t, err, "nothing listens any more")

	over := make(chan time.Time)
	close(over)
	o.After = func(wait time.Duration) <-chan time.Time {
		require.Equal(t, LongestWait, wait)
		return over
	}
	_, err = Run(t.Context(), o)
	require.ErrorIs(t, err, ErrTimeout)
	require.ErrorContains(t, err, "a name that is taken")
}

// stub is a store that fails, or does something first.
type stub struct {
	InDirectory
	before func() error
}

func (s stub) Save(ctx context.Context, app github.CreatedApp) error {
	if err := s.before(); err != nil {
		return err
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return s.InDirectory.Save(ctx, app)
}

// GitHub shows the key once: a Ctrl-C between its answer and the file loses nothing.
func TestRun_CtrlCDoesNotLoseTheKey(t *testing.T) {
	_, o := gitHub(t, nil)
	ctx, cancel := context.WithCancel(t.Context())
	directory := t.TempDir()
	o.Store = stub{InDirectory{directory}, func() error { cancel(); return nil }}
	r := begin(ctx, t, o)
	b := newBrowser(t)
	b.submit(b.submit(b.open(r.url)))
	_, err := r.end(t)
	require.NoError(t, err)
	require.FileExists(t, filepath.Join(directory, KeyPrivateKey))
}

func TestRun_SaysWhatToDoWhenTheCredentialsAreLost(t *testing.T) {
	in, o := gitHub(t, nil)
	full := errors.New("no space left")
	o.Store = stub{InDirectory{t.TempDir()}, func() error { return full }}
	r := begin(t.Context(), t, o)
	b := newBrowser(t)
	last := b.submit(b.submit(b.open(r.url)))
	_, err := r.end(t)
	var lost *SaveError
	require.ErrorAs(t, err, &lost)
	require.ErrorIs(t, err, full)
	require.Equal(t, in.RegisteredApps()[0].ID, lost.ID)
	require.ErrorContains(t, err, in.URL+"/organizations/acme/settings/apps/bullpen-acme")
	require.NotContains(t, err.Error(), "PRIVATE KEY")
	require.Equal(t, http.StatusBadGateway, last.status)
}

// Settings that cannot work are refused before anything is registered.
func TestRun_RefusesBeforeItAsks(t *testing.T) {
	in, o := gitHub(t, nil)
	directory := t.TempDir()
	o.Store = InDirectory{directory}
	for want, change := range map[string]func(*Options){
		"--listen":       func(o *Options) { o.Listen = "0.0.0.0:0" },
		"loopback":       func(o *Options) { o.Listen = "localhost:0" },
		"--timeout":      func(o *Options) { o.Wait = 2 * time.Hour },
		"34 characters":  func(o *Options) { o.App.Name = "12345678901234567890123456789012345" },
		"--organization": func(o *Options) { o.App.Organization = "a/b" },
		"https://":       func(o *Options) { o.App.WebhookURL = "http://bullpen.example.com" },
		"it must look":   func(o *Options) { o.App.WebhookURL = "bullpen.example.com" },
		"cannot reach":   func(o *Options) { o.App.WebhookURL = "https://127.0.0.1:8080" },
		"not encrypted":  func(o *Options) { o.API = "http://ghes.example.com/api/v3" },
		"no ? and no #":  func(o *Options) { o.App.WebhookURL = "https://bullpen.example.com/?token=x" },
	} {
		bad := o
		change(&bad)
		_, err := Run(t.Context(), bad)
		require.ErrorContains(t, err, want)
	}
	require.NoError(t, os.WriteFile(filepath.Join(directory, KeyWebhookSecret), []byte("another App's"), 0o600))
	_, err := Run(t.Context(), o)
	require.ErrorIs(t, err, ErrExists)
	require.Empty(t, in.RegisteredApps())
}

func TestManifest_OfAServerThatPolls(t *testing.T) {
	app, err := App{Organization: "a-very-long-organization-that-has-its-name", RerunLostJobs: true}.withDefaults()
	require.NoError(t, err)
	require.Len(t, app.Name, 34)
	m := app.manifest("https://github.com", "http://127.0.0.1:1/callback")
	require.Equal(t, hook{URL: "https://bullpen.invalid/webhooks/github", Active: true}, m.Hook, "GitHub keeps a list of deliveries of active webhooks alone")
	require.Equal(t, "write", m.Permissions["actions"])
	require.False(t, m.Public)
	own, err := App{}.withDefaults()
	require.NoError(t, err)
	require.Empty(t, own.Name, "GitHub asks for it")
	require.Equal(t, "https://github.com", own.manifest("https://github.com", "").URL)
}
