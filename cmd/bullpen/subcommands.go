package main

import "github.com/spf13/cobra"

// subcommands lists every part, in the order of a fleet's life; `bullpen --help` sorts them.
func subcommands() []*cobra.Command {
	return []*cobra.Command{
		newUpCommand(),
		newDownCommand(),
		newDemoCommand(),
		newServerCommand(),
		newControllerCommand(),
		newAgentCommand(),
		newAccountsCommand(),
		newAuditCommand(),
		newNodeCommand(),
		newDevCommand(),
	}
}

// newDevCommand groups what development and tests need and production does not.
func newDevCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "dev",
		Short: "Stand-ins for GitHub and its runner, for development and tests",
	}
	cmd.AddCommand(newDevGitHubCommand(), newDevRunnerCommand())
	return cmd
}
