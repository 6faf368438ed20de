package main

import (
	"flag"

	"github.com/spf13/cobra"

	"github.com/bullpen-ci/bullpen/internal/agent/agentcmd"
)

// newAgentCommand has the commands of the binary bullpen-agent. Pods on Linux start that one. A Mac has one program, this one, and its
// node agent starts it in pods and in virtual machines.
func newAgentCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "agent",
		Short: "Run a process of a runner pod (poller, supervisor, container hook, guard and others)",
		Long: `Run a process of a runner pod. Pods start these commands, not people. On Linux they are commands of bullpen-agent, a small program in the same
image: "bullpen-agent poll" is "bullpen agent poll". A Mac has only this program.`,
		Args: cobra.NoArgs,
	}
	addAgentCommands(cmd, agentcmd.Commands(agentcmd.Program{Name: "bullpen", Prefix: []string{"agent"}}))
	return cmd
}

func addAgentCommands(parent *cobra.Command, commands []agentcmd.Command) {
	for _, c := range commands {
		cmd := &cobra.Command{Use: c.Use, Short: c.Short, Long: c.Long, Example: c.Example}
		flags := flag.NewFlagSet(c.Name(), flag.ContinueOnError)
		run := c.Define(flags)
		cmd.Flags().AddGoFlagSet(flags)
		for _, name := range c.Required {
			cobra.CheckErr(cmd.MarkFlagRequired(name)) // fails for an unknown flag only
		}
		cmd.Args = func(cmd *cobra.Command, args []string) error { return c.Check(cmd.Flags().Changed, args) }
		cmd.RunE = func(cmd *cobra.Command, args []string) error { return run(cmd.Context(), args) }
		addAgentCommands(cmd, c.Commands)
		parent.AddCommand(cmd)
	}
}
