// Command testpostgres runs a command beside a PostgreSQL server that all test packages share: each test has a database of its own
// there (test/kit/postgrestest). Creating a server takes some seconds of a processor, and two dozen packages need one.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"syscall"

	"github.com/bullpen-ci/bullpen/test/kit/postgrestest"
)

func main() {
	if len(os.Args) < 2 {
		fmt.Fprintln(os.Stderr, "usage: testpostgres COMMAND [ARGUMENT…]")
		os.Exit(2)
	}
	// The command is in the same process group: it gets Ctrl-C as well, and ends by itself.
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	err := postgrestest.Serve(ctx, func(url string) error {
		command := exec.CommandContext(ctx, os.Args[1], os.Args[2:]...)
		command.Cancel = func() error { return command.Process.Signal(syscall.SIGTERM) }
		command.Stdin, command.Stdout, command.Stderr = os.Stdin, os.Stdout, os.Stderr
		command.Env = append(os.Environ(), postgrestest.EnvShared+"="+url)
		return command.Run()
	})
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit):
		os.Exit(max(exit.ExitCode(), 1))
	case err != nil:
		fmt.Fprintln(os.Stderr, "testpostgres:", err)
		os.Exit(1)
	}
}
