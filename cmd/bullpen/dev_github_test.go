//go:build !production

package main

import (
	"bufio"
	"context"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/internal/dev/github/standin"
	"github.com/bullpen-ci/bullpen/test/kit/await"
)

func TestDevGitHub_ServesUntilItIsStopped(t *testing.T) {
	dir := t.TempDir()
	secret := filepath.Join(dir, "secret")
	require.NoError(t, os.WriteFile(secret, []byte("s3cret\n"), 0o600))
	key := filepath.Join(dir, "keys", "app.pem")
	state := filepath.Join(dir, "state.json")

	// Twice, because the second start finds the key and the state of the first.
	for round := range 2 {
		ctx, cancel := context.WithCancel(t.Context())
		out, in := io.Pipe()
		cmd := newDevGitHubCommand()
		cmd.SetOut(in)
		cmd.SetArgs([]string{
			"--listen", "127.0.0.1:0", "--private-key", key, "--generate-key", "--webhook-secret-file", secret,
			"--admin-token-file", secret, "--repo", "acme/app,acme/lib", "--user", "octo", "--state-file", state,
		})
		done := make(chan error, 1)
		go func() { done <- cmd.ExecuteContext(ctx) }()
		line, err := bufio.NewReader(out).ReadString('\n')
		require.NoError(t, err)
		client := &standin.AdminClient{URL: regexp.MustCompile(`http://\S+`).FindString(line), Token: "s3cret"}
		require.NoError(t, client.Ready(ctx))
		installs, err := client.Installations(ctx)
		require.NoError(t, err)
		require.Equal(t, "octo", installs[0].Account)
		require.Equal(t, []string{"app", "lib"}, installs[1].Repositories)
		runs, err := client.Runs(ctx)
		require.NoError(t, err)
		require.Len(t, runs, round)
		_, err = client.Submit(ctx, standin.Submission{
			FileName: "ci.yaml", Repo: "acme/app", Content: "on: push\njobs:\n  a:\n    runs-on: x\n    steps:\n      - run: \"true\"\n",
		})
		require.NoError(t, err)
		cancel()
		require.NoError(t, await.Receive(t, done, "the command returns"))
		require.NoError(t, out.Close())
	}
	info, err := os.Stat(key)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode().Perm())
}

func TestDevGitHub_BadFlagsGetOneSentence(t *testing.T) {
	empty := filepath.Join(t.TempDir(), "empty")
	require.NoError(t, os.WriteFile(empty, nil, 0o600))
	for want, args := range map[string][]string{
		"missing flag --private-key": {"--repo", "acme/app"},
		"Add --generate-key":         {"--repo", "acme/app", "--private-key", empty + ".none"},
		"is not PEM":                 {"--repo", "acme/app", "--private-key", empty},
		"must be owner/name":         {"--repo", "acme", "--private-key", empty + ".pem", "--generate-key"},
		"no accounts:":               {"--private-key", empty + ".pem", "--generate-key"},
		"is empty. Store the secret": {"--repo", "acme/app", "--private-key", empty + ".pem", "--generate-key", "--webhook-secret-file", empty},
		"the webhook URL":            {"--repo", "acme/app", "--private-key", empty + ".pem", "--generate-key", "--webhook-url", "nowhere", "--listen", "127.0.0.1:0"},
		"Choose another --listen":    {"--repo", "acme/app", "--private-key", empty + ".pem", "--generate-key", "--listen", "256.0.0.1:1"},
		"must be a positive number":  {"--repo", "acme/app", "--private-key", empty + ".pem", "--generate-key", "--app-id", "0", "--listen", "127.0.0.1:0"},
		"give the http(s) address":   {"--repo", "acme/app", "--private-key", empty + ".pem", "--generate-key", "--url", "x", "--listen", "127.0.0.1:0"},
		"served at the root":         {"--repo", "acme/app", "--private-key", empty + ".pem", "--generate-key", "--url", "http://h/p", "--listen", "127.0.0.1:0"},
	} {
		cmd := newDevGitHubCommand()
		cmd.SilenceErrors, cmd.SilenceUsage = true, true
		cmd.SetOut(io.Discard)
		cmd.SetErr(io.Discard)
		cmd.SetArgs(args)
		require.ErrorContains(t, cmd.ExecuteContext(t.Context()), want)
	}
}
