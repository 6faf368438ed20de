package main

import (
	"path/filepath"
	"regexp"

	"github.com/spf13/cobra"

	"github.com/bullpen-ci/bullpen/internal/cli"
)

// The name of this program's file as a plugin of kubectl, and how it is then called.
const (
	pluginFile = "kubectl-bullpen"
	pluginName = "kubectl bullpen"
)

var exampleLine = regexp.MustCompile(`(?m)^(\s*)bullpen `)

// nameAfter names the commands of root as the program's file is called: kubectl runs kubectl-bullpen for `kubectl bullpen`.
func nameAfter(root *cobra.Command, file string) {
	if filepath.Base(file) != pluginFile {
		return
	}
	root.Use = pluginFile
	root.Annotations = map[string]string{cobra.CommandDisplayNameAnnotation: pluginName}
	var rename func(*cobra.Command)
	rename = func(cmd *cobra.Command) {
		cmd.Example = exampleLine.ReplaceAllString(cmd.Example, "${1}"+pluginName+" ")
		for _, sub := range cmd.Commands() {
			rename(sub)
		}
	}
	rename(root)
}

// closeConnections ends what a command's connection has started, such as a port-forward, with the command.
func closeConnections(cmd *cobra.Command) {
	for _, sub := range cmd.Commands() {
		closeConnections(sub)
	}
	run := cmd.RunE
	conn, found := cli.ConnectionOf(cmd.Flags())
	if run == nil || !found {
		return
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		defer conn.Close()
		return run(cmd, args)
	}
}
