package github

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	gh "github.com/google/go-github/v88/github"

	"github.com/bullpen-ci/bullpen/internal/fleet"
)

const (
	opApp        = "reading the App"
	opHookConfig = "reading where webhooks go"
)

// Rights are an App's permissions and events.
type Rights struct {
	// Permissions by GitHub's name of them: "read", "write" or "admin". Those it has not are absent.
	Permissions map[string]string
	Events      []string
}

// rightsOf names permissions as GitHub's API does.
func rightsOf(from *gh.InstallationPermissions, events []string) Rights {
	rights := Rights{Events: events}
	if from == nil {
		return rights
	}
	encoded, err := json.Marshal(from)
	if err != nil {
		return rights
	}
	_ = json.Unmarshal(encoded, &rights.Permissions) // strings by their names, which is what was just written
	return rights
}

// AppSettings are what the App's settings page says.
type AppSettings struct {
	ID     int64
	Slug   string
	Rights Rights
	// GitHubTime is by GitHub's clock, in whole seconds; zero when it did not say.
	GitHubTime time.Time
}

// App reads the App's settings. GitHubTime is filled in whenever GitHub has answered, also beside an error: a clock that is wrong
// is one reason for which a key is refused. ErrKeyRefused: GitHub takes the key for none of this App's.
func (c *Client) App(ctx context.Context) (AppSettings, error) {
	var settings AppSettings
	err := c.asApp(ctx, opApp, func(ctx context.Context, api *gh.Client) (*gh.Response, error) {
		app, resp, err := api.Apps.Get(ctx, "")
		if resp != nil && resp.Response != nil {
			settings.GitHubTime, _ = http.ParseTime(resp.Header.Get("Date")) // zero when it is none
		}
		if err == nil {
			settings.ID, settings.Slug = app.GetID(), clean(app.GetSlug())
			settings.Rights = rightsOf(app.GetPermissions(), app.Events)
		}
		return resp, err
	})
	switch {
	case errors.Is(err, ErrUnauthorized):
		err = fmt.Errorf("%w (%w)", ErrKeyRefused, fleet.ErrForbidden)
	case err == nil && settings.ID != c.options.AppID:
		err = fmt.Errorf("%w (it is a key of App %d)", ErrKeyRefused, settings.ID)
	}
	return settings, err
}

// HookConfig is where the App's webhooks go.
type HookConfig struct {
	URL       string // empty: nowhere
	HasSecret bool
}

// HookConfig reads where the App's webhooks go.
func (c *Client) HookConfig(ctx context.Context) (HookConfig, error) {
	var found *gh.HookConfig
	err := c.asApp(ctx, opHookConfig, func(ctx context.Context, api *gh.Client) (resp *gh.Response, err error) {
		found, resp, err = api.Apps.GetHookConfig(ctx)
		return resp, err
	})
	if err != nil {
		return HookConfig{}, err
	}
	return HookConfig{URL: clean(found.GetURL()), HasSecret: found.GetSecret() != ""}, nil
}
