package registration

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/bullpen-ci/bullpen/internal/fleet"
	"github.com/bullpen-ci/bullpen/internal/github"
)

// ErrNoSecret: there is no Secret of that name.
var ErrNoSecret = errors.New("the Secret does not exist")

// Secrets reads Secrets. It is asked for each Registrar, so that a Secret that was changed is used at once.
type Secrets interface {
	// Secret returns what a Secret holds, and a version that changes whenever that does. An error that is ErrNoSecret: there is
	// none of that name.
	Secret(ctx context.Context, namespace, name string) (data map[string][]byte, version string, err error)
}

// Keys of a Secret with credentials. Each has another name, under which Secrets of installations that moved here have it.
var (
	keyToken        = [2]string{"token", "github_token"}
	keyApp          = [2]string{"app-id", "github_app_id"}
	keyInstallation = [2]string{"installation-id", "github_app_installation_id"}
	keyPrivate      = [2]string{"private-key.pem", "github_app_private_key"}
)

// identity is what credentials consist of: a token, or a GitHub App and, where it is not to be looked up, its installation.
type identity struct {
	token        fleet.Secret
	app          int64
	installation int64
	key          fleet.Secret
}

// parseIdentity reads a Secret. A token counts before an App, as it does where such Secrets come from. Its errors are for
// people, and show nothing of what the Secret holds.
func parseIdentity(data map[string][]byte) (identity, error) {
	if token := value(data, keyToken); token != "" {
		return identity{token: fleet.NewSecret(token)}, nil
	}
	app, key, installation := value(data, keyApp), value(data, keyPrivate), value(data, keyInstallation)
	switch {
	case app == "" && key == "":
		return identity{}, errors.New("it has neither token nor app-id and private-key.pem")
	case app == "":
		return identity{}, errors.New("it has private-key.pem but no app-id")
	case key == "":
		return identity{}, errors.New("it has app-id but no private-key.pem")
	}
	out := identity{key: fleet.NewSecret(key)}
	var err error
	if out.app, err = parseID(app); err != nil {
		return identity{}, errors.New("its app-id is not the number that is on the App's settings page")
	}
	if installation != "" {
		if out.installation, err = parseID(installation); err != nil {
			return identity{}, errors.New("its installation-id is not the number at the end of the installation's URL")
		}
	}
	return out, nil
}

// value is what a Secret holds under either name, without the white space that editors and shells leave around it.
func value(data map[string][]byte, names [2]string) string {
	for _, name := range names {
		if text := strings.TrimSpace(string(data[name])); text != "" {
			return text
		}
	}
	return ""
}

func parseID(text string) (int64, error) {
	id, err := strconv.ParseInt(text, 10, 64)
	if err == nil && id <= 0 {
		err = strconv.ErrRange
	}
	return id, err
}

// client makes a client of the identity's from what all have in common.
func (i identity) client(options github.Options) (*github.Client, error) {
	options.AppID, options.PrivateKey, options.Token = i.app, nil, i.token
	if i.app != 0 {
		options.PrivateKey = []byte(i.key.Reveal())
	}
	client, err := github.New(options)
	if err != nil {
		return nil, fmt.Errorf("its content is invalid: %w", err)
	}
	return client, nil
}
