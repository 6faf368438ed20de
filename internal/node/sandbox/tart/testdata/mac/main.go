//go:build unix

// Command mac is all the programs of a Mac that the tests of the Tart back end need, in one: the fake of tart and of launchctl, the agent inside
// guests, and the shim of the process back end.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/bullpen-ci/bullpen/internal/agent"
	"github.com/bullpen-ci/bullpen/internal/agent/guestshare"
	"github.com/bullpen-ci/bullpen/internal/dev/tart"
	"github.com/bullpen-ci/bullpen/internal/node/sandbox/process"
)

func main() {
	self, err := os.Executable()
	if err == nil && len(os.Args) > 1 {
		err = run(self, os.Args[1], os.Args[2:])
	}
	var exit *agent.ExitError
	switch {
	case errors.As(err, &exit):
		if exit.Text != "" {
			fmt.Fprintln(os.Stderr, exit.Text)
		}
		os.Exit(exit.Code)
	case err != nil && !errors.Is(err, agent.ErrGuestBegun):
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(self, program string, args []string) error {
	switch program {
	case "shim":
		return process.RunShim(args[0])
	case "agent":
		return guest(self, args)
	case "launchctl", "ps":
		args = append([]string{program}, args...)
	}
	os.Exit(tart.Main(tart.Program{
		Self: []string{self, "tart"}, Args: args, Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr,
	}))
	return nil
}

// guest is `bullpen agent guest`, as cmd/bullpen has it.
func guest(self string, args []string) error {
	options := agent.GuestOptions{Shares: os.Getenv(guestshare.EnvShares), Environ: os.Environ()}
	if len(args) > 1 && args[1] == "exec" { // guest exec --id ID [--tty] -- COMMAND…
		end := slices.Index(args, "--")
		return agent.GuestExec(context.Background(), agent.GuestExecOptions{
			GuestOptions: options, ID: args[3], TTY: slices.Contains(args[:end], "--tty"), Command: args[end+1:],
			Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr,
		})
	}
	if slices.Contains(args, "--foreground") {
		return agent.Guest(context.Background(), options)
	}
	return agent.DetachGuest(context.Background(), options, []string{self, "agent", "guest", "--foreground"})
}
