//go:build !production

package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/bullpen-ci/bullpen/internal/cli"
	"github.com/bullpen-ci/bullpen/internal/cli/commandline"
	"github.com/bullpen-ci/bullpen/internal/dev/onebox"
)

func newRunCommand() *cobra.Command {
	conn, opts := connection(), onebox.RunOptions{}
	var inputs []string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "run FILE",
		Short: "Run a workflow file at the `bullpen up` of this machine",
		Long: `Submit a workflow file to the GitHub stand-in of a running ` + "`bullpen up`" + `, and print the IDs of the run and of its jobs. With --watch, follow
the run until it completes. The file is checked before anything is submitted; mistakes are printed with file, line and column.

In a cluster, GitHub starts workflows: push to GitHub instead.

Exit codes: 0 submitted, or with --watch the run succeeded, 1 it failed, 2 the run failed, 3 the run was cancelled.`,
		Example: `  bullpen run .github/workflows/ci.yaml

  # Follow it, and exit with its result
  bullpen run .github/workflows/ci.yaml --watch

  # With an event, an input and a repository of your own
  bullpen run deploy.yaml --event workflow_dispatch --input version=1.2 --repo acme/site`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			var err error
			if opts.File, err = onebox.LoadWorkflow(args[0]); err != nil {
				return err
			}
			if opts.Inputs, err = parseInputs(inputs); err != nil {
				return err
			}
			site, err := conn.Local()
			if err != nil {
				return refuseRun(err, conn.StateDir)
			}
			client, err := onebox.Connect(site.StateDir, onebox.NewPrinter(cmd.OutOrStdout(), asJSON).Report)
			if err != nil {
				return err
			}
			result, err := client.Run(cmd.Context(), opts)
			if err != nil {
				return err
			}
			if code := result.ExitCode(); code != 0 {
				return runsError{code, result.String()}
			}
			return nil
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&opts.Repository, "repo", "", "repository to run it in, as OWNER/NAME; it is added if it is missing (default: acme/app)")
	flags.StringVar(&opts.Event, "event", "", "event that starts the run (default: workflow_dispatch or push, whichever the file lists)")
	flags.StringArrayVar(&inputs, "input", nil, "input of a workflow_dispatch event, as NAME=VALUE (can be repeated)")
	flags.BoolVarP(&opts.Watch, "watch", "w", false, "follow the run until it completes, and exit with its result")
	flags.BoolVar(&asJSON, "json", false, "print one JSON object per line")
	flags.StringVar(&conn.StateDir, "state-dir", "", "state directory of bullpen up")
	return cmd
}

// parseInputs reads NAME=VALUE.
func parseInputs(given []string) (map[string]string, error) {
	inputs := map[string]string{}
	for _, input := range given {
		name, value, ok := strings.Cut(input, "=")
		if !ok || name == "" {
			return nil, fmt.Errorf("--input %w, got %q", commandline.ValueError{Must: "NAME=VALUE"}, input)
		}
		inputs[name] = value
	}
	return inputs, nil
}

// refuseRun says why there is no stand-in to submit a workflow to, and what to do. dir is the value of --state-dir.
func refuseRun(err error, dir string) error {
	var elsewhere *cli.NotLocalError
	var killed *cli.KilledError
	switch {
	case errors.As(err, &elsewhere) && elsewhere.Up:
		return fmt.Errorf("%w, and GitHub starts workflows. Push to a repository that has the App installed", err)
	case errors.As(err, &elsewhere) && elsewhere.Server != "":
		return fmt.Errorf("%w. In a cluster GitHub starts workflows: push to GitHub, or use `gh workflow run`. "+
			"For a `bullpen up` of this machine, use --state-dir DIR", err)
	case errors.As(err, &killed):
		return err
	case dir != "":
		return fmt.Errorf("`bullpen up` is not running in %s. Start it, and repeat the command. In a cluster GitHub starts workflows: push to GitHub", dir)
	}
	return errors.New("`bullpen up` is not running here. Start it, or name its directory with --state-dir, and repeat the command. In a cluster GitHub starts workflows: push to GitHub")
}
