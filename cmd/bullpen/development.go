//go:build !production

package main

import (
	"os"

	"github.com/spf13/cobra"

	"github.com/bullpen-ci/bullpen/internal/cli"
	"github.com/bullpen-ci/bullpen/internal/dev/mac"
	"github.com/bullpen-ci/bullpen/internal/dev/onebox"
)

// developmentCommands are not for clusters: the one-machine mode and the stand-ins. Images are built with the tag "production", which leaves
// them and their dependencies out.
func developmentCommands() []*cobra.Command {
	return []*cobra.Command{newUpCommand(), newDownCommand(), newRunCommand(), newDemoCommand(), newImagesCommand(), newDevCommand()}
}

// newDevCommand groups what development and tests need and production does not.
func newDevCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "dev",
		Short: "Development tools: stand-ins for GitHub, its runner, Tart and a Mac, a policy simulator, and a load generator",
	}
	cmd.AddCommand(newDevGitHubCommand(), newDevRunnerCommand(), newDevTartCommand(), newDevMacCommand(), newDevSimulateCommand(),
		newDevLoadCommand(), newDevRelayCommand())
	return cmd
}

// defaultStateDir is where administrators' commands look for a `bullpen up` of this machine.
var defaultStateDir = func() (string, error) { return stateDir("") }

// localGitHubOf connects to the stand-in of a `bullpen up` of this machine.
var localGitHubOf = func(site cli.Site) (localGitHub, error) {
	client, err := onebox.Connect(site.StateDir, func(onebox.Event) {})
	if err != nil {
		return nil, err
	}
	return client, nil
}

// actAnotherPart is this program under the name of one of a model Mac's commands, in that Mac's directory.
func actAnotherPart() (code int, answered bool) {
	self, err := os.Executable()
	if err != nil || !mac.IsCommand(self) {
		return 0, false
	}
	return mac.Main(mac.Program{Executable: self, Args: os.Args[1:], Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr}), true
}
