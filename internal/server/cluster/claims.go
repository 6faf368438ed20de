package cluster

import (
	"encoding/base64"
	"encoding/json"
	"strings"
	"time"

	"github.com/bullpen-ci/bullpen/api/adminapi"
)

// tokenClaims are what a token says of itself. They mean nothing until a TokenReview has accepted the token.
type tokenClaims struct {
	user   string // named by an audience; empty: none, or several
	issued time.Time
}

// claimsOf reads a token without verifying it. It is empty for a token that names no user.
func claimsOf(token string) tokenClaims {
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return tokenClaims{}
	}
	text, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		return tokenClaims{}
	}
	var claims struct {
		Audiences []string `json:"aud"` // the cluster issues lists only
		Issued    int64    `json:"iat"`
	}
	if json.Unmarshal(text, &claims) != nil {
		return tokenClaims{}
	}
	var found tokenClaims
	for _, audience := range claims.Audiences {
		user, names := strings.CutPrefix(audience, adminapi.AudienceUser)
		if !names {
			continue
		}
		if user == "" || found.user != "" {
			return tokenClaims{}
		}
		found = tokenClaims{user: user, issued: time.Unix(claims.Issued, 0)}
	}
	return found
}

// audiences are those to review the token for.
func (c tokenClaims) audiences() []string {
	if c.user == "" {
		return []string{adminapi.Audience}
	}
	return []string{adminapi.Audience, adminapi.AudienceUser + c.user}
}
