// Command bullpen is every part of Bullpen in one binary: a subcommand each for the server, the controller, the
// node agent and the one-machine mode. The agent in runner pods is bullpen-agent, and on Macs a subcommand here. The files here parse configuration and wire; they hold no
// behaviour.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
)

// version is stamped by the build (-ldflags "-X main.version=…").
var version = "dev"

func main() {
	if code, answered := actAnotherPart(); answered {
		os.Exit(code)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, os.Args[1:])
	stop()
	os.Exit(code)
}

// exitCoder is an error that asks for one exit code: the agent's codes mean something to whoever started it.
type exitCoder interface{ ExitCode() int }

func run(ctx context.Context, args []string) int {
	root := newRootCommand()
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	if err == nil {
		return 0
	}
	var coded exitCoder
	if errors.As(err, &coded) {
		if text := err.Error(); text != "" {
			fmt.Fprintln(os.Stderr, "bullpen:", text)
		}
		return coded.ExitCode()
	}
	fmt.Fprintln(os.Stderr, "bullpen:", err)
	return 1
}

func newRootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:           "bullpen",
		Short:         "Warm, single-shot CI runners that are never killed mid-job",
		Version:       version,
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.AddCommand(subcommands()...)
	completeNames(root)
	for _, cmd := range root.Commands() {
		if !cmd.Runnable() {
			wantSubcommand(cmd)
		}
	}
	return root
}

// wantSubcommand makes a group fail when it is not told what to do. The library shows help and exits 0, which reads as
// success to whoever starts it: a pod's poller that exits 0 has delivered its answer.
func wantSubcommand(group *cobra.Command) {
	group.Args = cobra.NoArgs
	group.RunE = func(cmd *cobra.Command, _ []string) error {
		var names []string
		for _, sub := range cmd.Commands() {
			names = append(names, sub.Name())
		}
		return fmt.Errorf("%s does nothing by itself: add one of %s", cmd.CommandPath(), strings.Join(names, ", "))
	}
}
