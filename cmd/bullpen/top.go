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
		Short: "Show the fleet on the whole screen, live",
		Long: `Shows pools, jobs and accounts on the whole screen, and keeps them up to date: what each pool has, which jobs have waited longest and
why, which limits are closest. ? shows the keys. It changes nothing.

It exits with 0 when you quit, and with 1 when the fleet cannot be read at first or there is no terminal: bullpen status --watch writes to
a pipe.`,
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
	cmd.Flags().DurationVar(&every, "every", 2*time.Second, "how often it is read again, at most once a second")
	return cmd
}
