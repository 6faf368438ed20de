//go:build !production

package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestServiceArgs_AreThoseOfTheCommandWithAbsolutePaths(t *testing.T) {
	cmd := newUpCommand()
	require.NoError(t, cmd.ParseFlags([]string{"--install-service", "--containers", "--webhooks=poll", "--github-app", "7", "--github-private-key-file", "app.pem", "--state-dir", "x"}))
	args, err := serviceArgs(cmd.Flags(), "/var/lib/x")
	require.NoError(t, err)
	here, err := os.Getwd()
	require.NoError(t, err)
	require.Equal(t, []string{
		"up", "--drain", "--state-dir=/var/lib/x", "--containers=true", "--github-app=7", "--github-private-key-file=" + filepath.Join(here, "app.pem"), "--webhooks=poll",
	}, args)

	require.NoError(t, cmd.ParseFlags([]string{"--workflow", "ci.yaml"}))
	_, err = serviceArgs(cmd.Flags(), "/var/lib/x")
	require.ErrorContains(t, err, "--workflow is for one run")
	for _, name := range pathFlags {
		require.NotNil(t, cmd.Flags().Lookup(name), name)
	}
}
