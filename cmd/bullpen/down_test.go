//go:build !production

package main

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// down runs the command in a state directory, with that on standard input, which is no terminal.
func down(t *testing.T, input string, args ...string) (string, error) {
	t.Helper()
	cmd := newDownCommand()
	var out bytes.Buffer
	cmd.SetIn(strings.NewReader(input))
	cmd.SetOut(&out)
	cmd.SetErr(&out)
	cmd.SetArgs(args)
	err := cmd.ExecuteContext(t.Context())
	return out.String(), err
}

// withState is a state directory of a `bullpen up` that has stopped.
func withState(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "bullpen-onebox.json"), []byte(`{"format":1}`), 0o600))
	return dir
}

func TestDown_DeletesDataOnlyIfConfirmed(t *testing.T) {
	dir := withState(t)
	for _, answer := range []string{"", "y\n"} {
		_, err := down(t, answer, "--delete", "--state-dir", dir)
		require.ErrorContains(t, err, "Use --yes", "a pipe cannot confirm")
		require.DirExists(t, dir)
	}
	said, err := down(t, "", "--delete", "--yes", "--state-dir", dir)
	require.NoError(t, err, said)
	require.NoDirExists(t, dir)

	_, err = down(t, "", "--delete", "--state-dir", filepath.Join(t.TempDir(), "never"))
	require.NoError(t, err, "there is nothing to delete, so nothing to ask")
	dir = withState(t)
	_, err = down(t, "", "--state-dir", dir)
	require.NoError(t, err, "stopping deletes nothing")
	require.DirExists(t, dir)
}

func TestConfirmDeletion_AsksOnATerminal(t *testing.T) {
	dir := withState(t)
	terminal := func(io.Reader) bool { return true }
	for answer, agreed := range map[string]bool{"y\n": true, "yes\n": true, "n\n": false, "\n": false, "": false, "delete\n": false} {
		var prompt bytes.Buffer
		err := confirmDeletion(t.Context(), dir, strings.NewReader(answer), &prompt, terminal)
		require.Contains(t, prompt.String(), "delete "+dir+" with its database and logs?", "%q", answer)
		if agreed {
			require.NoError(t, err, "%q", answer)
		} else {
			require.ErrorContains(t, err, "nothing was stopped or deleted", "%q", answer)
		}
	}
}
