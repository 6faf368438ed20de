package github

import (
	"context"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"sync/atomic"

	"github.com/bradleyfalzon/ghinstallation/v2"
	"github.com/golang-jwt/jwt/v4"

	"github.com/bullpen-ci/bullpen/internal/fleet"
)

const opProveKey = "proving a private key"

// ErrKeyRefused: GitHub does not take the key for one of the App's.
var ErrKeyRefused = errors.New("GitHub refuses the private key: is it one of this App's, and is this machine's clock right?")

// signer signs as the App with the key in use at the moment, and dates by GitHub's clock what it signs.
type signer struct {
	key   atomic.Pointer[rsa.PrivateKey]
	clock *remoteClock
}

func newSigner(key *rsa.PrivateKey, clock *remoteClock) *signer {
	s := &signer{clock: clock}
	s.key.Store(key)
	return s
}

// Sign implements ghinstallation.Signer.
func (s *signer) Sign(claims jwt.Claims) (string, error) {
	if own, ok := claims.(*jwt.RegisteredClaims); ok { // ghinstallation has dated it by the host's clock
		issued, ends := s.clock.life()
		own.IssuedAt, own.ExpiresAt = jwt.NewNumericDate(issued), jwt.NewNumericDate(ends)
	}
	return ghinstallation.NewRSASigner(jwt.SigningMethodRS256, s.key.Load()).Sign(claims)
}

// UseKey takes another private key of the App (PEM) into use, once GitHub has proven that it is one: an unknown key would
// end all minting within the hour that a token lives. It returns ErrKeyRefused for such a key, fleet.ErrUncertain or
// *fleet.RateLimitedError when GitHub could not be asked, and another error for what is no key. The key in use stays then.
//
// Calls under way are not disturbed, and neither are tokens, which outlive the key that asked for them. A key that is in
// use already is not asked about.
func (c *Client) UseKey(ctx context.Context, text []byte) error {
	if c.signer == nil {
		return errors.New("a client with its own token has no private key")
	}
	key, err := parseKey(text)
	if err != nil {
		return err
	}
	if key.Equal(c.signer.key.Load()) {
		return nil
	}
	err = c.proveKey(ctx, key)
	c.metrics.count(opProveKey, err)
	if err != nil {
		return fmt.Errorf("%s: %w", opProveKey, err)
	}
	c.signer.key.Store(key)
	return nil
}

// proveKey asks GitHub who the App is, with the key.
func (c *Client) proveKey(ctx context.Context, key *rsa.PrivateKey) error {
	transport, err := c.appTransport(newSigner(key, c.clock))
	if err != nil {
		return err
	}
	api, err := c.apiOver(transport)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, c.options.Timeout)
	defer cancel()
	app, resp, err := api.Apps.Get(ctx, "")
	if err != nil && resp != nil && resp.Response != nil && resp.StatusCode == http.StatusUnauthorized {
		return fmt.Errorf("%w (%w)", ErrKeyRefused, fleet.ErrForbidden)
	}
	if err := (meanings)(nil).translate(resp, err, classRead, c.own.rates, c.options.Now()); err != nil {
		return err
	}
	if app.GetID() != c.options.AppID {
		return fmt.Errorf("%w (it is a key of App %d)", ErrKeyRefused, app.GetID())
	}
	return nil
}

// parseKey reads PKCS #1, which GitHub hands out, or PKCS #8. Its errors never show the key.
func parseKey(text []byte) (*rsa.PrivateKey, error) {
	block, _ := pem.Decode(text)
	if block == nil {
		return nil, errors.New("the GitHub App's private key is not a PEM file: download one from the App's settings page")
	}
	if key, err := x509.ParsePKCS1PrivateKey(block.Bytes); err == nil {
		return key, nil
	}
	if parsed, err := x509.ParsePKCS8PrivateKey(block.Bytes); err == nil {
		if key, ok := parsed.(*rsa.PrivateKey); ok {
			return key, nil
		}
	}
	return nil, errors.New("the GitHub App's private key is not an RSA key in PEM form")
}
