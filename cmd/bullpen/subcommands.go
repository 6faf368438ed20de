package main

import "github.com/spf13/cobra"

// subcommands lists every part, in the order of `bullpen --help`.
func subcommands() []*cobra.Command {
	return []*cobra.Command{}
}
