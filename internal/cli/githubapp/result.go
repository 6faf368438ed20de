package githubapp

import (
	"errors"
	"fmt"
	"io"
	"net/url"
	"strings"

	"github.com/bullpen-ci/bullpen/internal/github"
)

// Result is the App that was registered. It holds no secret.
type Result struct {
	ID       int64  `json:"id"`
	Slug     string `json:"slug"`
	Name     string `json:"name"`
	Owner    string `json:"owner,omitempty"`
	ClientID string `json:"clientID,omitempty"`
	// InstallURL is where the App is installed, SettingsURL where its owner changes it.
	InstallURL  string `json:"installURL"`
	SettingsURL string `json:"settingsURL"`
	// StoredIn names the place of the credentials.
	StoredIn string `json:"storedIn"`
	// Values are what the chart has to be given about it.
	Values map[string]any `json:"values"`

	directory     string
	webhookSecret bool
	polls         bool
}

// result describes an App.
func (o Options) result(app github.CreatedApp) Result {
	site := github.WebAddress(o.API)
	page := site + "/apps/" + url.PathEscape(app.Slug)
	if strings.HasPrefix(app.HTMLURL, site+"/") {
		page = app.HTMLURL // an Enterprise Server has it elsewhere
	}
	settings := site + "/settings/apps/"
	if o.App.Organization != "" {
		settings = site + "/organizations/" + url.PathEscape(o.App.Organization) + "/settings/apps/"
	}
	values := map[string]any{"appID": app.ID}
	if o.API != github.DefaultBaseURL {
		values["url"] = site
	}
	if o.App.Polls() {
		values["webhooks"] = "poll"
	}
	r := Result{
		ID: app.ID, Slug: app.Slug, Name: app.Name, Owner: app.Owner, ClientID: app.ClientID,
		InstallURL: strings.TrimRight(page, "/") + "/installations/new", SettingsURL: settings + url.PathEscape(app.Slug),
		StoredIn: o.Store.String(), webhookSecret: app.WebhookSecret.Reveal() != "", polls: o.App.Polls(),
	}
	switch store := o.Store.(type) {
	case InDirectory:
		r.directory = store.Path
	case InSecret:
		if store.Name != DefaultSecret {
			values["secret"] = map[string]any{"name": store.Name}
		}
	}
	r.Values = map[string]any{"github": values}
	return r
}

// Print writes it for people, with what comes next.
func (r Result) Print(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "Created GitHub App %q (ID %d). Its credentials are in %s.\n", plain(r.Name), r.ID, r.StoredIn)
	if !r.webhookSecret && !r.polls {
		fmt.Fprintf(&b, "GitHub made no webhook secret. Set one at %s, and add it to the Secret as %s.\n", r.SettingsURL, KeyWebhookSecret)
	}
	b.WriteString("\nNext:\n")
	step := 1
	say := func(format string, args ...any) {
		fmt.Fprintf(&b, "  %d. "+format+"\n", append([]any{step}, args...)...)
		step++
	}
	say("Install the App on the accounts whose jobs Bullpen runs: %s", r.InstallURL)
	if r.directory != "" {
		say("Create the Secret, and delete the files: kubectl -n bullpen-system create secret generic %s --from-file=%s", DefaultSecret, r.directory)
	}
	values, err := yamlOf(r.Values)
	if err != nil {
		return err
	}
	say("Set these values of the chart, and install it:\n\n%s", indent(values, "       "))
	_, err = io.WriteString(w, b.String())
	return err
}

// plain keeps what a user wrote at GitHub from moving the terminal's cursor.
func plain(text string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r >= 0x7f && r < 0xa0 {
			return ' '
		}
		return r
	}, text)
}

func indent(text, by string) string {
	return by + strings.ReplaceAll(strings.TrimRight(text, "\n"), "\n", "\n"+by)
}

// SaveError: there is an App whose credentials were not stored. GitHub does not show them again.
type SaveError struct {
	Name        string
	ID          int64
	SettingsURL string
	Err         error
}

// Error says how to get other credentials.
func (e *SaveError) Error() string {
	return fmt.Sprintf("storing the credentials of App %q (ID %d): %v. Generate a private key and set a webhook secret at %s, and create the Secret from them; or delete the App there and run the command again",
		plain(e.Name), e.ID, e.Err, e.SettingsURL)
}

// Unwrap gives the cause.
func (e *SaveError) Unwrap() error { return e.Err }

var (
	// ErrCanceled: the user ended the command before GitHub had sent a code. Nothing was stored.
	ErrCanceled = errors.New("canceled before the App was created: nothing was stored")
	// ErrTimeout: no code arrived in time.
	ErrTimeout = errors.New("GitHub sent no code in time: nothing was stored. GitHub's page says what it does not accept, such as a name that is taken. Run the command again")
)
