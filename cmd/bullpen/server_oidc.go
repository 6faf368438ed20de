package main

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"os"
	"time"

	"github.com/spf13/pflag"

	"github.com/bullpen-ci/bullpen/internal/server/console"
)

// oidcConfig is how people log in to the console at an identity provider. Its flags have the names, and mean the same, as kube-apiserver's.
type oidcConfig struct {
	console, issuer, clientID, secretFile, caFile, name string

	claims console.Claims
	scopes []string
	life   time.Duration
}

func (c *oidcConfig) flags(f *pflag.FlagSet) {
	f.StringVar(&c.console, "console-url", "", "URL of the console for browsers, such as https://bullpen.example.com; required for OpenID Connect")
	f.StringVar(&c.issuer, "oidc-issuer-url", "", "OpenID Connect provider for logins to the console; empty: Kubernetes tokens only")
	f.StringVar(&c.clientID, "oidc-client-id", "", "client ID of the console at the provider")
	f.StringVar(&c.secretFile, "oidc-client-secret-file", "", "file with the client secret, read for every login; empty: a public client")
	f.StringVar(&c.caFile, "oidc-ca-file", "", "CA certificates (PEM) of the provider (default: the system's)")
	f.StringVar(&c.name, "oidc-name", "", "name of the provider on the login page (default: single sign-on)")
	f.StringVar(&c.claims.Username, "oidc-username-claim", "sub", "claim of the ID token with the user name, such as email")
	f.StringVar(&c.claims.UsernamePrefix, "oidc-username-prefix", "", "prefix of user names (default: the issuer and #, except for email; -: none)")
	f.StringVar(&c.claims.Groups, "oidc-groups-claim", "", "claim of the ID token with the user's groups, such as groups; empty: none")
	f.StringVar(&c.claims.GroupsPrefix, "oidc-groups-prefix", "", "prefix of groups, such as oidc:")
	f.StringSliceVar(&c.claims.Kept, "oidc-groups", nil, "groups to keep in the session, with their prefix (default: all that fit into a cookie)")
	f.StringSliceVar(&c.scopes, "oidc-scopes", []string{"profile", "email"}, "scopes to request in addition to openid")
	f.DurationVar(&c.life, "oidc-session-life", 4*time.Hour, "lifetime of a session after a login at the provider")
}

// options are nil without a provider.
func (c *oidcConfig) options() (*console.OIDC, error) {
	if c.issuer == "" {
		if c.clientID != "" || c.secretFile != "" {
			return nil, errors.New("--oidc-client-id and --oidc-client-secret-file need --oidc-issuer-url")
		}
		return nil, nil //nolint:nilnil // logins by OpenID Connect are off
	}
	if c.life < time.Minute || c.life > 24*time.Hour {
		return nil, fmt.Errorf("--oidc-session-life must be between 1m and 24h, got %s", c.life)
	}
	client, err := providerClient(c.caFile)
	if err != nil {
		return nil, err
	}
	options := &console.OIDC{
		Issuer: c.issuer, ClientID: c.clientID, Console: c.console, Name: c.name, Scopes: c.scopes, Claims: c.claims, Life: c.life, Client: client,
	}
	if c.secretFile != "" {
		read := func() (string, error) {
			return readSecretFile(c.secretFile, "the client's secret (--oidc-client-secret-file)")
		}
		if _, err := read(); err != nil {
			return nil, err
		}
		options.Secret = read
	}
	return options, nil
}

func providerClient(caFile string) (*http.Client, error) {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	if caFile != "" {
		text, err := os.ReadFile(caFile)
		if err != nil {
			return nil, fmt.Errorf("--oidc-ca-file: %w", err)
		}
		roots := x509.NewCertPool()
		if !roots.AppendCertsFromPEM(text) {
			return nil, fmt.Errorf("--oidc-ca-file: no certificate (PEM) found in %s", caFile)
		}
		transport.TLSClientConfig = &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}
	}
	return &http.Client{Transport: transport, Timeout: 10 * time.Second}, nil
}
