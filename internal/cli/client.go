package cli

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/bullpen-ci/bullpen/api/adminapi"
	"github.com/bullpen-ci/bullpen/internal/cli/portforward"
	"github.com/bullpen-ci/bullpen/internal/cli/reach"
	"github.com/bullpen-ci/bullpen/internal/cli/servers"
)

// TokenSource returns the bearer token of a request. It is called once per request, so that a renewed token is used.
type TokenSource func(ctx context.Context) (string, error)

// Locator returns the URL of the server. It is called once per request, so that a server whose place changes is found again.
type Locator func(ctx context.Context) (string, error)

// Client is a client of the administrators' API. It is safe for concurrent use.
type Client struct {
	locate  Locator
	token   TokenSource
	http    *http.Client
	forward *portforward.Forwarder // nil: the server has a URL
}

// NewClient checks that the URL is one that a token may be sent to: https, or this machine.
func NewClient(server string, token TokenSource, timeout time.Duration) (*Client, error) {
	if err := servers.CheckURL(server); err != nil {
		return nil, err
	}
	server = strings.TrimSuffix(server, "/")
	return newClient(func(context.Context) (string, error) { return server, nil }, token, timeout, http.DefaultTransport), nil
}

func newClient(locate Locator, token TokenSource, timeout time.Duration, transport http.RoundTripper) *Client {
	return &Client{locate: locate, token: token, http: &http.Client{
		Timeout: cmp.Or(timeout, 30*time.Second), Transport: transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { // a redirect must not carry the token elsewhere
			return http.ErrUseLastResponse
		},
	}}
}

// APIError is an error response of the server. Its sentence says what to do.
type APIError struct {
	Status   int
	Sentence string
}

// Error is the server's own sentence.
func (e *APIError) Error() string { return e.Sentence }

// maxResponse bounds what is read of a response.
const maxResponse = 16 << 20

// call sends one request; ifMatch and body may be empty, into may be nil.
func (c *Client) call(ctx context.Context, method, path string, query url.Values, ifMatch string, body, into any) error {
	_, err := c.exchange(ctx, method, path, query, ifMatch, body, into)
	return err
}

// exchange is call, and returns the header of the response.
func (c *Client) exchange(ctx context.Context, method, path string, query url.Values, ifMatch string, body, into any) (http.Header, error) {
	var content io.Reader
	if body != nil {
		encoded, err := json.Marshal(body)
		if err != nil {
			return nil, fmt.Errorf("encoding the request: %w", err)
		}
		content = bytes.NewReader(encoded)
	}
	base, err := c.locate(ctx)
	if err != nil {
		return nil, err
	}
	address := base + path
	if len(query) > 0 {
		address += "?" + query.Encode()
	}
	req, err := http.NewRequestWithContext(ctx, method, address, content)
	if err != nil {
		return nil, fmt.Errorf("making the request: %w", err)
	}
	token, err := c.token(ctx)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Authorization", "Bearer "+token)
	req.Header.Set("Accept", "application/json")
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if ifMatch != "" {
		req.Header.Set("If-Match", ifMatch)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, unreachable(base, err)
	}
	defer resp.Body.Close()
	response, err := io.ReadAll(io.LimitReader(resp.Body, maxResponse))
	if err != nil {
		return nil, fmt.Errorf("reading the response of %s: %s", base, reach.Problem(err))
	}
	return resp.Header, read(base, resp.StatusCode, response, into)
}

const checkURL = ". Check that this is the URL of Bullpen's administrators' API"

func read(base string, status int, response []byte, into any) error {
	if status < 300 {
		if into == nil {
			return nil
		}
		if err := json.Unmarshal(response, into); err != nil {
			return errors.New("unexpected response of " + base + ": not JSON" + checkURL)
		}
		return nil
	}
	var refusal adminapi.Error
	if json.Unmarshal(response, &refusal) != nil || refusal.Error == "" {
		refusal.Error = fmt.Sprintf("unexpected response of %s: %d %s%s", base, status, http.StatusText(status), checkURL)
	}
	return &APIError{Status: status, Sentence: refusal.Error}
}

// UnreachableError says that a server did not respond.
type UnreachableError struct {
	URL   string
	cause error
}

// Error names the URL and the reason.
func (e *UnreachableError) Error() string {
	return "cannot reach the server at " + e.URL + ": " + reach.Problem(e.cause) + ". Check that it is running, and that the URL is right"
}

// Unwrap gives the HTTP client's error.
func (e *UnreachableError) Unwrap() error { return e.cause }

func unreachable(base string, err error) error {
	if errors.Is(err, context.Canceled) {
		return err
	}
	return &UnreachableError{URL: base, cause: err}
}

// ServerVersion is the version of the server; empty if it is older than the header that names it.
func (c *Client) ServerVersion(ctx context.Context) (string, error) {
	var pools adminapi.PoolList
	header, err := c.exchange(ctx, http.MethodGet, adminapi.PathPools, nil, "", nil, &pools)
	return header.Get(adminapi.HeaderVersion), err
}

func accountPath(ref string) string { return adminapi.PathAccounts + "/" + url.PathEscape(ref) }

// Accounts reads every page.
func (c *Client) Accounts(ctx context.Context, deleted bool) ([]adminapi.Account, error) {
	var all []adminapi.Account
	query := url.Values{"limit": {strconv.Itoa(adminapi.MaxPage)}}
	if deleted {
		query.Set("deleted", "true")
	}
	for {
		var page adminapi.AccountList
		if err := c.call(ctx, http.MethodGet, adminapi.PathAccounts, query, "", nil, &page); err != nil {
			return nil, err
		}
		all = append(all, page.Accounts...)
		if page.Next == "" {
			return all, nil
		}
		query.Set("after", page.Next)
	}
}

// Account reads one, by login or "@id".
func (c *Client) Account(ctx context.Context, ref string) (adminapi.Account, error) {
	var account adminapi.Account
	err := c.call(ctx, http.MethodGet, accountPath(ref), nil, "", nil, &account)
	return account, err
}

// ChangeLimits changes limits of the account as it was read; an *APIError with status 412 if it has changed since.
func (c *Client) ChangeLimits(ctx context.Context, ref, etag string, change adminapi.ChangeLimits) (adminapi.Account, error) {
	var account adminapi.Account
	err := c.call(ctx, http.MethodPatch, accountPath(ref)+"/limits", nil, etag, change, &account)
	return account, err
}

// Suspend stops dispatching the account's jobs; Resume undoes it.
func (c *Client) Suspend(ctx context.Context, ref, reason string) (adminapi.Account, error) {
	return c.verb(ctx, ref, adminapi.VerbSuspend, reason)
}

// Resume dispatches the account's jobs again, unless GitHub has suspended it too.
func (c *Client) Resume(ctx context.Context, ref, reason string) (adminapi.Account, error) {
	return c.verb(ctx, ref, adminapi.VerbResume, reason)
}

func (c *Client) verb(ctx context.Context, ref, verb, reason string) (adminapi.Account, error) {
	var account adminapi.Account
	err := c.call(ctx, http.MethodPost, accountPath(ref)+":"+verb, nil, "", adminapi.Change{Reason: reason}, &account)
	return account, err
}

// DeleteAccount deletes an account; with purge its history too, at once.
func (c *Client) DeleteAccount(ctx context.Context, ref, reason string, purge bool) error {
	query := url.Values{}
	if purge {
		query.Set("purge", "true")
	}
	return c.call(ctx, http.MethodDelete, accountPath(ref), query, "", adminapi.Change{Reason: reason}, nil)
}
