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
		Long: `Print the URL of the web console with a code that logs a browser in as you, once and within a minute. The cluster's roles
(bullpen-viewer, bullpen-operator) decide what you can see. The session lasts as long as your token, 12 hours at most.

The code is in the URL fragment, which browsers never send over the network. Anyone who reads the link within that minute can use it
in your place: do not share it.`,
		Example: `  bullpen console

  # In a cluster without an Ingress
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
