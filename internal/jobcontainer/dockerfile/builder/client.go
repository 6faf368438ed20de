package builder

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
)

// Client asks for containers. It is safe for concurrent use.
type Client struct {
	http *http.Client
}

// NewClient returns a client for the socket.
func NewClient(socket string) *Client {
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", socket)
	}
	return &Client{&http.Client{Transport: &http.Transport{DialContext: dial, DisableKeepAlives: true}}}
}

// ErrLost is returned if the builder has ended before its answer.
var ErrLost = errors.New("the container of BuildKit does not respond")

// Make builds an image, starts its container, and returns when its guard listens. The build's output goes to log. The end of ctx ends the
// build. Errors are *Failure, ErrLost, and those of log and of ctx.
func (c *Client) Make(ctx context.Context, request Request, log io.Writer) (Built, error) {
	body, err := json.Marshal(request)
	if err != nil {
		return Built{}, err
	}
	post, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://builder"+Path, bytes.NewReader(body))
	if err != nil {
		return Built{}, err
	}
	response, err := c.http.Do(post)
	if err != nil {
		return Built{}, lost(ctx, err)
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode == http.StatusBadRequest {
		return Built{}, Failf("the builder does not understand the request")
	}
	if response.StatusCode != http.StatusOK {
		return Built{}, fmt.Errorf("%w: status %s", ErrLost, response.Status)
	}
	return follow(ctx, response.Body, log)
}

// follow reads the response to its end. If the connection is closed before that, the builder considers the hook to be gone, and destroys the container.
func follow(ctx context.Context, body io.Reader, log io.Writer) (Built, error) {
	lines := bufio.NewScanner(body)
	lines.Buffer(nil, maxEvent)
	var built *Built
	for lines.Scan() {
		var e Event
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			return Built{}, fmt.Errorf("%w: %w", ErrLost, err)
		}
		switch {
		case e.Failure != "":
			return Built{}, &Failure{Text: e.Failure}
		case e.Built != nil:
			built = e.Built
			continue
		}
		if _, err := log.Write(e.Output); err != nil {
			return Built{}, fmt.Errorf("writing the build's output: %w", err)
		}
	}
	err := lines.Err()
	switch {
	case err == nil && built != nil:
		return *built, nil
	case err == nil:
		err = io.ErrUnexpectedEOF
	}
	return Built{}, lost(ctx, err)
}

func lost(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return fmt.Errorf("asking for a container: %w", ctx.Err())
	}
	return fmt.Errorf("%w: %w", ErrLost, err)
}
