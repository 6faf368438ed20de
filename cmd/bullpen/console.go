package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/bullpen-ci/bullpen/internal/cli"
)

func newConsoleCommand() *cobra.Command {
	conn := connection()
	cmd := &cobra.Command{
		Use:   "console",
		Short: "Print a link that opens the web console, logged in as you",
		Long: `Prints the address of the web console with a code that logs a browser in as you: once, within a minute. What you may see there is
what the cluster's roles give you (bullpen-viewer, bullpen-operator). You stay logged in for as long as your token holds, 12 hours at most.

The code stands behind the # of the address, which a browser sends to nobody. Whoever reads the link within that minute can use it
instead of you: do not share it.`,
		Example: `  bullpen console

  # in a cluster, without an Ingress
  kubectl -n bullpen-system port-forward svc/bullpen-operators 8082 &
  bullpen console --server http://127.0.0.1:8082`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			conn.TokenLife = cli.ConsoleTokenLife
			client, err := conn.Client()
			if err != nil {
				return err
			}
			link, err := client.ConsoleLink(cmd.Context())
			if err != nil {
				return err
			}
			_, err = fmt.Fprintln(cmd.OutOrStdout(), link)
			return err
		},
	}
	conn.Flags(cmd.Flags())
	return cmd
}
