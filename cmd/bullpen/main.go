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
	"syscall"

	"github.com/spf13/cobra"

	"github.com/bullpen-ci/bullpen/internal/cli/commandline"
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

// exitCoder is an error with an exit code of its own: the agent's codes have a meaning for its caller.
type exitCoder interface{ ExitCode() int }

func run(ctx context.Context, args []string) int {
	root := newRootCommand()
	nameAfter(root, os.Args[0])
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	if err == nil {
		return 0
	}
	var coded exitCoder
	if errors.As(err, &coded) {
		if text := err.Error(); text != "" {
			fmt.Fprintln(os.Stderr, root.DisplayName()+":", text)
		}
		return coded.ExitCode()
	}
	fmt.Fprintln(os.Stderr, root.DisplayName()+":", err)
	return 1
}

func newRootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:           "bullpen",
		Short:         "Keep idle, single-use runners for GitHub Actions, and never stop a busy one",
		Version:       version,
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.AddCommand(subcommands()...)
	completeNames(root)
	closeConnections(root)
	commandline.Prepare(root, commandline.Options{
		Hints: map[string]string{
			"ACCOUNT": "`bullpen accounts list` lists accounts.", "JOB": "`bullpen jobs` lists job IDs.",
			"POD": "`bullpen runners` lists runners.", "POOL": "`bullpen pools` lists pools.",
			"SERVER": "`bullpen config get-servers` lists servers.",
		},
		Instead: map[string]string{
			"get": "`bullpen pools`, `bullpen runners` or `bullpen jobs`", "scale": "`bullpen pool scale`",
			"logs": "`bullpen job JOB --log` or `bullpen runners logs`", "log": "`bullpen job JOB --log` or `bullpen runners logs`",
			"run":      "`git push` or `gh workflow run`: GitHub starts workflows, and this build has no one-machine mode",
			"describe": "`bullpen pool get` or `bullpen job`", "migrate": "`bullpen-migrate`, or `bullpen server migrate` for the database",
		},
	})
	return root
}
