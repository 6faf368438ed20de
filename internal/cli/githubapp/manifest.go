package githubapp

import (
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"regexp"
	"strings"
	"unicode/utf8"

	"github.com/bullpen-ci/bullpen/internal/github"
)

const (
	// longestName is GitHub's limit.
	longestName = 34
	// pathWebhook is where the server takes webhooks.
	pathWebhook = "/webhooks/github"
	// nowhere is the webhook URL of an App whose server polls. GitHub records deliveries for an active webhook alone, and its host
	// must not exist: deliveries name repositories and people.
	nowhere = "https://bullpen.invalid" + pathWebhook
)

// App is what to register.
type App struct {
	// Name must be unique at GitHub. Empty: bullpen-ORGANIZATION, or whatever the user writes on GitHub's page.
	Name string
	// Organization that owns the App. Empty: the user who is logged in.
	Organization string
	// WebhookURL of the server. Empty: the server polls.
	WebhookURL string
	// Public: accounts other than the owner may install it.
	Public bool
	// RerunLostJobs asks for the permission that the server needs to run jobs again whose node died.
	RerunLostJobs bool
}

// Polls reports whether GitHub cannot reach the server.
func (a App) Polls() bool { return a.WebhookURL == "" }

// login is what GitHub allows as the name of an account. Those of managed users have an underscore.
var login = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_-]{0,99}$`)

// withDefaults checks what GitHub would refuse on its page, where a user would have to start again.
func (a App) withDefaults() (App, error) {
	if a.Organization != "" && !login.MatchString(a.Organization) {
		return a, fmt.Errorf("--organization %q is not the name of an organization", a.Organization)
	}
	if a.Name == "" && a.Organization != "" {
		a.Name = strings.TrimRight(shorten("bullpen-"+a.Organization, longestName), "-_")
	}
	if n := utf8.RuneCountInString(a.Name); n > longestName {
		return a, fmt.Errorf("--name must have at most %d characters, got %d", longestName, n)
	}
	if a.WebhookURL == "" {
		return a, nil
	}
	at, err := webhookURL(a.WebhookURL)
	if err != nil {
		return a, fmt.Errorf("--webhook-url: %w", err)
	}
	a.WebhookURL = at.String()
	return a, nil
}

func shorten(text string, most int) string {
	if len(text) > most {
		return text[:most]
	}
	return text
}

// webhookURL adds the path where there is none.
func webhookURL(text string) (*url.URL, error) {
	at, err := url.Parse(text)
	switch {
	case err != nil || at.Host == "":
		return nil, errors.New("it must look like https://bullpen.example.com" + pathWebhook) // the parser's error repeats what may hold a password
	case at.Scheme != "https":
		return nil, errors.New("it must begin with https://: deliveries name repositories and people")
	case at.User != nil || at.RawQuery != "" || at.Fragment != "":
		return nil, errors.New("it must have no user name, no ? and no #")
	case local(at.Hostname()):
		return nil, fmt.Errorf("GitHub does not accept %q, which it cannot reach: leave the flag out, and set github.webhooks to poll", at.Hostname())
	}
	if strings.Trim(at.Path, "/") == "" {
		at.Path = pathWebhook
	}
	return at, nil
}

// local reports whether a host is one that GitHub refuses for webhooks.
func local(host string) bool {
	host = strings.ToLower(strings.TrimSuffix(host, "."))
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || strings.HasSuffix(host, ".localhost") || err == nil && (ip.IsLoopback() || ip.IsUnspecified())
}

// manifest is an App's registration, with GitHub's names.
type manifest struct {
	Name        string            `json:"name,omitempty"`
	URL         string            `json:"url"`
	Description string            `json:"description"`
	Hook        hook              `json:"hook_attributes"`
	RedirectURL string            `json:"redirect_url"`
	Public      bool              `json:"public"`
	Permissions map[string]string `json:"default_permissions"`
	Events      []string          `json:"default_events"`
}

type hook struct {
	URL    string `json:"url"` // required, also of a webhook that is not active
	Active bool   `json:"active"`
}

// manifest describes the App. site is GitHub's web address.
func (a App) manifest(site, redirect string) manifest {
	m := manifest{
		Name: a.Name, URL: site, Description: "Self-hosted runners for GitHub Actions, by Bullpen", RedirectURL: redirect, Public: a.Public,
		Hook: hook{URL: nowhere, Active: true}, Permissions: map[string]string{}, Events: github.AppEvents(),
	}
	if a.Organization != "" {
		m.URL = site + "/" + a.Organization
	}
	if !a.Polls() {
		m.Hook.URL = a.WebhookURL
	}
	for _, permission := range github.AppPermissions() {
		m.Permissions[permission.Name] = permission.Level
	}
	if a.RerunLostJobs {
		m.Permissions[github.PermissionActions] = "write"
	}
	return m
}
