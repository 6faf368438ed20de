package doctor

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"time"

	"k8s.io/client-go/rest"

	"github.com/bullpen-ci/bullpen/internal/fleet"
	"github.com/bullpen-ci/bullpen/internal/github"
	"github.com/bullpen-ci/bullpen/internal/server/ledger"
)

// Look says what to check. A part with a reason not to is reported as unchecked; one with neither is left out.
type Look struct {
	GitHub   *GitHubAccess
	NoGitHub string // why GitHub cannot be asked

	DatabaseURL       string
	ListenDatabaseURL string // for notifications; DatabaseURL by default
	NoDatabase        string

	Kubernetes   *rest.Config
	NoKubernetes string
	Release      Installation

	Outside fleet.OutsideRunners // runners outside of RunnerPools

	Now     func() time.Time // time.Now by default
	Timeout time.Duration    // of each question; 10 s by default
}

// GitHubAccess is how the server asks GitHub.
type GitHubAccess struct {
	URL       string
	AppID     int64
	Key       []byte
	Push      bool              // the server waits for webhooks
	Transport http.RoundTripper // net/http's by default
}

// Installation says where Bullpen is in a cluster.
type Installation struct {
	SystemNamespace, RunnerNamespace string
	// ControllerURL is where a controller answers that works alone and takes no lease; empty: controllers take one.
	ControllerURL string
}

// Gather reads, and changes nothing. It has no error: the evidence says which checks could not run.
func Gather(ctx context.Context, look Look) Evidence {
	if look.Now == nil {
		look.Now = time.Now
	}
	if look.Timeout == 0 {
		look.Timeout = 10 * time.Second
	}
	g := &gatherer{look: look, evidence: Evidence{Now: look.Now()}}
	switch {
	case look.GitHub != nil:
		g.github(ctx, *look.GitHub)
	case look.NoGitHub != "":
		g.unchecked("GitHub: the App, its permissions and its webhooks", look.NoGitHub, "Use --github-app-id and --github-private-key-file.")
	}
	switch {
	case look.DatabaseURL != "":
		g.ledger(ctx)
	case look.NoDatabase != "":
		g.unchecked("the database", look.NoDatabase, "Use --database-url-file or set BULLPEN_DATABASE_URL.")
	}
	switch {
	case look.Kubernetes != nil:
		g.cluster(ctx)
	case look.NoKubernetes != "":
		g.unchecked("the cluster", look.NoKubernetes, "Use --kubeconfig or --context.")
	}
	g.unserved(ctx)
	return g.evidence
}

type gatherer struct {
	look     Look
	evidence Evidence
}

func (g *gatherer) unchecked(what, why, remedy string) {
	g.evidence.Unchecked = append(g.evidence.Unchecked, Unchecked{What: what, Why: why, Remedy: remedy})
}

// github asks as the App. Nothing is asked in an account's name.
func (g *gatherer) github(ctx context.Context, access GitHubAccess) {
	seen := &GitHub{AppID: access.AppID, Push: access.Push}
	client, err := github.New(github.Options{
		BaseURL: access.URL, AppID: access.AppID, PrivateKey: access.Key, Transport: access.Transport, Timeout: g.look.Timeout,
	})
	if err != nil {
		seen.KeyBroken = err.Error() // which shows no key
		g.evidence.GitHub = seen
		return
	}
	const reachable = "Check that this machine reaches GitHub's API, and that --github-url is right."
	before := g.look.Now()
	app, err := client.App(ctx)
	if !app.GitHubTime.IsZero() {
		clock := readClock(app.GitHubTime, before, g.look.Now(), time.Second)
		seen.Clock = &clock
	}
	switch {
	case errors.Is(err, github.ErrKeyRefused):
		seen.KeyRefused = true
		g.evidence.GitHub = seen
		return
	case err != nil:
		g.unchecked("GitHub: the App, its permissions and its webhooks", err.Error(), reachable)
		return
	}
	seen.App = &app
	g.evidence.GitHub = seen
	if seen.Installations, err = client.Installations(ctx); err != nil {
		seen.App.ID = 0 // or it would seem to be installed nowhere
		g.unchecked("GitHub: the App's installations", err.Error(), reachable)
	}
	if hook, err := client.HookConfig(ctx); err != nil {
		g.unchecked("GitHub: the webhook URL", err.Error(), reachable)
	} else {
		seen.Hook = &hook
	}
	page, err := client.DeliveryPage(ctx, "", "")
	if err != nil {
		seen.Push = false
		g.unchecked("GitHub: whether webhooks arrive", err.Error(), reachable)
	}
	seen.Deliveries = page.Deliveries
}

func (g *gatherer) ledger(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, g.look.Timeout)
	defer cancel()
	before := g.look.Now()
	listen := cmp.Or(g.look.ListenDatabaseURL, g.look.DatabaseURL)
	state, err := ledger.InspectSchema(ctx, g.look.DatabaseURL)
	seen := &Ledger{Schema: state}
	if err != nil {
		seen.Unreachable = err.Error()
	} else {
		seen.Clock = readClock(state.Now, before, g.look.Now(), 0)
		seen.Deaf = ledger.CheckListening(ctx, listen)
		if seen.Uninstalled, err = ledger.InspectUninstalled(ctx, g.look.DatabaseURL); err != nil {
			g.unchecked("the database: webhooks of accounts without the App", err.Error(), "Grant the URL's role SELECT on uninstalled_owners.")
		}
	}
	g.evidence.Ledger = seen
}
