package main

import (
	"crypto/x509"
	"encoding/pem"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"testing"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/internal/jobcontainer/image"
)

func registriesOf(t *testing.T, args ...string) (image.Options, error) {
	t.Helper()
	var f registryFlags
	set := pflag.NewFlagSet("controller", pflag.ContinueOnError)
	f.register(set)
	require.NoError(t, set.Parse(args))
	return f.options()
}

func TestController_ReachesRegistriesAsItsFlagsSay(t *testing.T) {
	options, err := registriesOf(t)
	require.NoError(t, err)
	require.Nil(t, options.RootCAs, "the system's")
	require.Empty(t, options.ClusterNetworks)
	require.NotNil(t, options.Proxy)

	registry := httptest.NewTLSServer(nil)
	defer registry.Close()
	file := filepath.Join(t.TempDir(), "ca.crt")
	require.NoError(t, os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: registry.Certificate().Raw}), 0o600))
	options, err = registriesOf(t, "--registry-ca-file", file, "--cluster-networks", "20.5.0.0/16,2600:1::/32")
	require.NoError(t, err)
	require.Equal(t, []netip.Prefix{netip.MustParsePrefix("20.5.0.0/16"), netip.MustParsePrefix("2600:1::/32")}, options.ClusterNetworks)
	_, err = registry.Certificate().Verify(x509.VerifyOptions{Roots: options.RootCAs})
	require.NoError(t, err)

	require.NoError(t, os.WriteFile(file, []byte("no certificate"), 0o600))
	for wrong, args := range map[string][]string{
		"contains no PEM certificate":  {"--registry-ca-file", file},
		"--registry-ca-file: open ":    {"--registry-ca-file", file + ".absent"},
		"--cluster-networks: netip.Pa": {"--cluster-networks", "20.5.0.0"},
	} {
		_, err := registriesOf(t, args...)
		require.ErrorContains(t, err, wrong)
	}
}
