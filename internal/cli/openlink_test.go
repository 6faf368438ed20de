package cli_test

import (
	"context"
	"errors"
	"net/url"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/internal/cli"
)

// The link is in no argument: the browser gets a file that only the user can read, and that is deleted.
func TestOpenLink_KeepsTheLinkOutOfArguments(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	const link = "http://127.0.0.1:8080/ui/login#code=abc&d=1"
	path := ""
	open := func(_ context.Context, argument string) error {
		require.NotContains(t, argument, "abc")
		at, err := url.Parse(argument)
		require.NoError(t, err)
		require.Equal(t, "file", at.Scheme)
		path = at.Path
		info, err := os.Stat(path)
		require.NoError(t, err)
		require.Equal(t, os.FileMode(0o600), info.Mode().Perm())
		page, err := os.ReadFile(path)
		require.NoError(t, err)
		require.Contains(t, string(page), `content="0; url=http://127.0.0.1:8080/ui/login#code=abc&amp;d=1"`)
		require.Contains(t, string(page), `href="http://127.0.0.1:8080/ui/login#code=abc&amp;d=1"`)
		return nil
	}
	shown := make(chan time.Time, 1)
	shown <- time.Time{}
	require.NoError(t, cli.OpenLink(t.Context(), link, open, shown))
	require.NoFileExists(t, path)

	ended, end := context.WithCancel(t.Context())
	end()
	require.NoError(t, cli.OpenLink(ended, link, open, nil), "Ctrl-C deletes it, too")
	require.NoFileExists(t, path)

	failed := errors.New("no browser")
	require.ErrorIs(t, cli.OpenLink(t.Context(), link, func(_ context.Context, argument string) error {
		at, err := url.Parse(argument)
		require.NoError(t, err)
		path = at.Path
		return failed
	}, nil), failed)
	require.NoFileExists(t, path)
}
