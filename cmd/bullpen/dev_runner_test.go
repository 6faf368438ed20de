//go:build !production

package main

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestDevRunner_BadInputGetsASentenceAndExitsOne(t *testing.T) {
	t.Setenv(jitVariable, "")
	bad := filepath.Join(t.TempDir(), "jit")
	require.NoError(t, os.WriteFile(bad, []byte("%secret%"), 0o600))
	for part, args := range map[string][]string{
		"set --jitconfig-file or $ACTIONS_RUNNER_INPUT_JITCONFIG": {},
		"no such file":              {"--jitconfig-file", bad + ".gone"},
		"pass encoded_jit_config":   {"--jitconfig-file", bad},
		"bad JIT config: it is not": {"--jitconfig", "%secret%"},
		"none of the others can be": {"--jitconfig", "a", "--jitconfig-file", "b"},
	} {
		cmd := newDevRunnerCommand()
		cmd.SetArgs(args)
		cmd.SetOut(&bytes.Buffer{})
		cmd.SetErr(&bytes.Buffer{})
		err := cmd.Execute()
		require.ErrorContains(t, err, part)
		require.NotContains(t, err.Error(), "secret")
		var coded exitCoder
		if errors.As(err, &coded) {
			require.Equal(t, 1, coded.ExitCode())
		}
	}
}

func TestDevRunner_HelpSaysThatNothingIsIsolated(t *testing.T) {
	cmd := newDevRunnerCommand()
	var out bytes.Buffer
	cmd.SetOut(&out)
	cmd.SetArgs([]string{"--help"})
	require.NoError(t, cmd.Execute())
	require.Contains(t, out.String(), "isolates nothing")
	require.Contains(t, out.String(), "Examples:")
}
