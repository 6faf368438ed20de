package main

import (
	"strings"

	"github.com/spf13/cobra"

	"github.com/bullpen-ci/bullpen/internal/cli"
)

// listOutput adds the output flags of a command that lists rows.
func listOutput(cmd *cobra.Command, o *cli.Output) {
	o.ListFlags(cmd.Flags())
	completeFlag(cmd, "sort-by", cobra.FixedCompletions(o.Fields, cobra.ShellCompDirectiveNoFileComp))
	commonOutput(cmd, o)
}

// getOutput adds the output flags of a command that prints one row.
func getOutput(cmd *cobra.Command, o *cli.Output) {
	o.GetFlags(cmd.Flags())
	commonOutput(cmd, o)
}

func commonOutput(cmd *cobra.Command, o *cli.Output) {
	if cmd.Flags().Lookup("quiet") != nil {
		cmd.MarkFlagsMutuallyExclusive("output", "quiet")
	}
	var formats []cobra.Completion
	for _, format := range o.Formats() {
		name, _, template := strings.Cut(format, "=")
		if template {
			name += "="
		}
		formats = append(formats, name)
	}
	completeFlag(cmd, "output", cobra.FixedCompletions(formats, cobra.ShellCompDirectiveNoFileComp))
}
