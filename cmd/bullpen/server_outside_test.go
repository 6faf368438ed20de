package main

import (
	"testing"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"

	"github.com/bullpen-ci/bullpen/internal/fleet"
)

func TestOutsideFlags(t *testing.T) {
	read := func(args ...string) (fleet.OutsideRunners, error) {
		var cfg outsideConfig
		f := pflag.NewFlagSet("", pflag.ContinueOnError)
		cfg.flags(f)
		require.NoError(t, f.Parse(args))
		return cfg.runners()
	}
	got, err := read()
	require.NoError(t, err)
	require.Equal(t, fleet.OutsideRunners{GitHub: fleet.GitHubHosted()}, got, "CLAIM-21: GitHub's standard labels are known")
	got, err = read("--github-hosted-labels=default,acme-*", "--other-runner-labels=gpu,arc-*")
	require.NoError(t, err)
	require.Equal(t, fleet.OutsideRunners{GitHub: append(fleet.GitHubHosted(), "acme-*"), Other: fleet.LabelPatterns{"gpu", "arc-*"}}, got)
	_, err = read("--other-runner-labels=*")
	require.ErrorContains(t, err, "reading --other-runner-labels: label pattern \"*\" matches every label")
	_, err = read("--github-hosted-labels=*")
	require.ErrorContains(t, err, "reading --github-hosted-labels: ")
}
