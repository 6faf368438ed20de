package main

import (
	"bytes"
	"io"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestGitHubApp_RefusesWhatCannotWork(t *testing.T) {
	for want, args := range map[string][]string{
		"--github-url":                               {"--github-url", "https://ghe.com", "--output-dir", t.TempDir()},
		"--listen must be a loopback":                {"--listen", ":8765", "--output-dir", t.TempDir()},
		"--timeout must be greater than 0":           {"--timeout", "90m", "--output-dir", t.TempDir()},
		"--webhook-url: it must begin with https://": {"--webhook-url", "http://bullpen.example.com", "--output-dir", t.TempDir()},
		"reading the CA of GitHub":                   {"--github-ca-file", filepath.Join(t.TempDir(), "none"), "--output-dir", t.TempDir()},
		"use --output-dir":                           {"--kubeconfig", filepath.Join(t.TempDir(), "none")},
	} {
		cmd := newGitHubAppCommand()
		cmd.SilenceUsage, cmd.SilenceErrors = true, true
		var out bytes.Buffer
		cmd.SetOut(&out)
		cmd.SetErr(io.Discard)
		cmd.SetArgs(append([]string{"create"}, args...))
		require.ErrorContains(t, cmd.ExecuteContext(t.Context()), want)
		require.Empty(t, out.String())
	}
}
