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
