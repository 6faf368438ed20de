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

In a cluster without an Ingress the command forwards a port to the server, and keeps it until Ctrl-C.

The code is in the URL fragment, which browsers never send over the network. Anyone who reads the link within that minute can use it
in your place: do not share it.`,
		Example: `  bullpen console

  # In a cluster
  bullpen console --context production`,
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
			if _, err = fmt.Fprintln(cmd.OutOrStdout(), link); err != nil || !client.Forwarded() {
				return err
			}
			fmt.Fprintln(cmd.ErrOrStderr(), "Forwarding a port to the server until Ctrl-C.")
			client.KeepForwarded(cmd.Context(), func(err error) { fmt.Fprintf(cmd.ErrOrStderr(), "%v; retrying\n", err) })
			return nil
		},
	}
	conn.Flags(cmd.Flags())
	return cmd
}
