package github

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	"github.com/bradleyfalzon/ghinstallation/v2"
	gh "github.com/google/go-github/v88/github"

	"github.com/bullpen-ci/bullpen/internal/fleet"
)

// errNoList is a success without the list that was asked for, such as one without a body: it must not read as an empty list.
var errNoList = errors.New("the response has no list")

// ErrUnauthorized is fleet.ErrCredentials.
var ErrUnauthorized error = fleet.ErrCredentials

var _ fleet.Answer = (*answer)(nil)

// answer is a refusal of GitHub with the meaning it was given.
type answer struct {
	status  int
	message string
	meaning error
}

// Error shows GitHub's own words, which hold no secret of ours.
func (a *answer) Error() string {
	if a.message == "" {
		return fmt.Sprintf("%v (status %d)", a.meaning, a.status)
	}
	return fmt.Sprintf("%v (status %d: %s)", a.meaning, a.status, a.message)
}

// GitHubStatus is the HTTP status.
func (a *answer) GitHubStatus() int { return a.status }

// GitHubMessage is GitHub's explanation, or ours.
func (a *answer) GitHubMessage() string { return a.message }

// Unwrap gives the sentinel of fleet.
func (a *answer) Unwrap() error { return a.meaning }

// meanings says what the statuses mean that differ from call to call.
type meanings map[int]error

var (
	mintMeanings   = meanings{http.StatusConflict: fleet.ErrNameTaken}
	removeMeanings = meanings{http.StatusUnprocessableEntity: fleet.ErrRunnerBusy}
)

// meaning of a status that is neither a success nor a rate limit.
func (m meanings) meaning(status int) error {
	if special, ok := m[status]; ok {
		return special
	}
	switch {
	case status == http.StatusUnauthorized:
		return ErrUnauthorized
	case status == http.StatusForbidden:
		return fleet.ErrForbidden
	case status == http.StatusNotFound:
		return fleet.ErrNotFound
	case status == http.StatusRequestTimeout, status >= 500, status < 300:
		return fleet.ErrUncertain // also an unexpected success, such as 202: something may have happened
	default:
		return fleet.ErrRejected // other 4xx, and redirects that are not followed
	}
}

// limited reports whether a status and headers are a rate limit's.
func limited(status int, header http.Header, err error) bool {
	var secondary *gh.AbuseRateLimitError
	switch status {
	case http.StatusTooManyRequests:
		return true
	case http.StatusForbidden:
		return header.Get("X-RateLimit-Remaining") == "0" || header.Get("Retry-After") != "" ||
			errors.As(err, &secondary)
	default:
		return false
	}
}

// translate turns what a call of go-github returned into an error of fleet; nil for success.
//
// A call without an answer is ErrUncertain, even a refused connection, which proves that nothing was sent: the
// caller's way out of doubt (remove by name, mint again) needs GitHub too, and one path that is always safe is better
// than two.
func (m meanings) translate(resp *gh.Response, err error, of class, limits *rates, now time.Time) error {
	if err == nil {
		return nil
	}
	var unauthenticated *ghinstallation.HTTPError
	if errors.As(err, &unauthenticated) && unauthenticated.Response != nil {
		return translateTokenRefusal(unauthenticated.Response, of, limits, now)
	}
	if resp == nil || resp.Response == nil || succeeded(resp.StatusCode) && !isAccepted(err) {
		return fmt.Errorf("%w: %w", fleet.ErrUncertain, withoutURL(err)) // no answer, or one that was cut
	}
	if limited(resp.StatusCode, resp.Header, err) {
		return limits.refuse(of, resp.Header, now)
	}
	return &answer{status: resp.StatusCode, message: messageOf(err), meaning: m.meaning(resp.StatusCode)}
}

// translateTokenRefusal handles an installation whose token GitHub does not renew. The request itself was never sent.
// A 404 there means that the installation is gone, and says nothing about any runner (EXCL-6).
func translateTokenRefusal(resp *http.Response, of class, limits *rates, now time.Time) error {
	defer func() { _ = resp.Body.Close() }()
	_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, 64<<10)) // so that the connection can be used again
	if limited(resp.StatusCode, resp.Header, nil) {
		return limits.refuse(of, resp.Header, now)
	}
	meaning := ErrUnauthorized
	if resp.StatusCode >= 500 || resp.StatusCode == http.StatusRequestTimeout {
		meaning = fmt.Errorf("%w: %w", fleet.ErrUncertain, fleet.ErrNoToken)
	}
	hint := "no token is given for this installation; is the App still installed, and not suspended?"
	if resp.StatusCode == http.StatusUnauthorized {
		hint = "the App is not recognized; check its id, its private key and this machine's clock"
	}
	return &answer{status: resp.StatusCode, meaning: meaning, message: hint}
}

func succeeded(status int) bool { return status >= 200 && status < 300 }

func isAccepted(err error) bool {
	var accepted *gh.AcceptedError
	return errors.As(err, &accepted)
}

// messageOf is GitHub's explanation, shortened.
func messageOf(err error) string {
	const longest = 300
	var response *gh.ErrorResponse
	if !errors.As(err, &response) {
		return ""
	}
	text := response.Message
	for _, detail := range response.Errors {
		if detail.Message != "" {
			text += "; " + detail.Message
		}
	}
	if len(text) > longest {
		text = text[:longest] + "…"
	}
	return text
}

// withoutURL drops the address that net/http puts in front of an error: the caller names the operation.
func withoutURL(err error) error {
	var wrapped *url.Error
	if errors.As(err, &wrapped) {
		return wrapped.Err
	}
	return err
}
