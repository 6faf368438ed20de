package main

import (
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/bullpen-ci/bullpen/internal/cli/top"
)

func newTopCommand() *cobra.Command {
	conn, every := connection(), time.Duration(0)
	cmd := &cobra.Command{
		Use:   "top",
		Short: "Show the fleet on the whole screen, refreshed",
		Long: `Show pools, jobs and accounts on the whole screen, refreshed: the runners of each pool, the longest queued jobs with the reason, and the
limits with the highest usage. ? shows the keys. It changes nothing.

Exit codes: 0 after quitting, 1 the server cannot be read at the start, or there is no terminal (use bullpen status --watch for a pipe).`,
		Example: "  bullpen top\n  bullpen top --every 5s",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			client, err := conn.Client()
			if err != nil {
				return err
			}
			return top.Run(cmd.Context(), client, every, os.Stdin, os.Stdout)
		},
	}
	conn.Flags(cmd.Flags())
	cmd.Flags().DurationVar(&every, "every", 2*time.Second, "refresh interval (minimum 1s)")
	return cmd
}
