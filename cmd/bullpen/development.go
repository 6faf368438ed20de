//go:build !production

package main

import (
	"os"

	"github.com/spf13/cobra"

	"github.com/bullpen-ci/bullpen/internal/dev/mac"
)

// developmentCommands are what a cluster has no use for: the one-machine mode and the stand-ins. The tag "production",
// with which images are built, leaves them out, and all that only they need.
func developmentCommands() []*cobra.Command {
	return []*cobra.Command{newUpCommand(), newDownCommand(), newDemoCommand(), newDevCommand()}
}

// newDevCommand groups what development and tests need and production does not.
func newDevCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "dev",
		Short: "Stand-ins for GitHub, its runner, Tart and a Mac, a simulator of policies, and a generator of load, for development and tests",
	}
	cmd.AddCommand(newDevGitHubCommand(), newDevRunnerCommand(), newDevTartCommand(), newDevMacCommand(), newDevSimulateCommand(),
		newDevLoadCommand())
	return cmd
}

// defaultStateDir is where operators' commands look for a `bullpen up` of this machine.
var defaultStateDir = func() (string, error) { return stateDir("") }

// actAnotherPart is this program under the name of one of a model Mac's commands, in that Mac's folder.
func actAnotherPart() (code int, answered bool) {
	self, err := os.Executable()
	if err != nil || !mac.IsCommand(self) {
		return 0, false
	}
	return mac.Main(mac.Program{Executable: self, Args: os.Args[1:], Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr}), true
}
