package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"
)

func macFlagsOf(t *testing.T, args ...string) *macFlags {
	t.Helper()
	var f macFlags
	set := pflag.NewFlagSet("controller", pflag.ContinueOnError)
	f.register(set)
	require.NoError(t, set.Parse(args))
	return &f
}

func TestController_PreparesMacsOnlyIfToldTo(t *testing.T) {
	options, err := macFlagsOf(t).prepare("bullpen-system")
	require.NoError(t, err)
	require.Nil(t, options)

	_, err = macFlagsOf(t, "--mac-hosts", "--mac-binary", filepath.Join(t.TempDir(), "none")).prepare("bullpen-system")
	require.ErrorContains(t, err, "name the file with --mac-binary (GOOS=darwin GOARCH=arm64 go build)")

	binary := filepath.Join(t.TempDir(), "bullpen")
	require.NoError(t, os.WriteFile(binary, []byte("one"), 0o600))
	first, err := macFlagsOf(t, "--mac-hosts", "--mac-binary", binary).prepare("bullpen-system")
	require.NoError(t, err)
	require.Equal(t, "bullpen-system", first.SecretsNamespace)
	require.NoError(t, os.WriteFile(binary, []byte("two"), 0o600))
	second, err := macFlagsOf(t, "--mac-hosts", "--mac-binary", binary, "--mac-secrets-namespace", "other", "--mac-attempts", "7").prepare("bullpen-system")
	require.NoError(t, err)
	require.Equal(t, "other", second.SecretsNamespace)
	require.Equal(t, 7, second.Attempts)
	require.NotEqual(t, first.BinarySHA256, second.BinarySHA256, "another release is a reason to apply")
}

func TestController_TheURLForMacsIsOneThatARunnerPolls(t *testing.T) {
	for _, good := range []string{"", "http://10.0.0.5:30080", "https://dispatch.example.com/bullpen", "http://[fd00::1]"} {
		url, err := macFlagsOf(t, "--mac-dispatch-url="+good).dispatch()
		require.NoError(t, err, good)
		require.Equal(t, good, url)
	}
	for _, bad := range []string{"dispatch.example.com", "ssh://host", "https://", "https://:443", "https://u:secret@host", "https://host?token=secret", "https://host#a", "https://ho st"} {
		_, err := macFlagsOf(t, "--mac-dispatch-url="+bad).dispatch()
		require.ErrorContains(t, err, "--mac-dispatch-url must be http://HOST", bad)
		require.NotContains(t, err.Error(), "secret")
	}
	flags := controllerFlags{}
	flags.macs.dispatchURL = "dispatch.example.com"
	_, err := flags.prepare(t.Context())
	require.ErrorContains(t, err, "--mac-dispatch-url")
}
