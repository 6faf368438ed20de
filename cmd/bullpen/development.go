//go:build !production

package main

import "github.com/spf13/cobra"

// developmentCommands are what a cluster has no use for: the one-machine mode and the stand-ins. The tag "production",
// with which images are built, leaves them out, and all that only they need.
func developmentCommands() []*cobra.Command {
	return []*cobra.Command{newUpCommand(), newDownCommand(), newDemoCommand(), newDevCommand()}
}

// newDevCommand groups what development and tests need and production does not.
func newDevCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "dev",
		Short: "Stand-ins for GitHub, its runner and Tart, for development and tests",
	}
	cmd.AddCommand(newDevGitHubCommand(), newDevRunnerCommand(), newDevTartCommand())
	return cmd
}

// defaultStateDir is where operators' commands look for a `bullpen up` of this machine.
var defaultStateDir = func() (string, error) { return stateDir("") }
