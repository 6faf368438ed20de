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
