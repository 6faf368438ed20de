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
	require.Empty(t, options.Mirrors)
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

	options, err = registriesOf(t, "--registry-mirror", "docker.io=https://harbor.example.com/hub", "--registry-mirror=*=http://10.0.0.1:5000")
	require.NoError(t, err)
	var mirrors []string
	for _, mirror := range options.Mirrors {
		mirrors = append(mirrors, mirror.Registry+" "+mirror.URL.String())
	}
	require.Equal(t, []string{"docker.io https://harbor.example.com/hub", "* http://10.0.0.1:5000"}, mirrors)
	_, err = registriesOf(t, "--registry-mirror", "*=https://m.io", "--registry-mirror", "docker.io=https://ann:s3cret@m.io")
	require.EqualError(t, err, "--registry-mirror: entry 2: mirror of docker.io: its URL has a user name or a password. Remove them: mirrors are asked without credentials")

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
