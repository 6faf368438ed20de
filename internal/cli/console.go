package cli

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"time"

	"github.com/bullpen-ci/bullpen/api/adminapi"
)

// ConsoleTokenLife is how long a token lives that the cluster issues for a session of the console: a working day.
const ConsoleTokenLife = 8 * time.Hour

// ConsoleLink returns an address that logs a browser in as the client's user, once and within a minute.
func (c *Client) ConsoleLink(ctx context.Context) (string, error) {
	var answer adminapi.ConsoleCode
	if err := c.call(ctx, http.MethodPost, adminapi.PathConsoleCode, nil, "", nil, &answer); err != nil {
		return "", err
	}
	if answer.Code == "" {
		return "", errors.New("the server gave no code to log in with: is it of this version?")
	}
	return c.base + "/ui/login#code=" + url.QueryEscape(answer.Code), nil
}
