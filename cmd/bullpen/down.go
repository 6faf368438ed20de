//go:build !production

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/bullpen-ci/bullpen/internal/dev/onebox"
)

func newDownCommand() *cobra.Command {
	var dir string
	var remove, yes, asJSON, now bool
	cmd := &cobra.Command{
		Use:   "down",
		Short: "Stop what `bullpen up` started on this machine",
		Long: `Stop what ` + "`bullpen up`" + ` started: ask it to stop and wait until it has, or, if it was killed, stop the processes that are
left. Running jobs are stopped too, unless ` + "`bullpen up --drain`" + ` waits for them: --now does not wait. Succeeds if nothing is running.

With --delete, also delete the state directory, with the database and the logs. It asks first; without a terminal it needs --yes.`,
		Example: `  bullpen down

  # Do not wait for running jobs of ` + "`bullpen up --drain`" + `
  bullpen down --now

  # Start from scratch next time
  bullpen down --delete
  bullpen down --delete --yes`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			folder, err := stateDir(dir)
			if err != nil {
				return err
			}
			if remove && !yes {
				if err := confirmDeletion(cmd.Context(), folder, cmd.InOrStdin(), cmd.ErrOrStderr(), inputIsTerminal); err != nil {
					return err
				}
			}
			return onebox.Down(cmd.Context(), onebox.DownOptions{
				StateDir: folder, Delete: remove, Now: now, Report: onebox.NewPrinter(cmd.OutOrStdout(), asJSON).Report,
			})
		},
	}
	cmd.Flags().StringVar(&dir, "state-dir", "", "state directory (default: that of bullpen up)")
	cmd.Flags().BoolVar(&remove, "delete", false, "delete the state directory after everything has stopped")
	cmd.Flags().BoolVar(&now, "now", false, "do not wait for running jobs")
	cmd.Flags().BoolVar(&yes, "yes", false, "delete without asking for confirmation")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON object per line")
	return cmd
}

// inputIsTerminal reports whether a person can answer.
func inputIsTerminal(in io.Reader) bool {
	file, is := in.(*os.File)
	return is && term.IsTerminal(int(file.Fd()))
}

// confirmDeletion asks before a state directory with data is deleted. A directory that is not one of `bullpen up` is refused later, and nothing
// is asked about it.
func confirmDeletion(ctx context.Context, dir string, in io.Reader, prompt io.Writer, isTerminal func(io.Reader) bool) error {
	if !onebox.HasState(dir) {
		return nil
	}
	if !isTerminal(in) {
		return fmt.Errorf("--delete deletes %s with its database and logs, and standard input is not a terminal to confirm it. Use --yes", dir)
	}
	if agreed, err := askYes(ctx, in, prompt, "Stop everything, and delete "+dir+" with its database and logs?"); err != nil || !agreed {
		return errors.Join(err, errors.New("nothing was stopped or deleted. Confirm with y, or use --yes"))
	}
	return nil
}
