package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestTartFlags_SayWhatIsMissing(t *testing.T) {
	for want, f := range map[string]tartFlags{
		"no more), got 3":                      {program: "true", launchctl: "true", slots: 3},
		"no more), got 0":                      {program: "true", launchctl: "true"},
		"brew install cirruslabs/cli":          {program: "no-such-tart", launchctl: "true", slots: 2},
		"--tart must name a program, got \"\"": {launchctl: "true", slots: 2},
		"Set --launchctl":                      {program: "true", launchctl: "/no/such/launchctl", slots: 2},
	} {
		_, err := f.open(t.TempDir(), nil)
		require.ErrorContains(t, err, want)
	}
	t.Setenv("TART_REGISTRY_USERNAME", "me")
	t.Setenv("TART_REGISTRY_HOSTNAME", "")
	f := tartFlags{program: "sh -x", launchctl: "a b", home: "here", slots: 1}
	opts, err := f.options("/state", nil)
	require.NoError(t, err)
	require.True(t, filepath.IsAbs(opts.Tart[0]), "the agent's folder may change")
	require.Equal(t, "-x", opts.Tart[1])
	require.Contains(t, opts.Env, "TART_REGISTRY_USERNAME=me")
	require.NotContains(t, opts.Env, "TART_REGISTRY_HOSTNAME=")
	here, err := os.Getwd()
	require.NoError(t, err)
	require.Equal(t, filepath.Join(here, "here"), opts.TartHome)
	require.Equal(t, []string{"a", "b"}, opts.Launchctl)
}
