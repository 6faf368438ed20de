package main

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"
)

// Settings that cannot work are reported at start, with the flag to check; a replaced secret is read again.
func TestOIDC_FlagsMakeAProvider(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		return path
	}
	secret := write("secret", "first\n")
	parse := func(args ...string) *oidcConfig {
		var cfg oidcConfig
		f := pflag.NewFlagSet("server", pflag.ContinueOnError)
		cfg.flags(f)
		require.NoError(t, f.Parse(args))
		return &cfg
	}
	none, err := parse().options()
	require.NoError(t, err)
	require.Nil(t, none)

	issuer := []string{"--oidc-issuer-url=https://login.example.com", "--oidc-client-id=bullpen", "--console-url=https://bullpen.example.com"}
	options, err := parse(append(issuer, "--oidc-client-secret-file="+secret, "--oidc-username-claim=email", "--oidc-groups-claim=groups", "--oidc-groups=a,b", "--oidc-session-life=1h")...).options()
	require.NoError(t, err)
	require.Equal(t, "email", options.Claims.Username)
	require.Equal(t, []string{"a", "b"}, options.Claims.Kept)
	require.Equal(t, []string{"profile", "email"}, options.Scopes)
	require.Equal(t, time.Hour, options.Life)
	for _, want := range []string{"first", "second"} {
		write("secret", want)
		got, err := options.Secret()
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
	for says, args := range map[string][]string{
		"--oidc-issuer-url":         {"--oidc-client-id=bullpen"},
		"--oidc-session-life":       append(issuer, "--oidc-session-life=48h"),
		"--oidc-client-secret-file": append(issuer, "--oidc-client-secret-file="+filepath.Join(dir, "none")),
		"is empty":                  append(issuer, "--oidc-client-secret-file="+write("empty", "\n")),
		"no certificate (PEM)":      append(issuer, "--oidc-ca-file="+secret),
		"--oidc-ca-file":            append(issuer, "--oidc-ca-file="+filepath.Join(dir, "none")),
	} {
		_, err := parse(args...).options()
		require.ErrorContains(t, err, says)
	}
}
