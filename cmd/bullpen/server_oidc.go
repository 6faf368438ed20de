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

	web "github.com/bullpen-ci/bullpen/internal/server/console"
)

// oidcConfig is how people log in to the console at an identity provider. Its flags have the names, and mean the same, as kube-apiserver's.
type oidcConfig struct {
	console, issuer, clientID, secretFile, caFile, name string

	claims web.Claims
	scopes []string
	life   time.Duration
}

func (c *oidcConfig) flags(f *pflag.FlagSet) {
	f.StringVar(&c.console, "console-url", "", "address at which browsers find the console, like https://bullpen.example.com; logging in by OpenID Connect needs it")
	f.StringVar(&c.issuer, "oidc-issuer-url", "", "identity provider at which people log in to the console; empty: with Kubernetes tokens alone")
	f.StringVar(&c.clientID, "oidc-client-id", "", "id of the client that the provider knows the console as")
	f.StringVar(&c.secretFile, "oidc-client-secret-file", "", "file with the client's secret, read for every login; none: the client is public")
	f.StringVar(&c.caFile, "oidc-ca-file", "", "certificates (PEM) of who may sign the provider's (default: the system's)")
	f.StringVar(&c.name, "oidc-name", "", "what the login page calls the provider (default: single sign-on)")
	f.StringVar(&c.claims.Username, "oidc-username-claim", "sub", "claim of the ID token that is the user's name, like email")
	f.StringVar(&c.claims.UsernamePrefix, "oidc-username-prefix", "", "prefix of names (default: the issuer and #, for every claim but email; -: none)")
	f.StringVar(&c.claims.Groups, "oidc-groups-claim", "", "claim of the ID token that has the user's groups, like groups; empty: none")
	f.StringVar(&c.claims.GroupsPrefix, "oidc-groups-prefix", "", "prefix of groups, like oidc:")
	f.StringSliceVar(&c.claims.Kept, "oidc-groups", nil, "groups, with their prefix, that matter; others are not kept (default: all, as many as a browser's cookie holds)")
	f.StringSliceVar(&c.scopes, "oidc-scopes", []string{"profile", "email"}, "scopes that are asked for beside openid")
	f.DurationVar(&c.life, "oidc-session-life", 4*time.Hour, "how long somebody who came from the provider stays logged in")
}

// options are nil where nobody has named a provider.
func (c *oidcConfig) options() (*web.OIDC, error) {
	if c.issuer == "" {
		if c.clientID != "" || c.secretFile != "" {
			return nil, errors.New("--oidc-client-id and --oidc-client-secret-file are of a provider: name it with --oidc-issuer-url")
		}
		return nil, nil //nolint:nilnil // nobody logs in that way
	}
	if c.life < time.Minute || c.life > 24*time.Hour {
		return nil, fmt.Errorf("--oidc-session-life is from 1m to 24h: %s is not", c.life)
	}
	client, err := providerClient(c.caFile)
	if err != nil {
		return nil, err
	}
	options := &web.OIDC{
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
			return nil, fmt.Errorf("--oidc-ca-file: there is no certificate (PEM) in %s", caFile)
		}
		transport.TLSClientConfig = &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}
	}
	return &http.Client{Transport: transport, Timeout: 10 * time.Second}, nil
}
