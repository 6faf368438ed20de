// Command bullpen-migrate converts other projects' manifests to Bullpen's. It is run once, by a person, and reads files only: so it is a program
// of its own, and not in the binary that the server, the controller and runner pods run.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/bullpen-ci/bullpen/internal/cli/commandline"
)

// version is stamped by the build (-ldflags "-X main.version=…").
var version = "dev"

func main() { os.Exit(run(context.Background(), os.Args[1:])) }

// run returns the exit code. An error without text was reported already.
func run(ctx context.Context, args []string) int {
	root := newRootCommand()
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	if err == nil {
		return 0
	}
	if text := err.Error(); text != "" {
		fmt.Fprintln(os.Stderr, "bullpen-migrate:", text)
	}
	if failed := (migrationError{}); errors.As(err, &failed) {
		return failed.code
	}
	return 1
}

func newRootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:               "bullpen-migrate",
		Short:             "Convert other projects' manifests to Bullpen's",
		Version:           version,
		SilenceUsage:      true,
		SilenceErrors:     true,
		CompletionOptions: cobra.CompletionOptions{DisableDefaultCmd: true},
		RunE: func(*cobra.Command, []string) error { // cobra would show help and exit with 0, which a script takes for success
			return errors.New("missing subcommand: write `bullpen-migrate arc FILE`")
		},
	}
	root.AddCommand(newARCCommand())
	commandline.Prepare(root, commandline.Options{})
	return root
}
