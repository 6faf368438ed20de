package main

import (
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"
)

// A mistyped container command must not end well: exit 0 of a poller means that it has delivered.
func TestRun_AGroupWithoutAKnownSubcommandFails(t *testing.T) {
	for _, args := range [][]string{{"agent"}, {"agent", "pol"}, {"dev"}, {"dev", "nothing"}, {"nothing"}} {
		require.Equal(t, 1, run(t.Context(), args), args)
	}
}

// The administrators' commands share their flags: the user, the server, the output format, and an example.
func TestCommands_ShareTheirHabits(t *testing.T) {
	checked := 0
	var check func(*cobra.Command)
	check = func(cmd *cobra.Command) {
		for _, sub := range cmd.Commands() {
			check(sub)
		}
		flags, path := cmd.Flags(), cmd.CommandPath()
		if flags.Lookup("server") == nil || flags.Lookup("service-account") == nil {
			return // it asks no server
		}
		checked++
		for _, name := range []string{"kubeconfig", "context", "state-dir", "request-timeout"} {
			require.NotNil(t, flags.Lookup(name), "%s has no --%s", path, name)
		}
		require.Contains(t, cmd.Example, path, "%s has no example", path)
		if format := flags.Lookup("output"); format != nil {
			require.Equal(t, "o", format.Shorthand, path)
		} else {
			require.Contains(t, []string{"cancel", "console", "delete", "logs", "record", "top"}, cmd.Name(), "%s has no -o", path)
		}
		if namespace := flags.Lookup("namespace"); namespace != nil {
			require.Equal(t, "n", namespace.Shorthand, path)
		}
	}
	check(newRootCommand())
	require.Greater(t, checked, 15)
}

// Rows are printed in the same formats by every command that lists them or gets one.
func TestCommands_PrintRowsInEveryFormat(t *testing.T) {
	root := newRootCommand()
	rows := map[string]bool{ // whether it lists
		"jobs": true, "job": false, "runners": true, "runners get": false, "pools": true, "pool list": true, "pool get": false,
		"accounts list": true, "accounts get": false, "usage": true, "audit": true, "events": true,
	}
	for path, lists := range rows {
		cmd := find(root, path)
		usage := cmd.Flags().Lookup("output").Usage
		for _, format := range []string{"wide", "json", "yaml", "jsonpath=", "custom-columns="} {
			require.Contains(t, usage, format, path)
		}
		require.NotNil(t, cmd.Flags().Lookup("no-headers"), path)
		require.Equal(t, lists, cmd.Flags().Lookup("sort-by") != nil, path)
		if path != "usage" { // its rows have no names
			require.Contains(t, usage, "name", path)
			require.Equal(t, "q", cmd.Flags().Lookup("quiet").Shorthand, path)
		}
	}
	for _, path := range []string{"pools", "pool list", "runners"} {
		require.Equal(t, "l", find(root, path).Flags().Lookup("selector").Shorthand, path)
	}
}

// The library takes what is in backquotes for the name of a flag's value.
func TestFlags_ValuesHaveNamesOfOneWord(t *testing.T) {
	var check func(*cobra.Command)
	check = func(cmd *cobra.Command) {
		cmd.LocalFlags().VisitAll(func(flag *pflag.Flag) {
			name, _ := pflag.UnquoteUsage(flag)
			require.False(t, strings.ContainsAny(name, " "), "%s --%s %s", cmd.CommandPath(), flag.Name, name)
		})
		for _, sub := range cmd.Commands() {
			check(sub)
		}
	}
	check(newRootCommand())
}
