package main

import (
	"bytes"
	"io"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/internal/cli"
)

// kubectl runs kubectl-bullpen for `kubectl bullpen`: help, examples and errors name that.
func TestNameAfter_APluginOfKubectl(t *testing.T) {
	help := func(file string, args ...string) (string, error) {
		root, out := newRootCommand(), bytes.Buffer{}
		nameAfter(root, file)
		root.SetOut(&out)
		root.SetErr(io.Discard)
		root.SetArgs(args)
		err := root.ExecuteContext(t.Context())
		return out.String(), err
	}
	text, err := help("/home/ada/.krew/bin/kubectl-bullpen", "jobs", "--help")
	require.NoError(t, err)
	require.Contains(t, text, "Usage:\n  kubectl bullpen jobs [flags]")
	require.Contains(t, text, "\n  kubectl bullpen jobs --watch\n")
	require.NotContains(t, text, "\n  bullpen ")
	_, err = help("kubectl-bullpen", "jobz")
	require.ErrorContains(t, err, "unknown command \"jobz\" of `kubectl bullpen`. Did you mean `kubectl bullpen job` or `kubectl bullpen jobs`?")
	for _, file := range []string{"/usr/local/bin/bullpen", "./bullpen-v1"} {
		text, err = help(file, "jobs", "--help")
		require.NoError(t, err)
		require.Contains(t, text, "Usage:\n  bullpen jobs [flags]", file)
		require.NotContains(t, text, "kubectl bullpen", file)
	}
}

// Every command that uses the server ends what it has started for that.
func TestCloseConnections_ReachesEveryCommand(t *testing.T) {
	root := &cobra.Command{Use: "x", SilenceUsage: true, SilenceErrors: true}
	conn, ran := &cli.Connection{}, false
	cmd := &cobra.Command{Use: "y", RunE: func(*cobra.Command, []string) error { ran = true; return io.EOF }}
	conn.Flags(cmd.Flags())
	root.AddCommand(cmd)
	before := cmd.RunE
	closeConnections(root)
	require.NotNil(t, before)
	root.SetArgs([]string{"y"})
	require.ErrorIs(t, root.ExecuteContext(t.Context()), io.EOF)
	require.True(t, ran)

	found := 0
	var count func(*cobra.Command)
	count = func(cmd *cobra.Command) {
		if conn, is := cli.ConnectionOf(cmd.Flags()); is {
			require.NotNil(t, conn, cmd.CommandPath())
			found++
		}
		for _, sub := range cmd.Commands() {
			count(sub)
		}
	}
	count(newRootCommand())
	require.Greater(t, found, 15)
	_, is := cli.ConnectionOf(pflag.NewFlagSet("none", pflag.ContinueOnError))
	require.False(t, is)
	_, is = cli.ConnectionOf(newControllerCommand().Flags())
	require.False(t, is, "another --server")
}
