package github

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"time"

	gh "github.com/google/go-github/v88/github"

	"github.com/bullpen-ci/bullpen/internal/fleet"
)

// Apps are registered by a manifest: a browser posts it to RegistrationPage, a user confirms it there, and GitHub redirects the browser to
// the manifest's redirect_url with a code. ConvertManifest exchanges the code for the App's credentials, which GitHub shows that once.

const opConvert = "exchanging the code for the App's credentials"

// ErrManifestCode: GitHub does not know the code. It was used before, or an hour has passed since GitHub issued it.
var ErrManifestCode = errors.New("GitHub does not accept the code: it was used before, or it is older than an hour")

// WebAddress is the site that an API of APIAddress belongs to: https://github.com for https://api.github.com.
func WebAddress(api string) string { return webRoot(api) }

// RegistrationPage is where a browser posts a manifest, for an App of the organization, or of the user who is logged in when it is empty.
func RegistrationPage(api, organization string) string {
	if organization == "" {
		return webRoot(api) + "/settings/apps/new"
	}
	return webRoot(api) + "/organizations/" + url.PathEscape(organization) + "/settings/apps/new"
}

// CreatedApp is an App that GitHub has registered, with its credentials.
type CreatedApp struct {
	ID       int64
	Slug     string
	Name     string
	Owner    string
	ClientID string
	// HTMLURL is the App's public page.
	HTMLURL string
	// PrivateKey is a PEM file. WebhookSecret is empty when GitHub made none.
	PrivateKey    fleet.Secret
	WebhookSecret fleet.Secret
}

// manifestCode is the pattern of a code. It becomes a part of a path.
var manifestCode = regexp.MustCompile(`^[A-Za-z0-9_-]{1,255}$`)

// ValidManifestCode reports whether text can be a code of GitHub's.
func ValidManifestCode(text string) bool { return manifestCode.MatchString(text) }

// Conversion says how ConvertManifest reaches GitHub.
type Conversion struct {
	API       string            // as APIAddress returns it
	Transport http.RoundTripper // nil: by the environment's proxy, with the system's certificates
	Timeout   time.Duration     // 10 s when zero
	Now       func() time.Time  // time.Now when nil
}

// ConvertManifest exchanges a code. ErrManifestCode: there is nothing behind the code. fleet.ErrUncertain: GitHub may have answered, and
// the code may be used up.
func ConvertManifest(ctx context.Context, by Conversion, code string) (CreatedApp, error) {
	if !ValidManifestCode(code) {
		return CreatedApp{}, fmt.Errorf("%s: %w", opConvert, ErrManifestCode)
	}
	if by.Transport == nil {
		by.Transport = newHTTPTransport(nil)
	}
	if by.Now == nil {
		by.Now = time.Now
	}
	base := by.API + "/"
	api, err := gh.NewClient(
		gh.WithHTTPClient(&http.Client{Transport: by.Transport, CheckRedirect: sameHostOnly}),
		gh.WithURLs(&base, nil), gh.WithUserAgent("bullpen"), gh.WithDisableRateLimitCheck(),
	)
	if err != nil {
		return CreatedApp{}, fmt.Errorf("%s: %w", opConvert, err)
	}
	ctx, cancel := context.WithTimeout(ctx, cmp.Or(by.Timeout, 10*time.Second))
	defer cancel()
	config, resp, err := api.Apps.CompleteAppManifest(ctx, code)
	if err != nil {
		unknown := meanings{http.StatusNotFound: ErrManifestCode}
		return CreatedApp{}, fmt.Errorf("%s: %w", opConvert, unknown.translate(resp, err, classRead, newRates(), by.Now()))
	}
	return createdApp(config)
}

// createdApp checks the answer: a key that cannot be used must be noticed before it is stored.
func createdApp(config *gh.AppConfig) (CreatedApp, error) {
	app := CreatedApp{
		ID: config.GetID(), Slug: clean(config.GetSlug()), Name: clean(config.GetName()), Owner: clean(config.GetOwner().GetLogin()),
		ClientID: clean(config.GetClientID()), HTMLURL: clean(config.GetHTMLURL()),
		PrivateKey: fleet.NewSecret(config.GetPEM()), WebhookSecret: fleet.NewSecret(config.GetWebhookSecret()),
	}
	if app.ID <= 0 {
		return CreatedApp{}, fmt.Errorf("%s: %w: the response has no App", opConvert, fleet.ErrUncertain)
	}
	if _, err := parseKey([]byte(config.GetPEM())); err != nil {
		return CreatedApp{}, fmt.Errorf("%s: %w: the response for App %d has no private key", opConvert, fleet.ErrUncertain, app.ID)
	}
	return app, nil
}
