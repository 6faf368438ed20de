//go:build !production

package main

import (
	"fmt"
	"log/slog"
	"net"

	"github.com/spf13/cobra"

	"github.com/bullpen-ci/bullpen/internal/dev/onebox/relay"
)

// newDevRelayCommand is what runs in the pod of `bullpen up --containers` that leads to the server.
func newDevRelayCommand() *cobra.Command {
	var at, to string
	cmd := &cobra.Command{
		Use:    "relay",
		Short:  "Pass TCP connections on to another address",
		Hidden: true,
		Args:   cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			listener, err := new(net.ListenConfig).Listen(cmd.Context(), "tcp", at)
			if err != nil {
				return fmt.Errorf("listening on %s: %w. Choose another --listen", at, err)
			}
			return relay.Serve(cmd.Context(), listener, to, slog.New(slog.NewTextHandler(cmd.ErrOrStderr(), nil)))
		},
	}
	cmd.Flags().StringVar(&at, "listen", ":8081", "listen address")
	cmd.Flags().StringVar(&to, "to", "", "address to pass connections on to, as host:port")
	return cmd
}
