package github

import (
	"net/http"

	"github.com/bullpen-ci/bullpen/internal/fleet"
)

// bearer sends a personal access token with each request. Where requests may be redirected to, sameHostOnly says.
type bearer struct {
	token fleet.Secret
	next  http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (b *bearer) RoundTrip(req *http.Request) (*http.Response, error) {
	req = req.Clone(req.Context())
	req.Header.Set("Authorization", "Bearer "+b.token.Reveal())
	return b.next.RoundTrip(req)
}
