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

// `bullpen host apply` replaces the launchd job and its environment: credentials of a registry are in a file that it never touches.
func TestTartFlags_ReadCredentialsOfARegistry(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, registryFile)
	read := func(mode os.FileMode, text string) ([]string, error) {
		require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
		require.NoError(t, os.Chmod(file, mode))
		return registryCredentials(dir)
	}
	none, err := registryCredentials(dir)
	require.NoError(t, err)
	require.Empty(t, none)
	got, err := read(0o600, "# ours\nTART_REGISTRY_HOSTNAME=ghcr.io\r\n\nTART_REGISTRY_USERNAME=me\nTART_REGISTRY_PASSWORD=a= b#c ")
	require.NoError(t, err)
	require.Equal(t, []string{"TART_REGISTRY_HOSTNAME=ghcr.io", "TART_REGISTRY_USERNAME=me", "TART_REGISTRY_PASSWORD=a= b#c "}, got)
	for _, mode := range []os.FileMode{0o640, 0o604} {
		_, err = read(mode, "")
		require.ErrorContains(t, err, "chmod 600 "+file)
	}
	for _, text := range []string{"\nTART_HOME=hunter2", "\nhunter2"} {
		_, err = read(0o600, text)
		require.ErrorContains(t, err, file+", line 2: must be NAME=value")
		require.NotContains(t, err.Error(), "hunter2")
		f := tartFlags{program: "true", launchctl: "true", slots: 1, home: dir}
		_, err = f.open(dir, nil)
		require.ErrorContains(t, err, "line 2", "the agent reads it")
	}
}
