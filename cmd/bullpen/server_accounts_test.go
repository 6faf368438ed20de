package main

import (
	"testing"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/internal/fleet"
)

func adminFlags(t *testing.T, args ...string) adminConfig {
	t.Helper()
	var cfg adminConfig
	flags := pflag.NewFlagSet("server", pflag.ContinueOnError)
	cfg.flags(flags)
	require.NoError(t, flags.Parse(args))
	return cfg
}

func TestServer_DefaultLimits(t *testing.T) {
	cfg := adminFlags(t, "--default-limits-linux=jobs=7,memory=8Gi")
	limits, err := cfg.defaultLimits()
	require.NoError(t, err)
	require.Equal(t, fleet.Limits{Jobs: 7, MilliCPU: 32_000, MemoryMB: 8192}, limits[fleet.Linux], "what is left out is the product's own")
	require.Equal(t, fleet.DefaultLimits(fleet.MacOS), limits[fleet.MacOS])
	for arg, says := range map[string]string{
		"--default-limits-linux=jobs=x":                "reading --default-limits-linux",
		"--default-limits-macos=disk=1":                "unknown limit",
		"--default-limits-macos=jobs-per-repository=1": "add --repository-caps, on every server",
	} {
		cfg = adminFlags(t, arg)
		_, err := cfg.defaultLimits()
		require.ErrorContains(t, err, says)
	}
	cfg = adminFlags(t, "--repository-caps", "--default-limits-linux=jobs-per-repository=3")
	limits, err = cfg.defaultLimits()
	require.NoError(t, err)
	require.EqualValues(t, 3, limits[fleet.Linux].JobsPerRepository)
}

// EXCL-6: where caps are honoured, runners of an organization may be registered at repositories, and a proof of absence must include those.
func TestServer_EXCL6_CapsHaveRepositoriesRead(t *testing.T) {
	r := &replica{cfg: serverConfig{admin: adminFlags(t, "--repository-caps")}}
	require.True(t, r.registersAtRepositories())
}

// Jobs link to the site that the API belongs to; a stand-in on this machine has no pages.
func TestServer_JobsLinkToGitHub(t *testing.T) {
	for site, want := range map[string]string{
		"https://github.com": "https://github.com", "https://acme.ghe.com": "https://acme.ghe.com", "https://ghes.example.com": "https://ghes.example.com",
		"http://ghes.example.com": "http://ghes.example.com", "http://127.0.0.1:20080": "", "http://localhost:20080": "", "http://[::1]:20080": "",
	} {
		require.Equal(t, want, pagesOf(site), site)
	}
}
