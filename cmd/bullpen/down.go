//go:build !production

package main

import (
	"github.com/spf13/cobra"

	"github.com/bullpen-ci/bullpen/internal/dev/onebox"
)

func newDownCommand() *cobra.Command {
	var dir string
	var remove, asJSON bool
	cmd := &cobra.Command{
		Use:   "down",
		Short: "Stop what `bullpen up` started on this machine",
		Long: `Stop what ` + "`bullpen up`" + ` started: ask it to stop and wait until it has, or, when it was killed, end the processes
that it left behind. Running jobs end with it. Nothing to do is no error.`,
		Example: `  bullpen down

  # Begin anew next time
  bullpen down --delete`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			folder, err := stateDir(dir)
			if err != nil {
				return err
			}
			return onebox.Down(cmd.Context(), onebox.DownOptions{
				StateDir: folder, Delete: remove, Report: onebox.NewPrinter(cmd.OutOrStdout(), asJSON).Report,
			})
		},
	}
	cmd.Flags().StringVar(&dir, "state-dir", "", "state folder (default: that of bullpen up)")
	cmd.Flags().BoolVar(&remove, "delete", false, "delete the state folder when nothing runs in it any more")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON object per line")
	return cmd
}
