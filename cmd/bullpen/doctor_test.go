package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// Nothing to check is distinct from no problems, and from a usage error.
func TestDoctor_ExitCodes(t *testing.T) {
	t.Setenv("KUBECONFIG", filepath.Join(t.TempDir(), "none"))
	t.Setenv("XDG_STATE_HOME", t.TempDir())
	t.Setenv(envDatabaseURL, "")
	require.Equal(t, 2, run(t.Context(), []string{"doctor", "-o", "json"}))
	require.Equal(t, 1, run(t.Context(), []string{"doctor", "--only", "database,weather"}))
	require.Equal(t, 1, run(t.Context(), []string{"doctor", "--state-dir", t.TempDir()}))

	key := filepath.Join(t.TempDir(), "key.pem")
	require.NoError(t, os.WriteFile(key, []byte("no key"), 0o600))
	app := []string{"--github-app-id", "1", "--github-private-key-file", key}
	require.Equal(t, 1, run(t.Context(), append([]string{"doctor", "--only", "github"}, app...)), "a finding")
	require.Equal(t, 2, run(t.Context(), append([]string{"doctor", "--only", "database"}, app...)), "another part is asked for")
}
