package cli

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"time"

	"github.com/bullpen-ci/bullpen/api/adminapi"
)

// ConsoleTokenLife is the lifetime of a token that the cluster issues for a console session: a working day.
const ConsoleTokenLife = 8 * time.Hour

// ConsoleLink returns a URL that logs a browser in as the client's user, once and within a minute.
func (c *Client) ConsoleLink(ctx context.Context) (string, error) {
	var login adminapi.ConsoleCode
	if err := c.call(ctx, http.MethodPost, adminapi.PathConsoleCode, nil, "", nil, &login); err != nil {
		return "", err
	}
	if login.Code == "" {
		return "", errors.New("creating a login link: the server returned no code. Compare the versions: `bullpen version`")
	}
	base, err := c.browserURL(ctx)
	return base + "/ui/login#code=" + url.QueryEscape(login.Code), err
}
