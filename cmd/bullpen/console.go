package main

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/bullpen-ci/bullpen/internal/cli"
	"github.com/bullpen-ci/bullpen/internal/cli/githubapp"
)

// browserStarts is how long a browser may take to read the page with the login link.
const browserStarts = 10 * time.Second

func newConsoleCommand() *cobra.Command {
	conn, open := connection(), false
	cmd := &cobra.Command{
		Use:   "console",
		Short: "Print a link that opens the web console, logged in as you",
		Long: `Print the URL of the web console with a code that logs a browser in as you, once and within a minute. The cluster's roles
(bullpen-viewer, bullpen-admin) decide what you can see. The session lasts as long as your token, 12 hours at most.

With --open it starts a browser instead of printing the URL, and ends ten seconds later. In a cluster without an Ingress the command forwards a port to the server, and keeps it until Ctrl-C.

The code is in the URL fragment, which browsers never send over the network. Anyone who reads the link within that minute can use it
in your place: do not share it.`,
		Example: `  bullpen console --open
  bullpen console

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
			if open {
				if err = cli.OpenLink(cmd.Context(), link, githubapp.OpenBrowser, time.After(browserStarts)); err != nil {
					err = fmt.Errorf("%w. Without --open the command prints a link", err)
				}
			} else {
				_, err = fmt.Fprintln(cmd.OutOrStdout(), link)
			}
			if err != nil || !client.Forwarded() {
				return err
			}
			fmt.Fprintln(cmd.ErrOrStderr(), "Forwarding a port to the server until Ctrl-C.")
			client.KeepForwarded(cmd.Context(), func(err error) { fmt.Fprintf(cmd.ErrOrStderr(), "%v; retrying\n", err) })
			return nil
		},
	}
	conn.Flags(cmd.Flags())
	cmd.Flags().BoolVar(&open, "open", false, "start a browser with the link instead of printing it")
	return cmd
}
