package main

import "github.com/spf13/cobra"

// subcommands lists every part, in the order of a fleet's life; `bullpen --help` sorts them.
func subcommands() []*cobra.Command {
	return append(developmentCommands(),
		newServerCommand(),
		newControllerCommand(),
		newAgentCommand(),
		newAccountsCommand(),
		newAuditCommand(),
		newEventsCommand(),
		newConsoleCommand(),
		newJobsCommand(),
		newJobCommand(),
		newWhyCommand(),
		newCancelCommand(),
		newUsageCommand(),
		newStatusCommand(),
		newTopCommand(),
		newPoolsCommand(),
		newRunnersCommand(),
		newDoctorCommand(),
		newGitHubAppCommand(),
		newVersionCommand(),
		newConfigCommand(),
		newRetireCommand(),
		newPoolCommand(),
		newNodeCommand(),
		newHostCommand(),
		newChartCommand(),
		newUninstallCommand(),
	)
}
